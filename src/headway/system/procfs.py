"""Processes as the kernel shows them: one pass over ``/proc``, identities that survive pid reuse.

[Note: who a process is]
A pid alone names nobody: it is given again after the process ended. Everywhere in Headway a
process is (pid, start time, boot): field 22 of ``/proc/<pid>/stat`` counts clock ticks since boot,
and the boot id tells one boot from the next. A signal is sent through a pidfd that was opened first
and whose start time was compared *afterwards*: no moment is left in which the pid may change hands.
"""

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks in a second, the unit of CPU and start times in ``/proc``."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
"""Bytes of a memory page, the unit of resident sizes in ``/proc/<pid>/stat``."""

_STAT_BYTES = 4096
_GONE = (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM)


class ProcessEntry(NamedTuple):
    """One process at the moment of a scan (a tuple, since a scan makes hundreds of them)."""

    pid: int
    ppid: int
    state: str
    """One letter: R running, S sleeping, D waiting for a device, T stopped, Z ended."""
    start_ticks: int
    """Clock ticks from the machine's boot to the process's start."""
    threads: int
    cpu_ticks: int
    """CPU time of its own, user and system together."""
    reaped_cpu_ticks: int
    """CPU time of its children that have ended and been waited for."""
    rss_pages: int
    session: int
    name: str
    """The kernel's name for it, at most 15 characters."""

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more, even if its parent has not read the exit code."""
        # A leader that ended while its other threads run on shows Z too, with several threads.
        return self.state in "ZX" and self.threads <= 1

    @property
    def rss_bytes(self) -> int:
        """Resident memory in bytes, pages shared with other processes included."""
        return self.rss_pages * PAGE_BYTES


class CpuTimes(NamedTuple):
    """Busy and total clock ticks of one core since boot."""

    busy_ticks: int
    """Everything but idle and waiting for input or output; time taken by a hypervisor is busy."""
    total_ticks: int


def boot_id(proc: Path = PROC) -> str:
    """The identity of this boot of the machine."""
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def parse_stat(stat: bytes) -> ProcessEntry:
    """Read one line of ``/proc/<pid>/stat``, whatever characters the name holds.

    Raises:
        ValueError: The text is not a whole stat line.

    >>> line = b"7 (a) S 1) S 1 7 9 0 -1 0 0 0 0 0 3 4 5 6 20 0 2 0 99 1000 50 0"
    >>> entry = parse_stat(line)
    >>> entry.name, entry.ppid, entry.session, entry.start_ticks, entry.cpu_ticks, entry.threads
    ('a) S 1', 1, 9, 99, 7, 2)
    """
    opened = stat.find(b"(")
    closed = stat.rfind(b")")
    fields = stat[closed + 2 :].split(None, 22)
    if opened < 0 or len(fields) < 22:
        raise ValueError(f"not a line of /proc/<pid>/stat: {stat[:80]!r}")
    return ProcessEntry(
        int(stat[:opened]),
        int(fields[1]),
        fields[0].decode(),
        int(fields[19]),
        int(fields[17]),
        int(fields[11]) + int(fields[12]),
        int(fields[13]) + int(fields[14]),
        int(fields[21]),
        int(fields[3]),
        stat[opened + 1 : closed].decode(errors="replace"),
    )


def entry(pid: int, proc: Path = PROC) -> ProcessEntry | None:
    """The process with this pid, or None where there is none."""
    stat = read_or_none(f"{proc}/{pid}/stat")
    return parse_stat(stat) if stat else None


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Start time of a process in clock ticks since boot, or None where there is no such process."""
    found = entry(pid, proc)
    return None if found is None else found.start_ticks


def scan(
    proc: Path = PROC, *, known: Mapping[int, ProcessEntry] | None = None
) -> dict[int, ProcessEntry]:
    """All processes of the machine, by pid, in one pass over ``/proc/*/stat``.

    The pass is not a snapshot of one instant: a process may end or fork while it goes on.

    Args:
        proc: Where procfs is mounted.
        known: Processes of an earlier pass that need no second look: their entries are taken over
            for as long as there is a process of that pid.
    """
    # Bytes and one folder descriptor instead of Path objects: this runs at every tick of a
    # supervisor, and its cost grows with all processes of the host.
    found = {}
    folder = os.open(proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in os.listdir(folder):
            if not name.isdigit():
                continue
            pid = int(name)
            if known is not None and pid in known:
                found[pid] = known[pid]
                continue
            try:
                file = os.open(name + "/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            except OSError as error:
                if error.errno in _GONE:
                    continue
                raise
            try:
                stat = os.read(file, _STAT_BYTES)
            except ProcessLookupError:
                continue
            finally:
                os.close(file)
            found[pid] = parse_stat(stat)
    finally:
        os.close(folder)
    return found


def descendants(
    entries: Mapping[int, ProcessEntry], roots: Iterable[int]
) -> dict[int, list[ProcessEntry]]:
    """The processes below each root, parents before children, the root itself left out.

    >>> make = lambda pid, ppid: ProcessEntry(pid, ppid, "S", pid, 1, 0, 0, 0, 0, "x")
    >>> entries = {pid: make(pid, ppid) for pid, ppid in [(5, 1), (6, 5), (7, 6), (8, 1)]}
    >>> {root: [e.pid for e in below] for root, below in descendants(entries, [5, 8]).items()}
    {5: [6, 7], 8: []}
    """
    children: dict[int, list[ProcessEntry]] = {}
    for child in entries.values():
        parent = entries.get(child.ppid)
        # A parent is never younger than its child. Where it seems so, its pid was given to another
        # process during the scan, and following the edge would lead to a stranger.
        if parent is not None and parent.start_ticks <= child.start_ticks:
            children.setdefault(child.ppid, []).append(child)
    trees = {}
    for root in roots:
        below = list(children.get(root, ()))
        for found in below:  # grows while it is walked: breadth first
            below.extend(children.get(found.pid, ()))
        trees[root] = below
    return trees


def alive(pid: int, start_ticks: int, boot: str, proc: Path = PROC) -> bool:
    """Whether this very process still runs; one that only waits to be reaped counts as ended."""
    if boot != boot_id(proc):
        return False
    found = entry(pid, proc)
    return found is not None and found.start_ticks == start_ticks and not found.ended


def open_pidfd(pid: int, start_ticks: int, proc: Path = PROC) -> int | None:
    """A descriptor of exactly this process, or None where it is gone. The caller closes it.

    Raises:
        OSError: The kernel has no pidfd (before 5.3), or no descriptor is left.
    """
    if pid <= 0:
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    found = entry(pid, proc)  # after opening, see [Note: who a process is]
    if found is None or found.start_ticks != start_ticks:
        os.close(descriptor)
        return None
    return descriptor


def state_of(pid: int, start_ticks: int, proc: Path = PROC) -> str:
    """The kernel's letter for this very process of this boot; "" where it has ended."""
    found = entry(pid, proc)
    return "" if found is None or found.start_ticks != start_ticks or found.ended else found.state


def ancestors(pid: int, proc: Path = PROC) -> list[tuple[int, int]]:
    """The processes above one, its parent first: their pids and start times in clock ticks."""
    above: list[tuple[int, int]] = []
    found = entry(pid, proc)
    while found is not None and (found := entry(found.ppid, proc)) is not None:
        above.append((found.pid, found.start_ticks))
    return above


def pid_namespace(proc: Path = PROC) -> int | None:
    """The number of the namespace that our pids belong to, or None where it is not told."""
    try:
        return os.stat(proc / "self/ns/pid").st_ino
    except OSError:
        return None


def in_first_pid_namespace(proc: Path = PROC) -> bool:
    """Whether our pids are the machine's own, as the kernel's log writes them."""
    # PROC_PID_INIT_INO of include/linux/proc_ns.h: fixed for the first namespace.
    return pid_namespace(proc) == 0xEFFFFFFC


def cmdline(pid: int, proc: Path = PROC) -> list[str]:
    """The words a process was started with; empty where it has ended or may not be read."""
    words = read_or_none(f"{proc}/{pid}/cmdline") or b""
    return [word.decode(errors="surrogateescape") for word in words.split(b"\0")[:-1]]


def environ_value(pid: int, name: str, proc: Path = PROC) -> str | None:
    """One variable of the environment a process was started with, or None where not known."""
    wanted = os.fsencode(name) + b"="
    for item in (read_or_none(f"{proc}/{pid}/environ") or b"").split(b"\0"):
        if item.startswith(wanted):
            return os.fsdecode(item[len(wanted) :])
    return None


def uid_of(pid: int, proc: Path = PROC) -> int | None:
    """The real user id of a process, or None where there is no such process."""
    words = _field(read_or_none(f"{proc}/{pid}/status"), b"Uid:")
    return int(words[0]) if words else None


def pss_bytes(pid: int, proc: Path = PROC) -> int | None:
    """Resident memory with shared pages divided among their users, or None where not readable."""
    words = _field(read_or_none(f"{proc}/{pid}/smaps_rollup"), b"Pss:")
    return int(words[0]) * 1024 if words else None


def cpu_times(proc: Path = PROC) -> dict[int, CpuTimes]:
    """Busy and total clock ticks of each core since boot, by core number."""
    times = {}
    for line in (proc / "stat").read_bytes().splitlines():
        words = line.split()
        if words and words[0].startswith(b"cpu") and words[0] != b"cpu":
            # user nice system idle iowait irq softirq steal; guest time is inside user already.
            ticks = [int(word) for word in words[1:9]]
            total = sum(ticks)
            times[int(words[0][3:])] = CpuTimes(total - sum(ticks[3:5]), total)
    return times


def vmstat_oom_kill(proc: Path = PROC) -> int | None:
    """How many processes the kernel has killed for memory since boot, or None where not counted."""
    words = _field(read_or_none(f"{proc}/vmstat"), b"oom_kill")
    return int(words[0]) if words else None


def read_or_none(path: str | Path) -> bytes | None:
    """The bytes of a kernel file, or None where it is missing or may not be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError as error:
        if error.errno in (*_GONE, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTDIR):
            return None
        raise


def _field(text: bytes | None, key: bytes) -> list[bytes] | None:
    """The words behind a key at a line's start."""
    for line in (text or b"").splitlines():
        words = line.split()
        if words and words[0] == key:
            return words[1:]
    return None
