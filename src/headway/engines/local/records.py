"""Writes a run's timeline and counters while it goes on.

These two files explain, they do not decide: what they miss (a full disk, a crash) costs a picture,
never a job, so a line that cannot be written is dropped.
"""

import contextlib
import os

from headway.core.errors import HeadwayError
from headway.core.folder import Folder
from headway.core.timeline import (
    COUNTERS,
    TIMELINE,
    Header,
    Reading,
    attempt_spans,
    counter_line,
    lane_of,
    span_line,
)
from headway.core.view import JobState, View

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Records:
    """The two files of one run; times in them count from the run's first moment."""

    def __init__(self, folder: Folder, view: View, epoch_ns: int) -> None:
        self._view = view
        self._timeline = folder.open_file(TIMELINE, _APPEND)
        self._counters = folder.open_file(COUNTERS, _APPEND)
        self._epoch_ns = epoch_ns
        self._next_ns = 0
        if os.fstat(self._timeline).st_size == 0:
            header = Header(source="measured", epoch_ns=epoch_ns)
            _append(self._timeline, header.to_json())
        else:
            self._epoch_ns = _epoch_of(folder, epoch_ns)

    def sample(self, t: int) -> None:
        """Readings of what runs, once a second at first and ever more rarely as a run gets long."""
        if t < self._next_ns:
            return
        self._next_ns = t + max(900_000_000, (t - self._epoch_ns) // 600)
        lines = [
            counter_line(
                Reading(t=at_ns - self._epoch_ns, lane=lane_of(index), name=name, value=value)
            )
            for index, state in self._view.running.items()
            for name, value, at_ns in (
                ("resident_bytes", state.resident_bytes, t),
                ("cores", round(state.cores_used, 3), t),
                # Of steps the last one's end is known: it is exact, whenever somebody looks.
                ("steps", state.steps, state.last_step_ns),
            )
            if value is not None and at_ns is not None
        ]
        if lines:
            _append(self._counters, "\n".join(lines))

    def attempt_ended(self, state: JobState, t: int) -> None:
        """The spans of an attempt."""
        for span in attempt_spans(state, t, epoch_ns=self._epoch_ns):
            _append(self._timeline, span_line(span))

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self._timeline)
        os.close(self._counters)


def _append(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, (text + "\n").encode())


def _epoch_of(folder: Folder, otherwise: int) -> int:
    """The epoch of a timeline that an earlier life began."""
    try:
        with os.fdopen(folder.open_file(TIMELINE, os.O_RDONLY), encoding="utf-8") as file:
            return Header.from_json(file.readline(), source=TIMELINE).epoch_ns or otherwise
    except (OSError, ValueError, HeadwayError):
        return otherwise
