"""Axes of time for pictures whose places are percents of their width.

A picture that is laid out in percents keeps its letters at their size, however wide the screen is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.units import show_seconds

MOST_TICKS = 6
# Where the longest is so many times the shortest, a linear axis would hide the short ones.
LOG_FROM = 30.0
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200)
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis: where, in percent, and what it says."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """From `first_s`, at 0%, to `last_s`, at 100%; logarithmic or not."""

    first_s: float
    last_s: float
    logarithmic: bool = False

    @classmethod
    def upto(cls, last_s: float) -> "Axis":
        """A linear one from nothing."""
        return cls(0.0, max(last_s, 1e-3))

    @classmethod
    def holding(cls, values_s: Sequence[float]) -> "Axis":
        """One that shows all of these, none of them at its edge; logarithmic where they differ.

        >>> Axis.holding([1.0, 10.0]).logarithmic, Axis.holding([1.0, 100.0]).logarithmic
        (False, True)
        """
        least, most = max(1e-3, min(values_s)), max(1e-3, *values_s)
        if most / least < LOG_FROM:
            return cls.upto(most * 1.05)
        return cls(least / 1.2, most * 1.2, logarithmic=True)

    def x(self, t_s: float) -> float:
        """Where a time is, in percent; what lies outside is put at the edge.

        >>> Axis.upto(10.0).x(2.5), Axis.upto(10.0).x(11.0), Axis(1, 100, True).x(10)
        (25.0, 100.0, 50.0)
        """
        if self.logarithmic:
            part = math.log(max(t_s, self.first_s) / self.first_s) / math.log(
                self.last_s / self.first_s
            )
        else:
            part = (t_s - self.first_s) / (self.last_s - self.first_s)
        return round(100 * min(1.0, max(0.0, part)), 3)

    def ticks(self) -> list[Tick]:
        """A few round times.

        >>> [tick.label for tick in Axis.upto(100.0).ticks()]
        ['0:00', '0:30', '1:00', '1:30']
        >>> [tick.label for tick in Axis(0.5, 700.0, True).ticks()]
        ['1.0 s', '0:10', '1:40']
        """
        if self.logarithmic:
            powers = range(
                math.ceil(math.log10(self.first_s)), math.floor(math.log10(self.last_s)) + 1
            )
            return [Tick(self.x(10.0**power), show_seconds(10.0**power)) for power in powers]
        step_s = _step_s(self.last_s)
        count = math.floor(self.last_s / step_s + 1e-9)
        labels = [
            f"{n * step_s:g} s" if step_s < 1 else show_clock(n * step_s) for n in range(count + 1)
        ]
        return [Tick(self.x(n * step_s), label) for n, label in enumerate(labels)]


def show_clock(seconds: float) -> str:
    """A moment of a run, the same way however early.

    >>> show_clock(4.2), show_clock(3723)
    ('0:04', '1:02:03')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _step_s(last_s: float) -> float:
    """Between marks: a round time of which no more than MOST_TICKS fit."""
    for step_s in _STEPS_S:
        if MOST_TICKS * step_s >= last_s > step_s:
            return step_s
    if last_s <= 1:
        return 10.0 ** math.floor(math.log10(last_s))
    return _DAY_S * math.ceil(last_s / _DAY_S / MOST_TICKS)
