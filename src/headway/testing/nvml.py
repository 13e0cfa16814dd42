"""A fake NVML: an object that answers like the module pynvml, for machines without a GPU.

It raises the real error classes of nvidia-ml-py and is strange where the real one is: indexes of
MIG devices have holes, the parent of MIG devices refuses to speak of its memory and processes, and
processes come with the host's pids.

>>> fake = FakeNvml([FakeGpu("H100", "GPU-aa", 80 * 2**30, 2**30, (FakeUse(4711, 2**29),))])
>>> fake.nvmlInit()
>>> handle = fake.nvmlDeviceGetHandleByIndex(0)
>>> [use.pid for use in fake.nvmlDeviceGetComputeRunningProcesses(handle)]
[4711]
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True, slots=True)
class FakeUse:
    """A process on a fake device, with the memory it uses; None where the driver does not say."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class FakeMig:
    """A MIG device; `instance` and `compute` are the numbers of its two instances."""

    name: str
    uuid: str
    memory_bytes: int
    used_bytes: int = 0
    uses: tuple[FakeUse, ...] = ()
    instance: int = 1
    compute: int = 0


@dataclass(frozen=True, slots=True)
class FakeGpu:
    """A GPU; memory 0 means that it has none of its own, `migs` not None that MIG is on.

    `migs` may hold None: a hole in the indexes. `refuses` maps a function's name to the error code
    that it answers with for this GPU. `clients` are what an MPS server lists.
    """

    name: str
    uuid: str
    memory_bytes: int
    used_bytes: int = 0
    uses: tuple[FakeUse, ...] = ()
    migs: tuple[FakeMig | None, ...] | None = None
    clients: tuple[FakeUse, ...] = ()
    refuses: Mapping[str, int] = field(default_factory=dict)


class FakeNvml:
    """The part of pynvml that Headway uses, over fake GPUs.

    Args:
        gpus: In the order of the PCI bus.
        init_error: The code that nvmlInit fails with, or None.

    """

    def __init__(self, gpus: Iterable[FakeGpu] = (), *, init_error: int | None = None) -> None:
        import pynvml

        self._real = pynvml
        self._gpus = tuple(gpus)
        self._init_error = init_error
        self.open = 0
        """How many nvmlInit calls have no nvmlShutdown yet."""

    def __getattr__(self, name: str) -> Any:
        """Error classes and constants are the real ones; functions are not, so none is missed."""
        if name.startswith(("NVMLError", "NVML_")):
            return getattr(self._real, name)
        raise AttributeError(f"the fake NVML has no {name}")

    def nvmlInit(self) -> None:  # noqa: N802
        """Start, or fail as a machine without a driver does."""
        if self._init_error is not None:
            raise self._real.NVMLError(self._init_error)
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Stop."""
        self._check("nvmlShutdown", None)
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """Number of GPUs."""
        self._check("nvmlDeviceGetCount", None)
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        """A GPU."""
        if not 0 <= index < len(self._gpus):
            raise self._real.NVMLError(self._real.NVML_ERROR_INVALID_ARGUMENT)
        self._check("nvmlDeviceGetHandleByIndex", self._gpus[index])
        return self._gpus[index]

    def nvmlDeviceGetUUID(self, handle: FakeGpu | FakeMig) -> str:  # noqa: N802
        """UUID of a GPU or MIG device."""
        self._check("nvmlDeviceGetUUID", handle)
        return handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu | FakeMig) -> str:  # noqa: N802
        """Name of a GPU or MIG device."""
        self._check("nvmlDeviceGetName", handle)
        return handle.name

    def nvmlDeviceGetMigMode(self, handle: FakeGpu) -> list[int]:  # noqa: N802
        """Current and pending mode."""
        self._check("nvmlDeviceGetMigMode", handle)
        on = int(handle.migs is not None)
        return [on, on]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: FakeGpu) -> int:  # noqa: N802
        """Most MIG devices; 0, and no error, where MIG is off."""
        self._check("nvmlDeviceGetMaxMigDeviceCount", handle)
        return 0 if handle.migs is None else 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: FakeGpu, index: int) -> FakeMig:  # noqa: N802
        """A MIG device, NOT_FOUND at a hole."""
        self._check("nvmlDeviceGetMigDeviceHandleByIndex", handle)
        found = (handle.migs or ())[index : index + 1]
        if not found or found[0] is None:
            raise self._real.NVMLError(self._real.NVML_ERROR_NOT_FOUND)
        return found[0]

    def nvmlDeviceGetGpuInstanceId(self, handle: FakeMig) -> int:  # noqa: N802
        """GPU instance of a MIG device."""
        self._check("nvmlDeviceGetGpuInstanceId", handle)
        return handle.instance

    def nvmlDeviceGetComputeInstanceId(self, handle: FakeMig) -> int:  # noqa: N802
        """Compute instance of a MIG device."""
        self._check("nvmlDeviceGetComputeInstanceId", handle)
        return handle.compute

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu | FakeMig) -> SimpleNamespace:  # noqa: N802
        """Total, free and used bytes."""
        self._check("nvmlDeviceGetMemoryInfo", handle)
        self._refuse_parent(handle)
        free = handle.memory_bytes - handle.used_bytes
        return SimpleNamespace(total=handle.memory_bytes, free=free, used=handle.used_bytes)

    def nvmlDeviceGetComputeRunningProcesses(  # noqa: N802
        self, handle: FakeGpu | FakeMig
    ) -> list[SimpleNamespace]:
        """Processes with a context on the device."""
        self._check("nvmlDeviceGetComputeRunningProcesses", handle)
        self._refuse_parent(handle)
        return [_running(use) for use in handle.uses]

    def nvmlDeviceGetMPSComputeRunningProcesses(  # noqa: N802
        self, handle: FakeGpu | FakeMig
    ) -> list[SimpleNamespace]:
        """Clients of an MPS server."""
        self._check("nvmlDeviceGetMPSComputeRunningProcesses", handle)
        return [_running(use) for use in getattr(handle, "clients", ())]

    def _check(self, function: str, handle: FakeGpu | FakeMig | None) -> None:
        if self.open < 1:
            raise self._real.NVMLError(self._real.NVML_ERROR_UNINITIALIZED)
        code = getattr(handle, "refuses", {}).get(function)
        if code is not None:
            raise self._real.NVMLError(code)

    def _refuse_parent(self, handle: FakeGpu | FakeMig) -> None:
        if isinstance(handle, FakeGpu) and handle.migs is not None:
            raise self._real.NVMLError(self._real.NVML_ERROR_NO_PERMISSION)


def _running(use: FakeUse) -> SimpleNamespace:
    return SimpleNamespace(
        pid=use.pid, usedGpuMemory=use.used_bytes, gpuInstanceId=0xFFFFFFFF, computeInstanceId=0
    )
