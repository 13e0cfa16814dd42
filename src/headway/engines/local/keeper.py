"""The keeper of one attempt, and the zygote that forks keepers: a program of its own.

Run as `python -I -S -E keeper.py FD`, where FD is one end of a SOCK_SEQPACKET pair. It needs the
standard library alone and is never imported by Headway: everything it needs comes in messages.

- The *zygote* is one small process. It waits for requests, forks a keeper for each, and answers
  once the keeper has claimed its attempt or has said why it could not. It ends when the other end
  of the pair is closed; its keepers do not notice.
- A *keeper* claims its attempt folder, starts the command, waits until the command and everything
  the command left behind have ended, and puts the exit record in place. It outlives everybody.

[Note: what makes a start happen once]
The claim is written elsewhere and put in place with link(), which fails where a claim is already
there: of all that ever try, one keeper wins, or none where a resuming supervisor has put a void
claim first. The command starts after the link, never before. So an attempt without a claim has
not run, and one with a claim is never started again.

[Note: what a full disk cannot take]
The exit record's file is made and its room is reserved before the claim: a disk that is full by
then refuses the start (nothing has run), and one that fills up later loses only the job's output.

[Note: why marshal]
Both ends are the same interpreter, started from the same executable, and the pair is private.
marshal is built in, carries bytes exactly whatever the locale, and costs no import; json costs
1 MB of resident memory and 4 ms. The records that outlive us are JSON.
"""

import ctypes
import errno
import gc
import marshal
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

# Every message fits in one datagram of this size; a larger one comes as a file, passed along.
LARGEST_DATAGRAM_BYTES = 64 * 1024

# Reserved for the exit record. Its worst case: 256 bytes of `what` and 6 notes of 120 bytes, each
# byte at most 6 characters once escaped (6 KB), 32 killed children and the figures (1.5 KB).
RECORD_BYTES = 8192
LARGEST_WHAT_BYTES = 256
LARGEST_NOTE_BYTES = 120
MOST_NOTES = 6
MOST_KILLED_CHILDREN = 32

# A keeper must outlive a closed terminal, a Ctrl-C and a polite request to end.
OUTLIVED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)

# Added to the command's oom_score_adj: the kernel then takes a job before Headway.
OOM_SCORE_RAISE = 500

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
FALLOC_FL_KEEP_SIZE = 1  # linux/falloc.h

# cgroup v1 says "no limit" with the largest multiple of the page size below 2^63.
NO_LIMIT_BYTES = 2**62


# The zygote


def main() -> None:
    """Serve requests from the socket whose number is the only argument, until it is closed."""
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    for number in OUTLIVED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the keepers
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    name_process("headway-zygote")
    serve(link)


def serve(link: socket.socket) -> None:
    """Fork a keeper for each request; a message with an environment replaces the base of it."""
    base: dict[bytes, bytes] = {}
    boot = read_text("/proc/sys/kernel/random/boot_id").strip()
    libc = ctypes.CDLL(None, use_errno=True)
    reports: dict[int, int] = {}  # pipe of a keeper that has not claimed yet -> its request
    poller = select.poll()
    poller.register(link, select.POLLIN)
    while True:
        for descriptor, _ in poller.poll():
            try:
                if descriptor in reports:
                    poller.unregister(descriptor)
                    answer(link, reports.pop(descriptor), read_all(descriptor))
                elif (message := receive(link)) is None:
                    return
                elif "environment" in message:
                    base = message["environment"]
                    gc.freeze()  # a keeper's collector must not touch, and so copy, shared pages
                else:
                    report = fork_keeper(link, message, base, boot, libc, tuple(reports))
                    if report is not None:
                        poller.register(report, select.POLLIN)
                        reports[report] = message["id"]
            except ConnectionError:
                return  # nobody is left to start anything for


def answer(link: socket.socket, request: int, report: bytes) -> None:
    """Pass on what a keeper reported: its pid and start time, or an error in words."""
    content = marshal.loads(report) if report else {"error": "the keeper was killed at its start"}
    link.send(marshal.dumps({"id": request, **content}))


def receive(link: socket.socket) -> dict[str, Any] | None:
    """The next message, or None once the other end is closed."""
    content, files, _, _ = socket.recv_fds(link, LARGEST_DATAGRAM_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
    if not content:
        return None
    if files:
        try:
            content = os.pread(files[0], os.fstat(files[0]).st_size, 0)
        finally:
            os.close(files[0])
    message: dict[str, Any] = marshal.loads(content)
    return message


def fork_keeper(
    link: socket.socket,
    request: dict[str, Any],
    base: dict[bytes, bytes],
    boot: str,
    libc: Any,
    reports: tuple[int, ...],
) -> int | None:
    """Fork one keeper; return the pipe it will report on. Where there can be none, answer so."""
    pipe: tuple[int, ...] = ()
    try:
        reading, writing = pipe = os.pipe()
        pid = os.fork()
    except OSError as error:
        for descriptor in pipe:
            os.close(descriptor)
        words = f"cannot fork a keeper: {error.strerror}"
        answer(link, request["id"], marshal.dumps({"error": words}))
        return None
    if pid == 0:
        try:
            for descriptor in (link.detach(), reading, *reports):
                os.close(descriptor)
            keep(request, base, boot, libc, writing)
        except BaseException as error:
            complain(f"headway keeper {os.getpid()}: {type(error).__name__}: {error}\n")
        finally:
            os._exit(0)
    os.close(writing)
    return reading


# The keeper


def keep(
    request: dict[str, Any], base: dict[bytes, bytes], boot: str, libc: Any, report: int
) -> None:
    """Claim the attempt, run the command to the end of its whole tree, and record how it ended."""
    gc.disable()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    umask = os.umask(0o077)
    name_process("headway-keeper")
    try:
        folder = os.open(request["folder"], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        start = start_ticks("self")
        record, claimed = claim(libc, folder, {"start": start, "boot": boot})
    except OSError as error:
        words = "it has been claimed already" if error.errno == errno.EEXIST else error.strerror
        place = os.fsdecode(request["folder"])
        tell(report, {"error": f"cannot claim {place}: {words}"})
        return
    provoke(request, "after-claim")
    tell(report, {"pid": os.getpid(), "start": start})
    notes = []
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        notes.append("no subreaper: what the command leaves in the background is not followed")
    kills_before = oom_kills(request)
    start_ns = time.time_ns()
    command, spawn_error = spawn(request, base, folder, umask, notes)
    if command is not None and spawn_error is None:
        note_failure(notes, "started", add_started, claimed, command)
    os.close(claimed)
    ended = wait_for_tree(command)
    provoke(request, "after-result")
    if spawn_error is not None:
        ended["exit_code"] = ended["signal"] = None
    ended |= readings(request, kills_before)
    ended |= {"spawn_error": spawn_error, "start_t": start_ns, "notes": notes[:MOST_NOTES]}
    write_record(folder, record, ended)


def tell(report: int, content: dict[str, Any]) -> None:
    """Report to the zygote, once; a zygote that has died in the meantime changes nothing."""
    note_failure([], "report", os.write, report, marshal.dumps(content))
    os.close(report)


def claim(libc: Any, folder: int, content: dict[str, Any]) -> tuple[int, int]:
    """Reserve the exit record and link the claim; return the descriptors of both.

    See [Note: what makes a start happen once] and [Note: what a full disk cannot take].

    Raises:
        FileExistsError: The attempt has a claim; nothing may be started.
        OSError: The folder cannot be written.

    """
    pid = os.getpid()
    name = f"claim.{pid}"
    record = create(folder, f"exit.{pid}")
    try:
        reserve(libc, record)
        claimed = create(folder, name)
        try:
            write_all(claimed, {"pid": pid, **content, "t": time.time_ns()})
            os.link(name, "claim", src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.unlink(name, dir_fd=folder)
    except OSError:
        os.unlink(f"exit.{pid}", dir_fd=folder)
        raise
    return record, claimed


def spawn(
    request: dict[str, Any],
    base: dict[bytes, bytes],
    folder: int,
    umask: int,
    notes: list[str],
) -> tuple[int | None, dict[str, Any] | None]:
    """Fork and start the command; return its pid and, where it could not be started, why."""
    logs: list[int] = []
    what = b"stdout"
    try:
        logs.append(open_log(folder, "stdout"))
        what = b"stderr"
        logs.append(open_log(folder, "stderr"))
        what = b"fork"
        reading, writing = os.pipe()
        pid = os.fork()
    except OSError as error:
        return None, in_words(error.errno or 0, what)
    if pid == 0:
        become_command(request, base, logs, umask, writing)
    for descriptor in (*logs, writing):
        os.close(descriptor)
    spawn_error = None
    for line in read_all(reading).split(b"\n"):  # ends when exec closes the pipe
        kind, _, rest = line.partition(b"\t")
        if kind == b"note":
            notes.append(printable(rest, LARGEST_NOTE_BYTES))
        elif kind == b"error":
            number, _, rest = rest.partition(b"\t")
            spawn_error = in_words(int(number), bytes.fromhex(rest.decode()))
    return pid, spawn_error


def wait_for_tree(command: int | None) -> dict[str, Any]:
    """Reap until nothing is left to reap: the command, and all that it left in the background."""
    ended: dict[str, Any] = {"exit_code": None, "signal": None, "command_end_t": None}
    killed: list[list[int]] = []
    reaped = largest_bytes = 0
    user_s = system_s = 0.0
    while True:
        try:
            pid, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            break
        reaped += 1
        largest_bytes = max(largest_bytes, usage.ru_maxrss * 1024)
        user_s += usage.ru_utime
        system_s += usage.ru_stime
        by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        if pid == command:
            ended["exit_code"] = None if by_signal else os.WEXITSTATUS(status)
            ended["signal"] = by_signal
            ended["command_end_t"] = time.time_ns()
        elif by_signal and len(killed) < MOST_KILLED_CHILDREN:
            killed.append([pid, by_signal])
    return {
        **ended,
        "t": time.time_ns(),
        "maxrss_bytes": largest_bytes,
        "user_s": round(user_s, 6),
        "system_s": round(system_s, 6),
        "reaped": reaped,
        "killed_children": killed,
    }


def provoke(request: dict[str, Any], place: str) -> None:
    """Die here where a test asks for it: the places where a crash would hurt most."""
    if request.get("fault") == place:
        os.kill(os.getpid(), signal.SIGKILL)


# The command, between fork and exec


def become_command(
    request: dict[str, Any], base: dict[bytes, bytes], logs: list[int], umask: int, report: int
) -> None:
    """Turn this fork into the command; never returns. What fails is written to `report`."""
    argv = request["argv"]
    what = argv[0]
    try:
        for number in OUTLIVED:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # no signal meant for the keeper's session, or a terminal's, reaches it
        for note in settle(request):
            os.write(report, b"note\t" + note.encode(errors="replace") + b"\n")
        os.umask(umask)
        os.dup2(logs[0], 1)
        os.dup2(logs[1], 2)
        environment = dict(base)
        for name in request["env_unset"]:
            environment.pop(name, None)
        environment.update(request["env_set"])
        what = request["cwd"]
        os.chdir(what)
        what = argv[0]
        execute(argv, environment)
    except (OSError, ValueError) as error:
        # A ValueError comes from a zero byte, or a name with "=", in argv or the environment.
        reason = getattr(error, "errno", None) or errno.EINVAL
        line = b"error\t%d\t%s\n" % (reason, what[:LARGEST_WHAT_BYTES].hex().encode())
        os.write(report, line)
    finally:
        os._exit(127)


def settle(request: dict[str, Any]) -> list[str]:
    """Join the cgroups, take the cores, raise the oom score; return what could not be done."""
    notes: list[str] = []
    for path in request["cgroup_procs"]:
        note_failure(notes, f"cgroup {os.fsdecode(path)}", write_control, path, "0")
    if request["cpus"] is not None:
        note_failure(notes, "affinity", os.sched_setaffinity, 0, request["cpus"])
    note_failure(notes, "oom_score_adj", raise_oom_score)
    return notes


def raise_oom_score() -> None:
    """Make this process a likelier victim than Headway when the machine runs out of memory."""
    score = int(read_text("/proc/self/oom_score_adj")) + OOM_SCORE_RAISE
    write_control("/proc/self/oom_score_adj", str(min(score, 1000)))


def execute(argv: list[bytes], environment: dict[bytes, bytes]) -> None:
    """Exec argv; a name without a slash is looked up in the command's own PATH, as a shell does.

    Raises:
        OSError: The program cannot be started.

    """
    if b"/" in argv[0]:
        os.execve(argv[0], argv, environment)
    refused: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for place in environment.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin").split(b":"):
        try:
            os.execve((place or b".") + b"/" + argv[0], argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = error  # something of that name is there: say so, if nothing better follows
    raise refused


# What the kernel says about memory


def readings(request: dict[str, Any], kills_before: tuple[int | None, int | None]) -> dict:
    """Counters of the attempt's cgroup, of the host and of the cgroup around Headway."""
    kills_after = oom_kills(request)
    limit_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
    return {
        "cgroup": cgroup_memory(request["cgroup_memory"]),
        "vmstat_oom_kill": [kills_before[0], kills_after[0]],
        "inherited_oom_kill": [kills_before[1], kills_after[1]],
        "rlimit_as_bytes": None if limit_bytes == resource.RLIM_INFINITY else limit_bytes,
    }


def oom_kills(request: dict[str, Any]) -> tuple[int | None, int | None]:
    """Kills for want of memory so far: on the whole host, and in the cgroup around Headway."""
    inherited = cgroup_memory(request["inherited_memory"])
    return counter("/proc/vmstat", "oom_kill"), inherited["oom_kill"] if inherited else None


def cgroup_memory(folder: bytes | None) -> dict[str, int | None] | None:
    """Kills, peak and limit of a memory cgroup, v2 or v1; None where it says nothing of kills."""
    if folder is None:
        return None
    place = os.fsdecode(folder) + "/"
    if (kills := counter(place + "memory.events", "oom_kill")) is not None:
        peak, limit = number_in(place + "memory.peak"), number_in(place + "memory.max")
    elif (kills := counter(place + "memory.oom_control", "oom_kill")) is not None:
        peak = number_in(place + "memory.max_usage_in_bytes")
        limit = number_in(place + "memory.limit_in_bytes")
    else:
        return None
    if limit is not None and limit >= NO_LIMIT_BYTES:
        limit = None
    return {"oom_kill": kills, "peak_bytes": peak, "limit_bytes": limit}


def counter(path: str, name: str) -> int | None:
    """The value beside `name` in a file of `name value` lines, or None."""
    try:
        for line in read_text(path).splitlines():
            if line.startswith(name + " "):
                return int(line[len(name) :])
    except (OSError, ValueError):
        pass
    return None


def number_in(path: str) -> int | None:
    """The number a file holds; None where there is no such file, or it says `max`."""
    try:
        return int(read_text(path))
    except (OSError, ValueError):
        return None


# Files and text


def add_started(claimed: int, command: int) -> None:
    """Add a second line to the claim: which process the command is.

    It is for who must find the command when the keeper is gone. A file of its own would cost as
    much as the claim, and a full disk could refuse it; here the room is there.
    """
    write_all(claimed, {"pid": command, "start": start_ticks(str(command)), "t": time.time_ns()})


def write_record(folder: int, record: int, ended: dict[str, Any]) -> None:
    """Fill the reserved file and rename it to `exit`."""
    length_bytes = write_all(record, ended)
    if os.fstat(record).st_size > length_bytes:
        os.ftruncate(record, length_bytes)  # 3 ms on a slow disk, so not where it is not needed
    os.rename(f"exit.{os.getpid()}", "exit", src_dir_fd=folder, dst_dir_fd=folder)


def write_all(descriptor: int, content: dict[str, Any]) -> int:
    """Write one JSON object; return its length in bytes."""
    text = (json_text(content) + "\n").encode("ascii")
    if os.write(descriptor, text) != len(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return len(text)


def json_text(value: Any) -> str:
    """JSON of None, numbers, text, lists and dicts; pure ASCII."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + "".join(map(json_character, value)) + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}": {json_text(one)}' for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(json_text, value)) + "]"
    return repr(value)


def json_character(character: str) -> str:
    """One character of a JSON string, escaped where it is not plain ASCII."""
    if " " <= character <= "~" and character not in '"\\':
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def in_words(number: int, what: bytes) -> dict[str, Any]:
    """Why the command could not be started, as the exit record has it."""
    what_text = printable(what, LARGEST_WHAT_BYTES)
    return {"errno": number, "message": os.strerror(number), "what": what_text}


def printable(content: bytes, most_bytes: int) -> str:
    """Bytes as text, cut, and with what is not UTF-8 spelled out."""
    return content[:most_bytes].decode("utf-8", "backslashreplace")


def note_failure(notes: list[str], subject: str, action: Any, *arguments: Any) -> None:
    """Do what the command can be run without; a failure becomes a note."""
    try:
        action(*arguments)
    except OSError as error:
        notes.append(f"{subject}: {error.strerror}"[-LARGEST_NOTE_BYTES:])


def create(folder: int, name: str) -> int:
    """Open a new private file for writing inside `folder`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    return os.open(name, flags, 0o600, dir_fd=folder)


def reserve(libc: Any, record: int) -> None:
    """Take the room of an exit record from the disk now, without changing the file's size."""
    size_bytes = ctypes.c_int64(RECORD_BYTES)
    if libc.fallocate64(record, FALLOC_FL_KEEP_SIZE, ctypes.c_int64(0), size_bytes) == 0:
        return
    if (reason := ctypes.get_errno()) not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(reason, os.strerror(reason))
    os.pwrite(record, bytes(RECORD_BYTES), 0)  # this file system cannot reserve: write


def open_log(folder: int, name: str) -> int:
    """Open a log for appending inside `folder`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return os.open(name, flags, 0o600, dir_fd=folder)


def write_control(path: str | bytes, text: str) -> None:
    """Write to a control file of the kernel in one write."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def read_text(path: str) -> str:
    """The text of a small file of the kernel."""
    return read_all(os.open(path, os.O_RDONLY)).decode(errors="replace")


def read_all(descriptor: int) -> bytes:
    """Everything up to the end of a file or pipe, which is then closed."""
    content = b""
    try:
        while part := os.read(descriptor, 65536):
            content += part
    finally:
        os.close(descriptor)
    return content


def start_ticks(process: str) -> int:
    """Start time of a process in clock ticks after boot: field 22 of its stat."""
    return int(read_text(f"/proc/{process}/stat").rpartition(")")[2].split()[19])


def name_process(name: str) -> None:
    """Set the name that ps and top show; a kernel that refuses is not worth a word."""
    note_failure([], "name", write_control, "/proc/self/comm", name)


def complain(text: str) -> None:
    """Say on stderr what must not happen; stderr may be closed or full."""
    note_failure([], "stderr", os.write, 2, text.encode(errors="replace"))


if __name__ == "__main__":
    main()
