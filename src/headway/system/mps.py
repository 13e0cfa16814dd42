"""Talking to an MPS control daemon: one typed function for each thing that can be asked.

Each answer is judged by its text and each value that was set is read back (`mps_replies`); the
tool's exit status is worth nothing. It waits for the daemon for as long as that takes, so each
question has a time-out.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from headway.core.mps import memory_limit_text
from headway.system.mps_places import LONGEST_PIPE_FOLDER
from headway.system.mps_replies import (
    MpsProcess,
    ServerState,
    client_table,
    compare_limit,
    compare_percentage,
    device_text,
    found,
    limit_in_mib,
    percentage_of,
    percentage_text,
    pids,
    state_of,
)
from headway.system.mps_tool import (
    PIPE_VARIABLE,
    MpsGone,
    MpsMissing,
    MpsNotOffered,
    MpsOtherProtocol,
    MpsRefused,
    MpsSilent,
    ToolAnswer,
    quoted,
    run_tool,
)

ANSWER_S = 5.0
"""An idle daemon answers in some milliseconds."""

_NO_DAEMON = "Cannot find MPS control daemon process"
_ENDING = "The MPS control daemon is shutting down"
_NO_RIGHTS = re.compile(r"Insufficient privileges|Not enough privilege")


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
    environment: Mapping[str, str] = field(
        default_factory=lambda: os.environ, repr=False, compare=False
    )

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
            MpsGone: No daemon answers, or it is about to end.
            MpsSilent: No answer in time.
            MpsRefused: This user may not.
            MpsNotOffered: There is no such command.
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
        if answer.out.startswith(_ENDING):
            raise MpsGone(command, quoted(answer.out), "start it again, with all its clients")
        if _NO_RIGHTS.search(answer.out):
            raise MpsRefused(
                command,
                quoted(answer.out),
                "this daemon belongs to another user: let that user do it, or use one of your own",
            )
        if answer.out.startswith("Unknown command"):
            raise MpsNotOffered(command, quoted(answer.out), "a newer driver is needed for it")
        return answer.out

    # --- what holds for all servers to come ------------------------------------------------------

    def default_thread_percentage(self) -> float:
        """The part of a device's threads that a new server's clients get, in percent."""
        command = "get_default_active_thread_percentage"
        return percentage_of(command, self.ask(command))

    def set_default_thread_percentage(self, percentage: float) -> None:
        """Give the clients of new servers at most this part of a device's threads.

        Raises:
            ValueError: Not above 0 and at most 100.
            MpsRefused: Another value stayed in force.
        """
        command = f"set_default_active_thread_percentage {percentage_text(percentage)}"
        compare_percentage(command, percentage, percentage_of(command, self.ask(command)))

    def default_memory_limit_mib(self, device: int | str) -> int | None:
        """The limit of a client's memory on a device in MiB, or None where there is none.

        From 1 GiB on the tool prints whole GiB, rounded down. A limit from the daemon's own
        environment is not printed, and one set by number is not found by UUID.
        """
        command = f"get_default_device_pinned_mem_limit {device_text(device)}"
        return limit_in_mib(command, self.ask(command))

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
        command = f"set_default_device_pinned_mem_limit {device_text(device)} {text}"
        self.ask(command)
        compare_limit(command, limit_mib, self.default_memory_limit_mib(device))

    # --- one server ------------------------------------------------------------------------------

    def servers(self) -> tuple[int, ...]:
        """The pids of the running servers; none before the first client."""
        return pids("get_server_list", self.ask("get_server_list"))

    def server_state(self, server: int) -> ServerState:
        """How a server is; FAULT until all clients that a GPU's error has hit have left.

        Raises:
            MpsRefused: There is no such server.
        """
        command = f"get_server_status {server}"
        return state_of(command, found(command, self.ask(command)))

    def shutdown_server(self, server: int, *, force: bool = False) -> None:
        """End a server; a later client starts another.

        Args:
            server: Its pid.
            force: Do not wait for its clients, which then fail.

        Raises:
            MpsRefused: There is no such server, or it was not done.
        """
        command = f"shutdown_server {server}" + (" -f" if force else "")
        if reply := found(command, self.ask(command)):
            raise MpsRefused(command, quoted(reply), "end its clients first, or force it")

    def thread_percentage(self, server: int) -> float:
        """The part of a device's threads that new clients of a server get, in percent."""
        command = f"get_active_thread_percentage {server}"
        return percentage_of(command, found(command, self.ask(command)))

    def set_thread_percentage(self, server: int, percentage: float) -> None:
        """Give new clients of a server at most this part of a device's threads.

        Raises:
            ValueError: Not above 0 and at most 100.
            MpsRefused: There is no such server, or another value stayed in force.
        """
        command = f"set_active_thread_percentage {server} {percentage_text(percentage)}"
        found(command, self.ask(command))
        compare_percentage(command, percentage, self.thread_percentage(server))

    def memory_limit_mib(self, server: int, device: int | str) -> int | None:
        """The limit of a new client's memory at a server in MiB, as printed; None for none."""
        command = f"get_device_pinned_mem_limit {server} {device_text(device)}"
        return limit_in_mib(command, found(command, self.ask(command)))

    def set_memory_limit(self, server: int, device: int | str, limit_mib: int | None) -> None:
        """Limit the memory of each new client of a server, even above the default.

        Raises:
            ValueError: As `set_default_memory_limit`.
            MpsRefused: There is no such server, or another value stayed in force.
        """
        text = "0G" if limit_mib is None else memory_limit_text(limit_mib)
        command = f"set_device_pinned_mem_limit {server} {device_text(device)} {text}"
        found(command, self.ask(command))
        compare_limit(command, limit_mib, self.memory_limit_mib(server, device))

    # --- clients ---------------------------------------------------------------------------------

    def clients(self, server: int) -> tuple[int, ...]:
        """The pids of a server's clients, in the daemon's namespace.

        Raises:
            MpsRefused: There is no such server.
        """
        command = f"get_client_list {server}"
        return pids(command, found(command, self.ask(command)))

    def processes(self) -> tuple[MpsProcess, ...]:
        """All clients, with the device of each.

        Who is in this table is served by MPS; CUDA says nothing where a process is not.
        """
        return client_table(self.ask("ps"))

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
            faulty = [server for server in self.servers() if self._is_faulty(server)]
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
        if faulty:
            return Health(
                "fault",
                f"server {faulty[0]} takes no clients after an error of a GPU; end those that "
                "the error has hit, and it takes clients again",
            )
        return Health("ready", "")

    def _is_faulty(self, server: int) -> bool:
        try:
            return self.server_state(server) == "FAULT"
        except MpsNotOffered:  # before driver 550 only the log tells
            return False

    def _absence(self, answer: ToolAnswer) -> str:
        length = len(os.fsencode(self.pipe_folder))
        if answer.err or length <= LONGEST_PIPE_FOLDER:
            return f"no daemon answers in {self.pipe_folder}"
        return (
            f"nothing; {self.pipe_folder} is {length} bytes long, which may be too long for "
            f"its sockets ({LONGEST_PIPE_FOLDER} surely work)"
        )
