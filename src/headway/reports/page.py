"""A run's report as one page of HTML, which needs nothing but itself."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from headway.core.run import CommonWindow, Result
from headway.reports.dots import dots_of
from headway.reports.figures import figures_of, how_words
from headway.reports.happened import Happened
from headway.reports.harmless import clean, harmless
from headway.reports.jobtable import Cell, columns_of, ratio_cell, row_of
from headway.reports.lanes import lanes_of
from headway.reports.words import going_on, noted, sentence, spoken_seconds, telling

MOST_ROWS = 1000
MOST_NOTES = 200
COLOURS = 12
"""As many as people can tell apart; a job's number is always beside its colour."""
_TEMPLATES = Path(__file__).parent / "templates"
_ROWS = "\0"
"""Where the rows go: a character that no text of a page has."""


@dataclass(frozen=True, slots=True)
class Table:
    """The jobs' section: what stands before and after its rows, and the rows by their ids."""

    before: str
    after: str
    rows: dict[str, str]

    @property
    def whole(self) -> str:
        """All of it."""
        return "".join([self.before, *self.rows.values(), self.after])


@dataclass(frozen=True, slots=True)
class Pieces:
    """A page in pieces: `head` and `jobs` apart, the other sections by their ids."""

    title: str
    head: str
    sections: dict[str, str]
    jobs: Table

    def page(self, *, live: str | None = None) -> str:
        """All pieces as one page.

        Args:
            live: For a page that goes on by itself: the version that it shows. None for a page that
                needs nothing but itself.
        """
        style, script = asset("page.css"), asset("page.js")
        order = ("figures", "lanes", "jobs", "predicted", "windows", "notes")
        whole = {**self.sections, "jobs": self.jobs.whole}
        return _render(
            "page.html",
            title=self.title,
            live=live,
            head=Markup(self.head),
            main=Markup("".join(whole[name] for name in order)),
            style=Markup(style),
            style_hash=_hash(style),
            script=Markup(script),
            script_hash=_hash(script),
        )


def page(result: Result, happened: Happened, *, name: str) -> str:
    """The report of a run as HTML.

    Args:
        result: How it ended, or stands.
        happened: What else is known of it.
        name: What the run is called.
    """
    return pieces(result, happened, name=name).page()


def pieces(result: Result, happened: Happened, *, name: str) -> Pieces:
    """The same in pieces."""
    result = harmless(result)
    notes = noted(result)
    return Pieces(
        title=f"{clean(name)}: {'running' if happened.live else result.outcome}",
        head=_render(
            "head.html",
            name=clean(name),
            sentence=going_on(result, happened.left) if happened.live else sentence(result),
            how=how_words(result, happened),
            when=_when(result, happened),
        ),
        sections={
            "figures": _render("figures.html", figures=figures_of(result, happened)),
            "lanes": _render("lanes.html", lanes=lanes_of(result, happened)),
            "predicted": _render("predicted.html", dots=dots_of(result.jobs)),
            "windows": _render(
                "windows.html",
                windows=[_window(window, result) for window in result.windows],
                live=happened.live,
            ),
            "notes": _render(
                "notes.html",
                notes=[_note(names, text) for names, text in notes[:MOST_NOTES]],
                more_notes=max(0, len(notes) - MOST_NOTES),
            ),
        },
        jobs=_table(result, happened),
    )


def _when(result: Result, happened: Happened) -> str:
    what, moment = ("Started", result.start) if happened.live else ("Ended", result.end)
    return f"{what} {datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"


def _table(result: Result, happened: Happened) -> Table:
    chosen = list(range(len(result.jobs)))
    if len(chosen) > MOST_ROWS:
        chosen = telling(result.jobs, most_off=MOST_ROWS // 2, slowest=MOST_ROWS // 2)
    columns = columns_of(result, happened, chosen)
    shown = [column for column in columns if column.said]
    cells = zip(*(column.cells for column in shown), strict=True)
    rows = [
        row_of(result, index, of_job, happened) for index, of_job in zip(chosen, cells, strict=True)
    ]
    frame = _render(
        "jobs.html",
        columns=shown,
        silent=[column.title for column in columns if not column.said],
        listed=len(rows),
        jobs=len(result.jobs),
        rows=Markup(_ROWS),
    )
    before, _, after = frame.partition(_ROWS)
    macro = _macros().row
    return Table(before, after, {f"job-{row.number}": str(macro(row, len(shown))) for row in rows})


@cache
def asset(name: str) -> str:
    """A style or a script of the page."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["colours"] = COLOURS
    return environment


def _render(template: str, **names: object) -> str:
    return _environment().get_template(template).render(names)


@cache
def _macros() -> Any:
    return _environment().get_template("macros.html").module


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
