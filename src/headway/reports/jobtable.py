"""The table of a run's jobs in words: columns, cells, and what opens below a row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.core.estimate import Estimate
from headway.core.run import JobResult, Result, Slowdown
from headway.core.units import NS_PER_S, show_bytes, show_seconds, show_step
from headway.reports.charts import Chart, charts_of
from headway.reports.happened import Happened
from headway.reports.harmless import clean, log_text
from headway.reports.words import (
    NOT_KNOWN,
    bounds_words,
    core_list,
    origin_words,
    spoken_seconds,
    tells,
    times,
    value_words,
    where_it_fell,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a table: a word or two, smaller words below, and what it is sorted by.

    `known` is False where the words only say that nothing is known.
    """

    text: str
    small: str = ""
    worth: float | str = ""
    known: bool = True


@dataclass(frozen=True, slots=True)
class Column:
    """A column, one cell a row; `said` is False where no cell knows anything."""

    title: str
    about: str
    cells: tuple[Cell, ...]

    @property
    def said(self) -> bool:
        """Whether any cell says more than that nothing is known."""
        return any(cell.known for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Row:
    """A job: what the first cell shows, the other cells, and what opens below them."""

    index: int
    number: int
    name: str
    status: str
    cause: str
    cells: tuple[Cell, ...]
    facts: tuple[tuple[str, str], ...]
    logs: tuple[tuple[str, str], ...]
    no_logs: str
    charts: tuple[Chart, ...]


def columns_of(result: Result, happened: Happened, chosen: Sequence[int]) -> list[Column]:
    """The columns beside the jobs' names, with a cell for each of the chosen jobs."""
    left_of = {result.jobs[index].name: left for index, left in happened.left_of.items()}
    makers: list[tuple[str, str, Callable[[JobResult], Cell]]] = [
        (
            "status",
            "how it ended, or stands",
            lambda job: Cell(job.status, _left(left_of.get(job.name)), worth=job.status),
        ),
        ("time", "of its last attempt", lambda job: _took(job, result.end)),
        ("predicted", "when the run was planned", _predicted),
        ("bounds", "where its time fell: inside the bounds of what was predicted, or not", _fell),
        (
            "slowdown as placed",
            "by its time alone with the threads that it was given: what neighbours cost it",
            lambda job: _slower(job.as_placed),
        ),
        (
            "slowdown by default",
            "by its time alone with the threads that it takes by itself",
            lambda job: _slower(job.by_default),
        ),
        ("steps", "calls of optimizer.step()", lambda job: _count(job.steps, "not seen")),
        ("step", "the median", _step),
        ("threads", "that it was given", lambda job: _count(job.threads, "as it likes")),
        ("cores", "of its own", _cores),
        ("memory", "its peak, and what it may hold", _peak),
    ]
    return [
        Column(title, about, tuple(_cell(make, result.jobs[index]) for index in chosen))
        for title, about, make in makers
    ]


def _cell(make: Callable[[JobResult], Cell], job: JobResult) -> Cell:
    """A cell; of a job that still waits nothing is said of what cannot be known yet."""
    cell = make(job)
    return Cell("-", known=False) if job.status == "waiting" and not cell.known else cell


def _left(left: Estimate | None) -> str:
    return f"about {spoken_seconds(left.value)} left" if left is not None and tells(left) else ""


def _took(job: JobResult, now: float) -> Cell:
    if job.seconds is not None:
        return Cell(show_seconds(job.seconds), worth=round(job.seconds, 3))
    if job.status != "running" or job.start is None:
        return Cell("has not ended", known=False)
    seconds = max(0.0, now - job.start)
    return Cell(show_seconds(seconds), "so far", round(seconds, 3))


def _predicted(job: JobResult) -> Cell:
    predicted = job.predicted
    if predicted is None or not tells(predicted):
        return Cell("not predicted", known=False)
    bounds = bounds_words(predicted, show_seconds)
    return Cell(show_seconds(predicted.value), bounds, round(predicted.value, 3))


def _fell(job: JobResult) -> Cell:
    where = where_it_fell(job.seconds, job.predicted) if job.status == "ok" else ""
    return Cell(where, worth=where) if where else Cell("no telling", known=False)


def _slower(slowdown: Slowdown | None) -> Cell:
    if slowdown is None or not tells(slowdown.times):
        return Cell(NOT_KNOWN, known=False)
    ratio = slowdown.times
    small = f"{bounds_words(ratio, times)}, {ratio.origin}"
    return Cell(times(ratio.value), small, round(ratio.value, 4))


def _count(number: int | None, otherwise: str) -> Cell:
    if number is None:
        return Cell(otherwise, known=False)
    return Cell(f"{number:,}", worth=number)


def _step(job: JobResult) -> Cell:
    if job.step_s is None:
        return Cell("not seen", known=False)
    return Cell(show_step(job.step_s * NS_PER_S), worth=job.step_s)


def _cores(job: JobResult) -> Cell:
    if not job.cores:
        return Cell("none of its own", known=False)
    return Cell(core_list(job.cores), worth=min(job.cores))


def _peak(job: JobResult) -> Cell:
    if not job.peak_bytes:
        return Cell("not measured", known=False)
    cap = f"of {show_bytes(job.cap_bytes)}" if job.cap_bytes else ""
    return Cell(show_bytes(job.peak_bytes), cap, job.peak_bytes)


def row_of(result: Result, index: int, cells: tuple[Cell, ...], happened: Happened) -> Row:
    """A job of a result whose texts are harmless, with its cells of `columns_of`."""
    job = result.jobs[index]
    logs = []
    for tail in happened.tails.get(index, ()):
        text = log_text(tail)
        end = f"the end of {tail.stream}" if tail.cut else tail.stream
        logs.append((end, text or "nothing but blanks"))
    return Row(
        index=index,
        number=index + 1,
        name=job.name,
        status=job.status,
        cause=job.cause if job.status != "ok" else "",
        cells=cells,
        facts=tuple((label, value) for label, value in _facts(job, index, happened) if value),
        logs=tuple(logs),
        no_logs="It wrote nothing that could be read." if job.attempts else "It has not started.",
        charts=charts_of(index, happened.curves, job.cap_bytes),
    )


def _facts(job: JobResult, index: int, happened: Happened) -> list[tuple[str, str]]:
    command = happened.jobs[index].command if index < len(happened.jobs) else ""
    first_s = None
    if job.first_step is not None and job.start is not None:
        first_s = max(0.0, job.first_step - job.start)
    predicted = job.predicted
    return [
        ("command", clean(command)),
        ("exit code", "" if job.exit_code is None else str(job.exit_code)),
        ("signal", "" if job.signal is None else str(job.signal)),
        ("attempts", "" if job.attempts < 2 else str(job.attempts)),
        ("first step", "" if first_s is None else f"ended {spoken_seconds(first_s)} in"),
        ("predicted", "" if predicted is None else _whole(predicted, spoken_seconds)),
        ("as placed", _against(job.as_placed)),
        ("by default", _against(job.by_default)),
        *(("note", note) for note in job.notes),
    ]


def _whole(estimate: Estimate, show: Callable[[float], str]) -> str:
    """An estimate with its bounds and its origin."""
    if not tells(estimate):
        return f"{NOT_KNOWN}: {clean(estimate.source)}"
    told = f"{value_words(estimate, show)} ({bounds_words(estimate, show)})"
    return f"{told}, {clean(origin_words(estimate))}"


def _against(slowdown: Slowdown | None) -> str:
    if slowdown is None:
        return ""
    ratio = slowdown.times
    told = f"{value_words(ratio, times)} times" if tells(ratio) else NOT_KNOWN
    return f"{told} as long as alone: {_whole(slowdown.alone, spoken_seconds)}"


def ratio_cell(estimate: Estimate) -> Cell:
    """How many times as much, with bounds and origin."""
    if not tells(estimate):
        return Cell(NOT_KNOWN, known=False)
    small = f"{bounds_words(estimate, times)}, {estimate.origin}"
    return Cell(times(estimate.value), small, round(estimate.value, 4))
