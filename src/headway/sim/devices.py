"""Several jobs on one device in the simulated world: its memory, and how they slow each other.

[Note: what is simulated] A job that uses a device holds its context there from its start on, and
the most that it ever needs from its first step to its end: allocators seldom give back. Whoever
asks for more than is left gets an out-of-memory, and the others go on. How long its work takes on
its share of a device, and what it draws on what all there have in common, a `DeviceModel` says;
where none is given, each keeps a part of the device busy, and once the parts come to more than the
whole, all on it are slowed alike. A workload that says nothing of devices holds nothing there and
slows nobody.
"""

from collections.abc import Sequence
from math import ceil
from typing import Final, NamedTuple, Protocol

from headway.core.machine import Device
from headway.core.units import MIB, show_bytes
from headway.core.words import Outcome, Share
from headway.core.workload import Workload
from headway.sim.pool import Pool, ProportionalShare, Sharing

CONTEXT_BYTES: Final = 500 * MIB
"""A process of PyTorch before its first tensor: 300 to 600 MiB, by GPU and version."""
WHOLE: Final = 1000
"""A device's pool is counted in thousandths of it."""


class Usage(NamedTuple):
    """What an attempt does to a device.

    Its work takes `stretch` times as long there as alone on a whole one, and draws `milli`
    thousandths of what all on the device have in common.
    """

    stretch: float
    milli: int


class DeviceModel(Protocol):
    """A way of sharing devices."""

    def usage(self, workload: Workload, share: Share, device: Device) -> Usage:
        """How a job of which something is known goes on a device, with this share of it."""

    @property
    def pool(self) -> Sharing:
        """How those on one device slow each other; `WHOLE` is all there is."""


class AllAlike:
    """Each keeps a part of a device busy, and all are slowed alike."""

    def usage(self, workload: Workload, share: Share, device: Device) -> Usage:
        """Its part; nothing stretches its work."""
        part = workload.device_part
        return Usage(1.0, WHOLE if part is None else max(1, ceil(part.value * WHOLE)))

    @property
    def pool(self) -> Sharing:
        """Once the parts come to more than the whole, all are slowed alike."""
        return ProportionalShare(WHOLE)


class SimulatedDevices:
    """The devices of a machine, and what attempts hold of their memory.

    Args:
        devices: Those of the machine; the memory in use there stays in use.
        context_bytes: What each process takes of a device's memory for itself.
        model: How they are shared.

    >>> device = Device(index=0, name="x", uuid="GPU-0", memory_bytes=10 * 2**30, used_bytes=0)
    >>> devices = SimulatedDevices([device], context_bytes=2**30)
    >>> job = Workload.opaque("a", work_ns=1, device_bytes=5 * 2**30)
    >>> share = Share(devices=(0,), device_bytes=6 * 2**30)
    >>> devices.hold(0, share, job, stepping=True)
    >>> devices.hold(1, share, job, stepping=True).cause
    'asked for 6.0 GiB of device 0 (x), of which 4.0 GiB were free'
    """

    def __init__(
        self,
        devices: Sequence[Device],
        *,
        context_bytes: int,
        model: DeviceModel | None = None,
    ) -> None:
        self._model = model or AllAlike()
        self._devices = {device.index: device for device in devices}
        self._context_bytes = context_bytes
        self._held: dict[int, dict[int, int]] = {device.index: {} for device in devices}
        self.pools = [Pool(_pool(index), self._model.pool) for index in self._devices]

    def usage(self, share: Share, workload: Workload) -> tuple[float, tuple[tuple[str, int], ...]]:
        """How many times as long a job's work takes on its devices, and what it draws on each.

        On several it goes as on the one where it takes longest.
        """
        if workload.device_part is None and workload.device_busy is None:
            return 1.0, ()
        used = {
            index: self._model.usage(workload, share, self._devices[index])
            for index in share.devices
        }
        stretch = max((one.stretch for one in used.values()), default=1.0)
        return stretch, tuple((_pool(index), one.milli) for index, one in used.items())

    def hold(self, job: int, share: Share, workload: Workload, *, stepping: bool) -> Outcome | None:
        """Take what an attempt needs on its devices now.

        Args:
            job: Its index.
            share: Which devices it is on.
            workload: What it needs there.
            stepping: It makes steps; before that it holds its context alone.

        Returns:
            How it ends where one of them has too little, else None.
        """
        if workload.device_bytes is None:
            return None
        needed_bytes = self._context_bytes + (int(workload.device_bytes.value) if stepping else 0)
        for index in share.devices:
            device, held = self._devices[index], self._held[index]
            if device.memory_bytes is None or device.used_bytes is None:
                continue
            others = sum(held.values()) - held.get(job, 0)
            free_bytes = device.memory_bytes - device.used_bytes - others
            if needed_bytes > free_bytes:
                cause = (
                    f"asked for {show_bytes(needed_bytes)} of device {index} ({device.name}), "
                    f"of which {show_bytes(max(0, free_bytes))} were free"
                )
                return Outcome("oom", cause, exit_code=1, device=index, retry_helps=others > 0)
            held[job] = needed_bytes
        return None

    def leave(self, job: int) -> None:
        """An attempt is over: what it held is free."""
        for held in self._held.values():
            held.pop(job, None)


def _pool(index: int) -> str:
    return f"device {index}"
