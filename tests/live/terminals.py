"""Running the command line for real: as a process with pipes, or on a terminal of its own."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import headway

COMMAND = [sys.executable, "-W", "error", "-m", "headway"]
PATIENCE_S = 60.0


def environment_of(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LC_ALL")}
    return {
        **kept,
        "PYTHONPATH": str(Path(headway.__path__[0]).parent),
        "XDG_STATE_HOME": str(folder / "state"),
        # A run that a failed test left behind holds no cores of the next one's.
        "XDG_RUNTIME_DIR": str(folder / "runtime"),
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        **(more or {}),
    }


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.02)


class Place:
    """A folder to work in, with headway at hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, *lines: str, name: str = "jobs.txt") -> None:
        (self.folder / name).write_text("\n".join(lines) + "\n")

    def start(self, *words: str, **more) -> subprocess.Popen:
        more.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(
            [*COMMAND, *words],
            cwd=self.folder,
            env=environment_of(self.folder, more.pop("environment", None)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )

    def do(self, *words: str, given: bytes | None = None, **more) -> "Answer":
        if given is not None:
            more["stdin"] = subprocess.PIPE
        with self.start(*words, **more) as process:
            out, err = process.communicate(given, timeout=PATIENCE_S)
        assert b"Warning" not in err, err
        return Answer(process.returncode, out, err)

    def terminal(self, *words: str, columns: int = 80, **environment: str) -> "Terminal":
        return Terminal(self.folder, words, columns, environment)


class Answer:
    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code, self.raw = code, out
        self.out, self.err = out.decode(errors="replace"), err.decode(errors="replace")

    def __repr__(self) -> str:
        return f"exit {self.code}\n{self.out}\n--- stderr\n{self.err}"


class Terminal:
    """Headway on a pseudo terminal, as its foreground process."""

    def __init__(
        self, folder: Path, words: tuple[str, ...], columns: int, environment: Mapping[str, str]
    ) -> None:
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            size = struct.pack("HHHH", 24, columns, 0, 0)
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            os.execve(sys.executable, [*COMMAND, *words], environment_of(folder, environment))
        self.shown = b""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)

    def press(self, keys: bytes) -> None:
        os.write(self.descriptor, keys)

    def see(self, text: str) -> None:
        """Until it has shown the text after what was seen before."""
        deadline = time.monotonic() + PATIENCE_S
        found = text.encode()
        while found not in self.shown[self._seen :]:
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown!r}"
            assert self._read(), f"it ended without {text!r}: {self.shown!r}"
        self._seen = self.shown.index(found, self._seen) + len(found)

    _seen = 0

    def end(self) -> int:
        """Its exit code, once it has ended."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        """Close the terminal under it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    @property
    def text(self) -> str:
        return self.shown.decode(errors="replace")

    @property
    def words(self) -> str:
        """What was shown without colours and cursor movements."""
        return re.sub(r"\x1b\[[0-?]*[@-~]", "", self.text)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.descriptor], [], [], PATIENCE_S)
        assert ready, f"nothing more after {self.shown!r}"
        try:
            block = os.read(self.descriptor, 65536)
        except OSError:  # the other side is closed
            return False
        self.shown += block
        return bool(block)
