"""What is known of a pair that never ran together, from what each of the two did with others.

[Note: the model] The logarithm of the coefficient of kind i beside kind j is

    y(i|j) = mean + sensitivity(i) + pressure(j) + own(i, j)

that is, a coefficient is a product of how much i suffers from anyone, how much j makes anyone
suffer, and what only the two of them do to each other. Each part is believed to be normally
distributed about 0. How far each kind of part spreads is learnt from the pairs themselves, starting
from a stated belief which counts as `BELIEF` observations. So an unknown kind borrows the mean and
has the full spread, and a kind that was seen with many others borrows from them.

What is read of a pair is off by noise, so the logarithms scatter about the model by more than their
own parts. Who borrows asks how the pair really is: the noise is taken off.

A pair that fits badly gets less weight (Huber 1964), so that one job that ran out of memory or was
disturbed does not speak for its kind. It is solved by passes over the parts in turn, in a fixed
order from a fixed start: the order in which pairs were observed does not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final

Pair = tuple[str, str]

PASSES: Final = 8
BELIEF: Final = 3.0
"""The stated spread of a part counts as much as this many observed ones."""
LEAST_OWN: Final = 0.25
"""At least this part of the scatter is the pairs' own: noise is not known well enough for less."""
HUBER: Final = 2.0
"""From this many standard deviations on, a pair's pull on the others grows no more."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the model: what is believed of each kind, and how far kinds spread."""

    values: Mapping[str, float]
    variances: Mapping[str, float]
    variance: float

    def of(self, kind: str) -> tuple[float, float]:
        """Value and variance of a kind's part."""
        return self.values.get(kind, 0.0), self.variances.get(kind, self.variance)


@dataclass(frozen=True, slots=True)
class Effects:
    """The fitted model; `scatter` is the variance of the logarithms about it, noise included."""

    mean: float
    mean_variance: float
    sensitivity: Part
    pressure: Part
    scatter: float
    noise_variance: float

    @property
    def own_variance(self) -> float:
        """How far pairs lie from the product of what each of the two does with others."""
        return max(self.scatter - self.noise_variance, LEAST_OWN * self.scatter)

    def borrowed(self, pair: Pair) -> tuple[float, float]:
        """Logarithm and variance of a pair's coefficient, without looking at the pair itself."""
        suffered, suffered_variance = self.sensitivity.of(pair[0])
        caused, caused_variance = self.pressure.of(pair[1])
        return (
            self.mean + suffered + caused,
            self.mean_variance + suffered_variance + caused_variance + self.own_variance,
        )


def fit(
    logs: Mapping[Pair, float], *, prior_variance: float, noise_variance: float = 0.0
) -> Effects:
    """The model of the pairs that were observed.

    Args:
        logs: The logarithm of each observed pair's coefficient.
        prior_variance: Of the logarithm of a pair's coefficient while nothing is known; each of
            the four parts is believed to have a quarter of it.
        noise_variance: How far, squared, the logarithms are typically off by noise.

    With nothing observed, all that is known is the spread:

    >>> fit({}, prior_variance=0.04).borrowed(("a", "b"))
    (0.0, 0.04)

    Two kinds that suffer differently beside the same neighbour do so beside another one:

    >>> seen = {("a", "x"): -1.0, ("b", "x"): 0.0, ("a", "y"): -1.2}
    >>> effects = fit(seen, prior_variance=0.25)
    >>> effects.borrowed(("a", "z"))[0] < -0.4 < effects.borrowed(("b", "y"))[0]
    True
    """
    share = prior_variance / 4
    start = Part({}, {}, share)
    effects = Effects(0.0, share, start, start, share + noise_variance, noise_variance)
    logs = dict(sorted(logs.items()))
    for _ in range(PASSES if logs else 0):
        effects = _pass(logs, effects, share)
    return effects


def _pass(logs: Mapping[Pair, float], now: Effects, share: float) -> Effects:
    """Each part fitted once to what the others leave."""
    sensitivity, pressure = now.sensitivity, now.pressure
    suffered = {pair: sensitivity.of(pair[0])[0] for pair in logs}
    caused = {pair: pressure.of(pair[1])[0] for pair in logs}
    limit = HUBER * sqrt(now.scatter)
    weights = {
        pair: min(1.0, limit / max(abs(log - now.mean - suffered[pair] - caused[pair]), limit))
        for pair, log in logs.items()
    }

    # Pairs of one kind share its part, so there are no more independent views of the mean than
    # there are kinds.
    kinds = len({kind for pair in logs for kind in pair})
    about_mean = sensitivity.variance + pressure.variance + now.scatter
    mean_variance = 1 / (1 / share + kinds / about_mean)
    centre = sum(weights[pair] * (logs[pair] - suffered[pair] - caused[pair]) for pair in logs)
    centre /= sum(weights.values())
    mean = centre * (1 - mean_variance / share)

    left = {pair: log - mean - caused[pair] for pair, log in logs.items()}
    sensitivity = _part(left, weights, 0, now.sensitivity.variance, now.scatter, share)
    left = {pair: log - mean - sensitivity.values[pair[0]] for pair, log in logs.items()}
    pressure = _part(left, weights, 1, now.pressure.variance, now.scatter, share)

    squares = sum(
        weights[pair] * (value - pressure.values[pair[1]]) ** 2
        + sensitivity.variances[pair[0]]
        + pressure.variances[pair[1]]
        for pair, value in left.items()
    )
    belief = BELIEF * (share + now.noise_variance)
    scatter = (belief + squares) / (BELIEF + len(logs))
    return Effects(mean, mean_variance, sensitivity, pressure, scatter, now.noise_variance)


def _part(
    left: Mapping[Pair, float],
    weights: Mapping[Pair, float],
    place: int,
    variance: float,
    scatter: float,
    share: float,
) -> Part:
    """The part that belongs to the kind at one place of the pairs, shrunk towards 0."""
    sums: dict[str, float] = {}
    masses: dict[str, float] = {}
    for pair, value in left.items():
        kind, weight = pair[place], weights[pair]
        sums[kind] = sums.get(kind, 0.0) + weight * value
        masses[kind] = masses.get(kind, 0.0) + weight
    shrinkage = scatter / variance
    values = {kind: sums[kind] / (mass + shrinkage) for kind, mass in masses.items()}
    variances = {kind: scatter / (mass + shrinkage) for kind, mass in masses.items()}
    squares = sum(values[kind] ** 2 + variances[kind] for kind in values)
    spread = (BELIEF * share + squares) / (BELIEF + len(values))
    return Part(values, variances, spread)
