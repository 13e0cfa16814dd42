"""Threads of users on queues, memory, endings and restarts, held by tests: real runs of real jobs.

Each test is named after its thread; docs/threads.md says what the thread is about.
"""

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headway import front
from headway.core.errors import RunIsLive, UsageError
from headway.core.machine import ForeignUse
from headway.core.words import Exited, Started, Tick
from headway.system import procfs
from headway.system.cgroups import Cgroups

MIB = 2**20
DEADLINE_S = 60.0
PYTHON = shlex.quote(sys.executable)
# A job that ends only once all of this number of jobs run at once.
MEET = 'touch "met-$$"; until [ "$(ls | grep -c "^met-")" -ge {count} ]; do sleep 0.01; done'
LOG = "echo begin >> log; sleep 0.1; echo end >> log"
# Runs a job file from a process of its own, as `headway run FILE --out run` does.
SUPERVISE = "from headway import front; front.run('jobs.txt', mode='naive', out='run')"

needs_groups = pytest.mark.skipif(
    bool(Cgroups.discover().usable["memory"]), reason="cgroup: no writable memory hierarchy"
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def small(monkeypatch):
    """This machine, as if it had 1 GiB of memory for jobs and 16 cores, all of them idle."""
    machine = front.detect()
    host = machine.host.model_copy(
        update={
            "cores": tuple(range(16)),
            "quota_cores": None,
            "memory_bytes": int(1024 * MIB / 0.95) + 1,
            "memory_source": "memory of the test",
        }
    )
    idle = ForeignUse(cores=0.0, memory_bytes=0, window_s=0.0)
    small = machine.model_copy(update={"hosts": (host,), "foreign": idle})
    monkeypatch.setattr(front, "detect", lambda: small)


def until(condition):
    """Poll for a condition; return what it gave."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "the condition did not come true"
        select.select([], [], [], 0.01)
    return found


def run(*jobs, mode="naive", out="run", watch=None):
    """A finished run of these lines, and how its jobs ended, by name."""
    handle = front.run(list(jobs), mode=mode, out=out, watch=watch)
    return handle, by_name(handle.status())


def by_name(result):
    return {job.name: job for job in result.jobs}


def python(code):
    """A job's command for some Python."""
    return f"{PYTHON} -c {shlex.quote(code)}"


def said(handle, job, stream="stdout"):
    return handle.log_path(job, stream=stream).read_text()


def most_at_once(log):
    """How many jobs were between their begin and their end at one time."""
    running = most = 0
    for word in Path(log).read_text().split():
        running += 1 if word == "begin" else -1
        most = max(most, running)
    assert running == 0
    return most


def alive(pid):
    found = procfs.entry(pid)
    return found is not None and not found.ended


@pytest.fixture
def supervise_elsewhere(folder):
    """Starts a supervisor of its own process for the lines given."""
    started = []

    def start(*jobs):
        Path("jobs.txt").write_text("".join(f"{job}\n" for job in jobs))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        started.append(subprocess.Popen([sys.executable, "-c", SUPERVISE], env=environment))
        return started[0]

    yield start
    for supervisor in started:
        supervisor.kill()
        supervisor.wait()
    if Path("run/.headway").exists():
        front.open_run("run").cancel()  # leave nothing running


# --- what starts when ----------------------------------------------------------------------------


@pytest.mark.slow
def test_task_spooler_59_memory_is_reserved_from_the_launch_on(small):
    """None of them ever takes the memory, so looking at what is free would start all at once."""
    _, jobs = run(*(f"[name=j{n} memory=300M] {LOG}" for n in range(12)), mode="shared")
    assert all(job.status == "ok" for job in jobs.values())
    assert most_at_once("log") <= 3


@pytest.mark.slow
def test_submitit_1689_two_large_phases_never_meet(small):
    run(*(f"[name=j{n} memory=600M] {LOG}" for n in range(3)), mode="shared")
    assert most_at_once("log") == 1


@pytest.mark.slow
def test_ray_20563_more_jobs_start_by_themselves_while_there_is_room(small):
    """Nothing is declared; each ends only once four of them run at once."""
    _, jobs = run(
        *(f"[name=j{n} timeout=30] {MEET.format(count=4)}" for n in range(4)), mode="shared"
    )
    assert all(job.status == "ok" for job in jobs.values())


@pytest.mark.slow
def test_pytorch_rfcs_108_what_cannot_fit_is_said_before_anything_starts(small):
    handle, jobs = run("[name=big memory=40G] touch started", mode="partitioned")
    assert jobs["big"].status == "infeasible"
    assert jobs["big"].cause == (
        "needs 40.0 GiB, this machine has 1.0 GiB for jobs (memory of the test); lower memory="
    )
    assert not Path("started").exists()
    assert handle.status().exit_code == 3


@pytest.mark.slow
def test_dstack_2221_a_group_is_checked_for_cores_before_a_part_of_it_starts():
    cores = front.detect().usable_cores
    group = [f"[name=j{n} group=g] touch started" for n in range(cores + 1)]
    _, jobs = run(*group, mode="partitioned")
    assert {job.status for job in jobs.values()} == {"infeasible"}
    assert f"needs {cores + 1} cores at once, {cores} run at once" in jobs["j0"].cause
    assert not Path("started").exists()


@pytest.mark.slow
def test_pytorch_3021_cores_and_threads_are_divided_among_jobs():
    cores = front.detect().usable_cores
    if cores < 2:
        pytest.skip("one core cannot be divided")
    show = python(
        "import os; print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    )
    jobs = [f"[name=j{n} timeout=60] {show}; {MEET.format(count=2)}" for n in range(2)]
    handle, told = run(*jobs, mode="partitioned")
    (first, one), (second, other) = (said(handle, name).rsplit(None, 1) for name in told)
    assert (one, other) == ("1", "1")
    assert not set(json.loads(first)) & set(json.loads(second))


@pytest.mark.slow
def test_hami_332_the_share_that_is_shown_is_the_one_in_force():
    show = python("import os; print(sorted(os.sched_getaffinity(0)))")
    handle, jobs = run(f"[name=a] {show}", mode="partitioned")
    assert json.loads(said(handle, "a")) == list(jobs["a"].cores)


@pytest.mark.slow
def test_pueue_503_the_environment_of_a_job_stands_in_its_spec(monkeypatch):
    monkeypatch.setenv("SEED", "of the caller")
    show = """command = 'echo "$SEED $RATE"'"""
    Path("jobs.toml").write_text(
        f"[defaults]\nenv = {{SEED = '1', RATE = '0.1'}}\n"
        f"[[job]]\nname = 'a'\n{show}\n"
        f"[[job]]\nname = 'b'\nenv = {{SEED = '2'}}\n{show}\n"
    )
    handle = front.prepare("jobs.toml", out="run")
    monkeypatch.setenv("SEED", "of another caller")
    handle.supervise()
    assert (said(handle, "a"), said(handle, "b")) == ("1 0.1\n", "2 0.1\n")


# --- stopping ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("state", ["waiting", "starting", "running"])
def test_task_spooler_17_a_job_can_be_cancelled_in_every_state(state):
    """In "starting" its start was asked for, and nobody has said yet that it runs."""
    handle = front.prepare(
        ["[name=first] until [ -e go ]; do sleep 0.02; done", "[name=other] sleep 600"],
        mode="serial" if state == "waiting" else "naive",
        out="run",
    )
    world, done = [], []

    def watch(event, view):
        job = view.states[1]
        begun = isinstance(event, Started) and event.job == 1
        reached = {
            "waiting": job.queued and view.states[0].status == "running",
            "starting": job.status == "running",
            "running": begun,
        }[state]
        if reached and not done:
            done.append(job.status)
            assert state != "starting" or not begun
            world[0].cancel(["other"])
            Path("go").touch()

    result = by_name(handle.supervise(watch=watch, on_world=world.append))
    assert done == ["waiting" if state == "waiting" else "running"]
    assert (result["other"].status, result["first"].status) == ("cancelled", "ok")
    assert result["other"].cause.startswith("cancelled by the user")
    # It was asked to end, and not killed after the time it has for that.
    assert result["other"].signal == (None if state == "waiting" else signal.SIGTERM)


@pytest.mark.slow
def test_skypilot_757_cancelled_means_that_the_whole_tree_has_gone():
    """With a child that left the session, and one that outlives its parent."""
    tree = (
        "echo $$ >> pids; setsid sh -c 'echo $$ >> pids; sleep 600' & "
        "(sh -c 'echo $$ >> pids; sleep 600' &) ; sleep 600"
    )
    handle = front.prepare([f"[name=tree] {tree}"], out="run")
    supervisor = threading.Thread(target=handle.supervise)
    supervisor.start()
    try:
        until(lambda: Path("pids").exists() and len(Path("pids").read_text().split()) == 3)
        pids = [int(pid) for pid in Path("pids").read_text().split()]
        assert all(map(alive, pids))
        (job,) = front.open_run("run").cancel(["tree"])
        assert job.status == "cancelled"
        assert not any(map(alive, pids))
    finally:
        front.open_run("run").cancel()
        supervisor.join()


@pytest.mark.slow
def test_submitit_1708_a_time_limit_gives_time_to_write_a_checkpoint():
    command = "trap 'sleep 0.2; touch checkpoint; exit 0' TERM; while :; do sleep 0.02; done"
    handle, jobs = run(f"[name=train timeout=0.2] {command}")
    assert jobs["train"].status == "timeout"
    assert "timeout=0.2 s is over" in jobs["train"].cause
    assert Path("checkpoint").exists()
    assert handle.status().exit_code == 1


@pytest.mark.slow
def test_ray_30584_a_run_that_was_stopped_keeps_what_has_not_run_as_waiting():
    jobs = [f"[name=j{n}] echo j{n} >> log" for n in range(4)]
    handle = front.prepare(jobs, mode="serial", out="run")
    world = []

    def watch(event, _view):
        if isinstance(event, Started):
            world[0].interrupt(1)

    stopped = handle.supervise(watch=watch, on_world=world.append)
    assert (stopped.outcome, stopped.exit_code) == ("interrupted", 130)
    assert [job.status for job in stopped.jobs] == ["ok", "waiting", "waiting", "waiting"]
    resumed = front.open_run("run").supervise()
    assert resumed.outcome == "ok"
    assert Path("log").read_text().split() == ["j0", "j1", "j2", "j3"]


# --- endings -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_gflow_208_the_cause_stands_in_the_list_and_not_only_in_the_log():
    code = "print('epoch\\n' * 5000); raise RuntimeError('loss is not finite at step 4211')"
    _, jobs = run(f"[name=train] {python(code)}")
    assert jobs["train"].cause == "exit 1: RuntimeError: loss is not finite at step 4211"


@pytest.mark.slow
def test_wandb_749_what_a_job_says_on_stderr_is_kept_whole():
    code = "import sys; print('warning ' * 1000, file=sys.stderr); raise MemoryError('caught')"
    handle, jobs = run(f"[name=train] {python(code)}")
    told = said(handle, "train", "stderr")
    assert told.startswith("warning " * 1000)
    assert told.endswith("MemoryError: caught\n")
    assert "MemoryError: caught" in jobs["train"].cause


@pytest.mark.slow
def test_skypilot_9815_a_job_that_cannot_be_launched_has_failed_and_says_why():
    Path("jobs.toml").write_text(
        "[[job]]\nname = 'folder'\ncommand = 'true'\nfolder = 'nowhere'\n"
        "[[job]]\nname = 'program'\ncommand = 'trian.py'\n"
        "[[job]]\nname = 'fine'\ncommand = 'true'\n"
    )
    jobs = by_name(front.run("jobs.toml", mode="naive", out="run").status())
    assert (jobs["folder"].status, jobs["program"].status) == ("failed", "failed")
    assert "no such folder" in jobs["folder"].cause
    assert jobs["program"].cause == "command not found: trian.py (exit 127)"
    assert jobs["fine"].status == "ok"


@pytest.mark.slow
@pytest.mark.cgroup
@needs_groups
def test_skypilot_3522_a_job_killed_for_host_memory_records_signal_and_words():
    code = "held = bytearray(500 * 2**20)"
    _, jobs = run(f"[name=big memory=48M] exec {python(code)}", mode="partitioned")
    assert (jobs["big"].status, jobs["big"].signal) == ("oom", signal.SIGKILL)
    assert jobs["big"].exit_code is None
    assert "the job itself grew; victim: " in jobs["big"].cause


@pytest.mark.slow
@pytest.mark.cgroup
@needs_groups
def test_k8s_device_plugin_720_a_cap_holds_for_a_job_and_not_for_each_of_its_processes():
    hold = python("import time; held = bytearray(60 * 2**20); time.sleep(0.3)")
    four = f"{hold} & {hold} & {hold} & {hold} & wait"
    _, jobs = run(
        f"[name=one memory=100M] {hold}",
        f"[name=four memory=100M] {four}",
        f"[name=roomy memory=400M] {four}",
        mode="partitioned",
    )
    assert (jobs["one"].status, jobs["roomy"].status) == ("ok", "ok")
    assert (jobs["four"].status, jobs["four"].attempts) == ("oom", 3)


@pytest.mark.slow
@pytest.mark.cgroup
@needs_groups
def test_pytorch_18626_a_greedy_job_falls_alone():
    greedy = f"touch began; {python('held = bytearray(500 * 2**20)')}; touch fell"
    neighbour = "until [ -e fell ]; do sleep 0.02; done; echo survived"
    handle, jobs = run(
        f"[name=greedy memory=48M] {greedy}",
        f"[name=neighbour timeout=60] {neighbour}",
        mode="partitioned",
    )
    assert jobs["greedy"].status == "oom"
    assert jobs["greedy"].attempts == 3  # tried twice more with more memory, then given up
    assert jobs["neighbour"].status == "ok"
    assert said(handle, "neighbour") == "survived\n"


@pytest.mark.slow
def test_simple_gpu_scheduler_a_failing_job_is_told():
    handle, jobs = run("[name=good] true", "[name=bad] echo 'disk quota exceeded' >&2; exit 5")
    assert handle.status().exit_code == 1
    assert (jobs["bad"].status, jobs["bad"].exit_code) == ("failed", 5)
    assert jobs["bad"].cause == "exit 5; last line: disk quota exceeded"


@pytest.mark.slow
def test_radt_exit_5_is_a_failure_now_and_after_a_resume():
    handle, _ = run("[name=train] echo x >> log; exit 5")
    resumed = front.open_run(handle.path).supervise()
    for result in (handle.status(), resumed):
        assert (result.jobs[0].status, result.jobs[0].exit_code) == ("failed", 5)
        assert result.exit_code == 1


@pytest.mark.slow
def test_radt_the_interpreter_is_the_one_that_the_command_names(
    folder, monkeypatch, supervise_elsewhere
):
    """Headway runs by its full path; `python` is what the caller's PATH says, for jobs alone."""
    (folder / "bin").mkdir()
    (folder / "bin/python").write_text("#!/bin/sh\necho the one on PATH\n")
    (folder / "bin/python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    assert supervise_elsewhere("[name=train timeout=30] python train.py").wait() == 0
    handle = front.open_run("run")
    assert handle.status().jobs[0].status == "ok"
    assert said(handle, "train") == "the one on PATH\n"


@pytest.mark.slow
def test_alloc_memory_is_measured_without_a_gpu():
    code = f"held = bytearray(80 * {MIB}); held[::4096] = bytes(len(held[::4096]))"
    _, jobs = run(f"[name=train] {python(code)}")
    assert 80 * MIB <= jobs["train"].peak_bytes < 200 * MIB


# --- running again -------------------------------------------------------------------------------


@pytest.mark.slow
def test_ray_16891_retry_failed_runs_the_failed_ones_and_says_which():
    jobs = [
        "[name=good] echo good >> log",
        "[name=bad] echo bad >> log; test -e fixed",
        "[name=after after=bad] echo after >> log",
    ]
    handle, _ = run(*jobs, mode="serial")
    names = [handle.folder.jobs.jobs[index].name for index in handle.to_retry(failed=True)]
    assert names == ["bad", "after"]
    Path("fixed").touch()
    result = handle.retry(failed=True)
    assert [job.status for job in result.jobs] == ["ok", "ok", "ok"]
    assert Path("log").read_text().split() == ["good", "bad", "bad", "after"]
    with pytest.raises(UsageError, match="nothing to retry"):
        handle.retry(failed=True)


@pytest.mark.slow
def test_gpusched_a_failed_job_is_neither_forgotten_nor_final():
    handle, _ = run("[name=train] test -e fixed")
    assert front.open_run("run").supervise().exit_code == 1  # a resume does not make it good
    Path("fixed").touch()
    assert handle.retry().exit_code == 0


@pytest.mark.slow
def test_gpusched_the_same_line_is_another_job_in_another_list():
    Path("one.txt").write_text("echo x >> log\necho x >> log\n")
    Path("two.txt").write_text("echo x >> log\n")
    for name in ("one.txt", "two.txt"):
        assert front.run(name, out=f"run-{name}").status().exit_code == 0
    assert Path("log").read_text().split() == ["x", "x", "x"]


@pytest.mark.slow
def test_gpusched_a_second_supervisor_of_a_run_is_refused(supervise_elsewhere):
    supervisor = supervise_elsewhere(
        "[name=train] echo x >> log; until [ -e go ]; do sleep 0.02; done"
    )
    until(Path("log").exists)
    with pytest.raises(RunIsLive, match=f"supervised by process {supervisor.pid}"):
        front.open_run("run").supervise()
    Path("go").touch()
    assert supervisor.wait() == 0
    assert Path("log").read_text() == "x\n"


@pytest.mark.slow
def test_gpusched_a_supervisor_that_is_a_zombie_does_not_live(supervise_elsewhere):
    supervisor = supervise_elsewhere(
        "[name=train] echo x >> log; until [ -e go ]; do sleep 0.02; done"
    )
    until(Path("log").exists)
    supervisor.kill()
    # Not waited for: it stays a zombie until the end of this test.
    until(lambda: procfs.entry(supervisor.pid).state == "Z")
    handle = front.open_run("run")
    assert handle.supervisor() is None
    Path("go").touch()
    assert handle.supervise().jobs[0].status == "ok"
    assert Path("log").read_text() == "x\n"
    assert procfs.entry(supervisor.pid).state == "Z"


@pytest.mark.slow
def test_spur_803_a_restart_adopts_what_still_runs(supervise_elsewhere):
    supervisor = supervise_elsewhere(
        "[name=train] echo $$ >> log; until [ -e go ]; do sleep 0.02; done",
        "[name=next after=train] echo next >> log",
    )
    until(lambda: Path("log").exists() and Path("log").read_text())
    pid = int(Path("log").read_text())
    supervisor.kill()
    supervisor.wait()
    assert alive(pid)
    handle = front.open_run("run")
    assert [job.status for job in handle.status().jobs] == ["running", "waiting"]

    def watch(event, _view):
        if isinstance(event, Tick):
            Path("go").touch()

    result = handle.supervise(watch=watch)
    assert [(job.status, job.attempts) for job in result.jobs] == [("ok", 1), ("ok", 1)]
    assert Path("log").read_text() == f"{pid}\nnext\n"


@pytest.mark.slow
def test_determined_5442_what_was_lost_is_said_to_be_lost_and_not_to_run(supervise_elsewhere):
    supervisor = supervise_elsewhere("[name=train] echo $$ >> log; exec sleep 600")
    until(lambda: Path("log").exists() and Path("log").read_text())
    pid = int(Path("log").read_text())
    keeper = procfs.entry(pid).ppid
    supervisor.kill()
    supervisor.wait()
    for process in (keeper, pid):
        os.kill(process, signal.SIGKILL)
    until(lambda: not alive(keeper))
    result = front.open_run("run").supervise()
    assert (result.jobs[0].status, result.exit_code) == ("lost", 1)
    assert "headway retry run train" in result.jobs[0].cause
    assert len(Path("log").read_text().split()) == 1  # and nothing started it again


@pytest.mark.slow
def test_gpusched_what_others_compute_is_not_credited_to_a_job():
    """A stranger keeps the core of an idle job busy."""
    core = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    used, outcomes = [], []

    def watch(event, view):
        if isinstance(event, Tick) and view.running:
            used.append(view.states[0].cores_used)
            if len(used) == 4:
                Path("go").touch()
        if isinstance(event, Exited):
            outcomes.append(event.outcome)

    stranger = subprocess.Popen([sys.executable, "-c", spin])
    try:
        run("[name=idle] until [ -e go ]; do sleep 0.2; done", watch=watch)
        spent = procfs.entry(stranger.pid).cpu_ticks / procfs.CLOCK_TICKS
    finally:
        stranger.kill()
        stranger.wait()
    assert spent > 0.5
    assert max(used) < 0.3
    assert outcomes[0].cpu_s < 0.3
