"""Live figures of one device, each by itself: a value, or in words why there is none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from headway.core.machine import Device
from headway.core.readings import UNDER_MIG, Reading
from headway.probes.device_memory import device_memory, process_memory
from headway.system.mig import mig_devices

COUNTER_FELL = "the counter was reset in between (the driver was reloaded)"
"""For `Reading.minus` of two figures of `energy_mj`."""


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """What a device does, as its driver tells.

    `busy` is the part of the time in which at least one kernel ran, which says nothing of how much
    of the device it used. `memory_busy` is the part in which its memory was read or written.
    `energy_mj` counts from when the driver was loaded: the figures of two moments differ by what
    was used in between. `gpu_energy_mj` is that of the whole GPU which a MIG device is a part of.
    """

    used_bytes: Reading
    processes: Reading
    busy: Reading
    memory_busy: Reading
    power_w: Reading
    energy_mj: Reading
    gpu_energy_mj: Reading


@dataclass(frozen=True, slots=True)
class DeviceGauge:
    """Reads one device again and again; made by `open_gauge`."""

    nvml: Any
    handle: Any
    gpu: Any
    """The GPU that a MIG device is a part of; of a whole GPU, itself."""
    instance: int | None
    """The GPU instance of a MIG device; None for a whole GPU."""

    def read(self) -> DeviceFigures:
        """All figures now. Never raises NVML errors."""
        nvml, handle = self.nvml, self.handle
        energy = nvml.nvmlDeviceGetTotalEnergyConsumption
        return DeviceFigures(
            used_bytes=self._used_bytes(),
            processes=self._figure(lambda: len(process_memory(nvml, handle))),
            busy=self.busy(),
            memory_busy=self._figure(
                lambda: nvml.nvmlDeviceGetUtilizationRates(handle).memory / 100
            ),
            power_w=self._figure(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            energy_mj=self._figure(lambda: energy(handle)),
            gpu_energy_mj=self._figure(lambda: energy(self.gpu)),
        )

    def busy(self) -> Reading:
        """The part of the time in which a kernel ran, as `DeviceFigures` has it."""
        return self._figure(lambda: self.nvml.nvmlDeviceGetUtilizationRates(self.handle).gpu / 100)

    def _used_bytes(self) -> Reading:
        try:
            memory = device_memory(self.nvml, self.handle)
        except self.nvml.NVMLError as error:
            return Reading.missing(self.why_missing(error))
        if not memory.total_bytes:
            return Reading.missing("it shares the host's memory")
        return Reading.of(memory.used_bytes)

    def _figure(self, ask: Callable[[], float]) -> Reading:
        """The answer to one question, or why there is none."""
        try:
            return Reading.of(ask())
        except self.nvml.NVMLError as error:
            return Reading.missing(self.why_missing(error))

    def why_missing(self, error: Any) -> str:
        """An error of the driver as the reason for a missing figure."""
        nvml = self.nvml
        if error.value == nvml.NVML_ERROR_NOT_SUPPORTED:
            return "this device does not give it" if self.instance is None else UNDER_MIG
        if error.value == nvml.NVML_ERROR_NO_PERMISSION:
            return "the driver gives it only with more rights"
        if error.value == nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            return "this driver is too old to give it"
        return f"the driver does not answer ({error})"


@contextmanager
def open_gauge(nvml: Any, device: Device) -> Iterator[DeviceGauge]:
    """A gauge of a device that was found before, by its UUID.

    Args:
        nvml: The module that `load_nvml` gave, or a fake of it.
        device: As in the inventory.

    Raises:
        LookupError: It is not there any more; the reason is in words.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise LookupError(f"the NVIDIA driver cannot be asked ({error})") from None
    try:
        yield _gauge(nvml, device)
    finally:
        with suppress(nvml.NVMLError):  # the driver may have gone away meanwhile
            nvml.nvmlShutdown()


def _gauge(nvml: Any, device: Device) -> DeviceGauge:
    try:
        gpu = nvml.nvmlDeviceGetHandleByUUID(device.parent or device.uuid)
        if not device.is_part:
            return DeviceGauge(nvml, gpu, gpu, None)
        parts, _ = mig_devices(nvml, gpu)
    except nvml.NVMLError as error:
        raise LookupError(f"{device.uuid} does not answer ({error})") from None
    for part in parts:
        if part.uuid == device.uuid:
            return DeviceGauge(nvml, part.handle, gpu, part.instance)
    raise LookupError(f"{device.uuid} is not there any more")
