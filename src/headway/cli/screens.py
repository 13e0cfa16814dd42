"""A result as text: a sentence, a table, what went wrong, notes, and what to do next."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from headway.cli.layout import Column, paragraph, table
from headway.cli.terminal import Screen
from headway.core.estimate import Estimate
from headway.core.run import JobResult, Result, Slowdown
from headway.core.units import NS_PER_S, show_bytes, show_seconds, show_step
from headway.core.words import Status
from headway.reports.words import (
    core_list,
    noted,
    sentence,
    spoken_bounds,
    spoken_seconds,
    telling,
)

# The table of a run's end stays readable up to this many jobs; beyond, it shows those that are
# not ok and the slowest.
FULL_TABLE = 30
SLOWEST = 5
CAUSES = 20
NOTES = 6

_COLUMNS = (
    Column("job", least=14, most=40),
    Column("status"),
    Column("time", keep=90, right=True),
    Column("steps", keep=60, right=True),
    Column("step", keep=50, right=True),
    Column("slowdown", keep=40, right=True),
    Column("threads", keep=30, right=True),
    Column("cores", keep=20),
    Column("memory", keep=70, right=True),
)


def shown_path(path: Path) -> str:
    """A path as a user would type it here."""
    text = str(path)
    here = os.getcwd() + "/"
    return shlex.quote(text.removeprefix(here))


def quoted(name: str) -> str:
    """A name as a word of a shell."""
    return shlex.quote(name)


def _times_as_long(slowdown: Slowdown | None) -> str:
    """How many times as long as alone; a tilde where the time alone was never measured."""
    if slowdown is None:
        return "-"
    sure = "" if slowdown.alone.origin == "measured" else "~"
    return f"{sure}{slowdown.times.value:.2f}x"


def against_predicted(result: Result, screen: Screen) -> list[str]:
    """How the run went beside what was predicted, what jobs lost to each other, what limited it."""
    words = []
    if result.predicted is not None:
        words.append(
            f"predicted {spoken_seconds(result.predicted.value)} "
            f"({spoken_bounds(result.predicted)})"
        )
    told = [(job.predicted, job.seconds) for job in result.jobs if job.status == "ok"]
    pairs = [(predicted, took) for predicted, took in told if predicted and took is not None]
    if pairs:
        inside = sum(predicted.low <= took <= predicted.high for predicted, took in pairs)
        words.append(f"{inside} of {len(pairs)} jobs within their bounds")
    if result.mean_slowdown is not None and len(result.jobs) > 1:
        about = "" if result.mean_slowdown.origin == "measured" else "about "
        words.append(
            f"a job took {about}{result.mean_slowdown.value:.2f} times as long as alone on average"
        )
    lines = wrapped("; ".join(words), screen, lead=" ") if words else []
    if result.limited_by and len(result.jobs) > 1:
        lines += wrapped(f"limited by {screen.clean(result.limited_by)}", screen, lead=" ")
    return lines


def job_table(jobs: Sequence[JobResult], screen: Screen, *, all_of_them: bool = False) -> list[str]:
    """The table of jobs; of many, those that are not ok and the slowest, unless all are wanted."""
    chosen = list(jobs)
    if len(jobs) > FULL_TABLE and not all_of_them:
        chosen = [jobs[index] for index in telling(jobs, most_off=FULL_TABLE, slowest=SLOWEST)]
    lines = table(
        _COLUMNS,
        [_row(job, screen) for job in chosen],
        width=screen.width,
        ending=screen.ending,
        paint=lambda index, cell, row: screen.paint(cell, row[1]) if index == 1 else cell,
    )
    left = Counter(job.status for job in jobs) - Counter(job.status for job in chosen)
    if left:
        rest = ", ".join(f"{count} {status}" for status, count in left.most_common())
        lines += wrapped(f"not shown: {rest}. headway explain shows all.", screen, lead=" ")
    return lines


def _row(job: JobResult, screen: Screen) -> list[str]:
    step_ns = None if job.step_s is None else job.step_s * NS_PER_S
    return [
        screen.clean(job.name),
        job.status,
        show_seconds(job.seconds),
        "-" if job.steps is None else f"{job.steps:,}",
        show_step(step_ns),
        _times_as_long(job.by_default),
        "-" if job.threads is None else str(job.threads),
        core_list(job.cores),
        show_bytes(job.peak_bytes),
    ]


def causes(jobs: Iterable[JobResult], screen: Screen, *, run: str, limit: int) -> list[str]:
    """Why jobs are not ok, one paragraph each, with where to read on."""
    lines: list[str] = []
    told = 0
    off = [job for job in jobs if job.status not in ("ok", "running")]
    # One that waits needs a word only where there is one.
    off = [job for job in off if job.status != "waiting" or job.cause]
    for job in off[:limit]:
        told += 1
        log = ""
        if job.attempts and job.status not in ("waiting", "cancelled", "lost"):
            log = f"  log: headway logs {run} {quoted(screen.clean(job.name))}"
        text = f"{screen.clean(job.name)}  {screen.clean(job.cause) or 'no cause known'}{log}"
        lines += wrapped(text, screen, lead=f"{job.status:<10} ", paint=job.status)
    if len(off) > told:
        lines.append(f"and {len(off) - told} more: headway explain {run}")
    return lines


def notes(result: Result, screen: Screen, *, limit: int | None = NOTES) -> list[str]:
    """What is worth knowing, the same words of several jobs once."""
    texts = []
    for names, note in noted(result):
        who = ", ".join(screen.clean(name) for name in names[:3])
        who += f" and {len(names) - 3} more" if len(names) > 3 else ""
        texts.append(f"{who}: {screen.clean(note)}" if names else screen.clean(note))
    lines = []
    for text in texts[:limit]:
        lines += wrapped(text, screen, lead="note: ")
    if limit is not None and len(texts) > limit:
        lines.append(f"and {len(texts) - limit} more notes: headway explain")
    return lines


def report(
    result: Result,
    screen: Screen,
    *,
    run: str,
    path: Path,
    page: Path | None = None,
    quiet: bool = False,
    full: bool = False,
) -> list[str]:
    """Everything a run's end has to say.

    Args:
        result: How it ended, or stands.
        screen: Where it goes.
        run: What the run is called.
        path: Its folder.
        page: Its report as a page, where there is one.
        quiet: Only the sentence and the causes.
        full: All jobs and all notes.
    """
    name = quoted(screen.clean(run))
    lines = wrapped(sentence(result), screen)
    if not quiet:
        lines += against_predicted(result, screen)
        lines += job_table(result.jobs, screen, all_of_them=full)
    limit = len(result.jobs) if full else CAUSES
    lines += causes(result.jobs, screen, run=name, limit=limit)
    if not quiet:
        lines += notes(result, screen, limit=None if full else NOTES)
    if not quiet or result.outcome == "interrupted":
        lines += next_words(result, name=name, path=screen.clean(shown_path(path)), full=full)
    if page is not None and not quiet and result.outcome != "interrupted":
        lines.append(f"report: {screen.clean(shown_path(page))}")
    return lines


def next_words(result: Result, *, name: str, path: str, full: bool) -> list[str]:
    """What to type next."""
    if result.outcome == "interrupted":
        return [f"nothing is lost; go on with: headway run --resume {path}"]
    lines = []
    statuses = {job.status for job in result.jobs}
    if "lost" in statuses:
        lines.append(f"run lost jobs again: headway retry {name} --lost")
    if statuses & {"failed", "oom", "timeout", "stalled"}:
        lines.append(f"run failed jobs again: headway retry {name} --failed")
    if not full:
        lines.append(f"details: headway explain {name}")
    return lines


def standing(result: Result, supervisor: int | None) -> str:
    """How a run stands while somebody supervises it, or that nobody does."""
    counts = Counter(job.status for job in result.jobs)
    open_jobs = counts["running"] + counts["waiting"]
    if supervisor is not None:
        done = len(result.jobs) - open_jobs
        return (
            f"{counts['running']} running, {counts['waiting']} waiting, {done} done; "
            f"{spoken_seconds(max(0.0, result.end - result.start))} so far; supervised by process "
            f"{supervisor}"
        )
    if open_jobs:
        return f"interrupted: nobody supervises it; {_left_alone(counts)}"
    return f"ended: {result.outcome}"


def _left_alone(counts: Counter[Status]) -> str:
    running, waiting = counts["running"], counts["waiting"]
    words = []
    if running == 1:
        words.append("1 still runs under its keeper")
    elif running:
        words.append(f"{running} still run under their keepers")
    if waiting:
        words.append("1 waits" if waiting == 1 else f"{waiting} wait")
    return ", ".join(words)


def job_details(
    job: JobResult, screen: Screen, *, command: str, folder: str, run: str
) -> list[str]:
    """All that is known of one job."""
    facts: list[tuple[str, str]] = [
        ("command", screen.clean(command)),
        ("folder", screen.clean(folder)),
        ("cause", screen.clean(job.cause)),
        ("exit", "" if job.exit_code is None else str(job.exit_code)),
        ("signal", "" if job.signal is None else str(job.signal)),
        ("attempts", str(job.attempts)),
        ("time", show_seconds(job.seconds)),
        ("predicted", "" if job.predicted is None else _spoken(job.predicted)),
        ("slowdown", _slowdown(job.by_default, "with the threads it takes by itself")),
        ("as placed", _slowdown(job.as_placed, "with the threads it was given")),
        ("steps", _steps(job)),
        ("threads", "" if job.threads is None else str(job.threads)),
        ("cores", core_list(job.cores)),
        ("peak memory", show_bytes(job.peak_bytes)),
        *(("note", screen.clean(note)) for note in job.notes),
    ]
    if job.attempts:
        facts.append(("log", f"headway logs {run} {quoted(screen.clean(job.name))}"))
    lines = [f"{screen.clean(job.name)}: {screen.paint(job.status, job.status)}"]
    for name, value in facts:
        if value not in ("", "-"):
            lines += wrapped(value, screen, lead=f"  {name:<12} ", hang=15)
    return lines


def _spoken(estimate: Estimate) -> str:
    return f"{spoken_seconds(estimate.value)} ({spoken_bounds(estimate)})"


def _slowdown(slowdown: Slowdown | None, how: str) -> str:
    if slowdown is None:
        return ""
    times, alone = slowdown.times, slowdown.alone
    return (
        f"{times.value:.2f} times ({times.low:.2f} to {times.high:.2f}) as long as alone {how}: "
        f"{spoken_seconds(alone.value)}, {alone.source}"
    )


def _steps(job: JobResult) -> str:
    if job.steps is None:
        return ""
    step_ns = None if job.step_s is None else job.step_s * NS_PER_S
    before = ""
    if job.first_step is not None and job.start is not None:
        before = f"; the first ended {spoken_seconds(max(0.0, job.first_step - job.start))} in"
    return f"{job.steps:,}, median {show_step(step_ns)}{before}"


def wrapped(
    text: str, screen: Screen, *, lead: str = "", hang: int = 2, paint: str | None = None
) -> list[str]:
    """A text wrapped to a terminal's width; one line elsewhere, so that it can be searched.

    Args:
        text: What to say.
        screen: Where it goes.
        lead: Before the first line.
        hang: By how much the other lines are indented.
        paint: Status word that `lead` begins with, for its colour.
    """
    lines = (
        paragraph(text, width=screen.width, lead=lead, hang=hang)
        if screen.terminal
        else [lead + text]
    )
    if paint is not None and lines[0].startswith(paint):
        lines[0] = screen.paint(paint, paint) + lines[0][len(paint) :]
    return lines
