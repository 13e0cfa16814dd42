"""A watch on devices: each figure by itself, and nothing at all where nothing can be asked."""

import pynvml
import pytest

from headway.core.units import NS_PER_S
from headway.probes.device_use import DeviceWatch
from headway.probes.devices import read_devices
from headway.testing.nvml import FakeNvml, fake_gpu

COUNTERS = {2: 40.0}


def test_what_each_device_did_since_the_look_before():
    now_ns = 0
    gpus = [
        fake_gpu("h100-80gb", "GPU-a", counters=COUNTERS, busy=(70, 30)),
        fake_gpu("a100-80gb", "GPU-b", busy=(20, 5)),
    ]
    nvml = FakeNvml(gpus, now_ns=lambda: now_ns)
    devices = read_devices(nvml, None).devices
    with DeviceWatch(nvml, devices, now_ns=lambda: now_ns) as watch:
        first = watch.read()
        now_ns += NS_PER_S
        second = watch.read()
    assert first[0] == (pytest.approx(0.7), None)
    assert second == {0: (pytest.approx(0.7), pytest.approx(0.4)), 1: (pytest.approx(0.2), None)}
    assert nvml.counters.samples == {}


def test_without_a_driver_nothing_is_told():
    nvml = FakeNvml([fake_gpu("a100-80gb", "GPU-a")])
    devices = read_devices(nvml, None).devices
    with DeviceWatch(None, devices) as watch:
        assert watch.read() == {}
    nvml.fail("nvmlDeviceGetHandleByUUID", pynvml.NVML_ERROR_GPU_IS_LOST)
    with DeviceWatch(nvml, devices) as watch:
        assert watch.read() == {}
