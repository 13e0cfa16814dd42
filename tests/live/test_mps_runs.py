"""Runs whose jobs share GPUs under MPS, with a fake daemon: nobody is lost, whatever it does.

The jobs are real processes that speak to the fake as CUDA would; GPUs are made up. What the daemon
is asked for by itself is tested against NVIDIA's own as well (test_mps_daemon.py).
"""

import contextlib
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminals import until

from headway.core.job import Job, Jobs
from headway.core.plan import Division
from headway.core.run import Run
from headway.core.units import GIB
from headway.core.workload import Workload
from headway.engines.local.mps_host import LOOK_NS, MpsHost
from headway.handle import RunHandle
from headway.planners.gpu_sharing import sharing_plans
from headway.testing.machines import fake_device, fake_machine
from headway.testing.mps import FakeMps, Knobs
from headway.testing.queues import FakeQueue

pytestmark = pytest.mark.slow

CLIENT = """
import json, os, pathlib, socket, sys, time
mine = {k: v for k, v in os.environ.items() if k.startswith("CUDA_")}
pathlib.Path(sys.argv[1] + ".environment").write_text(json.dumps(mine))
pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
if pipe is None:
    print("without MPS")
    sys.exit(0)
connection = socket.socket(socket.AF_UNIX)
connection.connect(pipe + "/control")
gpu = os.environ["CUDA_VISIBLE_DEVICES"]
connection.sendall(f"CLIENT {os.getpid()} {os.getuid()} {gpu}\\n".encode())
told = connection.makefile()
said = told.readline().strip()
print("CUDA says", said, flush=True)
if said != "0":
    sys.exit(3)
connection.sendall(b"BUSY\\n")
pathlib.Path(sys.argv[1] + ".busy").write_text(str(os.getpid()))
connection.settimeout(0.05)
while not pathlib.Path(sys.argv[2]).exists():
    try:
        said = connection.recv(64).decode().strip()
    except TimeoutError:
        continue
    print("CUDA says", said, flush=True)
    if said == "810":
        time.sleep(60)
    sys.exit(3)
connection.sendall(b"IDLE\\n")
"""


class Stage:
    """A folder with the fake on the PATH, and runs of its clients."""

    def __init__(self, folder: Path, fake: FakeMps, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.fake = folder, fake
        self.gate = folder / "go"
        (folder / "client.py").write_text(CLIENT)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PATH", f"{fake.folder}:{os.environ['PATH']}")
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))

    def job(self, name: str, *, command: str = "", **asked) -> Job:
        command = command or f"python3 client.py {name} {self.gate}"
        return Job(name=name, command=command, folder=str(self.folder), gpus=1, **asked)

    def run(self, *jobs: Job, most: int = 2) -> RunHandle:
        """A run whose jobs share one GPU of 80 GiB, so many at once, 10 GiB each."""
        machine = fake_machine(8, devices=[fake_device(0)])
        queue = FakeQueue(jobs=jobs, machine=machine)
        workloads = [
            Workload.opaque(
                job.name, work_ns=10**9, device_bytes=10 * GIB, device_busy=0.5, device_part=0.3
            )
            for job in jobs
        ]
        plan = next(
            plan
            for plan in sharing_plans(queue.plan("partitioned"), workloads)
            if plan.division == Division(way="mps") and plan.policy.knobs["most"] == most
        )
        listed = Jobs(source="jobs.txt", jobs=jobs)
        return RunHandle(Run.create(self.folder / "run", plan=plan, machine=machine, jobs=listed))

    def environment(self, name: str) -> dict[str, str]:
        return json.loads((self.folder / f"{name}.environment").read_text())

    @property
    def daemon(self) -> int:
        """The pid of the run's daemon, as its journal has it."""
        notes = [json.loads(line) for line in self.journal.splitlines()]
        return next(note["daemon"]["pid"] for note in notes if note.get("k") == "mps")

    @property
    def journal(self) -> str:
        return (self.folder / "run" / "journal.jsonl").read_text()

    def busy(self, *names: str) -> bool:
        return all((self.folder / f"{name}.busy").exists() for name in names)

    @contextlib.contextmanager
    def supervised(self, handle: RunHandle, **more) -> Iterator[list]:
        """The run in a thread, whose result is in the list at the end."""
        results: list = []
        thread = threading.Thread(target=lambda: results.append(handle.supervise(**more)))
        thread.start()
        try:
            yield results
        finally:
            self.gate.touch()
            thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="hw-mps-", dir="/tmp"))
    (folder / "fake").mkdir()
    try:
        with FakeMps(folder / "fake") as fake:
            yield Stage(folder, fake, monkeypatch)
    finally:
        shutil.rmtree(folder)


def states(result) -> dict[str, str]:
    return {job.name: job.status for job in result.jobs}


def asked_of(stage: Stage) -> list[str]:
    """What the fake was told, but for questions how it is."""
    return [
        call for call in stage.fake.settle()
        if not call.startswith(("command get_", "command ps"))
    ]  # fmt: skip


def test_jobs_share_a_gpu_as_clients_of_the_runs_own_daemon(stage: Stage):
    jobs = [
        stage.job("a"),
        stage.job("b", command=f"sh -c 'python3 client.py b {stage.gate} --nproc-per-node=2'"),
    ]
    with stage.supervised(stage.run(*jobs)) as results:
        until(lambda: stage.busy("a", "b"), "both to be clients at once")
        first, second = stage.environment("a"), stage.environment("b")
        stage.gate.touch()
    assert states(results[0]) == {"a": "ok", "b": "ok"}
    assert first["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert second["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"  # of two processes each
    whole, half = (
        int(one["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"].removeprefix("0=").removesuffix("M"))
        for one in (first, second)
    )
    assert whole // 2 == half
    assert whole >= 10 * 1024
    assert first["CUDA_VISIBLE_DEVICES"] == second["CUDA_VISIBLE_DEVICES"] == "GPU-00000000"
    assert asked_of(stage) == ["start -d", "command quit -t 10"]
    assert not results[0].notes or all("MPS" not in note for note in results[0].notes)


def test_a_client_is_taken_off_its_server_before_it_is_stopped(stage: Stage):
    late = stage.job("late", timeout_s=1.0)
    with stage.supervised(stage.run(late, stage.job("other"))) as results:
        until(lambda: stage.busy("late", "other"), "both to be clients")
        until(lambda: settled(stage) == 1, "its time-out")
        stage.gate.touch()
    assert states(results[0]) == {"late": "timeout", "other": "ok"}
    calls = asked_of(stage)
    assert [call.split()[1] for call in calls] == ["-d", "terminate_client", "quit"]


def settled(stage: Stage) -> int:
    """How many jobs have had their last word."""
    return stage.journal.count('"k":"settle"')


def test_without_the_program_jobs_share_in_time_slices(stage: Stage, monkeypatch):
    stage.fake.executable.unlink()
    handle = stage.run(stage.job("a"), stage.job("b"))
    result = handle.supervise()
    assert states(result) == {"a": "ok", "b": "ok"}
    assert "CUDA_MPS_PIPE_DIRECTORY" not in stage.environment("a")
    assert any(
        note.startswith("without MPS: MPS: nvidia-cuda-mps-control: not on the path")
        for note in result.notes
    )


def test_a_daemon_that_dies_at_once_is_said_and_nobody_is_lost(stage: Stage):
    stage.fake.set(Knobs(start="dies"))
    result = stage.run(stage.job("a"), stage.job("b")).supervise()
    assert states(result) == {"a": "ok", "b": "ok"}
    assert any(note.startswith("without MPS: MPS: ") for note in result.notes)


def test_a_daemon_that_goes_while_jobs_run_is_missed_and_replaced(stage: Stage):
    again = stage.folder / "again"
    waits = f"while ! test -e {again}; do sleep 0.05; done"
    jobs = [
        stage.job("a"),
        stage.job("b", command=waits),
        stage.job("c"),
        stage.job("d", after=("b",)),
    ]
    with stage.supervised(stage.run(*jobs, most=2)) as results:
        until(lambda: stage.busy("a"), "a client")
        os.kill(stage.daemon, signal.SIGKILL)
        until(lambda: "another one was started" in stage.journal, "another daemon")
        again.touch()
        until(lambda: stage.busy("d"), "a client of the other one")
    result = results[0]
    # CUDA told the first one that its server had gone; the third found none and went on without.
    assert states(result) == {"a": "failed", "b": "ok", "c": "ok", "d": "ok"}
    assert "CUDA_MPS_PIPE_DIRECTORY" not in stage.environment("c")
    assert any(note.startswith("without MPS: its daemon has gone") for note in result.notes)
    assert stage.fake.calls().count("start -d") == 2


def test_an_error_of_a_gpu_is_said_and_new_jobs_wait_until_it_is_over(stage: Stage):
    jobs = [stage.job("a"), stage.job("b"), stage.job("c")]
    with stage.supervised(stage.run(*jobs, most=2)) as results:
        until(lambda: stage.busy("a", "b"), "two clients")
        pipe = Path(stage.environment("a")["CUDA_MPS_PIPE_DIRECTORY"])
        stage.fake.fault(pipe, int((stage.folder / "a.busy").read_text()))
        until(lambda: settled(stage) == 2, "the end of both")
    result = results[0]
    assert states(result)["a"] == states(result)["b"] == "failed"
    notes = [note for job in result.jobs for note in job.notes]
    assert any("an error of a GPU hit" in note for note in notes)


def test_a_later_life_of_the_run_takes_the_daemon_over(stage: Stage):
    handle = stage.run(stage.job("a"))
    world: list = []
    with stage.supervised(handle, on_world=world.append):
        until(lambda: stage.busy("a"), "a client")
        kept = world[0].history.mps
        assert kept["pid"] in stage.fake.living()
        world[0].interrupt(1)
        stage.gate.touch()
    assert any(call.startswith("command quit") for call in stage.fake.calls())


def test_a_look_that_goes_on_at_the_end_starts_no_other_daemon(stage: Stage):
    for number in range(1, 6):
        host = MpsHost(stage.folder / f"run-{number}", ["GPU-0"], environment=os.environ)
        host.start()
        host.look(LOOK_NS)
        host.close(keep=False)
        assert stage.fake.settle().count("start -d") == number
