"""What is left to give while one decision is made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.core.words import Share


@dataclass(slots=True)
class Room:
    """What is left to give in this decision."""

    slots: int | None
    cores: list[int]
    devices: list[int]
    bytes: int
    running: int = 0
    exclusive: bool = False
    # While the members of a group are given theirs: what the rest of them need at least.
    kept_bytes: int = 0
    kept_slots: int = 0

    @property
    def full(self) -> bool:
        """Nothing more can start."""
        return self.exclusive or (self.slots == 0 and self.running > 0)

    def copy(self) -> "Room":
        """The same room, to try what fits."""
        return replace(self, cores=list(self.cores), devices=list(self.devices))

    def become(self, other: "Room", shares: Sequence[Share]) -> None:
        """Take the room as it is after all members have taken these shares."""
        self.slots, self.cores, self.devices = other.slots, other.cores, other.devices
        self.bytes = other.bytes
        self.running += len(shares)
        self.exclusive = self.exclusive or any(share.alone for share in shares)

    def take(self, share: Share, width: int) -> None:
        """A member takes its share: `running` still says what is beside the whole group."""
        if self.slots is not None:
            self.slots = max(0, self.slots - width)
        self.cores = [core for core in self.cores if core not in (share.cores or ())]
        self.devices = [device for device in self.devices if device not in share.devices]
        self.bytes -= share.reserved_bytes
        self.kept_slots -= width
