"""The journal of a run: what happened and what was done, one JSON object a line.

Words are appended to a buffer and reach the disk in groups: `commit` writes and syncs what a start
depends on, so that an intent is durable before its start, at one fsync a loop turn. A last line
that a crash cut short is dropped when the journal is opened again.
"""

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_origin

from headway.core.errors import BadFile
from headway.core.folder import Folder
from headway.core.words import (
    Action,
    Arrived,
    Cancelled,
    Event,
    Exited,
    MemoryPressure,
    Outcome,
    Phase,
    Reserve,
    Reshare,
    Retry,
    Settle,
    Share,
    Start,
    Started,
    Stop,
    Wait,
)

JOURNAL = "journal.jsonl"
SCHEMA = 1
_WORDS: dict[str, type[Any]] = {
    kind.__name__.lower(): kind
    for kind in (
        Arrived,
        Started,
        Phase,
        Exited,
        MemoryPressure,
        Cancelled,
        Start,
        Reshare,
        Stop,
        Reserve,
        Wait,
        Retry,
        Settle,
    )
}


@dataclass(frozen=True, slots=True)
class Place:
    """How much of a journal was read: so many lines, which are so many bytes."""

    lines: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: when (ns), and either a word of policy and world or a note of the engine's own.

    Whoever reads on later goes on at `after`.
    """

    t: int
    word: Event | Action | None
    note: dict[str, Any]
    after: Place


class Journal:
    """The journal of a run that this process supervises."""

    def __init__(self, folder: Folder) -> None:
        self._descriptor = folder.open_file(JOURNAL, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._buffer: list[str] = []
        self._unsynced = False
        _drop_cut_line(self._descriptor)
        if os.fstat(self._descriptor).st_size == 0:
            self._buffer.append(json.dumps({"schema": SCHEMA}) + "\n")

    def word(self, t: int, word: Event | Action) -> None:
        """Append an event or an action."""
        fields = {
            name: value
            for name, value in _fields(word).items()
            if name != "t" and value is not None and value != ()
        }
        self.note(t, {"k": type(word).__name__.lower(), **fields})

    def note(self, t: int, note: dict[str, Any]) -> None:
        """Append a note of the engine's own, such as who supervises."""
        line = json.dumps({"t": t, **note}, ensure_ascii=False, separators=(",", ":"))
        self._buffer.append(line + "\n")

    def write(self) -> None:
        """Hand what is buffered to the kernel: it survives our death, not the machine's.

        Raises:
            OSError: The disk is full; what could not be written stays buffered.
        """
        if not self._buffer:
            return
        # A lone surrogate (a file name that is not UTF-8) becomes its own JSON escape.
        content = "".join(self._buffer).encode(errors="backslashreplace")
        written = os.write(self._descriptor, content)
        while written < len(content):
            try:
                written += os.write(self._descriptor, content[written:])
            except OSError:
                # Half a line on disk: cut it off again, so that a later write starts clean.
                size = os.fstat(self._descriptor).st_size
                os.ftruncate(self._descriptor, size - written)
                raise
        self._buffer.clear()
        self._unsynced = True

    def commit(self) -> None:
        """Make everything appended so far durable.

        Raises:
            OSError: The disk is full or gone.
        """
        self.write()
        if self._unsynced:
            os.fdatasync(self._descriptor)
            self._unsynced = False

    def close(self) -> None:
        """Give the descriptor back; what is still buffered is lost, so commit first."""
        os.close(self._descriptor)


START = Place()


def replay(folder: Folder, since: Place = START) -> Iterator[Entry]:
    """The entries of a run's journal, oldest first; none where there is no journal yet.

    Args:
        folder: The run's.
        since: What was read before.

    Raises:
        BadFile: A line that is not the last cannot be read, or the schema is newer.
    """
    try:
        descriptor = folder.open_file(JOURNAL, os.O_RDONLY)
    except FileNotFoundError:
        return
    # Bytes: a crash can cut a line, or break it, in the middle of a character.
    with os.fdopen(descriptor, "rb") as file:
        size = file.seek(since.size)
        for number, line in enumerate(file, start=since.lines + 1):
            if not line.endswith(b"\n"):
                return
            size += len(line)
            where = f"{folder.path / JOURNAL}:{number}"
            try:
                content = json.loads(line)
                if number == 1:
                    _check_schema(content, where)
                    continue
                yield _entry(content, Place(number, size))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise BadFile(f"{where}: not a journal line ({error}).") from None


def _check_schema(content: dict[str, Any], where: str) -> None:
    if content["schema"] > SCHEMA:
        raise BadFile(f"{where}: schema {content['schema']} was written by a newer Headway.")


def _entry(content: dict[str, Any], after: Place) -> Entry:
    t = content.pop("t")
    kind = _WORDS.get(content.get("k", ""))
    if kind is None:
        return Entry(t, None, content, after)
    content.pop("k")
    if "share" in content:
        content["share"] = Share(**_tuples(content["share"]))
    if "outcome" in content:
        content["outcome"] = Outcome(**_tuples(content["outcome"]))
    names = {field.name: field for field in dataclasses.fields(kind)}
    if "t" in names:
        content["t"] = t
    for name in names.keys() - content.keys():
        # Absent because it said nothing: no number, or an empty list of cores.
        content[name] = () if get_origin(names[name].type) is tuple else None
    return Entry(t, kind(**_tuples(content)), {}, after)


def _fields(word: Any) -> dict[str, Any]:
    return {
        field.name: _fields(value) if dataclasses.is_dataclass(value) else value
        for field in dataclasses.fields(word)
        for value in (getattr(word, field.name),)
    }


def _tuples(content: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}


def _drop_cut_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    end = size
    while end > 0:
        start = max(0, end - 65536)
        block = os.pread(descriptor, end - start, start)
        place = block.rfind(b"\n")
        if place >= 0:
            if start + place + 1 < size:
                os.ftruncate(descriptor, start + place + 1)
            return
        end = start
    os.ftruncate(descriptor, 0)
