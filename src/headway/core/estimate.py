"""A quantity that is not known exactly, with its bounds and where they come from."""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from headway.core.noun import Noun
from headway.core.units import Unit

Origin = Literal["measured", "modelled", "extrapolated", "assumed"]
ORIGINS: tuple[Origin, ...] = ("measured", "modelled", "extrapolated", "assumed")
"""The surest first."""


class Estimate(Noun):
    """`low`..`high` holds the truth with probability `coverage`.

    An unbounded `high` (infinity) is written to files as null and read back as infinity.

    >>> Estimate(value=4.0, low=3.5, high=5.0, unit="s", origin="measured", source="9 runs").high
    5.0
    """

    value: float
    low: float
    high: float
    unit: Unit
    coverage: Annotated[float, Field(gt=0, le=1)] = 0.80
    origin: Origin
    source: str
    samples: Annotated[int, Field(ge=0)] = 0

    @field_validator("value", "high", mode="before")
    @classmethod
    def _null_is_unbounded(cls, number: float | None) -> float:
        return math.inf if number is None else number

    @field_serializer("value", "high")
    def _unbounded_is_null(self, number: float) -> float | None:
        return None if math.isinf(number) else number

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.value <= self.high:
            raise ValueError(
                f"bounds must hold the value: {self.low} <= {self.value} <= {self.high}"
            )
        return self

    @property
    def known(self) -> bool:
        """False where nothing is known (no upper bound)."""
        return math.isfinite(self.high)


def unknown(unit: Unit, *, source: str = "never measured") -> Estimate:
    """An estimate that says "I don't know": from 0 to infinity.

    >>> unknown("s").known
    False
    """
    return Estimate(
        value=math.inf, low=0.0, high=math.inf, unit=unit, origin="assumed", source=source
    )


def least_sure(origins: Iterable[Origin]) -> Origin:
    """What comes of several is as sure as the least sure of them; of none it is measured.

    >>> least_sure(["measured", "extrapolated", "modelled"])
    'extrapolated'
    """
    return ORIGINS[max((ORIGINS.index(origin) for origin in origins), default=0)]


def total(parts: Sequence[Estimate], *, source: str | None = None) -> Estimate:
    """The sum of one or more estimates of the same unit, bound by bound.

    As if what makes one of them long made all of them long: the widest bounds there can be.

    Args:
        parts: What is added up.
        source: Where the sum comes from; as of the first part where not said.

    >>> half = Estimate(value=1, low=0.5, high=2, unit="s", origin="measured", source="a run")
    >>> both = total([half, half])
    >>> both.low, both.value, both.high
    (1.0, 2.0, 4.0)
    """
    first = parts[0]
    return first.model_copy(
        update={
            "value": sum(part.value for part in parts),
            "low": sum(part.low for part in parts),
            "high": sum(part.high for part in parts),
            "origin": least_sure(part.origin for part in parts),
            "samples": min(part.samples for part in parts),
            "source": first.source if source is None else source,
        }
    )


def scaled(estimate: Estimate, factor: float, *, unit: Unit) -> Estimate:
    """So many times an estimate, in another unit.

    >>> step = Estimate(value=2, low=1, high=4, unit="s", origin="measured", source="a run")
    >>> scaled(step, 0.5, unit="ratio").high
    2.0
    """
    return estimate.model_copy(
        update={
            "value": estimate.value * factor,
            "low": estimate.low * factor,
            "high": estimate.high * factor,
            "unit": unit,
        }
    )


def times_as_long(seconds: float, alone: Estimate) -> Estimate:
    """How many times as long as `alone` something took.

    >>> alone = Estimate(value=2, low=1, high=4, unit="s", origin="measured", source="a run")
    >>> slowdown = times_as_long(4.0, alone)
    >>> slowdown.low, slowdown.value, slowdown.high
    (1.0, 2.0, 4.0)
    """
    # A job that took no time at all cannot be said to have become slower.
    low, value, high = (max(1e-9, bound) for bound in (alone.low, alone.value, alone.high))
    return alone.model_copy(
        update={
            "value": seconds / value,
            "low": seconds / high,
            "high": seconds / low,
            "unit": "ratio",
        }
    )
