"""How long a run will still take: only where steps and their number are known.

The number of a job's steps is taken from jobs of the same script that ended ok in this run; the
spread of their counts, and of the step time, makes the bounds.
"""

import heapq
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
    counts = view.step_counts.get(state.job.script)
    if not counts or state.final:
        return unknown("s", source="no job of this script has ended yet")
    if state.status == "running" and state.step_ns is not None:
        return _by_steps(state, counts)
    return _by_durations(_durations(state, view))


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


def _by_durations(durations: Sequence[float]) -> Estimate:
    if not durations:
        return unknown("s", source="no job of this script was timed")
    low, middle, high = _spread(durations)
    return Estimate(
        value=middle,
        low=low * (1 - STEP_SPREAD),
        high=high * (1 + STEP_SPREAD),
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
    running = [remaining_of_job(state, view) for state in view.running.values()]
    waiting = [remaining_of_job(state, view) for state in view.states if state.status == "waiting"]
    parts = running + waiting
    if not parts or not all(part.known for part in parts):
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


def _durations(state: JobState, view: View) -> list[float]:
    """Seconds that ended jobs of the same script took, sorted."""
    return sorted(
        (other.ended_ns - other.started_ns) / NS_PER_S
        for other in view.states
        if other.status == "ok"
        and other.job.script == state.job.script
        and other.ended_ns is not None
        and other.started_ns is not None
    )
