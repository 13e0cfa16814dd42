"""Kills in the kernel's log. Records are as Linux 5 and 6 write them; one read gives one record."""

import os
import socket
from pathlib import Path

import pytest

from headway.system.kernel_log import KernelLog, OomKill, parse_record

CONSTRAINT = (
    b"6,900,5000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    b"oom_memcg=/run/1,task_memcg=/run/1/deep,task=py,(x)=1,pid=321,uid=1000\n SUBSYSTEM=x\n"
)
KILLED = (
    b"3,901,5001,-;Memory cgroup out of memory: Killed process 321 (py,(x)=1) total-vm:1024kB, "
    b"anon-rss:512kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:60kB oom_score_adj:500\n"
)
GLOBAL = (
    b"6,902,6000,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,"
    b"global_oom,task_memcg=/user.slice,task=train,pid=55,uid=0\n"
)


@pytest.fixture
def pipe():
    """A log and the end to write its records to."""
    kernel, reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader.setblocking(False)
    with kernel, KernelLog(reader.detach()) as log:
        yield log, kernel


def test_two_lines_of_one_kill_are_one_kill(pipe) -> None:
    log, kernel = pipe
    for record in (b"6,1,1,-;eth0: link up\n", CONSTRAINT, KILLED, GLOBAL):
        kernel.send(record)
    assert log.oom_kills_since() == [
        OomKill(321, "py,(x)=1", "/run/1/deep", "/run/1", 5000),
        OomKill(55, "train", "/user.slice", "", 6000),
    ]
    assert log.oom_kills_since() == []


def test_what_comes_later_is_read_later(pipe) -> None:
    log, kernel = pipe
    assert log.oom_kills_since() == []
    kernel.send(KILLED)
    assert [kill.pid for kill in log.oom_kills_since()] == [321]


def test_a_program_that_claims_a_kill_is_not_believed() -> None:
    assert parse_record(KILLED) is not None
    assert parse_record(b"11" + KILLED[1:]) is None  # facility 1: written by a program


@pytest.mark.parametrize("record", [b"", b"x", b"6,1;x", b"a,b,c,-;Killed process 1 (x),", b";;"])
def test_other_records_are_passed_over(record: bytes) -> None:
    assert parse_record(record) is None


def test_a_log_that_can_not_be_opened_says_why(tmp_path: Path) -> None:
    log, reason = KernelLog.open(tmp_path / "missing")
    assert log is None
    assert "No such file" in reason


def test_a_log_without_a_position_says_why(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    log, reason = KernelLog.open(tmp_path / "pipe")
    assert log is None
    assert "no position" in reason


def test_reading_begins_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(KILLED)
    log, reason = KernelLog.open(path)
    assert log is not None
    assert reason == ""
    with log:
        assert log.oom_kills_since() == []
        with path.open("ab") as file:
            file.write(GLOBAL)
        assert [kill.pid for kill in log.oom_kills_since()] == [55]
