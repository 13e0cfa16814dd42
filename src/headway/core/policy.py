"""A Policy decides, a World acts: the words they speak, and the protocols of both.

`drive(policy, world)` (sim/drive.py) is the only loop; the simulated world and every engine's
world speak these same events and actions, so what was simulated is what runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from headway.core.noun import Noun

if TYPE_CHECKING:
    from headway.core.job import Job
    from headway.core.machine import Machine
    from headway.core.plan import Plan
    from headway.core.run import Run
    from headway.core.view import View

Status = Literal[
    "waiting",
    "running",
    "ok",
    "failed",
    "oom",
    "timeout",
    "stalled",
    "cancelled",
    "infeasible",
    "lost",
]
FINAL: frozenset[str] = frozenset(
    {"ok", "failed", "oom", "timeout", "stalled", "cancelled", "infeasible", "lost"}
)
StopHow = Literal["memory", "timeout", "stall", "cancel", "interrupt"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended.

    `status` is the word it would be settled with; `cause` says why in words. `stopped` is how
    Headway itself ended it, if it did. `retry_helps` is False where a larger reservation cannot
    change the outcome (a limit the user set). The rest is what was measured: `steps` of the
    process that made the most, the time of the first one, the median step, and `unseen`, the
    reason in words where steps could not be seen.
    """

    status: Status
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    peak_bytes: int | None = None
    retry_helps: bool = True
    stopped: StopHow | None = None
    steps: int | None = None
    step_ns: int | None = None
    first_step_ns: int | None = None
    cpu_s: float | None = None
    unseen: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """What a started job is given; None leaves a thing as the caller's environment has it."""

    cores: tuple[int, ...] | None = None
    threads: int | None = None
    reserved_bytes: int = 0
    cap_bytes: int | None = None
    devices: tuple[int, ...] = ()
    alone: bool = False


# --- Events: what happened. `t` is integer ns on the driver's clock. -----------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """A job may be placed from now on (also after its predecessors ended ok)."""

    t: int
    job: int


@dataclass(frozen=True, slots=True)
class Started:
    """A job's command runs."""

    t: int
    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Phase:
    """A job left its start-up: it steps, or where steps cannot be seen its memory is steady."""

    t: int
    job: int
    phase: Literal["steps", "steady"]


@dataclass(frozen=True, slots=True)
class Exited:
    """An attempt and its whole tree ended; the policy answers with Settle or Retry."""

    t: int
    job: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """Free memory of the host (or of the cgroup we are in) fell below the guard's mark."""

    t: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The user cancelled a job that was not running; it is settled already."""

    t: int
    job: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; readings in the view are fresh."""

    t: int


Event = Arrived | Started | Phase | Exited | MemoryPressure | Cancelled | Tick


# --- Actions: what shall be done. ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Start a new attempt of a job with this share."""

    job: int
    share: Share


@dataclass(frozen=True, slots=True)
class Reshare:
    """Confine a running job to these cores."""

    job: int
    cores: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End a running attempt; an Exited event follows."""

    job: int
    how: StopHow
    reason: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Correct the memory reserved for a running job."""

    job: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waits: the pending reason on the screen."""

    job: int
    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Put an ended job back into the queue, with this reservation for its next attempt."""

    job: int
    reserved_bytes: int | None
    reason: str
    counts: Literal["retry", "oom", "none"]


@dataclass(frozen=True, slots=True)
class Settle:
    """The job's final word."""

    job: int
    status: Status
    cause: str


Action = Start | Reshare | Stop | Reserve | Wait | Retry | Settle
Memory = Mapping[str, Any]


class Policy(Noun, ABC):
    """Decides who starts when. Pure: no I/O, no clock; its memory is plain JSON data."""

    @abstractmethod
    def start(self, view: "View") -> Memory:
        """The memory before the first event."""

    @abstractmethod
    def decide(self, memory: Memory, event: Event, view: "View") -> tuple[Memory, Sequence[Action]]:
        """The new memory, and what shall be done now; the arguments are not changed."""


class World(Protocol):
    """Where actions happen and events come from; simulated or real."""

    view: "View"

    def recall(self) -> Memory | None:
        """The policy's memory of an earlier life of this run, or None."""

    def next(self) -> Event | None:
        """The next event, or None when there is nothing left to wait for."""

    def perform(self, action: Action) -> None:
        """Do it, and let the view say so."""

    def remember(self, memory: Memory) -> None:
        """Keep the policy's memory with the journal."""


class Engine(Noun, ABC):
    """Carries a Plan out on real machines."""

    @abstractmethod
    def open(
        self,
        run: "Run",
        plan: "Plan",
        jobs: Sequence["Job"],
        machine: "Machine",
        *,
        resume: bool,
        recorder: Path | None,
        environment: Mapping[str, str],
    ) -> AbstractContextManager[World]:
        """A world over the run; leaving it releases everything but what still runs."""
