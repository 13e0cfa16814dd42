"""The counters of Hopper and later GPUs: figures of what happened between two samples."""

import math

import pynvml
import pytest

from headway.core.readings import UNDER_MIG
from headway.core.units import MIB, NS_PER_S
from headway.probes.devices import read_devices
from headway.probes.gauges import open_gauge
from headway.probes.gpm import GPM_FIGURES, LEAST_NS, GpmReader
from headway.testing.nvml import FakeNvml, fake_gpu

COUNTERS = {2: 83.5, 3: 41.0, 5: 30.0, 10: 62.5, 11: 0.0, 12: 9.0, 13: 1.0, 20: 7.0, 21: 8.0}


class Bench:
    """A fake driver with one GPU, and a clock that the test moves."""

    def __init__(self, **more):
        self.now_ns = 0
        gpu = fake_gpu("h100-80gb", "GPU-a", **{"counters": COUNTERS, **more})
        self.nvml = FakeNvml([gpu], now_ns=lambda: self.now_ns)

    def readings(self, *waits_ns):
        """What a reader gives at first, and after each of these waits."""
        (device,) = read_devices(self.nvml, None).devices
        with open_gauge(self.nvml, device) as gauge:
            with GpmReader(gauge, now_ns=lambda: self.now_ns) as reader:
                found = [reader.read()]
                for wait_ns in waits_ns:
                    self.now_ns += wait_ns
                    found.append(reader.read())
            assert self.nvml.counters.samples == {}, "samples are given back"
        return found


def reasons(readings):
    return {reading.reason for reading in readings.values()}


def test_two_samples_make_figures():
    first, second = Bench().readings(NS_PER_S)
    assert reasons(first) == {"the first of two samples was taken now"}
    assert set(second) == set(GPM_FIGURES)
    assert second["sm_busy"].value == pytest.approx(0.835)
    assert second["sm_occupancy"].value == pytest.approx(0.41)
    assert second["dram_bandwidth"].value == pytest.approx(0.625)
    assert second["pcie_received_bytes_per_s"].value == 8 * MIB
    assert second["fp64_busy"].value == 0, "0 is a figure"


def test_each_metric_is_missing_by_itself():
    _, found = Bench().readings(NS_PER_S)
    assert found["nvlink_sent_bytes_per_s"].reason == "this device does not give it"
    assert found["nvlink_sent_bytes_per_s"].value is None
    for number in COUNTERS:
        fewer = {metric: value for metric, value in COUNTERS.items() if metric != number}
        _, found = Bench(counters=fewer).readings(NS_PER_S)
        assert sum(reading.value is None for reading in found.values()) == 2 + 1


def test_no_sample_is_taken_within_100_ms():
    bench = Bench()
    _, early, late, next_one = bench.readings(LEAST_NS - 1, 1, LEAST_NS)
    assert reasons(early) == {"the last sample was taken less than 100 ms ago"}
    assert late["sm_busy"].value == next_one["sm_busy"].value == pytest.approx(0.835)
    assert bench.nvml.counters.windows_ns == [(0, LEAST_NS), (LEAST_NS, 2 * LEAST_NS)]


def test_a_gpu_before_hopper_has_none():
    (found,) = Bench(counters=None).readings()
    assert reasons(found) == {"this GPU has no such counters (Hopper and later do)"}


@pytest.mark.parametrize("number", [math.nan, math.inf, -1.0])
def test_what_is_no_number_is_missing(number):
    _, found = Bench(counters={**COUNTERS, 2: number}).readings(NS_PER_S)
    assert found["sm_busy"].reason == "the driver gave no number"
    assert found["sm_occupancy"].value == pytest.approx(0.41)


def test_a_mig_device_is_sampled_by_its_instance():
    bench = Bench(mig_on=True, counters={2: 50.0})
    bench.nvml.division.add("GPU-a", "3g.40gb", 0)
    _, found = bench.readings(NS_PER_S)
    assert found["sm_busy"].value == 0.5
    assert found["dram_bandwidth"].reason == UNDER_MIG


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        ("nvmlGpmQueryDeviceSupport", "FUNCTION_NOT_FOUND", "this driver is too old to give it"),
        ("nvmlGpmSampleAlloc", "MEMORY", "the driver does not answer (Insufficient Memory)"),
        ("nvmlGpmSampleGet", "NO_PERMISSION", "the driver gives it only with more rights"),
        ("nvmlGpmMetricsGet", "GPU_IS_LOST", "the driver does not answer (GPU is lost)"),
    ],
)
def test_no_error_of_the_driver_gets_through(function, code, reason):
    bench = Bench()
    bench.nvml.fail(function, getattr(pynvml, f"NVML_ERROR_{code}"))
    found = bench.readings(NS_PER_S)
    assert {reason} in [reasons(readings) for readings in found]


def test_after_an_error_two_new_samples_are_taken():
    bench = Bench()
    bench.nvml.fail("nvmlGpmMetricsGet", pynvml.NVML_ERROR_UNKNOWN)
    first, failed, again, fine = bench.readings(NS_PER_S, NS_PER_S, NS_PER_S)
    assert reasons(first) == reasons(again) == {"the first of two samples was taken now"}
    assert reasons(failed) == {"the driver does not answer (Unknown Error)"}
    assert fine["sm_busy"].value == pytest.approx(0.835)
