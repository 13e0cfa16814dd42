"""What is left to give while one decision is made."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final, NamedTuple

from headway.core.holdings import Elsewhere, Reservation
from headway.core.view import JobState
from headway.core.words import Share

MILLI: Final = 1000
"""Parts of a device are counted in thousandths."""
HOST: Final = -1
"""Among the devices it stands for the host, where the jobs are that use no device."""


class Tenancy(NamedTuple):
    """Our jobs on one device: their number, and what they are counted with in all.

    `whole` says that it is one job's alone.
    """

    jobs: int = 0
    bytes: int = 0
    milli: int = 0
    whole: bool = False

    def joined(self, share: Share, milli: int) -> "Tenancy":
        """The device with one more job on it."""
        return Tenancy(
            self.jobs + 1,
            self.bytes + (share.device_bytes or 0),
            self.milli + milli,
            share.device_bytes is None,
        )


def tenancies(running: Iterable[JobState]) -> dict[int, Tenancy]:
    """Who is on which device of ours now."""
    tenants: dict[int, Tenancy] = {}
    for state in running:
        if state.share is not None:
            _lodge(tenants, state.share, milli_of(state))
    return tenants


def milli_of(state: JobState) -> int:
    """Thousandths of each of its devices that a job keeps busy; all of them where not known."""
    part = state.placement.expected_device_part
    return MILLI if part is None else ceil(part * MILLI)


def _lodge(tenants: dict[int, Tenancy], share: Share, milli: int) -> None:
    for device in share.devices or (HOST,):
        tenants[device] = tenants.get(device, Tenancy()).joined(share, milli)


@dataclass(slots=True)
class Room:
    """What is left to give in this decision.

    `left` is how many cores other runs leave us (None where they hold none), `held` how many our
    own jobs hold, `others` how many jobs of other runs are beside ours. `devices` are those that
    nobody is on, `tenants` tells of those that our jobs are on. `line` are the other runs that want
    cores too; `first` is the one of them whose turn it is before ours.
    """

    slots: int | None
    cores: list[int]
    devices: list[int]
    bytes: int
    running: int = 0
    exclusive: bool = False
    # While the members of a group are given theirs: what the rest of them need at least.
    kept_bytes: int = 0
    kept_slots: int = 0
    left: int | None = None
    held: int = 0
    others: int = 0
    tenants: dict[int, Tenancy] = field(default_factory=dict)
    line: Sequence[Reservation] = ()
    first: Reservation | None = None
    started: bool = False

    @property
    def full(self) -> bool:
        """Nothing more can start."""
        ours = self.exclusive or (self.slots == 0 and self.running > 0)
        theirs = self.left is not None and self.left <= 0
        return ours or theirs or self.ahead(self.held + 1) is not None

    @property
    def beside(self) -> int:
        """How many jobs are beside the next one, of whatever run."""
        return self.running + self.others

    def ahead(self, held: int) -> Reservation | None:
        """The run that has to be served before ours may hold so much, or None."""
        over = (run for run in self.line if self.started and held > run.slots + run.wants)
        return self.first or next(over, None)

    def without(self, elsewhere: Elsewhere, devices: Collection[int] = ()) -> "Room":
        """The room if other runs held no cores and no memory, nor these devices."""
        return replace(
            self,
            cores=sorted({*self.cores, *elsewhere.cores}),
            devices=sorted({*self.devices, *devices}),
            bytes=self.bytes + elsewhere.reserved_bytes,
            left=None,
            others=0,
            line=(),
            first=None,
        )

    def copy(self) -> "Room":
        """The same room, to try what fits."""
        return replace(
            self,
            cores=list(self.cores),
            devices=list(self.devices),
            tenants=dict(self.tenants),
        )

    def become(self, other: "Room", shares: Sequence[Share]) -> None:
        """Take the room as it is after all members have taken these shares."""
        self.slots, self.cores, self.devices = other.slots, other.cores, other.devices
        self.tenants = other.tenants
        self.bytes, self.left, self.held = other.bytes, other.left, other.held
        self.started = True
        self.running += len(shares)
        self.exclusive = self.exclusive or any(share.alone for share in shares)

    def take(self, share: Share, width: int, held: int) -> None:
        """A member takes its share: `running` still says what is beside the whole group.

        Args:
            share: What it is given.
            width: The slots that it takes of ours.
            held: The cores that it holds against other runs.
        """
        self.held += held
        if self.left is not None:
            self.left -= held
        if self.slots is not None:
            self.slots = max(0, self.slots - width)
        self.cores = [core for core in self.cores if core not in (share.cores or ())]
        self.devices = [device for device in self.devices if device not in share.devices]
        self.bytes -= share.reserved_bytes
        self.kept_slots -= width

    def lodge(self, share: Share, milli: int) -> None:
        """A member comes onto its devices, and keeps so many thousandths of each busy."""
        _lodge(self.tenants, share, milli)
