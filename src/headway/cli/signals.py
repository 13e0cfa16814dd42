"""Ctrl-C once, twice, three times; SIGTERM; and a terminal that was closed."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

DRAIN, STOP, KILL = 1, 2, 3


class Interrupts:
    """While entered, signals are turned into what a world's `interrupt` understands.

    A handler only counts and wakes the world up; words are printed by the loop, since printing
    from a handler may meet a half-written line. `level` is what has been asked for so far.
    """

    def __init__(self) -> None:
        self.level = 0
        self._interrupt: Callable[[int], None] | None = None
        self._before: dict[int, Any] = {}

    def attach(self, world: Any) -> None:
        """From now on there is something to interrupt; what came before counts."""
        self._interrupt = world.interrupt
        if self.level:
            world.interrupt(self.level)

    def __enter__(self) -> Self:
        self._handle(signal.SIGINT, self._press)
        self._handle(signal.SIGTERM, self._end)
        # A handler, not SIG_IGN: that would be inherited by every job.
        self._handle(signal.SIGHUP, self._stay)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, handler: Callable[[int, FrameType | None], None]) -> None:
        before = signal.getsignal(number)
        # Started with nohup, or in the background of a script: whoever did that meant it.
        if before is not signal.SIG_IGN or number == signal.SIGTERM:
            self._before[number] = before
            signal.signal(number, handler)

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        self._raise_to(min(self.level + 1, KILL))

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._raise_to(max(self.level, STOP))

    def _stay(self, _number: int, _frame: FrameType | None) -> None:
        """The terminal was closed; the run goes on."""

    def _raise_to(self, level: int) -> None:
        self.level = level
        if self._interrupt is not None:
            self._interrupt(level)


def words_for(level: int, running: int) -> str:
    """What Ctrl-C did, and what the next one would do.

    >>> words_for(1, 2)
    'starting nothing new; 2 jobs still run; Ctrl-C again stops them (nothing is lost)'
    """
    jobs = "1 job" if running == 1 else f"{running} jobs"
    if not running:
        return "starting nothing new; no job runs"
    if level == DRAIN:
        them = "it" if running == 1 else "them"
        runs = "runs" if running == 1 else "run"
        return (
            f"starting nothing new; {jobs} still {runs}; Ctrl-C again stops {them} "
            "(nothing is lost)"
        )
    if level == STOP:
        return (
            f"stopping {jobs}: SIGTERM now, SIGKILL in 10 s; Ctrl-C again kills at once "
            "(nothing is lost)"
        )
    return f"killing {jobs} now"
