"""The reservation file: what each run of this user holds of this machine, for the others to see.

It lies in the user's runtime folder. Its name has the boot and the pid namespace: the processes in
it mean nothing elsewhere, and a reboot voids everything, so nothing is ever synced.

[Note: written in place] Under a lock, in one write of whole blocks that were allocated before: a
full disk or a kill in between leaves the old content or the new one. A rename would do the same,
but ext4 starts writing out the new file at each, which takes longer than all the rest of a start.
Who reads without the lock may see a mixture; nothing is ever taken on the word of such a look.

The file is a courtesy among runs. Where it cannot be had (a full disk, a folder of somebody else, a
lock that hangs) a run goes on without it and says so; others are then seen as foreign load.
"""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from headway.core.errors import BadFile
from headway.core.folder import Folder, runtime_folder
from headway.core.holdings import (
    Hold,
    Process,
    Reservation,
    Reservations,
    counts_for,
    standing,
)
from headway.engines.local.attempts import AttemptFolder
from headway.system.procfs import ancestors, boot_id, pid_namespace, state_of

LOCK = "reservations.lock"
DAMAGED = ".damaged"
# Everybody holds the lock for about a millisecond; who holds it for longer was stopped in it.
LOCK_WAIT_S = 0.25
# A keeper claims its attempt within milliseconds of being asked for.
UNCLAIMED_NS = 10_000_000_000
_READ_LIMIT = 4 * 2**20
_BLOCK_BYTES = 4096


class LockHeld(Exception):
    """Somebody has held the lock for longer than anybody should."""


class ReservationFile:
    """The file on disk, opened by its path each time: whoever cleans up may remove its folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = runtime_folder() if folder is None else folder
        self.name = f"reservations-{boot_id()}-{pid_namespace()}.json"

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.folder / self.name

    def read(self) -> bytes:
        """The content as it is now; nothing where there is no file.

        Raises:
            OSError: It cannot be read, or is not ours.
        """
        try:
            with Folder.open(self.folder) as folder:
                return self.read_in(folder)
        except FileNotFoundError:
            return b""

    def read_in(self, folder: Folder) -> bytes:
        """The same through the open folder."""
        with os.fdopen(folder.open_file(self.name, os.O_RDONLY), "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise PermissionError(f"{self.path} belongs to another user")
            return file.read(_READ_LIMIT)

    def parse(self, content: bytes) -> tuple[Reservation, ...]:
        """The entries of such a content.

        Raises:
            BadFile: It is damaged.
        """
        if not content:
            return ()
        # Room that was allocated and not yet written reads as zeros.
        text = content.rstrip(b"\0 ")
        return Reservations.from_json(text, source=str(self.path)).runs

    @contextlib.contextmanager
    def locked(self, *, wait_s: float = LOCK_WAIT_S) -> Iterator["LockedFile"]:
        """Keep everybody else from changing the file.

        Raises:
            LockHeld: The lock was not to be had within `wait_s`.
            OSError: The folder or the lock cannot be made, or is not ours.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Folder.open(self.folder) as folder:
            lock = folder.open_file(LOCK, os.O_RDWR | os.O_CREAT)
            try:
                _take(lock, wait_s)
                yield LockedFile(self, folder)
            finally:
                os.close(lock)


class LockedFile:
    """The file while its lock is held.

    A file that cannot be read or understood is set aside; `note` then says so in words.
    """

    def __init__(self, file: ReservationFile, folder: Folder) -> None:
        self._file = file
        self._folder = folder
        self.note = ""
        try:
            self.content = file.read_in(folder)
        except FileNotFoundError:
            self.content = b""
        except OSError as error:
            self._set_aside(error)

    def runs(self) -> tuple[Reservation, ...]:
        """Its entries."""
        try:
            return self._file.parse(self.content)
        except BadFile as error:
            self._set_aside(error)
            return ()

    def write(self, runs: Collection[Reservation]) -> None:
        """Write the file; where no run holds or wants anything there is none.

        Raises:
            OSError: The disk is full or read-only; the file is as it was.
        """
        if not runs:
            self._folder.remove(self._file.name)
            self.content = b""
            return
        content = Reservations(runs=tuple(runs)).to_json().encode(errors="backslashreplace")
        descriptor = self._folder.open_file(self._file.name, os.O_RDWR | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            if size < len(content):
                size = -(-len(content) // _BLOCK_BYTES) * _BLOCK_BYTES
                os.posix_fallocate(descriptor, 0, size)
            content = content.ljust(size)
            if os.pwrite(descriptor, content, 0) < len(content):
                raise OSError(errno.EIO, "the reservation file could not be written whole")
        finally:
            os.close(descriptor)
        self.content = content

    def _set_aside(self, error: Exception) -> None:
        name = self._file.name
        place = self._folder.descriptor
        os.rename(name, name + DAMAGED, src_dir_fd=place, dst_dir_fd=place)
        self.note = f"set aside as {self._file.path}{DAMAGED} and made anew: {error}"
        self.content = b""


def as_they_stand(runs: Collection[Reservation]) -> tuple[Reservation, ...]:
    """Entries without what has ended since they were written."""
    found = (standing(run, state=lambda process: state_of(*process), left=_left) for run in runs)
    return tuple(run for run in found if run is not None)


def counted(
    runs: Collection[Reservation],
    *,
    above: Collection[Process],
    ours: Collection[Process] = (),
) -> tuple[Reservation, ...]:
    """What of some entries counts for us; see `counts_for`."""
    found = (counts_for(run, above=above, ours=ours) for run in runs)
    return tuple(run for run in found if run is not None)


def held_now() -> tuple[Reservation, ...]:
    """What runs of this user hold of this machine now, as far as the file can be read."""
    file = ReservationFile()
    try:
        runs = file.parse(file.read())
    except (OSError, BadFile):
        return ()
    return counted(as_they_stand(runs), above=ancestors(os.getpid()))


def _left(entry: Reservation, hold: Hold) -> Hold | None:
    """A hold whose supervisor is gone, as it is now; None where its job has ended."""
    keeper = hold.keeper
    if keeper is None:  # the supervisor did not live to write it down: the claim tells
        folder = AttemptFolder.of(Path(entry.run), job=hold.job, attempt=hold.attempt)
        claim = folder.read_claim()
        if claim is None:
            return hold if time.time_ns() - entry.served_ns < UNCLAIMED_NS else None
        if claim.keeper_pid is None or claim.keeper_start_ticks is None:
            return None
        keeper = claim.keeper_pid, claim.keeper_start_ticks
    return hold.model_copy(update={"keeper": keeper}) if state_of(*keeper) else None


def _take(lock: int, wait_s: float) -> None:
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                raise LockHeld from None
            time.sleep(0.001)
        else:
            return
