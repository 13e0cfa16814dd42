r"""Bounds for the next value, from the few that were seen.

[Note: the rule]
Times and sizes spread by factors, so everything happens in logarithms. The next value is taken to
lie around the median m of the n values seen, and a prior says how far: a spread `s0` worth PRIOR
values, as if so many had been seen before. With s the spread of the n values, worth k values,

    scale^2 = (PRIOR s0^2 + k s^2) / (PRIOR + k)
    bounds  = m exp(+- t scale sqrt(1 + pi/2n)),    t: Student's, of PRIOR + k degrees of freedom.

This is the posterior predictive interval of a normal law with conjugate prior (Gelman et al.,
Bayesian Data Analysis, 3rd edition, section 3.3), with pi/2n instead of 1/n because the middle is
a median. So one value alone has bounds of a sensible width, equal values draw them together, and
scattered ones apart.

For times s is Qn, the smallest quarter of all distances (Rousseeuw and Croux, Alternatives to the
median absolute deviation, 1993): a run that something disturbed neither moves the middle nor
widens the bounds. Its efficiency is 0.82, hence k = 0.82 (n - 1). For memory a rare large value is
the one that matters: there s is the standard deviation, k = n - 1, and nobody may have been higher
than the bound (see recall.py).

[Note: the constants]
Measured on a shared two-core machine: the same work again took 3 to 12% longer or shorter, so 0.055
for times, which gives one run alone about 15% either way. Memory peaks repeat more exactly: 0.025
gives one run 15% above. Start-up depends on what the file cache holds. Other arguments may mean
anything from a hidden size to a seed: a factor of three either way after one other job, until
several of them say more. What the passing of time cannot be seen to have changed (script, machine)
is a factor of two, and no number of older runs narrows that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median, stdev

PRIOR = 3
TIME_QUANTILE = 0.90
"""Of each bound of a time: 0.80 lie between the two."""
MEMORY_QUANTILE = 0.98
"""Of a size's upper bound; its lower one promises nothing."""

# Rousseeuw and Croux's factors that make Qn unbiased for few values.
_FEW = {2: 0.399, 3: 0.994, 4: 0.512, 5: 0.844, 6: 0.611, 7: 0.857, 8: 0.669, 9: 0.872}
_EFFICIENCY = 0.82


@dataclass(frozen=True, slots=True)
class Spreads:
    """How far values lie apart: standard deviations of their natural logarithms.

    `again`: the same job again; `arguments`: the same script with other arguments; `shift`: after
    a change of script or machine.
    """

    again: float
    arguments: float
    shift: float


TIME = Spreads(again=0.055, arguments=0.4, shift=0.54)
START_UP = Spreads(again=0.15, arguments=0.3, shift=0.54)
MEMORY = Spreads(again=0.025, arguments=0.2, shift=0.34)
STEPS = Spreads(again=0.025, arguments=0.4, shift=0.54)


def next_value(
    values: Sequence[float],
    *,
    spread: float,
    shift: float = 0.0,
    quantile: float = TIME_QUANTILE,
    robust: bool = True,
) -> tuple[float, float, float]:
    """Low bound, middle and high bound of a value like these.

    Args:
        values: At least one, each above 0; their order does not matter.
        spread: What is taken for their spread before any is seen; see `Spreads`.
        shift: A spread that no number of values narrows.
        quantile: Of each bound.
        robust: Let a few wild values count for nothing.

    >>> [round(bound, 2) for bound in next_value([10.0], spread=TIME.again)]
    [8.66, 10.0, 11.55]
    >>> [round(bound, 2) for bound in next_value([10.0] * 10, spread=TIME.again)]
    [9.57, 10.0, 10.44]
    """
    logs = sorted(math.log(value) for value in values)
    n = len(logs)
    if robust:
        seen, worth = _qn(logs), _EFFICIENCY * (n - 1)
    else:
        seen, worth = stdev(logs) if n > 1 else 0.0, n - 1.0
    scale = math.sqrt((PRIOR * spread**2 + worth * seen**2) / (PRIOR + worth))
    near = student(quantile, PRIOR + worth) * scale * math.sqrt(1 + math.pi / 2 / n)
    factor = math.exp(math.hypot(near, NormalDist().inv_cdf(quantile) * shift))
    middle = median(values)
    return middle / factor, middle, middle * factor


def student(quantile: float, freedom: float) -> float:
    """Student's t at a quantile; within 1% from 3 degrees of freedom on.

    The expansion is 26.7.5 of Abramowitz and Stegun, Handbook of Mathematical Functions.

    >>> round(student(0.90, 10), 3), round(student(0.98, 10), 3)
    (1.372, 2.359)
    """
    z = NormalDist().inv_cdf(quantile)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def _qn(ordered: Sequence[float]) -> float:
    n = len(ordered)
    if n < 2:
        return 0.0
    distances = sorted(b - a for i, a in enumerate(ordered) for b in ordered[i + 1 :])
    half = n // 2 + 1
    few = _FEW.get(n) or (n / (n + 1.4) if n % 2 else n / (n + 3.8))
    return 2.2219 * few * distances[half * (half - 1) // 2 - 1]
