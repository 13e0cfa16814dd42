"""Soak: cancelling and timing out trees that do all they can to live on."""

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

from soak_memory import python
from supervised import Place, await_true, is_alive

TREE = r"""
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
STAY = "import os,sys,time\nopen(sys.argv[1],'a').write(f'{os.getpid()} '" \
    "f'{open(\"/proc/self/stat\").read().rpartition(\")\")[2].split()[19]}\\n')\ntime.sleep(300)"
def stay():
    os.execve(sys.executable, [sys.executable, "-ISc", STAY, sys.argv[1]], {})
def branch(*steps):
    if os.fork() == 0:
        for step in steps:
            step()
        stay()
def again():
    if os.fork():
        os._exit(0)
branch()
branch(os.setsid)
branch(os.setpgrp)
branch(os.setsid, again, os.setsid)
branch(again, again)
if os.fork() == 0:
    os.execl("/bin/sh", "sh", "-c", 'setsid env -i "$0" -ISc "$1" "$2" & wait',
             sys.executable, STAY, sys.argv[1])
stay()
"""
MEMBERS = 7
"""Processes of a tree that say who they are; a shell between them does not."""


def with_groups(make: Callable[[], Place], count: int) -> list[str]:
    """Each attempt has a freezer group."""
    return _trees(make, count, without_groups=False)


def without_groups(make: Callable[[], Place], count: int) -> list[str]:
    """There are no groups: only the keeper, and what is below it."""
    return _trees(make, count, without_groups=True)


def _trees(make: Callable[[], Place], count: int, *, without_groups: bool) -> list[str]:
    """Cancelled by a live supervisor, cancelled where none lives, and timed out: a third each."""
    shares = [count // 3 + (number < count % 3) for number in range(3)]
    ways = [_cancel_live, _cancel_orphaned, _time_out]
    waits = []
    for number, way in zip(shares, ways, strict=True):
        if number:
            place = make()
            waits.append(way(place, number, without_groups))
    return [failure for wait in waits for failure in wait()]


def _cancel_live(place: Place, count: int, without: bool) -> Callable[[], list[str]]:
    process = _started(place, count, without)
    canceller = place.start("cancel", without_groups=without)
    return functools.partial(_left, place, count, "cancelled", canceller, process)


def _cancel_orphaned(place: Place, count: int, without: bool) -> Callable[[], list[str]]:
    process = _started(place, count, without)
    process.kill()
    process.wait()
    canceller = place.start("cancel", without_groups=without)
    return functools.partial(_left, place, count, "cancelled", canceller)


def _time_out(place: Place, count: int, without: bool) -> Callable[[], list[str]]:
    process = _started(place, count, without, prefix="[timeout=5s] ")
    return functools.partial(_left, place, count, "timeout", process)


def _started(
    place: Place, count: int, without: bool, prefix: str = ""
) -> "subprocess.Popen[bytes]":
    files = [place.path / f"pids{number}" for number in range(count)]
    place.prepare([prefix + python(TREE, str(file)) for file in files], mode="naive")
    process = place.start(without_groups=without)
    for file in files:
        await_true(functools.partial(_complete, file), f"{file} has all its members")
    return process


def _complete(file: Path) -> bool:
    return file.exists() and len(file.read_text().splitlines()) == MEMBERS


def _left(
    place: Place, count: int, status: str, *processes: "subprocess.Popen[bytes]"
) -> list[str]:
    """What is wrong once these processes have ended: other words than that, and what lives on."""
    for process in processes:
        place.finish(process)
    failures = [
        f"{job.name}: {job.status} ({job.cause})" for job in place.jobs() if job.status != status
    ]
    for number in range(count):
        members = [line.split() for line in (place.path / f"pids{number}").read_text().splitlines()]
        alive = [pid for pid, start in members if is_alive(int(pid), int(start))]
        failures += [f"job {number} left {len(alive)} processes: {alive}"] if alive else []
    return failures + place.left()
