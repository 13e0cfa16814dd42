"""Spans and counters on lanes: one format for what was simulated, measured or imported.

`timeline.jsonl` starts with a header, then one span a line; `counters.jsonl` holds one reading a
line. Lanes are paths (``host/core1``). Times are integer ns since the timeline's start.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from headway.core.errors import BadFile
from headway.core.folder import Folder
from headway.core.noun import Noun, explain
from headway.core.view import JobState

TIMELINE = "timeline.jsonl"
COUNTERS = "counters.jsonl"
_READ_LIMIT = 64 * 2**20

Kind = Literal["compute", "comm", "copy", "wait", "host", "io", "queue", "idle", "fault"]
Source = Literal["simulated", "measured", "imported"]


class Header(Noun):
    """First line of a timeline; `epoch_ns` is the wall clock at t = 0, where there is one."""

    source: Source
    unit: Literal["ns"] = "ns"
    lanes: tuple[str, ...] = ()
    epoch_ns: int | None = None


class Span(Noun):
    """Something that took `d` ns from `t` on a lane."""

    t: int
    d: Annotated[int, Field(ge=0)]
    lane: str
    kind: Kind
    name: str
    job: int | None = None
    step: int | None = None
    id: int | None = None
    deps: tuple[int, ...] = ()
    args: dict[str, Any] = {}


class Reading(Noun):
    """What a counter of a lane stood at, `t` ns after the timeline's start."""

    t: int
    lane: str
    name: str
    value: float


class Timeline(Noun):
    """A header and its spans, in the order they were written."""

    header: Header
    spans: tuple[Span, ...]

    def lines(self) -> Iterator[str]:
        """The timeline's file, line by line."""
        yield self.header.to_json()
        for span in self.spans:
            yield span_line(span)


def attempt_spans(state: JobState, t: int, *, epoch_ns: int = 0) -> list[Span]:
    """Spans of an attempt up to `t`: start-up, then steps (all of it where none were seen).

    Args:
        state: The job as its attempt's end left it, or while it runs.
        t: When that was, or now, in ns on the driver's clock.
        epoch_ns: The timeline's zero on that clock.
    """
    began_ns, share = state.started_ns, state.share or state.last_share
    if began_ns is None or share is None:
        return []
    status = state.outcome.status if state.outcome is not None else "running"
    lane = "/".join(["n0", f"core{share.cores[0]}" if share.cores else "host"])
    first_ns = state.first_step_ns
    parts: list[tuple[Kind, str, int, int]] = []
    if first_ns is not None and began_ns < first_ns < t:
        parts.append(("host", "start-up", began_ns, first_ns))
        began_ns = first_ns
    parts.append(("compute", "steps" if first_ns is not None else "command", began_ns, t))
    return [
        Span(
            t=begin_ns - epoch_ns,
            d=max(0, end_ns - begin_ns),
            lane=lane,
            kind=kind,
            name=name,
            job=state.index,
            args={"attempt": state.attempt, "status": status},
        )
        for kind, name, begin_ns, end_ns in parts
    ]


def span_line(span: Span) -> str:
    """One span as a line of JSON, without the fields that say nothing."""
    return json.dumps(span.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)


def counter_line(reading: Reading) -> str:
    """One reading as a line of JSON; a whole number is written as one.

    >>> counter_line(Reading(t=5, lane=lane_of(0), name="steps", value=20))
    '{"t": 5, "lane": "job/1", "name": "steps", "value": 20}'
    """
    value = int(reading.value) if reading.value.is_integer() else reading.value
    return json.dumps({"t": reading.t, "lane": reading.lane, "name": reading.name, "value": value})


def lane_of(job: int) -> str:
    """The lane of a job's counters: jobs count from 1 there, as their folders do."""
    return f"job/{job + 1}"


def read_counters(lines: Iterable[str]) -> Iterator[Reading]:
    """The readings of a counters file; a line that is none (a crash cut it short) is left out."""
    for line in lines:
        with contextlib.suppress(ValidationError):
            yield Reading.model_validate_json(line)


def read_timeline(lines: Iterable[str], *, source: str) -> Timeline:
    """The timeline of a file; a last line that was cut short by a crash is left out.

    Raises:
        BadFile: The header or a line before the last cannot be read; the line is named.
    """
    rows = [line for line in lines if line.strip()]
    if not rows:
        raise BadFile(f"{source}: empty, expected a timeline header.")
    header = Header.from_json(rows[0], source=f"{source}:1")
    spans = []
    for number, row in enumerate(rows[1:], start=2):
        try:
            spans.append(Span.model_validate_json(row))
        except ValidationError as error:
            if number == len(rows) and not row.endswith("}\n"):
                break
            raise BadFile(f"{source}:{number}: {explain(error)}") from None
    return Timeline(header=header, spans=tuple(spans))


def timeline_of(folder: Folder) -> Timeline | None:
    """The timeline in a run's folder; None where it cannot be read."""
    try:
        return read_timeline(_lines(folder, TIMELINE), source=TIMELINE)
    except (OSError, ValueError, BadFile):
        return None


def readings_of(folder: Folder, name: str) -> list[Reading]:
    """The readings of one counter in a run's folder; none where they cannot be read."""
    try:
        lines = _lines(folder, COUNTERS)
    except (OSError, ValueError):
        return []
    # Lines of other counters are passed over before they are parsed.
    found = read_counters(line for line in lines if name in line)
    return [reading for reading in found if reading.name == name]


class CounterReader:
    """The counters in a run's folder, read on from where they were left."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._size = 0

    def read_on(self) -> list[Reading]:
        """What was written since the last call; nothing where it cannot be read."""
        try:
            with os.fdopen(self._folder.open_file(COUNTERS, os.O_RDONLY), "rb") as file:
                file.seek(self._size)
                content = file.read(_READ_LIMIT)
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._size += len(whole)
        return list(read_counters(whole.decode(errors="replace").splitlines()))


def _lines(folder: Folder, name: str) -> list[str]:
    text = folder.read_bytes(name, limit=_READ_LIMIT).decode(errors="replace")
    return text.splitlines(keepends=True)
