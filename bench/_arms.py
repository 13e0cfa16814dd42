"""One arm of a sweep: a list of jobs run in one of the ways there are, and what came of it."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from _common import ROOT, environment, headway

sys.path.insert(0, str(ROOT / "src"))

from headway.core.environment import THREAD_VARIABLES
from headway.system.hierarchies import discover_hierarchies

TRAIN = ROOT / "bench" / "jobs" / "train.py"
LEAST_STEPS = 5  # of a job, however small the scale
STOP_S = 60.0  # Headway gives its jobs 10 s between SIGTERM and SIGKILL
THREADS_ALONE = {"alone-1": 1, "alone-2": 2}
"""The arms that run jobs one after another with a stated thread count, and that count."""
_MODES = {"again": "auto", **dict.fromkeys(THREADS_ALONE, "serial")}
"""The modes of the arms that are not called like theirs. "again" is auto once more, the A/A arm."""


class Work(NamedTuple):
    """What a job of a sweep is to do: arguments of bench/jobs/train.py.

    `memory_mb` is the peak in MiB, for kind memory.
    """

    kind: str
    steps: int
    memory_mb: int = 0

    def scaled(self, scale: float) -> "Work":
        return self._replace(steps=max(LEAST_STEPS, round(self.steps * scale)))

    def command(self, seed: int) -> str:
        words = [sys.executable, TRAIN, "--kind", self.kind, "--steps", self.steps, "--seed", seed]
        if self.memory_mb:
            words += ["--memory-mb", self.memory_mb]
        return " ".join(map(str, words))


def commands_of(jobs: Sequence[Work]) -> list[str]:
    return [job.command(seed) for seed, job in enumerate(jobs)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one arm.

    Attributes:
        arm: Its name.
        makespan_s: Wall time of the whole command, or of what was seen of it before the cap.
        capped: Whether it was stopped because it took too long.
        start_up_s: Of each job that finished, from its own output, in the order of the list (xargs:
            in the order in which they ended).
        steps_s: Likewise: all steps but the first.
        statuses: How many jobs ended in which way.
        oom_kills: Attempts that ended out of memory, retried ones included.
        gave_way: Attempts that were stopped before memory ran out, and ran again.
        part_done: The part of its steps that a job had made when the arm was stopped, in the mean
            over its jobs; 1 where it was not.
        mode: The mode of the plan that was carried out; "" for xargs.
        plan: A digest of that plan without its reason: equal plans do the same.

    """

    arm: str
    makespan_s: float
    capped: bool
    start_up_s: list[float]
    steps_s: list[float]
    statuses: dict[str, int]
    oom_kills: int
    gave_way: int
    part_done: float
    mode: str = ""
    plan: str = ""

    @property
    def sound(self) -> bool:
        """Whether all jobs ended well, at the first attempt as far as memory goes."""
        return not self.capped and set(self.statuses) == {"ok"} and self.oom_kills == 0

    @property
    def jobs_s(self) -> list[float]:
        """Seconds of each job that finished, from the start of its process to its last step."""
        return [sum(times) for times in zip(self.start_up_s, self.steps_s, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def plain_environment() -> dict[str, str]:
    """The caller's variables without a thread count: what a shell has set must not decide."""
    return {k: v for k, v in environment().items() if k not in THREAD_VARIABLES}


def run_arm(
    arm: str,
    commands: Sequence[str],
    *,
    cap_s: float | None = None,
    group: Path | None = None,
    state: Path | None = None,
) -> Outcome:
    """Run the commands once in the way that the arm's name says.

    Args:
        arm: A mode of `headway run`, "again", "xargs", or a name of THREADS_ALONE.
        commands: One shell command a job.
        cap_s: Seconds after which all of it is killed.
        group: A control group that the command and its jobs run in.
        state: $XDG_STATE_HOME, with what was learnt before; a fresh one where not said, so that
            nothing learnt in an arm tells the next.
    """
    place = Path(tempfile.mkdtemp(prefix="headway-sweep-"))
    try:
        jobs, run, output = place / "jobs.txt", place / "run", place / "output"
        prefix = f"[threads={THREADS_ALONE[arm]}] " if arm in THREADS_ALONE else ""
        jobs.write_text("".join(f"{prefix}{command}\n" for command in commands))
        if arm == "xargs":
            command = ["xargs", "-P2", "-d", "\\n", "-n1", "-a", str(jobs), "sh", "-c"]
        else:
            words = ("run", jobs, "--mode", _MODES.get(arm, arm), "--out", run, "--no-progress")
            command = headway(*words)
        makespan_s, capped = _timed(command, output, cap_s, group, state=state or place)
        return _outcome(arm, makespan_s, capped, run, output, len(commands))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _timed(
    command: list[str], output: Path, cap_s: float | None, group: Path | None, *, state: Path
) -> tuple[float, bool]:
    """Seconds a command took, and whether it was ended for taking too long."""
    if group is not None:
        script = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        command = ["sh", "-c", script, str(group), *command]
    with output.open("wb") as file:
        begin_s = time.perf_counter()
        process = subprocess.Popen(
            command,
            env=plain_environment() | {"XDG_STATE_HOME": str(state)},
            stdout=file,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(timeout=cap_s)
            return time.perf_counter() - begin_s, False
        except subprocess.TimeoutExpired:
            return time.perf_counter() - begin_s, True
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what has not ended: xargs with its jobs at once, Headway by its own way of stopping."""
    if process.poll() is not None:
        return
    # Headway's jobs are in sessions of their own: it stops them when it is asked to end itself.
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # xargs ends before its jobs do: they have yet to print how far they came.
    deadline = time.monotonic() + STOP_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.05)


def _outcome(
    arm: str, makespan_s: float, capped: bool, run: Path, output: Path, count: int
) -> Outcome:
    if arm == "xargs":
        printed = _printed(output)
        oom_kills = gave_way = 0
        mode = plan = ""
    else:
        logs = (sorted(job.iterdir()) for job in sorted(run.glob("jobs/*")))
        printed = [line for log in logs if log for line in _printed(log[-1] / "stdout")]
        oom_kills, gave_way = _memory_troubles(run)
        mode, plan = _plan(run)
    ended = [figures for figures in printed if "steps_s" in figures]
    if arm == "xargs":
        statuses = {"ok": len(ended)}
        if len(ended) < count:
            statuses["stopped" if capped else "failed"] = count - len(ended)
    else:
        statuses = _statuses(run)
    parts = [figures.get("steps_done", figures["steps"]) / figures["steps"] for figures in printed]
    return Outcome(
        arm=arm,
        makespan_s=round(makespan_s, 2),
        capped=capped,
        start_up_s=[figures["start_up_s"] for figures in ended],
        steps_s=[figures["steps_s"] for figures in ended],
        statuses=statuses,
        oom_kills=oom_kills,
        gave_way=gave_way,
        part_done=round(sum(parts) / count, 3) if capped else 1.0,
        mode=mode,
        plan=plan,
    )


def _printed(path: Path) -> list[dict[str, Any]]:
    """The figures that jobs printed."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.startswith("{")]


def _statuses(run: Path) -> dict[str, int]:
    try:
        jobs = json.loads((run / "result.json").read_text())["jobs"]
    except FileNotFoundError:
        return {}
    found: dict[str, int] = {}
    for job in jobs:
        found[job["status"]] = found.get(job["status"], 0) + 1
    return found


def _plan(run: Path) -> tuple[str, str]:
    """The mode of a run's plan, and a digest of what it does, whatever the reason for it."""
    try:
        plan = json.loads((run / "plan.json").read_text())
    except FileNotFoundError:
        return "", ""
    del plan["reason"]
    words = json.dumps(plan, sort_keys=True).encode()
    return plan["mode"], hashlib.blake2b(words, digest_size=8).hexdigest()


def _memory_troubles(run: Path) -> tuple[int, int]:
    """Attempts that ended out of memory, and attempts that were stopped before that."""
    oom_kills = gave_way = 0
    for line in (run / "journal.jsonl").read_text().splitlines():
        try:
            word = json.loads(line)
        except ValueError:
            continue  # the last line of a run that was killed
        if word.get("k") == "exited":
            oom_kills += word["outcome"]["status"] == "oom"
        gave_way += word.get("k") == "stop" and word.get("how") == "memory"
    return oom_kills, gave_way


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A v1 control group with a memory limit, below the one we are in.

    Raises:
        SystemExit: There can be none here.
    """
    places = [
        hierarchy.own
        for hierarchy in discover_hierarchies()
        if hierarchy.version == 1 and "memory" in hierarchy.controllers and hierarchy.own
    ]
    if not places or not os.access(places[0], os.W_OK):
        raise SystemExit(
            "sweep e needs a writable cgroup v1 memory hierarchy (root, kernel with v1): the "
            "limit around Headway is made there; the other sweeps run anywhere"
        )
    folder = places[0] / f"headway-bench-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path, limit_s: float = 10.0) -> None:
    """Remove a group with those below it, which go some moments after their last process."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            for below in sorted(folder.rglob("*/"), key=lambda one: -len(one.parts)):
                below.rmdir()
            folder.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                print(f"could not remove {folder}", file=sys.stderr)
                return
            time.sleep(0.1)


def median_or_none(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
