"""Ratios of the arms of a sweep, which fixed mode was the best, and whether a bar is met.

Only times of one round are divided by each other. An arm that runs in one round alone has one pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from _arms import Outcome
from _common import paired, spread, verdict

Round = dict[str, Outcome]
"""What came of the arms of one round, by their names."""

FIXED = ("serial", "partitioned", "shared", "naive")
"""The modes of `headway run` in which nothing is chosen."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The most that an arm may take, as a part of the best of some others."""

    most: float
    against: tuple[str, ...]
    arm: str = "auto"

    @property
    def label(self) -> str:
        if self.against == FIXED:
            other = "the best fixed mode"
        elif len(self.against) > 1:
            other = f"the better of {' and '.join(self.against)}"
        else:
            (other,) = self.against
        return f"{self.arm} / {other} <= {self.most}"

    def judge(self, rounds: Sequence[Round]) -> str:
        """Whether it is met, and by how much where that is not the ratio of two named arms."""
        several = len(self.against) > 1
        other: str | None = self.against[0]
        if several:
            other = best_of(rounds, self.against, beside=self.arm)
        if other is None:
            return "not judged: none of the others ended well"
        pairs = together(rounds, self.arm, other)
        if not pairs:
            return "not judged: an arm did not run"
        ratio = _counted(pairs)
        state = verdict(ratio, ratio_of(rounds, "auto", "again"), self.most)
        if not several:
            return state
        once = "" if len(pairs) == len(rounds) else f", in {len(pairs)} of {len(rounds)} rounds"
        return f"{state}: {ratio['median']:.3f} times {other}{once}"


def makespans(rounds: Sequence[Round], arm: str) -> list[float]:
    return [found[arm].makespan_s for found in rounds if arm in found]


def together(rounds: Sequence[Round], arm: str, other: str) -> list[tuple[Outcome, Outcome]]:
    """What came of two arms in each round that had both."""
    return [(found[arm], found[other]) for found in rounds if arm in found and other in found]


def ratio_of(rounds: Sequence[Round], arm: str, other: str) -> dict[str, float]:
    """The makespan of one arm by that of another, over the rounds that had both."""
    ours, theirs = zip(*together(rounds, arm, other), strict=True)
    return paired([one.makespan_s for one in ours], [one.makespan_s for one in theirs])


def best_of(rounds: Sequence[Round], arms: Sequence[str], *, beside: str = "auto") -> str | None:
    """The fastest arm of those that ended well in every round: by its median ratio to `beside`.

    The best of each round would not do: the least of several noisy times is shorter than any arm
    takes, by chance alone. Nor would medians of times, where an arm did not run in every round.
    """
    able = {}
    for arm in arms:
        ran = [found[arm] for found in rounds if arm in found]
        if ran and all(one.sound for one in ran):
            able[arm] = ratio_of(rounds, arm, beside)["median"]
    return min(able, key=lambda arm: able[arm], default=None)


def _counted(pairs: Sequence[tuple[Outcome, Outcome]]) -> dict[str, float]:
    """The ratio that counts: 1 where both carried out the same plan in every round."""
    if all(one.plan and one.plan == other.plan for one, other in pairs):
        return spread([1.0] * len(pairs))
    return spread([one.makespan_s / other.makespan_s for one, other in pairs])
