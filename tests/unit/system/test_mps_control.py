"""Questions to an MPS daemon: each answer judged by its words, each value read back."""

import os
import time
from pathlib import Path

import pytest
from mps_stage import STARTED, hurried, stage, start

from headway.system.mps import Control
from headway.system.mps_places import inherited_pipe_folder
from headway.system.mps_replies import MpsProcess
from headway.system.mps_tool import (
    Executables,
    MpsError,
    MpsGone,
    MpsMissing,
    MpsNotOffered,
    MpsOtherProtocol,
    MpsRefused,
    MpsSilent,
    ToolAnswer,
    find_executables,
    quoted,
    run_tool,
)
from headway.testing.mps import FakeMps, Knobs


@pytest.fixture(scope="module")
def running():
    """One daemon for all questions; they leave it as it was."""
    with stage(Knobs(gpus=("GPU-0",))) as (fake, folder):
        yield fake, start(fake, folder)


@pytest.fixture
def control(running):
    return running[1].control


@pytest.fixture
def server(running):
    return running[1].start_server(os.getuid())


# --- the programs ------------------------------------------------------------------------------


def test_the_programs_are_found_on_the_path(running):
    fake, _ = running
    found = find_executables(str(fake.folder))
    assert found == Executables(fake.executable, fake.folder / "nvidia-cuda-mps-server")


def test_a_machine_without_mps_is_told_what_to_do(tmp_path):
    with pytest.raises(MpsMissing, match=r"not on the path; install it .* or share .* time slices"):
        find_executables(str(tmp_path))


def test_a_program_that_cannot_be_started(tmp_path):
    (tmp_path / "broken").write_text("no program")
    for executable in (tmp_path / "none", tmp_path / "broken"):
        with pytest.raises(MpsMissing, match="cannot be started"):
            Control(executable, tmp_path).servers()


def test_what_cuda_joins_unless_it_is_told_otherwise():
    assert inherited_pipe_folder({}) == Path("/tmp/nvidia-mps")
    assert inherited_pipe_folder({"CUDA_MPS_PIPE_DIRECTORY": ""}) == Path("/tmp/nvidia-mps")


def test_of_the_users_variables_none_of_mps_reaches_the_daemon(tmp_path):
    environment = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G", "PATH": "/bin", "CUDA_MPS_X": "1"}
    control = Control(tmp_path, tmp_path / "p", environment=environment)
    assert control.tool_environment() == {
        "PATH": "/bin",
        "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "p"),
    }


# --- thread percentages ------------------------------------------------------------------------


@pytest.mark.parametrize("percentage", [25, 33.3, 12.5, 100, 14.285714, 1])
def test_a_percentage_is_set_and_compared_with_the_echo(control, percentage):
    control.set_default_thread_percentage(percentage)
    assert control.default_thread_percentage() == pytest.approx(percentage, abs=0.1)


@pytest.mark.parametrize("percentage", [0, -5, 101, float("nan"), float("inf")])
def test_a_percentage_out_of_range_is_never_sent(running, percentage):
    fake, daemon = running
    before = fake.calls()
    with pytest.raises(ValueError, match="at most 100"):
        daemon.control.set_default_thread_percentage(percentage)
    assert fake.calls() == before


def test_the_echo_of_the_old_value_is_not_taken_for_success(running, monkeypatch):
    _, daemon = running
    daemon.control.set_default_thread_percentage(40)
    monkeypatch.setattr("headway.system.mps.percentage_text", lambda percentage: "101")
    with pytest.raises(MpsRefused, match="40% stayed in force"):
        daemon.control.set_default_thread_percentage(50)


def test_a_servers_percentage_is_read_back(control, server):
    control.set_thread_percentage(server, 20)
    assert control.thread_percentage(server) == 20
    with pytest.raises(MpsRefused, match=r'answered "Server 1 not found"'):
        control.set_thread_percentage(1, 20)


# --- memory limits -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "shown"), [(1, 1), (1023, 1023), (1024, 1024), (1500, 1024), (81920, 81920)]
)
@pytest.mark.parametrize("device", [0, 7, "GPU-0"])
def test_a_limit_is_sent_in_whole_mib_and_read_back(running, limit, shown, device):
    fake, daemon = running
    daemon.control.set_default_memory_limit(device, limit)
    assert fake.calls()[-2:] == [
        f"command set_default_device_pinned_mem_limit {device} {limit}M",
        f"command get_default_device_pinned_mem_limit {device}",
    ]
    assert daemon.control.default_memory_limit_mib(device) == shown
    daemon.control.set_default_memory_limit(device, None)
    assert daemon.control.default_memory_limit_mib(device) is None


@pytest.mark.parametrize("spelling", ["1.5G", "1T", "x", ""])
def test_a_limit_that_was_misread_is_noticed(control, monkeypatch, spelling):
    monkeypatch.setattr("headway.system.mps.memory_limit_text", lambda limit_mib: spelling)
    with pytest.raises(MpsRefused, match="in force"):
        control.set_default_memory_limit(0, 1536)


@pytest.mark.parametrize("device", [99, "GPU-not-here"])
def test_a_device_that_the_daemon_does_not_know(control, device):
    with pytest.raises(MpsRefused, match="no limit is in force; the device may be unknown"):
        control.set_default_memory_limit(device, 512)


@pytest.mark.parametrize("device", ["", "0 1", "GPU-0\nquit", "-1.5"])
def test_a_device_that_is_no_word_is_never_sent(running, device):
    fake, daemon = running
    before = fake.calls()
    with pytest.raises(ValueError, match="neither a device's number nor its UUID"):
        daemon.control.set_default_memory_limit(device, 512)
    assert fake.calls() == before


def test_a_servers_limit_is_read_back(control, server):
    control.set_memory_limit(server, 0, 700)
    assert control.memory_limit_mib(server, 0) == 700
    control.set_memory_limit(server, 0, None)
    assert control.memory_limit_mib(server, 0) is None


# --- servers and clients -----------------------------------------------------------------------


def test_a_server_and_its_clients(running, server):
    fake, daemon = running
    control = daemon.control
    assert control.servers() == (server,)
    assert control.server_state(server) == "ACTIVE"
    assert control.clients(server) == ()
    assert control.processes() == ()
    one, two = (fake.connect(control.pipe_folder, pid) for pid in (4711, 4712))
    assert (one.hear(), two.hear()) == ("0", "0")
    assert control.clients(server) == (4711, 4712)
    namespace = str(os.stat("/proc/self/ns/pid").st_ino)
    assert control.processes() == (
        MpsProcess(4711, server, "GPU-0", namespace, "./client-4711"),
        MpsProcess(4712, server, "GPU-0", namespace, "./client-4712"),
    )
    control.terminate_client(server, 4711)
    assert one.hear() == "810"
    assert control.clients(server) == (4712,)
    two.leave()


@pytest.mark.parametrize(
    "ask",
    [
        lambda control: control.server_state(1),
        lambda control: control.clients(1),
        lambda control: control.shutdown_server(1),
        lambda control: control.shutdown_server(1, force=True),
        lambda control: control.thread_percentage(1),
        lambda control: control.memory_limit_mib(1, 0),
        lambda control: control.terminate_client(1, 2),
    ],
)
def test_a_server_that_is_not_there_is_a_refusal_though_the_tool_exits_with_0(control, ask):
    with pytest.raises(MpsRefused, match=r'answered "Server 1 not found'):
        ask(control)


def test_a_client_that_is_not_there_is_told_with_what_follows(control, server):
    with pytest.raises(MpsRefused, match=r'answered "1"; .* killing it may harm the others'):
        control.terminate_client(server, 999)


def test_a_server_is_shut_down_and_started_again(running, server):
    _, daemon = running
    daemon.control.shutdown_server(server)
    deadline = time.monotonic() + 5
    while daemon.control.servers():
        assert time.monotonic() < deadline
    assert daemon.control.processes() == ()
    assert daemon.start_server(os.getuid()) != server


def test_a_daemon_that_cannot_tell_how_its_servers_are(running, server):
    fake, daemon = running
    fake.set(Knobs(unknown=("get_server_status",)))
    with pytest.raises(MpsNotOffered):
        daemon.control.server_state(server)
    assert daemon.control.health().state == "ready"
    fake.set(Knobs(gpus=("GPU-0",)))


def test_more_than_one_line_is_never_sent(control):
    with pytest.raises(ValueError, match="more than one line"):
        control.ask("ps\nquit")


def test_a_command_of_another_version_is_a_refusal(control):
    with pytest.raises(MpsNotOffered, match=r'Unknown command "lspart".*a newer driver'):
        control.ask("lspart")


# --- how it is ---------------------------------------------------------------------------------


def test_health_of_a_daemon_that_is_well(running):
    _, daemon = running
    health = daemon.control.health()
    assert (health.state, health.words, health.takes_clients) == ("ready", "", True)


def test_another_protocol_is_told_from_silence():
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        control = daemon.control
        fake.set(Knobs(protocol=3))
        with pytest.raises(MpsOtherProtocol, match="this is not protocol 2; use a daemon of your"):
            control.default_thread_percentage()
        health = control.health()
        assert health.state == "other protocol"
        assert "time slices" in health.words
        fake.set(Knobs(hangs=("all",)))
        control = hurried(daemon).control
        assert control.health().state == "silent"
        with pytest.raises(MpsSilent, match=r"within 0.3 s; its clients may hang too"):
            control.servers()


def test_a_daemon_about_to_end_is_as_good_as_gone(control, monkeypatch):
    words = "The MPS control daemon is shutting down"
    answers = lambda *_, **__: ToolAnswer(words, "", 0)  # noqa: E731
    monkeypatch.setattr("headway.system.mps.run_tool", answers)
    with pytest.raises(MpsGone, match=words):
        control.servers()
    assert control.health().state == "gone"


def test_a_daemon_that_is_not_there(tmp_path):
    with stage() as (fake, folder):
        control = Control(fake.executable, folder)
        words = r"get_server_list: no daemon answers in .*start it again"
        with pytest.raises(MpsGone, match=words):
            control.servers()
        assert control.health().state == "gone"
        assert fake.calls() == []


def test_a_folder_too_long_for_sockets_answers_nothing_and_that_is_no_answer():
    with stage() as (fake, _):
        long = Path("/tmp") / ("x" * 120)
        with pytest.raises(MpsGone, match=r"125 bytes long, which may be too long"):
            Control(fake.executable, long).servers()


def test_every_error_says_what_was_asked_what_came_and_what_to_do():
    error = MpsError("ps", quoted("a\x1b[2J\nb"), "end it")
    assert str(error) == "MPS: ps: " + error.answered + "; end it"
    assert "\x1b" not in str(error)
    assert len(quoted("x" * 1000)) < 250


def test_a_tool_whose_child_keeps_its_output_open_holds_nobody_up():
    started = time.monotonic()
    answer = run_tool(
        ["/bin/sh", "-c", "sleep 5 & echo done"], environment=dict(os.environ), timeout_s=4
    )
    assert answer is not None
    assert answer.out == "done"
    assert time.monotonic() - started < 4


def test_the_fake_says_that_it_is_one(running):
    fake, daemon = running
    assert isinstance(fake, FakeMps)
    answer = run_tool([str(fake.executable), "-v"], environment={}, timeout_s=5)
    assert answer is not None
    assert answer.out.startswith("a fake nvidia-cuda-mps-control")
    assert "This is a fake" in daemon.control_log.read_text()
    assert fake.calls()[: len(STARTED)] == STARTED
