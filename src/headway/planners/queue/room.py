"""What is left to give while one decision is made."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from headway.core.holdings import Elsewhere, Reservation
from headway.core.words import Share


@dataclass(slots=True)
class Room:
    """What is left to give in this decision.

    `left` is how many cores other runs leave us (None where they hold none), `held` how many our
    own jobs hold, `others` how many jobs of other runs are beside ours. `line` are the other runs
    that want cores too; `first` is the one of them whose turn it is before ours.
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
        return replace(self, cores=list(self.cores), devices=list(self.devices))

    def become(self, other: "Room", shares: Sequence[Share]) -> None:
        """Take the room as it is after all members have taken these shares."""
        self.slots, self.cores, self.devices = other.slots, other.cores, other.devices
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
