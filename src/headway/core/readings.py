"""Figures that a driver may give or not: a value, or in words why there is none.

A figure that is missing is never 0: an idle device and one that does not tell are two things.
"""

from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from headway.core.noun import Noun

UNDER_MIG = "not available under MIG"
UNATTRIBUTED = "unattributed"


class DeviceUse(NamedTuple):
    """What a device did for a while: parts from 0 to 1, None where nobody can tell.

    `busy` is the part of the time in which a kernel ran, `part` how much of its multiprocessors
    worked all in all.
    """

    busy: float | None
    part: float | None


class Reading(Noun):
    """One figure: `value`, or the `reason` why it is not known; exactly one of them.

    >>> Reading.of(0.25).value, Reading.missing(UNDER_MIG).reason
    (0.25, 'not available under MIG')
    """

    value: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    reason: str = ""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.value is None) != bool(self.reason):
            raise ValueError("a reading is a value, or the reason why there is none")
        return self

    @classmethod
    def of(cls, value: float) -> Self:
        """A figure that is known."""
        return cls(value=float(value))

    @classmethod
    def missing(cls, reason: str) -> Self:
        """A figure that is not known, and why."""
        return cls(reason=reason)

    def minus(self, earlier: "Reading", *, fell: str) -> "Reading":
        """What a counter grew by since an earlier reading of it.

        Args:
            earlier: The reading before.
            fell: The reason to give where the counter is lower than before.

        >>> Reading.of(7).minus(Reading.of(5), fell="it was reset").value
        2.0
        >>> Reading.of(1).minus(Reading.of(5), fell="it was reset").reason
        'it was reset'
        """
        if self.value is None:
            return self
        if earlier.value is None:
            return earlier
        if self.value < earlier.value:
            return Reading.missing(fell)
        return Reading.of(self.value - earlier.value)
