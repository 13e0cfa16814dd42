"""A job's curves as small pictures: geometry in a box of 100 by 40, and what it says in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.units import show_bytes
from headway.reports.axis import show_clock
from headway.reports.curves import Curves

WIDTH = 100.0
HEIGHT = 40.0
_LEAST_POINTS = 3
# Room above the highest point, so that a line at the top is not taken for a frame.
_HEADROOM = 1.08


@dataclass(frozen=True, slots=True)
class Chart:
    """A curve: its title, the points of its line, where a limit lies, and the ends of its axis.

    `points` are places in a box of `WIDTH` by `HEIGHT`, y counted from above; `cap_y` is None where
    there is no limit or it lies far above the curve. `title` tells in words what the curve shows.
    """

    title: str
    points: str
    cap_y: float | None
    begin: str
    end: str


def charts_of(job: int, curves: Curves, cap_bytes: int | None) -> tuple[Chart, ...]:
    """The pictures of a job that there is enough to draw of: steps a second, and memory."""
    charts = []
    rates = curves.steps[job].rates if job in curves.steps else []
    if len(rates) >= _LEAST_POINTS:
        low, high = min(rate for _, rate in rates), max(rate for _, rate in rates)
        title = f"steps a second: {_rate(rates[-1][1])} at the end, {_rate(low)} to {_rate(high)}"
        charts.append(_chart(title, rates, None))
    memory = curves.memory[job].points if job in curves.memory else []
    if len(memory) >= _LEAST_POINTS:
        highest = max(value for _, value in memory)
        cap = f" of {show_bytes(cap_bytes)} that it may hold" if cap_bytes else ""
        title = (
            f"memory: {show_bytes(int(memory[-1][1]))} at the end, {show_bytes(int(highest))} at "
            f"most{cap}"
        )
        charts.append(_chart(title, memory, cap_bytes))
    return tuple(charts)


def _chart(title: str, points: Sequence[tuple[float, float]], cap: float | None) -> Chart:
    begin_s, end_s = points[0][0], points[-1][0]
    highest = max(value for _, value in points)
    if cap is not None and cap > 4 * highest:
        cap = None  # a curve at the bottom of its picture would show nothing
    top = _HEADROOM * max(highest, cap or 0.0) or 1.0
    long_s = (end_s - begin_s) or 1.0

    def y(value: float) -> float:
        return round(HEIGHT * (1 - value / top), 2)

    return Chart(
        title=title,
        points=" ".join(
            f"{round(WIDTH * (at_s - begin_s) / long_s, 2)},{y(value)}" for at_s, value in points
        ),
        cap_y=None if cap is None else y(cap),
        begin=show_clock(begin_s),
        end=show_clock(end_s),
    )


def _rate(per_s: float) -> str:
    """Steps a second, with digits that mean something.

    >>> _rate(1234.5), _rate(29.31), _rate(0.123)
    ('1,234', '29.3', '0.12')
    """
    if per_s >= 100:
        return f"{per_s:,.0f}"
    return f"{per_s:.1f}" if per_s >= 1 else f"{per_s:.2f}"
