"""What a run came to, beside what was predicted of it and what its jobs take alone.

[Note: two references]
*As placed* is a job alone with the threads that it was given: what neighbours cost it. From an
earlier run, or from steps of this one during which nothing else ran; never from its time beside
others, which would compare it with itself. *By default* is a job alone with the threads that it
takes by itself: what its user would have waited for it one after another. From an earlier run;
where there is none, reckoned from what this one measured with other threads, and so marked.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.estimate import Estimate, scaled, times_as_long, total
from headway.core.run import CommonWindow, JobResult, Result, Slowdown
from headway.core.view import JobState, View
from headway.core.workload import Workload
from headway.forecast.expected import Expected
from headway.probes.progress import LEAST_STEPS, Passage, alone_step_s

# A job's own first steps are few, and caches are cold: half-width assumed of their time.
FIRST_STEPS_SPREAD = 0.05
# What neighbours on other cores take from a job at most, in four of five cases (costs/interference:
# single speeds were 5% off in the median, 13% in one of ten).
COST_OF_COMPANY = 0.12
LEAST_WINDOW_S = 1.0
MOST_WINDOWS = 20


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to compare with; every part may be missing.

    `expected` is what was known and predicted when the run began, `learnt` what is known of each
    job now (in the order of the list, or empty), `passages` how the jobs got on beside each other.
    """

    expected: Expected | None = None
    learnt: Sequence[Workload] = ()
    passages: Sequence[Passage] = ()


def compared(result: Result, view: View, known: Known) -> Result:
    """A run's result with predictions, slowdowns and speed-up, as far as they can be told."""
    expected = known.expected
    before = expected.workloads if expected is not None else ()
    cores = view.machine.usable_cores
    alone = alone_step_s(known.passages)
    by_default = [
        _by_default(index, job, result.jobs, known, cores) for index, job in enumerate(result.jobs)
    ]
    jobs = []
    for index, (job, state) in enumerate(zip(result.jobs, view.states, strict=True)):
        workload = before[index] if before else None
        jobs.append(
            job.model_copy(
                update={
                    "predicted": expected.jobs[index].duration if expected is not None else None,
                    "as_placed": _slowdown(job, _as_placed(job, state, workload, alone, cores)),
                    "by_default": _slowdown(job, _whole(by_default[index])),
                }
            )
        )
    done = [job for job in jobs if job.status == "ok"]
    slowdowns = [job.by_default for job in done if job.by_default is not None]
    update: dict[str, object] = {
        "jobs": tuple(jobs),
        "windows": tuple(_windows(view, known.passages, by_default)),
    }
    if expected is not None and expected.makespan.known:
        update["predicted"] = expected.makespan
    if done and len(slowdowns) == len(done):
        serial = total([slowdown.alone for slowdown in slowdowns])
        serial = serial.model_copy(update={"source": _of_all(slowdowns)})
        update["serial"] = serial
        update["mean_slowdown"] = scaled(
            total([slowdown.times for slowdown in slowdowns], source=serial.source),
            1 / len(slowdowns),
            unit="ratio",
        )
        if result.seconds > 0:
            update["weighted_speed_up"] = scaled(serial, 1 / result.seconds, unit="ratio")
    return result.model_copy(update=update)


def _slowdown(job: JobResult, alone: Estimate | None) -> Slowdown | None:
    """Only of a job that ended ok: what it takes to fail says nothing."""
    if alone is None or job.seconds is None or job.status != "ok":
        return None
    return Slowdown(alone=alone, times=times_as_long(job.seconds, alone))


def _as_placed(
    job: JobResult,
    state: JobState,
    workload: Workload | None,
    alone: dict[int, float],
    cores: int,
) -> Estimate | None:
    """Seconds the job takes alone with the threads that it was given."""
    if workload is not None:
        threads = state.threads or workload.own_threads or cores
        measured = [pace for pace in workload.paces if pace.threads == threads]
        if measured and measured[0].work.origin == "measured":
            return total([measured[0].work, workload.start_up])
    step_s = alone.get(state.index)
    if step_s is None or not job.steps or job.first_step is None or job.start is None:
        return None
    seconds = (job.first_step - job.start) + (job.steps - 1) * step_s
    return Estimate(
        value=seconds,
        low=seconds * (1 - FIRST_STEPS_SPREAD),
        high=seconds * (1 + FIRST_STEPS_SPREAD),
        unit="s",
        origin="measured",
        source="its own steps while nothing else ran",
        samples=1,
    )


@dataclass(frozen=True, slots=True)
class _Alone:
    """A job alone with the threads that it takes by itself."""

    start_up: Estimate
    work: Estimate
    step: Estimate | None


def _by_default(
    index: int, job: JobResult, others: Sequence[JobResult], known: Known, cores: int
) -> _Alone | None:
    """By what was measured before this run, else by what is known now."""
    before = known.expected.workloads if known.expected is not None else ()
    earlier = before[index] if before and before[index].known else None
    now = known.learnt[index] if known.learnt and known.learnt[index].known else None
    if earlier is not None:
        alone = _alone(earlier, cores)
        if now is None or alone.work.origin == "measured":
            return alone
    if now is None:
        return None
    alone = _alone(now, cores)
    if alone.work.origin == "measured" and any(_overlap(job, other) for other in others):
        # All that was measured is this very run: nobody can say what the neighbours cost it.
        step = None if alone.step is None else _with_company(alone.step)
        return _Alone(alone.start_up, _with_company(alone.work), step)
    return alone


def _with_company(measured: Estimate) -> Estimate:
    return measured.model_copy(
        update={
            "low": measured.low * (1 - COST_OF_COMPANY),
            "origin": "assumed",
            "source": "its time in this run, as if neighbours had cost it nothing",
        }
    )


def _overlap(job: JobResult, other: JobResult) -> bool:
    """Whether two jobs ran at the same time."""
    if other is job or None in (job.start, job.end, other.start, other.end):
        return False
    assert job.start is not None
    assert job.end is not None
    assert other.start is not None
    assert other.end is not None
    return other.start < job.end and job.start < other.end


def _alone(workload: Workload, cores: int) -> _Alone:
    pace = workload.pace(workload.own_threads or cores)
    return _Alone(workload.start_up, pace.work, pace.step)


def _whole(alone: _Alone | None) -> Estimate | None:
    return None if alone is None else total([alone.work, alone.start_up])


def _of_all(slowdowns: Sequence[Slowdown]) -> str:
    """Where the times of all jobs come from, in a few words."""
    guessed = sum(slowdown.alone.origin != "measured" for slowdown in slowdowns)
    if not guessed:
        return "each job was measured with the threads that it takes by itself"
    of_all = f"{guessed} of {len(slowdowns)} jobs" if guessed < len(slowdowns) else "the jobs"
    return f"{of_all} never ran with the threads that they take by themselves: reckoned"


def _windows(
    view: View, passages: Sequence[Passage], by_default: Sequence[_Alone | None]
) -> list[CommonWindow]:
    """The longest common windows, longest first."""
    steps: dict[tuple[int, ...], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    seconds: dict[tuple[int, ...], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for passage in passages:
        if passage.beside and not passage.starting:
            steps[passage.jobs][passage.job] += passage.steps
            seconds[passage.jobs][passage.job] += passage.seconds
    found = []
    for jobs, made in steps.items():
        if len(made) < len(jobs) or min(made.values()) < LEAST_STEPS:
            continue
        lasted_s = min(seconds[jobs].values())
        rates = {job: made[job] / seconds[jobs][job] for job in jobs}
        progress = [_progress(rates[job], by_default[job]) for job in jobs]
        if lasted_s < LEAST_WINDOW_S or not all(one is not None for one in progress):
            continue
        told = tuple(one for one in progress if one is not None)
        found.append(
            CommonWindow(
                jobs=tuple(view.states[job].job.name for job in jobs),
                seconds=lasted_s,
                progress=told,
                weighted_speed_up=total(told),
            )
        )
    return sorted(found, key=lambda window: -window.seconds)[:MOST_WINDOWS]


def _progress(steps_per_s: float, alone: _Alone | None) -> Estimate | None:
    """A rate of steps as a part of the job's own rate, alone with its own threads."""
    if alone is None or alone.step is None:
        return None
    return scaled(alone.step, steps_per_s, unit="ratio")
