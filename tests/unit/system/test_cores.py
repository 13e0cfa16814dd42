"""Cores we may use: real affinity of real processes; quotas from made-up and recorded trees."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.system import cores, procfs
from headway.system.hierarchies import Hierarchy
from headway.system.procfs import CpuTimes

TWO_THREADS = (
    "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    "print('ready', flush=True)\n"
    "time.sleep(60)\n"
)


def test_lists_of_cores_there_and_back() -> None:
    assert cores.parse_cpu_list("0-2,5,8-9\n") == {0, 1, 2, 5, 8, 9}
    assert cores.format_cpu_list({9, 8, 5, 2, 1, 0}) == "0-2,5,8-9"
    assert cores.parse_cpu_list("\n") == frozenset()
    with pytest.raises(ValueError, match="not a list of cores"):
        cores.parse_cpu_list("0-x")


def test_allowed_cores_follow_our_affinity() -> None:
    assert set(cores.allowed_cores()) <= os.sched_getaffinity(0)
    assert cores.allowed_cores(hierarchies=[]) == tuple(sorted(os.sched_getaffinity(0)))


def test_allowed_cores_stay_within_the_cpuset(tmp_path: Path) -> None:
    (tmp_path / "cpuset.effective_cpus").write_text("1-2\n")
    (tmp_path / "cpuset.cpus").write_text("0-7\n")
    hierarchy = Hierarchy(1, frozenset({"cpuset"}), tmp_path, tmp_path, False)
    assert cores.allowed_cores(hierarchies=[hierarchy], affinity={0, 1, 2, 3}) == (1, 2)


def test_v2_recorded_layout_cpuset_and_quota(recorded) -> None:
    """Recorded tree: cores 0 to 5 are effective, and a slice above us has six cores' time."""
    place = {"root": recorded.root, "pid": recorded.pid}
    allowed = cores.allowed_cores(recorded.proc, affinity=range(8), **place)
    assert allowed == (0, 1, 2, 3, 4, 5)
    assert cores.quota_cores(recorded.proc, **place) == 6.0
    assert cores.pressure("cpu", recorded.proc) == 3.21


def test_v1_quota_is_the_smallest_on_the_way_up(tmp_path: Path) -> None:
    own = tmp_path / "a/b"
    own.mkdir(parents=True)
    for folder, quota in [(tmp_path, -1), (tmp_path / "a", 150000), (own, 200000)]:
        (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (folder / "cpu.cfs_period_us").write_text("100000\n")
    hierarchy = Hierarchy(1, frozenset({"cpu"}), tmp_path, own, False)
    assert cores.quota_cores(hierarchies=[hierarchy]) == 1.5


def test_no_quota_is_none(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("max 100000\n")
    hierarchy = Hierarchy(2, frozenset({"cpu"}), tmp_path, tmp_path, False)
    assert cores.quota_cores(hierarchies=[hierarchy]) is None


def test_every_thread_of_a_process_is_confined() -> None:
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, "-I", "-S", "-c", TWO_THREADS]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        entry = procfs.entry(process.pid)
        assert entry is not None
        assert cores.thread_count(process.pid) == 2
        assert cores.set_affinity_of_tree([entry], [core]) == 2
        for thread in os.listdir(f"/proc/{process.pid}/task"):
            assert os.sched_getaffinity(int(thread)) == {core}
        process.kill()


def test_a_stranger_with_the_same_pid_is_not_confined() -> None:
    entry = procfs.entry(os.getpid())
    assert entry is not None
    before = os.sched_getaffinity(0)
    stranger = entry._replace(start_ticks=entry.start_ticks + 1)
    assert cores.set_affinity_of_tree([stranger], [min(before)]) == 0
    assert os.sched_getaffinity(0) == before


def test_no_cores_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        cores.set_affinity_of_tree([], [])


def test_a_process_that_ended_has_no_threads() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert cores.thread_count(process.pid) == 0


def test_busy_cores_between_two_readings() -> None:
    before = {0: CpuTimes(0, 0), 1: CpuTimes(50, 100)}
    after = {0: CpuTimes(100, 100), 1: CpuTimes(75, 200), 2: CpuTimes(9, 9)}
    assert cores.cores_busy(before, after) == 1.25
    assert cores.cores_busy(before, after, [1]) == 0.25
    assert cores.cores_busy(after, after) == 0.0


def test_pressure_where_the_kernel_does_not_measure_it(tmp_path: Path) -> None:
    assert cores.pressure("memory", tmp_path) is None
