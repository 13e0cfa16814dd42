"""Memory of a device, and whose it is: what the driver says of each process, and what it does not.

What a driver gives for a process holds its context. What is in use beyond all processes that it
names is unattributed: another container's processes, graphics, contexts of processes that just end.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.core.readings import UNATTRIBUTED, Reading

HOST_PIDS = f"{UNATTRIBUTED}: the driver gives the host's pids, which mean nothing here"


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of a device; of what is in use, the driver keeps `reserved_bytes` for itself."""

    total_bytes: int
    free_bytes: int
    reserved_bytes: int | None

    @property
    def used_bytes(self) -> int:
        """All that is not free: what processes hold, and what the driver keeps."""
        return self.total_bytes - self.free_bytes


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """A process on a device, and what it holds there, its context counted.

    `used_bytes` is None where the driver does not say; `is_client` is true for one that works by
    way of an MPS server, which holds a little memory of its own.
    """

    pid: int
    used_bytes: int | None
    is_client: bool = False


def device_memory(nvml: Any, handle: Any) -> DeviceMemory:
    """Read a device's memory; total 0 where it has none of its own.

    Raises:
        NVMLError: The driver does not give it.
    """
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError:  # drivers before R510
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    # The driver's `used` counts what is reserved in one form of the answer, maybe not in the other.
    reserved = getattr(memory, "reserved", None)
    return DeviceMemory(
        int(memory.total), int(memory.free), None if reserved is None else int(reserved)
    )


def process_memory(nvml: Any, handle: Any) -> tuple[ProcessMemory, ...]:
    """The processes on a device, by pid.

    Raises:
        NVMLError: The driver does not list them.
    """
    found = {
        process.pid: ProcessMemory(process.pid, process.usedGpuMemory)
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    }
    try:
        clients = nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)
    except nvml.NVMLError:
        clients = []  # older drivers and cards without MPS
    for process in clients:
        listed, used = found.get(process.pid), process.usedGpuMemory
        if used is None and listed is not None:
            used = listed.used_bytes
        found[process.pid] = ProcessMemory(process.pid, used, is_client=True)
    return tuple(found[pid] for pid in sorted(found))


@dataclass(frozen=True, slots=True)
class Attribution:
    """Whose a device's memory is: each job's, that of other processes, and nobody's."""

    jobs: Mapping[str, Reading]
    foreign_bytes: Reading
    unattributed_bytes: Reading


def attribute(
    memory: DeviceMemory,
    processes: Sequence[ProcessMemory],
    jobs: Mapping[str, Collection[int]],
    *,
    pids_are_ours: bool,
) -> Attribution:
    """Divide what is in use of a device's memory among jobs, others and nobody. Pure.

    Args:
        memory: The device's.
        processes: What the driver lists on it.
        jobs: Each job's processes.
        pids_are_ours: Whether the driver's pids are those of `jobs`.

    >>> memory = DeviceMemory(total_bytes=100, free_bytes=30, reserved_bytes=5)
    >>> listed = [ProcessMemory(7, 40), ProcessMemory(8, 20)]
    >>> found = attribute(memory, listed, {"train": [7, 9]}, pids_are_ours=True)
    >>> found.jobs["train"].value, found.foreign_bytes.value, found.unattributed_bytes.value
    (40.0, 20.0, 5.0)
    """
    in_use = memory.used_bytes - (memory.reserved_bytes or 0)
    if not pids_are_ours:
        return Attribution(
            {job: Reading.missing(HOST_PIDS) for job in jobs},
            Reading.missing(HOST_PIDS),
            Reading.of(max(0, in_use)),
        )
    ours = {pid for pids in jobs.values() for pid in pids}
    told = sum(process.used_bytes or 0 for process in processes)
    return Attribution(
        {
            job: _sum([process for process in processes if process.pid in pids])
            for job, pids in jobs.items()
        },
        _sum([process for process in processes if process.pid not in ours]),
        Reading.of(max(0, in_use - told)),
    )


def _sum(processes: Sequence[ProcessMemory]) -> Reading:
    """What these hold together; not known as soon as it is not known of one."""
    total = 0
    for process in processes:
        if process.used_bytes is None:
            return Reading.missing(
                f"{UNATTRIBUTED}: the driver does not say what process {process.pid} holds"
            )
        total += process.used_bytes
    return Reading.of(total)
