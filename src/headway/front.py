"""The front door's verbs: what the command line and Python callers share.

This is the only place where planners, engines and the agent meet: policy and engine are loaded
from their tables by the names in the plan, and both are handed to `sim.drive`.
"""

import contextlib
import os
import re
import secrets
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from headway.core import tables
from headway.core.errors import BadFile, DoesNotFit, NotYet, RunIsLive, UnknownName, UsageError
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import MODES, Mode, Plan
from headway.core.policy import Engine, Policy
from headway.core.run import MARKER, RUNS_FOLDER, JobResult, Result, Run
from headway.core.view import View
from headway.core.words import Event

Watch = Callable[[Event, View], None]
# Known by name because users of other tools ask for them; see docs/design.md for their places.
LATER_MODES = ("auto", "exclusive", "mps", "mig")


def detect() -> Machine:
    """Look at this machine: cores, memory, devices, who else uses them, ways of sharing."""
    from headway.probes.machine import measure_machine

    return measure_machine()


def read_jobs(jobs: "str | Path | Sequence[str | Job]") -> tuple[Sequence[Job], str]:
    """The jobs of a file's name, or of a list of commands or jobs; with the source's name.

    Raises:
        BadJobFile: With the line, the field, what was given and what is allowed.
    """
    from headway.core import jobfile

    if isinstance(jobs, str | Path):
        return jobfile.read(Path(jobs)).jobs, os.path.basename(jobs)
    commands = [job if isinstance(job, str) else "" for job in jobs]
    parsed: Sequence[Job] = ()
    if any(commands):
        text = "\n".join(command for command in commands if command)
        parsed = jobfile.parse(text.encode(), source="jobs", folder=os.getcwd()).jobs
    rest = iter(parsed)
    return [job if isinstance(job, Job) else next(rest) for job in jobs], "jobs"


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
            f'mode "{mode}" is not in this version; use one of: {" ".join(MODES)}. Choosing by '
            "predicted makespan and sharing a GPU come next."
        )
    raise UsageError(f'unknown mode "{mode}"; known modes: {" ".join(MODES)}')


def prepare(
    jobs: "str | Path | Sequence[str | Job]",
    *,
    mode: str = "partitioned",
    out: str | Path | None = None,
    keep_threads: bool = False,
) -> "RunHandle":
    """Read the jobs, look at the machine, plan, and make the run folder. Starts nothing.

    Raises:
        BadJobFile: The job file is not right; nothing was started.
        UsageError: The mode or the folder is not right.
    """
    from headway.planners.collocation import fixed_plan

    chosen = check_mode(mode)
    listed, source = read_jobs(jobs)
    machine = detect()
    plan = fixed_plan(
        listed, machine, mode=chosen, keep_threads=keep_threads, environment=os.environ
    )
    path = Path(out) if out is not None else _new_path(source)
    run_folder = Run.create(path, plan=plan, machine=machine, jobs=listed, source=source)
    _remember(run_folder)
    return RunHandle(run_folder)


def run(
    jobs: "str | Path | Sequence[str | Job]",
    *,
    mode: str = "partitioned",
    out: str | Path | None = None,
    keep_threads: bool = False,
    watch: Watch | None = None,
) -> "RunHandle":
    """Run a list of training commands side by side, and return when all have ended.

    Args:
        jobs: A job file, or a list of shell commands or `Job`s.
        mode: serial, naive, shared or partitioned.
        out: The run folder to make; default `headway-runs/<time>-<file>-<4 hex>`.
        keep_threads: Leave every job's thread count as the environment has it.
        watch: Called after each event with the event and the queue's view.

    Raises:
        HeadwayError: See `headway.core.errors`.
    """
    handle = prepare(jobs, mode=mode, out=out, keep_threads=keep_threads)
    handle.supervise(watch=watch)
    return handle


def open_run(path: "str | Path | None" = None) -> "RunHandle":
    """The handle of an existing run: by folder, by name, or the newest one started from here.

    Raises:
        UnknownName: There is no such run.
    """
    if path is None:
        found = recent_runs(here=True)
        if not found:
            raise UnknownName(
                "no run was started from this folder yet; start one with: headway run jobs.txt"
            )
        return RunHandle(Run.open(found[0]))
    text = str(path)
    if "/" not in text:
        for candidate in (Path(RUNS_FOLDER) / text, Path(text), *recent_runs()):
            if candidate.name == Path(text).name and (candidate / ".headway").is_file():
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
        return (Path(word) / MARKER).exists()
    return True


class RunHandle:
    """A run on disk, with the verbs that work on it."""

    def __init__(self, run: Run) -> None:
        self.folder = run

    def close(self) -> None:
        """Give the folder's descriptor back."""
        self.folder.folder.close()

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @property
    def name(self) -> str:
        """What the run is called: its folder's name."""
        return self.folder.name

    def supervisor(self) -> int | None:
        """Process that supervises the run now, or None."""
        from headway.engines.local.control import supervisor_of

        return supervisor_of(self.folder)

    def status(self) -> Result:
        """How the run stands: of a live one as its journal tells, of an ended one as it ended."""
        if self.supervisor() is None:
            result = self.folder.result()
            if result is not None and result.outcome != "interrupted":
                return result
        return self._from_journal()

    def wait(
        self,
        jobs: Collection[str] = (),
        *,
        timeout_s: float | None = None,
        poll_s: float = 0.2,
    ) -> Result:
        """Until the named jobs (all by default) have ended, or nobody supervises the run any more.

        Raises:
            TimeoutError: `timeout_s` passed first.
        """
        self.indices(jobs)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            began = time.monotonic()
            live = self.supervisor() is not None
            over = deadline is not None and began > deadline
            # While all are waited for, the supervisor's end says it; replaying the journal of a
            # long list at every look would cost a core.
            if jobs or over or not live:
                result = self.status()
                chosen = [job for job in result.jobs if not jobs or job.name in jobs]
                open_jobs = [job for job in chosen if job.status in ("waiting", "running")]
                if not live or (jobs and not open_jobs):
                    return result
                if over:
                    raise TimeoutError(f"{len(open_jobs)} jobs of {self.name} have not ended yet")
            time.sleep(max(poll_s, 10 * (time.monotonic() - began)))

    def cancel(self, jobs: Collection[str] = (), *, timeout_s: float = 30.0) -> list[JobResult]:
        """Cancel jobs (all by default), whatever state they are in; returns when they are gone.

        Where no supervisor lives, the trees are ended from here.

        Raises:
            UnknownName: A job is not in this run.
            TimeoutError: The supervisor did not get it done in time.
        """
        indices = self.indices(jobs)
        names = [self.folder.jobs.jobs[index].name for index in indices]
        asked: int | None = None
        deadline = time.monotonic() + timeout_s
        while True:
            results = self.status().jobs
            chosen = [results[index] for index in indices]
            if all(job.status not in ("waiting", "running") for job in chosen):
                return chosen
            supervisor = self.supervisor()
            if supervisor is None:
                with contextlib.suppress(RunIsLive):
                    return self._cancel_here(indices, names)
            elif supervisor != asked:  # one that came after a dead one may not know of it
                self.folder.request("cancel", names)
                asked = supervisor
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all jobs of {self.name} ended within {timeout_s:.0f} s")
            time.sleep(0.1)

    def retry(
        self,
        jobs: Collection[str] = (),
        *,
        failed: bool = False,
        lost: bool = False,
        watch: Watch | None = None,
    ) -> Result:
        """Run ended jobs again, and whatever else of the run has not ended, in the foreground.

        Args:
            jobs: By name; these in whatever way they ended.
            failed: All that ended failed, oom, timeout or stalled.
            lost: All that were lost.
            watch: As in `run`.

        Raises:
            UsageError: Nothing is to be run again.
            RunIsLive: The run is being supervised.
        """
        chosen = self.to_retry(jobs, failed=failed, lost=lost)
        return self.supervise(watch=watch, again=chosen)

    def to_retry(
        self, jobs: Collection[str] = (), *, failed: bool = False, lost: bool = False
    ) -> list[int]:
        """Indices of the jobs that `retry` would run again, with those cancelled because of them.

        Raises:
            UsageError: There are none.
        """
        wanted = {"failed", "oom", "timeout", "stalled"} if failed else set()
        wanted |= {"lost"} if lost else set()
        if not wanted and not jobs:
            wanted = {"failed", "oom", "timeout", "stalled", "lost", "cancelled"}
        results = self.status().jobs
        named = set(self.indices(jobs)) if jobs else set()
        chosen = {
            index
            for index, result in enumerate(results)
            if (index in named and result.status not in ("waiting", "running"))
            or result.status in wanted
        }
        # Whoever was cancelled because a predecessor did not end ok gets its chance with it.
        by_name = {job.name: index for index, job in enumerate(self.folder.jobs.jobs)}
        grown = True
        while grown:
            grown = False
            for index, job in enumerate(self.folder.jobs.jobs):
                follows = any(by_name[name] in chosen for name in job.after)
                if index not in chosen and follows and results[index].status == "cancelled":
                    chosen.add(index)
                    grown = True
        if not chosen:
            words = ", ".join(sorted(wanted)) or "ended"
            raise UsageError(f"nothing to retry in {self.name}: no job of it is {words}")
        return sorted(chosen)

    def supervise(
        self,
        *,
        watch: Watch | None = None,
        again: Collection[int] = (),
        on_world: Callable[[object], None] | None = None,
    ) -> Result:
        """Drive the run from here until it has ended; the foreground of run, --resume and retry.

        Args:
            watch: Called after each event.
            again: Jobs that have ended and shall run again.
            on_world: Gets the engine's world before the first event, so that signal handlers can
                interrupt it.

        Raises:
            RunIsLive: Somebody else supervises it.
            NoSpace: The disk is full.
        """
        from headway.probes.machine import look_at_devices
        from headway.reports.summary import result_of
        from headway.sim.drive import drive

        if not again and self.supervisor() is None:
            result = self.folder.result()
            if result is not None and result.outcome != "interrupted":
                return result
        plan = self.folder.plan
        policy_class: type[Policy] = tables.load("headway.planners", plan.policy.name, Policy)
        policy = policy_class.model_validate(plan.policy.knobs)
        machine = self._machine_now()
        opened_ns = time.time_ns()
        with self._open_world(plan, machine, os.environ) as world:
            if again:
                world.again(again)
                # Whoever is killed from here on leaves a run that has not ended as that file says.
                self.folder.folder.remove("result.json")
            if machine.devices:
                world.see_devices_with(look_at_devices)
            if on_world is not None:
                on_world(world)
            drive(policy, world, watch=watch)
            told = world.history
            result = result_of(
                world.view,
                plan,
                began_ns=told.began_ns or opened_ns,
                ended_ns=time.time_ns(),
                notes=[*told.notes, *self.differences()],
            )
            self.folder.write_result(result)
        return result

    def differences(self) -> list[str]:
        """What differs between the environment the run was made in and this one, in words."""
        environment = self.folder.jobs.environment
        if environment is None:
            return []
        words = environment.differences(os.environ)
        shown = ", ".join(words[:8]) + (f" and {len(words) - 8} more" if len(words) > 8 else "")
        return [f"resumed in another environment: {shown}"] if words else []

    def indices(self, jobs: Collection[str]) -> list[int]:
        """Indices of jobs by name; all of them where none is named.

        Raises:
            UnknownName: A name is not in this run; near ones are listed.
        """
        import difflib

        listed = self.folder.jobs.jobs
        by_name = {job.name: index for index, job in enumerate(listed)}
        for name in jobs:
            if name not in by_name:
                near = difflib.get_close_matches(name, by_name, n=3) or list(by_name)[:8]
                raise UnknownName(
                    f'no job "{name}" in run {self.name}; there are: {", ".join(near)}'
                )
        return sorted(by_name[name] for name in jobs) if jobs else list(range(len(listed)))

    def log_path(self, job: str, *, stream: str = "stdout", attempt: int | None = None) -> Path:
        """File with a job's output; of its last attempt by default.

        Raises:
            UnknownName: No such job, or it has not been started.
        """
        index = self.indices([job])[0]
        folder = self.path / "jobs" / str(index + 1)
        attempts = sorted(int(p.name) for p in folder.glob("[0-9]*")) if folder.is_dir() else []
        if not attempts or (attempt is not None and attempt not in attempts):
            raise UnknownName(f'job "{job}" of {self.name} has no output yet: it was not started')
        return folder / str(attempt or attempts[-1]) / stream

    # --- inside ----------------------------------------------------------------------------------

    def _machine_now(self) -> Machine:
        """The machine as it is now: a resumed run may find fewer cores or less memory."""
        return detect() if self.folder.folder.exists("journal.jsonl") else self.folder.machine

    def _open_world(self, plan: Plan, machine: Machine, environment: Mapping[str, str]):  # noqa: ANN202
        from headway.agent import recorder_folder

        engine_class: type[Engine] = tables.load("headway.engines", plan.engine, Engine)
        return engine_class().open(
            self.folder,
            plan,
            self.folder.jobs.jobs,
            machine,
            resume=True,
            recorder=recorder_folder(),
            environment=environment,
        )

    def _cancel_here(self, indices: list[int], names: list[str]) -> list[JobResult]:
        from headway.reports.summary import result_of
        from headway.sim.drive import drive

        plan = self.folder.plan
        policy = tables.load("headway.planners", plan.policy.name, Policy).model_validate(
            plan.policy.knobs
        )
        with self._open_world(plan, self._machine_now(), os.environ) as world:
            world.only(indices)
            world.cancel(names)
            drive(policy, world)
            told = world.history
            result = result_of(
                world.view, plan, began_ns=told.began_ns or 0, ended_ns=time.time_ns()
            )
            self.folder.write_result(result)
        return [result.jobs[index] for index in indices]

    def _from_journal(self) -> Result:
        from headway.engines.local.history import history
        from headway.reports.summary import result_of

        plan = self.folder.plan
        told = history(self.folder, plan, self.folder.jobs.jobs, self.folder.machine)
        self._look_at_steps(told.view)
        now_ns = time.time_ns()
        return result_of(
            told.view,
            plan,
            began_ns=told.began_ns or now_ns,
            ended_ns=now_ns if told.view.unsettled else told.ended_ns or now_ns,
            notes=told.notes,
        )

    def _look_at_steps(self, view: View) -> None:
        """Steps of running jobs straight from the recorder: the journal has those of ended ones."""
        from headway.core.recording import read_folder, summary

        offset_ns = time.time_ns() - time.monotonic_ns()
        for state in view.running.values():
            found = summary(
                read_folder(self.folder.attempt_path(state.index, state.attempt) / "steps")
            )
            if found is not None:
                state.steps, state.step_ns = found.steps, found.median_step_ns
                state.first_step_ns = found.first_ns + offset_ns


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


def recent_runs(*, here: bool = False, limit: int = 20) -> list[Path]:
    """Run folders that still exist, newest first; `here`: only those started from this folder."""
    found: dict[Path, None] = {}
    folder = os.getcwd()
    for line in reversed(_index_lines()):
        where, _, text = line.partition("\t")
        candidate = Path(text)
        if (not here or where == folder) and (candidate / ".headway").is_file():
            found.setdefault(candidate, None)
    local = Path(RUNS_FOLDER)
    if local.is_dir():
        for path in sorted(local.absolute().iterdir(), reverse=True):
            if (path / ".headway").is_file():
                found.setdefault(path, None)
    paths = sorted(found, key=lambda path: (path / ".headway").stat().st_mtime, reverse=True)
    return paths[:limit]


def state_folder() -> Path:
    """Where Headway keeps what outlives a run: $XDG_STATE_HOME/headway."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "headway"


def _index_lines() -> list[str]:
    try:
        return (state_folder() / "runs").read_text(errors="replace").splitlines()
    except OSError:
        return []


def _remember(run_folder: Run) -> None:
    """Note where a run lies; a convenience for `headway status`, so failing is no error."""
    line = f"{os.getcwd()}\t{run_folder.path}\n"
    with contextlib.suppress(OSError):
        state_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(state_folder() / "runs", flags, 0o600), "w") as file:
            file.write(line)


def _new_path(source: str) -> Path:
    """`headway-runs/<time>-<file>-<4 hex>`."""
    stem = re.sub(r"[^A-Za-z0-9_.]+", "-", Path(source).stem).strip("-.")[:40] or "jobs"
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path(RUNS_FOLDER) / f"{stamp}-{stem}-{secrets.token_hex(2)}"


def open_log(path: Path) -> BinaryIO:
    """A job's output for reading; a job can put a link or a pipe in its place, so both are refused.

    Raises:
        UnknownName: It is not there, or not a plain file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnknownName(f"{path}: cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnknownName(f"{path}: not a plain file")
    return os.fdopen(descriptor, "rb")
