"""Memory of the machine and of the limits this process inherited; swap is never counted as room."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.system.hierarchies import (
    ROOT,
    Hierarchy,
    discover_hierarchies,
    number_behind,
    read_limit,
)
from headway.system.procfs import PROC, read_or_none


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The smallest amount of memory that may be used here, and who says so."""

    limit_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class Headroom:
    """How much memory is left under the limit that is nearest to being reached."""

    limit_bytes: int
    used_bytes: int
    """In use and not reclaimable: anonymous and shared memory, no file cache."""
    free_bytes: int
    source: str
    """The limit in words, e.g. "memory of the machine" or "limit of the control group /x"."""


@dataclass(frozen=True, slots=True)
class _Level:
    """One control group whose limit holds for this process."""

    folder: Path
    version: int
    name: str

    def limit_bytes(self) -> int | None:
        if self.version == 2:
            # Past memory.high a group is throttled and reclaimed: no place to plan for.
            names: tuple[str, ...] = ("memory.max", "memory.high")
        else:
            names = ("memory.limit_in_bytes",)
        files = (f"{self.folder}/{name}" for name in names)
        limits = [limit for file in files if (limit := read_limit(file)) is not None]
        return min(limits, default=None)

    def used_bytes(self) -> int:
        return unreclaimable_bytes(self.folder, self.version)


class MemoryGauge:
    """Reads limits and use of memory; its paths are resolved once, so ten times a second is cheap.

    Limits and use are read anew at each call, since an administrator may change them.
    """

    def __init__(
        self,
        proc: Path = PROC,
        *,
        root: Path = ROOT,
        pid: int | None = None,
        hierarchies: Sequence[Hierarchy] | None = None,
    ) -> None:
        if hierarchies is None:
            hierarchies = discover_hierarchies(proc, root=root, pid=pid)
        self._proc = proc
        self._levels = [
            _Level(folder, hierarchy.version, _name(folder, hierarchy))
            for hierarchy in hierarchies
            if _counts_memory(hierarchy)
            for folder in hierarchy.levels()
        ]

    def limit(self) -> MemoryLimit:
        """The smallest of the machine's memory and the limits of our and upper control groups."""
        limits = [MemoryLimit(meminfo(self._proc)["MemTotal"], "memory of the machine")]
        limits += [MemoryLimit(limit, source) for limit, source, _ in self._limits()]
        return min(limits, key=lambda limit: limit.limit_bytes)

    def headroom(self) -> Headroom:
        """What is left before the first of all limits is reached, others' use included."""
        total, available = _total_and_available_bytes(self._proc)
        rooms = [Headroom(total, total - available, available, "memory of the machine")]
        for limit, source, level in self._limits():
            used = level.used_bytes()
            rooms.append(Headroom(limit, used, max(0, limit - used), source))
        return min(rooms, key=lambda room: room.free_bytes)

    def _limits(self) -> list[tuple[int, str, _Level]]:
        limits = []
        for level in self._levels:
            limit = level.limit_bytes()
            # v1 writes "no limit" as a number near 2^63.
            if limit is not None and limit < 1 << 60:
                limits.append((limit, f"limit of the control group {level.name}", level))
        if self._levels and self._levels[0].version == 1:
            own = self._levels[0]
            stat = read_or_none(f"{own.folder}/memory.stat") or b""
            above = number_behind(stat, b"hierarchical_memory_limit")
            lowest = min((limit for limit, _, _ in limits), default=1 << 60)
            if above is not None and above < lowest:
                # The use under a group that we can't see is unknown; our own is its lower bound.
                limits.append((above, "limit of a control group above the visible ones", own))
        return limits


def meminfo(proc: Path = PROC) -> dict[str, int]:
    """``/proc/meminfo`` in bytes; entries without a unit are left out."""
    sizes = {}
    for line in (proc / "meminfo").read_text().splitlines():
        name, _, words = line.partition(":")
        if words.endswith(" kB"):
            sizes[name] = int(words[:-3]) * 1024
    return sizes


def _total_and_available_bytes(proc: Path) -> tuple[int, int]:
    """The machine's memory and what is available of it."""
    content = (proc / "meminfo").read_bytes()
    total = number_behind(content, b"MemTotal:")
    # MemAvailable is missing before Linux 3.14; free memory is then the honest lower bound.
    available = number_behind(content, b"MemAvailable:")
    if available is None:
        available = number_behind(content, b"MemFree:")
    return (total or 0) * 1024, (available or 0) * 1024


def unreclaimable_bytes(folder: Path, version: int) -> int:
    """Anonymous and shared memory of a control group and the groups below it, without file cache.

    It is what a limit kills for. The kernel's own peak counts the cache too, up to the limit, and
    so says little about what a job needs. The machine's root group has no such file in v2: 0.
    """
    stat = read_or_none(f"{folder}/memory.stat") or b""
    names = (b"anon", b"shmem") if version == 2 else (b"total_rss", b"total_shmem")
    return sum(number_behind(stat, name) or 0 for name in names)


def _counts_memory(hierarchy: Hierarchy) -> bool:
    if hierarchy.version == 1:
        return "memory" in hierarchy.controllers
    # A v2 group without the memory controller may still stand below one that has it.
    return any(os.path.exists(folder / "memory.max") for folder in hierarchy.levels())


def _name(folder: Path, hierarchy: Hierarchy) -> str:
    return "/" + str(folder.relative_to(hierarchy.mount)).removeprefix(".")
