import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.engines.local.attempts import (
    AttemptFolder,
    AttemptState,
    CgroupMemory,
    SpawnError,
    keeper_alive,
    open_keeper,
)

RECORD = {
    "exit_code": None,
    "signal": 9,
    "command_end_t": 20,
    "t": 30,
    "maxrss_bytes": 4096,
    "user_s": 0.5,
    "system_s": 0,
    "reaped": 3,
    "killed_children": [[12, 9]],
    "cgroup": {"oom_kill": 1, "peak_bytes": 100, "limit_bytes": None},
    "vmstat_oom_kill": [4, 5],
    "inherited_oom_kill": [None, 1],
    "rlimit_as_bytes": 1000,
    "spawn_error": {"errno": 2, "message": "No such file or directory", "what": "/x"},
    "start_t": 10,
    "notes": ["affinity: Invalid argument"],
}


@pytest.fixture
def attempt(tmp_path):
    folder = AttemptFolder.of(tmp_path, job=7, attempt=2)
    folder.make()
    return folder


@pytest.fixture
def sleeper():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def claim_text(pid, *, start=None, boot=None):
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    content = {"pid": pid, "start": start or int(stat[19]), "boot": boot or here, "t": 5}
    return json.dumps(content) + "\n"


def test_folders_are_private_and_numbered(attempt, tmp_path):
    assert attempt.path == tmp_path / "jobs" / "7" / "2"
    assert attempt.path.stat().st_mode & 0o777 == 0o700
    assert attempt.steps.stat().st_mode & 0o777 == 0o700
    attempt.make()  # a second time does no harm


def test_an_untouched_folder_is_unclaimed(attempt):
    assert attempt.state() is AttemptState.UNCLAIMED
    assert attempt.read_claim() is None
    assert attempt.read_started() is None
    assert attempt.read_exit() is None


def test_exit_record_is_read_in_full(attempt):
    attempt.exit.write_text(json.dumps(RECORD) + "\n")
    record = attempt.read_exit()
    assert (record.exit_code, record.signal) == (None, 9)
    assert (record.start_ns, record.command_end_ns, record.end_ns) == (10, 20, 30)
    assert record.spawn_error == SpawnError(2, "No such file or directory", "/x")
    assert record.cgroup == CgroupMemory(1, 100, None)
    assert record.host_oom_kills == (4, 5)
    assert record.inherited_oom_kills == (None, 1)
    assert record.killed_children == ((12, 9),)
    assert record.notes == ("affinity: Invalid argument",)
    assert attempt.state() is AttemptState.ENDED


@pytest.mark.parametrize("key", sorted(RECORD))
def test_exit_record_without_a_key_is_none(attempt, key):
    attempt.exit.write_text(json.dumps({k: v for k, v in RECORD.items() if k != key}) + "\n")
    assert attempt.read_exit() is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\0" * 4096,
        b"[1, 2]\n",
        b"null\n",
        b'"text"\n',
        b"\xff\xfe{\n",
        b"[" * 50_000 + b"\n",
        json.dumps(RECORD).encode(),  # the newline is missing: cut short
        json.dumps(RECORD).encode()[:-20] + b"\n",
        json.dumps(RECORD | {"exit_code": True}).encode() + b"\n",
        json.dumps(RECORD | {"exit_code": "0"}).encode() + b"\n",
        json.dumps(RECORD | {"killed_children": [1]}).encode() + b"\n",
        json.dumps(RECORD | {"vmstat_oom_kill": [1]}).encode() + b"\n",
    ],
)
def test_what_is_no_record_reads_as_none(attempt, content):
    attempt.exit.write_bytes(content)
    attempt.claim.write_bytes(content)
    assert attempt.read_exit() is None
    assert attempt.read_claim() is None
    assert attempt.read_started() is None
    assert attempt.state() is AttemptState.LOST  # claimed by nobody knows whom


def test_links_and_pipes_are_not_followed(attempt, tmp_path):
    target = tmp_path / "elsewhere"
    target.write_text(json.dumps(RECORD) + "\n")
    attempt.exit.symlink_to(target)
    os.mkfifo(attempt.claim)
    assert attempt.read_exit() is None
    assert attempt.read_claim() is None


def test_claim_of_a_live_process(attempt, sleeper):
    attempt.claim.write_text(claim_text(sleeper.pid))
    claim = attempt.read_claim()
    assert not claim.void
    assert claim.keeper_pid == sleeper.pid
    assert keeper_alive(claim)
    assert attempt.state() is AttemptState.RUNNING
    descriptor = open_keeper(claim)
    assert descriptor is not None
    os.close(descriptor)


def test_started_is_the_second_line_once_it_is_complete(attempt, sleeper):
    started = json.dumps({"pid": 31, "start": 32, "t": 33})
    attempt.claim.write_text(claim_text(sleeper.pid) + started)
    assert attempt.read_started() is None
    attempt.claim.write_text(claim_text(sleeper.pid) + started + "\n")
    assert attempt.read_started().command_pid == 31
    assert attempt.read_started().command_start_ticks == 32
    assert attempt.read_claim().keeper_pid == sleeper.pid


def test_another_process_with_the_same_pid_is_not_the_keeper(attempt, sleeper):
    attempt.claim.write_text(claim_text(sleeper.pid, start=1))
    assert not keeper_alive(attempt.read_claim())
    assert open_keeper(attempt.read_claim()) is None
    assert attempt.state() is AttemptState.LOST


def test_a_keeper_of_another_boot_is_gone(attempt, sleeper):
    attempt.claim.write_text(claim_text(sleeper.pid, boot="another"))
    assert not keeper_alive(attempt.read_claim())
    assert open_keeper(attempt.read_claim()) is None
    assert attempt.state() is AttemptState.LOST


def test_a_zombie_is_gone(attempt, sleeper):
    attempt.claim.write_text(claim_text(sleeper.pid))
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not keeper_alive(attempt.read_claim())
    assert attempt.state() is AttemptState.LOST
    sleeper.wait()
    assert open_keeper(attempt.read_claim()) is None


def test_void_claim_forbids_for_ever(attempt):
    assert attempt.link_void_claim()
    assert attempt.read_claim().void
    assert attempt.state() is AttemptState.VOID
    assert attempt.link_void_claim()  # of an earlier resumption: still nothing runs
    assert sorted(os.listdir(attempt.path)) == ["claim", "steps"]
    assert attempt.claim.stat().st_mode & 0o777 == 0o600


def test_void_claim_makes_a_folder_that_is_missing(tmp_path):
    folder = AttemptFolder.of(tmp_path, job=1, attempt=1)
    assert folder.link_void_claim()
    assert folder.state() is AttemptState.VOID


def test_void_claim_loses_against_a_keeper(attempt, sleeper):
    attempt.claim.write_text(claim_text(sleeper.pid))
    assert not attempt.link_void_claim()
    assert attempt.read_claim().keeper_pid == sleeper.pid
    assert sorted(os.listdir(attempt.path)) == ["claim", "steps"]


def test_void_claim_loses_against_a_claim_that_cannot_be_read(attempt):
    attempt.claim.write_bytes(b"")
    assert not attempt.link_void_claim()
