"""What the logs of an MPS control daemon and its servers tell: the only witness of many things.

The daemon answers alike whether a server came up or died at once; who had to end with whom after a
fault, and why a value was not taken, stands in the logs alone. `control.log` is the daemon's,
`server.log` its servers'. A line reads ``[2026-11-30 21:52:03.488 Control  8690] text``.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# Read of a log at once: what a server writes for its clients over a long run may be large.
MOST_BYTES = 1 << 20

_LINE = re.compile(r"\[(\S+ \S+)\s+(Control|Server|Other)\s+(\d+)\]\s?(.*)")
_STARTING = re.compile(r"Starting new server (\d+) for user (\d+)")
_READY = re.compile(r"NEW SERVER (\d+): Ready")
_EXITED = re.compile(r"Server (\d+) exited with status (-?\d+)")
_NOT_STARTED = "Failed to start server using uid"
_NEW_CLIENT = re.compile(r"NEW CLIENT (\d+) from user (\d+)")
_DAEMON_EXIT = re.compile(r"Exit with status (-?\d+)")
_CONNECTED = re.compile(r"New client (\d+) connected")
_DISCONNECTED = re.compile(r"Client (\d+) disconnected")
_STATUS = re.compile(r"status of client \{(\d+), ?(\d+)\} is (\w+)")
_PID = re.compile(r"(?:Volta MPS: )?(\d+)")


class LogLine(NamedTuple):
    """One line of a log."""

    time: str
    """As written: local time, with milliseconds."""
    who: str
    """Control, Server or Other."""
    pid: int
    text: str


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """A server as the daemon's log knows it."""

    pid: int
    uid: int | None = None
    ready: bool = False
    exit_status: int | None = None
    """None while it has not exited."""


@dataclass(frozen=True, slots=True)
class ControlFacts:
    """What a daemon's log tells."""

    ready: bool = False
    """Whether it said that it takes clients."""
    servers: tuple[ServerRecord, ...] = ()
    """In the order in which they were started."""
    clients: tuple[tuple[int, int], ...] = ()
    """The pid and user id of each that asked to be a client, in order."""
    failed_starts: tuple[str, ...] = ()
    """What it said of servers that it could not even start."""
    exit_status: int | None = None
    """1 where any server of its life ended badly, though it ended well itself."""

    def server(self, pid: int) -> ServerRecord | None:
        """The server with this pid, the latest where the pid was given twice."""
        return next((one for one in reversed(self.servers) if one.pid == pid), None)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fatal error of a GPU: it ends all clients that share a GPU with whoever caused it."""

    victims: tuple[int, ...] = ()
    """Clients whose CUDA answers with errors from now on, whoever is to blame."""
    over: bool = False
    """Whether the server takes clients again."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the servers' log tells."""

    connected: tuple[int, ...] = ()
    """Clients that came and have not left, by pid; one that was killed may stay here."""
    inactive: tuple[int, ...] = ()
    """Clients whose last word was that they are not active any more."""
    faults: tuple[Fault, ...] = ()
    failed: bool = False
    """Whether a server said that it could not start."""


@dataclass(slots=True)
class _FaultSoFar:
    victims: list[int] = field(default_factory=list)
    listing: bool = False
    over: bool = False


def read_log(path: Path, start: int = 0) -> tuple[tuple[LogLine, ...], int]:
    """The whole lines of a log from a position on, and the position after them.

    Of more than `MOST_BYTES` only the last are read. A log that is not there has no lines; one that
    became shorter is read from its beginning.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(start if start <= size else 0, size - MOST_BYTES)
            file.seek(begin)
            content = file.read(size - begin)
    except FileNotFoundError:
        return (), 0
    whole = content[: content.rfind(b"\n") + 1]
    return parse_log(whole.decode(errors="replace")), begin + len(whole)


def parse_log(text: str) -> tuple[LogLine, ...]:
    """The lines of a log; what is no such line is left out.

    >>> parse_log("[2026-11-30 21:52:03.488 Control  8690] NEW UI")
    (LogLine(time='2026-11-30 21:52:03.488', who='Control', pid=8690, text='NEW UI'),)
    """
    found = (_LINE.match(line) for line in text.splitlines())
    return tuple(
        LogLine(match[1], match[2], int(match[3]), match[4].rstrip()) for match in found if match
    )


def control_facts(lines: Iterable[LogLine]) -> ControlFacts:
    r"""What the lines of `control.log` tell, taken together.

    >>> at = "[2026-11-30 21:52:03.488 Control  8690] "
    >>> told = ["Starting new server 8701 for user 0", "Server 8701 exited with status 1"]
    >>> control_facts(parse_log("\n".join(at + text for text in told))).servers
    (ServerRecord(pid=8701, uid=0, ready=False, exit_status=1),)
    """
    ready, exit_status = False, None
    servers: list[ServerRecord] = []
    failed_starts: list[str] = []
    clients: list[tuple[int, int]] = []
    for line in lines:
        if line.text.startswith("To connect CUDA applications to this daemon"):
            ready = True
        elif match := _STARTING.search(line.text):
            servers.append(ServerRecord(int(match[1]), int(match[2])))
        elif _NOT_STARTED in line.text:
            failed_starts.append(line.text)
        elif match := _READY.search(line.text):
            _note(servers, int(match[1]), ready=True)
        elif match := _EXITED.search(line.text):
            _note(servers, int(match[1]), exit_status=int(match[2]))
        elif match := _NEW_CLIENT.search(line.text):
            clients.append((int(match[1]), int(match[2])))
        elif match := _DAEMON_EXIT.fullmatch(line.text):
            exit_status = int(match[1])
    return ControlFacts(ready, tuple(servers), tuple(clients), tuple(failed_starts), exit_status)


def server_facts(lines: Sequence[LogLine]) -> ServerFacts:
    r"""What the lines of `server.log` tell, taken together.

    >>> at = "[2026-11-30 21:52:03.488 Server  8701] Volta MPS: "
    >>> told = [
    ...     "Server is handling a fatal GPU error.",
    ...     "The following clients have a sticky error set:",
    ...     "4711",
    ...     "Creating server context on device 0",
    ... ]
    >>> server_facts(parse_log("\n".join(at + text for text in told))).faults
    (Fault(victims=(4711,), over=True),)
    """
    connected: dict[int, None] = {}
    active: dict[int, bool] = {}
    faults: list[_FaultSoFar] = []
    failed = False
    for line in lines:
        if match := _CONNECTED.search(line.text):
            connected[int(match[1])] = None
            active.pop(int(match[1]), None)
        elif match := _DISCONNECTED.search(line.text):
            connected.pop(int(match[1]), None)
        elif match := _STATUS.search(line.text):
            active[int(match[1])] = match[3] == "ACTIVE"
        elif "MPS server failed to start" in line.text:
            failed = True
        else:
            _note_fault(faults, line.text)
    return ServerFacts(
        tuple(connected),
        tuple(pid for pid, is_active in active.items() if not is_active),
        tuple(Fault(tuple(fault.victims), fault.over) for fault in faults),
        failed,
    )


def _note(
    servers: list[ServerRecord], pid: int, *, ready: bool = False, exit_status: int | None = None
) -> None:
    """Add to the latest server of this pid; one whose start the log lost is new here."""
    for place in reversed(range(len(servers))):
        known = servers[place]
        if known.pid == pid:
            servers[place] = ServerRecord(pid, known.uid, ready or known.ready, exit_status)
            return
    servers.append(ServerRecord(pid, None, ready, exit_status))


def _note_fault(faults: list[_FaultSoFar], text: str) -> None:
    if "handling a fatal GPU error" in text:
        faults.append(_FaultSoFar())
    if not faults:
        return
    fault = faults[-1]
    if "clients have a sticky error set" in text:
        fault.listing = True
    elif fault.listing and (match := _PID.fullmatch(text)):
        fault.victims.append(int(match[1]))
    elif "Creating server context on device" in text:
        fault.over = True
        fault.listing = False
    else:
        fault.listing = False
