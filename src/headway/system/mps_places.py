"""Where the daemons of MPS live: their pipe folders, and who is at home in one.

A daemon serves whoever shares its pipe folder. The pid file there says who it is, where there is
one, and may be left over from a daemon that was killed: the process table tells.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.system import procfs
from headway.system.mps_tool import CONTROL_NAME, PIPE_VARIABLE
from headway.system.procfs import ProcessEntry

DEFAULT_PIPE_FOLDER = Path("/tmp/nvidia-mps")
LONGEST_PIPE_FOLDER = 80
"""Bytes of a pipe folder's path that surely work: the names of the sockets in it come on top, and
one that is too long for the kernel (88 and more) fails without a word."""

_PID_FILE = f"{CONTROL_NAME}.pid"
# The kernel cuts the names of daemon and server to the same one.
_KERNEL_NAME = CONTROL_NAME[:15]


def inherited_pipe_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where CUDA looks for a daemon unless it is told otherwise: whoever answers there, it joins.

    >>> inherited_pipe_folder({"CUDA_MPS_PIPE_DIRECTORY": "/run/user/7/mps"})
    PosixPath('/run/user/7/mps')
    """
    return Path(environment.get(PIPE_VARIABLE) or DEFAULT_PIPE_FOLDER)


@dataclass(frozen=True, slots=True)
class Resident:
    """A living control daemon of a folder, whoever started it."""

    pid: int
    start_ticks: int
    uid: int | None


def choose_pipe_folder(wanted: Path, *, runtime: Path) -> tuple[Path, str]:
    """The pipe folder to use, and why it is not the wanted one; "" where it is.

    Args:
        wanted: Used where its path is short enough for the sockets in it.
        runtime: A folder for what no reboot survives; a short name in it comes next, and then one
            in /tmp. The same wanted folder always leads to the same place.

    >>> choose_pipe_folder(Path("/run/headway/mps"), runtime=Path("/run/user/7/headway"))
    (PosixPath('/run/headway/mps'), '')
    >>> place, why = choose_pipe_folder(Path("/a" * 60), runtime=Path("/run/user/7/headway"))
    >>> str(place)[:24], why[:43]
    ('/run/user/7/headway/mps-', "the MPS daemon's pipes lie in /run/user/7/h")
    """
    if len(os.fsencode(wanted)) <= LONGEST_PIPE_FOLDER:
        return wanted, ""
    name = f"mps-{hashlib.blake2b(os.fsencode(wanted), digest_size=6).hexdigest()}"
    place = runtime / name
    if len(os.fsencode(place)) > LONGEST_PIPE_FOLDER:
        place = Path("/tmp") / f"headway-{os.geteuid()}-{name}"
    return place, (
        f"the MPS daemon's pipes lie in {place}: {wanted} is longer than the "
        f"{LONGEST_PIPE_FOLDER} bytes that surely work"
    )


def resident_daemon(pipe_folder: Path, proc: Path = procfs.PROC) -> Resident | None:
    """The living daemon of a folder, or None where none can be seen.

    None also for one of another pid namespace, and, with drivers before 550, for another user's:
    ask `Control.health` whether anyone answers.
    """
    found = _named_by_pid_file(pipe_folder, proc) or _started_for(pipe_folder, proc)
    if found is None:
        return None
    return Resident(found.pid, found.start_ticks, procfs.uid_of(found.pid, proc))


def processes_in(place: Path, proc: Path) -> list[tuple[int, int]]:
    """Daemons and servers that were started with this pipe folder, by pid and start time."""
    return [(found.pid, found.start_ticks) for found in _entries_in(place, proc)]


def _named_by_pid_file(pipe_folder: Path, proc: Path) -> ProcessEntry | None:
    text = procfs.read_or_none(pipe_folder / _PID_FILE) or b""
    pid = int(text) if text.strip().isdigit() else 0
    found = procfs.entry(pid, proc) if pid else None
    # What a killed daemon leaves behind names a pid that anybody may have by now.
    if found is None or found.ended or found.name != _KERNEL_NAME:
        return None
    told = procfs.environ_value(pid, PIPE_VARIABLE, proc)
    return found if told is None or Path(told) == pipe_folder else None


def _started_for(pipe_folder: Path, proc: Path) -> ProcessEntry | None:
    """The daemon by its command and environment: before driver 550 there is no pid file."""
    daemons = {
        found.pid: found
        for found in _entries_in(pipe_folder, proc)
        if {"-d", "-f"} & set(procfs.cmdline(found.pid, proc))
    }
    return next((one for one in daemons.values() if one.ppid not in daemons), None)


def _is_tool(words: list[str]) -> bool:
    """Whether a process only asks a daemon: the control program without a flag."""
    return os.path.basename(words[-1]) == CONTROL_NAME if words else True


def _entries_in(place: Path, proc: Path) -> list[ProcessEntry]:
    return [
        found
        for found in procfs.scan(proc).values()
        if found.name == _KERNEL_NAME
        and not found.ended
        and procfs.environ_value(found.pid, PIPE_VARIABLE, proc) == str(place)
        and not _is_tool(procfs.cmdline(found.pid, proc))
    ]
