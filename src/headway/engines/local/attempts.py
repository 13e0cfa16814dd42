"""Attempt folders: where the files of an attempt lie, and what they say about it.

`RUN/jobs/<job>/<attempt>/` holds what the keeper writes:

- `claim`: which keeper took the attempt, put in place before the command starts; or a void claim,
  put there by a resuming supervisor to forbid a start for ever. One JSON object a line: the claim
  itself, complete when the file appears, then which process the command is, once it runs.
- `stdout`, `stderr`: its output. `steps/`: the recorder's files.
- `exit`: how it ended, a JSON object, put in place once the command and all it left behind have
  ended.

A file that is absent, empty, cut short or not what it should be reads as None: a crash of the
machine may leave any of these, and none of them may be taken for an answer.
"""

import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from headway.system import procfs

__all__ = [
    "AttemptFolder",
    "AttemptState",
    "CgroupMemory",
    "Claim",
    "ExitRecord",
    "SpawnError",
    "Started",
    "keeper_alive",
    "open_keeper",
]

_LARGEST_RECORD_BYTES = 64 * 1024

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class Claim:
    """Who took an attempt.

    Attributes:
        keeper_pid: The keeper's process; None in a void claim.
        keeper_start_ticks: Its start time in clock ticks after boot; None in a void claim.
        boot: The boot it ran in; None in a void claim.
        t_ns: When, in nanoseconds since the epoch.

    """

    keeper_pid: int | None
    keeper_start_ticks: int | None
    boot: str | None
    t_ns: int

    @property
    def void(self) -> bool:
        """Whether this claim only forbids a start: nothing ran and nothing ever will."""
        return self.keeper_pid is None


@dataclass(frozen=True, slots=True)
class Started:
    """Which process a command is: pid, start time in clock ticks after boot, and when (ns)."""

    command_pid: int
    command_start_ticks: int
    t_ns: int


@dataclass(frozen=True, slots=True)
class SpawnError:
    """Why a command could not be started: the errno, its text, and the path it is about."""

    number: int
    message: str
    what: str


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """Counters of an attempt's memory cgroup; the peak includes file cache."""

    oom_kills: int
    peak_bytes: int | None
    limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How an attempt ended, as its keeper saw it.

    Attributes:
        exit_code: Of the command itself; None where a signal ended it or it never started.
        signal: The signal that ended it, or None.
        spawn_error: Why it could not be started, or None.
        start_ns: When the command was about to be started, in nanoseconds since the epoch.
        command_end_ns: When the command itself ended.
        end_ns: When the last of its tree ended.
        largest_process_bytes: Peak resident memory of the largest single process; never below
            the few megabytes of the keeper's own fork.
        user_s: Processor time in user mode of everything reaped, in seconds.
        system_s: Processor time in the kernel, likewise.
        reaped: Processes the keeper reaped: the command and what it left in the background.
        killed_children: (pid, signal) of those left behind that died by a signal; at most 32.
        cgroup: Counters of the attempt's own cgroup, or None.
        host_oom_kills: Kills for want of memory on the whole host, before and after.
        inherited_oom_kills: The same in the memory cgroup around Headway.
        address_space_limit_bytes: The RLIMIT_AS it ran under, or None.
        notes: What the keeper could not do for it, in words.

    """

    exit_code: int | None
    signal: int | None
    spawn_error: SpawnError | None
    start_ns: int
    command_end_ns: int | None
    end_ns: int
    largest_process_bytes: int
    user_s: float
    system_s: float
    reaped: int
    killed_children: tuple[tuple[int, int], ...]
    cgroup: CgroupMemory | None
    host_oom_kills: tuple[int | None, int | None]
    inherited_oom_kills: tuple[int | None, int | None]
    address_space_limit_bytes: int | None
    notes: tuple[str, ...]


class AttemptState(Enum):
    """What is known of an attempt from its folder and the process table."""

    UNCLAIMED = "unclaimed"  # nothing has run; a keeper may still be on its way
    VOID = "void"  # nothing has run and nothing will
    RUNNING = "running"  # its keeper lives
    ENDED = "ended"  # there is an exit record
    LOST = "lost"  # it was claimed, its keeper is gone, and there is no record


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """The folder of one attempt.

    >>> AttemptFolder.of(Path("/runs/a"), job=3, attempt=1).stdout
    PosixPath('/runs/a/jobs/3/1/stdout')
    """

    path: Path

    @classmethod
    def of(cls, run: Path, *, job: int, attempt: int) -> "AttemptFolder":
        """The folder of an attempt of a job, both counted from 1."""
        return cls(run / "jobs" / str(job) / str(attempt))

    @property
    def claim(self) -> Path:
        """The claim file."""
        return self.path / "claim"

    @property
    def exit(self) -> Path:
        """The exit record."""
        return self.path / "exit"

    @property
    def stdout(self) -> Path:
        """The command's standard output."""
        return self.path / "stdout"

    @property
    def stderr(self) -> Path:
        """The command's standard error."""
        return self.path / "stderr"

    @property
    def steps(self) -> Path:
        """The recorder's folder."""
        return self.path / "steps"

    def make(self) -> None:
        """Make the folder and its `steps`, private to the user; harmless where they exist.

        Raises:
            OSError: They cannot be made.

        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)
        self.steps.mkdir(mode=0o700, exist_ok=True)

    def read_claim(self) -> Claim | None:
        """The claim, or None where there is none that can be read."""
        return _record(self.claim, 0, _claim)

    def read_started(self) -> Started | None:
        """Which process the command is, or None where it does not run yet, or never did."""
        return _record(self.claim, 1, _started)

    def read_exit(self) -> ExitRecord | None:
        """The exit record, or None where there is none that can be read."""
        return _record(self.exit, 0, _exit_record)

    def state(self) -> AttemptState:
        """What has become of this attempt.

        The order matters: a keeper may put its record in place and end between two looks, so the
        record is looked for once more after the keeper was found gone.
        """
        if self.read_exit() is not None:
            return AttemptState.ENDED
        claim = self.read_claim()
        if claim is None and not os.path.lexists(self.claim):
            return AttemptState.UNCLAIMED
        if claim is not None and claim.void:
            return AttemptState.VOID
        if claim is not None and keeper_alive(claim):
            return AttemptState.RUNNING
        return AttemptState.LOST if self.read_exit() is None else AttemptState.ENDED

    def link_void_claim(self) -> bool:
        """Forbid for ever that this attempt starts; durable when it returns.

        Returns:
            True where nothing was started here and nothing will be; False where a keeper has
            claimed the attempt.

        Raises:
            OSError: The folder cannot be written; the attempt may still start.

        """
        self.make()
        temporary = self.path / f"claim.void.{os.getpid()}"
        content = json.dumps({"void": True, "t": time.time_ns()}).encode() + b"\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, self.claim, follow_symlinks=False)
        except FileExistsError:
            claim = self.read_claim()
            return claim is not None and claim.void
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(self.path)
        return True


def keeper_alive(claim: Claim) -> bool:
    """Whether the keeper of this claim still runs: same boot, pid and start time, no zombie."""
    if claim.keeper_pid is None or claim.keeper_start_ticks is None or claim.boot is None:
        return False
    return procfs.alive(claim.keeper_pid, claim.keeper_start_ticks, claim.boot)


def open_keeper(claim: Claim) -> int | None:
    """A pidfd of the keeper of this claim, readable once it has ended; None where it is gone.

    Works for a keeper that is no child of ours. The caller closes it.

    Raises:
        OSError: No descriptor is left.

    """
    if claim.keeper_pid is None or claim.keeper_start_ticks is None:
        return None
    if claim.boot != procfs.boot_id():
        return None
    return procfs.open_pidfd(claim.keeper_pid, claim.keeper_start_ticks)


def _record(path: Path, line: int, parse: Callable[[Mapping[str, Any]], _Record]) -> _Record | None:
    """The record in one line of a file, or None where it is not there in full."""
    lines = _content(path).split(b"\n")
    try:
        # What follows the last newline is still being written.
        return parse(json.loads(lines[:-1][line]))
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def _content(path: Path) -> bytes:
    """What a regular file holds; nothing for what is absent, a link or a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return file.read(_LARGEST_RECORD_BYTES)


def _claim(content: Mapping[str, Any]) -> Claim:
    t_ns = _integer(content["t"])
    if content.get("void") is True:
        return Claim(None, None, None, t_ns)
    boot = content["boot"]
    if not isinstance(boot, str):
        raise TypeError(boot)
    return Claim(_integer(content["pid"]), _integer(content["start"]), boot, t_ns)


def _started(content: Mapping[str, Any]) -> Started:
    return Started(*(_integer(content[key]) for key in ("pid", "start", "t")))


def _exit_record(content: Mapping[str, Any]) -> ExitRecord:
    spawn_error, cgroup = content["spawn_error"], content["cgroup"]
    before, after = content["vmstat_oom_kill"]
    inherited_before, inherited_after = content["inherited_oom_kill"]
    return ExitRecord(
        exit_code=_maybe(content["exit_code"]),
        signal=_maybe(content["signal"]),
        spawn_error=None
        if spawn_error is None
        else SpawnError(
            _integer(spawn_error["errno"]), str(spawn_error["message"]), str(spawn_error["what"])
        ),
        start_ns=_integer(content["start_t"]),
        command_end_ns=_maybe(content["command_end_t"]),
        end_ns=_integer(content["t"]),
        largest_process_bytes=_integer(content["maxrss_bytes"]),
        user_s=float(content["user_s"]),
        system_s=float(content["system_s"]),
        reaped=_integer(content["reaped"]),
        killed_children=tuple(
            (_integer(pid), _integer(number)) for pid, number in content["killed_children"]
        ),
        cgroup=None
        if cgroup is None
        else CgroupMemory(
            _integer(cgroup["oom_kill"]),
            _maybe(cgroup["peak_bytes"]),
            _maybe(cgroup["limit_bytes"]),
        ),
        host_oom_kills=(_maybe(before), _maybe(after)),
        inherited_oom_kills=(_maybe(inherited_before), _maybe(inherited_after)),
        address_space_limit_bytes=_maybe(content["rlimit_as_bytes"]),
        notes=tuple(str(note) for note in content["notes"]),
    )


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _maybe(value: Any) -> int | None:
    return None if value is None else _integer(value)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
