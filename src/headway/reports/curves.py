"""How much memory jobs held and how fast they stepped, over a run: thinned as it gets long."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Self

from headway.core.timeline import Reading
from headway.core.units import NS_PER_S

MEMORY = "resident_bytes"
STEPS = "steps"
# More points than this are more than a screen has room for.
MOST_POINTS = 240


@dataclass(slots=True)
class Series:
    """Values by seconds from the run's start, further apart whenever there are too many.

    Of points that are merged the last time and the highest value stay: no peak is smoothed away.

    >>> series = Series()
    >>> for second in range(10_000):
    ...     series.add(float(second), second % 7)
    >>> len(series.points) <= MOST_POINTS, series.points[-1][0]
    (True, 9999.0)
    >>> min(value for _, value in series.points[1:-1])
    6
    """

    points: list[tuple[float, float]] = field(default_factory=list)
    apart_s: float = 0.0

    def add(self, at_s: float, value: float) -> None:
        """A value that is later than all before it."""
        # The last point is open until it is far enough from the one before it.
        if len(self.points) >= 2 and self.points[-1][0] - self.points[-2][0] < self.apart_s:
            value = max(value, self.points.pop()[1])
        self.points.append((at_s, value))
        if len(self.points) > MOST_POINTS:
            pairs = zip_longest(self.points[::2], self.points[1::2])
            self.points = [
                one if other is None else (other[0], max(one[1], other[1])) for one, other in pairs
            ]
            # A little less than they are apart now: they need not be so to the last bit.
            self.apart_s = 0.99 * (at_s - self.points[0][0]) / len(self.points)

    @property
    def rates(self) -> list[tuple[float, float]]:
        """How fast the values grew, by the end of each stretch between two points."""
        return [
            (end_s, (more - less) / (end_s - begin_s))
            for (begin_s, less), (end_s, more) in pairwise(self.points)
            if end_s > begin_s
        ]


@dataclass(slots=True)
class Curves:
    """What the counters of a run tell, by a job's index; `most_together` is of all jobs at once.

    Steps are those of the last attempt.
    """

    memory: dict[int, Series] = field(default_factory=lambda: defaultdict(Series))
    steps: dict[int, Series] = field(default_factory=lambda: defaultdict(Series))
    most_together: float = 0.0
    _look_ns: int = -1
    _held: float = 0.0

    @classmethod
    def of(cls, readings: Iterable[Reading]) -> Self:
        """All that these readings tell."""
        curves = cls()
        for reading in readings:
            curves.take(reading)
        return curves

    def take(self, reading: Reading) -> None:
        """One more reading; those of one look come one after another, with the same time."""
        job = _job_of(reading.lane)
        if job is None:
            return
        at_s = reading.t / NS_PER_S
        if reading.name == MEMORY:
            self._held = reading.value + (self._held if reading.t == self._look_ns else 0.0)
            self._look_ns = reading.t
            self.most_together = max(self.most_together, self._held)
            self.memory[job].add(at_s, reading.value)
        elif reading.name == STEPS:
            before = self.steps[job].points
            if before and reading.value < before[-1][1]:
                self.steps[job] = Series()  # another attempt counts from its own start
            if not before or at_s > before[-1][0]:
                self.steps[job].add(at_s, reading.value)


def _job_of(lane: str) -> int | None:
    """The index of the job whose counters these are."""
    number = lane.removeprefix("job/")
    return int(number) - 1 if number != lane and number.isdecimal() else None
