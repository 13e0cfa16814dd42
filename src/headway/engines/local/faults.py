"""Dying at a chosen moment, for the tests that show nothing is lost by it.

The variable HEADWAY_FAULT names a point and a count, as in ``after-intent:3``: the supervisor kills
itself when it passes that point for the third time. Points that begin with ``keeper-`` kill the
keeper of that start instead.
"""

import os
import signal

VARIABLE = "HEADWAY_FAULT"
KEEPER_POINTS = ("after-claim", "after-result")


class Faults:
    """Counts the passings of the one point that the environment names."""

    def __init__(self) -> None:
        self._point, _, count = os.environ.get(VARIABLE, "").partition(":")
        self._left = int(count) if count.isdigit() else 1

    def strike(self, point: str) -> None:
        """Die here, if this is the place and the time."""
        if self._passes(point):
            os.kill(os.getpid(), signal.SIGKILL)

    def for_keeper(self) -> str | None:
        """Where the keeper of this start shall die instead of us."""
        for point in KEEPER_POINTS:
            if self._passes(f"keeper-{point}"):
                return point
        return None

    def _passes(self, point: str) -> bool:
        if point != self._point:
            return False
        self._left -= 1
        return self._left == 0
