"""Talking to an MPS control daemon: one typed function for each thing that can be asked.

[Note: what its answers are worth]
The control tool takes lines on its standard input and exits with 0 whenever it reached a daemon,
whatever came of the line: refusals are text. Some are not even that: a percentage that is out of
range leaves the old one in force and prints *that*, and a memory limit that it misreads prints
nothing. So every answer is judged by its text, and what was set is read back. The tool waits for
the daemon for as long as that takes, so each question has a time-out.

    MpsError                     never raised itself
    ├── MpsMissing               the tool is not installed, or cannot be started
    ├── MpsGone                  no daemon answers in this folder
    ├── MpsSilent                no answer within the time given
    ├── MpsRefused               answered with no: another user's daemon, no such server, not in force
    ├── MpsForeign               a daemon that is not ours stands where ours would
    ├── MpsNotStarted            a daemon or a server did not come up
    └── MpsOtherProtocol         it answers, but not in the language spoken here
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from headway.core.errors import HeadwayError
from headway.core.mps import memory_limit_text
from headway.core.text import plain, shorten
from headway.core.units import GIB, MIB

CONTROL_NAME = "nvidia-cuda-mps-control"
SERVER_NAME = "nvidia-cuda-mps-server"
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
LOG_VARIABLE = "CUDA_MPS_LOG_DIRECTORY"
DEFAULT_PIPE_FOLDER = Path("/tmp/nvidia-mps")
LONGEST_PIPE_FOLDER = 80
"""Bytes of a pipe folder's path that surely work: the names of the sockets in it come on top, and
one that is too long for the kernel (88 and more) fails without a word."""
ANSWER_S = 5.0
"""An idle daemon answers in some milliseconds."""

ServerState = Literal["INITIALIZING", "ACTIVE", "FAULT"]

_MOST_QUOTED = 200
_NO_DAEMON = "Cannot find MPS control daemon process"
_NO_RIGHTS = re.compile(r"Insufficient privileges|Not enough privilege")
_NOT_FOUND = re.compile(r"Server(?: \d+)? not found!?")
_MIB_OF = {"M": 1, "G": GIB // MIB}


class MpsError(HeadwayError):
    """Something was asked of MPS and did not come about.

    Args:
        asked: What was asked, as it was put.
        answered: What came back, in words.
        advice: What to do now.
    """

    def __init__(self, asked: str, answered: str, advice: str) -> None:
        super().__init__(f"MPS: {asked}: {answered}; {advice}")
        self.asked = asked
        self.answered = answered
        self.advice = advice


class MpsMissing(MpsError):
    """The tool is not installed here, or cannot be started."""


class MpsGone(MpsError):
    """No daemon answers in this folder."""


class MpsSilent(MpsError):
    """No answer came within the time given; whether it was done is not known."""


class MpsRefused(MpsError):
    """The daemon answered, and did not do it."""


class MpsForeign(MpsError):
    """A daemon that Headway did not start stands where its own would."""


class MpsNotStarted(MpsError):
    """A daemon or a server did not come up."""


class MpsOtherProtocol(MpsError):
    """What answers does not speak the language spoken here (protocol 2)."""


class Executables(NamedTuple):
    """Where the two programs of MPS are."""

    control: Path
    server: Path | None
    """None where it is not on the path; the daemon looks for it itself."""


class MpsProcess(NamedTuple):
    """One client as the daemon lists it, its pids being those of the daemon's namespace."""

    pid: int
    server: int
    device: str
    namespace: str
    command: str


class Health(NamedTuple):
    """How a daemon is, found out by asking it."""

    state: Literal["ready", "fault", "gone", "silent", "refuses", "other protocol"]
    """`fault`: it takes no client until those that a GPU's error has hit have left."""
    words: str
    """The reason in words; "" where it is ready."""

    @property
    def takes_clients(self) -> bool:
        """Whether a client that starts now is served."""
        return self.state == "ready"


class ToolAnswer(NamedTuple):
    """What a program printed, and its exit status, which proves nothing here."""

    out: str
    err: str
    status: int


def find_executables(path: str | None = None) -> Executables:
    """The programs of MPS on the path.

    Args:
        path: Folders to look in, as in $PATH, which is the default.

    Raises:
        MpsMissing: The control program is not there.
    """
    control = shutil.which(CONTROL_NAME, path=path)
    if control is None:
        raise MpsMissing(
            CONTROL_NAME,
            "not on the path",
            "install it (it comes with the NVIDIA driver), or share the GPU in time slices",
        )
    server = shutil.which(SERVER_NAME, path=path)
    return Executables(Path(control), None if server is None else Path(server))


def inherited_pipe_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where CUDA looks for a daemon unless it is told otherwise: whoever answers there, it joins.

    >>> inherited_pipe_folder({"CUDA_MPS_PIPE_DIRECTORY": "/run/user/7/mps"})
    PosixPath('/run/user/7/mps')
    """
    return Path(environment.get(PIPE_VARIABLE) or DEFAULT_PIPE_FOLDER)


@dataclass(frozen=True, slots=True)
class Control:
    """The control daemon of one pipe folder, whoever started it.

    Each function raises `MpsGone`, `MpsSilent`, `MpsRefused` or `MpsMissing` (see `ask`), and
    `MpsOtherProtocol` where the answer is nothing that it could be.

    Args:
        executable: The control program.
        pipe_folder: The folder that daemon and clients share.
        timeout_s: How long an answer may take.
        environment: The variables that the tool is given; those of MPS are left out.
    """

    executable: Path
    pipe_folder: Path
    timeout_s: float = ANSWER_S
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False, compare=False)

    def tool_environment(self) -> dict[str, str]:
        """What the tool and a daemon get: of MPS nothing but the folder.

        A limit or a protocol that the user's shell happens to set would hold for our daemon, and
        a limit from there cannot even be read back.
        """
        kept = {k: v for k, v in self.environment.items() if not k.startswith("CUDA_MPS_")}
        return {**kept, PIPE_VARIABLE: str(self.pipe_folder)}

    def client_environment(self) -> dict[str, str]:
        """The variable that makes a process a client of this daemon."""
        return {PIPE_VARIABLE: str(self.pipe_folder)}

    def ask(self, command: str, *, timeout_s: float | None = None) -> str:
        """Put one line to the daemon; what it prints, without the spaces around it.

        Raises:
            MpsGone: No daemon answers.
            MpsSilent: No answer in time.
            MpsRefused: This user may not, or there is no such command.
            MpsMissing: The tool cannot be started.
            ValueError: The command is more than one line.
        """
        if "\n" in command:
            raise ValueError(f"more than one line: {command!r}")
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        answer = run_tool(
            [str(self.executable)], environment=self.tool_environment(), given=command + "\n",
            timeout_s=wait_s,
        )  # fmt: skip
        if answer is None:
            raise MpsSilent(
                command,
                f"no answer from the daemon in {self.pipe_folder} within {wait_s:g} s",
                "its clients may hang too: end them, then the daemon, and start it again",
            )
        if _NO_DAEMON in answer.err or (answer.status != 0 and not answer.out + answer.err):
            raise MpsGone(command, self._absence(answer), "start it again, with all its clients")
        if _NO_RIGHTS.search(answer.out):
            raise MpsRefused(
                command,
                quoted(answer.out),
                "this daemon belongs to another user: let that user do it, or use one of your own",
            )
        if answer.out.startswith("Unknown command"):
            raise MpsRefused(command, quoted(answer.out), "another version of MPS is needed for it")
        return answer.out

    # --- what holds for all servers to come ------------------------------------------------------

    def default_thread_percentage(self) -> float:
        """The part of a device's threads that a new server's clients get, in percent."""
        command = "get_default_active_thread_percentage"
        return _percentage(command, self.ask(command))

    def set_default_thread_percentage(self, percentage: float) -> None:
        """Give the clients of new servers at most this part of a device's threads.

        Raises:
            ValueError: Not above 0 and at most 100.
            MpsRefused: Another value stayed in force.
        """
        command = f"set_default_active_thread_percentage {_percentage_text(percentage)}"
        _compare_percentage(command, percentage, _percentage(command, self.ask(command)))

    def default_memory_limit_mib(self, device: int | str) -> int | None:
        """The limit of a client's memory on a device in MiB, or None where there is none.

        From 1 GiB on the tool prints whole GiB, rounded down. A limit from the daemon's own
        environment is not printed, and one set by number is not found by UUID.
        """
        command = f"get_default_device_pinned_mem_limit {_device_text(device)}"
        return _limit_mib(command, self.ask(command))

    def set_default_memory_limit(self, device: int | str, limit_mib: int | None) -> None:
        """Limit the memory of each client of new servers on a device; None takes the limit away.

        Args:
            device: The device's place among those that the daemon sees, or its UUID.
            limit_mib: Whole MiB.

        Raises:
            ValueError: Less than 1 MiB, or a device that is neither a number nor one word.
            MpsRefused: Another value stayed in force.
        """
        # 0G is the spelling of "none"; see `memory_limit_text` for what else it would read as none.
        text = "0G" if limit_mib is None else memory_limit_text(limit_mib)
        command = f"set_default_device_pinned_mem_limit {_device_text(device)} {text}"
        self.ask(command)
        _compare_limit(command, limit_mib, self.default_memory_limit_mib(device))

    # --- one server ------------------------------------------------------------------------------

    def servers(self) -> tuple[int, ...]:
        """The pids of the running servers; none before the first client."""
        return _pids("get_server_list", self.ask("get_server_list"))

    def server_state(self, server: int) -> ServerState:
        """How a server is; FAULT until all clients that a GPU's error has hit have left.

        Raises:
            MpsRefused: There is no such server.
        """
        command = f"get_server_status {server}"
        reply = _found(command, self.ask(command))
        for state in get_args(ServerState):
            if reply == state:
                return state
        raise _not_understood(command, reply)

    def shutdown_server(self, server: int, *, force: bool = False) -> None:
        """End a server; a later client starts another.

        Args:
            server: Its pid.
            force: Do not wait for its clients, which then fail.

        Raises:
            MpsRefused: There is no such server.
        """
        command = f"shutdown_server {server}" + (" -f" if force else "")
        _found(command, self.ask(command))

    def thread_percentage(self, server: int) -> float:
        """The part of a device's threads that new clients of a server get, in percent."""
        command = f"get_active_thread_percentage {server}"
        return _percentage(command, _found(command, self.ask(command)))

    def set_thread_percentage(self, server: int, percentage: float) -> None:
        """Give new clients of a server at most this part of a device's threads.

        Raises:
            ValueError: Not above 0 and at most 100.
            MpsRefused: There is no such server, or another value stayed in force.
        """
        command = f"set_active_thread_percentage {server} {_percentage_text(percentage)}"
        _found(command, self.ask(command))
        _compare_percentage(command, percentage, self.thread_percentage(server))

    def memory_limit_mib(self, server: int, device: int | str) -> int | None:
        """The limit of a new client's memory at a server in MiB, as printed; None for none."""
        command = f"get_device_pinned_mem_limit {server} {_device_text(device)}"
        return _limit_mib(command, _found(command, self.ask(command)))

    def set_memory_limit(self, server: int, device: int | str, limit_mib: int | None) -> None:
        """Limit the memory of each new client of a server, even above the default.

        Raises:
            ValueError: As `set_default_memory_limit`.
            MpsRefused: There is no such server, or another value stayed in force.
        """
        text = "0G" if limit_mib is None else memory_limit_text(limit_mib)
        command = f"set_device_pinned_mem_limit {server} {_device_text(device)} {text}"
        _found(command, self.ask(command))
        _compare_limit(command, limit_mib, self.memory_limit_mib(server, device))

    # --- clients ---------------------------------------------------------------------------------

    def clients(self, server: int) -> tuple[int, ...]:
        """The pids of a server's clients, in the daemon's namespace.

        Raises:
            MpsRefused: There is no such server.
        """
        command = f"get_client_list {server}"
        return _pids(command, _found(command, self.ask(command)))

    def processes(self) -> tuple[MpsProcess, ...]:
        """All clients, with the device of each: who is in this table is served by MPS, and not
        merely beside it."""
        reply = self.ask("ps")
        if not reply or _NOT_FOUND.fullmatch(reply):
            return ()
        header, *rows = reply.splitlines()
        if header.split()[:4] != ["PID", "ID", "SERVER", "DEVICE"]:
            raise _not_understood("ps", reply)
        return tuple(_process(row) for row in rows if row.strip())

    def terminate_client(self, server: int, client: int, *, timeout_s: float | None = None) -> None:
        """Take a client off its server, so that it may be killed without harm to the others.

        It waits until the client's work on the GPU is over; from then on CUDA answers the client
        with an error (810), and the process runs on until it is ended.

        Raises:
            MpsRefused: It was not done; there may be no such server or client.
        """
        command = f"terminate_client {server} {client}"
        reply = self.ask(command, timeout_s=timeout_s)
        if not reply or reply.splitlines()[-1].strip() != "0":
            raise MpsRefused(
                command,
                quoted(reply),
                "if it is still a client, killing it may harm the others: end all of them, "
                "and the server, and start again",
            )

    # --- how it is -------------------------------------------------------------------------------

    def health(self) -> Health:
        """How the daemon is. Never raises for what the daemon says or does not say."""
        try:
            self.default_thread_percentage()
            states = {server: self.server_state(server) for server in self.servers()}
        except MpsGone as error:
            return Health("gone", str(error))
        except MpsSilent as error:
            return Health("silent", str(error))
        except MpsOtherProtocol as error:
            return Health("other protocol", str(error))
        except MpsRefused as error:
            # A server may end between the list and the question; the next look will tell.
            return Health("refuses", str(error))
        except MpsMissing as error:
            return Health("gone", str(error))
        faulty = [server for server, state in states.items() if state == "FAULT"]
        if faulty:
            return Health(
                "fault",
                f"server {faulty[0]} takes no clients after an error of a GPU; end those that "
                "the error has hit, and it takes clients again",
            )
        return Health("ready", "")

    def _absence(self, answer: ToolAnswer) -> str:
        length = len(os.fsencode(self.pipe_folder))
        if answer.err or length <= LONGEST_PIPE_FOLDER:
            return f"no daemon answers in {self.pipe_folder}"
        return (
            f"nothing; {self.pipe_folder} is {length} bytes long, which may be too long for "
            f"its sockets ({LONGEST_PIPE_FOLDER} surely work)"
        )


def run_tool(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    given: str = "",
    timeout_s: float,
) -> ToolAnswer | None:
    """Run a program to its end; None where it took too long and was killed.

    Raises:
        MpsMissing: It cannot be started.
    """
    # Files in memory and no pipes: a daemon that keeps its output open would hold up whoever reads
    # a pipe to its end, and a tool that reads nothing whoever writes to one.
    with (
        os.fdopen(os.memfd_create("given"), "w+b") as stdin,
        os.fdopen(os.memfd_create("out"), "w+b") as out,
        os.fdopen(os.memfd_create("err"), "w+b") as err,
    ):
        stdin.write(given.encode())
        stdin.seek(0)
        try:
            # A session of its own: Ctrl-C in the user's terminal is not meant for the daemon.
            process = subprocess.Popen(
                arguments, stdin=stdin, stdout=out, stderr=err, env=environment,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            reason = f"it cannot be started ({error.strerror})"
            raise MpsMissing(arguments[0], reason, "install it again, or share in time slices") from None
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None
        out.seek(0)
        err.seek(0)
        return ToolAnswer(
            out.read().decode(errors="replace").strip(),
            err.read().decode(errors="replace").strip(),
            status,
        )


def quoted(reply: str) -> str:
    """An answer as a part of a sentence.

    >>> quoted("Server 7 not found\\n1"), quoted("")
    ('answered "Server 7 not found 1"', 'answered nothing')
    """
    if not reply:
        return "answered nothing"
    return f'answered "{shorten(plain(" ".join(reply.split())), _MOST_QUOTED)}"'


def _percentage_text(percentage: float) -> str:
    if not 0 < percentage <= 100:
        raise ValueError(f"{percentage:g}% of the threads; give more than 0 and at most 100")
    return f"{percentage:g}"


def _percentage(command: str, reply: str) -> float:
    try:
        return float(reply)
    except ValueError:
        raise _not_understood(command, reply) from None


def _compare_percentage(command: str, asked: float, in_force: float) -> None:
    # Printed with one decimal; whether rounded or cut is not documented.
    if abs(asked - in_force) >= 0.1:
        raise MpsRefused(
            command,
            f"{in_force:g}% stayed in force",
            "the reason is in the daemon's control.log; ask for more than 0 and at most 100",
        )


def _limit_mib(command: str, reply: str) -> int | None:
    if not reply:
        return None
    match = re.fullmatch(r"(\d+)([MG])B?", reply)
    if match is None:
        raise _not_understood(command, reply)
    return int(match[1]) * _MIB_OF[match[2]]


def _compare_limit(command: str, asked: int | None, in_force: int | None) -> None:
    per_gib = _MIB_OF["G"]
    shown = asked if asked is None or asked < per_gib else asked // per_gib * per_gib
    if in_force != shown:
        found = "no limit" if in_force is None else f"a limit of {in_force} MiB"
        raise MpsRefused(
            command,
            f"{found} is in force",
            "the device may be unknown to the daemon: name it by its place among those it sees",
        )


def _device_text(device: int | str) -> str:
    text = str(device)
    if not re.fullmatch(r"\d+|[A-Za-z][A-Za-z0-9/_-]*", text, re.ASCII):
        raise ValueError(f"{text!r} is neither a device's number nor its UUID")
    return text


def _pids(command: str, reply: str) -> tuple[int, ...]:
    words = reply.split()
    if not all(word.isdigit() for word in words):
        raise _not_understood(command, reply)
    return tuple(map(int, words))


def _process(row: str) -> MpsProcess:
    fields = row.split(None, 5)
    try:
        pid, _, server, device, namespace = fields[:5]
        return MpsProcess(int(pid), int(server), device, namespace, "".join(fields[5:]).strip())
    except ValueError:
        raise _not_understood("ps", row) from None


def _found(command: str, reply: str) -> str:
    """The reply, unless it says that there is no such server."""
    if _NOT_FOUND.search(reply):
        raise MpsRefused(
            command,
            quoted(reply),
            "it has ended, or never started: ask for the list of servers again",
        )
    return reply


def _not_understood(command: str, reply: str) -> MpsOtherProtocol:
    return MpsOtherProtocol(
        command,
        quoted(reply),
        "this is not protocol 2; use a daemon of your own, or share in time slices",
    )
