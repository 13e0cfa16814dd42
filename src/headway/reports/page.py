"""A run's report as one page of HTML, which needs nothing but itself."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from headway.core.run import CommonWindow, Result
from headway.reports.dots import dots_of
from headway.reports.figures import figures_of, how_words
from headway.reports.happened import Happened
from headway.reports.harmless import clean, harmless
from headway.reports.jobtable import Cell, columns_of, ratio_cell, row_of
from headway.reports.lanes import lanes_of
from headway.reports.words import noted, sentence, spoken_seconds, telling

MOST_ROWS = 1000
MOST_NOTES = 200
COLOURS = 12
"""As many as people can tell apart; a job's number is always beside its colour."""
_HERE = Path(__file__).parent


def page(result: Result, happened: Happened, *, name: str) -> str:
    """The report of a run as HTML.

    Args:
        result: How it ended, or stands.
        happened: What else is known of it.
        name: What the run is called.
    """
    result = harmless(result)
    style, script = _text("page.css"), _text("page.js")
    chosen = list(range(len(result.jobs)))
    if len(chosen) > MOST_ROWS:
        chosen = telling(result.jobs, most_off=MOST_ROWS // 2, slowest=MOST_ROWS // 2)
    columns = columns_of(result.jobs, chosen)
    shown = [column for column in columns if column.said]
    cells = zip(*(column.cells for column in shown), strict=True)
    notes = noted(result)
    return _template().render(
        name=clean(name),
        sentence=sentence(result),
        outcome=result.outcome,
        ended=datetime.fromtimestamp(result.end, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        how=how_words(result, happened),
        figures=figures_of(result, happened),
        lanes=lanes_of(result, happened.timeline, happened.expected),
        columns=shown,
        silent=[column.title for column in columns if not column.said],
        rows=[
            row_of(result, index, of_job, happened)
            for index, of_job in zip(chosen, cells, strict=True)
        ],
        jobs=len(result.jobs),
        dots=dots_of(result.jobs),
        windows=[_window(window, result) for window in result.windows],
        notes=[_note(names, text) for names, text in notes[:MOST_NOTES]],
        more_notes=max(0, len(notes) - MOST_NOTES),
        colours=COLOURS,
        style=Markup(style),
        style_hash=_hash(style),
        script=Markup(script),
        script_hash=_hash(script),
    )


@cache
def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_text("page.html"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@dataclass(frozen=True, slots=True)
class Member:
    """A job of a common window: its index (None where no job has its name) and its progress."""

    index: int | None
    name: str
    progress: Cell


@dataclass(frozen=True, slots=True)
class Window:
    """A common window: who was beside whom, how long, and what they came to."""

    seconds: Cell
    members: tuple[Member, ...]
    together: Cell


def _window(window: CommonWindow, result: Result) -> Window:
    index_of = {job.name: index for index, job in enumerate(result.jobs)}
    return Window(
        seconds=Cell(spoken_seconds(window.seconds), worth=window.seconds),
        members=tuple(
            Member(index_of.get(name), name, ratio_cell(progress))
            for name, progress in zip(window.jobs, window.progress, strict=False)
        ),
        together=ratio_cell(window.weighted_speed_up),
    )


def _note(names: Sequence[str], text: str) -> str:
    if not names:
        return text
    who = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{who}: {text}"
