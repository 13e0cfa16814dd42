"""How a run stands or ended, job by job: the data behind the table, result.json and --json."""

from collections.abc import Sequence

from headway.core.environment import THREAD_VARIABLES
from headway.core.plan import Plan
from headway.core.run import JobResult, Result, outcome_of
from headway.core.units import show_bytes
from headway.core.view import JobState, View
from headway.reports.limits import limited_by
from headway.reports.oversubscription import oversubscribed

_NS = 1e9


def result_of(
    view: View, plan: Plan, *, began_ns: int, ended_ns: int, notes: Sequence[str] = ()
) -> Result:
    """The run as the view has it; jobs that still wait or run stand as waiting or running."""
    jobs = tuple(job_result(state) for state in view.states)
    return Result(
        outcome=outcome_of([job.status for job in jobs]),
        mode=plan.mode,
        start=began_ns / _NS,
        end=ended_ns / _NS,
        jobs=jobs,
        notes=tuple(dict.fromkeys([*notes, *_run_notes(view)])),
        limited_by=limited_by(view) if view.unsettled == 0 else "",
    )


def job_result(state: JobState) -> JobResult:
    """One job as it stands."""
    outcome = state.outcome
    share = state.share or state.last_share
    step_ns = state.step_ns
    first_ns = state.first_step_ns
    return JobResult(
        name=state.job.name,
        status=state.status,
        exit_code=outcome.exit_code if outcome else None,
        signal=outcome.signal if outcome else None,
        cause=state.cause if state.final or state.stopping else state.wait_reason or state.cause,
        attempts=state.attempt,
        start=None if state.started_ns is None else state.started_ns / _NS,
        end=None if state.ended_ns is None else state.ended_ns / _NS,
        peak_bytes=state.peak_bytes or None,
        cap_bytes=share.cap_bytes if share else None,
        steps=state.steps,
        step_s=None if step_ns is None else step_ns / _NS,
        first_step=None if first_ns is None else first_ns / _NS,
        threads=state.threads,
        cores=share.cores if share else None,
        notes=_job_notes(state),
    )


def _job_notes(state: JobState) -> tuple[str, ...]:
    notes = []
    if state.confined:
        notes.append(state.confined)
    if state.stalled_mark and state.status == "running":
        notes.append("stalled: no step and no CPU time for a while; stall_timeout= would end it")
    if state.outcome is not None:
        if state.outcome.unseen and state.attempt:
            notes.append(state.outcome.unseen)
        notes.extend(state.outcome.notes)
    if state.stops:
        times = "once" if state.stops == 1 else f"{state.stops} times"
        notes.append(f"gave way {times} when memory ran low")
    return tuple(notes)


def _run_notes(view: View) -> list[str]:
    notes = []
    divided = [state for state in view.states if state.attempt and state.threads is not None]
    own = [state for state in divided if state.job.threads is None]
    cores = view.machine.usable_cores
    if any(state.threads != cores for state in own):
        notes.append(
            f"thread counts were set for {len(own)} of {len(view.states)} jobs (by themselves they "
            f"would take {cores}): another count may change the last bits of results; threads=N in "
            f"the job file pins it, --keep-threads leaves {THREAD_VARIABLES[0]} alone"
        )
    crowded = oversubscribed(view)
    if crowded:
        notes.append(crowded)
    if view.foreign_cores >= 0.5:
        notes.append(f"others use {view.foreign_cores:.1f} cores of this machine")
    if any(state.job.gpu_memory_bytes and state.job.gpus for state in view.states):
        notes.append(
            "gpu_memory= was used to choose GPUs that are large enough; it does not limit what a "
            "job takes of its GPU"
        )
    peak = max((state.peak_bytes for state in view.states), default=0)
    if peak > view.capacity_bytes:
        notes.append(f"a job's peak of {show_bytes(peak)} is above what the machine has for jobs")
    return notes
