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

# The table of a run's end stays readable up to this many jobs; beyond, it shows those that are
# not ok and the slowest.
FULL_TABLE = 30
SLOWEST = 5
CAUSES = 20
NOTES = 6
ABOUT_EQUAL = 1.05

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


def spoken_seconds(seconds: float) -> str:
    """A duration within a sentence.

    >>> spoken_seconds(3.21), spoken_seconds(118.2), spoken_seconds(7384)
    ('3.2 s', '1 min 58 s', '2 h 03 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


def core_list(cores: Sequence[int] | None) -> str:
    """Core ids as people write them.

    >>> core_list((0, 1, 2, 5)), core_list((3,)), core_list(None)
    ('0-2,5', '3', '-')
    """
    if not cores:
        return "-"
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def shown_path(path: Path) -> str:
    """A path as a user would type it here."""
    text = str(path)
    here = os.getcwd() + "/"
    return shlex.quote(text.removeprefix(here))


def quoted(name: str) -> str:
    """A name as a word of a shell."""
    return shlex.quote(name)


def sentence(result: Result) -> str:
    """What happened, in one sentence or two."""
    counts = Counter(job.status for job in result.jobs)
    words = [f"{counts['ok']} of {len(result.jobs)} ok"]
    words += [f"{n} {status}" for status, n in counts.most_common() if status != "ok"]
    begin = "Interrupted: " if result.outcome == "interrupted" else ""
    parts = [begin + ", ".join(words) + "."]
    elapsed_s = result.end - result.start
    own_s = sum(job.seconds or 0.0 for job in result.jobs)
    if own_s > 0 and elapsed_s > 0:
        parts.append(spoken_seconds(elapsed_s))
        if len(result.jobs) > 1:
            parts[-1] += f"; {_against_serial(result, own_s, elapsed_s)}"
        parts[-1] += "."
    return " ".join(parts)


def _times_as_long(slowdown: Slowdown | None) -> str:
    """How many times as long as alone; a tilde where the time alone was never measured."""
    if slowdown is None:
        return "-"
    sure = "" if slowdown.alone.origin == "measured" else "~"
    return f"{sure}{slowdown.times.value:.2f}x"


def _against_serial(result: Result, own_s: float, elapsed_s: float) -> str:
    """How much faster than one after another, or, where nobody knows, how many ran at once."""
    serial, speed_up = result.serial, result.weighted_speed_up
    if serial is None or speed_up is None:
        return (
            f"the jobs' own times add up to {spoken_seconds(own_s)} "
            f"({own_s / elapsed_s:.2f} at once on average)"
        )
    reckoned = "" if serial.origin == "measured" else ", reckoned"
    return (
        f"one after another would have taken {spoken_seconds(serial.value)} "
        f"({spoken_bounds(serial)}{reckoned}): {_times(speed_up.value)}"
    )


def _times(speed_up: float) -> str:
    if speed_up >= ABOUT_EQUAL:
        return f"{speed_up:.1f} times faster"
    return "about as fast" if speed_up > 1 / ABOUT_EQUAL else f"{1 / speed_up:.1f} times slower"


def spoken_bounds(estimate: Estimate) -> str:
    """The bounds of a time within a sentence."""
    return f"{spoken_seconds(estimate.low)} to {spoken_seconds(estimate.high)}"


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
    chosen = list(jobs) if all_of_them or len(jobs) <= FULL_TABLE else _telling(jobs)
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


def _telling(jobs: Sequence[JobResult]) -> list[JobResult]:
    """Not ok ones first to go in, then the slowest; in the order of the list."""
    off = [index for index, job in enumerate(jobs) if job.status not in ("ok", "waiting")]
    fine = [index for index, job in enumerate(jobs) if job.status == "ok"]
    slowest = sorted(fine, key=lambda index: -(jobs[index].seconds or 0.0))[:SLOWEST]
    return [jobs[index] for index in sorted([*off[:FULL_TABLE], *slowest])]


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
    by_text: dict[str, list[str]] = {}
    for job in result.jobs:
        for note in job.notes:
            by_text.setdefault(note, []).append(job.name)
    texts = [screen.clean(note) for note in result.notes]
    for note, names in by_text.items():
        who = ", ".join(screen.clean(name) for name in names[:3])
        who += f" and {len(names) - 3} more" if len(names) > 3 else ""
        texts.append(f"{who}: {screen.clean(note)}")
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
    quiet: bool = False,
    full: bool = False,
) -> list[str]:
    """Everything a run's end has to say.

    Args:
        result: How it ended, or stands.
        screen: Where it goes.
        run: What the run is called.
        path: Its folder.
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
