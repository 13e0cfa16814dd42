"""Whether jobs shall share, and whether it is worth a trial to find out.

Throughput is counted in jobs' solo speeds added up: 1.0 is what running them one after another
gives, so jobs shall share where sharing gives more. Before they run there is a belief about that,
from what their kinds did beside others. A *trial* runs them side by side for a short while and
reads their rates. It costs a part of what the jobs yield, whatever comes out, and it is worth that
where it is likely enough to change the decision, and by enough.

[Note: the worth of a trial] The throughput of sharing is believed to be log-normal, with mean m and
logarithmic spread s. Deciding now yields max(m, 1). A reading with noise n would move the mean;
seen from now, the moved mean is log-normal with mean m again and spread s^2 / sqrt(s^2 + n^2), and
deciding then yields the expected value of max(moved mean, 1), less the cost. This is the expected
value of sample information (Raiffa and Schlaifer 1961) of one reading. It counts only this one
decision; what a reading teaches of other pairs comes on top, and is most for kinds that nobody
knows: these are tried whatever the rest says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Final, Literal, Self

from headway.costs.pair_coefficients import PairCoefficients

APART: Final = 1.0
"""The throughput of running jobs one after another, in solo speeds."""
ALIKE: Final = 0.5
"""How far what is not known of jobs beside each other is alike (correlation): what makes one of two
slow mostly makes the other slow too. A fit of `pair_effects`' model to Gavel's measured pairs on a
K80, P100 and V100 left 0.24 to 0.71 between the two rates."""
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is believed of jobs that share.

    Args:
        throughput: Their rates relative to solo, added up: the middle of the belief.
        spread: Standard deviation of its logarithm.
        partners: How many other kinds the least known of them was observed beside.
    """

    throughput: float
    spread: float
    partners: int

    @classmethod
    def of(
        cls, kinds: Sequence[str], predicted: Sequence[float], coefficients: PairCoefficients
    ) -> Self:
        """The outlook of jobs of these kinds.

        Args:
            kinds: One for each job.
            predicted: Each job's rate relative to solo, without coefficients.
            coefficients: What was learnt of these kinds.

        >>> Outlook.of(["a", "b"], [0.5, 0.5], PairCoefficients()).throughput
        1.0
        """
        rates, spreads = [], []
        for index, (kind, rate) in enumerate(zip(kinds, predicted, strict=True)):
            beliefs = [
                coefficients.belief(kind, beside)
                for beside in (*kinds[:index], *kinds[index + 1 :])
            ]
            rates.append(rate * exp(sum(belief.log for belief in beliefs)))
            spreads.append(sqrt(sum(belief.spread**2 for belief in beliefs)))
        throughput = sum(rates)
        absolute = [rate * spread for rate, spread in zip(rates, spreads, strict=True)]
        together = ALIKE * sum(absolute) ** 2 + (1 - ALIKE) * sum(each**2 for each in absolute)
        spread = sqrt(together) / throughput
        return cls(throughput, spread, min(map(coefficients.partners, kinds)))

    @property
    def mean(self) -> float:
        """The expected throughput."""
        return self.throughput * exp(self.spread**2 / 2)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do with jobs that could share, and why in words."""

    choice: Literal["share", "apart", "try"]
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """The terms of a trial.

    Args:
        cost: The part of what the jobs yield that a trial takes.
        noise: Relative standard deviation of a reading of their throughput.
        familiar: A kind that was observed beside fewer kinds than this is always tried.
    """

    cost: float = 0.02
    noise: float = 0.05
    familiar: int = 1

    def worth(self, outlook: Outlook) -> float:
        """What a trial adds to the expected throughput of these jobs, its cost taken off.

        >>> sure, open_question = Outlook(1.5, 0.05, 9), Outlook(1.0, 0.3, 9)
        >>> round(Trial().worth(sure), 3), round(Trial().worth(open_question), 3)
        (-0.03, 0.076)
        """
        spread = outlook.spread**2 / sqrt(outlook.spread**2 + self.noise**2)
        then = expected_best(outlook.mean, spread) * (1 - self.cost)
        return then - max(outlook.mean, APART)

    def advise(self, outlook: Outlook) -> Advice:
        """Share, run one after another, or find out first."""
        if outlook.partners < self.familiar:
            return Advice("try", "one of these kinds has not run beside another yet")
        worth = self.worth(outlook)
        if worth > 0:
            return Advice(
                "try", f"a trial is worth {worth:.1%} of the throughput; {_words(outlook)}"
            )
        return decide(outlook)


def decide(outlook: Outlook) -> Advice:
    """Share or not, by what is believed now.

    >>> decide(Outlook(1.31, 0.08, 4))
    Advice(choice='share', reason='together they give 1.31 (1.18 to 1.45) times one after another')
    """
    return Advice("share" if outlook.mean > APART else "apart", _words(outlook))


def expected_best(mean: float, spread: float) -> float:
    """The expected value of max(X, APART) for a log-normal X.

    >>> expected_best(1.2, 0.0), round(expected_best(1.0, 0.3), 3)
    (1.2, 1.119)
    """
    if spread == 0:
        return max(mean, APART)
    distance = log(mean / APART) / spread
    return mean * _NORMAL.cdf(distance + spread / 2) + APART * _NORMAL.cdf(spread / 2 - distance)


def _words(outlook: Outlook) -> str:
    low, high = (outlook.throughput * exp(sign * 1.2816 * outlook.spread) for sign in (-1, 1))
    return (
        f"together they give {outlook.throughput:.2f} ({low:.2f} to {high:.2f}) "
        "times one after another"
    )
