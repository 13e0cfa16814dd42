"""Where this process stands in the machine's control groups, for v1, hybrid and v2 machines.

``/proc/self/cgroup`` gives a path per hierarchy, ``/proc/self/mountinfo`` says where each hierarchy
can be seen. In a container the two need not fit: a bind mount shows a part of the tree (the mount's
root is then not ``/``), a namespace shortens the paths. So every candidate is checked against the
group's own list of processes before it is believed.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from headway.system.procfs import PROC, read_or_none

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One tree of control groups as seen from this process."""

    version: int
    """1 or 2."""
    controllers: frozenset[str]
    """v1: what is mounted here; v2: what the kernel offers in our own group."""
    mount: Path
    """The topmost group that can be seen."""
    own: Path | None
    """The folder of the group that this process is in, or None where it can't be seen."""
    read_only: bool

    def levels(self) -> list[Path]:
        """The folders from our own group up to the topmost that can be seen."""
        if self.own is None:
            return []
        above = [folder for folder in self.own.parents if folder.is_relative_to(self.mount)]
        return [self.own, *above]


@dataclass(frozen=True, slots=True)
class _Mount:
    root: str
    point: str
    kind: str
    options: frozenset[str]
    super_options: frozenset[str]


def discover_hierarchies(
    proc: Path = PROC, *, root: Path = ROOT, pid: int | None = None
) -> list[Hierarchy]:
    """Every hierarchy that is mounted here, v1 ones first.

    Args:
        proc: Where procfs is mounted.
        root: Put before each mount point, so that a recorded tree can stand for the machine.
        pid: The process that ``proc/self`` speaks of; by default this one.
    """
    own_paths = parse_own_groups((read_or_none(proc / "self/cgroup") or b"").decode())
    mounts = _parse_mounts((read_or_none(proc / "self/mountinfo") or b"").decode())
    pid = os.getpid() if pid is None else pid
    found: dict[frozenset[str], Hierarchy] = {}
    for mount in mounts:
        version = 2 if mount.kind == "cgroup2" else 1
        names = mount.super_options.intersection(own_paths) if version == 1 else frozenset({""})
        if not names or not names <= own_paths.keys():
            continue
        hierarchy = _hierarchy(version, names, mount, own_paths[min(names)], root, pid)
        known = found.get(names)
        # The same hierarchy may be mounted more than once; one that shows our group wins.
        if known is None or (known.own is None and hierarchy.own is not None):
            found[names] = hierarchy
    return sorted(found.values(), key=lambda hierarchy: hierarchy.version)


def parse_own_groups(text: str) -> dict[str, str]:
    r"""The paths in ``/proc/<pid>/cgroup`` by controller; v2's own path stands under "".

    >>> parse_own_groups("4:cpu,cpuacct:/a\n1:name=systemd:/\n0::/b:c\n")
    {'cpu': '/a', 'cpuacct': '/a', 'name=systemd': '/', '': '/b:c'}
    """
    paths = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def read_limit(path: str | Path) -> int | None:
    """The number in a limit file; None where the file is missing or says there is no limit."""
    text = (read_or_none(path) or b"").strip()
    return int(text) if text.lstrip(b"-").isdigit() and int(text) >= 0 else None


def read_table(path: Path) -> dict[str, int]:
    """A file of "name number" lines, as memory.stat and memory.events are; empty where missing."""
    table = {}
    for line in (read_or_none(path) or b"").splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdigit():
            table[words[0].decode()] = int(words[1])
    return table


def number_behind(table: bytes, name: bytes) -> int | None:
    r"""One number of a "name number" file, without reading the other lines: for what is read often.

    >>> number_behind(b"cache 1\nrss 2 kB\n", b"rss"), number_behind(b"total_rss 2\n", b"rss")
    (2, None)
    """
    start = table.find(b"\n" + name + b" ") + 1
    if start == 0 and not table.startswith(name + b" "):
        return None
    end = table.find(b"\n", start)
    words = table[start : end if end >= 0 else len(table)].split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None


def words_of(path: Path) -> frozenset[str]:
    """The words in a file such as cgroup.controllers; empty where it is missing."""
    return frozenset((read_or_none(path) or b"").decode().split())


def mount_points(proc: Path = Path("/proc")) -> list[Path]:
    """Where anything is mounted, as this process sees it."""
    lines = (read_or_none(proc / "self/mountinfo") or b"").decode(errors="surrogateescape")
    return [Path(_unescape(line.split()[4])) for line in lines.splitlines()]


def _parse_mounts(text: str) -> list[_Mount]:
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if separator and len(left) >= 6 and len(right) >= 3 and right[0] in ("cgroup", "cgroup2"):
            options, super_options = left[5].split(","), right[2].split(",")
            mounts.append(
                _Mount(
                    root=_unescape(left[3]),
                    point=_unescape(left[4]),
                    kind=right[0],
                    options=frozenset(options),
                    super_options=frozenset(super_options),
                )
            )
    return mounts


def _unescape(path: str) -> str:
    """Undo mountinfo's octal escapes of blanks and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _hierarchy(
    version: int, names: frozenset[str], mount: _Mount, own_path: str, root: Path, pid: int
) -> Hierarchy:
    top = root / mount.point.lstrip("/")
    own = _own_folder(top, mount.root, own_path, pid)
    controllers = names if version == 1 or own is None else words_of(own / "cgroup.controllers")
    read_only = "ro" in mount.options or "ro" in mount.super_options
    return Hierarchy(version, controllers - {""}, top, own, read_only)


def _own_folder(top: Path, mount_root: str, own_path: str, pid: int) -> Path | None:
    """The folder of our own group below a mount point, verified by its list of processes."""
    if own_path.startswith("/.."):
        return None  # outside of our namespace
    candidates = [top / own_path.lstrip("/")]
    if own_path == mount_root or own_path.startswith(mount_root.rstrip("/") + "/"):
        candidates.insert(0, top / own_path[len(mount_root.rstrip("/")) :].lstrip("/"))
    candidates.append(top)  # a namespace made after the mount: what is mounted is our own group
    for folder in dict.fromkeys(candidates):
        members = read_or_none(folder / "cgroup.procs")
        if members is not None and str(pid).encode() in members.split():
            return folder
    return None
