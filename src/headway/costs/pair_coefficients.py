"""What neighbours do to each other beyond what a model of cores or slices knows, learnt online."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import exp, isfinite, log, sqrt
from statistics import fmean
from typing import Annotated, Final, NamedTuple, Self

from pydantic import Field, model_validator

from headway.core.estimate import Estimate
from headway.core.noun import Noun
from headway.costs.pair_effects import Effects, Pair, fit

FORGETTING: Final = 0.2
"""The weight of a new reading once there are five; before, all readings count the same."""
STEADY_READINGS: Final = 2 / FORGETTING - 1
"""Readings that an average with this forgetting is worth at most."""
COVERAGE: Final = 0.80
COVERED: Final = 1.2816
"""Standard deviations about the middle that hold `COVERAGE` of a normal distribution."""


class PairRecord(Noun):
    """What was read of one kind beside another.

    `ratio` is the moving (geometric) average of measured over predicted rates, `scatter` the moving
    variance of their logarithms, `count` how many there were.
    """

    kind: str
    beside: str
    ratio: Annotated[float, Field(gt=0)]
    scatter: Annotated[float, Field(ge=0)] = 0.0
    count: Annotated[int, Field(ge=1)] = 1


class Belief(NamedTuple):
    """The logarithm of a coefficient, and its standard deviation."""

    log: float
    spread: float


class PairCoefficients(Noun):
    """A coefficient for each ordered pair of kinds: its measured rate over the predicted one.

    Every coefficient starts at 1.0. A reading moves the pair's own moving average, and through it
    what is believed of pairs that never ran: they borrow from what each of the two did beside
    others (`pair_effects`). What is told of a pair weighs its own readings against what it borrows.

    Args:
        low: No coefficient is below this.
        high: No coefficient is above this.
        prior_spread: Standard deviation of a coefficient's logarithm while nothing is known. The
            default is of cores: single speeds were off by 4.9% in the median, 13% in one of ten.
        noise: Relative standard deviation of one reading.
        pairs: What was observed, in alphabetical order.

    >>> known = PairCoefficients().observed(["lstm", "mem"], [0.90, 0.95])
    >>> round(known.value("lstm", "mem"), 2), known.value("mem", "mem") < 1.0
    (0.91, True)
    >>> PairCoefficients.from_json(known.to_json(), source="state") == known
    True
    """

    low: Annotated[float, Field(gt=0, le=1)] = 0.3
    high: Annotated[float, Field(ge=1)] = 1.1
    prior_spread: Annotated[float, Field(gt=0)] = 0.1
    noise: Annotated[float, Field(gt=0)] = 0.05
    pairs: tuple[PairRecord, ...] = ()

    @model_validator(mode="after")
    def _each_pair_once(self) -> Self:
        named = [(record.kind, record.beside) for record in self.pairs]
        if named != sorted(set(named)):
            raise ValueError("pairs must stand in alphabetical order, each once")
        return self

    @classmethod
    def of(cls, readings: Iterable[tuple[str, str, float]]) -> Self:
        """What readings tell, oldest first: a kind, the one beside it, measured over predicted.

        >>> round(PairCoefficients.of([("mem", "mem", 0.8)] * 9).value("mem", "mem"), 2)
        0.8
        """
        known = cls()
        records: dict[Pair, PairRecord] = {}
        for kind, beside, ratio in readings:
            pair = kind, beside
            records[pair] = known._moved(records.get(pair), kind, beside, ratio)
        return known.model_copy(update={"pairs": tuple(records[pair] for pair in sorted(records))})

    def observed(self, kinds: Sequence[str], ratios: Sequence[float]) -> Self:
        """What is known after jobs of these kinds ran side by side.

        Args:
            kinds: Of all who ran, at least two.
            ratios: For each, its measured rate over the one predicted without coefficients; beside
                several neighbours each is taken to have done an equal part.

        Raises:
            ValueError: Fewer than two kinds, or a ratio that is negative or not a number.
        """
        if len(kinds) < 2 or len(kinds) != len(ratios):
            raise ValueError(
                f"{len(ratios)} ratios of {len(kinds)} kinds; give one for each of two or more"
            )
        if bad := [ratio for ratio in ratios if not (isfinite(ratio) and ratio >= 0)]:
            raise ValueError(f"a ratio is {bad[0]}, but must be 0 or more")
        records = dict(self._records)
        for index, (kind, ratio) in enumerate(zip(kinds, ratios, strict=True)):
            each = ratio ** (1 / (len(kinds) - 1))
            for beside in (*kinds[:index], *kinds[index + 1 :]):
                records[kind, beside] = self._moved(records.get((kind, beside)), kind, beside, each)
        pairs = tuple(records[pair] for pair in sorted(records))
        return type(self)(
            low=self.low,
            high=self.high,
            prior_spread=self.prior_spread,
            noise=self.noise,
            pairs=pairs,
        )

    def value(self, kind: str, beside: str) -> float:
        """The coefficient of a kind beside another, within the bounds."""
        pair = (kind, beside)
        found = self._values.get(pair)
        if found is None:
            found = self._values[pair] = self._bounded(exp(self.belief(kind, beside).log))
        return found

    def factors(self, kinds: Sequence[str]) -> list[float]:
        """For each of some kinds that run side by side, the product of its coefficients."""
        values = self._values
        factors = []
        for index, kind in enumerate(kinds):
            factor = 1.0
            for other, beside in enumerate(kinds):
                if other != index:
                    known = values.get((kind, beside))
                    factor *= self.value(kind, beside) if known is None else known
            factors.append(factor)
        return factors

    def belief(self, kind: str, beside: str) -> Belief:
        """A coefficient's logarithm with its spread, own readings weighed against borrowed ones."""
        borrowed, variance = self._effects.borrowed((kind, beside))
        record = self._records.get((kind, beside))
        if record is None:
            return Belief(borrowed, sqrt(variance))
        trust = 1 / self._noise_variance(record)
        known = 1 / variance + trust
        return Belief((borrowed / variance + log(record.ratio) * trust) / known, sqrt(1 / known))

    def estimate(self, kind: str, beside: str) -> Estimate:
        """The coefficient with its bounds and where it comes from."""
        middle, spread = self.belief(kind, beside)
        record = self._records.get((kind, beside))
        return Estimate(
            value=self._bounded(exp(middle)),
            low=self._bounded(exp(middle - COVERED * spread)),
            high=self._bounded(exp(middle + COVERED * spread)),
            unit="ratio",
            coverage=COVERAGE,
            origin="measured" if record else "extrapolated" if self.pairs else "assumed",
            source=(
                f"{kind} beside {beside}"
                if record
                else f"neighbours of {kind}: {self.partners(kind)}, of {beside}: "
                f"{self.partners(beside)}"
            ),
            samples=record.count if record else 0,
        )

    def partners(self, kind: str) -> int:
        """How many kinds a kind was observed beside."""
        return self._partners.get(kind, 0)

    def _noise_variance(self, record: PairRecord) -> float:
        """How far, squared, a pair's average is typically off."""
        return max(self.noise**2, record.scatter) / min(record.count, STEADY_READINGS)

    def _moved(self, record: PairRecord | None, kind: str, beside: str, ratio: float) -> PairRecord:
        ratio = self._bounded(ratio)
        if record is None:
            return PairRecord(kind=kind, beside=beside, ratio=ratio)
        count = record.count + 1
        weight = max(1 / count, FORGETTING)
        step = log(ratio / record.ratio)
        return PairRecord(
            kind=kind,
            beside=beside,
            ratio=record.ratio * exp(weight * step),
            scatter=(1 - weight) * (record.scatter + weight * step**2),
            count=count,
        )

    def _bounded(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    @cached_property
    def _values(self) -> dict[Pair, float]:
        return {}  # filled as pairs are asked for: a simulator asks for few, again and again

    @cached_property
    def _records(self) -> dict[Pair, PairRecord]:
        return {(record.kind, record.beside): record for record in self.pairs}

    @cached_property
    def _partners(self) -> dict[str, int]:
        partners: dict[str, int] = {}
        for record in self.pairs:
            partners[record.kind] = partners.get(record.kind, 0) + 1
        return partners

    @cached_property
    def _effects(self) -> Effects:
        noise = [self._noise_variance(record) for record in self.pairs]
        return fit(
            {pair: log(record.ratio) for pair, record in self._records.items()},
            prior_variance=self.prior_spread**2,
            noise_variance=fmean(noise) if noise else 0.0,
        )
