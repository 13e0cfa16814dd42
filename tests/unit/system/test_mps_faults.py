"""Faults of MPS, at the start and later, three times each: words, and exactly what was sent.

After each the list of commands and signals that the fake got is compared with the expected one, and
nothing of it is left running.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from mps_stage import ANSWER_S, HEALTHY, STARTED, hurried, stage, start

from headway.system import procfs
from headway.system.mps import Control
from headway.system.mps_daemon import Ending, start_daemon
from headway.system.mps_log import read_log, server_facts
from headway.system.mps_places import (
    LONGEST_PIPE_FOLDER,
    Resident,
    choose_pipe_folder,
    resident_daemon,
)
from headway.system.mps_tool import (
    MpsForeign,
    MpsGone,
    MpsMissing,
    MpsNotStarted,
    MpsRefused,
    MpsSilent,
    run_tool,
)
from headway.testing.mps import FakeMps, Knobs

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("time_of_three", range(3))]
SIGNAL_S = 0.3
ME = os.getuid()
QUIT = "command quit -t 1"


def end(daemon) -> Ending:
    return daemon.end(quit_s=1, signal_s=SIGNAL_S)


def kill(pid: int) -> None:
    """What an administrator or the kernel may do at any time."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: procfs.entry(pid) is None)


def wait_until(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def start_of_somebody_else(fake: FakeMps, pipe_folder: Path) -> None:
    pipe_folder.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe_folder)}
    variables["CUDA_MPS_LOG_DIRECTORY"] = str(pipe_folder)
    answer = run_tool([str(fake.executable), "-d"], environment=variables, timeout_s=10)
    assert answer is not None
    assert answer.status == 0


# --- nothing goes wrong ------------------------------------------------------------------------


def test_a_whole_life(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        assert (folder / "pipe").stat().st_mode & 0o777 == 0o700
        assert daemon.alive()
        assert daemon.notes == ()
        assert daemon.control.client_environment() == {
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe")
        }
        server = daemon.start_server(ME)
        assert daemon.start_server(ME) == server
        assert end(daemon) == Ending("quit")
        assert not daemon.alive()
        assert end(daemon) == Ending("gone")
        assert fake.settle() == [
            *STARTED,
            "command get_server_list",
            f"command start_server -uid {ME}",
            "command get_server_list",
            QUIT,
        ]


def test_a_daemon_is_known_again_by_what_was_kept_of_it(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        again = replace(daemon, control=Control(fake.executable, folder / "pipe"))
        assert again.alive()
        assert not replace(daemon, start_ticks=daemon.start_ticks + 1).alive()
        assert not replace(daemon, boot="another").alive()
        assert end(replace(daemon, boot="another")) == Ending("gone")
        assert end(again) == Ending("quit")
        assert fake.settle() == [*STARTED, QUIT]


def test_its_devices_are_named_by_uuid(time_of_three):
    with stage() as (fake, folder):
        with pytest.raises(ValueError, match="device 0 is a number; MPS needs the UUID"):
            start(fake, folder, devices=("0",))
        daemon = start(fake, folder, devices=("GPU-a", "GPU-b"))
        assert procfs.environ_value(daemon.pid, "CUDA_VISIBLE_DEVICES") == "GPU-a,GPU-b"
        assert end(daemon) == Ending("quit")
        assert fake.settle() == [*STARTED, QUIT]


# --- hanging start -----------------------------------------------------------------------------


def test_a_hanging_start_leaves_nothing_and_can_be_tried_again(time_of_three):
    with stage(Knobs(start="hangs")) as (fake, folder):
        with pytest.raises(MpsNotStarted, match=r"not listening within 1 s, and was killed; see"):
            start(fake, folder, timeout_s=1.0)
        assert fake.settle() == ["start -d", "signal SIGKILL daemon"]
        fake.set(Knobs())
        assert end(start(fake, folder)) == Ending("quit")
        assert fake.settle() == ["start -d", "signal SIGKILL daemon", *STARTED, QUIT]


def test_a_daemon_that_listens_and_does_not_answer_is_no_start(time_of_three):
    with stage(Knobs(hangs=("all",))) as (fake, folder):
        with pytest.raises(MpsNotStarted, match="does not answer as it should"):
            start(fake, folder, answer_s=0.3)
        assert fake.settle() == [*STARTED[:2], "signal SIGKILL daemon"]


@pytest.mark.parametrize(
    ("ignores", "how", "sent"),
    [((), "terminated", ["SIGTERM"]), (("daemon",), "killed", ["SIGTERM", "SIGKILL"])],
)
def test_a_daemon_that_hangs_later_is_ended_by_its_pid(time_of_three, ignores, how, sent):
    with stage() as (fake, folder):
        daemon = hurried(start(fake, folder))
        fake.set(Knobs(hangs=("all",), ignores_term=ignores))
        assert daemon.control.health().state == "silent"
        ending = end(daemon)
        assert (ending.how, ending.signals) == (how, tuple((daemon.pid, name) for name in sent))
        assert "no answer from the daemon" in ending.words
        signals = [f"signal {name} daemon" for name in sent]
        assert fake.settle() == [*STARTED, HEALTHY[0], QUIT, *signals]


# --- dead server -------------------------------------------------------------------------------


def test_a_server_that_dies_at_once_is_seen_in_the_log_alone(time_of_three):
    with stage(Knobs(server="dies")) as (fake, folder):
        daemon = start(fake, folder)
        with pytest.raises(MpsNotStarted, match=r"at once with status 1; see .*server.log"):
            daemon.start_server(ME)
        assert server_facts(read_log(daemon.server_log)[0]).failed
        # The daemon then ends with status 1 though it ended well.
        assert end(daemon) == Ending("quit")
        assert fake.settle() == [
            *STARTED,
            "command get_server_list",
            f"command start_server -uid {ME}",
            QUIT,
        ]


def test_a_server_that_never_becomes_ready(time_of_three):
    with stage(Knobs(server="hangs")) as (fake, folder):
        daemon = start(fake, folder)
        with pytest.raises(MpsNotStarted, match="no server was ready within 1 s"):
            daemon.start_server(ME, timeout_s=1.0)
        (server,) = daemon.control.servers()
        assert daemon.control.server_state(server) == "INITIALIZING"
        client = fake.connect(daemon.control.pipe_folder, 4711)
        assert client.hear() == "807"
        assert end(daemon) == Ending("quit")
        assert fake.settle() == [
            *STARTED,
            "command get_server_list",
            f"command start_server -uid {ME}",
            "command get_server_list",
            f"command get_server_status {server}",
            QUIT,
        ]


def test_a_server_that_dies_later_is_missed_and_replaced(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        server = daemon.start_server(ME)
        client = fake.connect(daemon.control.pipe_folder, 4711)
        assert client.hear() == "0"
        kill(server)
        assert client.hear() == "806"
        with pytest.raises(MpsRefused, match=f"Server {server} not found.*ask for the list"):
            daemon.control.server_state(server)
        assert daemon.start_server(ME) != server
        assert end(daemon) == Ending("quit")
        assert fake.settle() == [
            *STARTED,
            "command get_server_list",
            f"command start_server -uid {ME}",
            "signal SIGKILL server",
            f"command get_server_status {server}",
            "command get_server_list",
            f"command start_server -uid {ME}",
            QUIT,
        ]


# --- path too long -----------------------------------------------------------------------------


def test_a_path_too_long_gives_way_to_a_short_one_and_says_so(time_of_three):
    with stage() as (fake, folder):
        long = folder / ("x" * 80)
        daemon = start(fake, long, runtime=folder / "short")
        assert daemon.control.pipe_folder.parent == folder / "short"
        assert daemon.log_folder == long / "log"
        (note,) = daemon.notes
        assert f"{long / 'pipe'} is longer than the 80 bytes that surely work" in note
        assert daemon.control_log.exists()
        # The same wanted folder leads to the same place, so a daemon is found again.
        with pytest.raises(MpsForeign):
            start(fake, long, runtime=folder / "short")
        assert end(daemon) == Ending("quit")
        assert fake.settle() == [*STARTED, QUIT]


def test_where_all_paths_are_long_the_last_resort_is_short(time_of_three):
    place, why = choose_pipe_folder(Path("/w" * 50), runtime=Path("/r" * 50))
    assert place.parent == Path("/tmp")
    assert len(str(place)) <= LONGEST_PIPE_FOLDER
    assert str(place) in why
    assert choose_pipe_folder(Path("/v" * 50), runtime=Path("/r" * 50))[0] != place


def test_a_daemon_that_ends_without_a_word_is_no_start(time_of_three, monkeypatch):
    # What the real one does where the path is too long for its sockets.
    monkeypatch.setattr("headway.system.mps_places.LONGEST_PIPE_FOLDER", 1000)
    with stage() as (fake, folder):
        with pytest.raises(MpsNotStarted, match=r"it ended without a word; see .*control.log"):
            start(fake, folder / ("x" * 90))
        assert fake.settle() == ["start -d"]


# --- foreign daemon ----------------------------------------------------------------------------


def test_a_foreign_daemon_is_left_alone(time_of_three):
    with stage() as (fake, folder):
        start_of_somebody_else(fake, folder / "pipe")
        stranger = resident_daemon(folder / "pipe")
        assert stranger is not None
        assert stranger.uid == ME
        with pytest.raises(MpsForeign, match=f"process {stranger.pid} is one already.*left alone"):
            start(fake, folder)
        assert fake.calls() == ["start -d"]
        assert fake.living() == [stranger.pid]


def test_a_foreign_daemon_that_cannot_be_seen_is_left_alone(time_of_three, monkeypatch):
    with stage() as (fake, folder):
        start_of_somebody_else(fake, folder / "pipe")
        monkeypatch.setattr("headway.system.mps_daemon.resident_daemon", lambda *_: None)
        with pytest.raises(MpsForeign, match="An instance of this daemon is already running"):
            start(fake, folder)
        assert fake.calls() == ["start -d", "start -d"]
        assert len(fake.living()) == 1


def test_a_foreign_daemon_that_took_the_place_of_ours_is_left_alone(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        kill(daemon.pid)
        start_of_somebody_else(fake, folder / "pipe")
        stranger = resident_daemon(folder / "pipe")
        assert stranger is not None
        fake.connect(folder / "pipe", 4711).hear()
        assert len(fake.living()) == 2
        assert end(daemon) == Ending("gone")
        assert fake.calls() == [*STARTED, "signal SIGKILL daemon", "start -d"]
        assert len(fake.living()) == 2


def test_a_daemon_without_a_pid_file_is_known_by_its_command(time_of_three):
    # As before driver 550.
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        daemon.start_server(ME)
        (folder / "pipe" / "nvidia-cuda-mps-control.pid").unlink()
        resident = resident_daemon(folder / "pipe")
        assert resident == Resident(daemon.pid, daemon.start_ticks, ME)
        assert end(daemon) == Ending("quit")
        assert resident_daemon(folder / "pipe") is None


def test_a_pid_that_somebody_else_has_by_now_is_no_daemon(time_of_three, tmp_path):
    stranger = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(60)"])
    try:
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text(f"{stranger.pid}\n")
        assert resident_daemon(tmp_path) is None
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text("no pid\n")
        assert resident_daemon(tmp_path) is None
    finally:
        stranger.kill()
        stranger.wait()


# --- foreign user ------------------------------------------------------------------------------


def test_a_daemon_of_another_user_refuses_in_words_and_stays(time_of_three):
    with stage(Knobs(caller_uid=1234)) as (fake, folder):
        start_of_somebody_else(fake, folder / "pipe")
        control = Control(fake.executable, folder / "pipe", ANSWER_S)
        assert control.health().state == "ready"
        with pytest.raises(MpsRefused, match=r"Insufficient privileges for UID 1234.*one of your"):
            control.set_default_thread_percentage(50)
        with pytest.raises(MpsRefused, match="Insufficient privileges"):
            control.set_default_memory_limit(0, 512)
        with pytest.raises(MpsRefused, match="Not enough privilege to execute quit"):
            control.ask("quit")
        assert fake.calls() == [
            "start -d",
            *HEALTHY,
            "command set_default_active_thread_percentage 50",
            "command set_default_device_pinned_mem_limit 0 512M",
            "command quit",
        ]
        assert len(fake.living()) == 1


def test_our_own_daemon_that_refuses_us_is_ended_by_its_pid(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        fake.set(Knobs(caller_uid=1234))
        ending = end(daemon)
        assert (ending.how, ending.signals) == ("terminated", ((daemon.pid, "SIGTERM"),))
        assert "Not enough privilege" in ending.words
        assert fake.settle() == [*STARTED, QUIT, "signal SIGTERM daemon"]


def test_a_server_serves_one_user_at_a_time(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        pipe = daemon.control.pipe_folder
        server = daemon.start_server(ME)
        words = f"server {server} runs for user {ME}; a daemon serves"
        with pytest.raises(MpsRefused, match=words):
            daemon.start_server(ME + 1)
        ours, theirs = fake.connect(pipe, 4711), fake.connect(pipe, 4712, uid=ME + 1)
        assert ours.hear() == "0"
        assert daemon.control.clients(server) == (4711,)
        ours.leave()
        assert theirs.hear() == "0"
        (later,) = daemon.control.servers()
        assert later != server
        theirs.leave()
        assert end(daemon) == Ending("quit")
        assert fake.settle() == [
            *STARTED,
            "command get_server_list",
            f"command start_server -uid {ME}",
            "command get_server_list",
            f"command get_client_list {server}",
            "command get_server_list",
            QUIT,
        ]


# --- a GPU's error -----------------------------------------------------------------------------


def test_a_fault_hits_those_on_the_same_gpu_and_passes(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        pipe, server = daemon.control.pipe_folder, daemon.start_server(ME)
        culprit, victim = fake.connect(pipe, 4711), fake.connect(pipe, 4712)
        bystander = fake.connect(pipe, 4713, device="GPU-1")
        assert [one.hear() for one in (culprit, victim, bystander)] == ["0", "0", "0"]
        fake.fault(pipe, 4711)
        assert (culprit.hear(), victim.hear()) == ("fault", "fault")
        health = daemon.control.health()
        assert health.state == "fault"
        assert f"server {server} takes no clients after an error of a GPU" in health.words
        (fault,) = server_facts(read_log(daemon.server_log)[0]).faults
        assert (fault.victims, fault.over) == ((4711, 4712), False)
        assert fake.connect(pipe, 4714).hear() == "807"
        culprit.leave()
        victim.leave()
        wait_until(lambda: daemon.control.server_state(server) == "ACTIVE")
        asked_again = fake.calls().count(f"command get_server_status {server}") - 1
        (fault,) = server_facts(read_log(daemon.server_log)[0]).faults
        assert fault.over
        assert daemon.control.clients(server) == (4713,)
        assert fake.connect(pipe, 4714).hear() == "0"
        assert end(daemon) == Ending("quit")
        assert fake.settle() == [
            *STARTED,
            "command get_server_list",
            f"command start_server -uid {ME}",
            *HEALTHY,
            *[f"command get_server_status {server}"] * (1 + asked_again),
            f"command get_client_list {server}",
            QUIT,
        ]


def test_after_a_fault_a_server_can_be_replaced_at_once(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        pipe, server = daemon.control.pipe_folder, daemon.start_server(ME)
        client = fake.connect(pipe, 4711)
        assert client.hear() == "0"
        fake.fault(pipe, 4711)
        assert client.hear() == "fault"
        daemon.control.shutdown_server(server, force=True)
        assert client.hear() == "806"
        assert daemon.start_server(ME) != server
        assert daemon.control.health().takes_clients
        assert end(daemon) == Ending("quit")


# --- a client killed in flight -----------------------------------------------------------------


def test_a_client_that_is_terminated_first_may_be_killed(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        pipe, server = daemon.control.pipe_folder, daemon.start_server(ME)
        busy, other = fake.connect(pipe, 4711), fake.connect(pipe, 4712)
        assert (busy.hear(), other.hear()) == ("0", "0")
        busy.compute()
        daemon.control.terminate_client(server, 4711)
        assert busy.hear() == "810"
        busy.leave()
        assert daemon.control.health().takes_clients
        assert daemon.control.clients(server) == (4712,)
        other.leave()
        assert end(daemon) == Ending("quit")
        assert fake.settle() == [
            *STARTED,
            "command get_server_list",
            f"command start_server -uid {ME}",
            f"command terminate_client {server} 4711",
            *HEALTHY,
            f"command get_server_status {server}",
            f"command get_client_list {server}",
            QUIT,
        ]


@pytest.mark.parametrize("ignores", [(), ("daemon", "server")])
def test_a_client_killed_with_work_in_flight_costs_server_and_daemon(time_of_three, ignores):
    with stage(Knobs(ignores_term=ignores)) as (fake, folder):
        daemon = hurried(start(fake, folder))
        pipe, server = daemon.control.pipe_folder, daemon.start_server(ME)
        busy = fake.connect(pipe, 4711)
        assert busy.hear() == "0"
        busy.compute()
        busy.leave()
        wait_until(lambda: "Client 4711 disconnected" in daemon.server_log.read_text())
        health = daemon.control.health()
        assert health.state == "silent"
        assert "end them, then the daemon" in health.words
        ending = end(daemon)
        names = ["SIGTERM", "SIGKILL"] if ignores else ["SIGTERM"]
        assert ending.how == ("killed" if ignores else "terminated")
        assert ending.signals == tuple(
            (pid, name) for pid in (daemon.pid, server) for name in names
        )
        assert fake.settle() == [
            *STARTED,
            "command get_server_list",
            f"command start_server -uid {ME}",
            *HEALTHY,
            f"command get_server_status {server}",
            QUIT,
            *[f"signal {name} {who}" for who in ("daemon", "server") for name in names],
        ]


def test_a_client_killed_before_its_first_work_harms_nobody(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        client = fake.connect(daemon.control.pipe_folder, 4711)
        assert client.hear() == "0"
        client.leave()
        wait_until(lambda: "Client 4711 disconnected" in daemon.server_log.read_text())
        assert daemon.control.health().takes_clients
        assert end(daemon) == Ending("quit")


# --- daemon gone -------------------------------------------------------------------------------


def test_a_program_that_is_gone_at_the_start(time_of_three):
    with stage() as (fake, folder):
        fake.executable.unlink()
        with pytest.raises(MpsMissing, match="cannot be started"):
            start(fake, folder)
        assert fake.settle() == []


def test_a_folder_that_cannot_be_made(time_of_three):
    with stage() as (fake, folder):
        folder.write_text("a file")
        with pytest.raises(MpsNotStarted, match=r"its folder .*pipe cannot be used"):
            start(fake, folder)
        assert fake.settle() == []


def test_a_daemon_that_was_killed_is_missed_and_its_servers_are_ended(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        server = daemon.start_server(ME)
        kill(daemon.pid)
        health = daemon.control.health()
        assert health.state == "gone"
        assert "start it again, with all its clients" in health.words
        with pytest.raises(MpsGone):
            daemon.start_server(ME)
        with pytest.raises(ConnectionRefusedError):  # CUDA would go on without MPS
            fake.connect(daemon.control.pipe_folder, 4711)
        assert end(daemon) == Ending("gone", ((server, "SIGTERM"),))
        assert fake.settle() == [
            *STARTED,
            "command get_server_list",
            f"command start_server -uid {ME}",
            "signal SIGKILL daemon",
            "signal SIGTERM server",
        ]


def test_what_a_killed_daemon_leaves_behind_is_used_again(time_of_three):
    with stage() as (fake, folder):
        first = start(fake, folder)
        kill(first.pid)
        assert sorted(path.name for path in (folder / "pipe").iterdir()) == [
            "control",
            "control_lock",
            "control_privileged",
            "log",
            "nvidia-cuda-mps-control.pid",
        ]
        second = start(fake, folder)
        assert not first.alive()
        assert end(first) == Ending("gone")
        assert second.alive()
        assert end(second) == Ending("quit")
        assert sorted(path.name for path in (folder / "pipe").iterdir()) == [
            "control",
            "control_lock",
            "control_privileged",
        ]
        assert fake.settle() == [*STARTED, "signal SIGKILL daemon", *STARTED, QUIT]


# --- quit --------------------------------------------------------------------------------------


def test_quit_waits_no_longer_for_clients_than_it_may(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        client = fake.connect(daemon.control.pipe_folder, 4711)
        assert client.hear() == "0"
        assert end(daemon) == Ending("quit")
        assert client.hear() == ""
        assert fake.settle() == [*STARTED, QUIT]


def test_a_quit_in_flight_hinders_nobody(time_of_three):
    with stage() as (fake, folder):
        daemon = start(fake, folder)
        client = fake.connect(daemon.control.pipe_folder, 4711)
        assert client.hear() == "0"
        with pytest.raises(MpsSilent):  # for ever, were it not for the time-out
            daemon.control.ask("quit", timeout_s=0.3)
        assert daemon.alive()
        assert end(daemon) == Ending("quit")
        assert fake.settle() == [*STARTED, "command quit", QUIT]


def test_start_daemon_and_its_defaults_go_together(time_of_three):
    with stage() as (fake, folder):
        daemon = start_daemon(fake.executable, folder)
        assert daemon.end() == Ending("quit")
        assert fake.settle() == [*STARTED, "command quit -t 10"]
