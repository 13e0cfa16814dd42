"""Control groups for real: v1 memory and freezer, and killing by v2 where a v2 tree is mounted.

Limits of v2 are tested against a recorded layout only (tests/unit/system/test_cgroup_folders.py).
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.system.cgroups import Cgroups, CgroupUnusable, RunGroup, reopen
from headway.system.group import Branch, Cgroup
from headway.system.hierarchies import discover_hierarchies
from headway.system.kernel_log import KernelLog
from headway.system.procfs import scan

pytestmark = pytest.mark.cgroup
MIB = 1 << 20
SLEEP = "import time; print('ready', flush=True); time.sleep(60)"
EAT = "x = bytearray({size}); x[::4096] = b'x' * len(x[::4096]); print('full', flush=True)\n"
FORK_FOR_EVER = (
    "import os, time\n"
    "print('ready', flush=True)\n"
    "for _ in range(4):\n    os.fork()\n"
    "while True:\n"
    "    if os.fork() == 0:\n        os.setsid()\n        time.sleep(0.05)\n        os._exit(0)\n"
    "    try:\n        while os.waitpid(-1, os.WNOHANG)[0]:\n            pass\n"
    "    except ChildProcessError:\n        pass\n"
    "    time.sleep(0.01)\n"
)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def run_in(group: Cgroup, code: str, **streams) -> subprocess.Popen[str]:
    """Start Python that joins the group itself, as a job's child does before it becomes the job."""
    join = "".join(f"open({path!r}, 'w').write('0')\n" for path in group.procs_files())
    command = [sys.executable, "-I", "-S", "-c", join + code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **streams)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ended(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=20)
    return process.returncode


@pytest.fixture
def run() -> Iterator[RunGroup]:
    found = Cgroups.discover()
    for controller in ("memory", "freezer"):
        if found.usable[controller]:
            pytest.skip(f"control groups: {controller}: {found.usable[controller]}")
    run = found.create_run(f"test-{os.getpid()}-{time.monotonic_ns()}")
    if run.branches[-1].version == 2:
        run.remove()
        pytest.skip("this machine has memory in v2")
    yield run
    for name in run.names():
        group = run.open(name)
        assert group is None or group.kill(5) == []
    run.remove()
    assert not any(branch.folder.exists() for branch in run.branches)


@pytest.mark.slow
def test_the_counter_proves_a_kill_for_memory(run: RunGroup) -> None:
    log, _ = KernelLog.open()
    group = run.create("1-1", memory_limit_bytes=64 * MIB)
    process = run_in(group, EAT.format(size=200 * MIB))
    assert ended(process) == -signal.SIGKILL
    assert group.oom_kills() == 1
    if log is not None:
        with log:
            kills = [kill for kill in log.oom_kills_since() if kill.pid == process.pid]
        assert [kill.cgroup.rpartition("/")[2] for kill in kills] == ["1-1"]
        assert kills[0].limit_of == kills[0].cgroup
        assert kills[0].name.startswith("python")


@pytest.mark.slow
def test_a_killed_child_behind_exit_0_is_counted(run: RunGroup) -> None:
    group = run.create("1-1", memory_limit_bytes=64 * MIB)
    eat = EAT.format(size=200 * MIB)
    code = f"import os, sys\nos.spawnl(os.P_WAIT, sys.executable, 'x', '-I', '-S', '-c', {eat!r})\n"
    assert ended(run_in(group, code)) == 0
    assert group.oom_kills() == 1


def test_a_kill_from_outside_is_not_counted(run: RunGroup) -> None:
    group = run.create("1-1", memory_limit_bytes=64 * MIB)
    process = run_in(group, SLEEP)
    line_of(process)
    process.kill()
    assert ended(process) == -signal.SIGKILL
    assert group.oom_kills() == 0


@pytest.mark.slow
def test_a_full_file_cache_is_neither_a_kill_nor_memory_in_use(
    run: RunGroup, tmp_path: Path
) -> None:
    group = run.create("1-1", memory_limit_bytes=48 * MIB)
    path = str(tmp_path / "big")
    code = (
        f"file = open({path!r}, 'wb')\n"
        f"for _ in range(96):\n    file.write(bytes({MIB}))\n"
        "print('written', flush=True)\nimport time; time.sleep(60)\n"
    )
    process = run_in(group, code)
    assert line_of(process) == "written"
    in_use, peak = group.memory_bytes(), group.peak_with_cache_bytes()
    process.kill()
    ended(process)
    assert group.oom_kills() == 0
    assert in_use is not None
    assert in_use < 16 * MIB
    assert peak is not None
    assert peak > 40 * MIB


@pytest.mark.slow
def test_the_room_that_a_process_inside_sees(run: RunGroup) -> None:
    group = run.create("1-1", memory_limit_bytes=200 * MIB)
    code = f"import sys\nsys.path[:0] = {sys.path!r}\n" + EAT.format(size=100 * MIB)
    code += (
        "from headway.system.memory import MemoryGauge\n"
        "room = MemoryGauge().headroom()\n"
        "print(room.limit_bytes, room.free_bytes, room.source, flush=True)\n"
        "input()\n"
    )
    process = run_in(group, code, stdin=subprocess.PIPE)
    assert line_of(process) == "full"
    limit, free, source = line_of(process).split(maxsplit=2)
    in_use = group.memory_bytes()
    process.kill()
    ended(process)
    assert int(limit) == 200 * MIB
    assert in_use is not None
    assert 100 * MIB < in_use < 130 * MIB
    assert 70 * MIB < int(free) < 100 * MIB
    assert source.endswith("/1-1")


def test_the_cap_can_be_moved_and_taken_away(run: RunGroup) -> None:
    group = run.create("1-1", memory_limit_bytes=64 * MIB)
    folder = group.memory_folder
    assert folder is not None
    group.set_memory_limit(128 * MIB)
    assert int((folder / "memory.limit_in_bytes").read_text()) == 128 * MIB
    group.set_memory_limit(None)
    assert int((folder / "memory.limit_in_bytes").read_text()) > 1 << 60


@pytest.mark.slow
def test_a_group_that_forks_all_the_time_is_killed(run: RunGroup) -> None:
    group = run.create("1-1")
    process = run_in(group, FORK_FOR_EVER)
    line_of(process)
    wait_until(lambda: len(group.processes()) > 16, "it never forked")
    assert group.kill(10) == []
    assert ended(process) == -signal.SIGKILL
    assert group.processes() == []


def test_a_spared_process_lives_on_and_is_not_left_frozen(run: RunGroup) -> None:
    group = run.create("1-1")
    code = "print('ready', flush=True); input(); print('alive', flush=True)"
    spared = run_in(group, code, stdin=subprocess.PIPE)
    other = run_in(group, SLEEP)
    line_of(spared)
    line_of(other)
    assert group.kill(10, spare={spared.pid}) == []
    assert ended(other) == -signal.SIGKILL
    assert spared.communicate("\n", timeout=20)[0].strip() == "alive"


def test_groups_that_a_job_made_below_its_own_are_killed_and_removed(run: RunGroup) -> None:
    group = run.create("1-1")
    below = []
    for branch in group.branches:
        folder = branch.folder / "own" / "deep"
        folder.mkdir(parents=True)
        below.append(Branch(branch.version, branch.controllers, folder))
    process = run_in(Cgroup("deep", tuple(below)), SLEEP)
    line_of(process)
    assert group.processes() == [process.pid]
    assert group.kill(10) == []
    ended(process)
    group.remove()
    assert run.names() == []


def test_a_group_in_use_is_not_removed(run: RunGroup) -> None:
    group = run.create("1-1")
    process = run_in(group, SLEEP)
    line_of(process)
    waits: list[float] = []
    with pytest.raises(OSError, match="busy"):
        group.remove(sleep=waits.append)
    assert len(waits) == 19
    process.kill()
    ended(process)
    group.remove()
    assert not group.exists()
    group.remove()  # gone already: no error


def test_found_again_after_the_supervisor_was_lost(run: RunGroup) -> None:
    group = run.create("1-1")
    process = run_in(group, SLEEP)
    line_of(process)
    again = Cgroups.discover().open_run(run.run_id)
    assert again is not None
    assert again.names() == ["1-1"]
    by_name, by_path = again.open("1-1"), reopen(group.folders())
    assert by_name is not None
    assert by_path is not None
    assert by_name.processes() == by_path.processes() == [process.pid]
    assert by_path.kill(10) == []
    ended(process)


def test_cores_are_confined_by_a_cpuset() -> None:
    found = Cgroups.discover()
    if found.usable["cpuset"]:
        pytest.skip(f"control groups: cpuset: {found.usable['cpuset']}")
    run = found.create_run(f"test-{os.getpid()}", ("freezer", "cpuset"))
    core = max(os.sched_getaffinity(0))
    try:
        group = run.create("1-1", cpus=[core])
        process = run_in(group, "import os; print(os.sched_getaffinity(0), flush=True)")
        assert process.communicate(timeout=20)[0].strip() == str({core})
    finally:
        run.remove()


@pytest.mark.slow
def test_without_a_freezer_members_are_killed_one_by_one() -> None:
    found = Cgroups.discover()
    if found.usable["memory"]:
        pytest.skip(f"control groups: memory: {found.usable['memory']}")
    run = found.create_run(f"test-{os.getpid()}", ("memory",))
    try:
        group = run.create("1-1")
        process = run_in(group, FORK_FOR_EVER)
        line_of(process)
        assert group.kill(10) == []
        assert ended(process) == -signal.SIGKILL
    finally:
        run.remove()


@pytest.mark.slow
def test_v2_kills_a_group_at_once_without_any_controller() -> None:
    """Real, not recorded: a v2 tree without controllers can still kill and freeze."""
    hierarchies = [one for one in discover_hierarchies() if one.version == 2]
    found = Cgroups.discover(hierarchies=hierarchies)
    if found.usable["freezer"]:
        pytest.skip(f"control groups v2: {found.usable['freezer']}")
    run = found.create_run(f"test-{os.getpid()}", ("freezer",))
    try:
        group = run.create("1-1")
        process, spared = run_in(group, FORK_FOR_EVER), run_in(group, SLEEP)
        line_of(process)
        line_of(spared)
        # With one to spare the group is frozen and killed one by one, else as a whole.
        assert group.kill(10, spare={spared.pid}) == []
        assert ended(process) == -signal.SIGKILL
        assert group.processes() == [spared.pid]
        wait_until(lambda: scan()[spared.pid].state == "S", "the spared one is still frozen")
        assert group.kill(10) == []
        assert ended(spared) == -signal.SIGKILL
        if found.usable["memory"]:
            with pytest.raises(CgroupUnusable, match="v2"):
                found.create_run("other", ("memory",))
    finally:
        run.remove()
