"""One command in the foreground, as transparent as the shell's own: `headway run -- CMD`.

It gets the caller's three streams, its process group (so Ctrl-C, Ctrl-Z and a resized window reach
it as always), its limits and its cores; only the recorder is added to its environment. Ctrl-C is
the command's to answer: it may save and go on, and so does Headway. What others send to Headway
(SIGTERM, SIGHUP, SIGUSR1, SIGUSR2) is passed on to the command.

Headway is the subreaper of what the command leaves behind, so that a time-out finds all of it.
"""

import contextlib
import ctypes
import os
import resource
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from headway.core.errors import UsageError
from headway.core.recording import FOLDER_VARIABLE, python_path, read_folder, summary, why_unseen
from headway.system.procfs import scan, start_ticks
from headway.system.trees import kill_tree, tree_of

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
TIMED_OUT, NOT_EXECUTABLE, NOT_FOUND = 124, 126, 127  # as timeout(1), env(1) and shells have them
LOOK_S = 1.0  # how often memory is read
GRACE_S = 10.0
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_LEFT_TO_THE_COMMAND = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command in the foreground ended.

    `exit_code` is what Headway should exit with: the command's, 128+n for signal n, 124 where its
    time was over, 126 and 127 where it could not be started (`problem` then says why).
    `peak_bytes` is the resident memory of the whole tree, read once a second, but never less than
    its largest process ever had. `unseen` says why there are no steps.
    """

    exit_code: int
    seconds: float = 0.0
    peak_bytes: int | None = None
    steps: int | None = None
    step_ns: int | None = None
    unseen: str = ""
    problem: str = ""
    timed_out: bool = False


def run_foreground(
    command: Sequence[str],
    *,
    recorder: Path,
    environment: Mapping[str, str],
    timeout_s: float | None = None,
    grace_s: float = GRACE_S,
) -> Ended:
    """Run a command with this process's streams, and wait for it.

    Args:
        command: Program and arguments; no shell comes between.
        recorder: The folder to put on its PYTHONPATH.
        environment: The caller's variables.
        timeout_s: After this time the whole tree gets SIGTERM, and SIGKILL `grace_s` later.
        grace_s: How long it may take to comply.

    Raises:
        UsageError: There is no command.
    """
    if not command:
        raise UsageError("no command; write it after the two dashes: headway run -- python x.py")
    # Our own temporary files, not the job's: a name of ours in its TMPDIR is harmless, and gone.
    steps = Path(tempfile.mkdtemp(prefix="headway-steps-"))
    changed = {
        **environment,
        "PYTHONPATH": python_path(str(recorder), environment.get("PYTHONPATH")),
        FOLDER_VARIABLE: str(steps),
    }
    try:
        return _run(command, changed, steps, timeout_s, grace_s)
    finally:
        shutil.rmtree(steps, ignore_errors=True)


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    steps: Path,
    timeout_s: float | None,
    grace_s: float,
) -> Ended:
    _become_subreaper()
    began = time.monotonic()
    with _Signals() as signals:
        try:
            # Descriptors that the caller opened for the command (3>file) are its own to keep.
            process = subprocess.Popen(list(command), env=environment, close_fds=False)
        except OSError as error:
            return _not_started(command[0], error)
        except ValueError as error:  # a NUL character
            return Ended(NOT_FOUND, problem=str(error))
        tree = _Tree(process.pid)
        signals.attach(tree.pidfd)
        deadline = None if timeout_s is None else began + timeout_s
        timed_out = not tree.wait(deadline)
        if timed_out:
            tree.end(grace_s)
    os.close(tree.pidfd)
    # Popen must not wait for a child that has been reaped here.
    process.returncode = tree.status
    return _ended(tree, command, steps, time.monotonic() - began, timed_out)


def _ended(
    tree: "_Tree", command: Sequence[str], steps: Path, seconds: float, timed_out: bool
) -> Ended:
    recordings = read_folder(steps)
    seen = summary(recordings)
    status = tree.status or 0
    code = status if status >= 0 else 128 - status
    return Ended(
        exit_code=TIMED_OUT if timed_out else code,
        seconds=seconds,
        peak_bytes=tree.peak_bytes or None,
        steps=seen.steps if seen is not None else None,
        step_ns=seen.median_step_ns if seen is not None else None,
        unseen="" if seen else why_unseen(shlex.join(command), recordings=recordings),
        timed_out=timed_out,
    )


def _not_started(program: str, error: OSError) -> Ended:
    missing = isinstance(error, FileNotFoundError)
    if missing and os.path.exists(program) and "/" in program:
        return Ended(NOT_FOUND, problem="the interpreter it names is not there")
    words = "not found" if missing else error.strerror or str(error)
    return Ended(NOT_FOUND if missing else NOT_EXECUTABLE, problem=words)


def _become_subreaper() -> None:
    """Without it (very old kernels) a time-out misses what the command has abandoned."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class _Tree:
    """The command with all it has started: waits for it, reaps what it abandons, reads memory.

    `status` is None while the command runs, then its exit code or minus its signal.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self.peak_bytes = 0
        self._own = os.getpid()
        self._own_start = start_ticks(self._own) or 0
        self.pidfd = os.pidfd_open(pid)
        # A child's largest memory is counted from its fork: what we had then is not its own.
        self._forked_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def wait(self, deadline: float | None) -> bool:
        """Until the command has ended, or until the deadline: then False."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        while self.status is None:
            self._look()
            left_s = LOOK_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                return False
            poll.poll(max(1, 1000 * min(LOOK_S, left_s)))
            self._reap()
        return True

    def end(self, grace_s: float) -> None:
        """End everything below this process, verified."""
        kill_tree(self._own, self._own_start, grace_s=grace_s)
        while self.status is None:
            select.select([self.pidfd], [], [], LOOK_S)
            self._reap()

    def _look(self) -> None:
        members = tree_of(self._own, self._own_start, entries=scan())
        self.peak_bytes = max(self.peak_bytes, sum(member.rss_bytes for member in members))

    def _reap(self) -> None:
        """The command and orphans alike; of the command its end is kept."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            largest = usage.ru_maxrss * 1024
            if largest > self._forked_bytes:
                self.peak_bytes = max(self.peak_bytes, largest)
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)


class _Signals:
    """Passes signals on to the command while entered; its own handlers are none of its business.

    Handlers are functions, never SIG_IGN: what is ignored here would be ignored by the command.
    What the caller ignores already (nohup) stays ignored for both.
    """

    def __init__(self) -> None:
        self._pidfd: int | None = None
        self._early: list[int] = []
        self._before: dict[int, Any] = {}

    def attach(self, pidfd: int) -> None:
        """There is a command now; it gets what came before."""
        self._pidfd = pidfd
        for number in self._early:
            self._send(number)

    def __enter__(self) -> "_Signals":
        for numbers, handler in (
            (_FORWARDED, self._forward),
            (_LEFT_TO_THE_COMMAND, self._leave),
        ):
            for number in numbers:
                self._handle(number, handler)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, handler: Callable[[int, FrameType | None], None]) -> None:
        before = signal.getsignal(number)
        if before is not signal.SIG_IGN:
            self._before[number] = before
            signal.signal(number, handler)

    def _leave(self, _number: int, _frame: FrameType | None) -> None:
        """The terminal has sent it to the command as well."""

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        if self._pidfd is None:
            self._early.append(number)
        else:
            self._send(number)

    def _send(self, number: int) -> None:
        # By descriptor: it may have been reaped, and its pid be another's by now.
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)
