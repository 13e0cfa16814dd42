"""A run while it runs: what each event means, in words, and the plain log of them.

Called per event, up to some thousand times a second for short jobs: what does not print costs a few
comparisons, and nothing here looks at all jobs at once.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from headway.cli.screens import core_list
from headway.cli.terminal import Enduring, Screen
from headway.core.units import NS_PER_S, show_bytes, show_seconds, show_step
from headway.core.view import JobState, View
from headway.core.words import Arrived, Cancelled, Event, Exited, MemoryPressure, Started, Tick
from headway.reports.remaining import remaining

# A line of a plain log that says it is still alive, for whoever looks at a CI job.
HEARTBEAT_S = 60.0
# The time that is left is computed again after this many times as long as computing it took.
_ETA_PAUSE = 50
_COMMON_WAIT = re.compile(r"waits for (a free core|\d+ free cores|\d+ cores of its own)")
_FIGURES = re.compile(r"[\d.,]+ ?[KMGT]?i?B?")


class Progress:
    """Shows nothing of a run but what is said to it; the base of the others."""

    def __init__(self, screen: Screen, stream: TextIO) -> None:
        self.screen = screen
        self.stream = Enduring(stream)

    def see(self, event: Event, view: View) -> None:
        """Take notice of an event."""

    def say(self, line: str) -> None:
        """One line of ours."""
        self.stream.write(line + "\n")
        self.stream.flush()

    def close(self) -> None:
        """Leave the screen as it was."""


class Narrator:
    """Turns events into lines: (status word, job's name, words)."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._told: set[tuple[int, int, str]] = set()
        self._wait_told: tuple[int, str] | None = None

    def lines(self, event: Event, view: View) -> Iterator[tuple[str, str, str]]:
        """What there is to say about an event and what was done about it."""
        match event:
            case Started(_, job):
                yield self._line("started", view.states[job], where(view.states[job]))
            case Exited(_, job) | Cancelled(_, job):
                yield from self._ended(view.states[job], view)
            case Arrived(_, job):
                if view.states[job].final:
                    yield from self._ended(view.states[job], view)
            case Tick() | MemoryPressure():
                yield from self._look(view)

    def _line(self, word: str, state: JobState, text: str) -> tuple[str, str, str]:
        return word, self._screen.clean(state.job.name), self._screen.clean(text)

    def _ended(self, state: JobState, view: View) -> Iterator[tuple[str, str, str]]:
        if state.status == "waiting":
            stopped = state.outcome.stopped if state.outcome is not None else None
            if stopped == "interrupt":
                yield self._line("stopped", state, "goes back to waiting")
            else:
                word = "gave way" if stopped == "memory" else "again"
                yield self._line(word, state, state.wait_reason)
            return
        if not state.final:
            return
        yield self._line(state.status, state, ended_words(state))
        if state.status != "ok":
            yield from self._followers(state, view)

    def _followers(self, state: JobState, view: View) -> Iterator[tuple[str, str, str]]:
        """Whoever waited for this one was cancelled without an event of its own."""
        heads = [state]
        while heads:
            for index in view.followers.get(heads.pop().job.name, ()):
                other = view.states[index]
                if other.status == "cancelled" and self._first(other, "cancelled"):
                    heads.append(other)
                    yield self._line("cancelled", other, other.cause)

    def _look(self, view: View) -> Iterator[tuple[str, str, str]]:
        for state in view.running.values():
            if state.confined and self._first(state, "confined"):
                yield self._line("confined", state, state.cause)
            if state.stopping and self._first(state, "stops"):
                yield self._line("stops", state, state.cause)
            if state.stalled_mark and self._first(state, "stalls"):
                yield self._line("stalls", state, "no step and no CPU time for a while")
        if view.waiting:
            yield from self._wait(view.states[view.waiting[0]])

    def _wait(self, state: JobState) -> Iterator[tuple[str, str, str]]:
        """Why the first one waits, where it is not simply its turn; figures alone are no news."""
        reason = state.wait_reason
        if not reason or _COMMON_WAIT.fullmatch(reason):
            return
        kind = state.index, _FIGURES.sub("", reason)
        if kind != self._wait_told:
            self._wait_told = kind
            yield self._line("waits", state, reason)

    def _first(self, state: JobState, what: str) -> bool:
        key = state.index, state.attempt, what
        if key in self._told:
            return False
        self._told.add(key)
        return True


class EventLog(Progress):
    """A line an event: for files, pipes, CI, and terminals that cannot redraw."""

    def __init__(
        self,
        screen: Screen,
        stream: TextIO,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(screen, stream)
        self._narrator = Narrator(screen)
        self._clock = clock
        self._began = self._spoke = clock()

    def see(self, event: Event, view: View) -> None:
        """Write what there is to say."""
        now = self._clock()
        for word, name, text in self._narrator.lines(event, view):
            elapsed = clock_words(now - self._began)
            self.say(f"{elapsed:>7}  {word:<10} {name}  {text}".rstrip())
            self._spoke = now
        if now - self._spoke >= HEARTBEAT_S:
            self._spoke = now
            self.say(f"{clock_words(now - self._began):>7}  {summary(view)}{left_words(view)}")


def clock_words(seconds: float) -> str:
    """Time since the start, as a stopwatch shows it.

    >>> clock_words(3.4), clock_words(3723)
    ('0:03', '1:02:03')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def where(state: JobState) -> str:
    """What a started job was given."""
    share = state.share
    if share is None:
        return ""
    words = []
    if share.cores:
        words.append(f"core {core_list(share.cores)}")
    if share.threads:
        words.append("1 thread" if share.threads == 1 else f"{share.threads} threads")
    if share.cap_bytes:
        words.append(f"memory up to {show_bytes(share.cap_bytes)}")
    if share.devices:
        words.append(f"GPU {core_list(share.devices)}")
    if state.attempt > 1:
        words.append(f"attempt {state.attempt}")
    return ", ".join(words)


def ended_words(state: JobState) -> str:
    """What a job that has its last word did: why, or what it took."""
    if state.status != "ok":
        return state.cause
    words = []
    if state.started_ns is not None and state.ended_ns is not None:
        words.append(f"in {show_seconds((state.ended_ns - state.started_ns) / NS_PER_S)}")
    if state.steps:
        words.append(f"{state.steps:,} steps, {show_step(state.step_ns)} each")
    if state.peak_bytes:
        words.append(show_bytes(state.peak_bytes))
    return ", ".join(words)


def summary(view: View) -> str:
    """How many run, are done and wait."""
    running, done = len(view.running), len(view.states) - view.unsettled
    return f"{running} running, {done} done, {view.unsettled - running} waiting"


def left_words(view: View) -> str:
    """The time that is left with its bounds, or nothing where it is not known."""
    left = remaining(view)
    if not left.known:
        return ""
    bounds = f"{show_seconds(left.low)}-{show_seconds(left.high)}"
    return f", left ~{show_seconds(left.value)} ({bounds})"


class Left:
    """`left_words`, computed so seldom that it never costs more than a fiftieth of the time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0
        self._words = ""

    def words(self, view: View) -> str:
        """The words as they stood when they were last computed."""
        now = self._clock()
        if now >= self._next:
            self._words = left_words(view)
            self._next = now + _ETA_PAUSE * (self._clock() - now)
        return self._words
