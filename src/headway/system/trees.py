"""Ending a whole tree of processes, double forks, own sessions and emptied environments included.

[Note: how nothing escapes]
Each attempt runs below a keeper that is a child subreaper: whatever its descendants fork and
abandon becomes the keeper's child, never a stranger's. So the tree below the keeper is complete at
every moment, but it moves: a process may fork between a scan and a signal. Where there is a control
group, the kernel holds it still. Where there is none, all members are stopped, and the scan is
repeated until no new one shows; then a kill finds them all. The keeper is spared: it ends by itself
once it has no children, and writes the exit record. Only a process whose start time was compared
after its pidfd was opened is ever signalled, never a bare pid and never a process group.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.system.group import Cgroup
from headway.system.procfs import (
    PROC,
    ProcessEntry,
    descendants,
    open_pidfd,
    scan,
    start_ticks,
)

_POLL_S = 0.01
_STOP_ROUNDS = 20
KILL_S = 5.0
"""How long a killed tree may take to vanish; longer means that it hangs in the kernel."""


@dataclass(frozen=True, slots=True)
class KillReport:
    """What it took to end a tree."""

    rounds: int
    """How often the kill had to be repeated."""
    signalled: tuple[int, ...]
    """The pids that were sent something, in order."""
    left: tuple[ProcessEntry, ...]
    """What still runs: hanging in the kernel, or another user's."""
    complete: bool
    """False where the keeper had ended already and no group is there: its tree can't be found."""


def tree_of(
    keeper_pid: int,
    keeper_start: int,
    *,
    cgroup: Cgroup | None = None,
    entries: Mapping[int, ProcessEntry] | None = None,
    proc: Path = PROC,
) -> list[ProcessEntry]:
    """What still runs below a keeper or in its control group, parents first, the keeper left out.

    Args:
        keeper_pid: The keeper; where it has ended, only the control group can tell.
        keeper_start: Its start time in clock ticks.
        cgroup: The attempt's control group.
        entries: A scan that was made already.
        proc: Where procfs is mounted.
    """
    entries = scan(proc) if entries is None else entries
    found: dict[int, ProcessEntry] = {}
    keeper = entries.get(keeper_pid)
    if keeper is not None and keeper.start_ticks == keeper_start:
        found = {entry.pid: entry for entry in descendants(entries, [keeper_pid])[keeper_pid]}
    for pid in cgroup.processes() if cgroup is not None else ():
        if pid in entries and pid != keeper_pid:
            found.setdefault(pid, entries[pid])
    return [entry for entry in found.values() if not entry.ended]


def signal_tree(
    keeper_pid: int,
    keeper_start: int,
    number: int,
    *,
    cgroup: Cgroup | None = None,
    proc: Path = PROC,
) -> list[int]:
    """Send one signal to the whole tree once, without waiting; gives the pids it was sent to.

    For an event loop: SIGTERM once, later SIGKILL at each tick until `tree_of` is empty. SIGKILL
    holds the tree still first, so that one round nearly always suffices. After another signal than
    that, stopped processes are woken up, or they would never act on it.

    Raises:
        OSError: The kernel has no pidfd (before 5.3).
    """
    if number == signal.SIGKILL:
        return _kill_round(keeper_pid, keeper_start, cgroup, proc)
    members = tree_of(keeper_pid, keeper_start, cgroup=cgroup, proc=proc)
    sent = cgroup.signal(number, spare={keeper_pid}) if cgroup is not None else []
    reached = set(sent)
    sent += _send([one for one in members if one.pid not in reached], number, proc)
    _send([one for one in members if one.state == "T"], signal.SIGCONT, proc)
    return sent


def kill_tree(
    keeper_pid: int,
    keeper_start: int,
    *,
    cgroup: Cgroup | None = None,
    grace_s: float = 10.0,
    first_signal: int = signal.SIGTERM,
    proc: Path = PROC,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> KillReport:
    """End everything below a keeper: a first signal, some time to comply, then the kill.

    Args:
        keeper_pid: The subreaper above the tree, which is spared.
        keeper_start: Its start time in clock ticks.
        cgroup: The attempt's control group, where there is one.
        grace_s: Time between the first signal and the kill; 0 kills at once.
        first_signal: What asks the tree to end.
        proc: Where procfs is mounted.
        clock: Seconds that only grow.
        sleep: Waits some seconds.

    Raises:
        OSError: The kernel has no pidfd (before 5.3).
    """

    def members() -> list[ProcessEntry]:
        return tree_of(keeper_pid, keeper_start, cgroup=cgroup, proc=proc)

    signalled: dict[int, None] = {}
    complete = cgroup is not None or start_ticks(keeper_pid, proc) == keeper_start
    if grace_s > 0:
        first = signal_tree(keeper_pid, keeper_start, first_signal, cgroup=cgroup, proc=proc)
        signalled.update(dict.fromkeys(first))
        deadline = clock() + grace_s
        while members() and clock() < deadline:
            sleep(_POLL_S)
    rounds = 0
    deadline = clock() + KILL_S
    left = members()
    while left and (rounds == 0 or clock() < deadline):
        rounds += 1
        signalled.update(dict.fromkeys(_kill_round(keeper_pid, keeper_start, cgroup, proc)))
        left = members()
        if left:
            sleep(_POLL_S)
            left = members()
    return KillReport(rounds, tuple(signalled), tuple(left), complete)


def _kill_round(keeper_pid: int, keeper_start: int, cgroup: Cgroup | None, proc: Path) -> list[int]:
    sent: dict[int, None] = {}
    if cgroup is not None:
        sent.update(dict.fromkeys(cgroup.processes()))
        sent.pop(keeper_pid, None)
        cgroup.kill_once(spare={keeper_pid})
    # With a group this finds what never joined it or was moved out of it; mostly nothing.
    held: dict[tuple[int, int], ProcessEntry] = {}
    for _ in range(_STOP_ROUNDS):
        members = tree_of(keeper_pid, keeper_start, proc=proc)
        new = [one for one in members if (one.pid, one.start_ticks) not in held]
        if not new:
            break
        _send(new, signal.SIGSTOP, proc)
        held.update({(one.pid, one.start_ticks): one for one in new})
    sent.update(dict.fromkeys(_send(held.values(), signal.SIGKILL, proc)))
    return list(sent)


def _send(members: Iterable[ProcessEntry], number: int, proc: Path) -> list[int]:
    """Signal each of these very processes; gives the pids of those that got it."""
    sent = []
    for one in members:
        descriptor = open_pidfd(one.pid, one.start_ticks, proc)
        if descriptor is None:
            continue
        try:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(descriptor, number)
                sent.append(one.pid)
        finally:
            os.close(descriptor)
    return sent
