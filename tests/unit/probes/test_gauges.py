"""Figures of a device: each is missing by itself, with a reason, and never 0 for it."""

from dataclasses import fields, replace

import pynvml
import pytest

from headway.core.energy import DeviceUse, split_energy
from headway.core.readings import UNDER_MIG
from headway.core.units import GIB, MIB
from headway.probes.devices import read_devices
from headway.probes.gauges import COUNTER_FELL, DeviceFigures, open_gauge
from headway.testing.nvml import FakeNvml, fake_gpu

QUESTIONS = {
    "used_bytes": "nvmlDeviceGetMemoryInfo",
    "processes": "nvmlDeviceGetComputeRunningProcesses",
    "busy": "nvmlDeviceGetUtilizationRates",
    "memory_busy": "nvmlDeviceGetUtilizationRates",
    "power_w": "nvmlDeviceGetPowerUsage",
    "energy_mj": "nvmlDeviceGetTotalEnergyConsumption",
    "gpu_energy_mj": "nvmlDeviceGetTotalEnergyConsumption",
}
REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "this device does not give it",
    pynvml.NVML_ERROR_NO_PERMISSION: "the driver gives it only with more rights",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "this driver is too old to give it",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the driver does not answer (GPU is lost)",
}


def driver(**more):
    return FakeNvml([fake_gpu("h100-80gb", "GPU-a", busy=(40, 10), energy_mj=5000, **more)])


def figures(nvml, device):
    with open_gauge(nvml, device) as gauge:
        read = gauge.read()
    assert nvml.open == 0
    return read


def only_device(nvml):
    (device,) = read_devices(nvml, None).devices
    return device


def test_all_figures_of_a_whole_gpu():
    nvml = driver()
    nvml.occupy("GPU-a", 4711, 2 * GIB)
    read = figures(nvml, only_device(nvml))
    assert read.used_bytes.value == 3 * GIB  # with what the driver keeps
    assert read.processes.value == 1
    assert (read.busy.value, read.memory_busy.value) == (0.4, 0.1)
    assert (read.power_w.value, read.energy_mj.value, read.gpu_energy_mj.value) == (70, 5000, 5000)


def test_every_figure_has_a_question_here():
    assert {field.name for field in fields(DeviceFigures)} == set(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("code", REASONS)
def test_each_figure_is_missing_by_itself(name, code):
    fine = driver()
    device = only_device(fine)
    read = figures(driver(refuses={QUESTIONS[name]: code}), device)
    whole = figures(fine, device)
    for other, question in QUESTIONS.items():
        reading = getattr(read, other)
        if question == QUESTIONS[name]:
            assert (reading.value, reading.reason) == (None, REASONS[code])
        else:
            assert reading == getattr(whole, other)


def test_under_mig_what_is_not_available_is_not_zero():
    nvml = driver(mig_on=True)
    nvml.division.add("GPU-a", "3g.40gb", 4)
    part = only_device(nvml)
    nvml.occupy(part.uuid, 4711, 2 * GIB)
    read = figures(nvml, part)
    assert read.used_bytes.value == 2 * GIB + 44 * MIB
    assert read.processes.value == 1
    for missing in (read.busy, read.memory_busy, read.power_w, read.energy_mj):
        assert (missing.value, missing.reason) == (None, UNDER_MIG)
    assert read.gpu_energy_mj.value == 5000


def test_a_device_without_memory_of_its_own():
    nvml = driver(memory_bytes=0, used_bytes=0)
    device = only_device(nvml)
    assert device.shares_host_memory
    assert figures(nvml, device).used_bytes.reason == "it shares the host's memory"


def test_energy_between_two_moments_is_divided_among_the_jobs():
    nvml = driver()
    device = only_device(nvml)
    with open_gauge(nvml, device) as gauge:
        before = gauge.read().energy_mj
        nvml.spend("GPU-a", 1200)
        used = gauge.read().energy_mj.minus(before, fell=COUNTER_FELL)
    uses = [DeviceUse(name=name, share=0.5, seconds=10) for name in "ab"]
    assert dict(split_energy(int(used.value), uses).parts) == {"a": 600, "b": 600}


def test_a_counter_that_fell_is_no_energy():
    now = figures(driver(), only_device(driver())).energy_mj
    later = now.model_copy(update={"value": 10.0})
    assert later.minus(now, fell=COUNTER_FELL).reason == COUNTER_FELL


def test_a_device_that_is_gone_is_said_to_be():
    nvml = driver(mig_on=True)
    instance = nvml.division.add("GPU-a", "3g.40gb", 4)
    part = only_device(nvml)
    instance.computes.clear()
    with pytest.raises(LookupError, match="is not there any more"), open_gauge(nvml, part):
        pass
    whole = only_device(driver())
    with pytest.raises(LookupError, match=r"GPU-a does not answer \(Not Found\)"):
        figures(FakeNvml(), whole)
    stopped = FakeNvml(init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    with pytest.raises(LookupError, match="Driver Not Loaded"), open_gauge(stopped, whole):
        pass


def test_the_inventory_says_what_the_device_is():
    nvml = driver(mig_on=True)
    nvml.division.add("GPU-a", "1g.20gb", 6)
    part = only_device(nvml)
    assert (part.parent, part.instance, part.sms) == ("GPU-a", (6, 0), 26)
    assert (part.architecture, part.capability) == ("Hopper", (9, 0))
    whole = only_device(driver())
    assert (whole.parent, whole.instance, whole.sms) == (None, None, None)
    assert (whole.architecture, whole.reserved_bytes) == ("Hopper", 1024 * MIB)


def test_what_the_driver_does_not_say_of_a_device_is_none():
    silent = replace(fake_gpu("t4-16gb", "GPU-a"), architecture=None, capability=None)
    device = only_device(FakeNvml([silent]))
    assert (device.architecture, device.capability) == (None, None)
    assert device.memory_bytes is not None


@pytest.mark.parametrize(
    ("capability", "shares"), [((12, 1), True), ((9, 0), False), (None, False)]
)
def test_only_chips_known_to_have_no_memory_of_their_own_share_the_hosts(capability, shares):
    refuses = {"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED}
    gpu = replace(fake_gpu("t4-16gb", "GPU-a"), capability=capability, refuses=refuses)
    device = only_device(FakeNvml([gpu]))
    assert (device.memory_bytes, device.shares_host_memory) == (None, shares)
    assert device.unknown == "its memory is unknown"
