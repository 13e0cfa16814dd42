"""Every error Headway raises on purpose.

    HeadwayError                 never raised itself
    ├── UsageError               the caller's words are off (exit 2)
    │   ├── BadJobFile           a line or field of a job file
    │   ├── NotYet               known by name, not built yet
    │   └── UnknownName          a run, job, mode or leaf that is not there
    ├── BadFile                  a file of ours is damaged, foreign or newer (exit 2)
    ├── RunIsLive                another Headway works on this run folder (exit 2)
    ├── DoesNotFit               nothing could be placed (exit 3)
    ├── NoSpace                  the disk under the run folder is full (exit 130)
    └── SimulationError          a task graph that cannot be simulated (sim/task.py)

Each says what was given, the limit it broke, and the next step.
"""


class HeadwayError(Exception):
    """Base of all errors that are shown to a user as one sentence, without a traceback."""

    exit_code = 1


class UsageError(HeadwayError):
    """The caller's words are off; nothing was started."""

    exit_code = 2


class BadJobFile(UsageError):
    """A job file cannot be read as written.

    Args:
        source: The file's name as the user gave it.
        line: Line number from 1, or None where the format has no lines.
        message: What was given and what is allowed.
    """

    def __init__(self, source: str, line: int | None, message: str) -> None:
        place = source if line is None else f"{source}:{line}"
        super().__init__(f"{place}: {message} Nothing was started.")
        self.source = source
        self.line = line


class NotYet(UsageError):
    """Something Headway knows by name but does not do yet."""


class UnknownName(UsageError):
    """A run, a job, a mode or a leaf that is not there; the known ones are listed."""


class BadFile(HeadwayError):
    """A file of a run is damaged, not ours, or written by a newer Headway."""

    exit_code = 2


class RunIsLive(HeadwayError):
    """Another Headway supervises this run."""

    exit_code = 2


class DoesNotFit(HeadwayError):
    """No job could be placed on this machine."""

    exit_code = 3


class NoSpace(HeadwayError):
    """The disk under the run folder is full; the run is interrupted and can be resumed."""

    exit_code = 130
