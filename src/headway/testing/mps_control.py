"""A fake of nvidia-cuda-mps-control, for machines without MPS: a program of its own.

`headway.testing.mps` copies it to a folder under the real program's name; there it also finds its
knobs and keeps a record of every command and signal that it gets. It speaks the lines of the real
one (driver 550, where no other is named) and is strange where the real one is:

- Exit status 0 whenever the daemon was reached, also for refusals; those are text.
- A percentage out of range leaves the old one in force and prints that one.
- A memory limit is read as C reads a number: ``1.5G`` is 1 MiB, ``-1G`` is 16 EiB, text is none.
  From 1 GiB on whole GiB are printed, rounded down. A UUID is read back only where it is a GPU's.
- A pipe folder too long for its sockets ends it with status 1 and no word.
- A server that dies at once answers like one that lives; only the log tells.
- `quit` waits for clients, and exits with 1 where any server of the daemon's life failed.
- What is killed leaves its files behind, and they are used again.
- After a GPU's error new clients are refused until all that it hit have left.
- A client that is killed with work in flight leaves its server without answers.

Clients are connections that say ``CLIENT pid uid device``; what CUDA would tell a client is told
there. Its version and its logs say that it is a fake.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "nvidia-cuda-mps-control"
SERVER_NAME = "nvidia-cuda-mps-server"
VERSION = "a fake nvidia-cuda-mps-control (headway.testing), not NVIDIA's"
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
MOST_CLIENTS = 60
ORDINALS = 32  # how many devices the real one knows of is not documented; 99 is beyond
UNITS = {"m": 1 << 20, "g": 1 << 30}
TICK_S = 0.02

CUDA_SERVER_NOT_READY = "807"
CUDA_MAX_CLIENTS = "808"
CUDA_CLIENT_TERMINATED = "810"

Reply = tuple[str, int]


def knobs() -> dict[str, Any]:
    """What the test wants to go wrong, as it stands now."""
    with open(os.path.join(HERE, "knobs.json"), encoding="utf-8") as file:
        content: dict[str, Any] = json.load(file)
    return content


def note(file: str, line: str) -> None:
    """Add a line to one of the records beside this file, whole."""
    descriptor = os.open(os.path.join(HERE, file), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


def pipe_folder() -> str:
    """Where the sockets are."""
    return os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"


def log(file: str, who: str, text: str, pid: int | None = None) -> None:
    """Add a line to one of the logs, in the real one's form."""
    folder = os.environ.get("CUDA_MPS_LOG_DIRECTORY") or "/var/log/nvidia-mps"
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03}"
    # The real one warns of a log folder that is missing, and goes on without.
    with (
        contextlib.suppress(OSError),
        open(os.path.join(folder, file), "a", encoding="utf-8") as out,
    ):
        out.write(f"[{stamp} {who:>7} {os.getpid() if pid is None else pid:5}] {text}\n")


def control_log(text: str) -> None:
    """Add a line to the daemon's log."""
    log("control.log", "Control", text)


def read_limit(text: str) -> int:
    """Bytes of a memory limit, read as the real one does; 0 is no limit.

    >>> [read_limit(text) // 2**20 for text in ("512M", "2gb", "5", "1.5G", "1T", "100K", "x", "")]
    [512, 2048, 5, 1, 1, 100, 0, 0]
    >>> show_limit(read_limit("-1G")), show_limit(read_limit("1500M"))
    ('17179869183G', '1G')
    """
    match = re.match(r"\s*([+-]?\d+)(.?)", text)
    if match is None:
        return 0
    return int(match[1]) % 2**64 * UNITS.get(match[2].lower(), 1 << 20) % 2**64


def show_limit(size: int) -> str:
    """A memory limit as the real one prints it."""
    if size == 0:
        return ""
    return f"{size >> 30}G" if size >= 1 << 30 else f"{size >> 20}M"


class Server:
    """A server: a process that does nothing, and what the daemon knows of it."""

    def __init__(self, pid: int, uid: int, percentage: float) -> None:
        self.pid = pid
        self.uid = uid
        self.percentage = percentage
        self.limits: dict[str, int] = {}
        self.state = "INITIALIZING"
        self.hit: set[socket.socket] = set()
        """Clients that a GPU's error has hit and that have not left."""
        self.undefined = False
        """Whether a client was killed with work in flight."""


class Client:
    """A process that computes through a server."""

    def __init__(self, pid: int, uid: int, device: str) -> None:
        self.pid = pid
        self.uid = uid
        self.device = device
        self.server: Server | None = None
        self.busy = False
        self.terminated = False


class Daemon:
    """The control daemon."""

    def __init__(self) -> None:
        self.percentage = 100.0
        self.limits: dict[str, int] = {}
        self.priority = "0"
        self.server: Server | None = None
        self.clients: dict[socket.socket, Client] = {}
        self.waiting: list[tuple[socket.socket, Client]] = []
        self.held: list[socket.socket] = []
        """Connections that are never answered."""
        self.quits: list[tuple[socket.socket, float | None]] = []
        self.any_failed = False
        self.listeners = [listen(name) for name in ("control", "control_privileged")]

    def serve(self) -> NoReturn:
        """Answer for ever."""
        readers = {listener.fileno(): listener for listener in self.listeners}
        asking: dict[int, socket.socket] = {}
        while True:
            places = {**readers, **asking, **{one.fileno(): one for one in self.clients}}
            for number in select.select(list(places), [], [], TICK_S)[0]:
                place = places[number]
                if place in self.listeners:
                    connection, _ = place.accept()
                    control_log("Accepting connection...")
                    asking[connection.fileno()] = connection
                elif number in asking:
                    del asking[number]
                    self.hear(place)
                elif place in self.clients:
                    self.hear_client(place)
            self.reap()
            self.admit_waiting()
            self.settle_quits()

    # --- those who ask ---------------------------------------------------------------------------

    def hear(self, connection: socket.socket) -> None:
        """Take the first line of a connection."""
        try:
            line = connection.recv(4096).decode(errors="replace").strip()
        except ConnectionError:
            line = ""
        if not line:
            connection.close()
            return
        if line.startswith("CLIENT "):
            _, pid, uid, device = line.split()
            self.new_client(connection, Client(int(pid), int(uid), device))
            return
        if line.startswith("FAULT "):
            self.fault(int(line.split()[1]))
            connection.close()
            return
        note("calls", f"command {line}")
        control_log("NEW UI")
        control_log(f"Cmd:{line}")
        self.command(connection, line)

    def command(self, connection: socket.socket, line: str) -> None:
        """Answer a command, now, later or never."""
        verb, *words = line.split()
        chosen = knobs()
        if verb in chosen["hangs"] or "all" in chosen["hangs"]:
            self.held.append(connection)
            return
        if chosen["protocol"] != 2:
            # The other protocol has commands of two words; how it refuses ours is not known.
            answer(connection, f'error: no module "{verb}"', 0)
            return
        uid = self.uid_of(connection) if chosen["caller_uid"] is None else chosen["caller_uid"]
        allowed = uid in (0, os.getuid()) if chosen["caller_uid"] is None else uid == 0
        if verb == "quit":
            self.quit(connection, words, allowed)
        elif verb.startswith("set_") and not allowed:
            answer(
                connection,
                f"Insufficient privileges for UID {uid}. Control deamon settings can only be "
                "modified by the user started it or by the root user.",
                0,
            )
        elif self.server is not None and self.server.undefined and str(self.server.pid) in words:
            self.held.append(connection)
        else:
            known: dict[str, Callable[[list[str]], str]] = {
                "get_server_list": self.get_server_list,
                "get_server_status": self.get_server_status,
                "start_server": self.start_server,
                "shutdown_server": self.shutdown_server,
                "get_client_list": self.get_client_list,
                "ps": self.ps,
                "get_default_active_thread_percentage": self.get_default_percentage,
                "set_default_active_thread_percentage": self.set_default_percentage,
                "get_active_thread_percentage": self.get_percentage,
                "set_active_thread_percentage": self.set_percentage,
                "get_default_device_pinned_mem_limit": self.get_default_limit,
                "set_default_device_pinned_mem_limit": self.set_default_limit,
                "get_device_pinned_mem_limit": self.get_limit,
                "set_device_pinned_mem_limit": self.set_limit,
                "get_default_client_priority": self.get_default_priority,
                "set_default_client_priority": self.set_default_priority,
                "terminate_client": self.terminate_client,
            }
            offered = verb in known and verb not in chosen["unknown"]
            reply = known[verb](words) if offered else f'Unknown command "{verb}"'
            answer(connection, reply, 0)
        control_log("UI closed")

    def uid_of(self, connection: socket.socket) -> int:
        """Who asks."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, uid, _ = struct.unpack("3i", credentials)
        return int(uid)

    # --- what can be asked -----------------------------------------------------------------------

    def get_server_list(self, words: list[str]) -> str:
        """One pid a line."""
        return "" if self.server is None else str(self.server.pid)

    def get_server_status(self, words: list[str]) -> str:
        """A word."""
        if not words:
            return "A server PID is required"
        server = self.find(words)
        return f"Server {words[0]} not found" if server is None else server.state

    def start_server(self, words: list[str]) -> str:
        """Nothing, whatever becomes of the server."""
        if len(words) < 2 or words[0] != "-uid":
            return "A user id (UID) is required to start a new server"
        if self.server is None:
            self.launch(int(words[1]))
        return ""

    def shutdown_server(self, words: list[str]) -> str:
        """Nothing."""
        server = self.find(words)
        if server is None:
            return f"Server {words[0] if words else 0} not found"
        os.kill(server.pid, signal.SIGUSR1)
        return ""

    def get_client_list(self, words: list[str]) -> str:
        """One pid a line."""
        server = self.find(words)
        if server is None:
            return f"Server {words[0] if words else 0} not found"
        return "\n".join(str(one.pid) for one in self.clients.values() if one.server is server)

    def ps(self, words: list[str]) -> str:
        """A table of clients."""
        if self.server is None:
            return "Server not found"
        rows = ["PID       ID    SERVER    DEVICE             NAMESPACE      COMMAND"]
        for one in self.clients.values():
            if one.server is not None:
                names = os.stat("/proc/self/ns/pid").st_ino
                columns = (one.pid, 0, one.server.pid, one.device, names, f"./client-{one.pid}")
                rows.append("   ".join(map(str, columns)))
        return "\n".join(rows)

    def get_default_percentage(self, words: list[str]) -> str:
        """With one decimal."""
        return f"{self.percentage:.1f}"

    def set_default_percentage(self, words: list[str]) -> str:
        """The one in force afterwards, whichever that is."""
        self.percentage = new_percentage(words, self.percentage)
        return f"{self.percentage:.1f}"

    def get_percentage(self, words: list[str]) -> str:
        """Of a server."""
        server = self.find(words)
        return f"Server {words[0]} not found" if server is None else f"{server.percentage:.1f}"

    def set_percentage(self, words: list[str]) -> str:
        """Of a server."""
        server = self.find(words)
        if server is None:
            return f"Server {words[0]} not found"
        server.percentage = new_percentage(words[1:], server.percentage)
        return f"{server.percentage:.1f}"

    def get_default_limit(self, words: list[str]) -> str:
        """Rounded down to whole GiB from 1 GiB on."""
        return shown_limit(self.limits, words)

    def set_default_limit(self, words: list[str]) -> str:
        """Nothing."""
        keep_limit(self.limits, words)
        return ""

    def get_limit(self, words: list[str]) -> str:
        """Of a server."""
        server = self.find(words)
        if server is None:
            return f"Server {words[0]} not found"
        return shown_limit(server.limits, words[1:])

    def set_limit(self, words: list[str]) -> str:
        """Of a server."""
        server = self.find(words)
        if server is None:
            return f"Server {words[0]} not found"
        keep_limit(server.limits, words[1:])
        return ""

    def get_default_priority(self, words: list[str]) -> str:
        """0 or 1."""
        return self.priority

    def set_default_priority(self, words: list[str]) -> str:
        """The one in force."""
        if words[:1] not in (["0"], ["1"]):
            return "Invalid priority value - must be 0 or 1!"
        self.priority = words[0]
        return self.priority

    def terminate_client(self, words: list[str]) -> str:
        """The last line is 0 where it was done."""
        server = self.find(words)
        if server is None:
            number = words[0] if words else 0
            return f"Server {number} not found\nServer {number} not found!\n1"
        if not self.terminate_one(server, words[1:]):
            return "1"
        return "0"

    def terminate_one(self, server: Server, words: list[str]) -> bool:
        """Whether there was such a client, which is one no longer."""
        for connection, one in list(self.clients.items()):
            if one.server is server and words == [str(one.pid)]:
                one.terminated = True
                self.tell(connection, CUDA_CLIENT_TERMINATED)
                self.lose(connection)
                return True
        return False

    def find(self, words: list[str]) -> Server | None:
        """The server that a command names."""
        if self.server is not None and words and words[0] == str(self.server.pid):
            return self.server
        return None

    # --- servers ---------------------------------------------------------------------------------

    def launch(self, uid: int) -> Server:
        """Start a server, or what will turn out not to be one."""
        how = knobs()["server"]
        told_to_end = {signal.SIGTERM, signal.SIGUSR1}
        # Held back until the server has its own ways of taking them.
        signal.pthread_sigmask(signal.SIG_BLOCK, told_to_end)
        pid = os.fork()
        if pid == 0:
            os.execv(os.path.join(HERE, SERVER_NAME), [SERVER_NAME, how])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, told_to_end)
        note("processes", f"{pid} {start_ticks(pid)}")
        control_log(f"Starting new server {pid} for user {uid}")
        self.server = Server(pid, uid, self.percentage)
        self.server.limits = dict(self.limits)
        if how == "lives":
            self.server.state = "ACTIVE"
            control_log(f"NEW SERVER {pid}: Ready")
            log("server.log", "Server", "Volta MPS: Creating server context on device 0", pid)
        elif how == "dies":
            log("server.log", "Server", "MPS server failed to start", pid)
        return self.server

    def reap(self) -> None:
        """See which server has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                note("calls", f"signal {signal.Signals(-code).name} server")
            self.any_failed = self.any_failed or code != 0
            control_log(f"Server {pid} exited with status {code}")
            if self.server is not None and self.server.pid == pid:
                self.server = None
                for connection, one in list(self.clients.items()):
                    if one.server is not None and one.server.pid == pid:
                        self.tell(connection, "806")
                        self.lose(connection)

    # --- clients ---------------------------------------------------------------------------------

    def new_client(self, connection: socket.socket, client: Client) -> None:
        """Give a client to a server, or tell it why not, or let it wait for another user's."""
        said = f"NEW CLIENT {client.pid} from user {client.uid}"
        if self.server is None:
            control_log(f"{said}: Server is not ready, push client to pending list")
            self.launch(client.uid)
        else:
            control_log(f"{said}: Server already exists")
        server = self.server
        assert server is not None
        if server.uid != client.uid:
            self.waiting.append((connection, client))
        elif server.state != "ACTIVE":
            self.tell(connection, CUDA_SERVER_NOT_READY)
            connection.close()
        elif len(self.clients) >= MOST_CLIENTS:
            self.tell(connection, CUDA_MAX_CLIENTS)
            connection.close()
        else:
            client.server = server
            self.clients[connection] = client
            log("server.log", "Server", f"New client {client.pid} connected", server.pid)
            text = f"Volta MPS: status of client {{{client.pid}, 0}} is ACTIVE"
            log("server.log", "Server", text, server.pid)
            self.tell(connection, "0")

    def admit_waiting(self) -> None:
        """Another user's client gets a new server once the present one has no client left."""
        if not self.waiting or self.clients:
            return
        if self.server is not None:
            os.kill(self.server.pid, signal.SIGUSR1)
            return
        waiting, self.waiting = self.waiting, []
        for connection, client in waiting:
            self.new_client(connection, client)

    def hear_client(self, connection: socket.socket) -> None:
        """A client says that it computes (BUSY), that it is done (IDLE), or nothing any more."""
        try:
            words = connection.recv(4096).decode().split()
        except ConnectionError:
            words = []
        if not words:
            self.lose(connection)
        else:
            self.clients[connection].busy = words[-1] == "BUSY"

    def lose(self, connection: socket.socket) -> None:
        """A client is one no longer."""
        client = self.clients.pop(connection)
        connection.close()
        server = client.server
        if server is None or server is not self.server:
            return
        if client.busy and not client.terminated:
            server.undefined = True
        log("server.log", "Server", f"Client {client.pid} disconnected", server.pid)
        server.hit.discard(connection)
        if server.state == "FAULT" and not server.hit:
            server.state = "ACTIVE"
            text = "Volta MPS: Creating server context on device 0"
            log("server.log", "Server", text, server.pid)

    def fault(self, culprit: int) -> None:
        """A GPU's error: it hits all clients of the culprit's device."""
        server = self.server
        devices = {one.device for one in self.clients.values() if one.pid == culprit}
        if server is None or not devices:
            return
        hit = {where: one for where, one in self.clients.items() if one.device in devices}
        server.state = "FAULT"
        server.hit = set(hit)
        log("server.log", "Server", "Volta MPS: Server is handling a fatal GPU error.", server.pid)
        text = "Volta MPS: The following clients have a sticky error set:"
        log("server.log", "Server", text, server.pid)
        for connection, one in hit.items():
            one.busy = False  # what it had in flight has failed
            log("server.log", "Server", str(one.pid), server.pid)
            self.tell(connection, "fault")

    def tell(self, connection: socket.socket, text: str) -> None:
        """What CUDA would tell a client."""
        with contextlib.suppress(OSError):  # it may have left meanwhile
            connection.sendall(text.encode() + b"\n")

    # --- the end ---------------------------------------------------------------------------------

    def quit(self, connection: socket.socket, words: list[str], allowed: bool) -> None:
        """End once the clients have left, or the time is over."""
        if not allowed:
            answer(connection, "Not enough privilege to execute quit command", 0)
            return
        limit = float(words[1]) if words[:1] == ["-t"] and len(words) > 1 else None
        self.quits.append((connection, None if limit is None else time.monotonic() + limit))

    def settle_quits(self) -> None:
        """End where that is asked and nothing stands against it."""
        now = time.monotonic()
        stuck = self.server is not None and self.server.undefined
        due = any(not self.clients or (end is not None and end <= now) for _, end in self.quits)
        if stuck or not due:
            return
        if self.server is not None:
            os.kill(self.server.pid, signal.SIGUSR1)
            _, status = os.waitpid(self.server.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            self.any_failed = self.any_failed or code != 0
            control_log(f"Server {self.server.pid} exited with status {code}")
        status = int(self.any_failed)
        tidy(status)
        for connection, _ in self.quits:
            answer(connection, "", status)
        os._exit(status)


def new_percentage(words: list[str], old: float) -> float:
    """The percentage in force after somebody asked for another."""
    try:
        value = float(words[0].rstrip("%"))
    except (IndexError, ValueError):
        value = 0.0
    if not 0 < value <= 100:
        control_log("Invalid percentage, expected between (0.0, 100.0]")
        return old
    return value


def keep_limit(limits: dict[str, int], words: list[str]) -> None:
    """Set what was understood of a memory limit."""
    device, text = (*words, "", "")[:2]
    if device.isdigit() and int(device) >= ORDINALS:
        control_log("Invalid device ordinal!")
        return
    limits[device] = read_limit(text)


def shown_limit(limits: dict[str, int], words: list[str]) -> str:
    """A memory limit as it is read back."""
    device = words[0] if words else ""
    if not device.isdigit() and device not in knobs()["gpus"]:
        return ""
    return show_limit(limits.get(device, 0))


def answer(connection: socket.socket, text: str, status: int) -> None:
    """Answer whoever asked, who may have gone."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps([text, status]).encode())
    connection.close()


def listen(name: str) -> socket.socket:
    """A socket in the pipe folder; one that was left behind gives way."""
    path = os.path.join(pipe_folder(), name)
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen(128)
    return listener


def tidy(status: int) -> None:
    """What the real one removes at its end; the sockets stay."""
    control_log(f"Exit with status {status}")
    for name in (f"{NAME}.pid", "log"):
        path = os.path.join(pipe_folder(), name)
        if os.path.exists(path):
            os.unlink(path)


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks after boot."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def rename(name: str) -> None:
    """Take a name in the process table, of which the kernel keeps 15 characters."""
    with open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(name)


def be_server(*, dies: bool) -> NoReturn:
    """A server: it does nothing until it is told to end."""

    def end(number: int, frame: object) -> None:
        if number == signal.SIGTERM:
            note("calls", "signal SIGTERM server")
            if "server" in knobs()["ignores_term"]:
                return
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGUSR1, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGUSR1})
    if dies:
        os._exit(1)
    while True:
        signal.pause()


def be_daemon(ready: int) -> NoReturn:
    """The daemon, from the moment in which nobody else holds the folder."""

    def end(number: int, frame: object) -> None:
        note("calls", f"signal {signal.Signals(number).name} daemon")
        if "daemon" not in knobs()["ignores_term"]:
            tidy(0)
            os._exit(0)

    signal.signal(signal.SIGTERM, end)
    folder = pipe_folder()
    control_log(f"Starting control daemon using socket {folder}/control")
    control_log(f"This is {VERSION}")
    daemon = Daemon()
    path = os.path.join(folder, "log")
    if not os.path.exists(path):
        os.mkfifo(path, 0o600)
    with open(os.path.join(folder, f"{NAME}.pid"), "w", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")
    control_log(
        "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=" + folder
    )
    os.write(ready, b"1")
    os.close(ready)
    daemon.serve()


def watch(daemon: int) -> NoReturn:
    """Record deaths that nobody can record of himself, the daemon's and orphaned servers'."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            os._exit(0)
        if ended is not None and ended.si_code != os.CLD_EXITED:
            who = "daemon" if ended.si_pid == daemon else "server"
            note("calls", f"signal {signal.Signals(ended.si_status).name} {who}")
        if ended is not None:  # only now: who sees that it is gone sees the record too
            os.waitpid(ended.si_pid, 0)


def start() -> int:
    """Start the daemon in the background; returns once it listens, or did not come up."""
    note("calls", "start -d")
    chosen = knobs()
    folder = pipe_folder()
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        sys.stderr.write(f"Cannot access CUDA_MPS_PIPE_DIRECTORY={folder}\n")
        return 1
    if chosen["start"] == "dies":
        return 1
    lock = os.open(os.path.join(folder, "control_lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stdout.write("An instance of this daemon is already running\n")
        return 1
    listening, ready = os.pipe()
    if os.fork() == 0:
        os.close(listening)
        os.setsid()
        import ctypes  # only here: each question pays for what is imported above

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        note("watchers", f"{os.getpid()} {start_ticks(os.getpid())}")
        rename("fake-mps-watch")  # it is no part of what it watches
        daemon = os.fork()
        if daemon == 0:
            rename(NAME)
            note("processes", f"{os.getpid()} {start_ticks(os.getpid())}")
            while chosen["start"] == "hangs":
                signal.pause()
            try:
                be_daemon(ready)
            except OSError:
                os._exit(1)  # the name of a socket was too long: no word of it
        os.close(ready)
        os.close(lock)
        watch(daemon)
    os.close(ready)
    os.close(lock)
    return 0 if os.read(listening, 1) else 1


def ask(line: str) -> int:
    """Put one line to the daemon; 1 where there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(os.path.join(pipe_folder(), "control"))
    except (FileNotFoundError, ConnectionError):
        sys.stderr.write("Cannot find MPS control daemon process\n")
        return 1
    except OSError:
        return 1  # the name is too long
    connection.sendall(line.encode() + b"\n")
    content = b""
    while part := connection.recv(65536):
        content += part
    if not content:
        return 1
    text, status = json.loads(content)
    if text:
        sys.stdout.write(text + "\n")
    return int(status)


def main(arguments: list[str]) -> int:
    """The program, which is daemon, tool and server."""
    if os.path.basename(__file__) == SERVER_NAME:
        be_server(dies=arguments == ["dies"])
    if arguments == ["-d"]:
        return start()
    if arguments in (["-v"], ["--version"]):
        sys.stdout.write(VERSION + "\n")
        return 0
    if arguments:
        sys.stdout.write(f"Unknown option {arguments[0]}\n")
        return 1
    status = 0
    for line in sys.stdin:
        if line.strip():
            status = ask(line.strip()) or status
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
