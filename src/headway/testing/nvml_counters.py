# ruff: noqa: N802  the names are NVML's
"""The GPM part of the fake NVML: samples, and what happened between two of them."""

import ctypes
from collections.abc import Callable
from itertools import count
from typing import Any

from headway.testing.nvml_devices import FakeGpu
from headway.testing.nvml_division import Division

# NVML asks for 100 ms between two samples; a driver gives nonsense below, the fake an error, so
# that a reader which does not wait is found out.
_LEAST_NS = 100_000_000


class Counters:
    """NVML's functions about GPM.

    Args:
        real: The module pynvml.
        division: What instances there are.
        check: Raises what the caller is to be answered with by force.
        now_ns: The clock.

    """

    def __init__(
        self,
        real: Any,
        division: Division,
        *,
        check: Callable[[str, FakeGpu | None], None],
        now_ns: Callable[[], int],
    ) -> None:
        self._real = real
        self._division = division
        self._check = check
        self._now_ns = now_ns
        self._addresses = count(0x900000, 0x10)
        self.samples: dict[int, tuple[FakeGpu, int | None, int] | None] = {}
        """Samples that were not freed, by address: of which GPU and instance, and when."""
        self.windows_ns: list[tuple[int, int]] = []
        """From when to when metrics were asked for."""

    def nvmlGpmQueryDeviceSupport(self, handle: FakeGpu) -> Any:
        """Whether the GPU has such counters."""
        self._check("nvmlGpmQueryDeviceSupport", handle)
        answer = self._real.c_nvmlGpmSupport_t()
        answer.isSupportedDevice = int(handle.counters is not None)
        return answer

    def nvmlGpmSampleAlloc(self) -> Any:
        """An empty sample."""
        self._check("nvmlGpmSampleAlloc", None)
        address = next(self._addresses)
        self.samples[address] = None
        return ctypes.cast(address, self._real.c_nvmlGpmSample_t)

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        """Give a sample back."""
        self._check("nvmlGpmSampleFree", None)
        del self.samples[self._address(sample)]

    def nvmlGpmSampleGet(self, handle: FakeGpu, sample: Any) -> Any:
        """Sample a whole GPU."""
        self._check("nvmlGpmSampleGet", handle)
        return self._take(handle, None, sample)

    def nvmlGpmMigSampleGet(self, handle: FakeGpu, instance: int, sample: Any) -> Any:
        """Sample a GPU instance."""
        self._check("nvmlGpmMigSampleGet", handle)
        state = self._division.states.get(handle.uuid)
        if state is None or instance not in state.instances:
            raise self._error("INVALID_ARGUMENT")
        return self._take(handle, instance, sample)

    def nvmlGpmMetricsGet(self, request: Any) -> Any:
        """The metrics asked for, each with an answer of its own."""
        first = self.samples[self._address(request.sample1)]
        second = self.samples[self._address(request.sample2)]
        if first is None or second is None or first[:2] != second[:2]:
            raise self._error("INVALID_ARGUMENT")
        gpu = first[0]
        self._check("nvmlGpmMetricsGet", gpu)
        if request.version != self._real.NVML_GPM_METRICS_GET_VERSION:
            raise self._error("ARGUMENT_VERSION_MISMATCH")
        if second[2] - first[2] < _LEAST_NS:
            raise self._error("INVALID_ARGUMENT")
        self.windows_ns.append((first[2], second[2]))
        for metric in request.metrics[: request.numMetrics]:
            value = (gpu.counters or {}).get(metric.metricId)
            known = value is not None
            metric.nvmlReturn = 0 if known else self._real.NVML_ERROR_NOT_SUPPORTED
            metric.value = value if known else 0.0
        return request

    def _take(self, gpu: FakeGpu, instance: int | None, sample: Any) -> Any:
        if gpu.counters is None:
            raise self._error("NOT_SUPPORTED")
        self.samples[self._address(sample)] = (gpu, instance, self._now_ns())
        return sample

    def _address(self, sample: Any) -> int:
        address = ctypes.cast(sample, ctypes.c_void_p).value
        if address not in self.samples:
            raise self._error("INVALID_ARGUMENT")
        return address

    def _error(self, name: str) -> Exception:
        error: Exception = self._real.NVMLError(getattr(self._real, f"NVML_ERROR_{name}"))
        return error
