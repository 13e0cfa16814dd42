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
from headway.engines.local.journal import JOURNAL, Entry, replay


@dataclass(slots=True)
class History:
    """A run as its journal tells it.

    `boots` has the boot each running attempt was started in, `groups` its control groups, `stops`
    how those were to be stopped that had not ended yet, `events` what was worth telling, `places`
    the control groups that any life made for the run.
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
    told = History(View.of(jobs, plan.placements, machine))
    boot = ""
    groups: dict[str, str] = {}
    for entry in replay(run.folder):
        told.began_ns = entry.t if told.began_ns is None else told.began_ns
        told.ended_ns = entry.t
        try:
            _check_job(entry, len(jobs))
            if entry.word is None:
                boot = entry.note.get("boot", boot)
                groups = entry.note.get("groups", groups)
                told.take(entry.note)
                continue
            told.view.apply(entry.word, entry.t)
        except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise BadFile(
                f"{run.path / JOURNAL}: what it says of t={entry.t} does not fit what it says "
                f"before ({type(error).__name__}: {error}); the run can't be continued"
            ) from None
        match entry.word:
            case Start(job):
                told.boots[job] = boot
                told.groups[job] = groups
                told.stops.pop(job, None)
            case Stop(job, how, reason):
                told.stops[job] = (how, reason)
                told.events.append((entry.t, f"{jobs[job].name}: {reason}"))
            case Reshare(job, _, reason):
                told.events.append((entry.t, f"{jobs[job].name}: {reason}"))
            case Exited(_, job):
                told.stops.pop(job, None)
    return told


def _check_job(entry: Entry, jobs: int) -> None:
    index = entry.note.get("job", 0) if entry.word is None else getattr(entry.word, "job", 0)
    if not 0 <= index < jobs:
        raise ValueError(f"job {index + 1} of a list of {jobs}")
