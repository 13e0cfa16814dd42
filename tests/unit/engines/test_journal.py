import errno
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import BadFile
from headway.core.folder import Folder
from headway.core.words import (
    FINAL,
    Arrived,
    Cancelled,
    Exited,
    MemoryPressure,
    Outcome,
    Phase,
    Reserve,
    Reshare,
    Retry,
    Settle,
    Share,
    Start,
    Started,
    Stop,
    Wait,
)
from headway.engines.local.journal import JOURNAL, Journal, replay

NUMBER = st.integers(0, 2**62)
# Names of files need not be UTF-8: their odd bytes come as lone surrogates.
TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from(["\udcff", "a\u2028b\n\0"])
CORES = st.lists(st.integers(0, 200), max_size=4).map(tuple)
STATUS = st.sampled_from(sorted(FINAL))
HOW = st.sampled_from(["memory", "timeout", "stall", "cancel", "interrupt"])
SHARES = st.builds(
    Share,
    cores=st.none() | CORES,
    threads=st.none() | NUMBER,
    reserved_bytes=NUMBER,
    cap_bytes=st.none() | NUMBER,
    devices=CORES,
    device_bytes=st.none() | NUMBER,
    alone=st.booleans(),
)
OUTCOMES = st.builds(
    Outcome,
    status=STATUS,
    cause=TEXT,
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    peak_bytes=st.none() | NUMBER,
    retry_helps=st.booleans(),
    device=st.none() | st.integers(0, 15),
    stopped=st.none() | HOW,
    steps=st.none() | NUMBER,
    step_ns=st.none() | NUMBER,
    first_step_ns=st.none() | NUMBER,
    cpu_s=st.none() | st.floats(0, 1e9),
    unseen=TEXT,
    notes=st.lists(TEXT, max_size=3).map(tuple),
)
WORDS = st.one_of(
    st.builds(Arrived, t=NUMBER, job=NUMBER),
    st.builds(Started, t=NUMBER, job=NUMBER, attempt=NUMBER),
    st.builds(Phase, t=NUMBER, job=NUMBER, phase=st.sampled_from(["steps", "steady"])),
    st.builds(Exited, t=NUMBER, job=NUMBER, outcome=OUTCOMES),
    st.builds(MemoryPressure, t=NUMBER, free_bytes=st.integers()),
    st.builds(Cancelled, t=NUMBER, job=NUMBER),
    st.builds(Start, job=NUMBER, share=SHARES),
    st.builds(Reshare, job=NUMBER, cores=CORES, reason=TEXT),
    st.builds(Stop, job=NUMBER, how=HOW, reason=TEXT),
    st.builds(Reserve, job=NUMBER, reserved_bytes=NUMBER),
    st.builds(Wait, job=NUMBER, reason=TEXT),
    st.builds(
        Retry,
        job=NUMBER,
        reserved_bytes=st.none() | NUMBER,
        reason=TEXT,
        counts=st.sampled_from(["retry", "oom", "none"]),
    ),
    st.builds(Settle, job=NUMBER, status=STATUS, cause=TEXT),
)


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    with Folder.open(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def one_folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("journal")
    path.chmod(0o700)
    with Folder.open(path) as opened:
        yield opened


def written(folder, *words):
    journal = Journal(folder)
    for t, word in enumerate(words):
        journal.word(getattr(word, "t", t), word)
    journal.commit()
    journal.close()


def read(folder):
    return [entry.word for entry in replay(folder)]


@given(words=st.lists(WORDS, max_size=6))
def test_every_word_comes_back_as_it_was(one_folder, words):
    one_folder.remove(JOURNAL)
    written(one_folder, *words)
    entries = list(replay(one_folder))
    assert [entry.word for entry in entries] == words
    for t, (entry, word) in enumerate(zip(entries, words, strict=True)):
        assert entry.t == getattr(word, "t", t)


def test_notes_come_back_as_they_were(folder):
    journal = Journal(folder)
    journal.note(7, {"k": "memory", "memory": {"blocked": None, "overtaken": 3}})
    journal.write()
    [entry] = replay(folder)
    assert (entry.t, entry.word) == (7, None)
    assert entry.note == {"k": "memory", "memory": {"blocked": None, "overtaken": 3}}
    journal.close()


def test_there_is_nothing_before_the_first_journal(folder):
    assert read(folder) == []


def test_a_last_line_is_cut_anywhere_and_only_it_is_lost(folder):
    """Also in the middle of a character, as a crash of the machine may leave it."""
    words = [Wait(1, "größer als ☃"), Wait(2, "größer als ☃")]
    written(folder, *words)
    whole = (folder.path / JOURNAL).read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(last, len(whole)):
        (folder.path / JOURNAL).write_bytes(whole[:end])
        assert read(folder) == words[:1]
        written(folder, Wait(3, "after"))
        assert read(folder) == [words[0], Wait(3, "after")]


def test_a_first_line_that_was_cut_is_written_again(folder):
    (folder.path / JOURNAL).write_bytes(b'{"sche')
    assert read(folder) == []
    written(folder, Wait(1, "x"))
    assert read(folder) == [Wait(1, "x")]


def test_a_long_cut_line_is_found_whole(folder):
    written(folder, Wait(1, "x"))
    with open(folder.path / JOURNAL, "ab") as file:
        file.write(b"{" + b"y" * 200_000)
    written(folder, Wait(2, "x"))
    assert read(folder) == [Wait(1, "x"), Wait(2, "x")]


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"\xff\xfe",
        b"[]",
        b'{"k": "wait"}',
        b'{"t": 1, "k": "wait", "job": 1, "reason": "", "more": 2}',
        b'{"t": 1, "k": "start", "job": 1, "share": {"bad": 1}}',
        b'{"t": 1, "k": "exited", "job": 1, "outcome": 3}',
        b"",
    ],
)
def test_a_damaged_line_in_the_middle_is_named(folder, line):
    written(folder, Wait(1, "x"))
    with open(folder.path / JOURNAL, "ab") as file:
        file.write(line + b"\n")
    written(folder, Wait(2, "x"))
    with pytest.raises(BadFile, match=rf"{JOURNAL}:3: not a journal line"):
        read(folder)


def test_a_newer_schema_is_refused(folder):
    (folder.path / JOURNAL).write_bytes(b'{"schema": 99}\n')
    with pytest.raises(BadFile, match="schema 99 was written by a newer Headway"):
        read(folder)


def test_a_journal_that_is_a_link_is_refused(folder, tmp_path):
    (folder.path / JOURNAL).symlink_to("/dev/null")
    with pytest.raises(OSError, match="Too many levels"):
        Journal(folder)
    with pytest.raises(OSError, match="Too many levels"):
        read(folder)


@pytest.mark.parametrize("room", [0, 1, 20])
def test_a_full_disk_leaves_no_half_line(folder, monkeypatch, room):
    """What was not written stays buffered, and is written once there is space."""
    journal = Journal(folder)
    journal.word(0, Wait(1, "before"))
    journal.commit()
    size = (folder.path / JOURNAL).stat().st_size
    left = [room]
    real_write = os.write

    def full_write(descriptor, content):
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken, left[0] = left[0], 0
        return real_write(descriptor, content[:taken])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full_write)
        journal.word(1, Wait(2, "a line longer than what fits"))
        with pytest.raises(OSError, match="No space"):
            journal.commit()
    assert (folder.path / JOURNAL).stat().st_size == size
    assert read(folder) == [Wait(1, "before")]
    journal.word(2, Wait(3, "after"))
    journal.commit()
    journal.close()
    assert [word.job for word in read(folder)] == [1, 2, 3]


def test_lines_say_only_what_there_is_to_say(folder):
    written(folder, Retry(1, None, "again", "none"))
    line = (folder.path / JOURNAL).read_text().splitlines()[1]
    assert json.loads(line) == {
        "t": 0,
        "k": "retry",
        "job": 1,
        "reason": "again",
        "counts": "none",
    }
