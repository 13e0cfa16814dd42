"""Supervisors in processes of their own, so that they can be killed, confined and starved.

As a script, `python bench/supervised.py VERB RUN` does what the front door does: supervise, cancel
or retry a prepared run. As a module it starts such processes and looks at what they leave behind.
"""

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headway import front
from headway.core.errors import HeadwayError
from headway.core.run import JobResult, Result
from headway.engines.local.attempts import AttemptFolder, keeper_alive
from headway.system.hierarchies import discover_hierarchies
from headway.system.procfs import alive, boot_id, open_pidfd, start_ticks

DEADLINE_S = 120.0
SOURCES = Path(__file__).resolve().parents[1] / "src"


def main() -> None:
    verb, path = sys.argv[1:3]
    handle = front.open_run(path)
    try:
        if verb == "supervise":
            sys.exit(handle.supervise().exit_code)
        if verb == "cancel":
            handle.cancel()
        else:
            sys.exit(handle.retry(lost=verb == "retry", failed=verb == "retry-failed").exit_code)
    except HeadwayError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


class Place:
    """A private folder for one experiment: job file, run folder, and what the jobs leave."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.effects = path / "effects"
        self.run = path / f"soak-{secrets.token_hex(4)}"

    def prepare(self, lines: Sequence[str], *, mode: str = "partitioned") -> None:
        """Write a job file and make the run folder; nothing starts."""
        (self.path / "jobs.txt").write_text("".join(f"{line}\n" for line in lines))
        front.prepare(self.path / "jobs.txt", mode=mode, out=self.run).close()

    def start(
        self,
        verb: str = "supervise",
        *,
        fault: str = "",
        group: Path | None = None,
        without_groups: bool = False,
        address_space_kib: int | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a process that does something with the run.

        Args:
            verb: supervise, cancel, retry (what was lost) or retry-failed.
            fault: HEADWAY_FAULT of that process.
            group: A memory cgroup (v1) that it is put into first.
            without_groups: The cgroup hierarchies are read-only for it, as in most containers.
            address_space_kib: Its `ulimit -v`.
        """
        steps = [f"echo $$ > {shlex.quote(str(group / 'cgroup.procs'))}"] if group else []
        if without_groups:
            steps += [f"mount -o remount,bind,ro {shlex.quote(place)}" for place in _mounts()]
        if address_space_kib is not None:
            steps.append(f"ulimit -v {address_space_kib}")
        argv = ["/bin/sh", "-ec", "\n".join([*steps, 'exec "$@"']), "sh"]
        argv = ["unshare", "--mount", *argv] if without_groups else argv
        environment = {**os.environ, "PYTHONPATH": str(SOURCES), "HEADWAY_FAULT": fault}
        with open(self.path / "words", "ab") as words:
            return subprocess.Popen(
                [*argv, sys.executable, __file__, verb, str(self.run)],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env=environment,
            )

    def finish(self, process: "subprocess.Popen[bytes] | None" = None) -> int:
        """Wait for a supervisor (or start one that nothing happens to); gives its exit code."""
        return (process or self.start()).wait(DEADLINE_S)

    def result(self) -> Result:
        """How the run stands now."""
        handle = front.open_run(self.run)
        try:
            return handle.status()
        finally:
            handle.close()

    def jobs(self) -> tuple[JobResult, ...]:
        """How its jobs stand now."""
        return self.result().jobs

    def counts(self) -> Counter[str]:
        """How often each line stands in the file that the jobs append to."""
        return Counter(self.effects.read_text().split()) if self.effects.exists() else Counter()

    def attempt(self, job: int, attempt: int = 1) -> AttemptFolder:
        """The folder of an attempt, both counted from 1."""
        return AttemptFolder.of(self.run, job=job, attempt=attempt)

    def attempts(self) -> list[AttemptFolder]:
        """The folders of all attempts there are."""
        return [AttemptFolder(path) for path in sorted(self.run.glob("jobs/*/[0-9]*"))]

    def left(self) -> list[str]:
        """Keepers that still live and control groups that are still there, in words."""
        claims = [(attempt.path, attempt.read_claim()) for attempt in self.attempts()]
        found = [f"keeper of {path}" for path, claim in claims if claim and keeper_alive(claim)]
        for place in _mounts():
            found += [str(path) for path in Path(place).rglob(f"headway-{self.run.name}*")]
        return found


@contextlib.contextmanager
def places() -> Iterator[Callable[[], Place]]:
    """Makes private folders, all removed at the end."""
    with tempfile.TemporaryDirectory(prefix="headway-soak-") as folder:
        yield lambda: Place(Path(tempfile.mkdtemp(dir=folder)))


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A limited memory cgroup (v1) of our own, below the one we are in."""
    hierarchies = [one for one in discover_hierarchies() if one.version == 1]
    own = next(one.own for one in hierarchies if "memory" in one.controllers)
    assert own is not None
    group = own / f"soak-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield group
    finally:
        await_true(lambda: _removed(group), "the memory group is empty")


def await_true(condition: Callable[[], object], what: str, *, deadline_s: float = 60.0) -> None:
    """Look again and again until a condition holds.

    Raises:
        TimeoutError: It never did.
    """
    deadline = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"never came true within {deadline_s:.0f} s: {what}")
        time.sleep(0.01)


def kill(pid: int, start: int) -> None:
    """SIGKILL to this very process; nothing where it is gone."""
    descriptor = open_pidfd(pid, start)
    if descriptor is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.close(descriptor)


def is_alive(pid: int, start: int) -> bool:
    """Whether this very process still runs."""
    return alive(pid, start, boot_id())


def can_use_groups() -> str:
    """Why groups and mounts cannot be tested here; "" where they can."""
    own = [h.own for h in discover_hierarchies() if h.version == 1 and "memory" in h.controllers]
    if not own or own[0] is None or not os.access(own[0], os.W_OK):
        return "no writable v1 memory cgroup"
    if not shutil.which("unshare"):
        return "no unshare command"
    probe = ["unshare", "--mount", "true"]
    return "" if subprocess.run(probe, capture_output=True).returncode == 0 else "no unshare rights"


def ticks_of(pid: int) -> int:
    """Start time of a process that is surely there."""
    found = start_ticks(pid)
    assert found is not None, pid
    return found


def _mounts() -> list[str]:
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [words[1] for words in lines if words[2] in ("cgroup", "cgroup2")]


def _removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


if __name__ == "__main__":
    main()
