"""Takes a run off the disk: nothing that lives, nothing beyond its folder, and never by halves.

The marker is renamed before anything else goes and removed after everything else: whoever is killed
in between leaves a folder that is no run, cannot be resumed, and is known for what it is.
"""

import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from headway.core.errors import BadFile, RunIsLive, UnknownName
from headway.core.folder import Folder
from headway.core.index import MARKER, REMOVED
from headway.core.removal import Found, State
from headway.core.run import Run
from headway.engines.local.attempts import AttemptFolder, AttemptState
from headway.engines.local.control import LOCK, Lock, supervisor_of
from headway.engines.local.journal import JOURNAL
from headway.system.hierarchies import mount_points
from headway.system.procfs import alive

# Between making a run's folder and taking its lock a new run looks like an abandoned one.
_BEGINS_S = 60.0


def look(path: Path) -> Found:
    """A run's folder as it is now, or what a removal left of one.

    Raises:
        UnknownName: There is neither.
    """
    try:
        run = Run.open(path)
    except BadFile as error:
        return Found(path, "damaged", 0, time.time(), str(error))
    except UnknownName:
        with _left_over(path) as folder:
            ended_s = os.stat(REMOVED, dir_fd=folder.descriptor).st_mtime
        return Found(path, "removed", size_of(path), ended_s)
    with run.folder:
        try:
            made_s = run.marker.created_ns / 1e9
            result = run.result()
        except BadFile as error:
            return Found(path, "damaged", size_of(path), time.time(), str(error))
        begun = run.folder.exists(JOURNAL)
        ended_s = made_s
        if begun:
            ended_s = os.stat(JOURNAL, dir_fd=run.folder.descriptor).st_mtime
        state: State = "interrupted" if result is None else result.outcome
        obstacle = _life(run)
        if not begun and time.time() - made_s < _BEGINS_S:
            obstacle = "it is about to begin"
        return Found(path, "running" if obstacle else state, size_of(path), ended_s, obstacle)


def size_of(path: Path) -> int:
    """Bytes that a folder takes on the disk, links not followed."""
    size_bytes, folders = 0, [os.fspath(path)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    size_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:  # it went meanwhile, or is not ours to read
            continue
    return size_bytes


def remove(path: Path, *, unfinished: bool = False) -> None:
    """Take a run off the disk, or what an earlier removal left of it.

    Args:
        path: Its folder.
        unfinished: Also one that could be resumed.

    Raises:
        RunIsLive: It is supervised, a job of it still runs, or it could be resumed.
        UnknownName: There is no run.
        BadFile: The folder is not ours alone.
        OSError: Not everything could be removed. What is left is no run any more; the next removal
            goes on with it.
    """
    try:
        run = Run.open(path)
    except UnknownName:
        with _left_over(path) as folder:
            _check_mounts(path)
            _empty(folder)
        return
    with run.folder:
        lock = Lock(run)  # nobody else takes the run up from here on
        try:
            _forbid_starts(run)
            if words := _running(run):
                raise RunIsLive(f"{run.name}: {words}")
            # Asked under the lock: somebody may have retried it since it was looked at.
            result = run.result()
            if not unfinished and (result is None or result.outcome == "interrupted"):
                raise RunIsLive(f"{run.name}: unfinished")
            _check_mounts(path)
            run.folder.rename(MARKER, REMOVED)
            _empty(run.folder)
        finally:
            lock.close()


def _life(run: Run) -> str:
    supervisor = supervisor_of(run)
    return _running(run) if supervisor is None else f"supervised by process {supervisor}"


def _running(run: Run) -> str:
    """What of a run still runs, with or without its keeper, in words; empty where nothing does."""
    count = sum(_lives(attempt) for attempt in _attempts(run))
    jobs = "a job of it still runs" if count == 1 else f"{count} jobs of it still run"
    return jobs if count else ""


def _lives(attempt: AttemptFolder) -> bool:
    state = attempt.state()
    if state is not AttemptState.LOST:
        return state is AttemptState.RUNNING
    # The keeper was killed; its command may go on without it.
    claim, started = attempt.read_claim(), attempt.read_started()
    if claim is None or claim.boot is None or started is None:
        return False
    return alive(started.command_pid, started.command_start_ticks, claim.boot)


def _forbid_starts(run: Run) -> None:
    """A keeper that is still on its way to an attempt shall find it taken."""
    for attempt in _attempts(run):
        if attempt.state() is AttemptState.UNCLAIMED:
            attempt.link_void_claim()


def _attempts(run: Run) -> Iterator[AttemptFolder]:
    for job in _folders(run.path / "jobs"):
        yield from map(AttemptFolder, _folders(job))


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _left_over(path: Path) -> Folder:
    """The folder of a removal that was cut short.

    Raises:
        UnknownName: It is none.
    """
    try:
        folder = Folder.open(path)
    except OSError:
        raise UnknownName(f"no run at {path}") from None
    if not folder.exists(REMOVED) or folder.exists(MARKER):
        folder.close()
        raise UnknownName(f"{path} is not a run of Headway (it has no {MARKER} file)")
    return folder


def _check_mounts(path: Path) -> None:
    inside = next((m for m in mount_points() if m.is_relative_to(path.resolve())), None)
    if inside is not None:
        raise OSError(f"another file system is mounted at {inside}; unmount it first")


def _empty(folder: Folder) -> None:
    """Remove all that is in a folder, the renamed marker last, and the folder."""
    for name in folder.names():
        if name not in (LOCK, REMOVED):
            _delete(folder, name)
    folder.remove(LOCK)
    folder.remove(REMOVED)
    os.rmdir(folder.path)


def _delete(folder: Folder, name: str) -> None:
    facts = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
    if not stat.S_ISDIR(facts.st_mode):
        folder.remove(name)
        return
    try:
        shutil.rmtree(name, dir_fd=folder.descriptor)  # by descriptors, so it follows no link
    except RecursionError:
        raise OSError(f"{folder.path / name}: folders are nested too deep to remove") from None
