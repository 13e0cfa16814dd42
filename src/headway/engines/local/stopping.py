"""Ending and confining live attempts: SIGTERM, ten seconds, SIGKILL of the whole tree.

Never waits: each function sends what is due and returns, and the world calls again at its next
turn, until the keeper is gone. A keeper goes only after the last process of its tree.
"""

import contextlib
import signal
from concurrent.futures import Future

from headway.core.units import NS_PER_S
from headway.core.words import StopHow
from headway.engines.local.attempt import Attempt
from headway.engines.local.mps_host import RELEASE_S
from headway.system.cores import set_affinity_of_tree
from headway.system.procfs import scan
from headway.system.trees import signal_tree, tree_of

GRACE_NS = 10_000_000_000
RELEASE_NS = int(1.5 * RELEASE_S * NS_PER_S)


def hold_back(attempt: Attempt, release: Future[str], *, now_ns: int) -> None:
    """Let a stop wait until an attempt's processes are off their MPS server, if that comes soon.

    What a client of MPS has in flight could take the others with it when it is killed.
    """
    attempt.release = release
    attempt.release_until_ns = now_ns + RELEASE_NS


def begin_stop(attempt: Attempt, how: StopHow, reason: str, *, now_ns: int) -> None:
    """Ask an attempt to end; it is killed when its grace is over."""
    attempt.stop, attempt.stop_reason = how, reason
    # Memory is needed at once; everything else gets time to write a checkpoint.
    attempt.kill_at_ns = now_ns + (0 if how == "memory" else GRACE_NS)
    attempt.asks = how != "memory"
    ask_to_end(attempt, now_ns=now_ns)


def ask_to_end(attempt: Attempt, *, now_ns: int) -> None:
    """Send SIGTERM once; between its fork and its exec a command would ignore it."""
    if _is_held(attempt, now_ns):
        return
    if attempt.asks and attempt.keeper_pid and attempt.folder.read_started() is not None:
        attempt.asks = False
        send(attempt, signal.SIGTERM)


def go_on_stopping(attempt: Attempt, *, now_ns: int) -> None:
    """Do what is due: ask, or kill the tree whose time is over."""
    ask_to_end(attempt, now_ns=now_ns)
    due = attempt.kill_at_ns is not None and now_ns >= attempt.kill_at_ns
    if due and attempt.keeper_pid and not _is_held(attempt, now_ns):
        send(attempt, signal.SIGKILL)


def pids_of(attempt: Attempt) -> frozenset[int]:
    """The processes of an attempt's tree now."""
    members = tree_of(
        attempt.keeper_pid, attempt.keeper_start, cgroup=attempt.cgroup, entries=scan()
    )
    return frozenset(member.pid for member in members)


def _is_held(attempt: Attempt, now_ns: int) -> bool:
    """Whether its processes may not be signalled yet, being taken off their MPS server."""
    release = attempt.release
    return release is not None and not release.done() and now_ns < attempt.release_until_ns


def send(attempt: Attempt, number: int) -> None:
    """Send a signal to the whole tree of an attempt, its keeper spared."""
    signal_tree(attempt.keeper_pid, attempt.keeper_start, number, cgroup=attempt.cgroup)
    if attempt.orphaned and attempt.pidfd >= 0:  # the tree's root is spared, as a keeper is
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(attempt.pidfd, number)


def confine(attempt: Attempt, cores: tuple[int, ...]) -> None:
    """Hold every thread of an attempt's tree to these cores."""
    members = tree_of(
        attempt.keeper_pid, attempt.keeper_start, cgroup=attempt.cgroup, entries=scan()
    )
    with contextlib.suppress(PermissionError):
        set_affinity_of_tree(members, cores)
