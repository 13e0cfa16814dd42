"""Where tasks run: lanes, and pools with the models that say how fast each member goes.

[Note: one clock for equal members] Tasks with the same demands always have the same rate, whatever
the pools and their models. So each distinct set of demands is one `Group` with one clock, which
runs at that rate, and a heap of the clock readings at which its members are done. A change of rate
then costs one addition for the group instead of one subtraction for each member. It is the same
arithmetic: a member's remaining work is its reading less the clock's, to the last bit.

[Note: exact numbers] Rates are whole multiples of 2^-20 and work is counted in ns * 2^-20, so what
is done in a stretch of whole nanoseconds is an exact product. Rates round down (a pool is never
overdrawn) and ends round up to the next nanosecond: the only two roundings, alike on every machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from headway.sim.task import FLOWING, Entry, SimulationError

RATE_BITS: Final = 20
FULL_RATE: Final = 1 << RATE_BITS
"""The rate of a task that nothing slows: 1.0, in units of 2^-20."""


class Sharing(ABC):
    """How a pool's members slow each other down."""

    @abstractmethod
    def rates(self, demands: Sequence[int], counts: Sequence[int]) -> Sequence[int]:
        """The rate of each class of members, in units of 2^-20, at most `FULL_RATE`.

        Args:
            demands: What one member of each class draws at full rate, ascending.
            counts: How many members each class has, at least 1.
        """


@dataclass(frozen=True, slots=True)
class Unshared(Sharing):
    """Nobody slows anybody: there is enough for all.

    >>> Unshared().rates([1, 5], [10, 10])
    [1048576, 1048576]
    """

    def rates(self, demands: Sequence[int], counts: Sequence[int]) -> list[int]:
        """Full rate for everyone."""
        return [FULL_RATE] * len(demands)


@dataclass(frozen=True, slots=True)
class EqualShare(Sharing):
    """Processor sharing: everyone gets the same share, and nobody more than it demands.

    Max-min fair: what small demands leave of their equal share is divided equally among the others.

    Raises:
        SimulationError: the capacity is below 1 or not a plain integer.

    Capacity 4 among demands of 1, 2 and 4 is shared as 1, 1.5 and 1.5:

    >>> [rate / FULL_RATE for rate in EqualShare(capacity=4).rates([1, 2, 4], [1, 1, 1])]
    [1.0, 0.75, 0.375]
    """

    capacity: int

    def __post_init__(self) -> None:
        _check_capacity(self.capacity)

    def rates(self, demands: Sequence[int], counts: Sequence[int]) -> list[int]:
        """Rates of the max-min fair division, each rounded down to 2^-20."""
        left, members = self.capacity, sum(counts)
        rates = []
        for demand, count in zip(demands, counts, strict=True):
            if demand * members > left:
                # This class and all later ones demand more than the equal share left / members.
                rates.append((left << RATE_BITS) // (members * demand))
            else:
                rates.append(FULL_RATE)
                left -= demand * count
                members -= count
        return rates


@dataclass(frozen=True, slots=True)
class ProportionalShare(Sharing):
    """Everyone is slowed alike once all together demand more than there is.

    Raises:
        SimulationError: the capacity is below 1 or not a plain integer.

    Capacity 4 among demands of 1, 2 and 5:

    >>> [rate / FULL_RATE for rate in ProportionalShare(capacity=4).rates([1, 2, 5], [1, 1, 1])]
    [0.5, 0.5, 0.5]
    """

    capacity: int

    def __post_init__(self) -> None:
        _check_capacity(self.capacity)

    def rates(self, demands: Sequence[int], counts: Sequence[int]) -> list[int]:
        """One rate for all, rounded down to 2^-20."""
        total = sum(demand * count for demand, count in zip(demands, counts, strict=True))
        rate = FULL_RATE if total <= self.capacity else (self.capacity << RATE_BITS) // total
        return [rate] * len(demands)


def _check_capacity(capacity: int) -> None:
    if capacity.__class__ is not int or capacity < 1:
        raise SimulationError(
            f"capacity is {capacity!r}, but must be a whole number, 1 or more; "
            "use a finer unit (1000 for one core)"
        )


@dataclass(frozen=True, slots=True)
class Pool:
    """Something several tasks draw on at once: cores, memory bandwidth, a link.

    >>> Pool("cores", EqualShare(capacity=2_000)).name
    'cores'
    """

    name: str
    sharing: Sharing = field(default_factory=Unshared)


class Lane:
    """A lane in a running simulation: who holds it and who waits for it."""

    __slots__ = ("index", "name", "running", "waiting")

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self.running: Entry | None = None
        self.waiting: list[tuple[tuple[int, int], int, Entry]] = []


class PoolState:
    """A pool in a running simulation: which groups draw on it now."""

    __slots__ = ("demands", "groups", "sharing")

    def __init__(self, pool: Pool) -> None:
        self.sharing = pool.sharing
        self.groups: list[Group] = []  # those with members, by ...
        self.demands: list[int] = []  # ... what one member of each draws here, ascending

    def enter(self, group: Group, demand: int) -> None:
        """Let a group take part in the division."""
        place = bisect_right(self.demands, demand)
        self.demands.insert(place, demand)
        self.groups.insert(place, group)

    def exit(self, group: Group) -> None:
        """Divide without this group from now on."""
        place = self.groups.index(group)
        del self.demands[place], self.groups[place]

    def share(self, affected: dict[Group, None]) -> None:
        """Divide the pool anew; the groups whose share has changed join `affected`."""
        rates = self.sharing.rates(self.demands, [group.count for group in self.groups])
        for group, rate in zip(self.groups, rates, strict=True):
            if group.shares[self] != rate:
                group.shares[self] = rate
                affected[group] = None


class Group:
    """All running tasks of equal demands. See [Note: one clock for equal members]."""

    __slots__ = ("as_of_ns", "clock", "count", "demands", "members", "next_ns", "rate", "shares")

    def __init__(self, demands: tuple[tuple[PoolState, int], ...]) -> None:
        self.demands = demands
        self.shares = {pool: 0 for pool, _ in demands}
        self.count = 0
        self.rate = 0
        self.clock = 0  # work one member has been given so far, in ns * 2^-20 ...
        self.as_of_ns = 0  # ... up to this time
        self.next_ns = -1  # when the next member ends at the present rate; -1: not known yet
        self.members: list[tuple[int, tuple[int, int], int, Entry]] = []

    def reading(self, now_ns: int) -> int:
        """The group's clock at `now_ns`, if its rate has not changed since it was last set."""
        return self.clock + self.rate * (now_ns - self.as_of_ns)

    def join(self, entry: Entry, now_ns: int) -> None:
        """Add a member that begins its work now."""
        if not self.count:
            self.clock = 0  # only to keep the numbers small
            self.as_of_ns = now_ns
            for pool, demand in self.demands:
                pool.enter(self, demand)
        self.count += 1
        entry.state = FLOWING
        entry.target = self.reading(now_ns) + (entry.task.work_ns << RATE_BITS)
        heappush(self.members, (entry.target, entry.priority, entry.serial, entry))

    def leave(self) -> None:
        """Count one member less; its place in the heap is passed over later."""
        self.count -= 1
        self.next_ns = -1
        if not self.count:
            self.members.clear()
            for pool, _ in self.demands:
                pool.exit(self)

    def take_due(self, now_ns: int) -> list[Entry]:
        """The members whose work is done by now, in the order they got there; they stay counted."""
        reading = self.reading(now_ns)
        due = []
        while self.members and self.members[0][0] <= reading:
            entry = heappop(self.members)[3]
            if entry.state == FLOWING:
                due.append(entry)
        return due

    def retime(self, now_ns: int) -> Entry:
        """Go on at the rate its pools allow now; sets `next_ns` and returns who ends then.

        Raises:
            SimulationError: the rate is below 2^-20, so that its members would never end.
        """
        self.clock = self.reading(now_ns)
        self.as_of_ns = now_ns
        self.rate = min(self.shares.values())
        while self.members[0][3].state != FLOWING:
            heappop(self.members)
        target, _, _, entry = self.members[0]
        if self.rate < 1:
            raise SimulationError(
                f"task {entry.task.id!r} would run at less than 2^-20 of its full rate beside "
                f"{self.count - 1} like it; give its pools more capacity or start fewer at once"
            )
        self.next_ns = now_ns - (self.clock - target) // self.rate
        return entry
