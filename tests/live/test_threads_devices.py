"""Threads of users on GPUs, held by tests: real runs, on a machine whose GPUs are fakes.

Each test is named after its thread; docs/threads.md says what the thread is about.
"""

import os
import sys
from pathlib import Path

import pynvml
import pytest

from headway import front
from headway.core.words import Tick
from headway.probes import machine as machine_probe
from headway.probes.devices import read_devices
from headway.testing.nvml import FakeGpu, FakeMig, FakeNvml, FakeUse

GIB = 2**30
SHOW = 'echo "$CUDA_VISIBLE_DEVICES"'
# A job that ends only once all of this number of jobs run at once.
MEET = 'touch "met-$$"; until [ "$(ls | grep -c "^met-")" -ge {count} ]; do sleep 0.01; done'
LOG = "echo begin >> log; sleep 0.05; echo end >> log"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder to run in, of a caller whom nobody gave any GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.fixture
def install(monkeypatch):
    """Put these GPUs into the machine."""

    def put(*gpus, **knobs):
        monkeypatch.setattr(machine_probe, "load_nvml", lambda: FakeNvml(gpus, **knobs))

    return put


def gpu(number, *uses, gib=24, used_bytes=0, **more):
    return FakeGpu("A10", f"GPU-{number}", gib * GIB, used_bytes, tuple(uses), **more)


def run(*jobs, mode="naive", out="run", watch=None):
    """A finished run of these lines, and how its jobs ended, by name."""
    handle = front.run(list(jobs), mode=mode, out=out, watch=watch)
    return handle, {job.name: job for job in handle.status().jobs}


def said(handle, job):
    """What a job printed."""
    return handle.log_path(job).read_text().strip()


def most_at_once(log):
    """How many jobs were between their begin and their end at one time."""
    running = most = 0
    for word in Path(log).read_text().split():
        running += 1 if word == "begin" else -1
        most = max(most, running)
    assert running == 0
    return most


def cancel_once_it_waits(handle, words):
    """Supervise, and cancel everything as soon as a job gives this reason for waiting."""
    world, found = [], []

    def watch(_event, view):
        reasons = [state.wait_reason for state in view.states]
        if not found and any(words in reason for reason in reasons):
            found.extend(reasons)
            world[0].cancel([state.job.name for state in view.states])

    handle.supervise(watch=watch, on_world=world.append)
    return found


@pytest.mark.slow
def test_task_spooler_73_a_job_really_gets_the_device_it_was_given(install):
    install(*map(gpu, range(4)))
    show = f"tr '\\0' '\\n' < /proc/$$/environ | grep ^CUDA_V; {MEET.format(count=4)}"
    handle, jobs = run(*(f"[name=j{n} gpus=1 timeout=30] {show}" for n in range(4)))
    assert all(job.status == "ok" for job in jobs.values())
    assert sorted(said(handle, name) for name in jobs) == [
        f"CUDA_VISIBLE_DEVICES=GPU-{number}" for number in range(4)
    ]


@pytest.mark.slow
def test_task_spooler_66_a_part_of_a_gpu_is_refused_in_words(install):
    install(gpu(0))
    _, jobs = run("[name=part gpu_memory=4G] true", "[name=whole gpus=1] true")
    assert jobs["part"].status == "infeasible"
    assert "does not share; write gpus=1" in jobs["part"].cause
    assert jobs["whole"].status == "ok"


@pytest.mark.slow
def test_gflow_208_a_gpu_that_a_hand_started_server_holds_is_not_taken(install):
    server, notebook = FakeUse(2**22 + 1, 21 * GIB), FakeUse(2**22 + 2, GIB // 4)
    install(gpu(0, server, used_bytes=21 * GIB), gpu(1), gpu(2, notebook, used_bytes=GIB // 4))
    handle, jobs = run(*(f"[name=j{n} gpus=1] {SHOW}" for n in range(3)))
    assert {said(handle, name) for name in jobs} == {"GPU-1"}


@pytest.mark.slow
def test_gflow_208_a_waiting_job_says_who_holds_the_gpu(install):
    install(gpu(0, FakeUse(2**22 + 1, 21 * GIB), used_bytes=21 * GIB))
    handle = front.prepare(["[name=train gpus=1] true"], out="run")
    (reason,) = cancel_once_it_waits(handle, "waits for")
    assert reason.startswith("waits for 1 free GPU; device 0: used by ")
    assert str(2**22 + 1) in reason
    assert "21.0 GiB" in reason
    assert handle.status().jobs[0].attempts == 0


@pytest.mark.slow
def test_ray_15318_two_jobs_never_land_on_one_gpu_while_another_is_free(install):
    install(gpu(0), gpu(1))
    jobs = [f"[name=j{n} gpus=1 timeout=30] {SHOW}; {MEET.format(count=2)}" for n in range(2)]
    handle, _ = run(*jobs)
    assert {said(handle, name) for name in ("j0", "j1")} == {"GPU-0", "GPU-1"}


@pytest.mark.slow
def test_ray_3947_a_gpu_is_given_on_only_after_all_its_processes_have_gone(install):
    install(gpu(0))
    left_behind = "setsid sh -c 'sleep 0.3; touch gone' > /dev/null 2>&1 & exit 0"
    _, jobs = run(f"[name=first gpus=1] {left_behind}", "[name=second gpus=1] test -e gone")
    assert jobs["second"].status == "ok"


@pytest.mark.slow
def test_ray_1480_inherited_visible_devices_are_the_inventory(install, monkeypatch):
    install(*map(gpu, range(8)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    three = [f"[name=j{n} gpus=1 timeout=30] {SHOW}; {MEET.format(count=3)}" for n in range(3)]
    handle, jobs = run(*three, "[name=greedy gpus=4] true")
    assert {said(handle, f"j{n}") for n in range(3)} == {"GPU-4", "GPU-5", "GPU-6"}
    assert jobs["greedy"].status == "infeasible"
    assert jobs["greedy"].cause == "needs 4 GPUs, 3 are visible here"
    assert handle.status().exit_code == 1


@pytest.mark.slow
def test_ray_10756_the_inventory_does_not_decay(install):
    install(gpu(0))
    ends = ("true", "false", "kill -KILL $$", "no-such-program")
    handle, jobs = run(*(f"[name=j{n} gpus=1] {SHOW}; {ends[n % 4]}" for n in range(24)))
    assert {said(handle, name) for name in jobs} == {"GPU-0"}
    assert [job.status for job in jobs.values()] == ["ok", "failed", "failed", "failed"] * 6


@pytest.mark.slow
def test_skypilot_10283_a_device_of_which_nothing_is_known_is_not_free(install):
    install(gpu(0, refuses={"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED}), gpu(1))
    handle, jobs = run(f"[name=a gpus=1] {SHOW}", f"[name=b gpus=1] {SHOW}", "[gpus=2 name=c] true")
    assert {said(handle, name) for name in "ab"} == {"GPU-1"}
    assert "device 0 (A10) is never taken for free" in jobs["c"].cause


@pytest.mark.slow
def test_dstack_3278_a_key_means_the_same_in_each_place(install, folder):
    """The same request in three places: before a command, in a TOML job, in TOML defaults."""
    install(gpu(0, gib=8), gpu(1), gpu(2))
    request = "gpus = 2\ngpu_memory = '16G'\n"
    command = f"command = '{SHOW}'\n"
    spellings = {
        "line.txt": f"[gpus=2 gpu_memory=16G] {SHOW}\n",
        "job.toml": f"[[job]]\n{request}{command}",
        "defaults.toml": f"[defaults]\n{request}[[job]]\n{command}",
    }
    told = set()
    for name, text in spellings.items():
        Path(name).write_text(text)
        handle = front.run(name, out=f"run-{name}")
        (job,) = handle.status().jobs
        told.add(said(handle, job.name))
    assert told == {"GPU-1,GPU-2"}


@pytest.mark.slow
def test_dstack_2221_a_group_that_can_never_start_together_is_refused_first(install):
    install(gpu(0), gpu(1))
    trio = [f"[name=j{n} group=trio gpus=1] touch started-{n}" for n in range(3)]
    handle, jobs = run(*trio)
    assert [job.status for job in jobs.values()] == ["infeasible"] * 3
    assert "group trio needs 3 GPUs at once, 2 can be given here" in jobs["j0"].cause
    assert not list(Path().glob("started-*"))
    assert handle.status().exit_code == 3


@pytest.mark.slow
def test_dstack_3114_each_way_of_sharing_is_usable_or_says_why_not(install):
    install(gpu(0))
    ways = {way.name: way for way in front.detect().ways}
    assert {"serial", "naive", "shared", "mps", "mig"} <= ways.keys()
    assert all(way.usable or way.reason for way in ways.values())
    assert not ways["mps"].usable


@pytest.mark.slow
def test_cbio_cluster_20_a_wide_job_is_not_starved_by_narrow_ones(install):
    """Each narrow job ends once the next one has begun, so a GPU is always busy while they come."""
    install(gpu(0), gpu(1))
    follow = "for _ in $(seq 60); do [ -e begun-{next} ] && break; sleep 0.01; done"
    narrow = [
        f"[name=n{n} gpus=1] echo n{n} >> log; touch begun-{n}; {follow.format(next=n + 1)}"
        for n in range(40)
    ]
    wide = "[name=wide gpus=2] echo wide >> log"
    _, jobs = run(narrow[0], wide, *narrow[1:])
    assert all(job.status == "ok" for job in jobs.values())
    order = Path("log").read_text().split()
    assert 2 <= order.index("wide") <= 1 + 16 + 1  # it was overtaken, but only so often


@pytest.mark.slow
def test_pytorch_102715_one_process_never_gets_two_mig_devices(install):
    parts = tuple(FakeMig("A100 MIG 1g", f"MIG-{n}", 10 * GIB, instance=n + 1) for n in range(2))
    install(FakeGpu("A100", "GPU-a", 40 * GIB, migs=parts))
    meet = MEET.format(count=2)
    handle, jobs = run(
        "[name=pair gpus=2] true", *(f"[name=j{n} gpus=1] {SHOW}; {meet}" for n in range(2))
    )
    assert jobs["pair"].status == "infeasible"
    assert "a process can use one only" in jobs["pair"].cause
    assert {said(handle, name) for name in ("j0", "j1")} == {"MIG-0", "MIG-1"}


def test_nvtop_256_what_cannot_be_read_under_mig_is_said():
    part = FakeMig("A100 MIG 1g", "MIG-0", 10 * GIB)
    inventory = read_devices(FakeNvml([FakeGpu("A100", "GPU-a", 40 * GIB, migs=(part,))]), None)
    assert [device.uuid for device in inventory.devices] == ["MIG-0"]
    assert any("its load cannot be read" in note for note in inventory.notes)


@pytest.mark.slow
def test_kai_scheduler_706_a_gpu_without_memory_of_its_own_ends_in_words_not_in_waiting(install):
    install(FakeGpu("GB10", "GPU-0", 0))
    handle, jobs = run("[name=train gpus=1] true", "[name=plain] true")
    assert jobs["train"].status == "infeasible"
    assert "its memory is unknown" in jobs["train"].cause
    assert "a job without gpus= sees it" in jobs["train"].cause
    assert jobs["plain"].status == "ok"
    assert any("shares the host's" in note for note in handle.folder.machine.notes)


@pytest.mark.slow
def test_kai_scheduler_49_memory_that_is_no_limit_is_said_to_be_none(install):
    install(gpu(0, gib=80))
    handle = front.prepare(["[gpus=1 gpu_memory=4000M] true"], out="run")
    assert any("does not limit" in note for note in handle.status().notes)  # before it starts


@pytest.mark.slow
def test_nvshare_26_two_jobs_of_7_gib_never_meet_on_a_gpu_of_11(install):
    install(gpu(0, gib=11))
    _, jobs = run(*(f"[name=j{n} gpus=1 gpu_memory=7G] {LOG}" for n in range(3)))
    assert all(job.status == "ok" for job in jobs.values())
    assert most_at_once("log") == 1


@pytest.mark.slow
def test_codecarbon_567_a_device_is_known_by_its_uuid_whatever_its_visible_number(
    install, monkeypatch
):
    install(*(gpu(n, used_bytes=n * 2**20) for n in range(4)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    machine = front.detect()
    (device,) = machine.devices
    assert (device.index, device.uuid, device.used_bytes) == (0, "GPU-2", 2 * 2**20)
    assert "devices 0 are the machine's GPUs 2 (CUDA_VISIBLE_DEVICES)" in machine.notes
    handle, _ = run(f"[name=j gpus=1] {SHOW}")
    assert said(handle, "j") == "GPU-2"


def test_gpustat_117_pids_of_the_host_are_not_taken_for_ours(tmp_path):
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026532000]")  # a container's
    fake = FakeNvml([gpu(0, FakeUse(os.getpid(), GIB), used_bytes=GIB)])
    inventory = read_devices(fake, None, own_pids=[os.getpid()], proc=tmp_path)
    assert inventory.devices[0].users == (f"process {os.getpid()} of the host, 1.0 GiB",)
    assert any("its users have no names here" in note for note in inventory.notes)


@pytest.mark.slow
def test_nvidia_docker_1483_memory_counts_where_its_processes_cannot_be_seen(install):
    """A container may show no process at all: then the device's own figure says it is taken."""
    install(gpu(0, used_bytes=9 * GIB), gpu(1, used_bytes=GIB // 2))
    handle, jobs = run(*(f"[name=j{n} gpus=1] {SHOW}" for n in range(2)))
    assert {said(handle, name) for name in jobs} == {"GPU-1"}


@pytest.mark.slow
def test_gpusched_a_job_that_needs_a_gpu_where_there_is_none_is_no_success(install):
    install(init_error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    handle, jobs = run("[name=train gpus=1] true")
    assert (jobs["train"].status, handle.status().exit_code) == ("infeasible", 3)
    assert jobs["train"].cause == "needs 1 GPU, 0 are visible here"


@pytest.mark.slow
def test_radt_a_mode_without_its_gpu_is_refused_and_no_other_job_is_dropped(install):
    install(init_error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    with pytest.raises(front.NotYet, match='mode "mps" is not in this version'):
        front.run(["true"], mode="mps", out="never")
    assert not Path("never").exists()
    handle, jobs = run("[name=a] true", "[name=b gpus=1] true", "[name=c] true")
    assert [job.status for job in jobs.values()] == ["ok", "infeasible", "ok"]
    assert handle.status().exit_code == 1


@pytest.mark.slow
def test_radt_nothing_is_written_to_an_mps_daemon_that_can_be_reached(install, folder, monkeypatch):
    install(gpu(0))
    os.mkfifo(folder / "control")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(folder))
    reader = os.open(folder / "control", os.O_RDWR | os.O_NONBLOCK)
    try:
        for mode in ("serial", "naive", "shared", "partitioned"):
            run("[gpus=1] true", mode=mode, out=mode)
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
    finally:
        os.close(reader)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["no binding", "no driver", "driver fails"])
def test_gq_starts_without_nvml(install, monkeypatch, how):
    if how == "no binding":
        monkeypatch.setitem(sys.modules, "pynvml", None)  # its import fails
    else:
        code = {"no driver": "LIBRARY_NOT_FOUND", "driver fails": "UNKNOWN"}[how]
        install(init_error=getattr(pynvml, f"NVML_ERROR_{code}"))
    handle, jobs = run("[name=train] true")
    assert jobs["train"].status == "ok"
    assert handle.folder.machine.notes


@pytest.mark.slow
def test_gpuqu_a_job_starts_once_the_gpu_it_waits_for_is_free(install, monkeypatch):
    """It waits for a stranger to leave; where there is no GPU at all it ends (see gpusched)."""
    install(gpu(0, FakeUse(2**22 + 1, 21 * GIB), used_bytes=21 * GIB))
    monkeypatch.setattr("headway.engines.local.world.DEVICES_NS", 1)
    reasons = []

    def watch(event, view):
        if isinstance(event, Tick) and view.states[0].wait_reason:
            reasons.append(view.states[0].wait_reason)
            assert len(reasons) < 20
            install(gpu(0))

    handle, jobs = run(f"[name=train gpus=1] {SHOW}", watch=watch)
    assert reasons
    assert jobs["train"].status == "ok"
    assert said(handle, "train") == "GPU-0"
