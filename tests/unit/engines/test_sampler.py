"""What others use of this machine, read from real processes."""

import os
import subprocess
import sys
import time

import pytest

from headway.core.machine import Host, Machine
from headway.core.view import View
from headway.engines.local import sampler
from headway.engines.local.sampler import OTHERS_NS, Sampler
from headway.system import procfs

# Computes in a process that init or a subreaper above us adopts: nobody of ours.
STRANGER = """
import os
if os.fork():
    os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
os.dup2(0, 1)  # whoever reads the pid waits for the end of this stream
while os.times().user < 60:
    pass
"""


@pytest.fixture
def view() -> View:
    cores = tuple(sorted(os.sched_getaffinity(0)))
    host = Host(
        name="here",
        boot_id="boot",
        cores=cores,
        quota_cores=None,
        memory_bytes=2**34,
        memory_source="memory of the machine",
    )
    return View.of([], [], Machine(hosts=(host,)))


@pytest.fixture
def stranger():
    """A process that computes and is not below us; with its pid."""
    command = [sys.executable, "-c", STRANGER]
    pid = int(subprocess.check_output(command, stdin=subprocess.DEVNULL))
    yield pid
    os.kill(pid, 9)


def burn_until(pid: int, ticks: int) -> None:
    deadline = time.monotonic() + 60
    while procfs.scan()[pid].cpu_ticks < ticks:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_others_are_counted_every_few_seconds_only(view: View, stranger: int) -> None:
    reader = Sampler(view, clock_offset_ns=0)
    reader.take([], 0)
    burn_until(stranger, 20)
    reader.take([], OTHERS_NS - 1)
    assert view.foreign_cores == 0
    reader.take([], OTHERS_NS)
    # 0.2 s and more of 5 s, and a 95% smoothing for 5 s: at least 0.04 of a core x 0.22.
    assert view.foreign_cores >= 0.04 * (1 - sampler.FOREIGN_KEEP**5) * 0.9


@pytest.mark.slow
def test_what_is_below_us_is_not_others(view: View) -> None:
    reader = Sampler(view, clock_offset_ns=0)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        reader.take([], 0)
        burn_until(child.pid, 50)
        before = dict(reader._others)
        reader.take([], OTHERS_NS)
        assert child.pid not in before
        assert child.pid not in reader._others
        child.kill()
