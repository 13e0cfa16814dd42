"""Where this user's runs lie: an index in the state folder, a line a run, and `headway-runs/` here.

The index is a convenience for those who give no path: what is not in it is found by its path all
the same. This module is light on purpose, since completion loads no other of the room but folders.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from headway.core.folder import Folder

MARKER = ".headway"
# What the marker is called while the folder is being removed, or where that was cut short.
REMOVED = ".headway-removed"
RUNS_FOLDER = "headway-runs"
_INDEX = "runs"
_READ_LIMIT = 64 * 2**20


def state_folder() -> Path:
    """Where Headway keeps what outlives a run: $XDG_STATE_HOME/headway."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "headway"


def is_run_folder(path: Path) -> bool:
    """Whether a folder has the marker of a run."""
    return _holds(path, MARKER)


def is_left_over(path: Path) -> bool:
    """Whether a folder was a run whose removal was cut short."""
    return not is_run_folder(path) and _holds(path, REMOVED)


def recent_runs(
    *, here: bool = False, limit: int | None = 20, which: Callable[[Path], bool] = is_run_folder
) -> list[Path]:
    """Run folders that still exist, newest first.

    Args:
        here: Only those started from this folder, and what lies in its `headway-runs`.
        limit: How many at most; None for all.
        which: Tells wanted folders from others.
    """
    found: dict[Path, None] = {}
    folder = os.getcwd()
    for where, path in _entries():
        if (not here or where == folder) and which(path):
            found.setdefault(path, None)
    local = Path(RUNS_FOLDER)
    if local.is_dir():
        for path in sorted(local.absolute().iterdir(), reverse=True):
            if which(path):
                found.setdefault(path, None)
    return sorted(found, key=_made_ns, reverse=True)[:limit]


def remember(path: Path) -> None:
    """Note where a run lies that was started from the current folder; failing is no error."""
    line = os.fsencode(f"{os.getcwd()}\t{path}\n")
    with contextlib.suppress(OSError):
        state_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        with Folder.open(state_folder()) as folder:
            descriptor = folder.open_file(_INDEX, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with os.fdopen(descriptor, "wb") as file:
                file.write(line)


def vanished() -> int:
    """How many runs of the index are gone from the disk."""
    return len({path for _, path in _entries() if _gone(path)})


def forget_vanished() -> None:
    """Take the runs out of the index that are gone from the disk.

    Raises:
        OSError: The index cannot be written.
    """
    if not vanished():
        return
    with Folder.open(state_folder()) as folder:
        before, now = b"", _content(folder)
        # Who starts a run meanwhile appends a line. What comes between the last look and the
        # replacement is lost from the index, never from the disk.
        while before != now:
            before = now
            lines = dict.fromkeys(before.split(b"\n")[:-1])
            kept = [line for line in lines if not _gone(_path_in(line))]
            now = _content(folder)
        folder.replace(_INDEX, b"".join(line + b"\n" for line in kept))


def _entries() -> Iterator[tuple[str, Path]]:
    """The folder each run was started from, and the run's; newest first."""
    try:
        with Folder.open(state_folder()) as folder:
            lines = _content(folder).split(b"\n")
    except OSError:
        return
    for line in reversed(lines):
        if b"\t" in line:
            yield os.fsdecode(line.partition(b"\t")[0]), _path_in(line)


def _path_in(line: bytes) -> Path:
    return Path(os.fsdecode(line.partition(b"\t")[2]))


def _content(folder: Folder) -> bytes:
    try:
        return folder.read_bytes(_INDEX, limit=_READ_LIMIT)
    except (OSError, ValueError):
        return b""


def _holds(path: Path, name: str) -> bool:
    try:
        return (path / name).is_file()
    except (OSError, ValueError):
        return False


def _gone(path: Path) -> bool:
    """Whether a folder is surely no run any more; a disk that is away for now tells nothing."""
    for name in (MARKER, REMOVED):
        try:
            os.stat(path / name)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue
        except OSError:
            return False
        return False
    return True


def _made_ns(path: Path) -> int:
    for name in (MARKER, REMOVED):
        with contextlib.suppress(OSError):
            return (path / name).stat().st_mtime_ns
    return 0
