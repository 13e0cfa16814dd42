"""What others use of this machine, read from real processes."""

import os
import subprocess
import sys
import time

import pytest

from headway.core.holdings import Elsewhere, Hold, Reservation
from headway.core.machine import Host, Machine
from headway.core.units import GIB, NS_PER_S
from headway.core.view import View
from headway.engines.local import sampler
from headway.engines.local.sampler import OTHERS_NS, Sampler
from headway.system import procfs
from headway.system.procfs import ProcessEntry

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


def process(pid: int, ppid: int, cpu_ticks: int) -> ProcessEntry:
    return ProcessEntry(pid, ppid, "R", 1, 1, cpu_ticks, 0, 0, pid, "x")


def test_what_another_run_uses_of_what_it_holds_is_not_foreign_as_well(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4 cores of use, a job that holds one takes two; a job that holds two takes one."""
    monkeypatch.setattr(sampler, "cores_busy", lambda *_: 64.0)
    monkeypatch.setattr(sampler, "_private_bytes", lambda process: process.pid * GIB)
    greedy = Hold(job=1, attempt=1, keeper=(20, 1), slots=1, reserved_bytes=4 * GIB)
    modest = Hold(job=2, attempt=1, keeper=(30, 1), slots=2, reserved_bytes=90 * GIB)
    run = Reservation(run="/x/a", supervisor=(9, 9), cores=(0, 1), jobs=(greedy, modest))
    view.see_elsewhere(Elsewhere.of([run], cores=view.machine.host.cores))
    reader = Sampler(view, clock_offset_ns=0)
    parents = {10: 1, 20: 9, 21: 20, 30: 9, 31: 30}  # 20 and 30 are keepers, 10 is a stranger
    assert reader.held_bytes() == 0, "nothing was read yet"
    reader._read_others({pid: process(pid, ppid, 0) for pid, ppid in parents.items()}, {}, 0)
    assert reader.held_bytes() == (4 + 31) * GIB
    second = procfs.CLOCK_TICKS
    used = {10: second, 20: 0, 21: 2 * second, 30: 0, 31: second}
    after = {pid: process(pid, ppid, used[pid]) for pid, ppid in parents.items()}
    reader._read_others(after, {}, NS_PER_S)
    # The stranger's core, and the second one of the greedy job.
    assert view.foreign_cores == pytest.approx(2 * (1 - sampler.FOREIGN_KEEP))
