"""A Run: the directory that keeps a plan, what happened, and how it ended.

    RUN/.headway            marker: this folder is ours
    RUN/plan.json machine.json jobs.json
    RUN/journal.jsonl       every event and action, intents durable before their start
    RUN/timeline.jsonl counters.jsonl
    RUN/result.json         how it ended
    RUN/report.html         the same as a page to read
    RUN/requests/           how other processes ask the supervisor for something
    RUN/jobs/<n>/<attempt>/ one attempt of job n: claim, stdout, stderr, steps/, exit

Folders are 0700 and opened without following links; a folder that is not ours is refused.
"""

import errno
import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from headway.core.environment import Environment
from headway.core.errors import BadFile, NoSpace, UnknownName, UsageError
from headway.core.estimate import Estimate
from headway.core.folder import Folder
from headway.core.index import MARKER
from headway.core.job import Jobs
from headway.core.machine import Machine
from headway.core.noun import Noun
from headway.core.plan import Plan
from headway.core.words import Status

PAGE = "report.html"
_READ_LIMIT = 512 * 2**20
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

RunOutcome = Literal["ok", "failed", "infeasible", "interrupted"]
# Exit codes of lists: 0 all ran and succeeded, 1 some did not, 3 nothing could be placed, 130
# interrupted and resumable.
EXIT_CODES: Mapping[RunOutcome, int] = {"ok": 0, "failed": 1, "infeasible": 3, "interrupted": 130}


class Marker(Noun):
    """The content of the marker file."""

    run: str
    created_ns: int
    source: str
    folder: str


class Slowdown(Noun):
    """A job's time against what it takes alone: `alone` in seconds, `times` as long as that."""

    alone: Estimate
    times: Estimate


class JobResult(Noun):
    """How one job ended. `start` and `end` are seconds since the epoch, of its last attempt.

    `peak_bytes` is the most memory that it held, `cap_bytes` what it was allowed to hold.
    `predicted` is how many seconds it was to take when the run was planned. `as_placed` sets its
    time against what it takes alone with the same threads, `by_default` against what it takes alone
    with the threads that it takes by itself. All three are None where nothing can be said.
    """

    name: str
    status: Status
    exit_code: int | None = None
    signal: int | None = None
    cause: str = ""
    attempts: int = 0
    start: float | None = None
    end: float | None = None
    peak_bytes: int | None = None
    cap_bytes: int | None = None
    steps: int | None = None
    step_s: float | None = None
    first_step: float | None = None
    threads: int | None = None
    cores: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()
    predicted: Estimate | None = None
    as_placed: Slowdown | None = None
    by_default: Slowdown | None = None

    @property
    def seconds(self) -> float | None:
        """How long its last attempt took; None where it has not ended."""
        if self.start is None or self.end is None:
            return None
        return max(0.0, self.end - self.start)


class CommonWindow(Noun):
    """Jobs that made steps side by side, over all the time that just these ran: `seconds`.

    `progress` is how fast each of them went, as a part of its speed alone with the threads that it
    takes by itself. Their sum is the weighted speed-up (STP, system throughput: Eyerman and
    Eeckhout, System-Level Performance Metrics for Multiprogram Workloads, IEEE Micro 2008).
    """

    jobs: tuple[str, ...]
    seconds: float
    progress: tuple[Estimate, ...]
    weighted_speed_up: Estimate


class Result(Noun):
    """How a run ended; `start` and `end` are seconds since the epoch.

    `predicted` is how many seconds it was to take when it was planned, `serial` how many its jobs
    take one after another with the threads that they take by themselves. Over the whole run the
    weighted speed-up (STP) is `serial` over the time it took, and `mean_slowdown` (ANTT, average
    normalised turnaround time) is the mean of the jobs'. They are None where nothing can be said.
    `windows` tells what jobs did to each other, `limited_by` what kept the run from ending sooner.
    """

    outcome: RunOutcome
    mode: str
    start: float
    end: float
    jobs: tuple[JobResult, ...]
    notes: tuple[str, ...] = ()
    predicted: Estimate | None = None
    serial: Estimate | None = None
    weighted_speed_up: Estimate | None = None
    mean_slowdown: Estimate | None = None
    windows: tuple[CommonWindow, ...] = ()
    limited_by: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(0.0, self.end - self.start)

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ran this list."""
        return EXIT_CODES[self.outcome]


def outcome_of(statuses: Sequence[Status]) -> RunOutcome:
    """The word for a whole list.

    >>> outcome_of(["ok", "failed"]), outcome_of(["ok", "waiting"]), outcome_of(["infeasible"])
    ('failed', 'interrupted', 'infeasible')
    """
    if any(status in ("waiting", "running") for status in statuses):
        return "interrupted"
    if all(status == "ok" for status in statuses):
        return "ok"
    # A job whose predecessor could not be placed was cancelled for it: nothing ran either.
    placed = [status for status in statuses if status not in ("infeasible", "cancelled")]
    return "failed" if placed or "infeasible" not in statuses else "infeasible"


class Run:
    """An open run folder. Its nouns are read once, when they are first asked for."""

    def __init__(self, path: Path, folder: Folder) -> None:
        self.path = path
        self.folder = folder

    @property
    def name(self) -> str:
        """The folder's own name: what a user calls the run."""
        return self.path.name

    @classmethod
    def create(cls, path: Path, *, plan: Plan, machine: Machine, jobs: Jobs) -> "Run":
        """Make a new run folder with its plan, machine and jobs.

        Raises:
            UsageError: The folder exists already or cannot be made there.
            NoSpace: The disk is full.
        """
        path = path.absolute()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _space_or_usage(error, path.parent) from None
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            raise UsageError(
                f"{path} exists already; choose another --out, or continue a run there with "
                f"--resume {path}"
            ) from None
        except OSError as error:
            raise _space_or_usage(error, path) from None
        marker = Marker(
            run=path.name, created_ns=time.time_ns(), source=jobs.source, folder=os.getcwd()
        )
        environment = Environment.of(os.environ, salt=secrets.token_hex(8))
        try:
            folder = Folder.open(path)
            folder.mkdir("requests")
            folder.mkdir("jobs")
            write = folder.replace
            write("plan.json", plan.to_json(indent=1).encode())
            write("machine.json", machine.to_json(indent=1).encode())
            listed = jobs.model_copy(update={"environment": environment})
            write("jobs.json", listed.to_json().encode())
            write(MARKER, marker.to_json().encode(), durable=True)
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)  # half a run can be neither resumed nor reused
            if error.errno in _NO_SPACE:
                words = f"no space left on the disk of {path}: no run was made, nothing was started"
                raise NoSpace(f"{words}; free some space or choose another --out") from None
            raise _space_or_usage(error, path) from None
        return cls(path, folder)

    @classmethod
    def open(cls, path: Path) -> "Run":
        """An existing run folder.

        Raises:
            UnknownName: There is no run there.
            BadFile: The folder belongs to somebody else or others may write in it.
        """
        path = path.absolute()
        try:
            folder = Folder.open(path)
        except (FileNotFoundError, NotADirectoryError):
            raise UnknownName(f"no run at {path}") from None
        except PermissionError as error:
            raise BadFile(f"{path}: {error.strerror or error}") from None
        except OSError as error:
            raise BadFile(f"{path}: not a folder that can be opened ({error.strerror}).") from None
        if not folder.exists(MARKER):
            folder.close()
            raise UnknownName(f"{path} is not a run of Headway (it has no {MARKER} file)")
        return cls(path, folder)

    def read_text(self, name: str) -> str:
        """A file of this run as text.

        Raises:
            BadFile: Missing, not a plain file, too large, or not UTF-8.
        """
        try:
            return self.folder.read_bytes(name, limit=_READ_LIMIT).decode()
        except (OSError, ValueError) as error:
            raise BadFile(f"{self.path / name}: cannot be read ({error}).") from None

    @cached_property
    def marker(self) -> Marker:
        """Where and when the run was made."""
        return Marker.from_json(self.read_text(MARKER), source=str(self.path / MARKER))

    @cached_property
    def plan(self) -> Plan:
        """The plan as it stands in plan.json."""
        return Plan.from_json(self.read_text("plan.json"), source=str(self.path / "plan.json"))

    @cached_property
    def machine(self) -> Machine:
        """The machine the run was planned for."""
        name = "machine.json"
        return Machine.from_json(self.read_text(name), source=str(self.path / name))

    @cached_property
    def jobs(self) -> Jobs:
        """The jobs with the environment's fingerprint."""
        return Jobs.from_json(self.read_text("jobs.json"), source=str(self.path / "jobs.json"))

    def result(self) -> Result | None:
        """How the run ended, or None while it has not."""
        if not self.folder.exists("result.json"):
            return None
        name = "result.json"
        return Result.from_json(self.read_text(name), source=str(self.path / name))

    def write_result(self, result: Result) -> None:
        """Keep how the run ended.

        Raises:
            NoSpace: The disk is full.
        """
        try:
            self.folder.replace("result.json", result.to_json(indent=1).encode(), durable=True)
        except OSError as error:
            raise _space_or_usage(error, self.path) from None

    def attempt_path(self, job: int, attempt: int) -> Path:
        """Folder of an attempt; `job` is the index from 0, folders count from 1."""
        return self.path / "jobs" / str(job + 1) / str(attempt)

    def request(self, verb: str, jobs: Sequence[str]) -> None:
        """Ask the supervisor of this run for something; it looks several times a second."""
        name = f"{time.time_ns()}-{secrets.token_hex(4)}.json"
        text = json.dumps({"schema": 1, "verb": verb, "jobs": list(jobs)})
        self.folder.sub("requests").replace(name, text.encode())


def _space_or_usage(error: OSError, path: Path) -> NoSpace | UsageError:
    if error.errno in _NO_SPACE:
        return NoSpace(f"no space left on the disk of {path}; free some, then --resume the run")
    return UsageError(f"{path}: {error.strerror}; choose another folder with --out")
