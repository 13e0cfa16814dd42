"""The front door's verbs: what the command line and Python callers share."""

import contextlib
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headway.core import index
from headway.core.errors import (
    BadFile,
    DoesNotFit,
    HeadwayError,
    NotYet,
    UnknownName,
    UsageError,
)
from headway.core.job import Job, Jobs
from headway.core.machine import Machine
from headway.core.plan import MODES, Mode, Plan, Way
from headway.core.removal import Cleaned, Found, Rules, RunFate
from headway.core.run import Run
from headway.handle import RunHandle, Watch, machine_now

if TYPE_CHECKING:
    from headway.forecast.expected import Expected
    from headway.planning import Planned

# Known by name because users of other tools ask for them; see docs/design.md for their places.
LATER_MODES = ("exclusive", "mps", "mig")
AUTO = "auto"


def detect() -> Machine:
    """Look at this machine: cores, memory, devices, who else uses them, ways of sharing."""
    return machine_now()


Listed = str | Path | Jobs | Sequence[str | Job]
"""A job file, jobs that were read from one, or a list of shell commands or jobs."""


def read_jobs(jobs: Listed) -> Jobs:
    """The jobs of a list, with the source's name and what was left out in reading.

    Raises:
        BadJobFile: With the line, the field, what was given and what is allowed.
    """
    from headway.core import jobfile

    if isinstance(jobs, Jobs):
        return jobs
    if isinstance(jobs, str | Path):
        return jobfile.read(Path(jobs)).model_copy(update={"source": os.path.basename(jobs)})
    commands = [job if isinstance(job, str) else "" for job in jobs]
    parsed: Sequence[Job] = ()
    if any(commands):
        text = "\n".join(command for command in commands if command)
        parsed = jobfile.parse(text.encode(), source="jobs", folder=os.getcwd()).jobs
    rest = iter(parsed)
    listed = tuple(job if isinstance(job, Job) else next(rest) for job in jobs)
    return Jobs(source="jobs", jobs=listed)


def check_mode(mode: str) -> Mode:
    """A mode by its name.

    Raises:
        NotYet: A way of sharing that a later version has.
        UsageError: No such mode; the known ones are listed.
    """
    for known in MODES:
        if mode == known:
            return known
    if mode in LATER_MODES:
        raise NotYet(
            f'mode "{mode}" is not in this version; use one of: {AUTO} {" ".join(MODES)}. With '
            f"{AUTO} GPUs are shared where that is predicted to end the list sooner."
        )
    raise UsageError(f'unknown mode "{mode}"; known modes: {AUTO} {" ".join(MODES)}')


def _plan_for(
    jobs: Sequence[Job],
    machine: Machine,
    *,
    mode: str,
    keep_threads: bool,
    plan: str | Path | None,
    allow_mig: bool,
) -> "tuple[Plan, Expected | None]":
    """The plan that was given, or of the mode asked for, or the one chosen, and what it promises.

    It promises nothing where no job can be placed: the run says so of each.
    """
    from headway.planners.collocation import fixed_plan
    from headway.planning import expected_of, plan_of
    from headway.probes.profiles import ProfileStore

    given = None if plan is None else read_plan(Path(plan), jobs, allow_mig=allow_mig)
    chooses = given is None and mode == AUTO
    made = given or fixed_plan(
        jobs,
        machine,
        mode="partitioned" if mode == AUTO else check_mode(mode),
        keep_threads=keep_threads,
        environment=os.environ,
    )
    with ProfileStore.open(index.state_folder()) as store, contextlib.suppress(DoesNotFit):
        if not chooses:
            return made, expected_of(made, jobs, machine, store=store, environment=os.environ)
        planned = plan_of(
            jobs,
            machine,
            store=store,
            keep_threads=keep_threads,
            ways=_gpu_ways(machine, allow_mig=allow_mig),
            environment=os.environ,
        )
        return planned.plan, planned.expected
    return made, None


def _gpu_ways(machine: Machine, *, allow_mig: bool) -> list[Way]:
    """How jobs can share GPUs here: those of the machine's ways that are about GPUs and usable."""
    from headway.planning import WHOLE_GPUS

    usable = {way.name for way in machine.ways if way.usable}
    shared: Sequence[Way] = ("time-slices", "mps", *(("mig",) if allow_mig else ()))
    return [*WHOLE_GPUS, *(way for way in shared if way in usable)]


def _refuse_named_devices(jobs: Sequence[Job]) -> None:
    """Jobs that name their GPUs and how to share them would silently be given whole ones."""
    for job in jobs:
        if job.devices:
            how = f", shared as {job.collocation}" if job.collocation else ""
            named = ", ".join(map(str, job.devices))
            raise NotYet(
                f'job "{job.name}" is to run on GPU {named}{how}: sharing a GPU comes next. What '
                "can be placed is told by: headway plan JOBS --on a100-40gb"
            )


def read_plan(path: Path, jobs: Sequence[Job], *, allow_mig: bool = False) -> Plan:
    """The plan in a file, for these jobs.

    Raises:
        BadFile: It cannot be read, or is no plan.
        UsageError: It is for other jobs, or divides GPUs and that was not allowed.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path}: cannot be read ({error.strerror})") from None
    found = Plan.from_json(text, source=str(path))
    why_not = found.why_not_for(jobs)
    if why_not:
        raise UsageError(
            f"{path} is a plan for other jobs: {why_not}. Make one for these: headway plan"
        )
    if found.division.way == "mig" and not allow_mig:
        raise UsageError(
            f"{path} divides GPUs by MIG; nothing is reconfigured without --allow-mig-reconfigure"
        )
    return found


def plan(
    jobs: Listed,
    *,
    on: str | None = None,
    keep_threads: bool = False,
    allow_mig: bool = False,
) -> "Planned":
    """Choose how to run a list by predicted makespan. Starts nothing, writes nothing.

    Args:
        jobs: A job file, or a list of shell commands or `Job`s.
        on: A machine that is not here: a device of the catalogue (a100-40gb) or a machine.json.
        keep_threads: Leave every job's thread count as the environment has it.
        allow_mig: GPUs of this machine may be divided by MIG for the list.

    Raises:
        BadJobFile: The job file is not right.
        DoesNotFit: No job can run on that machine.
        UnknownName: No such device.
    """
    from headway.core.catalogue import machine_of
    from headway.planning import EVERY_WAY, plan_of
    from headway.probes.profiles import ProfileStore

    listed = read_jobs(jobs)
    machine = machine_of(on) if on is not None else detect()
    with ProfileStore.open(index.state_folder()) as store:
        planned = plan_of(
            listed.jobs,
            machine,
            store=store,
            keep_threads=keep_threads,
            ways=EVERY_WAY if on is not None else _gpu_ways(machine, allow_mig=allow_mig),
            environment=os.environ,
        )
        return replace(planned, notes=(*listed.notes, *store.notes))


def prepare(
    jobs: Listed,
    *,
    mode: str = AUTO,
    out: str | Path | None = None,
    keep_threads: bool = False,
    plan: str | Path | None = None,
    filter: Sequence[str] = (),
    allow_mig: bool = False,
) -> RunHandle:
    """Read the jobs, look at the machine, plan, and make the run folder. Starts nothing.

    Raises:
        BadJobFile: The job file is not right; nothing was started.
        BadFile: The plan's file is not right.
        UsageError: The mode, the plan, the filter or the folder is not right.
        DoesNotFit: No job can run on this machine.
    """
    from headway.core.jobfilter import kept

    listed = read_jobs(jobs)
    _refuse_named_devices(listed.jobs)
    chosen = kept(listed.jobs, [filter] if isinstance(filter, str) else filter)
    listed = listed.model_copy(update={"jobs": tuple(chosen)})
    machine = detect()
    made, expected = _plan_for(
        chosen, machine, mode=mode, keep_threads=keep_threads, plan=plan, allow_mig=allow_mig
    )
    path = Path(out) if out is not None else _new_path(listed.source)
    run_folder = Run.create(path, plan=made, machine=machine, jobs=listed)
    index.remember(run_folder.path)
    handle = RunHandle(run_folder)
    if expected is not None:
        handle.expect(expected)
    return handle


def run(
    jobs: Listed,
    *,
    mode: str = AUTO,
    out: str | Path | None = None,
    keep_threads: bool = False,
    plan: str | Path | None = None,
    filter: Sequence[str] = (),
    allow_mig: bool = False,
    watch: Watch | None = None,
) -> RunHandle:
    """Run a list of training commands side by side, and return when all have ended.

    Args:
        jobs: A job file, or a list of shell commands or `Job`s.
        mode: auto, serial, naive, shared or partitioned.
        out: The run folder to make; default `headway-runs/<time>-<file>-<4 hex>`.
        keep_threads: Leave every job's thread count as the environment has it.
        plan: A plan.json for these jobs, instead of a mode.
        filter: Patterns of the names of the jobs to run, as ``["lstm-*", "!*-big"]``.
        allow_mig: GPUs may be divided by MIG for the run, where that is predicted to end it sooner;
            they are made whole again afterwards.
        watch: Called after each event with the event and the queue's view.

    Raises:
        HeadwayError: See `headway.core.errors`.
    """
    handle = prepare(
        jobs,
        mode=mode,
        out=out,
        keep_threads=keep_threads,
        plan=plan,
        filter=filter,
        allow_mig=allow_mig,
    )
    handle.supervise(watch=watch)
    return handle


def open_run(path: "str | Path | None" = None) -> RunHandle:
    """The handle of an existing run: by folder, by name, or the newest one started from here.

    Raises:
        UnknownName: There is no such run.
    """
    if path is None:
        found = index.recent_runs(here=True)
        if not found:
            raise UnknownName(
                "no run was started from this folder yet; start one with: headway run jobs.txt"
            )
        return RunHandle(Run.open(found[0]))
    text = str(path)
    if "/" not in text:
        for candidate in (
            Path(index.RUNS_FOLDER) / text,
            Path(text),
            *index.recent_runs(limit=None),
        ):
            if candidate.name == Path(text).name and index.is_run_folder(candidate):
                return RunHandle(Run.open(candidate))
    return RunHandle(Run.open(Path(text)))


def is_run(word: str) -> bool:
    """Whether a word names a run, be it one that cannot be opened."""
    try:
        open_run(word).close()
    except UnknownName:
        return False
    except BadFile:
        # A job may be called like some folder of somebody else.
        return (Path(word) / index.MARKER).exists()
    return True


def clean(
    runs: "str | Path | Sequence[str | Path] | None" = None,
    *,
    older_than_s: float | None = None,
    keep: int = 0,
    unfinished: bool = False,
    dry_run: bool = True,
) -> Cleaned:
    """Remove run folders, or say which would go; and forget runs that are gone from the disk.

    A run that is supervised, or of which a job still runs, always stays.

    Args:
        runs: By folder or name; None for all that this user started, wherever they lie, and those
            in `headway-runs` here.
        older_than_s: Only those whose last change is as many seconds ago.
        keep: The newest so many stay.
        unfinished: Those that could be resumed go too.
        dry_run: Change nothing.

    Raises:
        UnknownName: There is no such run.
    """
    if runs is None:
        paths = index.recent_runs(limit=None)
        paths += index.recent_runs(limit=None, which=index.is_left_over)
    else:
        paths = [_path_of(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    rules = Rules(older_than_s=older_than_s, keep=keep, unfinished=unfinished)
    forgotten = index.vanished()
    fates, newer = [], 0
    for found in sorted(_look(paths), key=lambda found: -found.ended_s):
        fates.append(_fate(found, rules, newer=newer, dry_run=dry_run))
        newer += found.state not in ("damaged", "removed")
    if not dry_run:
        try:
            index.forget_vanished()
        except OSError:  # a convenience, like the index itself
            forgotten = 0
    return Cleaned(dry_run=dry_run, runs=tuple(fates), forgotten=forgotten)


def _look(paths: Sequence[Path]) -> Iterator[Found]:
    """What lies there now; others may clean at the same time."""
    from headway.engines.local.removal import look

    for path in dict.fromkeys(paths):
        with contextlib.suppress(UnknownName):
            yield look(path)


def _path_of(run: str | Path) -> Path:
    handle = open_run(run)
    handle.close()
    return handle.path


def _fate(found: Found, rules: Rules, *, newer: int, dry_run: bool) -> RunFate:
    """Decide on a run, and remove it where it shall go."""
    from headway.engines.local.removal import remove

    age_s = max(0.0, time.time() - found.ended_s)
    reason = rules.why_stays(found, age_s=age_s, newer=newer)
    fate = RunFate(
        run=str(found.path),
        state=found.state,
        size_bytes=found.size_bytes,
        age_s=age_s,
        verdict="stays" if reason else "goes",
        reason=reason,
    )
    if reason or dry_run:
        return fate
    try:
        remove(found.path, unfinished=rules.unfinished)
    except (OSError, HeadwayError) as error:
        return fate.model_copy(update={"verdict": "failed", "reason": str(error)})
    return fate.model_copy(update={"verdict": "gone"})


def detach(handle: RunHandle) -> int:
    """Let a process of its own supervise a prepared run; returns its pid.

    Raises:
        DoesNotFit: It ended before it had taken the run over; its words are in supervisor.log.
    """
    log = os.open(
        handle.path / "supervisor.log",
        os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
    )
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "headway", "run", "--resume", str(handle.path), "--no-progress"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    deadline = time.monotonic() + 30
    while handle.supervisor() is None and handle.folder.result() is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise DoesNotFit(f"the supervisor ended at once; see {handle.path / 'supervisor.log'}")
        time.sleep(0.02)
    process.returncode = 0  # it outlives us, as it should; Popen would warn of that
    return process.pid


def _new_path(source: str) -> Path:
    """`headway-runs/<time>-<file>-<4 hex>`."""
    stem = re.sub(r"[^A-Za-z0-9_.]+", "-", Path(source).stem).strip("-.")[:40] or "jobs"
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path(index.RUNS_FOLDER) / f"{stamp}-{stem}-{secrets.token_hex(2)}"
