"""Answers of an MPS control daemon, judged by their text; pure.

Whatever came of a command, the tool exits with 0 once it reached the daemon. Some refusals are not
even text: a percentage out of range leaves the old one in force and prints *that*, and a memory
limit that is misread prints nothing. So what was set is compared with what is in force.
"""

import re
from typing import Literal, NamedTuple, get_args

from headway.core.units import GIB, MIB
from headway.system.mps_tool import MpsOtherProtocol, MpsRefused, quoted

ServerState = Literal["INITIALIZING", "ACTIVE", "FAULT"]

_NOT_FOUND = re.compile(r"Server(?: \d+)? not found!?")
_MIB_OF = {"M": 1, "G": GIB // MIB}


class MpsProcess(NamedTuple):
    """One client as the daemon lists it, its pids being those of the daemon's namespace."""

    pid: int
    server: int
    device: str
    namespace: str
    command: str


def percentage_text(percentage: float) -> str:
    """A percentage as it is written.

    Raises:
        ValueError: Not above 0 and at most 100.

    >>> percentage_text(33.3), percentage_text(25.0)
    ('33.3', '25')
    """
    if not 0 < percentage <= 100:
        raise ValueError(f"{percentage:g}% of the threads; give more than 0 and at most 100")
    return f"{percentage:g}"


def percentage_of(command: str, reply: str) -> float:
    """The percentage that an answer says, in percent."""
    try:
        return float(reply)
    except ValueError:
        raise _not_understood(command, reply) from None


def compare_percentage(command: str, asked: float, in_force: float) -> None:
    """Raise `MpsRefused` unless what is in force is what was asked."""
    # Printed with one decimal; whether rounded or cut is not documented.
    if abs(asked - in_force) >= 0.1:
        raise MpsRefused(
            command,
            f"{in_force:g}% stayed in force",
            "the reason is in the daemon's control.log; ask for more than 0 and at most 100",
        )


def limit_in_mib(command: str, reply: str) -> int | None:
    """The memory limit that an answer says, in MiB; None for none.

    >>> limit_in_mib("get", "1G"), limit_in_mib("get", "700M"), limit_in_mib("get", "")
    (1024, 700, None)
    """
    if not reply:
        return None
    match = re.fullmatch(r"(\d+)([MG])B?", reply)
    if match is None:
        raise _not_understood(command, reply)
    return int(match[1]) * _MIB_OF[match[2]]


def compare_limit(command: str, asked: int | None, in_force: int | None) -> None:
    """Raise `MpsRefused` unless what is in force, in MiB as printed, is what was asked."""
    per_gib = _MIB_OF["G"]
    shown = asked if asked is None or asked < per_gib else asked // per_gib * per_gib
    if in_force != shown:
        there = "no limit" if in_force is None else f"a limit of {in_force} MiB"
        raise MpsRefused(
            command,
            f"{there} is in force",
            "the device may be unknown to the daemon: name it by its place among those it sees",
        )


def device_text(device: int | str) -> str:
    """A device as it is written: its number, or its UUID, which also may be a MIG device's.

    Raises:
        ValueError: Neither of them.
    """
    text = str(device)
    if not re.fullmatch(r"\d+|[A-Za-z][A-Za-z0-9/_-]*", text, re.ASCII):
        raise ValueError(f"{text!r} is neither a device's number nor its UUID")
    return text


def pids(command: str, reply: str) -> tuple[int, ...]:
    """Pids, however they are set apart."""
    words = reply.split()
    if not all(word.isdigit() for word in words):
        raise _not_understood(command, reply)
    return tuple(map(int, words))


def client_table(reply: str) -> tuple[MpsProcess, ...]:
    """The table of all clients; empty without a server."""
    if not reply or _NOT_FOUND.fullmatch(reply):
        return ()
    header, *rows = reply.splitlines()
    if header.split()[:4] != ["PID", "ID", "SERVER", "DEVICE"]:
        raise _not_understood("ps", reply)
    return tuple(_process(row) for row in rows if row.strip())


def state_of(command: str, reply: str) -> ServerState:
    """How a server is."""
    for state in get_args(ServerState):
        if reply == state:
            known: ServerState = state
            return known
    raise _not_understood(command, reply)


def _process(row: str) -> MpsProcess:
    fields = row.split(None, 5)
    try:
        pid, _, server, device, namespace = fields[:5]
        return MpsProcess(int(pid), int(server), device, namespace, "".join(fields[5:]).strip())
    except ValueError:
        raise _not_understood("ps", row) from None


def found(command: str, reply: str) -> str:
    """The answer itself; `MpsRefused` where it is that there is no such server."""
    if _NOT_FOUND.search(reply):
        raise MpsRefused(
            command,
            quoted(reply),
            "it has ended, or never started: ask for the list of servers again",
        )
    return reply


def _not_understood(command: str, reply: str) -> MpsOtherProtocol:
    return MpsOtherProtocol(
        command,
        quoted(reply),
        "this is not protocol 2; use a daemon of your own, or share in time slices",
    )
