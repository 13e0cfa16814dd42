"""How much of a GPU was busy, read from its own counters: Hopper and later, MIG devices too.

Unlike "at least one kernel ran", these say how many SMs worked, how full they were, and how much of
the memory's bandwidth was used. A figure is what happened between two samples.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite
from types import TracebackType
from typing import Any, Self

from headway.core.readings import Reading
from headway.core.units import MIB, NS_PER_S
from headway.probes.gauges import DeviceGauge

# What NVML asks for between two samples (nvml.h); nearer ones give figures that mean nothing.
LEAST_NS = NS_PER_S // 10

# NVML's numbers of the metrics (nvml.h), and what turns its percent and MiB/s into ours.
_METRICS: Mapping[str, tuple[int, float]] = {
    "sm_busy": (2, 0.01),
    "sm_occupancy": (3, 0.01),
    "tensor_busy": (5, 0.01),
    "dram_bandwidth": (10, 0.01),
    "fp64_busy": (11, 0.01),
    "fp32_busy": (12, 0.01),
    "fp16_busy": (13, 0.01),
    "pcie_sent_bytes_per_s": (20, MIB),
    "pcie_received_bytes_per_s": (21, MIB),
    "nvlink_received_bytes_per_s": (60, MIB),
    "nvlink_sent_bytes_per_s": (61, MIB),
}

GPM_FIGURES = tuple(_METRICS)
"""What is read: parts of what is possible, from 0 to 1, and bytes a second."""


class GpmReader:
    """Reads the counters of one device again and again; frees its samples when it is left.

    Args:
        gauge: Of a whole GPU or a MIG device; it must stay open as long as this is used.
        now_ns: The clock.

    """

    def __init__(self, gauge: DeviceGauge, *, now_ns: Callable[[], int]) -> None:
        self._nvml = gauge.nvml
        self._gauge = gauge
        self._now_ns = now_ns
        self._samples: list[Any] = []
        self._taken_ns: int | None = None
        self.reason = self._unusable()
        """Why nothing can be read here; "" where it can."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._samples:
            with suppress(self._nvml.NVMLError):  # a driver that went away took them along
                self._nvml.nvmlGpmSampleFree(self._samples.pop())

    def read(self) -> dict[str, Reading]:
        """What the device did since the call before, figure by figure. Never raises NVML errors.

        The first call only takes a sample. A call within 100 ms of the last sample takes none: the
        next one looks back over the whole time.
        """
        if self.reason:
            return self._all_missing(self.reason)
        now = self._now_ns()
        if self._taken_ns is not None and now - self._taken_ns < LEAST_NS:
            return self._all_missing("the last sample was taken less than 100 ms ago")
        try:
            return self._since(now)
        except self._nvml.NVMLError as error:
            self._taken_ns = None  # what was sampled before is of no use any more
            return self._all_missing(self._gauge.why_missing(error))

    def _since(self, now: int) -> dict[str, Reading]:
        before, after = self._samples
        if self._taken_ns is None:
            self._sample(before)
            self._taken_ns = now
            return self._all_missing("the first of two samples was taken now")
        self._sample(after)
        self._taken_ns = now
        self._samples = [after, before]
        return self._between(before, after)

    def _sample(self, sample: Any) -> None:
        if self._gauge.instance is None:
            self._nvml.nvmlGpmSampleGet(self._gauge.gpu, sample)
        else:
            self._nvml.nvmlGpmMigSampleGet(self._gauge.gpu, self._gauge.instance, sample)

    def _between(self, before: Any, after: Any) -> dict[str, Reading]:
        request = self._nvml.c_nvmlGpmMetricsGet_t()
        request.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        request.sample1, request.sample2 = before, after
        for metric, (number, _) in zip(request.metrics, _METRICS.values(), strict=False):
            metric.metricId = number
        self._nvml.nvmlGpmMetricsGet(request)
        answers = zip(request.metrics, _METRICS.items(), strict=False)
        return {name: self._reading(metric, factor) for metric, (name, (_, factor)) in answers}

    def _reading(self, metric: Any, factor: float) -> Reading:
        """Each metric has an error of its own."""
        if metric.nvmlReturn:
            return Reading.missing(self._gauge.why_missing(self._nvml.NVMLError(metric.nvmlReturn)))
        if not (isfinite(metric.value) and metric.value >= 0):  # NaN where a counter overflowed
            return Reading.missing("the driver gave no number")
        return Reading.of(metric.value * factor)

    def _unusable(self) -> str:
        nvml = self._nvml
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(self._gauge.gpu).isSupportedDevice:
                return "this GPU has no such counters (Hopper and later do)"
            for _ in range(2):
                self._samples.append(nvml.nvmlGpmSampleAlloc())
        except nvml.NVMLError as error:
            return self._gauge.why_missing(error)
        return ""

    def _all_missing(self, reason: str) -> dict[str, Reading]:
        return {name: Reading.missing(reason) for name in GPM_FIGURES}
