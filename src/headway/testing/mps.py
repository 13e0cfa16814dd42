"""A handle on the fake of MPS (`headway.testing.mps_control`): install it, steer it, be its client.

What it answers is made up from tables of what the real one answers; nothing that it says may ever
be called measured.
"""

import json
import os
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headway.system import procfs
from headway.system.mps_tool import CONTROL_NAME, SERVER_NAME
from headway.testing import mps_control

_POLL_S = 0.005
_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Knobs:
    """What goes wrong; by default nothing. Can be changed while the fake runs."""

    start: Literal["listens", "hangs", "dies"] = "listens"
    server: Literal["lives", "dies", "hangs"] = "lives"
    """`hangs`: it never becomes ready."""
    hangs: tuple[str, ...] = ()
    """Commands that are never answered; "all" stands for each."""
    unknown: tuple[str, ...] = ()
    """Commands that it does not know, as older drivers."""
    protocol: int = 2
    caller_uid: int | None = None
    """Who those that ask are taken for; None for who they are. The daemon is taken for root's."""
    ignores_term: tuple[Literal["daemon", "server"], ...] = ()
    gpus: tuple[str, ...] = ()
    """UUIDs whose limits can be read back."""


@dataclass(slots=True)
class FakeClient:
    """A client, from the moment in which it starts CUDA."""

    pid: int
    connection: socket.socket = field(repr=False)

    def hear(self) -> str:
        """The next thing that CUDA tells it.

        "0" for success, the number of an error, or "fault"; "" where the connection is gone.

        Raises:
            TimeoutError: Nothing within 10 s.
        """
        said = b""
        while not said.endswith(b"\n"):
            part = self.connection.recv(1)
            if not part:
                break
            said += part
        return said.decode().strip()

    def compute(self) -> None:
        """Have work in flight from now on."""
        self.connection.sendall(b"BUSY\n")
        time.sleep(4 * mps_control.TICK_S)  # a killed client's word may not get lost with it

    def leave(self) -> None:
        """End; with work in flight, as if killed."""
        self.connection.close()


class FakeMps:
    """A folder with the fake programs in it, and what is known of their doings.

    Use it in a ``with``: at its end nothing of the fake is left running.

    Args:
        folder: An empty folder of the fake's own.
        knobs: What goes wrong from the beginning.
    """

    def __init__(self, folder: Path, knobs: Knobs = Knobs()) -> None:
        self.folder = folder
        self.executable = folder / CONTROL_NAME
        source = Path(mps_control.__file__).read_text(encoding="utf-8")
        # No site, no variables of Python: each question starts an interpreter.
        self.executable.write_text(f"#!{sys.executable} -IS\n{source}", encoding="utf-8")
        self.executable.chmod(0o755)
        shutil.copy(self.executable, folder / SERVER_NAME)
        self._connections: list[socket.socket] = []
        self.set(knobs)

    def __enter__(self) -> "FakeMps":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set(self, knobs: Knobs) -> None:
        """Let other things go wrong from now on."""
        content = {name: getattr(knobs, name) for name in Knobs.__slots__}
        new = self.folder / "knobs.json.new"
        new.write_text(json.dumps(content), encoding="utf-8")
        new.replace(self.folder / "knobs.json")

    def calls(self) -> list[str]:
        """Every start, command and signal that the fake got, in order.

        The signals that ended something are recorded a moment after the end; `settle` waits.
        """
        path = self.folder / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def settle(self) -> list[str]:
        """`calls` once all of the fake's processes have ended, watchers included."""
        deadline = time.monotonic() + _WAIT_S
        while any(self._living("processes")) or any(self._living("watchers")):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the fake still runs: {self._living('processes')}")
            time.sleep(_POLL_S)
        return self.calls()

    def living(self) -> list[int]:
        """Pids of daemons and servers that run."""
        return [pid for pid, _ in self._living("processes")]

    def connect(
        self, pipe_folder: Path, pid: int, *, uid: int | None = None, device: str = "GPU-0"
    ) -> FakeClient:
        """Start CUDA in a client; `FakeClient.hear` gives what comes of it.

        Args:
            pipe_folder: Where it looks for the daemon.
            pid: The client's process.
            uid: Its user; this process's by default.
            device: What it computes on.

        Raises:
            OSError: No daemon is there; CUDA would go on without MPS and say nothing.
        """
        user = os.getuid() if uid is None else uid
        connection = _say(pipe_folder, f"CLIENT {pid} {user} {device}")
        self._connections.append(connection)
        return FakeClient(pid, connection)

    def fault(self, pipe_folder: Path, culprit: int) -> None:
        """Let a client bring a GPU down, for itself and all that share it."""
        with _say(pipe_folder, f"FAULT {culprit}") as connection:
            connection.recv(1)

    def close(self) -> None:
        """End what is left of it."""
        for connection in self._connections:
            connection.close()
        for record in ("processes", "watchers"):
            for pid, start_ticks in self._living(record):
                descriptor = procfs.open_pidfd(pid, start_ticks)
                if descriptor is not None:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    os.close(descriptor)

    def _living(self, record: str) -> list[tuple[int, int]]:
        path = self.folder / record
        lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
        known = [tuple(map(int, line.split())) for line in lines]
        boot = procfs.boot_id()
        return [(pid, start) for pid, start in known if procfs.alive(pid, start, boot)]


def _say(pipe_folder: Path, line: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_WAIT_S)
    try:
        connection.connect(str(pipe_folder / "control"))
    except OSError:
        connection.close()
        raise
    connection.sendall(line.encode() + b"\n")
    return connection
