"""How fast jobs go on one GPU, by the way in which they share it: closed forms.

Alone on a whole GPU a job has a kernel running for the part `busy` of the time (NVML's utilisation)
and all in all keeps the part `part` of it busy (multiprocessors in use over time, as GPM counts
them), so that its kernels fill `part / busy` of the multiprocessors while they run.

exclusive    nobody slows it
time-slices  kernels of different processes take turns. The time is divided max-min fair: who needs
             less than an equal share of it gets what it needs
mps          kernels run beside each other. Once they need more than the whole GPU all are slowed
             alike. A job that may use a part of the multiprocessors only has kernels that last
             longer if they would fill more
mig          the same, for good and for itself: it has the multiprocessors of its instance

[Note: what is left out] Waiting for a turn where all together need less than the whole time, the
cost of changing from one process to another, and what caches and the memory's bandwidth cost jobs
that run at once. The first two make time-slices look better than they are, the third MPS. The
coefficients that are learnt of pairs (costs/pair_coefficients.py) take up what remains.
"""

from dataclasses import dataclass

from headway.core.machine import Device
from headway.core.plan import Way
from headway.core.words import Share
from headway.core.workload import Workload
from headway.sim.devices import WHOLE, Usage
from headway.sim.pool import EqualShare, ProportionalShare, Sharing


@dataclass(frozen=True, slots=True)
class Load:
    """What a job does to a GPU that it has to itself; see the module's text.

    Raises:
        ValueError: A part is not above 0 and at most 1, or `part` is more than `busy`.
    """

    busy: float
    part: float

    def __post_init__(self) -> None:
        if not 0 < self.part <= self.busy <= 1:
            raise ValueError(
                f"busy {self.busy:g} and part {self.part:g}, but 0 < part <= busy <= 1 must hold"
            )

    @classmethod
    def of(cls, workload: Workload) -> "Load":
        """What is known of a job; what is not is taken for all of the GPU.

        >>> Load.of(Workload.opaque("a", work_ns=1, device_busy=0.5))
        Load(busy=0.5, part=0.5)
        """
        busy, part = workload.device_busy, workload.device_part
        most = 1.0 if busy is None else min(1.0, busy.value)
        filled = most if part is None else min(1.0, part.value)
        return cls(busy=max(most if busy is not None else filled, filled), part=filled)

    @property
    def filled(self) -> float:
        """The part of the multiprocessors that its kernels fill while they run."""
        return self.part / self.busy

    def stretch(self, multiprocessors: float) -> float:
        """How many times as long its work takes with a part of the multiprocessors.

        Args:
            multiprocessors: That part, above 0.

        A job whose kernels fill half the GPU for 80% of the time, on a quarter of it:

        >>> Load(busy=0.8, part=0.4).stretch(0.25)
        1.8
        >>> Load(busy=0.8, part=0.4).stretch(0.5)
        1.0
        """
        return 1 - self.busy + self.busy * max(1.0, self.filled / multiprocessors)


@dataclass(frozen=True, slots=True)
class DeviceSharing:
    """A way of sharing, as the simulated world asks about it."""

    way: Way

    def usage(self, workload: Workload, share: Share, device: Device) -> Usage:
        """How a job goes on a device, and what it draws on what all on it have in common.

        >>> gpu = Device(index=0, name="x", uuid="GPU-0", memory_bytes=None, used_bytes=None)
        >>> job = Workload.opaque("a", work_ns=1, device_busy=0.8, device_part=0.4)
        >>> DeviceSharing("time-slices").usage(job, Share(devices=(0,)), gpu)
        Usage(stretch=1.0, milli=800)
        >>> DeviceSharing("mps").usage(job, Share(devices=(0,), device_part=0.25), gpu)
        Usage(stretch=1.8, milli=223)
        """
        load = Load.of(workload)
        if self.way == "time-slices":
            return Usage(1.0, _milli(load.busy))
        stretch = load.stretch(device.part or 1.0)
        if self.way == "mps":
            stretch = load.stretch(min(device.part or 1.0, share.device_part or 1.0))
        return Usage(stretch, _milli(load.part / stretch / (device.part or 1.0)))

    @property
    def pool(self) -> Sharing:
        """How those on one device slow each other."""
        return EqualShare(WHOLE) if self.way == "time-slices" else ProportionalShare(WHOLE)


def _milli(part: float) -> int:
    # Rounded up, so that a sum that is not above the whole is not above it for rounding.
    return max(1, min(WHOLE, -int(-part * WHOLE // 1)))
