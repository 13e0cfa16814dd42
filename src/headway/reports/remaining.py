"""How long a run will still take: only where steps and their number are known.

The number of a job's steps is taken from jobs of the same script that ended ok in this run; the
spread of their counts, and of the step time, makes the bounds.
"""

import heapq
from bisect import insort
from collections.abc import Sequence
from typing import TypeVar

from headway.core.estimate import Estimate, unknown
from headway.core.units import NS_PER_S
from headway.core.view import JobState, View

Number = TypeVar("Number", int, float)

# Step times of one job drift over a run (caches, neighbours): half-width assumed for a step time.
STEP_SPREAD = 0.10


def remaining_of_job(state: JobState, view: View) -> Estimate:
    """Seconds until a job ends, counted from now; unknown where its steps' number is not known."""
    if state.final:
        return _nothing_left()
    return _of_job(state, view, _durations(view, state.job.script).get(state.job.script, ()))


def _of_job(state: JobState, view: View, durations: Sequence[float]) -> Estimate:
    counts = view.step_counts.get(state.job.script)
    if not counts:
        return unknown("s", source="no job of this script has ended yet")
    if state.status != "running":
        return _by_durations(durations, passed_s=0.0)
    if state.step_ns is None:
        began_ns = view.t if state.started_ns is None else state.started_ns
        passed_s = (view.t - began_ns) / NS_PER_S
        return _by_durations(durations, passed_s=passed_s)
    return _by_steps(state, counts)


def _nothing_left() -> Estimate:
    return Estimate(value=0.0, low=0.0, high=0.0, unit="s", origin="measured", source="ended")


def _by_steps(state: JobState, counts: Sequence[int]) -> Estimate:
    step_s, done = (state.step_ns or 0) / NS_PER_S, state.steps or 0
    low, middle, high = (max(0, count - done) for count in _spread(counts))
    return Estimate(
        value=middle * step_s,
        low=low * step_s * (1 - STEP_SPREAD),
        # What comes after the last step (evaluation, saving) is not in the steps: a second for it.
        high=high * step_s * (1 + STEP_SPREAD) + 1.0,
        unit="s",
        origin="extrapolated",
        source="steps of the same script in this run",
        samples=len(counts),
    )


def _by_durations(durations: Sequence[float], *, passed_s: float) -> Estimate:
    """What is left of a job like these, of which so much has passed already."""
    if not durations:
        return unknown("s", source="no job of this script was timed")
    low, middle, high = _spread(durations)
    return Estimate(
        value=max(0.0, middle - passed_s),
        low=max(0.0, low * (1 - STEP_SPREAD) - passed_s),
        high=max(0.0, high * (1 + STEP_SPREAD) - passed_s),
        unit="s",
        origin="extrapolated",
        source="jobs of the same script in this run",
        samples=len(durations),
    )


def _spread(ordered: Sequence[Number]) -> tuple[Number, Number, Number]:
    """Smallest, middle and largest of sorted values."""
    return ordered[0], ordered[len(ordered) // 2], ordered[-1]


def remaining(view: View) -> Estimate:
    """Seconds until the whole list has ended; unknown as soon as one job's time is."""
    durations = _durations(view)

    def parts_of(status: str) -> list[Estimate]:
        return [
            _of_job(state, view, durations.get(state.job.script, ()))
            for state in sorted(view.states, key=lambda state: view.place(state.index))
            if state.status == status
        ]

    running, waiting = parts_of("running"), parts_of("waiting")
    parts = running + waiting
    if not parts:
        return _nothing_left()
    if not all(part.known for part in parts):
        return unknown("s", source="steps or their number are not known for every job")
    lanes = max(1, len(running))
    return Estimate(
        value=_makespan([p.value for p in running], [p.value for p in waiting], lanes),
        low=_makespan([p.low for p in running], [p.low for p in waiting], lanes),
        high=_makespan([p.high for p in running], [p.high for p in waiting], lanes),
        unit="s",
        origin="extrapolated",
        source="jobs of the same scripts in this run",
        samples=min(part.samples for part in parts),
    )


def _makespan(running: Sequence[float], waiting: Sequence[float], lanes: int) -> float:
    """End of a list schedule: each waiting job starts where a lane is free first."""
    ends = sorted(running) or [0.0] * lanes
    heapq.heapify(ends)
    for duration in waiting:
        heapq.heappush(ends, heapq.heappop(ends) + duration)
    return max(ends)


def _durations(view: View, script: str | None = None) -> dict[str, list[float]]:
    """Seconds that jobs which ended ok took, sorted, by script; of all scripts, or of this one."""
    found: dict[str, list[float]] = {}
    for state in view.states:
        if state.status != "ok" or script not in (None, state.job.script):
            continue
        if state.ended_ns is not None and state.started_ns is not None:
            seconds = (state.ended_ns - state.started_ns) / NS_PER_S
            insort(found.setdefault(state.job.script, []), seconds)
    return found
