"""Files of a run folder, reached through a descriptor of the folder and never through a link.

A path is looked up again at each use, and whoever may write one of its parts can send the next use
elsewhere. So a folder is opened once, checked to be ours and closed to others, and everything in it
is opened relative to that descriptor, by a plain name, without following links.
"""

import contextlib
import errno
import itertools
import os
import stat
from pathlib import Path
from typing import Self

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_counter = itertools.count()


class UnsafeFolder(PermissionError):
    """A folder belongs to somebody else, or others may write to it."""


class FileTooLarge(OSError):
    """A file holds more than its reader is ready to take."""


class Folder:
    """One folder of ours; use it as a context, or `close` it."""

    def __init__(self, descriptor: int, path: Path) -> None:
        """Take over a folder's descriptor; the path serves messages only."""
        self.descriptor = descriptor
        self.path = path

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a folder that is ours and that nobody else may write to.

        Raises:
            UnsafeFolder: It is somebody else's, or group or others may write to it.
            NotADirectoryError: It is a link or no folder.
            OSError: It can't be opened.
        """
        return cls._checked(os.open(path, _FOLDER_FLAGS), Path(path))

    @classmethod
    def _checked(cls, descriptor: int, path: Path) -> Self:
        status = os.fstat(descriptor)
        reason = ""
        if status.st_uid != os.geteuid():
            reason = f"belongs to user {status.st_uid}, not to us ({os.geteuid()})"
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            reason = "may be written to by others; run `chmod go-w` on it if it is yours"
        if reason:
            os.close(descriptor)
            raise UnsafeFolder(errno.EPERM, f"the folder {reason}", str(path))
        return cls(descriptor, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def sub(self, name: str) -> Self:
        """Open a folder in this one, with the same checks."""
        return self._checked(self._open(name, _FOLDER_FLAGS), self.path / name)

    def mkdir(self, name: str, *, exist_ok: bool = False) -> Self:
        """Make a folder that only we may enter (0700), and open it.

        Raises:
            FileExistsError: The name is taken, unless exist_ok is set and it is a folder of ours.
        """
        try:
            os.mkdir(_plain(name), 0o700, dir_fd=self.descriptor)
        except FileExistsError:
            if not exist_ok:
                raise
        return self.sub(name)

    def listdir(self) -> list[str]:
        """The names in the folder, in order, without unfinished files of `replace`."""
        return sorted(name for name in os.listdir(self.descriptor) if not _is_unfinished(name))

    def exists(self, name: str) -> bool:
        """Whether the name is taken, by whatever it is."""
        return self.status(name) is not None

    def status(self, name: str) -> os.stat_result | None:
        """Size, times and kind of what the name stands for, links not followed, or None."""
        try:
            return os.stat(_plain(name), dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def read_bytes(self, name: str, limit_bytes: int) -> bytes:
        """The whole of a regular file.

        Raises:
            FileTooLarge: It holds more than limit_bytes.
            OSError: It is missing, a link (ELOOP), or no regular file (EINVAL).
        """
        # Non-blocking, or opening a named pipe would wait for its writer.
        descriptor = self._open(name, os.O_RDONLY | os.O_NONBLOCK | _FILE_FLAGS)
        with open(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(self.path / name))
            parts = []
            left = limit_bytes + 1
            while left > 0 and (part := file.read(min(left, 1 << 20))):
                parts.append(part)
                left -= len(part)
        if left <= 0:
            message = f"the file holds more than {limit_bytes} bytes"
            raise FileTooLarge(errno.EFBIG, message, str(self.path / name))
        return b"".join(parts)

    def write_new(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Write a file (0600) that must not exist yet; on failure none is left.

        Raises:
            FileExistsError: The name is taken.
        """
        descriptor = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE_FLAGS)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                _write_all(file.fileno(), data)
                if durable:
                    os.fsync(file.fileno())
        except BaseException:
            self.unlink(name)
            raise
        if durable:
            self.sync()

    def replace(self, name: str, data: bytes, *, durable: bool) -> None:
        """Put a file in place as a whole: readers see the old one or the new one, never a part.

        Args:
            name: The file; whatever stood there, even a link, is replaced itself.
            data: Its new bytes.
            durable: Return only once it would survive a power cut.
        """
        unfinished = f".{_plain(name)}.{os.getpid()}.{next(_counter)}.tmp"
        self.write_new(unfinished, data)
        try:
            if durable:
                self._sync_file(unfinished)
            self.rename(unfinished, name)
        except BaseException:
            self.unlink(unfinished)
            raise
        if durable:
            self.sync()

    def open_append(self, name: str) -> int:
        """A descriptor that writes at a regular file's end (0600), made where it is missing.

        Raises:
            OSError: The name stands for a link (ELOOP) or no regular file (EINVAL).
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | _FILE_FLAGS
        descriptor = self._open(name, flags)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", str(self.path / name))
        os.set_blocking(descriptor, True)  # it may become a child's output
        return descriptor

    def link(self, existing: str, name: str) -> None:
        """Give a file a second name: atomic, complete, and refused where the name is taken.

        Raises:
            FileExistsError: The name is taken.
        """
        os.link(
            _plain(existing),
            _plain(name),
            src_dir_fd=self.descriptor,
            dst_dir_fd=self.descriptor,
            follow_symlinks=False,
        )

    def rename(self, existing: str, name: str) -> None:
        """Rename a file, replacing what has the new name."""
        os.rename(
            _plain(existing), _plain(name), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor
        )

    def unlink(self, name: str) -> None:
        """Remove a file or link; one that is missing is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_plain(name), dir_fd=self.descriptor)

    def sync(self) -> None:
        """Make the folder's names survive a power cut."""
        os.fsync(self.descriptor)

    def _sync_file(self, name: str) -> None:
        descriptor = self._open(name, os.O_RDONLY | _FILE_FLAGS)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> int:
        try:
            return os.open(_plain(name), flags, 0o600, dir_fd=self.descriptor)
        except OSError as error:
            error.filename = str(self.path / name)
            raise


def _plain(name: str) -> str:
    """The name itself, if it is one and no path."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a plain file name: it must hold no slash and be no dot")
    return name


def _is_unfinished(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
