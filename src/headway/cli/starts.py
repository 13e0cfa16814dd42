"""`headway run` in its forms: a list, a resumed run, a detached one, one command."""

import os
import sys
from dataclasses import dataclass

from headway import front
from headway.agent import recorder_folder
from headway.cli import objects
from headway.cli.foreground import Manner, supervise
from headway.cli.screens import quoted, shown_path
from headway.cli.terminal import Screen, give, say
from headway.core import jobfile
from headway.core.errors import UsageError
from headway.core.units import parse_seconds, show_bytes, show_seconds, show_step
from headway.engines.local.foreground import Ended, run_foreground
from headway.handle import RunHandle

# One byte more than a job file may have: the parser then says that it is too large.
_READ_LIMIT = 64 * 2**20 + 1


@dataclass(frozen=True, slots=True)
class Asked:
    """The words and options of `headway run`; None means not said."""

    jobs: tuple[str, ...] = ()
    command: list[str] | None = None
    mode: str | None = None
    out: str | None = None
    resume: str | None = None
    detach: bool = False
    keep_threads: bool = False
    plan: str | None = None
    filter: tuple[str, ...] = ()
    timeout: str | None = None
    allow_mig: bool = False

    @property
    def new_run_only(self) -> list[str]:
        """Options given that only make sense for a new run."""
        given = (
            ("--mode", self.mode),
            ("--out", self.out),
            ("--keep-threads", self.keep_threads),
            ("--plan", self.plan),
            ("--filter", self.filter),
            ("--allow-mig-reconfigure", self.allow_mig),
        )
        return [name for name, value in given if value]


def run(asked: Asked, manner: Manner) -> int:
    """Do what was asked; gives the exit code.

    Raises:
        UsageError: The words do not go together.
    """
    if asked.command is not None:
        return _one_command(asked, manner)
    if asked.timeout is not None:
        raise UsageError(
            "--timeout goes with one command (headway run --timeout 10m -- CMD); in a job file "
            "write timeout=10m before a command"
        )
    handle = _resumed(asked) if asked.resume is not None else _new(asked)
    return _detached(handle, manner) if asked.detach else supervise(handle, manner)


def seconds_of(text: str | None, *, option: str = "--timeout") -> float | None:
    """Seconds of an option's value.

    Raises:
        UsageError: It is not a duration.
    """
    if text is None:
        return None
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _new(asked: Asked) -> RunHandle:
    if len(asked.jobs) != 1:
        given = " ".join(asked.jobs[:4])
        hint = f"one command is run with: headway run -- {given}" if asked.jobs else ""
        what = f"one job file is wanted, given: {given}" if asked.jobs else "no job file given"
        raise UsageError(f"{what}; {hint or 'write headway run jobs.txt, or headway run -- CMD'}")
    if asked.plan is not None and (asked.mode is not None or asked.keep_threads):
        raise UsageError("--plan says the mode and the threads already; leave the other away")
    return front.prepare(
        _from_stdin() if asked.jobs[0] == "-" else asked.jobs[0],
        mode=asked.mode or front.AUTO,
        out=asked.out,
        keep_threads=asked.keep_threads,
        plan=asked.plan,
        filter=asked.filter,
        allow_mig=asked.allow_mig,
    )


def _from_stdin() -> front.Jobs:
    if sys.stdin.isatty():
        say("reading commands from the terminal, one a line; Ctrl-D ends the list")
    text = sys.stdin.buffer.read(_READ_LIMIT)
    return jobfile.parse(text, source="stdin", folder=os.getcwd())


def _resumed(asked: Asked) -> RunHandle:
    if asked.jobs:
        raise UsageError("--resume goes on with the jobs of its run; leave the job file away")
    if asked.new_run_only:
        options = ", ".join(asked.new_run_only)
        raise UsageError(f"{options}: fixed when the run was made; --resume cannot change it")
    return front.open_run(asked.resume)


def _detached(handle: RunHandle, manner: Manner) -> int:
    """Let the run go on by itself; its folder is the result."""
    pid = front.detach(handle)
    if manner.json:
        data = {"run": str(handle.path), "supervisor": pid, "jobs": len(handle.folder.jobs.jobs)}
        give(objects.show(data))
        return 0
    screen = Screen.of(sys.stderr)
    if not manner.quiet:
        name = quoted(screen.clean(handle.name))
        say(f"runs by itself (process {pid}); see: headway status {name}, headway wait {name}")
    give(screen.clean(shown_path(handle.path)))
    return 0


def _one_command(asked: Asked, manner: Manner) -> int:
    wrong = [*asked.new_run_only, *(["--resume"] if asked.resume else [])]
    wrong += ["--detach"] if asked.detach else []
    if wrong or asked.jobs:
        what = ", ".join([*wrong, *asked.jobs])
        raise UsageError(f"{what}: not with one command; only --timeout, --json and -q go with --")
    ended = run_foreground(
        asked.command or (),
        recorder=recorder_folder(),
        environment=os.environ,
        timeout_s=seconds_of(asked.timeout),
    )
    _tell(ended, asked, manner)
    return ended.exit_code


def _tell(ended: Ended, asked: Asked, manner: Manner) -> None:
    """What was seen, on stderr: stdout is the command's."""
    screen = Screen.of(sys.stderr)
    if ended.problem:
        # The program alone is the user's text: masked as a whole, "passwd: denied" is a secret.
        program = screen.clean((asked.command or [""])[0])
        say(f"headway: {program}: {ended.problem}")
    elif manner.json:
        facts = {
            "exit_code": ended.exit_code,
            "seconds": round(ended.seconds, 3),
            "peak_bytes": ended.peak_bytes,
            "steps": ended.steps,
            "step_s": None if ended.step_ns is None else ended.step_ns / 1e9,
            "unseen": ended.unseen,
            "timed_out": ended.timed_out,
        }
        say(objects.show(facts))
    elif not manner.quiet:
        if ended.timed_out:
            say(f"headway: ended after --timeout {screen.clean(asked.timeout or '')}")
        say(f"headway: {_summary(ended)}")


def _summary(ended: Ended) -> str:
    steps = ended.unseen
    if ended.steps is not None:
        each = f", {show_step(ended.step_ns)} each" if ended.step_ns is not None else ""
        steps = f"{ended.steps:,} steps{each}"
    memory = f"peak memory {show_bytes(ended.peak_bytes)}; " if ended.peak_bytes else ""
    return f"{steps}; {memory}{show_seconds(ended.seconds)}"
