"""What a run's journal says: the view as it stood, and what its engine noted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.core.errors import BadFile
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import Placement, Plan
from headway.core.run import Run
from headway.core.view import View
from headway.core.words import Exited, Memory, Reshare, Start, Stop, StopHow
from headway.engines.local.journal import JOURNAL, START, Entry, replay


@dataclass(slots=True)
class History:
    """A run as its journal tells it.

    `boots` has the boot each running attempt was started in, `groups` its control groups, `stops`
    how those were to be stopped that had not ended yet, `events` what was worth telling, `places`
    the control groups that any life made for the run. `mps` is what is kept of its MPS daemon.
    """

    view: View
    memory: Memory | None = None
    began_ns: int | None = None
    ended_ns: int | None = None
    boots: dict[int, str] = field(default_factory=dict)
    groups: dict[int, dict[str, str]] = field(default_factory=dict)
    stops: dict[int, tuple[StopHow, str]] = field(default_factory=dict)
    places: set[str] = field(default_factory=set)
    lives: int = 0
    mps: dict[str, Any] | None = None
    events: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, note: dict[str, Any]) -> None:
        """A note of the engine's own."""
        match note.get("k"):
            case "open":
                self.lives += 1
                self.places.update(note.get("groups", {}).values())
                self.notes.extend(note.get("notes", ()))
            case "memory":
                self.memory = note["memory"]
            case "mps":
                self.mps = note["daemon"]
            case "note":
                self.notes.append(note["text"])
            case "replan":
                kept = note["placements"].items()
                self.view.replan({int(n): Placement.model_validate(one) for n, one in kept})
            case "again":
                self.view.reopen(note["job"])


def history(run: Run, plan: Plan, jobs: Sequence[Job], machine: Machine) -> History:
    """Replay a run's journal.

    Raises:
        BadFile: The journal is damaged before its last line, or speaks of jobs that are not there.
    """
    return Reader(run, plan, jobs, machine).read_on()


class Reader:
    """A run's journal, read on from where it was left: for whoever looks at it again and again."""

    def __init__(self, run: Run, plan: Plan, jobs: Sequence[Job], machine: Machine) -> None:
        self._run = run
        self._jobs = jobs
        self._told = History(View.of(jobs, plan.placements, machine))
        self._place = START
        self._boot = ""
        self._groups: dict[str, str] = {}

    def read_on(self) -> History:
        """Everything up to now: one and the same history, which grows.

        Raises:
            BadFile: The journal is damaged before its last line, or speaks of jobs that are not
                there.
        """
        for entry in replay(self._run.folder, self._place):
            try:
                self._take(entry)
            except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
                raise BadFile(
                    f"{self._run.path / JOURNAL}: what it says of t={entry.t} does not fit what it "
                    f"says before ({type(error).__name__}: {error}); the run can't be continued"
                ) from None
            self._place = entry.after
        return self._told

    def _take(self, entry: Entry) -> None:
        told, jobs = self._told, self._jobs
        told.began_ns = entry.t if told.began_ns is None else told.began_ns
        told.ended_ns = entry.t
        _check_job(entry, len(jobs))
        if entry.word is None:
            self._boot = entry.note.get("boot", self._boot)
            self._groups = entry.note.get("groups", self._groups)
            told.take(entry.note)
            return
        told.view.apply(entry.word, entry.t)
        match entry.word:
            case Start(job):
                told.boots[job] = self._boot
                told.groups[job] = self._groups
                told.stops.pop(job, None)
            case Stop(job, how, reason):
                told.stops[job] = (how, reason)
                told.events.append((entry.t, f"{jobs[job].name}: {reason}"))
            case Reshare(job, _, reason):
                told.events.append((entry.t, f"{jobs[job].name}: {reason}"))
            case Exited(_, job):
                told.stops.pop(job, None)


def _check_job(entry: Entry, jobs: int) -> None:
    index = entry.note.get("job", 0) if entry.word is None else getattr(entry.word, "job", 0)
    if not 0 <= index < jobs:
        raise ValueError(f"job {index + 1} of a list of {jobs}")
