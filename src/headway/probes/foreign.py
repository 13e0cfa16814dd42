"""What others take of this machine, observed for a moment.

[Note: foreign cores are counted by the cores, not by the processes]
A container shows only its own processes, but /proc/stat counts the whole host's time. So foreign
use is the busy time of the cores we may use, less that of our own tree; the processes that can be
seen only name who it is.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.core.machine import ForeignUse
from headway.probes.processes import owner_and_command
from headway.system.cores import cores_busy
from headway.system.memory import MemoryGauge
from headway.system.procfs import (
    CLOCK_TICKS,
    PROC,
    CpuTimes,
    ProcessEntry,
    cpu_times,
    descendants,
    pss_bytes,
    scan,
)

_MOST_NAMED = 3
_WORTH_NAMING_CORES = 0.05


@dataclass(frozen=True, slots=True)
class Moment:
    """The machine's processes and the time its cores have spent, at one instant."""

    processes: Mapping[int, ProcessEntry]
    cores: Mapping[int, CpuTimes]


def take_moment(proc: Path = PROC) -> Moment:
    """Read the process table and the cores' times once."""
    return Moment(scan(proc), cpu_times(proc))


def own_tree(moment: Moment, roots: Collection[int]) -> frozenset[int]:
    """The processes of our own: these and everything below them."""
    below = descendants(moment.processes, roots)
    return frozenset(roots) | {entry.pid for tree in below.values() for entry in tree}


def foreign_use(
    before: Moment,
    after: Moment,
    gauge: MemoryGauge,
    *,
    cores: Collection[int],
    own_pids: Collection[int],
    proc: Path = PROC,
) -> ForeignUse:
    """What others used between two moments: cores of ours, and memory within our limit.

    Args:
        before: The first moment.
        after: The second, some time later.
        gauge: Reads the limit on our memory and what is left of it.
        cores: The cores that we may use.
        own_pids: Our own processes, not foreign.
        proc: Where procfs is mounted.

    """
    window_s = _seconds_between(before, after)
    used = _cores_used(before, after, window_s)
    own_cores = sum(used.get(pid, 0.0) for pid in own_pids)
    foreign = {pid: share for pid, share in used.items() if pid not in own_pids}
    return ForeignUse(
        cores=round(max(0.0, cores_busy(before.cores, after.cores, cores) - own_cores), 2),
        memory_bytes=_foreign_memory_bytes(gauge, after, own_pids, proc),
        window_s=window_s,
        busiest=_busiest(foreign, proc),
    )


def _seconds_between(before: Moment, after: Moment) -> float:
    """Seconds that the cores' own clocks counted, which is what shares are shares of."""
    passed = [
        now.total_ticks - before.cores[core].total_ticks
        for core, now in after.cores.items()
        if core in before.cores
    ]
    return max(passed, default=0) / CLOCK_TICKS


def _cores_used(before: Moment, after: Moment, window_s: float) -> dict[int, float]:
    """Cores that each process kept busy; one that began in between is counted from its start."""
    used = {}
    for pid, now in after.processes.items():
        then = before.processes.get(pid)
        same = then is not None and then.start_ticks == now.start_ticks
        ticks = now.cpu_ticks - (then.cpu_ticks if then is not None and same else 0)
        used[pid] = ticks / CLOCK_TICKS / window_s if window_s > 0 else 0.0
    return used


def _foreign_memory_bytes(
    gauge: MemoryGauge, moment: Moment, own_pids: Collection[int], proc: Path
) -> int:
    """What is in use of the memory that we may use at most, less our own.

    Pages that we share with others count as ours in part only: what is left counts as foreign.
    """
    taken = gauge.limit().limit_bytes - gauge.headroom().free_bytes
    own = 0
    for pid in own_pids:
        known = moment.processes.get(pid)
        size = pss_bytes(pid, proc)
        own += size if size is not None else (known.rss_bytes if known is not None else 0)
    return max(0, taken - own)


def _busiest(used: Mapping[int, float], proc: Path) -> tuple[str, ...]:
    """The busiest processes in words, busiest first."""
    words: list[str] = []
    for pid, share in sorted(used.items(), key=lambda item: (-item[1], item[0])):
        if share < _WORTH_NAMING_CORES or len(words) == _MOST_NAMED:
            break
        if (who := owner_and_command(pid, proc=proc)) is not None:
            words.append(f"{who.user}: {who.command} (process {pid}), {share:.1f} cores")
    return tuple(words)
