"""NVIDIA's own MPS daemon, where it is installed: it needs no GPU, only its servers do."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from headway.system import procfs
from headway.system.mps import Control
from headway.system.mps_daemon import Ending, start_daemon
from headway.system.mps_log import control_facts, read_log
from headway.system.mps_places import resident_daemon
from headway.system.mps_tool import (
    CONTROL_NAME,
    MpsForeign,
    MpsGone,
    MpsNotStarted,
    MpsRefused,
    MpsSilent,
    run_tool,
)

EXECUTABLE = shutil.which(CONTROL_NAME)
HAS_GPU = Path("/dev/nvidiactl").exists()
NOBODY = 65534

pytestmark = [
    pytest.mark.mps,
    pytest.mark.slow,
    pytest.mark.skipif(EXECUTABLE is None, reason=f"{CONTROL_NAME} is not installed (mps)"),
]


@pytest.fixture
def executable():
    assert EXECUTABLE is not None
    return Path(EXECUTABLE)


@pytest.fixture
def folder():
    """A short path, and nothing left in it that runs."""
    place = Path(tempfile.mkdtemp(prefix="hw-mps-", dir="/tmp"))
    try:
        yield place
    finally:
        for found in procfs.scan().values():
            told = procfs.environ_value(found.pid, "CUDA_MPS_PIPE_DIRECTORY")
            if told is not None and Path(told).is_relative_to(place) and not found.ended:
                os.kill(found.pid, signal.SIGKILL)
        shutil.rmtree(place)


@pytest.fixture
def daemon(executable, folder):
    return start_daemon(executable, folder)


def start_of_somebody_else(executable: Path, pipe_folder: Path):
    pipe_folder.mkdir(parents=True)
    variables = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe_folder)}
    variables["CUDA_MPS_LOG_DIRECTORY"] = str(pipe_folder)
    answer = run_tool([str(executable), "-d"], environment=variables, timeout_s=20)
    assert answer is not None
    return answer


def wait_until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: (found := procfs.entry(pid)) is None or found.ended)


def test_a_whole_life(daemon):
    control = daemon.control
    assert daemon.alive()
    assert control.health().state == "ready"
    assert control.servers() == ()
    assert control.processes() == ()
    assert control_facts(read_log(daemon.control_log)[0]).ready
    assert daemon.end() == Ending("quit")
    assert not daemon.alive()
    assert daemon.end() == Ending("gone")
    assert control.health().state == "gone"
    with pytest.raises(MpsGone):
        control.servers()


def test_percentages_are_set_and_an_old_echo_is_noticed(daemon, monkeypatch):
    control = daemon.control
    for percentage in (25, 33.3, 12.5, 14.285714, 100):
        control.set_default_thread_percentage(percentage)
        assert abs(control.default_thread_percentage() - percentage) < 0.1
    for text in ("0", "101", "many"):
        monkeypatch.setattr(
            "headway.system.mps.percentage_text", lambda percentage, text=text: text
        )
        with pytest.raises(MpsRefused, match="100% stayed in force"):
            control.set_default_thread_percentage(50)
    assert "Invalid percentage" in daemon.control_log.read_text()


def test_memory_limits_are_set_and_a_misreading_is_noticed(daemon, monkeypatch):
    control = daemon.control
    for limit in (1, 1023, 1024, 1536, 81920, None):
        control.set_default_memory_limit(0, limit)
    assert control.default_memory_limit_mib(0) is None
    for text in ("1.5G", "1T", "100K", "-1G", "many"):
        monkeypatch.setattr("headway.system.mps.memory_limit_text", lambda limit, text=text: text)
        with pytest.raises(MpsRefused, match="in force"):
            control.set_default_memory_limit(0, 1536)


def test_what_it_does_not_know(daemon):
    control = daemon.control
    for ask in (control.clients, control.shutdown_server):
        with pytest.raises(MpsRefused, match="Server 1 not found"):
            ask(1)
    # Before driver 550 nobody can ask how a server is.
    with pytest.raises(MpsRefused, match=r"Server 1 not found|Unknown command"):
        control.server_state(1)
    with pytest.raises(MpsRefused, match="Server 1 not found"):
        control.terminate_client(1, 2)
    with pytest.raises(MpsRefused, match="Unknown command"):
        control.ask("no_such_command")


def test_a_path_too_long(executable, folder):
    long = folder / ("x" * 90)
    answer = start_of_somebody_else(executable, long / "pipes")
    assert (answer.status, answer.out, answer.err) == (1, "", "")
    daemon = start_daemon(executable, long, runtime=folder / "short")
    assert daemon.control.pipe_folder.parent == folder / "short"
    assert "longer than the 80 bytes" in daemon.notes[0]
    assert daemon.end() == Ending("quit")


def test_the_longest_path_that_is_used_works(executable, folder):
    wanted = folder / ("x" * (80 - len(str(folder)) - len("//pipe")))
    daemon = start_daemon(executable, wanted)
    assert len(str(daemon.control.pipe_folder)) == 80
    assert daemon.notes == ()
    assert daemon.end() == Ending("quit")


def test_a_foreign_daemon_is_left_alone(executable, folder):
    assert start_of_somebody_else(executable, folder / "pipe").status == 0
    wait_until(lambda: resident_daemon(folder / "pipe") is not None)
    stranger = resident_daemon(folder / "pipe")
    with pytest.raises(MpsForeign, match=f"process {stranger.pid} is one already"):
        start_daemon(executable, folder)
    with pytest.MonkeyPatch.context() as patch:  # as where it cannot be seen
        patch.setattr("headway.system.mps_daemon.resident_daemon", lambda *_: None)
        with pytest.raises(MpsForeign, match="already running"):
            start_daemon(executable, folder)
    (folder / "pipe" / f"{CONTROL_NAME}.pid").unlink(missing_ok=True)
    assert resident_daemon(folder / "pipe") == stranger
    assert procfs.start_ticks(stranger.pid) == stranger.start_ticks
    log = (folder / "pipe" / "control.log").read_text()
    assert "quit" not in log
    assert "set_" not in log


@pytest.mark.skipif(HAS_GPU, reason="a GPU is here, so the server lives (mps)")
def test_a_dead_server(daemon):
    with pytest.raises(MpsNotStarted, match="exited at once with status 1"):
        daemon.start_server(os.getuid())
    assert daemon.control.servers() == ()
    assert daemon.control.health().state == "ready"
    # From now on `quit` answers with 1 though the daemon ends well.
    assert daemon.end() == Ending("quit")


def test_a_killed_daemon_is_missed_and_its_files_are_used_again(executable, folder, daemon):
    kill(daemon.pid)
    assert daemon.control.health().state == "gone"
    assert daemon.end() == Ending("gone")
    again = start_daemon(executable, folder)
    assert again.pid != daemon.pid
    assert daemon.end() == Ending("gone")
    assert again.alive()
    assert again.end() == Ending("quit")


def test_a_daemon_that_is_stopped_is_silent_and_ended_by_its_pid(executable, folder):
    daemon = start_daemon(executable, folder, answer_s=0.5)
    os.kill(daemon.pid, signal.SIGSTOP)
    with pytest.raises(MpsSilent):
        daemon.control.servers()
    ending = daemon.end(quit_s=1, signal_s=0.5)
    assert ending.how == "killed"
    assert ending.signals == ((daemon.pid, "SIGTERM"), (daemon.pid, "SIGKILL"))


def test_quits_in_flight(executable, daemon):
    tools = [
        subprocess.Popen(
            [str(executable)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=daemon.control.tool_environment(),
        )
        for _ in range(4)
    ]  # fmt: skip
    for tool in tools:
        with contextlib.suppress(BrokenPipeError):  # the first one may have ended it already
            tool.stdin.write(b"quit\n")
            tool.stdin.flush()
    ending = daemon.end(quit_s=1)
    for tool in tools:
        with contextlib.suppress(BrokenPipeError):
            tool.communicate(timeout=20)
    assert ending.how in ("quit", "gone")
    assert ending.signals == ()
    assert not daemon.alive()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is played by root alone (mps)")
def test_another_user_is_refused_in_words(executable, folder):
    folder.chmod(0o755)
    assert start_of_somebody_else(executable, folder / "pipe").status == 0
    (folder / "pipe").chmod(0o755)
    control = Control(executable, folder / "pipe")

    def as_nobody(command: str) -> str:
        answer = subprocess.run(
            [str(executable)], input=command, capture_output=True, text=True, timeout=20,
            env=control.tool_environment(), user=NOBODY,
        )  # fmt: skip
        return answer.stdout

    reply = as_nobody("set_default_active_thread_percentage 50\n")
    # Before driver 550 anybody who can reach the sockets may set values.
    assert "Insufficient privileges" in reply or reply == "50.0\n"
    assert control.default_thread_percentage() == (50 if reply == "50.0\n" else 100)
    assert "Not enough privilege" in as_nobody("quit\n")
    assert resident_daemon(folder / "pipe") is not None
