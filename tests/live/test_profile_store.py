"""The profile store with real runs, and in the hands of several processes at once."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import headway
from headway.core.job import Job
from headway.probes.profiles import ProfileStore, database
from headway.testing.machines import fake_machine
from headway.testing.profiles import past_attempt
from headway.testing.queues import fake_job

MACHINE = fake_machine(cores=1)
ROOT = os.geteuid() == 0

WRITER = """
import os, sys, time
from pathlib import Path
from headway.probes.profiles import ProfileStore
from headway.testing.machines import fake_machine
from headway.testing.profiles import past_attempt
from headway.testing.queues import fake_job

folder, name, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with ProfileStore.open(folder) as store:
    for number in range(times):
        job = fake_job("a", command=f"python {name}.py {number}")
        rows = [past_attempt(job, fake_machine(cores=1)) for _ in range(2)]
        while not store.learn(rows):
            pass
        print(number, flush=True)
        time.sleep(0.005)
    print(*store.notes, sep="\\n", file=sys.stderr)
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "headway"


def writer(folder, name, times, **changes):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), name, str(times)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **changes,
    )


def sound_rows(folder):
    connection = sqlite3.connect(folder / database.FILE)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    (count,) = connection.execute("SELECT count(*) FROM attempts").fetchone()
    connection.close()
    return count


@pytest.mark.slow
def test_a_real_run_is_known_to_the_next_one(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script = tmp_path / "work.py"
    script.write_text("import sys, time; time.sleep(float(sys.argv[1]))")
    jobs = [
        Job(name=name, command=f"{sys.executable} work.py {seconds}", folder=str(tmp_path))
        for name, seconds in (("a", 1.3), ("b", 1.6), ("c", 0.1))
    ]
    with ProfileStore.open(folder) as store:
        machine = headway.detect()
        with store.learner(machine, environment=os.environ) as learner:
            handle = headway.run(jobs, out=tmp_path / "run", watch=learner.watch)
        told = store.recall(jobs, machine, environment=os.environ)
        script.write_text("import time; time.sleep(9)")
        changed = store.recall(jobs, machine, environment=os.environ)
    results = handle.status().jobs
    for job, workload in zip(results[:2], told.workloads, strict=False):
        # Not "measured" where others kept the machine busy meanwhile.
        assert workload.paces[0].work.low < job.end - job.start < workload.paces[0].work.high
        assert workload.peak_bytes.value == job.peak_bytes
        assert workload.paces[0].threads == job.threads
    assert "with other arguments" in told.workloads[2].remark  # too short for a row
    assert all(": a hint only" in workload.remark for workload in changed.workloads)


@pytest.mark.slow
def test_four_supervisors_make_the_file_and_write_to_it_at_once(folder):
    writers = [writer(folder, f"w{number}", 25) for number in range(4)]
    for process in writers:
        _, complaints = process.communicate(timeout=90)
        assert (process.returncode, complaints.strip()) == (0, "")
    assert sound_rows(folder) == 4 * 25 * 2


@pytest.mark.slow
def test_a_supervisor_killed_while_it_writes_leaves_whole_transactions(folder):
    for number in range(3):
        process = writer(folder, f"w{number}", 10**6)
        for _ in range(5 + number):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    with ProfileStore.open(folder) as store:
        assert store.learn([past_attempt(fake_job("a"), MACHINE)])
        assert store.notes == ()
    rows = sound_rows(folder)
    assert rows % 2 == 1
    assert rows >= 2 * (5 + 6 + 7) + 1


@pytest.mark.slow
def test_several_that_find_it_damaged_set_it_aside_once_and_go_on_together(folder):
    folder.mkdir()
    (folder / database.FILE).write_bytes(b"noise" * 10_000)
    writers = [writer(folder, f"w{number}", 5) for number in range(4)]
    for process in writers:
        process.communicate(timeout=90)
        assert process.returncode == 0
    assert (folder / database.DAMAGED).read_bytes() == b"noise" * 10_000
    sound_rows(folder)


@pytest.mark.slow
def test_damage_under_a_running_writer_stops_neither_it_nor_the_next(folder):
    process = writer(folder, "w", 30)
    assert process.stdout.readline()
    # In the middle of a transaction sqlite may not notice, and write parts of the old file back.
    with open(folder / database.FILE, "r+b") as file:
        file.write(b"\xff" * os.fstat(file.fileno()).st_size)
    process.communicate(timeout=90)
    assert process.returncode == 0
    job = fake_job("a")
    with ProfileStore.open(folder) as store:
        assert store.learn([past_attempt(job, MACHINE)])
        assert store.recall([job], MACHINE, environment={}).known == 1


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="root: another user has to be played")
def test_a_home_that_cannot_be_written_is_read_and_nothing_is_raised(request):
    # Not tmp_path: the other user could not reach it.
    home = Path(tempfile.mkdtemp(prefix="headway-"))
    request.addfinalizer(lambda: shutil.rmtree(home))
    folder = home / "headway"
    with ProfileStore.open(folder) as store:
        store.learn([past_attempt(fake_job("a"), MACHINE)])
    home.chmod(0o755)
    for path, mode in ((folder / database.FILE, 0o400), (folder, 0o500)):
        os.chown(path, 65534, -1)
        path.chmod(mode)
    script = f"""
import os
from headway.probes.profiles import ProfileStore
from headway.testing.machines import fake_machine
from headway.testing.profiles import past_attempt
from headway.testing.queues import fake_job
from pathlib import Path
os.setuid(65534)
job, machine = fake_job("a"), fake_machine(cores=1)
with ProfileStore.open(Path({str(folder)!r})) as store:
    print(store.recall([job], machine, environment={{}}).known)
    store.learn([past_attempt(job, machine)])
    print(store.notes)
with ProfileStore.open(Path({str(home / "none")!r})) as store:
    print(store.notes)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    known, read_only, nowhere = done.stdout.splitlines()
    assert (known, done.stderr) == ("1", "")
    assert "readonly database" in read_only
    assert "Permission denied" in nowhere
