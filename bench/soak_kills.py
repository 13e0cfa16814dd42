"""Soak: kill -9 of the supervisor, of its zygote and of keepers; a full disk; a reboot.

Every job appends its name to one file. However often the supervisor died in between, each name
stands there exactly once in the end.
"""

import contextlib
import json
import random
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from headway.system.procfs import scan
from supervised import Place, await_true, is_alive, kill, ticks_of

JOBS = 14
FEW_JOBS = 6
# Start-up takes about 0.6 s of a life; the later moments lie between starts and ends of jobs.
LIFE_S = 1.8


def random_kill(make: Callable[[], Place], count: int) -> list[str]:
    """The supervisor dies at any moment of its life, from exec to end."""
    dice = random.Random(count)

    def one_life(place: Place) -> bool:
        process = place.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(dice.uniform(0.05, LIFE_S))
        process.kill()
        return process.wait() == -signal.SIGKILL

    return _lives(make, count, one_life)


def after_intent(make: Callable[[], Place], count: int) -> list[str]:
    """It dies once intents are on the disk, before anything was asked for."""
    return _at_point(make, count, "after-intent")


def after_spawn(make: Callable[[], Place], count: int) -> list[str]:
    """It dies once a start was asked for, before any answer."""
    return _at_point(make, count, "after-spawn")


def after_claim(make: Callable[[], Place], count: int) -> list[str]:
    """It dies once a keeper has claimed, before that is journalled."""
    return _at_point(make, count, "after-claim")


def after_result(make: Callable[[], Place], count: int) -> list[str]:
    """It dies once an exit record is there, before that is journalled."""
    return _at_point(make, count, "after-result")


def zygote_kill(make: Callable[[], Place], count: int) -> list[str]:
    """The zygote dies, once a run; the supervisor goes on with a new one."""
    failures = []
    for _ in range(count):
        place = make()
        place.prepare(_jobs(place))
        process = place.start()
        await_true(lambda place=place: place.counts(), "a job ran")
        for child in _children(process.pid):
            kill(child, ticks_of(child))
        code = place.finish(process)
        failures += [f"exit {code}"] if code else []
        failures += _wrong(place)
    return failures


def keeper_after_claim(make: Callable[[], Place], count: int) -> list[str]:
    """A keeper dies between claim and start: lost, never rerun by itself, rerun when asked."""
    return _keepers(make, count, "keeper-after-claim", ran_before=0)


def keeper_after_result(make: Callable[[], Place], count: int) -> list[str]:
    """A keeper dies after its command's end, before the record: lost, likewise."""
    return _keepers(make, count, "keeper-after-result", ran_before=1)


def full_disk(make: Callable[[], Place], count: int) -> list[str]:
    """The run's own disk fills up: named, interrupted, resumable, nothing twice."""
    failures = []
    for number in range(count):
        place = make()
        with _tiny_disk(place) as disk:
            place.prepare(_jobs(place, FEW_JOBS))
            process = place.start()
            await_true(lambda place=place: place.counts(), "a job ran")
            # With a page or two left one file of a start still fits, and the next one does not.
            _fill(disk / "filler", leave_pages=number % 3)
            code = place.finish(process)
            words = (place.path / "words").read_text()
            if code != 130 or "no space left on the disk" not in words:
                failures.append(f"exit {code} on a full disk, said: {words[-300:]}")
            (disk / "filler").unlink()
            code = place.finish()
            failures += [f"exit {code} after space was freed"] if code else []
            failures += _wrong(place)
    return failures


def reboot(make: Callable[[], Place], count: int) -> list[str]:
    """All processes die at once and the boot id is another: what ran is lost, and only that."""
    failures = []
    for _ in range(count):
        place = make()
        place.prepare(_jobs(place))
        process = place.start()
        await_true(lambda place=place: place.counts(), "a job ran")
        process.kill()
        process.wait()
        running = [job.name for job in place.jobs() if job.status == "running"]
        _kill_keepers(place)
        _another_boot(place)
        place.finish()
        for job in place.jobs():
            lost = job.status == "lost" and "machine was restarted" in job.cause
            if not (lost and job.name in running) and job.status != "ok":
                failures.append(f"{job.name}: {job.status} ({job.cause})")
            if place.counts()[job.name] > 1:
                failures.append(f"{job.name} ran twice")
        failures += place.left()
    return failures


def _jobs(place: Place, count: int = JOBS) -> list[str]:
    """Jobs of different length, with their effect at the start, in the middle or at the end."""
    lines = []
    for number in range(count):
        effect = f"echo job{number} >> {place.effects}"
        pause = f"sleep 0.{number % 4}"
        order = [[effect, pause], [pause, effect], [pause, effect, pause]][number % 3]
        lines.append(f"[name=job{number}] {'; '.join(order)}")
    return lines


def _wrong(place: Place) -> list[str]:
    """What is wrong with a run of `_jobs` that has ended well."""
    jobs, counts = place.jobs(), place.counts()
    failures = [f"{job.name}: {job.status} ({job.cause})" for job in jobs if job.status != "ok"]
    failures += [
        f"{job.name} ran {counts[job.name]} times" for job in jobs if counts[job.name] != 1
    ]
    return failures + place.left()


def _lives(make: Callable[[], Place], count: int, one_life: Callable[[Place], bool]) -> list[str]:
    """Runs whose supervisors die up to six times each, until `count` have died."""
    failures: list[str] = []
    died = 0
    while died < count:
        place = make()
        place.prepare(_jobs(place))
        for _ in range(min(6, count - died)):
            if not one_life(place):
                break
            died += 1
        code = place.finish()
        failures += [f"exit {code} after resuming"] if code else []
        failures += _wrong(place)
    return failures


def _at_point(make: Callable[[], Place], count: int, point: str) -> list[str]:
    dice = random.Random(count)

    def one_life(place: Place) -> bool:
        process = place.start(fault=f"{point}:{dice.randint(1, 3)}")
        return place.finish(process) == -signal.SIGKILL

    return _lives(make, count, one_life)


def _keepers(make: Callable[[], Place], count: int, point: str, *, ran_before: int) -> list[str]:
    failures = []
    for number in range(count):
        place = make()
        place.prepare(_jobs(place, FEW_JOBS))
        place.finish(place.start(fault=f"{point}:{1 + number % FEW_JOBS}"))
        place.finish()  # an ended run stays as it is
        lost = [job.name for job in place.jobs() if job.status == "lost"]
        if len(lost) != 1 or place.counts()[lost[0]] != ran_before:
            failures.append(f"lost: {lost}, ran: {place.counts()}")
            continue
        place.finish(place.start("retry"))
        if any(job.status != "ok" for job in place.jobs()):
            failures.append(f"after retry: {[job.status for job in place.jobs()]}")
        if place.counts()[lost[0]] != ran_before + 1:
            failures.append(f"{lost[0]} ran {place.counts()[lost[0]]} times in all")
        failures += place.left()
    return failures


def _children(pid: int) -> list[int]:
    return [one.pid for one in scan().values() if one.ppid == pid and not one.ended]


def _kill_keepers(place: Place) -> None:
    """End keepers and all below them, as a loss of power does: the keepers first."""
    doomed = []
    for attempt in place.attempts():
        claim, started = attempt.read_claim(), attempt.read_started()
        if claim is not None and claim.keeper_pid and attempt.read_exit() is None:
            doomed.append((claim.keeper_pid, claim.keeper_start_ticks or 0))
        if started is not None:
            doomed.append((started.command_pid, started.command_start_ticks))
    for pid, start in doomed:
        kill(pid, start)
    await_true(lambda: not any(is_alive(*one) for one in doomed), "all is dead")


def _another_boot(place: Place) -> None:
    """Let journal and claims speak of another boot."""
    other = "00000000-0000-4000-8000-000000000000"
    journal = place.run / "journal.jsonl"
    journal.write_text(re.sub(r'"boot":"[^"]+"', f'"boot":"{other}"', journal.read_text()))
    for attempt in place.attempts():
        if attempt.claim.exists():
            lines = attempt.claim.read_text().splitlines()
            lines[0] = json.dumps(json.loads(lines[0]) | {"boot": other})
            attempt.claim.write_text("\n".join(lines) + "\n")


@contextlib.contextmanager
def _tiny_disk(place: Place) -> Iterator[Path]:
    """A file system of 1 MiB below the place, with the run folder on it."""
    disk = place.path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    place.run = disk / place.run.name
    try:
        yield disk
    finally:
        await_true(lambda: subprocess.run(["umount", disk]).returncode == 0, "it is unmounted")


def _fill(path: Path, *, leave_pages: int) -> None:
    with open(path, "wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        file.truncate(max(0, file.tell() // 4096 - leave_pages) * 4096)
