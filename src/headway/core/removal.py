"""Which runs `headway clean` takes off the disk, and what became of each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headway.core.noun import Noun

# "removed": taken off the disk in part, by a removal that was cut short.
State = Literal["ok", "failed", "infeasible", "interrupted", "running", "damaged", "removed"]
Verdict = Literal["goes", "gone", "stays", "failed"]


@dataclass(frozen=True, slots=True)
class Found:
    """A run folder as it was found; `ended_s` is the epoch's second of its last change.

    `obstacle` says why nobody may remove it, or is empty.
    """

    path: Path
    state: State
    size_bytes: int
    ended_s: float
    obstacle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which runs may go: those older than that, without the newest `keep`, ended unless said."""

    older_than_s: float | None = None
    keep: int = 0
    unfinished: bool = False

    def why_stays(self, found: Found, *, age_s: float, newer: int) -> str:
        """Why a run stays, in words; empty where it goes.

        Args:
            found: The run.
            age_s: Seconds since its last change.
            newer: How many runs are newer.

        >>> found = Found(Path("/r"), "ok", size_bytes=0, ended_s=0.0)
        >>> Rules(keep=2).why_stays(found, age_s=60.0, newer=1)
        'one of the 2 newest'
        """
        if found.obstacle:
            return found.obstacle
        if found.state == "removed":
            return ""
        if found.state == "interrupted" and not self.unfinished:
            return "unfinished: --resume goes on with it, --unfinished lets it go"
        if newer < self.keep:
            return "the newest" if self.keep == 1 else f"one of the {self.keep} newest"
        if self.older_than_s is not None and age_s < self.older_than_s:
            return "not old enough"
        return ""


class RunFate(Noun):
    """What became of a run, or would; `reason` says why it stays or could not be removed whole."""

    run: str
    state: State
    size_bytes: int
    age_s: float
    verdict: Verdict
    reason: str = ""


class Cleaned(Noun):
    """What `clean` did, or would do; `forgotten` runs were in the index and gone from the disk."""

    dry_run: bool
    runs: tuple[RunFate, ...]
    forgotten: int

    @property
    def freed_bytes(self) -> int:
        """What the runs that went, or would go, take on the disk."""
        return sum(run.size_bytes for run in self.runs if run.verdict in ("goes", "gone"))
