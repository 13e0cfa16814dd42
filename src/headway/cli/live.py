"""A run as a table that redraws at most twice a second, for terminals."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TextIO, cast

from headway.cli.layout import Column, table
from headway.cli.progress import Left, Narrator, Progress, clock_words, ended_words, summary
from headway.cli.screens import core_list
from headway.cli.terminal import Screen
from headway.core.text import shorten
from headway.core.units import show_bytes, show_seconds, show_step
from headway.core.view import JobState, View
from headway.core.words import Event, Exited
from headway.reports.remaining import remaining_of_job

REDRAW_S = 0.5
_ENDED = 4
_WAITING = 3
_OWN_LINES = 4  # header, title, what waits besides, footer
# Said above the table as well, since the table soon forgets them.
_WORTH_A_LINE = frozenset(
    {"failed", "oom", "timeout", "stalled", "lost", "infeasible", "again", "gave way", "stopped"}
    | {"confined", "stops"}
)
_COLUMNS = (
    Column("job", least=14, most=28),
    Column("where", keep=40),
    Column("steps", keep=60, right=True),
    Column("step", keep=50, right=True),
    Column("memory", keep=70, right=True),
    Column("state", least=12),
)


class LiveTable(Progress):
    """Running jobs, the last that ended and the next that wait, drawn over and over."""

    def __init__(
        self,
        screen: Screen,
        stream: TextIO,
        *,
        title: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(screen, stream)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(
            file=cast("TextIO", self.stream),
            force_terminal=True,
            color_system="standard" if screen.colour else None,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
        )
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._title = title
        self._narrator = Narrator(screen)
        self._left = Left(clock)
        self._clock = clock
        self._began = clock()
        self._drawn = -REDRAW_S
        self._ended: deque[int] = deque(maxlen=_ENDED)
        self._above: list[str] = []
        self._live.start()

    def see(self, event: Event, view: View) -> None:
        """Say above the table what it would forget; draw it if it is time."""
        for word, name, text in self._narrator.lines(event, view):
            if word in _WORTH_A_LINE:
                elapsed = clock_words(self._clock() - self._began)
                painted = self.screen.paint(f"{word:<10}", word)
                # Kept for the next drawing: each line above the table draws it anew.
                self._above.append(f"{elapsed:>7}  {painted} {name}  {text}")
        if isinstance(event, Exited):
            self._ended.append(event.job)
        if self._clock() - self._drawn >= REDRAW_S:
            self._draw(view)

    def say(self, line: str) -> None:
        """A line above the table, at once."""
        from rich.text import Text

        lines = "\n".join([*self._above, line])
        self._above.clear()
        self._console.print(Text.from_ansi(lines), soft_wrap=True)

    def close(self) -> None:
        """Take the table away; the result follows."""
        if self._above:
            self.say(self._above.pop())
        self._live.stop()

    def _draw(self, view: View) -> None:
        from rich.text import Text

        self._drawn = self._clock()
        if self._above:
            self.say(self._above.pop())
        width, height = self._console.size
        lines = list(draw(view, self.screen, ended=self._ended, width=width, height=height))
        elapsed = clock_words(self._drawn - self._began)
        # The name last: it is what a narrow screen can do without.
        head = f"{summary(view)}  elapsed {elapsed}{self._left.words(view)}  {self._title}"
        head = shorten(head, width, ending=self.screen.ending)
        text = Text.from_ansi("\n".join([head, *lines]))
        text.no_wrap, text.overflow = True, "crop"
        self._live.update(text, refresh=True)


def draw(
    view: View, screen: Screen, *, ended: deque[int], width: int, height: int
) -> Iterator[str]:
    """The lines of the table below its header, as many as a screen of this size has."""
    room = max(2, height - _OWN_LINES)
    running = list(view.running.values())[:room]
    spare = room - len(running)
    done = [view.states[index] for index in ended if view.states[index].final][-spare:]
    done = done if spare else []
    next_ones = view.waiting[: min(_WAITING, max(0, spare - len(done)))]
    states = [*done, *running, *(view.states[index] for index in next_ones)]
    rows = [_row(state, view, screen) for state in states]
    yield from table(
        _COLUMNS,
        rows,
        width=width,
        ending=screen.ending,
        paint=lambda index, cell, row: _paint(index, cell, row, screen),
    )
    hidden = view.unsettled - len(running) - len(next_ones)
    if hidden > 0:
        yield f" and {hidden:,} more"
    stop = "stop: Ctrl-C (once: let running jobs finish, twice: stop them; nothing is lost)"
    page = "   in the browser: headway serve"
    # What is cut would be no command.
    yield shorten(stop + (page if len(stop + page) <= width else ""), width, ending=screen.ending)


def _paint(index: int, cell: str, row: object, screen: Screen) -> str:
    if index != len(_COLUMNS) - 1:
        return cell
    return screen.paint(cell, cell.split(" ", 1)[0].rstrip(","))


def _row(state: JobState, view: View, screen: Screen) -> list[str]:
    share = state.share
    place = "-"
    if share is not None and share.cores:
        place = f"core {core_list(share.cores)}"
    if share is not None and share.devices:
        place = f"GPU {core_list(share.devices)}"
    return [
        screen.clean(state.job.name),
        place,
        _steps(state, view),
        show_step(state.step_ns),
        _memory(state),
        screen.clean(_state(state, view)),
    ]


def _steps(state: JobState, view: View) -> str:
    if not state.steps:
        return "-"
    counts = view.step_counts.get(state.job.script)
    total = f"/~{counts[len(counts) // 2]:,}" if counts and not state.final else ""
    return f"{state.steps:,}{total}"


def _memory(state: JobState) -> str:
    cap = state.share.cap_bytes if state.share is not None else None
    if state.status != "running":
        return show_bytes(state.peak_bytes or None)
    used = show_bytes(state.resident_bytes or None)
    if cap is None or used == "-":
        return used
    limit = show_bytes(cap)
    number, _, unit = used.partition(" ")
    return f"{number if limit.endswith(unit) else used} of {limit}"


def _state(state: JobState, view: View) -> str:
    if state.final:
        return f"{state.status} {ended_words(state)}"
    if state.status == "waiting":
        return state.wait_reason or "waiting"
    if state.stopping:
        return f"stopping: {state.cause}"
    if state.stalled_mark:
        return "running, stalled: no step and no CPU time"
    left = remaining_of_job(state, view)
    return f"running, ~{show_seconds(left.value)}" if left.known else "running"
