"""A control daemon of our own: started in its own folders, known by pid and start time, ended.

[Note: whose daemon it is]
A daemon serves everybody who shares its pipe folder, and one word ends it for all of them. So
Headway starts one of its own, in a folder that only its user can enter, and tells nobody else's to
end: a `Daemon` is what `start_daemon` gave, or what a later supervisor makes again from what was
kept of it. Once the process with that pid, start time and boot is gone, `end` sends nothing but to
servers that it left behind, and not even that where another daemon has the folder.

[Note: when it is over]
Words and exit statuses do not tell that a daemon has ended: `quit` answers with status 1 after a
server failed once in the daemon's life, although the daemon is gone, and waits for ever where a
client lives. The process table tells.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headway.core.folder import Folder, runtime_folder
from headway.system import procfs
from headway.system.mps import ANSWER_S, Control
from headway.system.mps_log import control_facts, read_log
from headway.system.mps_places import choose_pipe_folder, processes_in, resident_daemon
from headway.system.mps_tool import (
    LOG_VARIABLE,
    MpsError,
    MpsForeign,
    MpsNotStarted,
    MpsRefused,
    ToolAnswer,
    quoted,
    run_tool,
)

START_S = 10.0
"""How long a daemon may take to listen, which is 50 ms where all is well."""
QUIT_S = 10
"""How long a daemon may wait for its clients before it ends them, in whole seconds."""
SIGNAL_S = 2.0
"""How long a process may take to act on what it was told."""

How = Literal["gone", "quit", "terminated", "killed", "alive"]

_RUNNING = "An instance of this daemon is already running"
_POLL_S = 0.01
_FALL_BACK = "share the GPU in time slices meanwhile"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a daemon of ours ended."""

    how: How
    """`gone`: it had ended before; `alive`: nothing helped, or it may not be signalled."""
    signals: tuple[tuple[int, str], ...] = ()
    """What was sent, by pid: to the daemon, and to servers that it left behind."""
    words: str = ""
    """Why asking was not enough; "" where it was."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A control daemon that Headway started.

    Args:
        control: Where it is asked.
        log_folder: Its logs, control.log and server.log.
        pid: Its process.
        start_ticks: When that started, in clock ticks after boot.
        boot: The boot it runs in.
        notes: What about it should be told, in words.
    """

    control: Control
    log_folder: Path
    pid: int
    start_ticks: int
    boot: str
    notes: tuple[str, ...] = ()

    def alive(self, proc: Path = procfs.PROC) -> bool:
        """Whether this very process still runs."""
        return procfs.alive(self.pid, self.start_ticks, self.boot, proc)

    @property
    def control_log(self) -> Path:
        """The daemon's log."""
        return self.log_folder / "control.log"

    @property
    def server_log(self) -> Path:
        """The log of its servers."""
        return self.log_folder / "server.log"

    def start_server(
        self,
        uid: int,
        *,
        timeout_s: float = START_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> int:
        """Start a server before its first client, and see in the log whether it came up; its pid.

        One that runs already for this user is given as it is.

        Args:
            uid: Whose clients it will serve; all of them must be this user's.
            timeout_s: How long it may take until it takes clients.
            clock: Seconds that only grow.
            sleep: Waits some seconds.

        Raises:
            MpsNotStarted: It died at once, or was not ready in time.
            MpsRefused: A server of another user runs; a daemon has one at a time.
            MpsError: The daemon did not answer.
        """
        command = f"start_server -uid {uid}"
        for server in self.control.servers():
            if (owner := procfs.uid_of(server)) != uid:
                raise MpsRefused(
                    command,
                    f"server {server} runs for user {owner}",
                    "a daemon serves one user at a time: wait until that user's clients have left",
                )
            return server
        _, position = read_log(self.control_log)
        deadline = clock() + timeout_s
        reply = self.control.ask(command, timeout_s=timeout_s)
        if reply:
            raise MpsNotStarted(command, quoted(reply), "see the daemon's control.log")
        while True:
            lines, _ = read_log(self.control_log, position)
            facts = control_facts(lines)
            if facts.failed_starts:
                raise MpsNotStarted(command, quoted(facts.failed_starts[0]), _FALL_BACK)
            latest = facts.servers[-1] if facts.servers else None
            if latest is not None and latest.exit_status is not None:
                raise MpsNotStarted(
                    command,
                    f"server {latest.pid} exited at once with status {latest.exit_status}",
                    f"see {self.server_log}; without a GPU that MPS can use there is none",
                )
            if latest is not None and latest.ready:
                return latest.pid
            if clock() >= deadline:
                raise MpsNotStarted(
                    command,
                    f"no server was ready within {timeout_s:g} s",
                    f"see {self.control_log}, and end the daemon before it is tried again",
                )
            sleep(_POLL_S)

    def end(
        self,
        *,
        quit_s: int = QUIT_S,
        signal_s: float = SIGNAL_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        proc: Path = procfs.PROC,
    ) -> Ending:
        """End the daemon and its servers: it is asked, and signalled where that is not enough.

        Clients should have ended or been terminated before: what they do on the GPU is cut off.

        Args:
            quit_s: How long it may wait for clients, in whole seconds from 1.
            signal_s: How long it may take to end after it was asked, and after a signal.
            clock: Seconds that only grow.
            sleep: Waits some seconds.
            proc: Where procfs is mounted.
        """
        servers = self._servers(proc)
        if self.alive(proc):
            words = self._ask_to_quit(quit_s)
            how, signals = _end_process(self._me, self.boot, signal_s, clock, sleep, proc)
            how = "quit" if how == "gone" else how
        else:
            words, how, signals = "", "gone", []
        for server in servers:
            # A server whose daemon died before has nobody left to ask it: it is not waited for.
            wait_s = 0.0 if how == "gone" else signal_s
            signals += _end_process(server, self.boot, signal_s, clock, sleep, proc, wait_s)[1]
        return Ending(how, tuple(signals), "" if how == "quit" else words)

    @property
    def _me(self) -> tuple[int, int]:
        return self.pid, self.start_ticks

    def _ask_to_quit(self, quit_s: int) -> str:
        try:
            reply = self.control.ask(
                f"quit -t {max(1, quit_s)}", timeout_s=quit_s + self.control.timeout_s
            )
        except MpsError as error:
            return str(error)
        return reply

    def _servers(self, proc: Path) -> list[tuple[int, int]]:
        """Servers of this daemon; none where a later daemon has its folder."""
        resident = resident_daemon(self.control.pipe_folder, proc)
        if resident is not None and (resident.pid, resident.start_ticks) != self._me:
            return []
        return [one for one in processes_in(self.control.pipe_folder, proc) if one != self._me]


def start_daemon(
    executable: Path,
    folder: Path,
    *,
    devices: Sequence[str] = (),
    timeout_s: float = START_S,
    answer_s: float = ANSWER_S,
    environment: Mapping[str, str] = os.environ,
    runtime: Path | None = None,
    proc: Path = procfs.PROC,
) -> Daemon:
    """Start a control daemon of our own and see that it answers.

    Args:
        executable: The control program.
        folder: Below it lie the pipes (`pipe`, elsewhere where that is too long) and logs (`log`).
        devices: UUIDs of the GPUs, or of the one MIG device, that its servers may use; none named
            means all. Numbers would be counted anew on both sides.
        timeout_s: How long it may take to listen.
        answer_s: How long each later answer may take.
        environment: The variables that it is given; those of MPS are left out.
        runtime: Where a shorter pipe folder may lie; the user's runtime folder by default.
        proc: Where procfs is mounted.

    Raises:
        MpsForeign: A daemon that is not ours has the folder.
        MpsNotStarted: It did not come up; nothing of it is left running.
        MpsMissing: The program cannot be started.
        ValueError: A device named by a number.
    """
    if numbered := [device for device in devices if device.isdigit()]:
        raise ValueError(f"device {numbered[0]} is a number; MPS needs the UUID")
    asked = f"{executable.name} -d"
    place, note = choose_pipe_folder(
        folder / "pipe", runtime=runtime_folder(environment) if runtime is None else runtime
    )
    log_folder = folder / "log"
    for private in (place, log_folder):
        _make_private(asked, private)
    control = Control(executable, place, answer_s, environment)
    if (found := resident_daemon(place, proc)) is not None:
        raise _foreign(asked, place, f"process {found.pid} is one already")
    variables = {**control.tool_environment(), LOG_VARIABLE: str(log_folder)}
    if devices:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    answer = run_tool([str(executable), "-d"], environment=variables, timeout_s=timeout_s)
    started = resident_daemon(place, proc)
    if answer is not None and _RUNNING in answer.out + answer.err:
        raise _foreign(asked, place, quoted(answer.out or answer.err))
    if answer is None or answer.status != 0 or started is None:
        _kill_strays(place, proc)
        raise _not_started(asked, answer, timeout_s, log_folder)
    daemon = Daemon(
        control,
        log_folder,
        started.pid,
        started.start_ticks,
        procfs.boot_id(proc),
        (note,) if note else (),
    )
    health = control.health()
    if not health.takes_clients:
        _kill_strays(place, proc)
        raise MpsNotStarted(asked, f"it does not answer as it should ({health.words})", _FALL_BACK)
    return daemon


def _make_private(asked: str, path: Path) -> None:
    """Make a folder that only this user can enter: whoever reaches the sockets in it may ask."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Folder.open(path) as folder:
            os.fchmod(folder.descriptor, 0o700)
    except OSError as error:
        raise MpsNotStarted(
            asked,
            f"its folder {path} cannot be used ({error.strerror or error})",
            "choose another folder, or make room for this one",
        ) from None


def _foreign(asked: str, place: Path, answered: str) -> MpsForeign:
    return MpsForeign(
        asked,
        f"{place} has a daemon that this run did not start ({answered})",
        "it is left alone: use another folder, or end it yourself",
    )


def _not_started(
    asked: str, answer: ToolAnswer | None, timeout_s: float, log_folder: Path
) -> MpsNotStarted:
    if answer is None:
        answered = f"it was not listening within {timeout_s:g} s, and was killed"
    elif said := answer.out or answer.err:
        answered = quoted(said)
    else:
        answered = "it ended without a word"
    return MpsNotStarted(asked, answered, f"see {log_folder / 'control.log'}; {_FALL_BACK}")


def _kill_strays(place: Path, proc: Path) -> None:
    """Kill what a start that came to nothing has left.

    The pipe folder is ours alone and no daemon was in it before: what is there came of this start.
    """
    for pid, start_ticks in processes_in(place, proc):
        _send(pid, start_ticks, signal.SIGKILL, proc)


def _end_process(
    process: tuple[int, int],
    boot: str,
    signal_s: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    proc: Path,
    wait_s: float | None = None,
) -> tuple[How, list[tuple[int, str]]]:
    """Wait for the end of a process, then ask for it by signal, then force it."""
    pid, start_ticks = process
    sent: list[tuple[int, str]] = []
    deadline = clock() + (signal_s if wait_s is None else wait_s)
    steps: list[tuple[signal.Signals, How]] = [
        (signal.SIGTERM, "terminated"),
        (signal.SIGKILL, "killed"),
    ]
    how: How = "gone"
    while procfs.alive(pid, start_ticks, boot, proc):
        if clock() < deadline:
            sleep(_POLL_S)
            continue
        if not steps:
            return "alive", sent
        number, how = steps.pop(0)
        if _send(pid, start_ticks, number, proc):
            sent.append((pid, number.name))
        deadline = clock() + signal_s
    return how, sent


def _send(pid: int, start_ticks: int, number: signal.Signals, proc: Path) -> bool:
    """Signal this very process; False where it is gone or another user's."""
    descriptor = procfs.open_pidfd(pid, start_ticks, proc)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True
