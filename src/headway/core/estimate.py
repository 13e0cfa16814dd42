"""A quantity that is not known exactly, with its bounds and where they come from."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from headway.core.noun import Noun
from headway.core.units import Unit

Origin = Literal["measured", "modelled", "extrapolated", "assumed"]


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
