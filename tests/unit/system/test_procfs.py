"""Processes in /proc: real ones of this machine, and lines that a careless reader gets wrong."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.system import procfs
from headway.system.procfs import CpuTimes, ProcessEntry


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def entry(pid: int, ppid: int, start: int, state: str = "S", threads: int = 1) -> ProcessEntry:
    return ProcessEntry(pid, ppid, state, start, threads, 0, 0, 0, 0, "x")


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_scan_tells_the_same_as_the_kernel_about_this_process() -> None:
    own = procfs.scan()[os.getpid()]
    assert own.ppid == os.getppid()
    assert own.session == os.getsid(0)
    assert own.start_ticks == procfs.start_ticks(os.getpid())
    assert own.threads == threading.active_count()
    assert own.rss_bytes > 1_000_000
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    assert 0 < own.start_ticks / procfs.CLOCK_TICKS < uptime_s + 1


def test_a_name_with_brackets_and_blanks_does_not_shift_the_fields(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        wait_until(
            lambda: procfs.scan()[process.pid].name == "a) R 1 (b", "the program never started"
        )
        assert procfs.scan()[process.pid].ppid == os.getpid()
        process.kill()


def test_scan_passes_over_processes_that_vanish_and_what_is_no_process(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "12").mkdir()  # ended between the listing and the look at it
    (tmp_path / "13").mkdir()
    (tmp_path / "13/stat").write_bytes(Path("/proc/self/stat").read_bytes())
    assert list(procfs.scan(tmp_path)) == [13]


def test_scan_takes_over_what_is_known_while_it_is_there(tmp_path: Path) -> None:
    for pid in (12, 13):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / f"{pid}/stat").write_bytes(Path("/proc/self/stat").read_bytes())
    known = {12: entry(12, 1, 5), 99: entry(99, 1, 5)}
    found = procfs.scan(tmp_path, known=known)
    assert found.keys() == {12, 13}
    assert found[12] is known[12]
    assert found[13].pid == os.getpid()


def test_half_a_stat_line_is_refused() -> None:
    with pytest.raises(ValueError, match="not a line of"):
        procfs.parse_stat(b"12 (x) S 1 2 3")


def test_descendants_finds_grandchildren_and_leaves_out_strangers() -> None:
    entries = {one.pid: one for one in [entry(5, 1, 10), entry(6, 5, 11), entry(7, 6, 12)]}
    entries[8] = entry(8, 1, 9)
    assert [one.pid for one in procfs.descendants(entries, [5])[5]] == [6, 7]
    assert procfs.descendants(entries, [99]) == {99: []}


def test_an_edge_to_a_parent_that_is_younger_than_its_child_is_not_believed() -> None:
    # Pid 6 was given to a new process while the scan went on; 7 belonged to the old one.
    entries = {one.pid: one for one in [entry(5, 1, 10), entry(6, 5, 50), entry(7, 6, 20)]}
    assert [one.pid for one in procfs.descendants(entries, [5])[5]] == [6]


def test_a_process_that_only_waits_to_be_reaped_counts_as_ended() -> None:
    process = subprocess.Popen(["true"])
    start = procfs.start_ticks(process.pid)
    assert start is not None
    wait_until(lambda: procfs.scan()[process.pid].state == "Z", "it never ended")
    assert not procfs.alive(process.pid, start, procfs.boot_id())
    process.wait()


def test_threads_that_outlive_their_leader_count_as_running() -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).syscall(60 if ctypes.sizeof(ctypes.c_void_p) == 8 else 1, 0)\n"
    )
    if os.uname().machine != "x86_64":
        pytest.skip("the number of the system call is that of x86_64")
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code]) as process:
        start = procfs.start_ticks(process.pid)
        assert start is not None
        wait_until(lambda: procfs.scan()[process.pid].state == "Z", "the leader never ended")
        assert procfs.alive(process.pid, start, procfs.boot_id())
        process.kill()


def test_alive_asks_for_the_same_start_and_the_same_boot(sleeper: subprocess.Popen) -> None:
    start = procfs.start_ticks(sleeper.pid)
    assert start is not None
    assert procfs.alive(sleeper.pid, start, procfs.boot_id())
    assert not procfs.alive(sleeper.pid, start + 1, procfs.boot_id())
    assert not procfs.alive(sleeper.pid, start, "another boot")


def test_open_pidfd_refuses_another_process_with_the_same_pid(sleeper: subprocess.Popen) -> None:
    start = procfs.start_ticks(sleeper.pid)
    assert start is not None
    before = set(os.listdir("/proc/self/fd"))
    assert procfs.open_pidfd(sleeper.pid, start + 1) is None
    assert set(os.listdir("/proc/self/fd")) == before
    descriptor = procfs.open_pidfd(sleeper.pid, start)
    assert descriptor is not None
    os.close(descriptor)


@pytest.mark.parametrize("pid", [0, -1])
def test_open_pidfd_never_means_a_group(pid: int) -> None:
    assert procfs.open_pidfd(pid, 0) is None


def test_open_pidfd_of_a_process_that_is_gone_is_none() -> None:
    process = subprocess.Popen(["true"])
    start = procfs.start_ticks(process.pid)
    process.wait()
    assert start is not None
    assert procfs.open_pidfd(process.pid, start) is None


def test_words_and_environment_of_another_process() -> None:
    environment = {"MARK": "a=b", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "60"], env=environment) as process:
        wait_until(lambda: procfs.cmdline(process.pid) == ["sleep", "60"], "it never started")
        assert procfs.environ_value(process.pid, "MARK") == "a=b"
        assert procfs.environ_value(process.pid, "MAR") is None
        assert procfs.uid_of(process.pid) == os.getuid()
        pss = procfs.pss_bytes(process.pid)
        assert pss is not None
        assert 0 < pss < 100_000_000
        process.kill()
    assert procfs.cmdline(process.pid) == []
    assert procfs.environ_value(process.pid, "MARK") is None
    assert procfs.uid_of(process.pid) is None
    assert procfs.pss_bytes(process.pid) is None
    assert procfs.entry(process.pid) is None


def test_cpu_times_count_waiting_for_a_disk_as_idle(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(
        "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 10 1 5 100 50 2 3 4 9 0\ncpu3 1 0 0 9 0 0 0 0 0 0\nintr 5\n"
    )
    assert procfs.cpu_times(tmp_path) == {0: CpuTimes(25, 175), 3: CpuTimes(1, 10)}


def test_every_core_of_this_machine_has_times() -> None:
    assert set(procfs.cpu_times()) >= os.sched_getaffinity(0)


def test_vmstat_counts_kills_where_the_kernel_does(tmp_path: Path) -> None:
    assert procfs.vmstat_oom_kill(tmp_path) is None
    (tmp_path / "vmstat").write_text("oom_kill_x 7\noom_kill 3\n")
    assert procfs.vmstat_oom_kill(tmp_path) == 3
