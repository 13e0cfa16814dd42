"""A folder of ours, held by descriptor: every file in it is opened without following links.

A run folder lies where the user pointed, perhaps in a place where others can write too. So it is
opened once, checked (ours, nobody else may write), and everything below is reached through its
descriptor: a link put in a file's place is refused, not followed.
"""

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Self

RUNS_FOLDER = "headway-runs"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where Headway keeps what outlives a run: $XDG_STATE_HOME/headway.

    >>> state_folder({"XDG_STATE_HOME": "/home/ann/.state"})
    PosixPath('/home/ann/.state/headway')
    """
    return Path(environment.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "headway"


def runtime_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where Headway keeps what no reboot survives: $XDG_RUNTIME_DIR/headway, else with its state.

    A variable that another user's session has left behind (as `su` does) is not followed.

    >>> runtime_folder({"XDG_RUNTIME_DIR": "relative", "XDG_STATE_HOME": "/home/ann/.state"})
    PosixPath('/home/ann/.state/headway')
    """
    place = Path(environment.get("XDG_RUNTIME_DIR") or ".")
    try:
        ours = place.is_absolute() and os.stat(place).st_uid == os.geteuid()
    except OSError:
        ours = False
    return place / "headway" if ours else state_folder(environment)


class Folder:
    """An open folder that belongs to this user. Close it, or use it in a `with`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def open(cls, path: Path, *, parent: int | None = None) -> Self:
        """Open a folder, refusing links and folders of others.

        Args:
            path: The folder; relative to `parent` where that is given.
            parent: Descriptor of the folder above.

        Raises:
            PermissionError: It belongs to another user, or others may write in it.
            OSError: It is not there, or is not a folder.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, dir_fd=parent)
        facts = os.fstat(descriptor)
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            os.close(descriptor)
            whose = (
                "belongs to another user" if facts.st_uid != os.geteuid() else "others may write"
            )
            raise PermissionError(f"refused: {whose} ({path})")
        return cls(path, descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back; harmless when done twice."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def sub(self, name: str) -> "Folder":
        """A folder in this one, under the same checks."""
        folder = Folder.open(Path(_plain(name)), parent=self.descriptor)
        folder.path = self.path / name
        return folder

    def mkdir(self, name: str) -> None:
        """Make a private folder; harmless where it exists."""
        try:
            os.mkdir(_plain(name), 0o700, dir_fd=self.descriptor)
        except FileExistsError:
            self.sub(name).close()

    def exists(self, name: str) -> bool:
        """Whether a plain file of this name is here."""
        try:
            facts = os.stat(_plain(name), dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(facts.st_mode)

    def names(self) -> list[str]:
        """Names in this folder, sorted."""
        return sorted(os.listdir(self.descriptor))

    def open_file(self, name: str, flags: int) -> int:
        """A descriptor of a plain file (0600 where it is made); links are refused.

        Raises:
            OSError: It cannot be opened, or is not a plain file.
        """
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(_plain(name), flags, 0o600, dir_fd=self.descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(f"not a plain file: {self.path / name}")
        return descriptor

    def read_bytes(self, name: str, *, limit: int) -> bytes:
        """The content of a file.

        Raises:
            ValueError: It is larger than `limit` bytes.
            OSError: It cannot be read.
        """
        with os.fdopen(self.open_file(name, os.O_RDONLY), "rb") as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise ValueError(f"larger than {limit} bytes: {self.path / name}")
        return content

    def replace(self, name: str, content: bytes, *, durable: bool = False) -> None:
        """Put a file in place whole: readers see the old one or the new one, never a part.

        Args:
            name: The file.
            content: All of it.
            durable: It survives a crash of the machine once this returns.
        """
        temporary = f".{_plain(name)}.{secrets.token_hex(4)}"
        descriptor = os.open(temporary, _NEW, 0o600, dir_fd=self.descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(descriptor)
            os.rename(temporary, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            os.unlink(temporary, dir_fd=self.descriptor)
            raise
        if durable:
            os.fsync(self.descriptor)

    def rename(self, name: str, new: str) -> None:
        """Give a file another name in this folder; that survives a crash of the machine."""
        here = self.descriptor
        os.rename(_plain(name), _plain(new), src_dir_fd=here, dst_dir_fd=here)
        os.fsync(here)

    def remove(self, name: str) -> None:
        """Remove a file; harmless where it is gone."""
        try:
            os.unlink(_plain(name), dir_fd=self.descriptor)
        except FileNotFoundError:
            return


def _plain(name: str) -> str:
    if not name or "/" in name or name in (".", "..") or "\0" in name:
        raise ValueError(f"not a plain file name: {name!r}")
    return name
