"""Predicted against actual as dots with bounds: one row a job, seconds across. Geometry alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.estimate import Estimate
from headway.core.run import JobResult
from headway.reports.axis import Axis, Tick
from headway.reports.words import spoken_bounds, spoken_seconds, tells, where_it_fell

MOST_ROWS = 40


@dataclass(frozen=True, slots=True)
class Row:
    """A job: `low` to `high` were its bounds, in percent of the width, like the two dots."""

    job: int
    name: str
    low: float
    high: float
    predicted: float
    actual: float
    where: str
    title: str


@dataclass(frozen=True, slots=True)
class Dots:
    """The plot; `remark` says how many jobs were left out, and which."""

    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    logarithmic: bool
    inside: int
    told: int
    remark: str


def dots_of(jobs: Sequence[JobResult]) -> Dots | None:
    """The plot of the jobs that ended ok and of which something was predicted; None for none."""
    told = [
        (index, job, job.predicted, job.seconds)
        for index, job in enumerate(jobs)
        if job.status == "ok" and job.predicted is not None and job.seconds is not None
    ]
    told = [one for one in told if tells(one[2]) and one[2].known]
    if not told:
        return None
    shown = told
    remark = ""
    if len(told) > MOST_ROWS:
        furthest = sorted(told, key=lambda one: -_off(one[2], one[3]))[:MOST_ROWS]
        shown = sorted(furthest, key=lambda one: one[0])
        remark = f"the {MOST_ROWS} of {len(told):,} jobs that were predicted worst"
    values = [s for _, _, predicted, took in shown for s in (predicted.low, predicted.high, took)]
    axis = Axis.holding(values)
    return Dots(
        rows=tuple(_row(*one, axis) for one in shown),
        ticks=tuple(axis.ticks()),
        logarithmic=axis.logarithmic,
        inside=sum(where_it_fell(took, predicted) == "inside" for _, _, predicted, took in told),
        told=len(told),
        remark=remark,
    )


def _off(predicted: Estimate, took_s: float) -> float:
    """By how much it was wrong, as a part of what it took."""
    return abs(predicted.value - took_s) / max(took_s, 1e-3)


def _row(index: int, job: JobResult, predicted: Estimate, took_s: float, axis: Axis) -> Row:
    where = where_it_fell(took_s, predicted)
    return Row(
        job=index,
        name=job.name,
        low=axis.x(predicted.low),
        high=axis.x(predicted.high),
        predicted=axis.x(predicted.value),
        actual=axis.x(took_s),
        where=where,
        title=(
            f"{index + 1} {job.name}: took {spoken_seconds(took_s)}, predicted "
            f"{spoken_seconds(predicted.value)} ({spoken_bounds(predicted)}): {where}"
        ),
    )
