"""The reader against files built word by word, and against the recorder's own writer."""

import ast
import importlib.util
import os
import struct
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.agent import recorder_folder
from headway.core import recording as reader
from headway.core.recording import (
    FILE_BYTES,
    RING_SLOTS,
    Header,
    Recording,
    count_and_last,
    python_path,
    read,
    read_folder,
    summary,
    why_unseen,
)

RECORDER_FILE = recorder_folder() / "sitecustomize.py"
FIRST = Header(
    magic=reader.MAGIC,
    version=reader.VERSION,
    pid=11,
    start_ticks=22,
    generation=1,
    steps=1,
    first_ns=100,
    last_ns=100,
    status=0,
    device_ns=0,
    device_bytes=0,
    device_peak_bytes=0,
    started_ns=50,
)


@pytest.fixture(scope="module")
def recorder():
    """The recorder's file as a module that has not been let loose on this process."""
    spec = importlib.util.spec_from_file_location("recorder_under_test", RECORDER_FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def header_bytes(header):
    return struct.pack("=16Q", *header, *[0] * (16 - len(header)))


def content(header, times=()):
    """A whole file after `header.steps` steps whose last times are `times`."""
    ring = [0] * RING_SLOTS
    for step, time_ns in enumerate(times, start=header.steps - len(times)):
        ring[step % RING_SLOTS] = time_ns
    return header_bytes(header) + struct.pack(f"={RING_SLOTS}Q", *ring)


def written(tmp_path, data, name="11-22.steps"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def made(**changes):
    base = Recording(
        pid=1, start_ticks=1, generation=1, steps=1, first_ns=10, last_ns=20, times_ns=(20,),
        started_ns=0,
    )  # fmt: skip
    return replace(base, **changes)


def test_the_recorder_and_the_reader_have_the_same_layout(recorder):
    assert Header._fields == recorder.FIELDS
    names = ["MAGIC", "VERSION", "RING_SLOTS", "HEADER_WORDS", "FILE_BYTES", "STATUS_TORCH_TOO_OLD"]
    assert {name: getattr(recorder, name) for name in names} == {
        name: getattr(reader, name) for name in names
    }
    assert reader.FOLDER_VARIABLE in RECORDER_FILE.read_text()


def test_the_recorder_is_one_file_of_old_python_and_standard_library():
    assert [each.name for each in recorder_folder().iterdir() if each.name != "__pycache__"] == [
        "sitecustomize.py"
    ]
    tree = ast.parse(RECORDER_FILE.read_text(), feature_version=(3, 8))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names


def test_a_file_is_read_in_order(tmp_path):
    header = FIRST._replace(steps=3, last_ns=130, device_ns=120, device_bytes=7)
    path = written(tmp_path, content(header, [100, 110, 130]))
    assert read(path) == Recording(
        pid=11,
        start_ticks=22,
        generation=1,
        steps=3,
        first_ns=100,
        last_ns=130,
        times_ns=(100, 110, 130),
        started_ns=50,
        device_bytes=7,
        device_peak_bytes=0,
    )
    assert count_and_last(path) == (3, 130)


@pytest.mark.parametrize("steps", [RING_SLOTS - 1, RING_SLOTS, RING_SLOTS + 1, 5000])
def test_the_ring_goes_round(tmp_path, steps):
    kept = min(steps, RING_SLOTS - 1)
    times = [1000 + step for step in range(steps - min(steps, RING_SLOTS), steps)]
    header = FIRST._replace(steps=steps, last_ns=times[-1])
    assert read(written(tmp_path, content(header, times))).times_ns == tuple(times[-kept:])


def test_slots_overwritten_during_the_read_are_dropped(tmp_path, monkeypatch):
    steps, more = 2000, 24
    times = list(range(steps - RING_SLOTS, steps))
    before = content(FIRST._replace(steps=steps, last_ns=steps - 1, first_ns=0), times)
    after = content(FIRST._replace(steps=steps + more, last_ns=steps + more, first_ns=0))
    path = written(tmp_path, before)
    answers = [before, after]
    monkeypatch.setattr(reader.os, "pread", lambda _fd, length, _at: answers.pop(0)[:length])
    recording = read(path)
    assert recording.steps == steps
    assert recording.times_ns == tuple(times[more + 1 :])


def test_a_job_that_laps_the_reader_still_has_a_count(tmp_path, monkeypatch):
    before = content(FIRST._replace(steps=2000, last_ns=500))
    answers = [before, content(FIRST._replace(steps=9000, last_ns=900))]
    path = written(tmp_path, before)
    monkeypatch.setattr(reader.os, "pread", lambda _fd, length, _at: answers.pop(0)[:length])
    recording = read(path)
    assert (recording.steps, recording.last_ns, recording.times_ns) == (2000, 500, ())


WRITER = """
import importlib.util, sys, time
spec = importlib.util.spec_from_file_location("recorder_under_test", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
writer = module.Recorder(sys.argv[2])
step = 0
while True:
    for _ in range(100):
        step += 1
        writer.step(10 * step)
    time.sleep(0.0002)
"""


@pytest.mark.slow
def test_reading_while_the_recorder_writes(tmp_path):
    """Step n is stamped 10 * n, so any slot that belongs to another step shows.

    The writer is a process of its own, as a job is: a thread of this one would write
    only when the interpreter lets it, which may be never between two readings.
    """
    writer = subprocess.Popen([sys.executable, "-c", WRITER, RECORDER_FILE, tmp_path])
    counts, with_times = set(), 0
    deadline = time.monotonic() + 60
    try:
        while len(counts) < 200 or with_times < 50:
            assert time.monotonic() < deadline, (len(counts), with_times)
            assert writer.poll() is None
            for recording in read_folder(tmp_path):  # nothing as long as its file is being made
                steps = range(recording.steps - len(recording.times_ns) + 1, recording.steps + 1)
                assert recording.times_ns == tuple(10 * step for step in steps)
                counts.add(recording.steps)
                with_times += bool(recording.times_ns)
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * FILE_BYTES,
        b"\xff" * FILE_BYTES,
        content(FIRST)[:-1],
        content(FIRST) + b"\0",
        content(FIRST._replace(version=2)),
        content(FIRST._replace(magic=1)),
        content(FIRST._replace(first_ns=200)),
    ],
    ids=["empty", "zeros", "ones", "short", "long", "version", "magic", "ends before it starts"],
)
def test_what_is_no_recording_is_none(tmp_path, data):
    path = written(tmp_path, data)
    assert read(path) is None
    assert read_folder(tmp_path) == []


@given(data=st.binary(max_size=200), padded=st.booleans())
def test_garbage_never_raises(tmp_path_factory, data, padded):
    path = tmp_path_factory.mktemp("garbage") / "1-1.steps"
    path.write_bytes(data.ljust(FILE_BYTES, b"\1") if padded else data)
    assert read(path) is None
    assert count_and_last(path) == (0, 0)


def test_links_pipes_folders_and_missing_files_are_none(tmp_path):
    real = written(tmp_path, content(FIRST), "real")
    (tmp_path / "1-1.steps").symlink_to(real)
    os.mkfifo(tmp_path / "2-2.steps")
    (tmp_path / "3-3.steps").mkdir()
    for name in ["1-1.steps", "2-2.steps", "3-3.steps", "4-4.steps"]:
        assert read(tmp_path / name) is None
        assert count_and_last(tmp_path / name) == (0, 0)
    assert read_folder(tmp_path) == []
    assert read_folder(tmp_path / "nowhere") == []


def test_a_folder_is_read_in_order_of_name_and_passes_others_over(tmp_path):
    for pid in (31, 12):
        written(tmp_path, content(FIRST._replace(pid=pid), [100]), f"{pid}-22.steps")
    written(tmp_path, content(FIRST), "notes.txt")
    assert [each.pid for each in read_folder(tmp_path)] == [12, 31]


def test_a_file_without_steps_tells_why(tmp_path):
    header = FIRST._replace(steps=0, status=reader.STATUS_TORCH_TOO_OLD)
    recording = read(written(tmp_path, content(header)))
    assert (recording.steps, recording.first_ns, recording.last_ns) == (0, 0, 0)
    assert summary([recording]) is None
    assert "torch too old" in why_unseen("python train.py", recordings=[recording])


def test_a_job_is_summed_up_by_its_leading_process():
    lead = made(pid=5, steps=4, times_ns=(10, 12, 15, 20), device_peak_bytes=100, started_ns=3)
    rank = made(pid=6, steps=3, first_ns=12, last_ns=25, device_peak_bytes=70)
    later = made(pid=7, steps=2, first_ns=30, last_ns=40, device_peak_bytes=900)
    silent = made(pid=8, steps=0, device_peak_bytes=900)
    found = summary([silent, rank, later, lead])
    assert (found.pid, found.steps, found.total_steps, found.processes) == (5, 4, 9, 3)
    assert (found.first_ns, found.last_ns, found.started_ns) == (10, 20, 3)
    assert found.median_step_ns == 3
    assert found.device_peak_bytes == 170
    assert summary([]) is None


def test_equal_ranks_are_told_apart_by_who_began():
    assert summary([made(pid=2, first_ns=11), made(pid=9, first_ns=10)]).pid == 9


@pytest.mark.parametrize(
    ("times_ns", "median_ns"), [((), None), ((5,), None), ((0, 4), 4), ((0, 4, 10), 5)]
)
def test_the_median_step(times_ns, median_ns):
    assert summary([made(times_ns=times_ns)]).median_step_ns == median_ns


@pytest.mark.parametrize(
    ("inherited", "expected"),
    [(None, "/r"), ("", "/r"), ("/a:/b", "/r:/a:/b"), ("/r:/a", "/r:/a"), ("/a:/r", "/r:/a:/r")],
)
def test_python_path(inherited, expected):
    assert python_path("/r", inherited) == expected


@given(inherited=st.none() | st.lists(st.sampled_from(["/a", "/b", "/r"])).map(":".join))
def test_python_path_adds_no_empty_entry_and_loses_none(inherited):
    entries = python_path("/r", inherited).split(":")
    users = inherited.split(":") if inherited else []
    assert entries[0] == "/r"
    assert "" not in entries
    assert entries in (users, ["/r", *users])


@pytest.mark.parametrize("folder", ["", "/opt/a:b"])
def test_a_folder_that_python_path_cannot_hold_is_refused(folder):
    with pytest.raises(ValueError, match="PYTHONPATH"):
        python_path(folder, None)


NOT_USED = "no Python process of it used torch's optimizers"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("python -I train.py > out.txt 2>&1", "started with -I"),
        ("cd x && exec python3.11 -OuS train.py", "started with -S"),
        ("python -W error -X dev -E train.py", "started with -E"),
        ("env -i /usr/bin/python train.py", "started with an emptied environment (env -i)"),
        ("PYTHONPATH=/x python train.py", "started with a PYTHONPATH of its own"),
        ("PYTHONPATH=/x:$PYTHONPATH python train.py", NOT_USED),
        ("python train.py -I", NOT_USED),
        ("python -m train -I", NOT_USED),
        ("python -c 'print()' -S", NOT_USED),
        ("python prepare.py && python -I train.py", NOT_USED),
        ("torchrun --nproc-per-node 2 train.py", NOT_USED),
        ("./train", NOT_USED),
        ("python 'unfinished", NOT_USED),
        ("", NOT_USED),
        ("sleep 5; true", "not a Python command"),
    ],
)
def test_why_unseen_claims_only_what_it_knows(command, reason):
    assert why_unseen(command) == f"steps not visible: {reason}"


@given(st.text(alphabet="python-IES m=;&>'$\\\n", max_size=40))
def test_why_unseen_answers_for_any_text(command):
    assert why_unseen(command).startswith("steps not visible: ")
