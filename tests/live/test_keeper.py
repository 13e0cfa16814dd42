import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from headway.engines.local import zygote as zygote_module
from headway.engines.local.attempts import AttemptFolder, AttemptState, keeper_alive, open_keeper
from headway.engines.local.zygote import StartRequest, Zygote, ZygoteDied
from headway.system import procfs

DEADLINE_S = 60.0


def until(condition):
    """Poll for a condition; return what it gave."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "the condition did not come true"
        select.select([], [], [], 0.005)
    return found


class Place:
    """A run folder and a zygote, with the few things every test does."""

    def __init__(self, run, environment=None):
        self.run = run
        self.complaints = run / "complaints"
        self.zygote = Zygote.start(environment or os.environ, stderr=self.complaints)
        self.submitted = 0

    def request(self, *argv, **changes):
        self.submitted += 1
        folder = AttemptFolder.of(self.run, job=self.submitted, attempt=1)
        folder.make()
        fields = {"identifier": self.submitted, "folder": folder.path, "cwd": self.run}
        return folder, StartRequest(**{**fields, "argv": argv, **changes})

    def shell(self, script, **changes):
        return self.submit("/bin/sh", "-c", script, **changes)

    def submit(self, *argv, **changes):
        folder, request = self.request(*argv, **changes)
        self.zygote.submit(request)
        return folder

    def reply(self):
        """The next replies; there must be exactly one."""
        select.select([self.zygote], [], [], DEADLINE_S)
        (reply,) = self.zygote.replies()
        return reply

    def ended(self, folder):
        return until(folder.read_exit)


@pytest.fixture
def place(tmp_path):
    there = Place(tmp_path)
    with closing(there.zygote):
        yield there
    for folder in tmp_path.glob("jobs/*/1"):  # leave nothing running
        attempt = AttemptFolder(folder)
        for record in (attempt.read_claim(), attempt.read_started()):
            if record is not None and not getattr(record, "void", False):
                kill(record)
    assert there.complaints.read_text() == ""


def kill(record):
    """Kill what a claim or a started line names, if it is still that process."""
    pid = getattr(record, "keeper_pid", None) or record.command_pid
    ticks = getattr(record, "keeper_start_ticks", None) or record.command_start_ticks
    if start_ticks(pid) == ticks:
        os.kill(pid, signal.SIGKILL)


def start_ticks(pid):
    found = procfs.entry(pid)
    return None if found is None or found.ended else found.start_ticks


def gone(pid):
    return start_ticks(pid) is None


def test_a_command_runs_and_leaves_claim_logs_and_record(place):
    folder = place.shell("echo out; echo err >&2; exit 3")
    reply = place.reply()
    assert reply.error is None
    record = place.ended(folder)
    assert (record.exit_code, record.signal, record.spawn_error) == (3, None, None)
    assert folder.stdout.read_text() == "out\n"
    assert folder.stderr.read_text() == "err\n"
    claim = folder.read_claim()
    assert (claim.keeper_pid, claim.keeper_start_ticks) == (
        reply.keeper_pid,
        reply.keeper_start_ticks,
    )
    assert claim.t_ns <= record.start_ns <= record.command_end_ns <= record.end_ns
    assert folder.read_started().command_pid != claim.keeper_pid
    assert record.reaped == 1
    assert record.notes == ()
    assert record.largest_process_bytes > 0
    names = ["claim", "exit", "stderr", "stdout", "steps"]
    assert sorted(os.listdir(folder.path)) == names
    for name in ("claim", "exit", "stderr", "stdout"):
        assert (folder.path / name).stat().st_mode & 0o777 == 0o600
    until(lambda: folder.state() is AttemptState.ENDED and gone(claim.keeper_pid))


def test_a_signal_is_told_from_its_exit_code(place):
    killed, exited = place.shell("kill -KILL $$"), place.shell("exit 137")
    assert place.ended(killed).signal == signal.SIGKILL
    assert place.ended(killed).exit_code is None
    assert place.ended(exited).exit_code == 137
    assert place.ended(exited).signal is None


def test_what_the_command_gets(place, tmp_path):
    """Signals, descriptors, session, umask, environment, folder: nothing of the keeper's."""
    script = """
import json, os, sys
status = dict(l.split(":", 1) for l in open("/proc/self/status") if l.startswith("Sig"))
umask = os.umask(0)
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
fds = [number for number in range(256) if is_open(number)]
json.dump({"ignored": int(status["SigIgn"], 16), "blocked": int(status["SigBlk"], 16),
    "fds": fds,
    "stdin": os.readlink("/proc/self/fd/0"), "leader": os.getsid(0) == os.getpid(),
    "umask": umask, "cwd": os.getcwd(), "env": dict(os.environ), "argv": sys.argv[1:],
    "comm": open(f"/proc/{os.getppid()}/comm").read(),
    "score": int(open("/proc/self/oom_score_adj").read()),
    "cpus": sorted(os.sched_getaffinity(0))}, sys.stdout)
"""
    cpu = min(os.sched_getaffinity(0))
    folder = place.submit(
        sys.executable,
        "-c",
        script,
        "räksmörgås",
        "\udcff",
        environment_set={"HEADWAY_TEST_ADDED": "a=b"},
        environment_unset=["HOME", "NEVER_SET"],
        cpus=[cpu],
    )
    assert place.ended(folder).exit_code == 0, folder.stderr.read_text()
    got = json.loads(folder.stdout.read_text())
    # Python itself ignores SIGPIPE and SIGXFSZ. Signals 32 and 33 belong to the C library, which
    # lets nobody change them; GNU make leaves them ignored in all that it starts.
    of_the_library = 1 << 31 | 1 << 32
    ignored = got["ignored"] & ~of_the_library
    assert ignored == 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert got["blocked"] == 0
    assert got["fds"] == [0, 1, 2]
    assert got["stdin"] == "/dev/null"
    assert got["leader"]
    umask = os.umask(0)
    os.umask(umask)
    assert got["umask"] == umask
    assert got["cwd"] == str(tmp_path)
    assert got["argv"] == ["räksmörgås", "\udcff"]
    assert got["comm"] == "headway-keeper\n"
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert got["score"] == min(own + 500, 1000)
    assert got["cpus"] == [cpu]
    expected = {**os.environ, "HEADWAY_TEST_ADDED": "a=b"}
    assert "HOME" not in got["env"]
    for name in ("HOME", "PYTEST_CURRENT_TEST", "LC_CTYPE"):  # Python sets LC_CTYPE itself
        got["env"].pop(name, None)
        expected.pop(name, None)
    assert got["env"] == expected


@pytest.mark.parametrize(
    ("argv", "cwd", "number", "what"),
    [
        (["/no/such/program"], None, 2, "/no/such/program"),
        (["no-such-program-anywhere"], None, 2, "no-such-program-anywhere"),
        (["/bin/true"], "/no/such/folder", 2, "/no/such/folder"),
        (["/etc/passwd"], None, 13, "/etc/passwd"),
        (["/tmp"], None, 13, "/tmp"),
        (["/bin/true", "x" * 2_000_000], None, 7, "/bin/true"),
        (["/bin/true", "a\0b"], None, 22, "/bin/true"),
    ],
    ids=["missing", "missing in PATH", "cwd", "not executable", "folder", "too long", "zero byte"],
)
def test_what_cannot_be_started_is_said_in_words(place, argv, cwd, number, what):
    folder = place.submit(*argv, **({"cwd": Path(cwd)} if cwd else {}))
    assert place.reply().error is None  # it was claimed: it is the command that is at fault
    record = place.ended(folder)
    assert record.exit_code is None
    assert record.signal is None
    assert (record.spawn_error.number, record.spawn_error.what) == (number, what)
    assert record.spawn_error.message == os.strerror(number)
    assert folder.read_started() is None


def test_a_script_without_an_interpreter_line_is_not_given_to_a_shell(place, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o700)
    record = place.ended(place.submit(str(script)))
    assert record.spawn_error.message == "Exec format error"


def test_a_name_is_looked_up_in_the_commands_own_path(place, tmp_path):
    program = tmp_path / "headway-test-program"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o700)
    path = {"PATH": f"/no/such/place:{tmp_path}"}
    folder = place.submit("headway-test-program", environment_set=path)
    assert place.ended(folder).exit_code == 0
    assert folder.stdout.read_text() == "found\n"


def test_what_is_awkward_in_json_survives(place):
    folder = place.submit('/no/"such"\\\n\tprögram\U0001f600\udcff')
    record = place.ended(folder)
    assert record.spawn_error.what == '/no/"such"\\\n\tprögram\U0001f600\\xff'


def test_large_environment(tmp_path):
    large = {f"LARGE_{i}": "x" * 1000 for i in range(300)} | {"PATH": os.defpath, "LAST": "y"}
    place = Place(tmp_path, large)
    with closing(place.zygote):
        script = 'printf %s "$LARGE_299$LAST$HOME$SET" | wc -c; printf %s "$LARGE_0"'
        folder = place.shell(
            script, environment_set={"SET": "z" * 100_000}, environment_unset=["LARGE_0"]
        )
        assert place.ended(folder).exit_code == 0, folder.stderr.read_text()
        assert folder.stdout.read_text().strip() == str(1000 + 1 + 100_000)


def test_without_memory_files_a_large_request_goes_through_the_temporary_folder(place, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    folder = place.submit("/bin/echo", "x" * 100_000)
    assert place.ended(folder).exit_code == 0
    assert folder.stdout.stat().st_size == 100_001


@pytest.mark.slow
def test_many_at_once_are_pipelined_and_each_runs_once(place, tmp_path):
    folders = [place.shell("echo x >> effect") for _ in range(60)]
    large = place.submit("/bin/true", "x" * 70_000)  # a file among the inline ones
    answered = []

    def all_answered():
        answered.extend(place.zygote.replies())
        return len(answered) == 61

    until(all_answered)
    assert all(reply.error is None for reply in answered)
    assert place.zygote.unanswered == frozenset()
    for folder in (*folders, large):
        assert place.ended(folder).exit_code == 0
    assert (tmp_path / "effect").read_text() == "x\n" * 60


def test_a_claimed_attempt_is_not_started_again(place, tmp_path):
    folder = place.shell("echo x >> effect")
    first = place.reply()
    place.ended(folder)
    place.zygote.submit(
        StartRequest(identifier=99, folder=folder.path, argv=["/bin/false"], cwd=tmp_path)
    )
    second = place.reply()
    assert (second.identifier, second.keeper_pid) == (99, None)
    assert "has been claimed already" in second.error
    assert folder.read_claim().keeper_pid == first.keeper_pid
    assert folder.read_exit().exit_code == 0
    assert (tmp_path / "effect").read_text() == "x\n"
    assert sorted(os.listdir(folder.path)) == ["claim", "exit", "stderr", "stdout", "steps"]


def test_a_void_claim_forbids_the_start(place, tmp_path):
    folder, request = place.request("/bin/sh", "-c", "echo x >> effect")
    assert folder.link_void_claim()
    place.zygote.submit(request)
    assert "has been claimed already" in place.reply().error
    assert folder.state() is AttemptState.VOID
    assert not (tmp_path / "effect").exists()


def test_a_missing_folder_is_answered(place, tmp_path):
    place.zygote.submit(
        StartRequest(identifier=5, folder=tmp_path / "none", argv=["/bin/true"], cwd=tmp_path)
    )
    reply = place.reply()
    assert reply.error == f"cannot claim {tmp_path}/none: No such file or directory"


@pytest.mark.slow
def test_the_keeper_waits_for_a_daemon(place, tmp_path):
    """A double fork into an own session, output closed: the attempt ends when it ends."""
    os.mkfifo(tmp_path / "gate")
    daemon = "(setsid sh -c 'echo $$ > daemon; read line < gate; kill -USR1 $$' &) ; exit 4"
    folder = place.shell(daemon)
    daemon_pid = until(lambda: (tmp_path / "daemon").exists() and int_in(tmp_path / "daemon"))
    command = until(folder.read_started)
    until(lambda: gone(command.command_pid))
    assert folder.read_exit() is None
    assert folder.state() is AttemptState.RUNNING
    assert not gone(daemon_pid)
    with open(tmp_path / "gate", "w") as gate:
        gate.write("go\n")
    record = place.ended(folder)
    assert record.exit_code == 4
    assert (daemon_pid, signal.SIGUSR1) in record.killed_children
    assert record.command_end_ns < record.end_ns
    assert record.reaped >= 2


def int_in(path):
    return int(path.read_text() or 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_keeper_outlives_polite_signals(place, tmp_path, number):
    os.mkfifo(tmp_path / "gate")
    folder = place.shell("read line < gate")
    keeper = place.reply().keeper_pid
    until(folder.read_started)
    os.kill(keeper, number)
    os.kill(place.zygote.pid, number)
    with open(tmp_path / "gate", "w") as gate:
        gate.write("go\n")
    assert place.ended(folder).exit_code == 0
    assert place.zygote.alive


def test_a_killed_zygote_leaves_its_keepers_and_refuses_requests(place, tmp_path):
    os.mkfifo(tmp_path / "gate")
    folder = place.shell("read line < gate; exit 6")
    claim = until(lambda: place.zygote.replies() and folder.read_claim())
    os.kill(place.zygote.pid, signal.SIGKILL)
    until(lambda: not place.zygote.alive)
    assert place.zygote.replies() == []
    with pytest.raises(ZygoteDied, match="start a new one"):
        place.shell("true")
    assert place.zygote.unanswered == frozenset()
    assert keeper_alive(claim)
    with open(tmp_path / "gate", "w") as gate:
        gate.write("go\n")
    assert place.ended(folder).exit_code == 6


@pytest.mark.slow
def test_an_unanswered_request_is_settled_by_its_claim(place, tmp_path):
    """The zygote dies with requests before it: each has run once, or a void claim forbids it."""
    os.kill(place.zygote.pid, signal.SIGSTOP)
    folders = [place.shell(f"echo x >> effect-{n}") for n in range(20)]
    os.kill(place.zygote.pid, signal.SIGCONT)
    until(lambda: folders[0].read_claim())
    os.kill(place.zygote.pid, signal.SIGKILL)
    until(lambda: not place.zygote.alive)
    voided = [folder.link_void_claim() for folder in folders]
    assert not voided[0]
    for number, folder in enumerate(folders):
        effect = tmp_path / f"effect-{number}"
        if voided[number]:
            assert folder.state() is AttemptState.VOID
        else:
            assert place.ended(folder).exit_code == 0
            assert effect.read_text() == "x\n"
    for number in range(20):
        assert not (voided[number] and (tmp_path / f"effect-{number}").exists())


def test_the_zygote_ends_with_its_socket_and_keepers_do_not(place, tmp_path):
    os.mkfifo(tmp_path / "gate")
    folder = place.shell("read line < gate")
    keeper = place.reply().keeper_pid
    place.zygote.close()
    assert gone(place.zygote.pid)
    assert not place.zygote.alive
    assert not gone(keeper)
    with open(tmp_path / "gate", "w") as gate:
        gate.write("go\n")
    assert place.ended(folder).exit_code == 0


@pytest.mark.slow
def test_a_killed_supervisor_changes_nothing(tmp_path):
    """The process that holds the Zygote gets SIGKILL; the command and its record do not mind."""
    os.mkfifo(tmp_path / "gate")
    script = """
import os, sys
from pathlib import Path
from headway.engines.local.attempts import AttemptFolder
from headway.engines.local.zygote import StartRequest, Zygote
run = Path(sys.argv[1])
folder = AttemptFolder.of(run, job=1, attempt=1)
folder.make()
zygote = Zygote.start(os.environ)
zygote.submit(StartRequest(
    identifier=1, folder=folder.path, argv=["/bin/sh", "-c", "read line < gate; exit 5"], cwd=run))
print(zygote.pid, flush=True)
sys.stdin.read()
"""
    folder = AttemptFolder.of(tmp_path, job=1, attempt=1)
    command = [sys.executable, "-c", script, str(tmp_path)]
    source = str(Path(zygote_module.__file__).parents[3])
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    ) as supervisor:
        zygote_pid = int(supervisor.stdout.readline())
        until(folder.read_started)
        supervisor.kill()
    until(lambda: gone(zygote_pid))
    keeper = open_keeper(folder.read_claim())
    assert keeper is not None
    try:
        with open(tmp_path / "gate", "w") as gate:
            gate.write("go\n")
        assert select.select([keeper], [], [], DEADLINE_S)[0]
    finally:
        os.close(keeper)
    assert folder.read_exit().exit_code == 5


def test_a_killed_keeper_leaves_a_claim_and_no_record(place, tmp_path):
    os.mkfifo(tmp_path / "gate")
    folder = place.shell("read line < gate")
    command = until(folder.read_started)
    assert folder.state() is AttemptState.RUNNING
    os.kill(folder.read_claim().keeper_pid, signal.SIGKILL)
    until(lambda: folder.state() is AttemptState.LOST)
    assert folder.read_exit() is None
    assert start_ticks(command.command_pid) == command.command_start_ticks  # found again
    assert not folder.link_void_claim()


def test_fault_after_the_claim_starts_nothing(place, tmp_path):
    folder = place.shell("echo x > effect", fault="after-claim")
    assert place.reply().error == "the keeper was killed at its start"
    until(lambda: folder.state() is AttemptState.LOST)
    assert folder.read_started() is None
    assert not (tmp_path / "effect").exists()
    assert not folder.stdout.exists()


def test_fault_after_the_result_loses_only_the_record(place, tmp_path):
    folder = place.shell("echo x > effect", fault="after-result")
    until(lambda: folder.state() is AttemptState.LOST)
    assert (tmp_path / "effect").read_text() == "x\n"
    assert folder.read_started() is not None
    assert folder.read_exit() is None


def test_what_cannot_be_joined_is_a_note(place, tmp_path):
    folder = place.shell(
        "exit 0", cgroup_procs=[tmp_path / "none" / "cgroup.procs"], cpus=[100_000]
    )
    record = place.ended(folder)
    assert record.exit_code == 0
    first, second = record.notes
    assert first.endswith("none/cgroup.procs: No such file or directory")
    assert second == "affinity: Invalid argument"


def test_recorded_cgroup_v2_counters_are_read(place, tmp_path):
    own, around = tmp_path / "own", tmp_path / "around"
    for folder, kills in ((own, 2), (around, 7)):
        folder.mkdir()
        (folder / "memory.events").write_text(
            f"low 0\nhigh 0\nmax 12\noom 2\noom_kill {kills}\noom_group_kill 0\n"
        )
    (own / "memory.peak").write_text("4096\n")
    (own / "memory.max").write_text("max\n")
    record = place.ended(place.shell("true", cgroup_memory=own, inherited_memory=around))
    assert (record.cgroup.oom_kills, record.cgroup.peak_bytes) == (2, 4096)
    assert record.cgroup.limit_bytes is None
    assert record.inherited_oom_kills == (7, 7)


def memory_cgroup():
    """Our own v1 memory cgroup, where a child folder can be made; or skip, saying why."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            folder = Path("/sys/fs/cgroup/memory") / path.lstrip("/")
            if os.access(folder, os.W_OK):
                return folder
    pytest.skip("no writable v1 memory cgroup")
    raise AssertionError


@pytest.mark.slow
@pytest.mark.cgroup
def test_a_memory_kill_is_in_the_record(place):
    folder = memory_cgroup() / f"headway-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(64 * 2**20))
        attempt = place.submit(
            sys.executable,
            "-c",
            "import os; print(open('/proc/self/cgroup').read(), flush=True); x = b'x' * 2**28",
            cgroup_procs=[folder / "cgroup.procs"],
            cgroup_memory=folder,
        )
        record = place.ended(attempt)
        assert record.notes == ()
        assert folder.name in attempt.stdout.read_text()
        assert record.signal == signal.SIGKILL
        assert record.cgroup.oom_kills == 1
        assert record.cgroup.limit_bytes == 64 * 2**20
        assert record.cgroup.peak_bytes <= 64 * 2**20
    finally:
        until(lambda: removed(folder))


def removed(folder):
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


@pytest.fixture
def tiny_disk(tmp_path):
    """A disk of 256 KB, or skip, saying why."""
    where = tmp_path / "disk"
    where.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "headway-test", str(where)],
        capture_output=True,
        text=True,
    )
    if made.returncode != 0:
        pytest.skip(f"cannot mount: {made.stderr.strip()}")
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


def fill(path):
    """Write until the disk is full."""
    with open(path, "wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass
    assert os.statvfs(path).f_bavail == 0


@pytest.mark.root
def test_a_full_disk_loses_the_output_not_the_record(tiny_disk):
    place = Place(tiny_disk)
    with closing(place.zygote):
        folder = place.shell("head -c 1000000 /dev/zero")
        record = place.ended(folder)
        assert record.exit_code == 1
        assert folder.read_started() is not None
        assert 0 < folder.stdout.stat().st_size < 1_000_000
        assert os.statvfs(tiny_disk).f_bavail == 0


@pytest.mark.root
def test_a_disk_that_is_full_already_refuses_the_start(tiny_disk):
    place = Place(tiny_disk)
    with closing(place.zygote):
        folder, request = place.request("/bin/sh", "-c", "true")
        fill(tiny_disk / "filler")
        place.zygote.submit(request)
        error = place.reply().error
        assert error == f"cannot claim {folder.path}: No space left on device"
        assert folder.state() is AttemptState.UNCLAIMED
        assert os.listdir(folder.path) == ["steps"]


def test_a_log_that_is_a_link_is_not_followed(place, tmp_path):
    target = tmp_path / "precious"
    target.write_text("mine\n")
    folder, request = place.request("/bin/echo", "theirs")
    folder.stdout.symlink_to(target)
    place.zygote.submit(request)
    record = place.ended(folder)
    assert record.spawn_error.what == "stdout"
    assert target.read_text() == "mine\n"


@pytest.mark.slow
def test_a_closed_zygote_leaves_no_descriptor_behind(tmp_path):
    before = sorted(os.listdir("/proc/self/fd"))
    place = Place(tmp_path)
    os.kill(place.zygote.pid, signal.SIGSTOP)  # nothing is read: large requests stay queued
    for _ in range(400):
        place.submit("/bin/true", "x" * 40_000)
    os.kill(place.zygote.pid, signal.SIGKILL)
    place.zygote.close()
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert place.zygote.unanswered == frozenset(range(1, 401))


def test_the_socket_is_not_inherited_by_other_children(place):
    listing = subprocess.run(
        ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False, check=True
    )
    inode = os.fstat(place.zygote.fileno()).st_ino
    assert f"socket:[{inode}]" not in listing.stdout
