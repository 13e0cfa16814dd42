"""Removing run folders: what lives stays, no link is followed, a kill leaves no half of a run."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from headway.core.errors import RunIsLive, UnknownName
from headway.core.index import MARKER, REMOVED
from headway.core.job import Jobs
from headway.core.run import Result, Run
from headway.engines.local import removal
from headway.engines.local.attempts import AttemptFolder
from headway.engines.local.control import LOCK, Lock
from headway.engines.local.removal import look, remove, size_of
from headway.system import procfs
from headway.testing.queues import FakeQueue, fake_jobs


@pytest.fixture
def run(tmp_path):
    queue = FakeQueue(jobs=fake_jobs(1))
    made = Run.create(
        tmp_path / "runs" / "r1",
        plan=queue.plan("serial"),
        machine=queue.machine,
        jobs=Jobs(source="jobs.txt", jobs=tuple(queue.jobs)),
    )
    made.folder.replace("journal.jsonl", b"")
    made.write_result(Result(outcome="ok", mode="serial", start=0.0, end=1.0, jobs=()))
    with made.folder:
        yield made


def attempt_of(run, *, pid, start, command=None):
    folder = AttemptFolder.of(run.path, job=1, attempt=1)
    folder.make()
    lines = [f'{{"pid":{pid},"start":{start},"boot":"{procfs.boot_id()}","t":1}}']
    if command is not None:
        lines.append(f'{{"pid":{command[0]},"start":{command[1]},"t":1}}')
    folder.claim.write_text("\n".join([*lines, ""]))
    return folder


def test_a_run_that_has_ended_goes_whole(run):
    (run.path / "jobs" / "1" / "1" / "steps").mkdir(parents=True)
    (run.path / "jobs" / "1" / "1" / "stdout").write_text("x" * 10_000)
    found = look(run.path)
    assert (found.state, found.obstacle) == ("ok", "")
    assert found.size_bytes >= 10_000
    remove(run.path)
    assert os.listdir(run.path.parent) == []


def test_how_long_ago_is_counted_from_the_journal(run):
    os.utime(run.path / "journal.jsonl", (1000, 1000))
    assert look(run.path).ended_s == 1000


def test_a_supervised_run_stays(run):
    lock = Lock(run)
    try:
        assert look(run.path).obstacle == f"supervised by process {os.getpid()}"
        with pytest.raises(RunIsLive):
            remove(run.path)
    finally:
        lock.close()
    assert (run.path / MARKER).exists()


def test_a_run_with_a_living_keeper_stays(run):
    attempt_of(run, pid=os.getpid(), start=procfs.start_ticks(os.getpid()))
    assert look(run.path).obstacle == "a job of it still runs"
    with pytest.raises(RunIsLive, match="a job of it still runs"):
        remove(run.path)
    assert Run.open(run.path).result() is not None


def test_a_command_whose_keeper_was_killed_counts_as_living(run):
    own = (os.getpid(), procfs.start_ticks(os.getpid()))
    attempt_of(run, pid=2**22, start=1, command=own)
    assert look(run.path).state == "running"


def test_a_keeper_on_its_way_finds_its_attempt_taken(run, monkeypatch):
    attempt = AttemptFolder.of(run.path, job=1, attempt=1)
    attempt.make()
    claims = []
    monkeypatch.setattr(removal, "_empty", lambda folder: claims.append(attempt.read_claim()))
    remove(run.path)
    assert claims[0].void


def test_a_run_that_nobody_began_yet_is_left_alone_for_a_minute(run, monkeypatch):
    run.folder.remove("journal.jsonl")
    run.folder.remove("result.json")
    assert look(run.path).obstacle == "it is about to begin"
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    assert (look(run.path).state, look(run.path).obstacle) == ("interrupted", "")


def test_a_run_that_was_taken_up_again_meanwhile_stays(run):
    assert look(run.path).state == "ok"
    run.folder.remove("result.json")
    with pytest.raises(RunIsLive, match="unfinished"):
        remove(run.path)
    remove(run.path, unfinished=True)
    assert not run.path.exists()


@pytest.mark.parametrize("name", [MARKER, "result.json"])
def test_a_damaged_run_stays(run, name):
    (run.path / name).write_text("{")
    found = look(run.path)
    assert found.state == "damaged"
    assert name in found.obstacle


def test_what_is_no_run_is_not_touched(run, tmp_path):
    run.folder.remove(MARKER)
    for path in (run.path, tmp_path, tmp_path / "nothing"):
        for act in (look, remove):
            with pytest.raises(UnknownName):
                act(path)
    assert (run.path / "plan.json").exists()


def test_a_link_to_a_run_is_not_followed(run, tmp_path):
    (tmp_path / "link").symlink_to(run.path)
    with pytest.raises(UnknownName):
        remove(tmp_path / "link")
    assert (run.path / MARKER).exists()


def test_links_inside_are_removed_and_not_followed(run, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (run.path / "to-folder").symlink_to(outside)
    (run.path / "jobs" / "to-file").symlink_to(outside / "kept")
    (run.path / "jobs" / "deep").mkdir()
    (run.path / "jobs" / "deep" / "to-folder").symlink_to(outside)
    assert look(run.path).size_bytes < 100_000
    remove(run.path)
    assert (outside / "kept").read_text() == "kept"
    assert not run.path.exists()


def test_another_file_system_inside_is_refused_before_anything_goes(run, monkeypatch):
    monkeypatch.setattr(removal, "mount_points", lambda: [run.path / "jobs", run.path.parent])
    with pytest.raises(OSError, match=r"mounted at .*/r1/jobs; unmount it first"):
        remove(run.path)
    assert Run.open(run.path).jobs


def test_folders_that_are_nested_too_deep_are_said(run, monkeypatch):
    def too_deep(*words, **more):
        raise RecursionError

    monkeypatch.setattr(shutil, "rmtree", too_deep)
    with pytest.raises(OSError, match="nested too deep"):
        remove(run.path)
    assert look(run.path).state == "removed"


@pytest.mark.slow
@pytest.mark.parametrize("step", range(1, 60, 4))
def test_killed_at_any_moment_no_half_of_a_run_is_left(run, step):
    """A kill before the n-th call that changes the disk; then the next removal ends it."""
    program = f"""
import os, pathlib, signal, sys
from headway.engines.local.removal import remove
calls = 0
def deadly(name):
    real = getattr(os, name)
    def call(*words, **more):
        global calls
        calls += 1
        if calls == {step}:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*words, **more)
    setattr(os, name, call)
for name in ("rename", "unlink", "rmdir"):
    deadly(name)
remove(pathlib.Path({str(run.path)!r}))
"""
    for number in range(8):
        (run.path / "jobs" / str(number) / "1" / "steps").mkdir(parents=True)
        (run.path / "jobs" / str(number) / "1" / "exit").write_text("{}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment)
    assert done.returncode in (0, -9)
    if (run.path / MARKER).exists():
        assert sorted(run.folder.names()) == sorted(
            [MARKER, LOCK, "journal.jsonl", "result.json", "plan.json", "machine.json",
             "jobs.json", "jobs", "requests"]
        )  # fmt: skip
        assert len(os.listdir(run.path / "jobs")) == 8
    elif run.path.exists() and run.folder.names():
        assert REMOVED in run.folder.names()
        with pytest.raises(UnknownName):
            Run.open(run.path)
        assert look(run.path).state == "removed"
    if (run.path / MARKER).exists() or (run.path / REMOVED).exists():
        remove(run.path)
        assert not run.path.exists()


def test_sizes_count_what_is_on_the_disk(tmp_path):
    assert size_of(tmp_path / "nothing") == 0
    (tmp_path / "a").mkdir()
    with open(tmp_path / "a" / "sparse", "wb") as file:
        file.truncate(2**30)
    (tmp_path / "a" / "full").write_bytes(b"x" * 2**16)
    assert 2**16 <= size_of(tmp_path) < 2**20
