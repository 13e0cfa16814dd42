"""Soak: deaths by memory, and deaths and file caches that only look like it."""

import functools
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from headway.core.run import JobResult
from supervised import Place, await_true, kill, memory_group, ticks_of

MIB = 2**20
# Bounded, so that a limit that does not hold costs a failed check and not the machine. The pause is
# a training's import: what dies within its first second may not have been seen by name.
GROW = "import time; time.sleep(1.3); b = [bytearray(4 << 20) for _ in range(%d)]"
AT_ONCE = "b = [bytearray(4 << 20) for _ in range(%d)]"
PARENT = (
    "import subprocess,sys\ncode=subprocess.call([sys.executable,'-c',sys.argv[1]])\n"
    "sys.exit(int(sys.argv[2]) if sys.argv[2:] else 0)"
)
TORCH = "import torch\nb=[]\nfor _ in range(200): b.append(torch.ones(8<<20))"


def own_cap(make: Callable[[], Place], count: int) -> list[str]:
    """Killed by the job's own cap: the command itself, a child, a child below a failing shell."""
    place = make()
    forms = [
        python(GROW % 100),
        python(PARENT, GROW % 100, "1"),
        f"{python(GROW % 100)}; exit 3",
    ]
    place.prepare([f"[memory=64MB] {forms[i % 3]}" for i in range(count)])
    place.finish()
    return check(place, count, lambda job: oom(job, " cap; the job itself grew", "victim: "))


def inherited(make: Callable[[], Place], count: int) -> list[str]:
    """Killed by the limit of the group around Headway, which may make no groups of its own."""
    place = make()
    forms = [python(GROW % 200), python(AT_ONCE % 200)]
    place.prepare([forms[i % 2] for i in range(count)], mode="serial")
    with memory_group(320 * MIB) as group:
        place.finish(place.start(group=group, without_groups=True))
    without = [path for path in place.attempts() if has_own_group(path.path)]
    failures = [f"{path.path} had a group of its own" for path in without]
    return failures or check(place, count, lambda job: oom(job, "memory of the cgroup", "victim: "))


def nested(make: Callable[[], Place], count: int) -> list[str]:
    """Killed by the limit around Headway while the job is in a group of its own without a cap."""
    place = make()
    place.prepare([python(GROW % 200)] * count, mode="serial")
    with memory_group(320 * MIB) as group:
        place.finish(place.start(group=group))
    return check(place, count, lambda job: oom(job, "memory around it was full", "victim: "))


def rlimit(make: Callable[[], Place], count: int) -> list[str]:
    """Refused by `ulimit -v`, set around Headway and in the command by turns."""
    around, inside = make(), make()
    job = python(GROW % 400)
    around.prepare([job] * (count - count // 2))
    around.finish(around.start(address_space_kib=1_200_000))
    words = ("memory ran out", "MemoryError", "ulimit -v")
    failures = check(around, count - count // 2, lambda job: oom(job, *words))
    if count // 2:
        inside.prepare([f"ulimit -v 600000; {job}"] * (count // 2))
        inside.finish()
        failures += check(inside, count // 2, lambda job: oom(job, *words[:2]))
    return failures


def allocator(make: Callable[[], Place], count: int) -> list[str]:
    """Refused to torch's allocator."""
    place = make()
    place.prepare([python(TORCH)] * count)
    place.finish(place.start(address_space_kib=1_600_000))
    return check(place, count, lambda job: oom(job, "memory ran out", "DefaultCPUAllocator"))


def foreign_kill(make: Callable[[], Place], count: int) -> list[str]:
    """Another process kills the command, or its child below a shell: no memory in sight."""
    place = make()
    pids = place.path / "pids"
    pids.mkdir()
    lines = [
        f"sleep 60 & echo $! > {pids}/{i}; wait $!"
        if i % 2
        else f"echo $$ > {pids}/{i}; exec sleep 60"
        for i in range(count)
    ]
    place.prepare(lines, mode="naive")
    process = place.start()
    for number in range(count):
        path = pids / str(number)
        await_true(functools.partial(running_sleep, path), f"job {number} sleeps")
        pid = int(path.read_text())
        kill(pid, ticks_of(pid))
    place.finish(process)
    return check(place, count, lambda job: failed(job, "signal 9"))


def exit_137(make: Callable[[], Place], count: int) -> list[str]:
    """A code is only a number."""
    place = make()
    place.prepare(["exit 137"] * count)
    place.finish()
    return check(place, count, lambda job: failed(job, "exit 137"))


def page_cache(make: Callable[[], Place], count: int) -> list[str]:
    """A job fills its capped group with file cache: twice the limit goes through it."""
    place = make()
    line = "[memory=48MB] dd if=/dev/zero of=%s/file%d bs=1M count=96 2>&1"
    place.prepare([line % (place.path, i) for i in range(count)])
    place.finish()
    failures = check(place, count, lambda job: "" if job.status == "ok" else "not ok")
    for attempt in place.attempts():
        record = attempt.read_exit()
        peak = record.cgroup.peak_bytes if record and record.cgroup else 0
        if (peak or 0) < 0.9 * 48 * MIB:
            failures.append(f"{attempt.path}: peak {peak}, so the cache never was full")
    return failures


def hidden_child(make: Callable[[], Place], count: int) -> list[str]:
    """The kernel kills a child, and its parent exits 0 as if nothing had been."""
    place = make()
    forms = [python(PARENT, GROW % 100), f"{python(GROW % 100)}; true"]
    place.prepare([f"[memory=64MB] {forms[i % 2]}" for i in range(count)])
    place.finish()

    def told(job: JobResult) -> str:
        code = "" if job.exit_code == 0 else f"exit code {job.exit_code}"
        return code or oom(job, "finished with exit 0 but")

    return check(place, count, told)


def check(place: Place, count: int, judge: Callable[[JobResult], str]) -> list[str]:
    """What is wrong with the jobs of an ended run, one entry a job; and with what it left."""
    jobs = place.jobs()
    failures = [f"{len(jobs)} jobs of {count}"] if len(jobs) != count else []
    failures += [
        f"{job.name}: {wrong} ({job.status}: {job.cause})" for job in jobs if (wrong := judge(job))
    ]
    return failures + place.left()


def oom(job: JobResult, *words: str) -> str:
    """What is wrong where a job should have ended for want of memory; "" for nothing."""
    if job.status != "oom":
        return "not oom"
    anonymous = "one of its processes" in job.cause
    return "the victim has no name" if anonymous else _missing(job.cause, words)


def failed(job: JobResult, *words: str) -> str:
    """The same where it should just have failed."""
    return "not failed" if job.status != "failed" else _missing(job.cause, words)


def python(code: str, *arguments: str) -> str:
    """A shell command of one line that runs a piece of Python."""
    return shlex.join([sys.executable, "-c", f"exec({code!r})", *arguments])


def has_own_group(attempt: Path) -> bool:
    """Whether an attempt's exit record has counters of a group of its own."""
    return '"cgroup": {' in (attempt / "exit").read_text()


def running_sleep(path: Path) -> bool:
    """Whether a file names a process that is `sleep` by now."""
    try:
        return Path(f"/proc/{int(path.read_text())}/comm").read_text() == "sleep\n"
    except (OSError, ValueError):
        return False


def _missing(cause: str, words: Sequence[str]) -> str:
    missing = [word for word in words if word not in cause]
    return f"the cause lacks {missing}" if missing else ""
