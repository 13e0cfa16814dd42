"""How fast jobs go beside each other: a fair division of cores, crowded threads, neighbours.

A member's rate is the product of three factors, each 1.0 where a job has its cores to itself:

1. **Cores** (`fluid`). Every member has the cores that it keeps busy alone; where these are more
   than there are, they are divided max-min fair: nobody gets more than it wants, and nobody less
   than an equal part as long as it wants one.
2. **Crowded threads** (`crowding`). A job that computes with several threads lets them wait for
   each other after each operation, spinning. If one of them has to wait for a core, all of them
   do, and a spinning thread keeps the core from the one that is waited for: the job becomes many
   times slower than its share of the cores says.
3. **Neighbours** (`PairCoefficients`). What the first two do not know of, such as caches and the
   memory's bandwidth: a coefficient for each pair of kinds, learnt from what was measured.

A job is *crowded* where all of this holds: it computes with more than one thread; one core for each
of its threads is more than a fair division leaves it; a neighbour that may use one of its cores
keeps more than half a core busy. So threads that are too many for the cores a job was given, with
nobody else there, are not meant: that is how the job goes alone. Nor is a job that starts up: it
imports modules on one thread.

[Note: where the figures of crowding come from] 17 pairs with a two-thread job among 45 pairs of ten
kinds, on two cores (AVX2, torch 2.13 with libgomp and its defaults). The rule was fitted on these
same pairs. Beside one busy one-thread job, a two-thread job went at 0.01 to 0.11 of its speed, 0.08
fitted; two two-thread jobs at 0.25 and 0.33, 0.3 fitted. A fair division alone gives 0.5 in both
cases, so crowding is what remains. Six two-thread jobs at once were only seen not to end within 4.2
times the time that they take one after another, so each went below 0.04 where a fair division says
0.17; that the loss grows with their number is chosen to agree with that. Other counts of cores and
other libraries are extrapolated.

[Note: exact max-min with cores of one's own] Members may be bound to different, overlapping sets of
cores. For a set of cores U, the members bound to within U can have a common level of at most
water_level(U). The set with the lowest level is the tightest: its members get that level, its cores
are taken, and the rest is divided in the same way. That is exact, since the number of cores that
members can reach together is submodular. Only connected unions of the members' own sets can be the
tightest; there are few of them for sets that are disjoint, nested or runs of neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite
from typing import Final

from headway.costs.pair_coefficients import PairCoefficients

BUSY_CORES: Final = 0.5
"""A neighbour that keeps more than this busy can crowd a job's threads."""
FAIR_SHARE_OF_TWO: Final = 0.5
"""What a fair division gives a two-thread job in the measurements of crowding."""
BESIDE_BUSY: Final = 0.08 / FAIR_SHARE_OF_TWO
"""What is left of a crowded job's fair share beside a busy neighbour that is not crowded itself."""
BESIDE_CROWDED: Final = 0.3 / FAIR_SHARE_OF_TWO
"""What is left of their fair shares where two jobs crowd each other; of n of them, 2/n of it."""
FASTEST: Final = 1.1
"""No rate is above this, whatever was measured: neighbours give no speed."""


@dataclass(frozen=True, slots=True)
class Member:
    """One of the jobs that run side by side.

    Args:
        kind: Jobs of the same kind behave alike; any text.
        threads: How many threads it computes with.
        cores_alone: How many cores it keeps busy when it runs as placed, but alone.
        pinned: The ids of the cores that it is bound to; None for all.
        start_up: Whether it has not made its first step yet: it then uses one core at most, its
            threads do not crowd, and no coefficient applies to it.

    Raises:
        ValueError: A figure is out of range.
    """

    kind: str
    threads: int
    cores_alone: float
    pinned: tuple[int, ...] | None = None
    start_up: bool = False

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"{self.kind}: threads is {self.threads}, but must be 1 or more")
        if not (isfinite(self.cores_alone) and self.cores_alone >= 0):
            raise ValueError(
                f"{self.kind}: cores_alone is {self.cores_alone}, but must be 0 or more"
            )
        if self.pinned == ():
            raise ValueError(f"{self.kind}: pinned to no core; give None for all cores")

    @property
    def wanted_cores(self) -> float:
        """How many cores it keeps busy alone, in the phase it is in."""
        return min(self.cores_alone, 1.0) if self.start_up else self.cores_alone

    @property
    def spins(self) -> bool:
        """Whether it has several threads that wait for each other."""
        return self.threads > 1 and not self.start_up


def rates(
    members: Sequence[Member], cores: Sequence[int], coefficients: PairCoefficients
) -> tuple[float, ...]:
    """The speed of each member relative to how it goes alone, above 0 and at most `FASTEST`.

    Args:
        members: The jobs that run side by side.
        cores: The ids of the cores that all of them may use.
        coefficients: What was learnt of kinds beside each other. Beside several neighbours their
            coefficients multiply.

    Raises:
        ValueError: A member is bound to none of these cores.

    A two-thread job beside a busy one-thread job:

    >>> wide, small = Member("wide", 2, 2.0), Member("small", 1, 1.0)
    >>> [round(rate, 3) for rate in rates([wide, small], range(2), PairCoefficients())]
    [0.08, 1.0]

    The same two on cores of their own:

    >>> wide, small = Member("wide", 1, 1.0, (0,)), Member("small", 1, 1.0, (1,))
    >>> rates([wide, small], range(2), PairCoefficients())
    (1.0, 1.0)
    """
    from_cores = _from_cores(tuple(members), tuple(cores))
    stepping = [member.kind for member in members if not member.start_up]
    together = iter(coefficients.factors(stepping))
    return tuple(
        min(rate * (1.0 if member.start_up else next(together)), FASTEST)
        for member, rate in zip(members, from_cores, strict=True)
    )


# While a plan is simulated, the running set goes back and forth between few states.
@lru_cache(maxsize=4096)
def _from_cores(members: tuple[Member, ...], cores: tuple[int, ...]) -> tuple[float, ...]:
    both = zip(fluid(members, cores), crowding(members, cores), strict=True)
    return tuple(share * crowd for share, crowd in both)


def fluid(members: Sequence[Member], cores: Sequence[int]) -> tuple[float, ...]:
    """The part of what it wants that a fair division of the cores gives each member, at most 1.

    Args:
        members: The jobs that run side by side.
        cores: The ids of the cores that all of them may use.

    Raises:
        ValueError: A member is bound to none of these cores.

    A loader that keeps 1.6 cores busy, beside a job that wants one of the two:

    >>> fluid([Member("loader", 1, 1.6), Member("mem", 1, 1.0)], range(2))
    (0.625, 1.0)
    """
    wanted = tuple(member.wanted_cores for member in members)
    shares = _divide(wanted, _reach(members, cores))
    return tuple(share / want if want else 1.0 for share, want in zip(shares, wanted, strict=True))


def crowding(members: Sequence[Member], cores: Sequence[int]) -> tuple[float, ...]:
    """What crowded threads leave of each member's fair share: 1.0 for who is not crowded.

    Args:
        members: The jobs that run side by side.
        cores: The ids of the cores that all of them may use.

    Raises:
        ValueError: A member is bound to none of these cores.

    >>> two, other = Member("two", 2, 2.0), Member("other", 2, 2.0)
    >>> crowding([two, other], range(2)), crowding([two, other], range(4))
    ((0.6, 0.6), (1.0, 1.0))
    """
    nobody = (1.0,) * len(members)
    if len(members) < 2 or not any(member.spins for member in members):
        return nobody
    reach = _reach(members, cores)
    asked = tuple(
        max(member.wanted_cores, float(member.threads)) if member.spins else member.wanted_cores
        for member in members
    )
    shares = _divide(asked, reach)
    busy = [
        [
            other
            for other, neighbour in enumerate(members)
            if other != index
            and reach[other] & reach[index]
            and neighbour.wanted_cores > BUSY_CORES
        ]
        for index in range(len(members))
    ]
    crowded = [
        member.spins and bool(busy[index]) and shares[index] < member.threads * (1 - 1e-9)
        for index, member in enumerate(members)
    ]
    if not any(crowded):
        return nobody
    return tuple(
        _left_of_share([crowded[other] for other in busy[index]]) if crowded[index] else 1.0
        for index in range(len(members))
    )


def _left_of_share(neighbours_crowded: Sequence[bool]) -> float:
    if not all(neighbours_crowded):
        return BESIDE_BUSY
    return BESIDE_CROWDED * 2 / (1 + len(neighbours_crowded))


def _reach(members: Sequence[Member], cores: Sequence[int]) -> tuple[int, ...]:
    """The cores that each member may use, as a set of bits."""
    everywhere = _bits(cores)
    reach = tuple(
        everywhere if member.pinned is None else everywhere & _bits(member.pinned)
        for member in members
    )
    if not all(reach):
        member = members[reach.index(0)]
        where = "no core" if member.pinned is None else f"cores {member.pinned}"
        raise ValueError(f"{member.kind}: may use {where}, and there are cores {tuple(cores)}")
    return reach


def _bits(cores: Sequence[int]) -> int:
    bits = 0
    for core in cores:
        bits |= 1 << core
    return bits


def _divide(wanted: tuple[float, ...], reach: tuple[int, ...]) -> tuple[float, ...]:
    """Cores for each member. See [Note: exact max-min with cores of one's own]."""
    shares = list(wanted)
    rest = list(range(len(wanted)))
    left = list(reach)
    while rest:
        level, tightest = min(
            (
                _water_level([wanted[i] for i in rest if not left[i] & ~union], union.bit_count()),
                union,
            )
            for union in _connected_unions(frozenset(left[i] for i in rest))
        )
        if level == inf:
            break
        for i in rest:
            if not left[i] & ~tightest:
                shares[i] = min(wanted[i], level)
            left[i] &= ~tightest
        rest = [i for i in rest if left[i]]
    return tuple(shares)


def _water_level(wanted: Sequence[float], cores: int) -> float:
    """What those get who want more than an equal part; infinity if there is enough for all."""
    left, members = float(cores), len(wanted)
    for want in sorted(wanted):
        if want * members > left:
            return left / members
        left -= want
        members -= 1
    return inf


def _connected_unions(sets: frozenset[int]) -> set[int]:
    """The sets, and every union of them that hangs together."""
    found = set(sets)
    todo = list(sets)
    while todo:
        union = todo.pop()
        for each in sets:
            wider = union | each
            if union & each and wider not in found:
                found.add(wider)
                todo.append(wider)
    return found
