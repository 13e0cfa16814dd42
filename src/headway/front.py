"""The front door's verbs: what the command line and Python callers share."""

import contextlib
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headway.core.errors import BadFile, DoesNotFit, NotYet, UnknownName, UsageError
from headway.core.folder import RUNS_FOLDER, state_folder
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import MODES, Mode
from headway.core.run import MARKER, Run
from headway.handle import RunHandle, Watch, machine_now

# Known by name because users of other tools ask for them; see docs/design.md for their places.
LATER_MODES = ("auto", "exclusive", "mps", "mig")


def detect() -> Machine:
    """Look at this machine: cores, memory, devices, who else uses them, ways of sharing."""
    return machine_now()


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
) -> RunHandle:
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
) -> RunHandle:
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


def open_run(path: "str | Path | None" = None) -> RunHandle:
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
