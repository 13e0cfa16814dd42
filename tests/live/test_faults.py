"""What must hold when a part of Headway dies at a bad moment: each case once, for real."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headway import front
from headway.core.errors import NoSpace, RunIsLive
from headway.core.run import Run
from headway.core.words import Exited, Settle, Share, Start, Stop
from headway.engines.local import Local
from headway.engines.local.control import LOCK, Lock, Requests
from headway.system.procfs import scan

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from supervised import (
    Place,
    await_true,
    can_use_groups,
    is_alive,
    kill,
    memory_group,
)

REASON = can_use_groups()
with_groups = pytest.mark.skipif(REASON != "", reason=REASON or "can be run here")


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    for attempt in place.attempts():  # after a failed test, so that nothing lives on
        claim, started = attempt.read_claim(), attempt.read_started()
        if attempt.read_exit() is None and claim is not None and claim.keeper_pid:
            kill(claim.keeper_pid, claim.keeper_start_ticks or 0)
            if started is not None:
                kill(started.command_pid, started.command_start_ticks)
    if place.run.exists() and place.left():
        place.finish(place.start("cancel"))


def gated(place, name):
    """A job that says it began, waits until `name.gate` is there, and says it ended."""
    gate = place.path / f"{name}.gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    return (
        f"[name={name}] echo {name} >> {place.effects}; {wait}; echo {name}-end >> {place.effects}"
    )


def plain(place, name):
    return f"[name={name}] echo {name} >> {place.effects}"


def opened(place, name):
    (place.path / f"{name}.gate").touch()


def began(place, name):
    await_true(lambda: place.counts()[name], f"{name} began")


def status_of(place, name):
    return next(job for job in place.jobs() if job.name == name)


def killed(process):
    process.kill()
    process.wait()


def kill_keeper(place, job=1):
    claim = place.attempt(job).read_claim()
    assert claim is not None
    kill(claim.keeper_pid, claim.keeper_start_ticks)
    await_true(lambda: not is_alive(claim.keeper_pid, claim.keeper_start_ticks), "it is gone")


@pytest.mark.slow
def test_a_command_whose_keeper_was_killed_holds_its_place_until_it_ends(place):
    place.prepare([gated(place, "a"), plain(place, "b"), plain(place, "c")], mode="serial")
    process = place.start()
    began(place, "a")
    kill_keeper(place)
    front.open_run(place.run).cancel(["c"])  # once it obeys, it has seen the keeper's end
    assert [job.status for job in place.jobs()] == ["running", "waiting", "cancelled"]
    opened(place, "a")
    assert place.finish(process) == 1
    # Serial: "b" began after all of "a" had ended, keeper or not.
    assert place.effects.read_text().split() == ["a", "a-end", "b"]
    lost = status_of(place, "a")
    assert lost.status == "lost"
    assert "was killed and left no exit record" in lost.cause
    place.finish(place.start("retry"))
    assert [job.status for job in place.jobs()] == ["ok", "ok", "cancelled"]
    assert place.counts() == {"a": 2, "a-end": 2, "b": 1}
    assert place.left() == []


@pytest.mark.slow
@pytest.mark.parametrize("live", [True, False])
def test_a_command_whose_keeper_was_killed_can_be_cancelled(place, live):
    place.prepare([gated(place, "a")])
    process = place.start()
    began(place, "a")
    await_true(place.attempt(1).read_started, "its pid is known")
    started = place.attempt(1).read_started()
    if not live:
        killed(process)
    kill_keeper(place)
    assert place.finish(place.start("cancel")) == 0
    assert not is_alive(started.command_pid, started.command_start_ticks)
    if live:
        place.finish(process)
    assert status_of(place, "a").status == "lost"
    assert place.left() == []


@pytest.mark.slow
def test_an_end_that_was_journalled_without_an_answer_is_answered(place):
    place.prepare([plain(place, "a"), plain(place, "b")], mode="serial")
    assert place.finish() == 0
    journal = place.run / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if json.loads(line).get("k") == "exited")
    journal.write_text("".join(lines[: first + 1]) + lines[first + 1][:9])  # cut in the middle
    (place.run / "result.json").unlink()
    assert place.finish() == 0
    assert place.counts() == {"a": 1, "b": 1}


@pytest.mark.slow
def test_a_retry_that_was_killed_is_resumed(place):
    gate = place.path / "go"
    hold = f"[ ! -e {gate} ] && exit 1; echo again >> {place.effects}; sleep 0.2"
    place.prepare([f"[name=a] {hold}", plain(place, "b")], mode="serial")
    assert place.finish() == 1
    gate.touch()
    process = place.start("retry-failed", fault="after-intent")
    assert place.finish(process) == -signal.SIGKILL
    assert place.result().outcome == "interrupted"
    assert place.finish() == 0
    assert place.counts() == {"again": 1, "b": 1}


@pytest.mark.slow
def test_requests_that_a_zygote_has_left_start_nothing_after_a_resume(place):
    place.prepare([gated(place, "a"), plain(place, "b"), plain(place, "c")], mode="serial")
    process = place.start(fault="after-spawn:2")
    began(place, "a")
    zygote = next(one for one in scan().values() if one.ppid == process.pid and not one.ended)
    os.kill(zygote.pid, signal.SIGSTOP)
    try:
        opened(place, "a")
        assert place.finish(process) == -signal.SIGKILL
        assert place.attempt(2).read_claim() is None
        assert place.finish() == 0
    finally:
        os.kill(zygote.pid, signal.SIGCONT)
    # The old zygote now reads its request, forks a keeper that finds the void claim, and ends.
    await_true(lambda: not is_alive(zygote.pid, zygote.start_ticks), "the zygote ended")
    claim = place.attempt(2).read_claim()
    assert claim is not None
    assert claim.void
    assert place.counts() == {"a": 1, "a-end": 1, "b": 1, "c": 1}
    assert place.left() == []


@pytest.mark.slow
def test_cancel_where_no_supervisor_lives_finds_every_state(place):
    names = ["ended", "going", "waiting"]
    place.prepare([gated(place, name) for name in names])
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    process = place.start()
    began(place, "ended")
    began(place, "going")
    killed(process)
    opened(place, "ended")
    await_true(lambda: place.attempt(1).read_exit(), "it ended by itself")
    assert place.finish(place.start("cancel")) == 0
    assert [job.status for job in place.jobs()] == ["ok", "cancelled", "cancelled"]
    assert place.counts() == {"ended": 1, "ended-end": 1, "going": 1}
    assert place.finish() == 1  # nothing starts
    assert place.counts()["waiting"] == 0
    assert place.left() == []


@pytest.mark.slow
@pytest.mark.parametrize("point", ["after-intent", "after-spawn", "after-claim"])
def test_cancel_of_a_start_that_was_cut_short(place, point):
    place.prepare([gated(place, "a")])
    assert place.finish(place.start(fault=point)) == -signal.SIGKILL
    assert place.finish(place.start("cancel")) == 0
    assert [job.status for job in place.jobs()] == ["cancelled"]
    assert place.finish() == 1
    assert place.counts()["a-end"] == 0
    assert place.left() == []


def test_a_stop_of_a_start_that_was_only_decided(place):
    """Memory can run low in the very turn in which the newest job was chosen."""
    place.prepare([plain(place, "a")])
    run = Run.open(place.run)
    jobs = run.jobs.jobs
    opening = Local().open(run, run.plan, jobs, run.machine, recorder=None, environment=os.environ)
    with opening as world:
        world.perform(Start(0, Share()))
        world.perform(Stop(0, "memory", "only 1 MiB left"))
        while not isinstance(event := world.next(), Exited):
            assert event is not None
        assert event.outcome.stopped == "memory"
        world.perform(Settle(0, "cancelled", ""))
    assert place.counts() == {}
    assert place.attempts() == []
    run.folder.close()


@pytest.mark.slow
def test_cancel_of_what_has_ended_changes_nothing(place):
    place.prepare([plain(place, "a")])
    assert place.finish() == 0
    before = (place.run / "result.json").read_bytes()
    assert place.finish(place.start("cancel")) == 0
    assert (place.run / "result.json").read_bytes() == before


@pytest.mark.slow
def test_a_second_supervisor_is_refused_and_changes_nothing(place):
    place.prepare([gated(place, "a")])
    process = place.start()
    began(place, "a")
    assert place.finish(place.start()) == 2
    assert "is being supervised by process" in (place.path / "words").read_text()
    opened(place, "a")
    assert place.finish(process) == 0
    assert place.counts() == {"a": 1, "a-end": 1}


@pytest.mark.slow
@pytest.mark.root
@with_groups
def test_a_disk_too_full_for_a_run_folder_leaves_no_half_of_one(place):
    disk = place.path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk], check=True)
    try:
        with pytest.raises(NoSpace, match="nothing was started"):
            front.prepare(["true"], out=disk / "run")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.slow
@pytest.mark.cgroup
@pytest.mark.root
@with_groups
def test_a_run_resumed_from_another_group_leaves_none_behind(place):
    place.prepare([gated(place, "a"), plain(place, "b")], mode="serial")
    with memory_group(2**31) as group:
        process = place.start(group=group)
        began(place, "a")
        killed(process)
        assert list(group.glob("headway-*/1-1"))
        resumed = place.start()
        await_true(lambda: front.open_run(place.run).supervisor() == resumed.pid, "it resumes")
        opened(place, "a")
        assert place.finish(resumed) == 0
        assert not list(group.glob("headway-*"))
    assert place.counts() == {"a": 1, "a-end": 1, "b": 1}
    assert place.left() == []


@pytest.mark.slow
@pytest.mark.cgroup
@pytest.mark.root
@with_groups
def test_groups_of_a_run_that_was_killed_and_removed_are_not_taken_for_ours(place):
    lines = [gated(place, "a")]
    place.prepare(lines)
    process = place.start()
    began(place, "a")
    killed(process)
    opened(place, "a")
    await_true(lambda: place.attempt(1).read_exit(), "it ended")
    await_true(lambda: place.left(), "its group is there")
    for path in sorted(place.run.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    place.run.rmdir()
    place.prepare(lines)
    assert place.finish() == 0
    record = place.attempt(1).read_exit()
    assert record is not None
    assert record.cgroup is not None
    assert place.left() == []


def test_a_look_for_the_supervisor_refuses_nobody(place):
    place.prepare([plain(place, "a")])
    run = Run.open(place.run)
    looker = run.folder.open_file(LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(looker, fcntl.LOCK_SH)
    # Whoever waits for the lock has to wait: it is given free by another thread meanwhile.
    thread = threading.Timer(0.05, os.close, [looker])
    thread.start()
    Lock(run).close()
    thread.join()
    held = Lock(run)
    with pytest.raises(RunIsLive):
        Lock(run)
    held.close()
    run.folder.close()


def test_requests_of_the_same_tick_are_all_seen(place):
    place.prepare([plain(place, "a")])
    run = Run.open(place.run)
    requests = Requests(run)
    with contextlib.closing(requests):
        assert requests.take() == []
        changed_ns = (place.run / "requests").stat().st_mtime_ns
        run.request("cancel", ["a"])
        # As a kernel leaves it whose tick has not moved on since the look before.
        os.utime(place.run / "requests", ns=(changed_ns, changed_ns))
        assert [request["jobs"] for request in requests.take()] == [["a"]]
    run.folder.close()
