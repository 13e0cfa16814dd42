"""A quantity that is not known exactly, with its bounds and where they come from."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from headway.core.noun import Noun
from headway.core.units import Unit

Origin = Literal["measured", "modelled", "extrapolated", "assumed"]
_WEAKEST_LAST: tuple[Origin, ...] = ("measured", "modelled", "extrapolated", "assumed")


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


def total(parts: Sequence[Estimate], *, correlation: float = 1.0) -> Estimate:
    """The sum of estimates of one unit: the one place for the arithmetic of bounds.

    Half-widths add linearly for `correlation` 1 (all wrong in the same direction) and as the root
    of squares for 0; between them the variance is (1-c)·Σw² + c·(Σw)². The origin is the weakest of
    the parts.

    Args:
        parts: At least one estimate, all of the same unit.
        correlation: 0..1, how far errors go together.

    Raises:
        ValueError: No part, mixed units, or a correlation outside 0..1.

    >>> a = Estimate(value=3.0, low=2.0, high=4.0, unit="s", origin="measured", source="a")
    >>> total([a, a]).high, round(total([a, a], correlation=0).high, 3)
    (8.0, 7.414)
    """
    units = {part.unit for part in parts}
    if len(units) != 1 or not 0 <= correlation <= 1:
        raise ValueError(
            f"need parts of one unit and 0 <= correlation <= 1, got {units}, {correlation}"
        )

    def width(sides: Sequence[float]) -> float:
        return math.sqrt(
            (1 - correlation) * sum(side**2 for side in sides) + correlation * sum(sides) ** 2
        )

    value = sum(part.value for part in parts)
    known = all(part.known for part in parts)
    below = width([part.value - part.low for part in parts]) if known else math.inf
    above = width([part.high - part.value for part in parts]) if known else math.inf
    return Estimate(
        value=value,
        low=max(value - below, 0.0) if known else sum(part.low for part in parts),
        high=value + above,
        unit=parts[0].unit,
        coverage=min(part.coverage for part in parts),
        origin=max((part.origin for part in parts), key=_WEAKEST_LAST.index),
        source=" + ".join(dict.fromkeys(part.source for part in parts)),
        samples=min(part.samples for part in parts),
    )
