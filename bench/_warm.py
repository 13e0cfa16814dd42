"""A list whose jobs are known: the steps that make it the case it shall be, and a profile store.

A job's thread count is no part of who it is in the store, so the same commands run alone with one
thread and with two tell what the second thread is worth to each: `headway run --mode serial` on
a list with `[threads=1]` and on one with `[threads=2]`, as any user can.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _arms import LEAST_STEPS, THREADS_ALONE, Outcome, Work, commands_of, run_arm

WIDE = "wide"
NEAR = 0.05
MOST_CORRECTIONS = 2


def balanced(jobs: Sequence[Work], times: float) -> tuple[Work, ...]:
    """The jobs with so many steps of the wide ones that these take `times` as long as the others.

    One after another with two threads each, start-up counted. Found by a trial with the steps that
    the jobs come with.
    """
    trial = _alone("alone-2", jobs, state=None)
    others_s = sum(s for job, s in zip(jobs, trial.jobs_s, strict=True) if job.kind != WIDE)
    wide = [n for n, job in enumerate(jobs) if job.kind == WIDE]
    each_s = times * others_s / len(wide)
    found = list(jobs)
    for n in wide:
        step_s = trial.steps_s[n] / (jobs[n].steps - 1)
        steps = round((each_s - trial.start_up_s[n]) / step_s) + 1
        found[n] = jobs[n]._replace(steps=max(LEAST_STEPS, steps))
    return tuple(found)


def learn_balanced(
    jobs: Sequence[Work], times: float, place: Path
) -> tuple[tuple[Work, ...], list[dict[str, Any]], Path]:
    """Balanced jobs, what they take alone, and the state folder below `place` that knows them.

    Where what was learnt says that the trial was off, the steps are corrected and learnt anew.
    """
    found = balanced(jobs, times)
    for attempt in range(MOST_CORRECTIONS + 1):
        state = place / str(attempt)
        state.mkdir()
        known = learn(found, state)
        off = wide_by_others(found, [job["alone_s"][2] for job in known]) / times
        if abs(off - 1) <= NEAR or attempt == MOST_CORRECTIONS:
            break
        found = tuple(
            job._replace(steps=round(job.steps / off)) if job.kind == WIDE else job for job in found
        )
    return found, known, state


def learn(jobs: Sequence[Work], state: Path) -> list[dict[str, Any]]:
    """Run each job alone with each thread count, with a state folder that learns from it.

    Returns:
        Of each job: kind, steps, and seconds with start-up by thread count.
    """
    seen = {THREADS_ALONE[arm]: _alone(arm, jobs, state=state) for arm in THREADS_ALONE}
    return [
        {
            "kind": job.kind,
            "steps": job.steps,
            "alone_s": {threads: round(one.jobs_s[n], 2) for threads, one in seen.items()},
        }
        for n, job in enumerate(jobs)
    ]


def wide_by_others(jobs: Sequence[Work], jobs_s: Sequence[float]) -> float:
    """How many times as long as the others the wide jobs took, all together."""
    wide_s = others_s = 0.0
    for job, took_s in zip(jobs, jobs_s, strict=True):
        if job.kind == WIDE:
            wide_s += took_s
        else:
            others_s += took_s
    return wide_s / others_s


def _alone(arm: str, jobs: Sequence[Work], *, state: Path | None) -> Outcome:
    outcome = run_arm(arm, commands_of(jobs), state=state)
    if not outcome.sound:
        raise SystemExit(f"a job alone did not end well: {outcome.statuses}; nothing was learnt")
    return outcome
