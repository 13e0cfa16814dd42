"""What the tests of MPS share: the fake in a short folder, and a daemon of it."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from headway.system.mps_daemon import Daemon, start_daemon
from headway.testing.mps import FakeMps, Knobs

ANSWER_S = 5.0  # far more than the 30 ms that an answer of the fake takes
STARTED = [
    "start -d",
    "command get_default_active_thread_percentage",
    "command get_server_list",
]
"""What a start asks for."""
HEALTHY = STARTED[1:]
"""What a look at the health of a daemon without servers asks for."""


@contextmanager
def stage(knobs: Knobs | None = None) -> Iterator[tuple[FakeMps, Path]]:
    """The fake, and a folder with a path that is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="hw-mps-", dir="/tmp"))
    (folder / "fake").mkdir()
    try:
        with FakeMps(folder / "fake", knobs or Knobs()) as fake:
            yield fake, folder / "run"
    finally:
        shutil.rmtree(folder)


def start(fake: FakeMps, folder: Path, **knobs) -> Daemon:
    """A daemon of the fake, as Headway starts one."""
    defaults = {"answer_s": ANSWER_S, "timeout_s": 5.0}
    return start_daemon(fake.executable, folder, **{**defaults, **knobs})


def hurried(daemon: Daemon) -> Daemon:
    """The same daemon, given up soon where it is silent."""
    return replace(daemon, control=replace(daemon.control, timeout_s=0.3))
