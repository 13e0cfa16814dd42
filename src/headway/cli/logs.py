"""What jobs wrote: their output as text that has no power over the terminal."""

import codecs
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from headway.cli import objects
from headway.cli.screens import shown_path
from headway.cli.terminal import Screen, give, give_bytes, say
from headway.core.errors import UnknownName
from headway.core.text import ascii_only, plain
from headway.handle import RunHandle, open_log

_BLOCK = 1 << 16
_LOOK_S = 0.1
# How the run stands is asked after this many times as long as the answer took.
_STATUS_PAUSE = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which output: streams, the attempt (None: the last), as it is or made harmless."""

    streams: tuple[str, ...] = ("stdout", "stderr")
    attempt: int | None = None
    raw: bool = False


def show_logs(handle: RunHandle, jobs: Sequence[str], wanted: Wanted, *, json: bool) -> int:
    """The output of jobs as it stands; of several, each below a line with its name."""
    if json:
        found = [_object(handle, job, wanted) for job in jobs]
        give(objects.show({"run": str(handle.path)}, jobs=found))
        return 0
    screen = Screen.of(sys.stdout)
    several = len(jobs) > 1
    for job in jobs:
        try:
            paths = _paths(handle, job, wanted)
        except UnknownName as error:
            if not several:
                raise
            say(f"headway: {screen.clean(str(error))}")
            continue
        filled = [path for path in paths if path.stat().st_size]
        for path in filled:
            if screen.terminal and (several or len(filled) > 1):
                _header(job, path, screen)
            _copy(path, wanted, screen)
        if not filled and not several:
            say(f"headway: {screen.clean(job)} has written nothing yet ({shown_path(paths[0])})")
    return 0


def follow_logs(handle: RunHandle, jobs: Sequence[str], wanted: Wanted) -> int:
    """The output of jobs as it comes, until they have ended."""
    with contextlib.ExitStack() as files:
        _follow(handle, jobs, wanted, files)
    return 0


def _follow(
    handle: RunHandle, jobs: Sequence[str], wanted: Wanted, files: contextlib.ExitStack
) -> None:
    screen = Screen.of(sys.stdout)
    readers: dict[Path, _Reader] = {}
    clock = _StatusClock(handle, jobs)
    last: Path | None = None
    while True:
        over = clock.over()
        for job in jobs:
            for path in _known_paths(handle, job, wanted):
                if path not in readers:
                    file = files.enter_context(open_log(path))
                    readers[path] = _Reader(file, wanted, screen)
                for text in readers[path].new(flush=over):
                    if screen.terminal and last != path and (len(jobs) > 1 or last is not None):
                        _header(job, path, screen)
                    last = path
                    give_bytes(text)
        if over:
            return
        time.sleep(_LOOK_S)


class _StatusClock:
    """Whether the jobs have ended, asked at a pace that costs little even in long lists."""

    def __init__(self, handle: RunHandle, jobs: Sequence[str]) -> None:
        self._handle = handle
        self._jobs = frozenset(jobs)
        self._next = 0.0

    def over(self) -> bool:
        """True once nothing more can come."""
        began = time.monotonic()
        if began < self._next:
            return False
        live = self._handle.supervisor() is not None
        results = [job for job in self._handle.status().jobs if job.name in self._jobs]
        open_words = ("waiting", "running") if live else ("running",)
        self._next = time.monotonic() + _STATUS_PAUSE * (time.monotonic() - began)
        return not any(job.status in open_words for job in results)


class _Reader:
    """New text of a growing file, in whole lines while it grows."""

    def __init__(self, file: BinaryIO, wanted: Wanted, screen: Screen) -> None:
        self._file = file
        self._wanted = wanted
        self._screen = screen
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""

    def new(self, *, flush: bool) -> Iterator[bytes]:
        """What has come since the last call; an unfinished line waits until nothing follows it."""
        came = False
        while block := self._file.read(_BLOCK):
            came = True
            if self._wanted.raw:
                yield block
                continue
            self._kept += self._decoder.decode(block)
            # A progress bar ends its lines with a carriage return.
            end = max(self._kept.rfind("\n"), self._kept.rfind("\r")) + 1
            if end or len(self._kept) > _BLOCK:
                end = end or len(self._kept)
                yield _harmless(self._kept[:end], self._screen)
                self._kept = self._kept[end:]
        if flush:
            self._kept += self._decoder.decode(b"", final=True)
        if self._kept and (flush or not came):
            yield _harmless(self._kept, self._screen)
            self._kept = ""


def _harmless(text: str, screen: Screen) -> bytes:
    text = plain(text, lines=True)
    # In a file the bytes stay what they are; a terminal without UTF-8 could not show them.
    spelt = screen.ascii and screen.terminal
    return (ascii_only(text) if spelt else text).encode(errors="replace")


def _copy(path: Path, wanted: Wanted, screen: Screen) -> None:
    ends_line = True
    with open_log(path) as file:
        for text in _Reader(file, wanted, screen).new(flush=True):
            ends_line = text.endswith(b"\n")
            give_bytes(text)
    # What follows, a header or the prompt, begins on a line of its own.
    if screen.terminal and not ends_line and not wanted.raw:
        give_bytes(b"\n")


def _header(job: str, path: Path, screen: Screen) -> None:
    attempt = path.parent.name
    number = "" if attempt == "1" else f", attempt {attempt}"
    give_bytes(f"== {screen.clean(job)}, {path.name}{number}\n".encode(errors="replace"))


def _paths(handle: RunHandle, job: str, wanted: Wanted) -> list[Path]:
    return [
        handle.log_path(job, stream=stream, attempt=wanted.attempt) for stream in wanted.streams
    ]


def _known_paths(handle: RunHandle, job: str, wanted: Wanted) -> list[Path]:
    """Files that are there; none while the job has not been started."""
    try:
        return [path for path in _paths(handle, job, wanted) if path.exists()]
    except UnknownName:
        return []


def _object(handle: RunHandle, job: str, wanted: Wanted) -> dict[str, Any]:
    """A job's output as text; not cut, and cleaned like a page of a log."""
    found: dict[str, Any] = {"name": objects.clean(job)}
    for stream, path in zip(wanted.streams, _paths(handle, job, wanted), strict=True):
        found["attempt"] = int(path.parent.name)
        with open_log(path) as file:
            text = file.read().decode(errors="replace")
        found[stream] = text if wanted.raw else plain(text, lines=True)
    return found
