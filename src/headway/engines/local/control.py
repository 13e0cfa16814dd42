"""Who supervises a run, and how others ask for something: a lock file and request files."""

import fcntl
import json
import os
import time
from typing import Any

from headway.core.errors import RunIsLive
from headway.core.folder import Folder
from headway.core.run import Run

LOCK = ".lock"
_REQUEST_LIMIT = 4 * 2**20
_LOOKERS_S = 0.25
# Times of folders are as coarse as the kernel's tick, up to 10 ms: a folder that changed just now
# may change again without looking different.
_SURE_NS = 50_000_000


class Lock:
    """The right to supervise a run; held until closed or until this process ends.

    The descriptor is close-on-exec: a job that inherited it would keep the run locked for ever.

    Raises:
        RunIsLive: Somebody else holds it.
    """

    def __init__(self, run: Run) -> None:
        self._descriptor = run.folder.open_file(LOCK, os.O_RDWR | os.O_CREAT)
        if not _locked(self._descriptor):
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise RunIsLive(
                f"run {run.name} is being supervised by process {holder or '?'} already; follow it "
                f"with: headway wait {run.name}"
            )
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Give the run free."""
        os.close(self._descriptor)


def _locked(descriptor: int) -> bool:
    """Take the lock; who only looks whether there is a supervisor holds it for microseconds."""
    deadline_s = time.monotonic() + _LOOKERS_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.005)
        else:
            return True


def supervisor_of(run: Run) -> int | None:
    """Process that supervises a run now, or None."""
    try:
        descriptor = run.folder.open_file(LOCK, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(descriptor)
    return None


class Requests:
    """The run's requests folder, looked at often and cheaply."""

    def __init__(self, run: Run) -> None:
        self._folder: Folder = run.folder.sub("requests")
        self._seen_ns = -1

    def take(self) -> list[dict[str, Any]]:
        """Requests put there since the last look, oldest first; they are removed.

        A file that is not a request is removed too and has no effect.
        """
        changed_ns = os.fstat(self._folder.descriptor).st_mtime_ns
        if changed_ns == self._seen_ns:
            return []
        self._seen_ns = changed_ns if time.time_ns() - changed_ns > _SURE_NS else -1
        found = []
        for name in self._folder.names():
            if name.startswith("."):
                continue
            try:
                content = json.loads(self._folder.read_bytes(name, limit=_REQUEST_LIMIT))
            except (OSError, ValueError):
                content = None
            self._folder.remove(name)
            if isinstance(content, dict) and isinstance(content.get("jobs"), list):
                found.append(content)
        return found

    def close(self) -> None:
        """Give the descriptor back."""
        self._folder.close()
