"""Cores: which this process may use, how busy they are, confining a tree of processes to some."""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from headway.system.hierarchies import ROOT, Hierarchy, discover_hierarchies
from headway.system.procfs import PROC, CpuTimes, ProcessEntry, read_or_none, start_ticks

_CPUSET_FILES = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
_CONFINE_ROUNDS = 4


def parse_cpu_list(text: str) -> frozenset[int]:
    """The cores in the kernel's list format.

    Raises:
        ValueError: The text is not such a list.

    >>> sorted(parse_cpu_list("0-2,5"))
    [0, 1, 2, 5]
    """
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ValueError(f"{text.strip()!r} is not a list of cores such as 0-2,5")
        cores.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(cores)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Cores in the form that cpuset files and taskset take.

    >>> format_cpu_list([5, 2, 0, 1])
    '0-2,5'
    """
    spans: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in spans)


def allowed_cores(
    proc: Path = PROC,
    *,
    root: Path = ROOT,
    pid: int | None = None,
    hierarchies: Sequence[Hierarchy] | None = None,
    affinity: Collection[int] | None = None,
) -> tuple[int, ...]:
    """The cores this process may run on: its affinity within the cpuset it inherited, in order.

    Args:
        proc: Where procfs is mounted.
        root: Put before mount points, see `discover_hierarchies`.
        pid: The process that ``proc/self`` speaks of; by default this one.
        hierarchies: What `discover_hierarchies` gave, where it is known already.
        affinity: Instead of asking the kernel for our affinity.
    """
    if hierarchies is None:
        hierarchies = discover_hierarchies(proc, root=root, pid=pid)
    allowed = set(os.sched_getaffinity(0) if affinity is None else affinity)
    for hierarchy in hierarchies:
        for folder in hierarchy.levels()[:1]:
            texts = (read_or_none(folder / name) for name in _CPUSET_FILES)
            cpuset = next((parse_cpu_list(text.decode()) for text in texts if text), None)
            # An empty cpuset.cpus in v2 means "as my parent".
            if cpuset:
                allowed &= cpuset
    return tuple(sorted(allowed))


def quota_cores(
    proc: Path = PROC,
    *,
    root: Path = ROOT,
    pid: int | None = None,
    hierarchies: Sequence[Hierarchy] | None = None,
) -> float | None:
    """The CPU time we may use as a number of cores (1.5 = one and a half), or None without a quota.

    The smallest quota of our control group and those above it; containers get theirs this way.
    """
    if hierarchies is None:
        hierarchies = discover_hierarchies(proc, root=root, pid=pid)
    quotas = [
        quota
        for hierarchy in hierarchies
        for folder in hierarchy.levels()
        if (quota := _quota(folder, hierarchy.version)) is not None
    ]
    return min(quotas, default=None)


def thread_count(pid: int, proc: Path = PROC) -> int:
    """How many threads a process has now; 0 where it has ended."""
    try:
        return len(os.listdir(proc / str(pid) / "task"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0


def set_affinity_of_tree(
    entries: Iterable[ProcessEntry], cpus: Collection[int], *, proc: Path = PROC
) -> int:
    """Confine every thread of these processes to some cores; gives the number of threads confined.

    Threads and processes started later inherit it. Processes that ended, or whose pid now names
    another process, are passed over.

    Raises:
        PermissionError: A process belongs to another user.
        ValueError: No core was given.
    """
    if not cpus:
        raise ValueError("a tree of processes can't be confined to no cores; name at least one")
    confined = 0
    for found in entries:
        done: set[str] = set()
        # A thread may start another between our listing and its own confinement: list again until
        # nothing new shows. Those started by confined threads inherit.
        for _ in range(_CONFINE_ROUNDS):
            if start_ticks(found.pid, proc) != found.start_ticks:
                break
            new = set(_threads(found.pid, proc)) - done
            if not new:
                break
            for thread in new:
                confined += _confine(int(thread), cpus)
            done |= new
    return confined


def cores_busy(
    before: Mapping[int, CpuTimes], after: Mapping[int, CpuTimes], cpus: Iterable[int] | None = None
) -> float:
    """How many of these cores were busy on average between two readings of `cpu_times`.

    >>> cores_busy({0: CpuTimes(10, 100)}, {0: CpuTimes(60, 200)})
    0.5
    """
    busy = 0.0
    for cpu in after if cpus is None else cpus:
        if cpu in before and cpu in after:  # a core may be taken offline
            passed = after[cpu].total_ticks - before[cpu].total_ticks
            worked = after[cpu].busy_ticks - before[cpu].busy_ticks
            busy += min(1.0, max(0.0, worked / passed)) if passed > 0 else 0.0
    return busy


def pressure(kind: Literal["cpu", "memory", "io"], proc: Path = PROC) -> float | None:
    """Percent of the last 10 s in which something waited for this, or None where not measured."""
    text = read_or_none(proc / "pressure" / kind)
    match = re.search(rb"^some avg10=([0-9.]+)", text or b"", re.MULTILINE)
    return float(match[1]) if match else None


def _quota(folder: Path, version: int) -> float | None:
    if version == 2:
        words = (read_or_none(folder / "cpu.max") or b"").split()
    else:
        words = [
            (read_or_none(folder / name) or b"").strip()
            for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        ]
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None  # "max", -1, or no CPU controller here
    return int(words[0]) / int(words[1])


def _threads(pid: int, proc: Path) -> list[str]:
    try:
        return os.listdir(proc / str(pid) / "task")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _confine(thread: int, cpus: Collection[int]) -> int:
    try:
        os.sched_setaffinity(thread, cpus)
    except ProcessLookupError:
        return 0
    return 1
