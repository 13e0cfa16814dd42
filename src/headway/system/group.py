"""One control group of an attempt: its counters, its limits, its processes, its end."""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.system.cores import format_cpu_list
from headway.system.hierarchies import read_limit, read_table
from headway.system.memory import meminfo, unreclaimable_bytes
from headway.system.procfs import read_or_none

# A group stays busy for some milliseconds after its last process ended.
_REMOVE_TRIES = 20
_REMOVE_PAUSE_S = 0.02
_FREEZE_S = 0.2
_POLL_S = 0.005
# Descriptors held at once while signalling: well below the usual limit of 1,024.
_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Branch:
    """A group's folder in one hierarchy, with what was asked of it there."""

    version: int
    controllers: frozenset[str]
    folder: Path

    @property
    def domain_controllers(self) -> frozenset[str]:
        """What must be handed on in v2; killing needs no controller there."""
        return self.controllers - {"freezer"}

    def inherit_cpuset(self) -> None:
        """Give a new v1 cpuset its parent's cores and memory nodes; without them none may join."""
        if self.version == 1 and "cpuset" in self.controllers:
            for name in ("cpuset.mems", "cpuset.cpus"):
                inherited = read_or_none(self.folder.parent / name) or b""
                write_text(self.folder / name, inherited.decode())


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The control group of one attempt, in one folder per hierarchy."""

    name: str
    branches: tuple[Branch, ...]
    remove_folder: Callable[[Path], None] = os.rmdir

    def folders(self) -> dict[str, str]:
        """The folder of each controller, for `reopen` by a later supervisor."""
        return {
            controller: str(branch.folder)
            for branch in self.branches
            for controller in sorted(branch.controllers)
        }

    def exists(self) -> bool:
        """Whether every folder is there."""
        return all(branch.folder.is_dir() for branch in self.branches)

    def procs_files(self) -> list[str]:
        """Where a child writes "0" to join, in this order, before it becomes the command.

        The first join after a quiet time waits some 10 to 20 ms for all cores to pass a safe point;
        those that follow soon take under 0.1 ms. So the child does it, never the supervisor.
        """
        return [str(branch.folder / "cgroup.procs") for branch in self.branches]

    @property
    def memory_folder(self) -> Path | None:
        """The folder with the memory files, or None where the group has no memory controller."""
        branch = self._branch("memory")
        return None if branch is None else branch.folder

    def oom_kills(self) -> int | None:
        """How many of its processes the kernel killed for memory, or None where that isn't counted.

        The only proof there is: exit code 137, the fail count and the kernel's peak all mislead.
        """
        branch = self._branch("memory")
        if branch is None:
            return None
        if branch.version == 2:  # counts the groups below too
            return read_table(branch.folder / "memory.events").get("oom_kill")
        # v1 counts each group apart, and a job with enough rights may have made groups below.
        counts = [
            read_table(folder / "memory.oom_control").get("oom_kill")
            for folder in _folders_below(branch.folder)
        ]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def memory_bytes(self) -> int | None:
        """Anonymous and shared memory in use, without file cache; None without the controller."""
        branch = self._branch("memory")
        return None if branch is None else unreclaimable_bytes(branch.folder, branch.version)

    def peak_with_cache_bytes(self) -> int | None:
        """The kernel's own peak, file cache included: up to the limit where a job reads files."""
        branch = self._branch("memory")
        if branch is None:
            return None
        name = "memory.peak" if branch.version == 2 else "memory.max_usage_in_bytes"
        return read_limit(branch.folder / name)

    def set_memory_limit(self, limit_bytes: int | None, *, swap_bytes: int | None = None) -> None:
        """Cap memory, swap not allowed on top; None takes the cap away.

        In v2 a limit below what is in use kills at once; v1 refuses it with EBUSY.

        Args:
            limit_bytes: The cap.
            swap_bytes: Size of the machine's swap; read from the machine by default.

        Raises:
            OSError: The group has no memory controller (ENOTSUP), or the kernel refused.
        """
        branch = self._branch("memory")
        if branch is None:
            raise OSError(errno.ENOTSUP, "the group has no memory controller", self.name)
        if branch.version == 2:
            if limit_bytes is not None and (branch.folder / "memory.swap.max").exists():
                write_text(branch.folder / "memory.swap.max", "0")
            text = "max" if limit_bytes is None else str(limit_bytes)
            write_text(branch.folder / "memory.max", text)
            return
        swap = meminfo().get("SwapTotal", 0) if swap_bytes is None else swap_bytes
        _set_limit_v1(branch.folder, -1 if limit_bytes is None else limit_bytes, swap)

    def set_cpus(self, cpus: Sequence[int]) -> None:
        """Confine the group to some cores.

        Raises:
            OSError: The group has no cpuset controller (ENOTSUP), or the kernel refused.
        """
        branch = self._branch("cpuset")
        if branch is None:
            raise OSError(errno.ENOTSUP, "the group has no cpuset controller", self.name)
        write_text(branch.folder / "cpuset.cpus", format_cpu_list(cpus))

    def join(self, pid: int) -> None:
        """Move a process into the group."""
        for path in self.procs_files():
            write_text(Path(path), str(pid))

    def processes(self) -> list[int]:
        """The pids in the group and in groups below it, in any of its folders, in order."""
        pids: set[int] = set()
        for branch in self.branches:
            for folder in _folders_below(branch.folder):
                pids.update(map(int, (read_or_none(folder / "cgroup.procs") or b"").split()))
        # The kernel writes 0 for a process of another pid namespace; as a target of a signal that
        # would mean ourselves.
        return sorted(pids - {0})

    def signal(self, number: int, spare: Collection[int] = ()) -> list[int]:
        """Send a signal to every process in the group but some; gives the pids it was sent to."""
        sent = []
        pids = [pid for pid in self.processes() if pid not in spare]
        for start in range(0, len(pids), _CHUNK):
            sent += self._signal_some(pids[start : start + _CHUNK], number)
        return sent

    def kill_once(
        self, spare: Collection[int] = (), *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Kill everything in the group but some, without waiting for the end of it."""
        if self._kill_as_a_whole(spare):
            self.signal(signal.SIGKILL, spare)  # what joined another of our folders only
            return
        with self._frozen(sleep):
            self.signal(signal.SIGKILL, spare)

    def kill(
        self,
        timeout_s: float,
        *,
        spare: Collection[int] = (),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> list[int]:
        """Kill everything in the group but some, and wait until it is empty; gives what is left.

        Something is left only where a process hangs in the kernel, or belongs to another user.
        """
        deadline = clock() + timeout_s
        while True:
            left = [pid for pid in self.processes() if pid not in spare]
            if not left:
                return []
            self.kill_once(spare, sleep=sleep)
            if clock() >= deadline:
                return [pid for pid in self.processes() if pid not in spare]
            sleep(_POLL_S)

    def remove(self, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Remove the group's folders; one that is gone already is no error.

        Raises:
            OSError: It still holds processes (EBUSY) after 0.4 s of trying.
        """
        remove_branches(self.branches, self.remove_folder, sleep=sleep)

    def _branch(self, controller: str) -> Branch | None:
        return next((one for one in self.branches if controller in one.controllers), None)

    def _signal_some(self, pids: Iterable[int], number: int) -> list[int]:
        opened: dict[int, int] = {}
        sent = []
        try:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    opened[pid] = os.pidfd_open(pid)
            # Looked up again after opening: a pid that changed hands in between is not in it.
            members = set(self.processes())
            for pid, descriptor in opened.items():
                if pid in members:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(descriptor, number)
                        sent.append(pid)
        finally:
            for descriptor in opened.values():
                os.close(descriptor)
        return sent

    def _kill_as_a_whole(self, spare: Collection[int]) -> bool:
        branch = self._branch("freezer")
        if branch is None or branch.version == 1 or not (branch.folder / "cgroup.kill").exists():
            return False
        if any(pid in spare for pid in self.processes()):
            return False
        with contextlib.suppress(FileNotFoundError):
            write_text(branch.folder / "cgroup.kill", "1")
        return True

    @contextlib.contextmanager
    def _frozen(self, sleep: Callable[[float], None]) -> Iterator[None]:
        """Nothing in the group runs or forks inside; without a freezer, an empty gesture."""
        branch = self._branch("freezer")
        if branch is None or not branch.folder.is_dir():
            yield
            return
        if branch.version == 1:
            file, freeze, thaw = "freezer.state", "FROZEN", "THAWED"
        else:
            file, freeze, thaw = "cgroup.freeze", "1", "0"
        try:
            with contextlib.suppress(OSError):  # removed meanwhile: nothing left to freeze
                write_text(branch.folder / file, freeze)
                self._await_frozen(branch, sleep)
            yield
        finally:
            # In v1 a kill acts only after this, so it must happen whatever went wrong.
            with contextlib.suppress(FileNotFoundError):
                write_text(branch.folder / file, thaw)

    def _await_frozen(self, branch: Branch, sleep: Callable[[float], None]) -> None:
        # A process that hangs in the kernel never freezes: go on after a while, the next round
        # finds what escaped.
        for _ in range(int(_FREEZE_S / _POLL_S)):
            if branch.version == 1:
                if (read_or_none(branch.folder / "freezer.state") or b"").strip() == b"FROZEN":
                    return
            elif read_table(branch.folder / "cgroup.events").get("frozen", 1):
                return
            sleep(_POLL_S)


def version_of(folder: Path) -> int:
    """2 where the folder is a group of a v2 hierarchy, else 1."""
    return 2 if (folder / "cgroup.controllers").exists() else 1


def write_text(path: Path, text: str) -> None:
    """Write to a kernel file in one call; it is never created.

    Raises:
        OSError: The kernel refused; the error names the file.
    """
    # Kernel files ignore the truncation; in a recorded tree it makes a write whole.
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def remove_branches(
    branches: Iterable[Branch],
    remove_folder: Callable[[Path], None] = os.rmdir,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Remove groups with all groups below them, deepest first, waiting while they are busy."""
    for branch in branches:
        for folder in reversed(_folders_below(branch.folder)):
            _remove(folder, remove_folder, sleep)


def _remove(
    folder: Path, remove_folder: Callable[[Path], None], sleep: Callable[[float], None]
) -> None:
    for left in reversed(range(_REMOVE_TRIES)):
        try:
            remove_folder(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or left == 0:
                raise
            sleep(_REMOVE_PAUSE_S)
        else:
            return


def _folders_below(folder: Path) -> list[Path]:
    """A group's folder and those of the groups below it, parents first; empty where it is gone."""
    if not folder.is_dir():
        return []
    found = [folder]
    for one in found:  # grows while it is walked
        with contextlib.suppress(FileNotFoundError), os.scandir(one) as items:
            found.extend(Path(item.path) for item in items if item.is_dir(follow_symlinks=False))
    return found


def _set_limit_v1(folder: Path, limit_bytes: int, swap_bytes: int) -> None:
    """Write memory and memory-plus-swap in the order the kernel takes: the sum is never smaller."""
    names = ["memory.limit_in_bytes"]
    if swap_bytes > 0 and (folder / "memory.memsw.limit_in_bytes").exists():
        names.append("memory.memsw.limit_in_bytes")
    current = read_limit(folder / "memory.limit_in_bytes")
    if limit_bytes < 0 or (current is not None and limit_bytes > current):
        names.reverse()
    for name in names:
        write_text(folder / name, str(limit_bytes))
