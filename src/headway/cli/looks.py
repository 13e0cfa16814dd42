"""Verbs that look at the machine or a run, or ask something of one; each gives an exit code."""

import sys
import time
from collections.abc import Sequence

from headway import __version__, front
from headway.cli import objects
from headway.cli.foreground import Manner, show_result, supervise
from headway.cli.machine import machine_lines, two_lines
from headway.cli.screens import (
    causes,
    job_details,
    job_table,
    quoted,
    report,
    shown_path,
    spoken_seconds,
    standing,
)
from headway.cli.terminal import Screen, give, say
from headway.core.errors import UnknownName, UsageError
from headway.core.index import recent_runs
from headway.core.run import Result, outcome_of
from headway.handle import RunHandle

_LAST_RUNS = 5


def find(words: Sequence[str]) -> tuple[RunHandle, list[str]]:
    """The run and the jobs that the words of a verb mean.

    A first word that names a run is the run; else all are jobs of the newest run here.

    Raises:
        UnknownName: There is no such run or job.
    """
    named = bool(words) and front.is_run(words[0])
    try:
        handle = front.open_run(words[0] if named else None)
    except UnknownName as error:
        raise UnknownName(
            f"no run is called {words[0]}; {error}" if words else str(error)
        ) from None
    jobs = list(dict.fromkeys(words[1:] if named else words))
    try:
        handle.indices(jobs)
    except UnknownName as error:
        either = "" if named else f"; no run is called {words[0]} either"
        raise UnknownName(f"{error}{either}") from None
    return handle, jobs


def bare(manner: Manner) -> int:
    """The machine in two lines, the last runs here, three next commands."""
    machine = front.detect()
    runs = []
    for path in recent_runs(here=True, limit=_LAST_RUNS):
        handle = front.open_run(path)
        age_s = max(0.0, time.time() - handle.folder.marker.created_ns / 1e9)
        runs.append((handle.name, _outcome(handle), age_s))
        handle.close()
    if manner.json:
        told = [{"run": name, "outcome": word, "age_s": age} for name, word, age in runs]
        data = {"version": __version__, "machine": machine.model_dump(mode="json"), "runs": told}
        give(objects.show(data))
        return 0
    screen = Screen.of(sys.stdout)
    lines = two_lines(machine, screen)
    if runs:
        lines.append("last runs here:")
        lines += [
            f"  {screen.clean(name)}  {word}, {spoken_seconds(age)} ago" for name, word, age in runs
        ]
    if not manner.quiet:
        lines += ["next:", "  headway run jobs.txt            run a list of commands"]
        lines += ["  headway run -- python train.py  run one command and see its steps"]
        lines += [f"  {'headway status' if runs else 'headway detect':<32}" + _last_words(runs)]
    give("\n".join(lines))
    return 0


def _last_words(runs: Sequence[object]) -> str:
    return "how the last run stands" if runs else "what there is to share, and how"


def _outcome(handle: RunHandle) -> str:
    if handle.supervisor() is not None:
        return "running"
    result = handle.folder.result()
    return "interrupted" if result is None else result.outcome


def detect(manner: Manner) -> int:
    """What there is, who uses it, and how it can be shared."""
    machine = front.detect()
    if manner.json:
        give(objects.show(machine.model_dump(mode="json")))
        return 0
    screen = Screen.of(sys.stdout)
    give("\n".join((two_lines if manner.quiet else machine_lines)(machine, screen)))
    return 0


def status(words: Sequence[str], manner: Manner) -> int:
    """How a run stands."""
    handle, jobs = find(words)
    result, supervisor = handle.status(), handle.supervisor()
    if manner.json:
        data = objects.result_object(result, path=handle.path, jobs=jobs, supervisor=supervisor)
        give(objects.show(data))
        return 0
    screen = Screen.of(sys.stdout)
    name = screen.clean(handle.name)
    chosen = [job for job in result.jobs if not jobs or job.name in jobs]
    lines = [f"{name}: {standing(result, supervisor)}"]
    if not manner.quiet:
        lines += job_table(chosen, screen, all_of_them=bool(jobs))
        lines += causes(chosen, screen, run=quoted(name), limit=len(jobs) or 5)
        if supervisor is None and result.outcome == "interrupted":
            path = screen.clean(shown_path(handle.path))
            lines.append(f"go on with: headway run --resume {path}")
    give("\n".join(lines))
    return 0


def wait(words: Sequence[str], manner: Manner, timeout_s: float | None) -> int:
    """Until it has ended; exits as the run does, or as the named jobs alone would."""
    handle, jobs = find(words)
    result = _only(handle.wait(jobs, timeout_s=timeout_s), jobs)
    show_result(handle, result, manner)
    return result.exit_code


def _only(result: Result, jobs: Sequence[str]) -> Result:
    """The result as if there were only these jobs, where some are named."""
    if not jobs:
        return result
    chosen = tuple(job for job in result.jobs if job.name in jobs)
    outcome = outcome_of([job.status for job in chosen])
    return result.model_copy(update={"jobs": chosen, "outcome": outcome})


def cancel(words: Sequence[str], manner: Manner, *, sure: bool) -> int:
    """End jobs for good; of all jobs only where the user is sure."""
    handle, jobs = find(words)
    screen = Screen.of(sys.stdout)
    open_jobs = [job for job in handle.status().jobs if job.status in ("waiting", "running")]
    if not jobs and open_jobs and not sure:
        _ask(f"cancel {len(open_jobs)} jobs of {screen.clean(handle.name)} for good?")
    chosen = handle.cancel(jobs)
    if manner.json:
        give(objects.show(objects.jobs_object(chosen, path=handle.path)))
        return 0
    before = {job.name for job in open_jobs}
    for job in chosen:
        name = screen.clean(job.name)
        if job.name in before:
            give(f"{screen.paint(job.status, job.status)}  {name}")
        elif jobs:
            give(f"{screen.paint(job.status, job.status)}  {name}  had ended before")
    if not jobs and not before:
        give(f"nothing to cancel: every job of {screen.clean(handle.name)} has ended")
    return 0


def _ask(question: str) -> None:
    """Go on only if the answer is yes.

    Raises:
        UsageError: It is not, or nobody can be asked.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question} Nobody can be asked here: name the jobs, or add --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was cancelled")


def retry(words: Sequence[str], manner: Manner, *, failed: bool, lost: bool) -> int:
    """Run ended jobs again, in the foreground."""
    handle, jobs = find(words)
    again = handle.to_retry(jobs, failed=failed, lost=lost)
    screen = Screen.of(sys.stderr)
    names = [screen.clean(handle.folder.jobs.jobs[index].name) for index in again]
    rest = f" and {len(names) - 8} more" if len(names) > 8 else ""
    say(f"runs again: {', '.join(names[:8])}{rest}")
    return supervise(handle, manner, again=again)


def explain(words: Sequence[str], manner: Manner) -> int:
    """The report again, whole; of named jobs all that is known."""
    handle, jobs = find(words)
    result = handle.status()
    if manner.json:
        supervisor = handle.supervisor()
        data = objects.result_object(result, path=handle.path, jobs=jobs, supervisor=supervisor)
        give(objects.show(data))
        return 0
    screen = Screen.of(sys.stdout)
    if not jobs:
        if handle.page is None and handle.supervisor() is None:
            trouble = handle.write_page(result)
            if trouble:
                say(f"headway: {screen.clean(trouble)}")
        lines = report(
            result,
            screen,
            run=handle.name,
            path=handle.path,
            page=handle.page,
            full=not manner.quiet,
        )
        give("\n".join(lines))
        return 0
    for index in handle.indices(jobs):
        job = handle.folder.jobs.jobs[index]
        lines = job_details(
            result.jobs[index],
            screen,
            command=job.command,
            folder=job.folder,
            run=quoted(screen.clean(handle.name)),
        )
        give("\n".join(lines))
    return 0
