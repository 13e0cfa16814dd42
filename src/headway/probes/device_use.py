"""How busy devices are, looked at again and again while jobs run on them."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from headway.core.machine import Device
from headway.core.readings import DeviceUse
from headway.probes.gauges import DeviceGauge, open_gauge
from headway.probes.gpm import GpmReader


class DeviceWatch:
    """Looks at some devices of this machine. Use it in a `with`.

    Args:
        nvml: The module that `load_nvml` gave, a fake of it, or None where there is none.
        devices: As in the inventory; those that cannot be asked are left out.
        now_ns: The clock.
    """

    def __init__(
        self,
        nvml: Any,
        devices: Iterable[Device],
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._nvml = nvml
        self._devices = tuple(devices)
        self._now_ns = now_ns
        self._open = ExitStack()
        self._gauges: dict[int, tuple[DeviceGauge, GpmReader]] = {}

    def __enter__(self) -> Self:
        for device in self._devices if self._nvml is not None else ():
            try:
                gauge = self._open.enter_context(open_gauge(self._nvml, device))
            except LookupError:
                continue
            counters = self._open.enter_context(GpmReader(gauge, now_ns=self._now_ns))
            self._gauges[device.index] = gauge, counters
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def read(self) -> Mapping[int, DeviceUse]:
        """What each device did since the call before, by its index. Never raises NVML errors."""
        return {
            index: DeviceUse(
                busy=gauge.busy().value,
                part=counters.read()["sm_busy"].value,
            )
            for index, (gauge, counters) in self._gauges.items()
        }
