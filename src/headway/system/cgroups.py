"""Control groups of our own, a folder a run and a group an attempt: v1, hybrid and v2 machines.

A group of an attempt gives three things: proof of an out-of-memory kill (its own counter starts at
0), a cap on memory and cores, and a list of processes that no fork, session or emptied environment
leaves. All are made below the group this process is in; nothing that the machine or its
administrator set up is changed.

[Note: what v2 allows]
A v2 group with processes of its own can't hand controllers on to groups below it. So memory is
usable only where it is handed on already (the machine's root group), or where our group holds this
process alone and belongs to us: then this process moves into a leaf first. Killing a group as a
whole needs no controller and works in every v2 group that we may write.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.system.group import Branch, Cgroup, remove_branches, version_of, write_text
from headway.system.hierarchies import ROOT, Hierarchy, discover_hierarchies, words_of
from headway.system.procfs import PROC, read_or_none

CONTROLLERS = ("freezer", "memory", "cpuset")
"""What can be asked for; "freezer" stands for killing a group as a whole, whatever the version."""
PREFIX = "headway-"
_LEAF = "headway-supervisor"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


class CgroupUnusable(OSError):
    """A controller was asked for that can't be used here; the message says why."""


@dataclass(frozen=True, slots=True)
class Cgroups:
    """What can be done with control groups from where this process stands."""

    usable: Mapping[str, str]
    """Each of `CONTROLLERS` with "" where it is usable, else the reason in words."""
    bases: Mapping[str, Path]
    """The folder to nest under, for each usable controller."""
    make_folder: Callable[[Path], None] = os.mkdir
    remove_folder: Callable[[Path], None] = os.rmdir
    pid: int = field(default_factory=os.getpid)

    @classmethod
    def discover(
        cls,
        proc: Path = PROC,
        *,
        root: Path = ROOT,
        pid: int | None = None,
        hierarchies: Sequence[Hierarchy] | None = None,
        make_folder: Callable[[Path], None] = os.mkdir,
        remove_folder: Callable[[Path], None] = os.rmdir,
    ) -> "Cgroups":
        """Find out what is usable, without changing anything.

        Args:
            proc: Where procfs is mounted.
            root: Put before mount points, so that a recorded tree can stand for the machine.
            pid: The process that ``proc/self`` speaks of; by default this one.
            hierarchies: What `discover_hierarchies` gave, where it is known already.
            make_folder: Makes a group; a recorded tree plays the kernel's part here.
            remove_folder: Removes a group.
        """
        pid = os.getpid() if pid is None else pid
        if hierarchies is None:
            hierarchies = discover_hierarchies(proc, root=root, pid=pid)
        usable, bases = {}, {}
        for controller in CONTROLLERS:
            reason, base = _find_base(controller, hierarchies, pid)
            usable[controller] = reason
            if base is not None:
                bases[controller] = base
        return cls(usable, bases, make_folder, remove_folder, pid)

    def create_run(
        self, run_id: str, controllers: Sequence[str] = ("freezer", "memory")
    ) -> "RunGroup":
        """Make the folder that holds a run's attempts, or open it where it is there already.

        Args:
            run_id: Names the folder: letters, digits, dots, underscores and hyphens.
            controllers: Some of `CONTROLLERS`.

        Raises:
            CgroupUnusable: One of the controllers can't be used here.
            OSError: The kernel refused.
        """
        self._check(run_id, controllers)
        branches = self._branches(run_id, controllers)
        for branch in branches:
            if branch.version == 2:
                self._hand_on(branch.folder.parent, branch.domain_controllers)
            if not branch.folder.is_dir():
                self.make_folder(branch.folder)
            branch.inherit_cpuset()
            if branch.version == 2:
                _enable(branch.folder, branch.domain_controllers)
        return RunGroup(run_id, branches, self.make_folder, self.remove_folder)

    def open_run(
        self, run_id: str, controllers: Sequence[str] = ("freezer", "memory")
    ) -> "RunGroup | None":
        """The folders of a run that was made before, from the same place, or None."""
        self._check(run_id, controllers)
        branches = self._branches(run_id, controllers)
        if not all(branch.folder.is_dir() for branch in branches):
            return None
        return RunGroup(run_id, branches, self.make_folder, self.remove_folder)

    def _check(self, run_id: str, controllers: Sequence[str]) -> None:
        _check_name(run_id)
        for controller in controllers:
            if controller not in CONTROLLERS:
                known = ", ".join(CONTROLLERS)
                raise ValueError(f"no controller {controller!r} is known here; known are {known}")
            if self.usable[controller]:
                raise CgroupUnusable(
                    f"control groups: {controller} can't be used: {self.usable[controller]}"
                )

    def _branches(self, run_id: str, controllers: Sequence[str]) -> tuple[Branch, ...]:
        by_base: dict[Path, set[str]] = {}
        # In the order of CONTROLLERS: a child joins what can kill it before anything else.
        for controller in CONTROLLERS:
            if controller in controllers:
                by_base.setdefault(self.bases[controller], set()).add(controller)
        return tuple(
            Branch(version_of(base), frozenset(names), base / (PREFIX + run_id))
            for base, names in by_base.items()
        )

    def _hand_on(self, base: Path, controllers: frozenset[str]) -> None:
        """Enable controllers below a v2 group, see [Note: what v2 allows]."""
        missing = controllers - words_of(base / "cgroup.subtree_control")
        if not missing:
            return
        leaf = base / _LEAF
        if not leaf.is_dir():
            self.make_folder(leaf)
        write_text(leaf / "cgroup.procs", str(self.pid))
        _enable(base, missing)


@dataclass(frozen=True, slots=True)
class RunGroup:
    """The folders of one run; its attempts' groups are made and found here."""

    run_id: str
    branches: tuple[Branch, ...]
    make_folder: Callable[[Path], None] = os.mkdir
    remove_folder: Callable[[Path], None] = os.rmdir

    def create(
        self,
        name: str,
        *,
        memory_limit_bytes: int | None = None,
        cpus: Sequence[int] | None = None,
    ) -> Cgroup:
        """Make an attempt's group. It must be new: an old one's counters tell of another attempt.

        Raises:
            FileExistsError: The group is there already.
            CgroupUnusable: A limit needs a controller that this run doesn't have.
            OSError: The kernel refused; nothing is left behind.
        """
        _check_name(name)
        self._need("memory", memory_limit_bytes)
        self._need("cpuset", cpus)
        group = self._group(name)
        made: list[Branch] = []
        try:
            for branch in group.branches:
                self.make_folder(branch.folder)
                made.append(branch)
                branch.inherit_cpuset()
            if memory_limit_bytes is not None:
                group.set_memory_limit(memory_limit_bytes)
            if cpus is not None:
                group.set_cpus(cpus)
        except BaseException:
            remove_branches(made, self.remove_folder)
            raise
        return group

    def open(self, name: str) -> Cgroup | None:
        """An attempt's group that was made before, or None where it is gone."""
        _check_name(name)
        group = self._group(name)
        return group if group.exists() else None

    def names(self) -> list[str]:
        """The attempts that have a group, in order."""
        found: set[str] = set()
        for branch in self.branches:
            if branch.folder.is_dir():
                found.update(item.name for item in os.scandir(branch.folder) if item.is_dir())
        return sorted(found)

    def remove(self) -> None:
        """Remove the run's folders and all groups in them.

        Raises:
            OSError: A group still holds processes (EBUSY).
        """
        remove_branches(self.branches, self.remove_folder)

    def _group(self, name: str) -> Cgroup:
        return Cgroup(
            name,
            tuple(
                Branch(branch.version, branch.controllers, branch.folder / name)
                for branch in self.branches
            ),
            self.remove_folder,
        )

    def _need(self, controller: str, value: object) -> None:
        if value is not None and not any(controller in one.controllers for one in self.branches):
            raise CgroupUnusable(f"the run {self.run_id} was made without {controller}")


def reopen(folders: Mapping[str, str]) -> Cgroup | None:
    """An attempt's group from the folders that `Cgroup.folders` gave, or None where it is gone.

    A supervisor that resumes a run may stand in another group than the one that made it, so names
    alone would not find it.

    Raises:
        ValueError: A folder isn't one of Headway's own.
    """
    by_folder: dict[Path, set[str]] = {}
    for controller, folder in folders.items():
        path = Path(folder)
        if not path.parent.name.startswith(PREFIX) or ".." in path.parts:
            raise ValueError(f"{folder!r} is no control group of Headway's: it is not below one")
        by_folder.setdefault(path, set()).add(controller)
    branches = [
        Branch(version_of(folder), frozenset(names), folder) for folder, names in by_folder.items()
    ]
    group = Cgroup(branches[0].folder.name, tuple(branches)) if branches else None
    return group if group is not None and group.exists() else None


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} can't name a control group: use letters, digits, dots, underscores and "
            "hyphens, at most 200, not starting with a dot or hyphen"
        )


def _enable(folder: Path, controllers: frozenset[str]) -> None:
    missing = controllers - words_of(folder / "cgroup.subtree_control")
    if missing:
        text = " ".join(f"+{controller}" for controller in sorted(missing))
        write_text(folder / "cgroup.subtree_control", text)


def _find_base(
    controller: str, hierarchies: Sequence[Hierarchy], pid: int
) -> tuple[str, Path | None]:
    """The reason why a controller can't be used, or "" and the folder to nest under."""
    reasons = []
    for hierarchy in hierarchies:
        if hierarchy.version == 1 and controller not in hierarchy.controllers:
            continue
        base = hierarchy.own
        if base is not None and base.name == _LEAF:
            base = base.parent  # this process moved itself there for an earlier run
        reason = _why_not(controller, hierarchy, base, pid)
        if not reason:
            return "", base
        reasons.append(reason)
    # The first one is the hierarchy that has the controller; v2 is asked last and of everything.
    return (reasons[0] if reasons else "no control groups are mounted"), None


def _why_not(controller: str, hierarchy: Hierarchy, base: Path | None, pid: int) -> str:
    if base is None:
        return "the group of this process can't be seen from here"
    if hierarchy.read_only:
        return "not writable: mounted read-only"
    if not os.access(base, os.W_OK | os.X_OK, effective_ids=True):
        return f"not writable: {base} belongs to another user"
    if hierarchy.version == 1:
        return ""
    if controller == "freezer":
        return "" if (base / "cgroup.procs").exists() else "v2: too old to list processes"
    return _why_not_v2(controller, base, pid)


def _why_not_v2(controller: str, base: Path, pid: int) -> str:
    """Whether groups below a v2 group can have a controller, see [Note: what v2 allows]."""
    if controller in words_of(base / "cgroup.subtree_control"):
        return ""
    if controller not in words_of(base / "cgroup.controllers"):
        return f"v2: the {controller} controller is not delegated to us"
    if not (base / "cgroup.events").exists():  # only the machine's root group has none
        return (
            f"v2: the machine's root group does not hand {controller} on, and that is not "
            "Headway's to change"
        )
    members = {int(word) for word in (read_or_none(base / "cgroup.procs") or b"").split()}
    if members - {pid}:
        return (
            "v2: our group holds other processes, so nothing can be limited below it; start with "
            "`systemd-run --user --scope -p Delegate=yes headway ...`"
        )
    control = base / "cgroup.subtree_control"
    if not os.access(control, os.W_OK, effective_ids=True):
        return f"v2: the {controller} controller is not delegated to us"
    return ""
