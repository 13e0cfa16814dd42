"""Ending real trees: double forks, own sessions, emptied environments, under a subreaper."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from headway.system.cgroups import Cgroups
from headway.system.group import Cgroup
from headway.system.procfs import ProcessEntry, alive, boot_id, scan, start_ticks
from headway.system.trees import kill_tree, signal_tree, tree_of

pytestmark = pytest.mark.slow
# A keeper like Headway's own: a subreaper that starts one command and waits for all its children.
KEEPER = r"""
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
pid = os.fork()
if pid == 0:
    for path in sys.argv[2:]:
        open(path, "w").write("0")
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", sys.argv[1]], os.environ)
status = None
while True:
    try:
        ended, code = os.wait()
    except ChildProcessError:
        break
    status = code if ended == pid else status
print("exit", status, flush=True)
"""
# Six processes that try to get away, each in another way; each says so once it has arrived.
ESCAPES = r"""
import os, signal, sys, time
def arrive(word):
    os.write(1, (word + "\n").encode())
    time.sleep(120)
    os._exit(0)
if os.fork() == 0:
    arrive("child")
if os.fork() == 0:
    os.setpgid(0, 0)
    arrive("group")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        arrive("daemon")
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    code = "import os, time; os.write(1, b'emptied\\n'); time.sleep(120)"
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    arrive("deaf")
arrive("main")
"""
ARRIVED = ["child", "daemon", "deaf", "emptied", "group", "main"]
# Eight pairs of processes; each restarts its partner as soon as that is gone.
PAIRS = r"""
import os
def pair_up():
    mine, his = os.pipe(), os.pipe()
    if os.fork() == 0:
        mine, his = his, mine
    os.close(mine[0])
    os.close(his[1])
    return mine[1], his[0]
for _ in range(7):
    if os.fork() == 0:
        break
else:
    os.write(1, b"ready\n")
while True:
    mine, his = pair_up()
    os.read(his, 1)  # returns when the partner, the only other holder, is gone
    os.close(mine)
    os.close(his)
"""
SLEEP = "import os, time; os.write(1, b'ready\\n'); time.sleep(120)"
KILLED = f"exit {int(signal.SIGKILL)}"
TERMINATED = f"exit {int(signal.SIGTERM)}"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


@dataclass
class Keeper:
    process: subprocess.Popen[str]
    start: int

    @property
    def pid(self) -> int:
        return self.process.pid

    def lines(self, count: int) -> list[str]:
        assert self.process.stdout is not None
        return [self.process.stdout.readline().strip() for _ in range(count)]

    def last_word(self) -> str:
        """What it says once it has no children; it can only say so if it was spared."""
        word = self.lines(1)[0]
        assert self.process.wait(20) == 0
        return word


StartKeeper = Callable[..., Keeper]


@pytest.fixture
def start_keeper() -> Iterator[StartKeeper]:
    started: list[Keeper] = []

    def start(code: str, cgroup: Cgroup | None = None) -> Keeper:
        files = cgroup.procs_files() if cgroup is not None else []
        command = [sys.executable, "-I", "-S", "-c", KEEPER, code, *files]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        ticks = start_ticks(process.pid)
        assert ticks is not None
        started.append(Keeper(process, ticks))
        return started[-1]

    yield start
    for keeper in started:
        kill_tree(keeper.pid, keeper.start, grace_s=0)
        keeper.process.kill()
        keeper.process.wait()
        assert keeper.process.stdout is not None
        keeper.process.stdout.close()


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    found = Cgroups.discover()
    if found.usable["freezer"]:
        pytest.skip(f"control groups: {found.usable['freezer']}")
    run = found.create_run(f"test-{os.getpid()}-{time.monotonic_ns()}", ("freezer",))
    group = run.create("1-1")
    yield group
    group.kill(5)
    run.remove()


def assert_gone(tree: list[ProcessEntry]) -> None:
    boot = boot_id()
    assert [one for one in tree if alive(one.pid, one.start_ticks, boot)] == []


@pytest.mark.parametrize("attempt", range(5))
def test_everything_that_tried_to_escape_is_killed(start_keeper: StartKeeper, attempt: int) -> None:
    keeper = start_keeper(ESCAPES)
    assert sorted(keeper.lines(6)) == ARRIVED
    tree = tree_of(keeper.pid, keeper.start)
    assert len(tree) == 6
    report = kill_tree(keeper.pid, keeper.start, grace_s=0)
    assert (report.left, report.complete) == ((), True)
    assert set(report.signalled) >= {one.pid for one in tree}
    assert_gone(tree)
    assert keeper.last_word() == KILLED


@pytest.mark.cgroup
@pytest.mark.parametrize("attempt", range(5))
def test_everything_that_tried_to_escape_is_killed_by_its_cgroup(
    start_keeper: StartKeeper, cgroup: Cgroup, attempt: int
) -> None:
    keeper = start_keeper(ESCAPES, cgroup)
    assert sorted(keeper.lines(6)) == ARRIVED
    tree = tree_of(keeper.pid, keeper.start, cgroup=cgroup)
    assert sorted(one.pid for one in tree) == cgroup.processes()
    assert len(tree) == 6
    report = kill_tree(keeper.pid, keeper.start, cgroup=cgroup, grace_s=0)
    assert (report.left, report.complete) == ((), True)
    assert_gone(tree)
    assert keeper.last_word() == KILLED


def test_processes_that_restart_each_other_are_killed(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(PAIRS)
    assert keeper.lines(1) == ["ready"]
    wait_until(lambda: len(tree_of(keeper.pid, keeper.start)) == 16, "they never paired up")
    report = kill_tree(keeper.pid, keeper.start, grace_s=0)
    assert report.left == ()
    assert keeper.last_word() == KILLED


def test_who_complies_in_time_is_not_killed(start_keeper: StartKeeper) -> None:
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n" + SLEEP
    keeper = start_keeper(code)
    assert keeper.lines(1) == ["ready"]
    report = kill_tree(keeper.pid, keeper.start, grace_s=30)
    assert (report.rounds, report.left) == (0, ())
    assert keeper.last_word() == f"exit {7 << 8}"


def test_who_is_deaf_is_killed_after_the_grace(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(ESCAPES)
    keeper.lines(6)
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        time.sleep(0.001)

    report = kill_tree(keeper.pid, keeper.start, grace_s=2.0, clock=lambda: now[0], sleep=sleep)
    assert now[0] >= 2.0
    assert report.rounds >= 1
    assert report.left == ()
    assert keeper.last_word() == TERMINATED


def test_a_stopped_process_is_woken_up_to_comply(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(SLEEP)
    assert keeper.lines(1) == ["ready"]
    [job] = tree_of(keeper.pid, keeper.start)
    os.kill(job.pid, signal.SIGSTOP)
    wait_until(lambda: scan()[job.pid].state == "T", "it never stopped")
    assert signal_tree(keeper.pid, keeper.start, signal.SIGTERM) == [job.pid]
    assert keeper.last_word() == TERMINATED


@pytest.mark.cgroup
def test_one_round_at_a_time_for_an_event_loop(start_keeper: StartKeeper, cgroup: Cgroup) -> None:
    keeper = start_keeper(ESCAPES, cgroup)
    keeper.lines(6)
    tree = tree_of(keeper.pid, keeper.start, cgroup=cgroup)
    assert len(signal_tree(keeper.pid, keeper.start, signal.SIGTERM, cgroup=cgroup)) == 6
    wait_until(
        lambda: len(tree_of(keeper.pid, keeper.start, cgroup=cgroup)) == 1, "not all complied"
    )
    signal_tree(keeper.pid, keeper.start, signal.SIGKILL, cgroup=cgroup)
    wait_until(lambda: not tree_of(keeper.pid, keeper.start, cgroup=cgroup), "the deaf one lives")
    assert_gone(tree)


@pytest.mark.cgroup
def test_the_cgroup_finds_the_tree_of_a_keeper_that_is_gone(
    start_keeper: StartKeeper, cgroup: Cgroup
) -> None:
    keeper = start_keeper(ESCAPES, cgroup)
    keeper.lines(6)
    tree = tree_of(keeper.pid, keeper.start, cgroup=cgroup)
    keeper.process.kill()
    keeper.process.wait()
    lost = kill_tree(keeper.pid, keeper.start, grace_s=0)
    assert not lost.complete  # without the group it says that it could not look
    assert len(cgroup.processes()) == 6
    report = kill_tree(keeper.pid, keeper.start, cgroup=cgroup, grace_s=0)
    assert (report.left, report.complete) == ((), True)
    assert_gone(tree)


def test_a_stranger_with_the_keepers_pid_is_left_alone(start_keeper: StartKeeper) -> None:
    keeper = start_keeper(SLEEP)
    assert keeper.lines(1) == ["ready"]
    report = kill_tree(keeper.pid, keeper.start + 1, grace_s=0)
    assert (report.signalled, report.complete) == ((), False)
    assert len(tree_of(keeper.pid, keeper.start)) == 1


def test_nothing_below_a_keeper_is_no_error(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("pass")
    wait_until(lambda: not tree_of(keeper.pid, keeper.start), "the command never ended")
    report = kill_tree(keeper.pid, keeper.start, grace_s=5)
    assert (report.rounds, report.signalled, report.left) == (0, (), ())
