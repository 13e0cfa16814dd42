"""MIG: which instances a GPU can be divided into at once, and where each of them goes.

A profile takes compute slices, and memory slices side by side from one of its allowed starts. A set
of instances can exist at once if and only if there are starts at which no two of them overlap; the
sums alone do not say it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from headway.core.noun import Noun
from headway.core.text import plain
from headway.core.units import show_bytes

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class MigProfile(Noun):
    """One kind of GPU instance, as the driver lists it.

    `size` and `starts` count memory slices; `most` is how many the driver allows at once. `sms` is
    never to be computed from the compute slices: on some GPUs a 3g has more than three of a 1g.
    `source` says where the figures come from.
    """

    name: str
    id: Count
    compute: Positive
    size: Positive
    starts: Annotated[tuple[Count, ...], Field(min_length=1)]
    most: Positive
    memory_bytes: Positive
    sms: Positive
    copy_engines: Positive | None = None
    source: str

    @property
    def media(self) -> bool:
        """Whether it has the media extensions, which one instance of a GPU can have."""
        return "+me" in self.name


class MigTable(Noun):
    """How one GPU can be divided: its slices, and the profiles that can be made of them.

    >>> one = MigProfile(
    ...     name="1g.6gb", id=14, compute=1, size=1, starts=(0, 1, 2, 3), most=4,
    ...     memory_bytes=6120328397, sms=14, source="mig",
    ... )
    >>> table = MigTable(compute=4, memory=4, profiles=(one,))
    >>> [placement.start for placement in table.layout(["1g.6gb", "1g.6gb"])]
    [3, 2]
    >>> table.layout(["1g.6gb"] * 5).reason
    '5 x 1g.6gb needs 5 of 4 compute slices'
    """

    compute: Positive
    memory: Positive
    profiles: Annotated[tuple[MigProfile, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _holds_its_profiles(self) -> Self:
        for profile in self.profiles:
            if max(profile.starts) + profile.size > self.memory:
                raise ValueError(f"{profile.name} ends beyond {self.memory} memory slices")
        names = [profile.name for profile in self.profiles]
        if len(set(names)) < len(names):
            raise ValueError("two profiles have one name")
        return self

    def profile(self, name: str) -> MigProfile | None:
        """The profile of this name, or None."""
        return next((profile for profile in self.profiles if profile.name == name), None)

    def layout(
        self, names: Iterable[str], *, beside: Iterable["MigPlacement"] = ()
    ) -> "tuple[MigPlacement, ...] | Refusal":
        """Where instances of these profiles go on one GPU, or why they cannot all exist at once.

        The placements come in the order to create them in: the largest first, since a driver that
        places small ones by itself may leave no room for a large one. Each goes to the highest
        start that leaves the others theirs; so a lone 3g goes to the upper half, where it leaves
        four compute slices to others and not three.

        Args:
            names: Profiles of this table, one for each instance, in any order.
            beside: Instances that are there and stay where they are; their profiles are of this
                table too.
        """
        there = tuple(beside)
        counts, others = Counter(names), Counter(placement.profile for placement in there)
        found = {name: self.profile(name) for name in counts | others}
        if unknown := [name for name, profile in found.items() if profile is None]:
            known = " ".join(profile.name for profile in self.profiles)
            return Refusal(reason=f"no MIG profile {plain(unknown[0])} here; there are: {known}")
        wanted = {profile: counts[profile.name] for profile in found.values() if profile}
        present = {profile: others[profile.name] for profile in found.values() if profile}
        words = f"{_sum(counts)} beside {_sum(others)}" if others else _sum(counts)
        if reason := self._too_much({kind: wanted[kind] + present[kind] for kind in wanted}):
            return Refusal(reason=f"{words} {reason}")
        largest_first = sorted(wanted, key=lambda kind: (-kind.size, -kind.compute, kind.name))
        queue = [profile for profile in largest_first for _ in range(wanted[profile])]
        if (starts := _starts(queue, sum(placement.bits for placement in there))) is None:
            allowed = "; ".join(
                f"{kind.name} at {_or(kind.starts)}" for kind in largest_first if wanted[kind]
            )
            return Refusal(
                reason=f"{words} cannot be kept apart: memory slices overlap wherever they "
                f"start ({allowed})"
            )
        return tuple(
            MigPlacement(profile=profile.name, start=start, size=profile.size)
            for profile, start in zip(queue, starts, strict=True)
        )

    def _too_much(self, wanted: dict[MigProfile, int]) -> str:
        """What these instances need more of than there is; "" where the sums fit."""
        compute = sum(profile.compute * count for profile, count in wanted.items())
        if compute > self.compute:
            return f"needs {compute} of {self.compute} compute slices"
        memory = sum(profile.size * count for profile, count in wanted.items())
        if memory > self.memory:
            return f"needs {memory} of {self.memory} memory slices"
        media = sum(count for profile, count in wanted.items() if profile.media)
        if media > 1:
            return f"needs the media extensions {media} times; one instance of a GPU has them"
        for profile, count in wanted.items():
            if count > profile.most:
                return f"needs {count} of {profile.most} instances of {profile.name}"
        return ""


class MigPlacement(Noun):
    """One instance of a layout: its profile, and `size` memory slices from `start` on."""

    profile: str
    start: Count
    size: Positive

    @property
    def bits(self) -> int:
        """The memory slices it takes, a bit for each."""
        return _bits(self.start, self.size)


class MigInstance(Noun):
    """A GPU instance that exists on the GPU with the UUID `gpu`.

    `compute` are the ids of its compute instances, and `uuids` those of the MIG devices that
    processes see of them, in the same order. Ids are used again once an instance is gone, so only
    all of this together says which one is meant.
    """

    gpu: str
    id: Count
    profile: str
    start: Count
    size: Positive
    compute: tuple[Count, ...] = ()
    uuids: tuple[str, ...] = ()

    @property
    def placement(self) -> MigPlacement:
        """Where it is."""
        return MigPlacement(profile=self.profile, start=self.start, size=self.size)


class Refusal(Noun):
    """Why something cannot be, in words."""

    reason: str


def _starts(
    queue: Sequence[MigProfile], taken: int = 0, below: int | None = None
) -> list[int] | None:
    """A start for each profile, the highest possible first; None where there are none.

    `taken` has a bit for each memory slice in use. Equal profiles are interchangeable, so each
    starts `below` the one before it.
    """
    if not queue:
        return []
    first, rest = queue[0], queue[1:]
    for start in sorted(first.starts, reverse=True):
        bits = _bits(start, first.size)
        if taken & bits or (below is not None and start >= below):
            continue
        next_below = start if rest and rest[0] == first else None
        if (others := _starts(rest, taken | bits, next_below)) is not None:
            return [start, *others]
    return None


def _sum(counts: Counter[str]) -> str:
    """Profiles as a sum, the largest first: ``4g.20gb + 3 x 1g.5gb``."""
    ordered = sorted(counts.items(), reverse=True)
    return " + ".join(name if count == 1 else f"{count} x {name}" for name, count in ordered)


def _or(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))


def _bits(start: int, size: int) -> int:
    return ((1 << size) - 1) << start


# Drivers of one card differ by less: 39.38 and 39.50 GiB were both seen of an H100's 3g.
_SAME_MEMORY = 0.01


def differences(found: MigTable, known: MigTable) -> tuple[str, ...]:
    """Where a driver's table is another than the catalogue's, in words; the driver's counts.

    Memory is the same within 1%.

    Args:
        found: What the driver lists.
        known: What the catalogue holds of such a GPU.

    >>> from headway.core import catalogue
    >>> a100, h100 = (catalogue.device(name).mig for name in ("a100-80gb", "h100-80gb"))
    >>> differences(a100, a100)
    ()
    >>> differences(h100, a100)[-2]
    '4g.40gb: SMs 64 by the driver, 56 by the catalogue'
    """
    names = dict.fromkeys(profile.name for profile in (*found.profiles, *known.profiles))
    return tuple(
        note for name in names for note in _differ(name, found.profile(name), known.profile(name))
    )


def _differ(name: str, ours: MigProfile | None, theirs: MigProfile | None) -> list[str]:
    if ours is None:
        return [f"{name}: listed by the catalogue, not by the driver"]
    if theirs is None:
        return [f"{name}: listed by the driver, not by the catalogue"]
    pairs = [
        ("id", ours.id, theirs.id),
        ("memory slices", ours.size, theirs.size),
        ("starts", _or(ours.starts), _or(theirs.starts)),
        ("instances at most", ours.most, theirs.most),
        ("SMs", ours.sms, theirs.sms),
    ]
    if abs(ours.memory_bytes - theirs.memory_bytes) > _SAME_MEMORY * theirs.memory_bytes:
        pairs.append(("memory", show_bytes(ours.memory_bytes), show_bytes(theirs.memory_bytes)))
    return [
        f"{name}: {what} {own} by the driver, {other} by the catalogue"
        for what, own, other in pairs
        if own != other
    ]
