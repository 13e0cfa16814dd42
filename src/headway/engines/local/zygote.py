"""The supervisor's end of the zygote: ask for starts, collect the answers, never block.

The zygote (keeper.py) is a small process that forks a keeper for each attempt. Where it dies, its
keepers go on; a new zygote is started, and a request that got no answer is settled by its claim:
who can link a void claim knows that nothing was started and never will be.
"""

import marshal
import os
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

__all__ = ["Reply", "StartRequest", "Zygote", "ZygoteDied"]

_KEEPER = Path(__file__).with_name("keeper.py")

# Larger messages travel as a memory file beside an almost empty datagram: the kernel's limit for
# a datagram is about 200 KB, and the zygote reads 64 KB.
_LARGEST_INLINE_BYTES = 32 * 1024

_LARGEST_REPLY_BYTES = 16 * 1024

# The zygote leaves its loop as soon as its socket closes; this long only where the disk hangs.
_CLOSE_TIMEOUT_S = 5.0


class ZygoteDied(Exception):
    """The zygote is gone: the request was not handed over, so nothing was started for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What a keeper needs to run one attempt.

    Attributes:
        identifier: Comes back in the reply; unique among the unanswered requests of one zygote.
        folder: The attempt folder, absolute; it must exist.
        argv: The command; a name without a slash is looked up in its own PATH.
        cwd: The folder it runs in, absolute.
        environment_set: Variables set on top of the zygote's environment.
        environment_unset: Variables taken out of it first.
        cpus: The cores it may use, or None for all that the supervisor may use.
        cgroup_procs: `cgroup.procs` files it joins before it starts.
        cgroup_memory: The memory cgroup whose counters go into the exit record.
        inherited_memory: The memory cgroup around Headway, watched for kills meanwhile.
        fault: Where the keeper kills itself, for tests: `after-claim` or `after-result`.

    """

    identifier: int
    folder: Path
    argv: Sequence[str]
    cwd: Path
    environment_set: Mapping[str, str] = field(default_factory=dict)
    environment_unset: Sequence[str] = ()
    cpus: Sequence[int] | None = None
    cgroup_procs: Sequence[Path] = ()
    cgroup_memory: Path | None = None
    inherited_memory: Path | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request.

    Attributes:
        identifier: The request's.
        keeper_pid: The keeper that holds the claim, or None where there is none.
        keeper_start_ticks: Its start time in clock ticks after boot.
        error: Why no keeper took the attempt, in words; its claim says whether anything ever ran.

    """

    identifier: int
    keeper_pid: int | None
    keeper_start_ticks: int | None
    error: str | None


class Zygote:
    """A running zygote; made by `start`, ended by `close`. Its keepers outlive both."""

    def __init__(self, process: "subprocess.Popen[bytes]", link: socket.socket) -> None:
        self._process = process
        self._link = link
        self._unsent: deque[tuple[int | None, bytes, IO[bytes] | None]] = deque()
        self._unanswered: set[int] = set()
        self._lost = False

    @classmethod
    def start(cls, environment: Mapping[str, str], *, stderr: Path | None = None) -> "Zygote":
        """Start a zygote whose commands get `environment`, each with its own changes.

        Args:
            environment: Every variable that a command starts from; of any size.
            stderr: A file that complaints of the zygote are appended to; None drops them.

        Raises:
            OSError: The process cannot be started.

        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with open(stderr or os.devnull, "ab") as complaints, theirs:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-E", str(_KEEPER), str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=complaints,
                    cwd="/",  # it outlives the run's folder and keeps no file system busy
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        zygote = cls(process, ours)
        base = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        zygote._queue(None, {"environment": base})
        return zygote

    @property
    def pid(self) -> int:
        """The zygote's process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can take requests."""
        return not self._lost and self._process.poll() is None

    @property
    def unanswered(self) -> frozenset[int]:
        """Requests handed over and not answered; once the zygote is dead, their claims decide."""
        return frozenset(self._unanswered)

    def fileno(self) -> int:
        """The descriptor that becomes readable when `replies` has something, or on its death."""
        return self._link.fileno()

    def submit(self, request: StartRequest) -> None:
        """Hand over one request without waiting for it.

        Raises:
            ZygoteDied: Nothing was handed over; start a new zygote and submit it there.

        """
        if not self.alive:
            raise ZygoteDied(f"the zygote {self.pid} is gone; start a new one")
        self._unanswered.add(request.identifier)
        self._queue(request.identifier, _message(request))
        if self._lost and self._unsent:
            self._unanswered.discard(request.identifier)
            raise ZygoteDied(f"the zygote {self.pid} died; start a new one")

    def replies(self) -> list[Reply]:
        """Every answer that has come in, without waiting for more."""
        found = []
        while not self._lost:
            try:
                content = self._link.recv(_LARGEST_REPLY_BYTES)
            except BlockingIOError:
                break
            except OSError:
                content = b""
            if not content:
                self._lost = True
                break
            answer: dict[str, Any] = marshal.loads(content)
            reply = Reply(answer["id"], answer.get("pid"), answer.get("start"), answer.get("error"))
            self._unanswered.discard(reply.identifier)
            found.append(reply)
        self._flush()
        return found

    def close(self) -> None:
        """End the zygote, not its keepers; requests it has not answered are not waited for."""
        self._lost = True
        self._link.close()
        self._drop_unsent()
        try:
            self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _queue(self, identifier: int | None, message: dict[str, Any]) -> None:
        """Encode a message, put it behind the others, and send what can be sent."""
        content = marshal.dumps(message)
        if len(content) <= _LARGEST_INLINE_BYTES:
            self._unsent.append((identifier, content, None))
        else:
            self._unsent.append((identifier, b"file", _memory_file(content)))
        self._flush()

    def _flush(self) -> None:
        """Send what the socket takes; a full one has answers to come, which bring us back here."""
        while self._unsent and not self._lost:
            _, content, file = self._unsent[0]
            try:
                if file is None:
                    self._link.send(content)
                else:
                    socket.send_fds(self._link, [content], [file.fileno()])
            except BlockingIOError:
                return
            except OSError:
                self._lost = True
                return
            self._unsent.popleft()
            if file is not None:
                file.close()

    def _drop_unsent(self) -> None:
        while self._unsent:
            _, _, file = self._unsent.popleft()
            if file is not None:
                file.close()


def _message(request: StartRequest) -> dict[str, Any]:
    """A request as the keeper reads it: text as bytes, whatever the locale."""
    changes = request.environment_set.items()
    return {
        "id": request.identifier,
        "folder": os.fsencode(request.folder),
        "argv": [os.fsencode(word) for word in request.argv],
        "cwd": os.fsencode(request.cwd),
        "env_set": {os.fsencode(name): os.fsencode(value) for name, value in changes},
        "env_unset": [os.fsencode(name) for name in request.environment_unset],
        "cpus": None if request.cpus is None else list(request.cpus),
        "cgroup_procs": [os.fsencode(path) for path in request.cgroup_procs],
        "cgroup_memory": _path(request.cgroup_memory),
        "inherited_memory": _path(request.inherited_memory),
        "fault": request.fault,
    }


def _path(path: Path | None) -> bytes | None:
    return None if path is None else os.fsencode(path)


def _memory_file(content: bytes) -> IO[bytes]:
    """An unnamed file with this content; in memory where this Python can."""
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("headway-request"), "w+b")
    else:
        file = os.fdopen(os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR, 0o600), "w+b")
    file.write(content)
    file.flush()
    return file
