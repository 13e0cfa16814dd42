# ruff: noqa: N802  the names are NVML's
"""A fake NVML: an object that answers like the module pynvml, for machines without a GPU.

It raises the real error classes of nvidia-ml-py and is strange where the real one is: indexes of
MIG devices have holes, the parent of MIG devices refuses to speak of its memory and processes, what
is not available under MIG is not supported, and processes come with the host's pids. Each call
that changes something is in `changes`.

>>> fake = FakeNvml([FakeGpu("H100", "GPU-aa", 80 * 2**30, 2**30, (FakeUse(4711, 2**29),))])
>>> fake.nvmlInit()
>>> handle = fake.nvmlDeviceGetHandleByIndex(0)
>>> [use.pid for use in fake.nvmlDeviceGetComputeRunningProcesses(handle)]
[4711]
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from headway.testing.nvml_counters import Counters
from headway.testing.nvml_devices import FakeGpu, FakeMig, FakeUse, fake_gpu
from headway.testing.nvml_division import Division

__all__ = ["FakeNvml", "FakeGpu", "FakeMig", "FakeUse", "fake_gpu", "Change"]


class Change(NamedTuple):
    """A call that was to change something: what was asked of which GPU, and the answer's code."""

    function: str
    gpu: str
    asked: tuple[int, ...]
    code: int


class FakeNvml:
    """The part of pynvml that Headway uses, over fake GPUs.

    Args:
        gpus: In the order of the PCI bus.
        init_error: The code that nvmlInit fails with, or None.
        root: Whether we may divide GPUs.
        now_ns: The clock, for samples of the counters.

    """

    def __init__(
        self,
        gpus: Iterable[FakeGpu] = (),
        *,
        init_error: int | None = None,
        root: bool = True,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        import pynvml

        self._real = pynvml
        self._gpus = tuple(gpus)
        self._init_error = init_error
        devices = [device for gpu in self._gpus for device in (gpu, *(gpu.migs or ()))]
        self._uses = {device.uuid: list(device.uses) for device in devices if device}
        self._energy_mj = {gpu.uuid: gpu.energy_mj for gpu in self._gpus}
        self._calls: Counter[str] = Counter()
        self._faults: dict[tuple[str, int], int] = {}
        self.open = 0
        """How many nvmlInit calls have no nvmlShutdown yet."""
        self.changes: list[Change] = []
        self.division = Division(
            pynvml,
            self._gpus,
            root=root,
            check=self._check,
            change=self._change,
            in_use=lambda uuid: bool(self._uses.get(uuid)),
        )
        self.counters = Counters(pynvml, self.division, check=self._check, now_ns=now_ns)

    def __getattr__(self, name: str) -> Any:
        """Classes and constants are the real ones; functions are not, so none is missed."""
        if name.startswith(("NVMLError", "NVML_", "c_nvml", "nvmlMemory_v2")):
            return getattr(self._real, name)
        if name.startswith("nvml"):
            for part in (self.division, self.counters):
                if hasattr(part, name):
                    return getattr(part, name)
        raise AttributeError(f"the fake NVML has no {name}")

    # ---- the tests' own levers -------------------------------------------------------------------

    def fail(self, function: str, code: int, *, call: int = 1) -> None:
        """From now on, the so manieth call of a function is answered with this error, once."""
        self._faults[function, self._calls[function] + call] = code

    def occupy(self, uuid: str, pid: int, used_bytes: int | None = 0) -> None:
        """A process starts to use a device."""
        self._uses.setdefault(uuid, []).append(FakeUse(pid, used_bytes))

    def vacate(self, uuid: str) -> None:
        """All processes leave a device."""
        self._uses[uuid] = []

    def spend(self, uuid: str, energy_mj: int) -> None:
        """A GPU uses energy."""
        self._energy_mj[uuid] = (self._energy_mj[uuid] or 0) + energy_mj

    # ---- NVML's functions ------------------------------------------------------------------------

    def nvmlInit(self) -> None:
        """Start, or fail as a machine without a driver does."""
        if self._init_error is not None:
            raise self._real.NVMLError(self._init_error)
        self.open += 1

    def nvmlShutdown(self) -> None:
        """Stop."""
        self._check("nvmlShutdown", None)
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        """Number of GPUs."""
        self._check("nvmlDeviceGetCount", None)
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        """A GPU."""
        if not 0 <= index < len(self._gpus):
            raise self._error("INVALID_ARGUMENT")
        self._check("nvmlDeviceGetHandleByIndex", self._gpus[index])
        return self._gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu | FakeMig:
        """A GPU or MIG device by its whole UUID."""
        for gpu in self._gpus:
            for device in (gpu, *(gpu.migs or ())):
                if device is not None and device.uuid == uuid:
                    self._check("nvmlDeviceGetHandleByUUID", device)
                    return device
        if (part := self.division.mig_device(uuid)) is None:
            raise self._error("NOT_FOUND")
        return part

    def nvmlDeviceGetUUID(self, handle: FakeGpu | FakeMig) -> str:
        """UUID of a GPU or MIG device."""
        self._check("nvmlDeviceGetUUID", handle)
        return handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu | FakeMig) -> str:
        """Name of a GPU or MIG device."""
        self._check("nvmlDeviceGetName", handle)
        return handle.name

    def nvmlDeviceGetArchitecture(self, handle: FakeGpu | FakeMig) -> int:
        """NVML's number of the architecture."""
        self._check("nvmlDeviceGetArchitecture", handle)
        known = self._told(self._gpu_of(handle).architecture)
        return int(getattr(self._real, f"NVML_DEVICE_ARCH_{known.upper()}"))

    def nvmlDeviceGetCudaComputeCapability(self, handle: FakeGpu | FakeMig) -> tuple[int, int]:
        """CUDA's compute capability."""
        self._check("nvmlDeviceGetCudaComputeCapability", handle)
        major, minor = self._told(self._gpu_of(handle).capability)
        return major, minor

    def nvmlDeviceGetMigMode(self, handle: FakeGpu) -> list[int]:
        """Current and pending mode."""
        self._check("nvmlDeviceGetMigMode", handle)
        if (state := self.division.states.get(handle.uuid)) is not None:
            return [int(state.on), int(state.pending)]
        on = int(handle.migs is not None)
        return [on, on]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: FakeGpu) -> int:
        """Most MIG devices; 0, and no error, where MIG is off."""
        self._check("nvmlDeviceGetMaxMigDeviceCount", handle)
        if (state := self.division.states.get(handle.uuid)) is not None:
            return state.table.compute if state.on else 0
        return 0 if handle.migs is None else 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: FakeGpu, index: int) -> FakeMig:
        """A MIG device, NOT_FOUND at a hole."""
        self._check("nvmlDeviceGetMigDeviceHandleByIndex", handle)
        if (state := self.division.states.get(handle.uuid)) is not None:
            at = {compute.index: compute.uuid for _, compute in state.parts()}
            found = self.division.mig_device(at.get(index, ""))
        else:
            found = next(iter((handle.migs or ())[index : index + 1]), None)
        if found is None:
            raise self._error("NOT_FOUND")
        return found

    def nvmlDeviceGetGpuInstanceId(self, handle: FakeMig) -> int:
        """GPU instance of a MIG device."""
        self._check("nvmlDeviceGetGpuInstanceId", handle)
        return handle.instance

    def nvmlDeviceGetComputeInstanceId(self, handle: FakeMig) -> int:
        """Compute instance of a MIG device."""
        self._check("nvmlDeviceGetComputeInstanceId", handle)
        return handle.compute

    def nvmlDeviceGetMemoryInfo(
        self, handle: FakeGpu | FakeMig, version: int | None = None
    ) -> SimpleNamespace:
        """Total, free and used bytes; in the second form, used is without what is reserved."""
        self._check("nvmlDeviceGetMemoryInfo", handle)
        self._refuse_parent(handle)
        more = self._uses.get(handle.uuid, [])[len(handle.uses) :]
        used = handle.used_bytes + sum(use.used_bytes or 0 for use in more)
        memory = SimpleNamespace(
            total=handle.memory_bytes, free=handle.memory_bytes - used, used=used
        )
        if version is None:
            return memory
        reserved = getattr(handle, "reserved_bytes", None)
        if reserved is None:
            raise self._error("FUNCTION_NOT_FOUND")
        return SimpleNamespace(**{**vars(memory), "used": used - reserved, "reserved": reserved})

    def nvmlDeviceGetUtilizationRates(self, handle: FakeGpu | FakeMig) -> SimpleNamespace:
        """Percent of the time in which a kernel ran, and memory was used; not under MIG."""
        self._check("nvmlDeviceGetUtilizationRates", handle)
        busy = None if isinstance(handle, FakeMig) or self._is_divided(handle) else handle.busy
        gpu, memory = self._told(busy)
        return SimpleNamespace(gpu=gpu, memory=memory)

    def nvmlDeviceGetPowerUsage(self, handle: FakeGpu | FakeMig) -> int:
        """Milliwatts of a whole GPU."""
        self._check("nvmlDeviceGetPowerUsage", handle)
        return int(self._told(None if isinstance(handle, FakeMig) else handle.power_mw))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: FakeGpu | FakeMig) -> int:
        """Millijoules of a whole GPU since the driver was loaded."""
        self._check("nvmlDeviceGetTotalEnergyConsumption", handle)
        return int(self._told(self._energy_mj.get(handle.uuid)))

    def nvmlDeviceGetComputeRunningProcesses(
        self, handle: FakeGpu | FakeMig
    ) -> list[SimpleNamespace]:
        """Processes with a context on the device."""
        self._check("nvmlDeviceGetComputeRunningProcesses", handle)
        self._refuse_parent(handle)
        return [_running(use) for use in self._uses.get(handle.uuid, ())]

    def nvmlDeviceGetMPSComputeRunningProcesses(
        self, handle: FakeGpu | FakeMig
    ) -> list[SimpleNamespace]:
        """Clients of an MPS server."""
        self._check("nvmlDeviceGetMPSComputeRunningProcesses", handle)
        return [_running(use) for use in getattr(handle, "clients", ())]

    # ---- inside ----------------------------------------------------------------------------------

    def _check(self, function: str, handle: FakeGpu | FakeMig | None) -> None:
        """Every function begins so: what it is to be answered with by force is raised."""
        if self.open < 1:
            raise self._error("UNINITIALIZED")
        self._calls[function] += 1
        code = self._faults.get((function, self._calls[function]))
        if code is None:
            code = getattr(handle, "refuses", {}).get(function)
        if code is not None:
            raise self._real.NVMLError(code)
        if isinstance(handle, FakeMig) and self._is_dead(handle):
            raise self._error("INVALID_ARGUMENT")

    @contextmanager
    def _change(self, function: str, gpu: FakeGpu, *asked: int) -> Iterator[None]:
        """Note a call that is to change something, and how it went."""
        code = 0
        try:
            yield
        except self._real.NVMLError as error:
            code = error.value
            raise
        finally:
            self.changes.append(Change(function, gpu.uuid, asked, code))

    def _is_dead(self, handle: FakeMig) -> bool:
        """Whether the instance of a handle is gone; those of `FakeGpu.migs` never go."""
        still = any(handle in (gpu.migs or ()) for gpu in self._gpus)
        return not still and self.division.mig_device(handle.uuid) is None

    def _gpu_of(self, handle: FakeGpu | FakeMig) -> FakeGpu:
        if isinstance(handle, FakeGpu):
            return handle
        for gpu in self._gpus:
            state = self.division.states.get(gpu.uuid)
            own = {compute.uuid for _, compute in state.parts()} if state else set()
            if handle in (gpu.migs or ()) or handle.uuid in own:
                return gpu
        raise self._error("INVALID_ARGUMENT")

    def _is_divided(self, handle: FakeGpu) -> bool:
        state = self.division.states.get(handle.uuid)
        return handle.migs is not None if state is None else state.on

    def _refuse_parent(self, handle: FakeGpu | FakeMig) -> None:
        if isinstance(handle, FakeGpu) and self._is_divided(handle):
            raise self._error("NO_PERMISSION")

    def _told(self, value: Any) -> Any:
        """A figure; NOT_SUPPORTED where the driver does not have it."""
        if value is None:
            raise self._error("NOT_SUPPORTED")
        return value

    def _error(self, name: str) -> Exception:
        error: Exception = self._real.NVMLError(getattr(self._real, f"NVML_ERROR_{name}"))
        return error


def _running(use: FakeUse) -> SimpleNamespace:
    return SimpleNamespace(
        pid=use.pid, usedGpuMemory=use.used_bytes, gpuInstanceId=0xFFFFFFFF, computeInstanceId=0
    )
