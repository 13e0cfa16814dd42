"""GPUs through NVML: what is there, what of it is visible to us, and who uses it now.

Whatever the driver refuses to say is unknown, and unknown is never taken for free: such a device is
listed, but with a user or without a memory size, so that no job is put on it by itself.
"""

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.core.machine import UNKNOWN_USER, Device
from headway.core.text import plain
from headway.core.units import show_bytes
from headway.probes.device_memory import DeviceMemory, device_memory, process_memory
from headway.probes.processes import owner_and_command
from headway.probes.visible import VARIABLE, Gpu, Target, visible_targets
from headway.system.mig import MigDevice, mig_devices
from headway.system.procfs import PROC

# The first pid namespace has this number in every kernel (PROC_PID_INIT_INO). In any other one the
# pids that the driver gives are not ours: it knows no namespaces.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"

# As NVML names them; a newer one is not known by name until it stands here.
_ARCHITECTURES = (
    "Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell",
)  # fmt: skip

# Chips that only come with the host's memory: Xavier, Orin, Thor and GB10 (recalled). Others that
# do not give their memory hide it.
_INTEGRATED = {(7, 2), (8, 7), (11, 0), (12, 1)}


@dataclass(frozen=True, slots=True)
class Inventory:
    """The devices that jobs can be given, notes in words, and whether there is any GPU at all."""

    devices: tuple[Device, ...] = ()
    notes: tuple[str, ...] = ()
    any_gpu: bool = False


def load_nvml() -> Any | None:
    """NVIDIA's own binding, or None where it is not installed; a driver is not needed for it."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


def read_devices(
    nvml: Any | None,
    visible: str | None,
    *,
    own_pids: Collection[int] = (),
    device_order: str | None = None,
    proc: Path = PROC,
) -> Inventory:
    """The visible GPUs and MIG devices, with memory and foreign users. Never raises NVML errors.

    Args:
        nvml: The module that `load_nvml` gave, or a fake of it.
        visible: The inherited CUDA_VISIBLE_DEVICES, None where unset.
        own_pids: Processes that are ours; all others on a device are foreign.
        device_order: The inherited CUDA_DEVICE_ORDER.
        proc: Where procfs is mounted.

    """
    if nvml is None:
        return Inventory(notes=("nvidia-ml-py is not installed, so GPUs cannot be seen",))
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Inventory(notes=(_no_driver(nvml, error),))
    try:
        gpus, notes = _list_gpus(nvml)
        targets, hidden = visible_targets(gpus, visible)
        reader = _Reader(nvml, frozenset(own_pids), _pids_are_ours(proc), proc)
        devices = []
        for index, target in enumerate(targets):
            device, more = reader.device(index, target)
            devices.append(device)
            notes += more
        notes += [*hidden, *_renumbered(targets), *_other_order(gpus, visible, device_order)]
        return Inventory(tuple(devices), tuple(notes), any_gpu=bool(gpus))
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _no_driver(nvml: Any, error: Exception) -> str:
    """Why NVML does not start, in words."""
    code = getattr(error, "value", None)
    if code == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return "no NVIDIA driver here, so no GPUs"
    if code == nvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return "the NVIDIA driver is installed but not loaded, so no GPUs"
    if code == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return (
            "the NVIDIA driver was updated while in use (library and kernel module differ), so "
            "GPUs cannot be seen; reboot, or reload the module"
        )
    return f"the NVIDIA driver cannot be asked ({error}), so GPUs cannot be seen"


def _list_gpus(nvml: Any) -> tuple[list[Gpu], list[str]]:
    """All GPUs that answer, in the driver's order."""
    gpus: list[Gpu] = []
    notes: list[str] = []
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return gpus, [f"the NVIDIA driver does not list its GPUs ({error})"]
    for number in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            uuid, name = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
        except nvml.NVMLError as error:
            notes.append(f"GPU {number} does not answer ({error}) and is left out")
            continue
        gpus.append(Gpu(number, handle, uuid, plain(name), _parts(nvml, handle, uuid, notes)))
    return gpus, notes


def _parts(nvml: Any, handle: Any, uuid: str, notes: list[str]) -> tuple[MigDevice, ...] | None:
    """The MIG devices of a GPU; None where MIG is off, or the card has none."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        return None
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    try:
        parts, unread = mig_devices(nvml, handle)
    except nvml.NVMLError as error:
        notes.append(f"{uuid} is in MIG mode, but does not list its parts ({error}); left out")
        return ()
    notes += unread
    return tuple(parts)


def _pids_are_ours(proc: Path) -> bool:
    """Whether the pids that the driver speaks of are those that we see."""
    try:
        return os.readlink(proc / "self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _renumbered(targets: Iterable[Target]) -> list[str]:
    """Says which GPUs the devices are, where their numbers differ."""
    whole = [(index, gpu.number) for index, gpu in enumerate(targets) if isinstance(gpu, Gpu)]
    if all(index == number for index, number in whole):
        return []
    here = ", ".join(str(index) for index, _ in whole)
    there = ", ".join(str(number) for _, number in whole)
    return [f"devices {here} are the machine's GPUs {there} ({VARIABLE})"]


def _other_order(gpus: Iterable[Gpu], visible: str | None, order: str | None) -> list[str]:
    """Warns where an index may mean another GPU to CUDA, which counts the fastest first."""
    by_index = visible is not None and visible.strip() and "-" not in visible
    if not by_index or order == "PCI_BUS_ID" or len({gpu.name for gpu in gpus}) < 2:
        return []
    return [
        f"{VARIABLE} was read in the order of the PCI bus, but CUDA counts the fastest GPU first "
        "unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set: set it, or name GPUs by UUID"
    ]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Asks the driver about one device after another."""

    nvml: Any
    own_pids: frozenset[int]
    pids_are_ours: bool
    proc: Path

    def device(self, index: int, target: Target) -> tuple[Device, list[str]]:
        """The device at this place of the inventory, with notes on what could not be learned."""
        device = Device(
            index=index,
            name=target.name,
            uuid=target.uuid,
            memory_bytes=None,
            used_bytes=None,
            architecture=self._architecture(target.handle),
            capability=self._capability(target.handle),
        )
        device, notes = self._with_memory(device, target)
        users, unread = self._users(target.handle)
        if unread:
            users = [UNKNOWN_USER]
            notes.append(
                f"device {index}: who uses it cannot be read ({unread}); it is not taken for free"
            )
        elif users and not self.pids_are_ours:
            notes.append(
                f"device {index}: the driver gives the host's pids, so its users have no names here"
            )
        update: dict[str, Any] = {"users": tuple(users)}
        if isinstance(target, MigDevice):
            update |= {
                "parent": target.gpu,
                "instance": (target.instance, target.compute),
                "sms": self._sms(target.handle),
            }
            notes.append(
                f"device {index} is a MIG device, a part of a GPU: a process can use one such "
                "part, and its load cannot be read"
            )
        return device.model_copy(update=update), notes

    def _with_memory(self, device: Device, target: Target) -> tuple[Device, list[str]]:
        try:
            memory = device_memory(self.nvml, target.handle)
        except self.nvml.NVMLError as error:
            refused = error.value == self.nvml.NVML_ERROR_NOT_SUPPORTED
            if not (refused and device.capability in _INTEGRATED):
                return device, [f"device {device.index}: memory unknown ({error})"]
            memory = DeviceMemory(total_bytes=0, free_bytes=0, reserved_bytes=None)
        if not memory.total_bytes:
            note = f"device {device.index}: memory unknown (it shares the host's)"
            return device.model_copy(update={"shares_host_memory": True}), [note]
        update = {
            "memory_bytes": memory.total_bytes,
            "used_bytes": memory.used_bytes,
            "reserved_bytes": memory.reserved_bytes,
        }
        return device.model_copy(update=update), []

    def _architecture(self, handle: Any) -> str | None:
        try:
            number = self.nvml.nvmlDeviceGetArchitecture(handle)
        except self.nvml.NVMLError:
            return None
        known = (name for name in _ARCHITECTURES if self._number(name) == number)
        return next(known, None)

    def _number(self, architecture: str) -> int | None:
        """NVML's number of an architecture; None where the binding is older than that."""
        return getattr(self.nvml, f"NVML_DEVICE_ARCH_{architecture.upper()}", None)

    def _capability(self, handle: Any) -> tuple[int, int] | None:
        try:
            major, minor = self.nvml.nvmlDeviceGetCudaComputeCapability(handle)
        except self.nvml.NVMLError:
            return None
        return int(major), int(minor)

    def _sms(self, handle: Any) -> int | None:
        """Multiprocessors of a MIG device; of a whole GPU, NVML does not tell."""
        try:
            return int(self.nvml.nvmlDeviceGetAttributes_v2(handle).multiprocessorCount)
        except self.nvml.NVMLError:
            return None

    def _users(self, handle: Any) -> tuple[list[str], str]:
        """Foreign processes on a device, in words, or why they cannot be read."""
        try:
            processes = process_memory(self.nvml, handle)
        except self.nvml.NVMLError as error:
            return [], str(error)
        foreign = (process for process in processes if not self._ours(process.pid))
        return [self._user(process.pid, process.used_bytes) for process in foreign], ""

    def _ours(self, pid: int) -> bool:
        return self.pids_are_ours and pid in self.own_pids

    def _user(self, pid: int, used_bytes: int | None) -> str:
        size = "memory unknown" if used_bytes is None else show_bytes(used_bytes)
        who = owner_and_command(pid, proc=self.proc) if self.pids_are_ours else None
        if who is None:
            return f"process {pid} of the host, {size}"
        return f"{who.user}: {who.command} (process {pid}), {size}"
