"""What policies and worlds say to each other: events, actions, outcomes and shares.

Plain frozen records without behaviour: the journal writes them down and reads them back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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


NO_DEVICE = -1
"""A device of which nobody knows which one it is."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended.

    `status` is the word it would be settled with; `cause` says why in words. `stopped` is how
    Headway itself ended it, if it did. `retry_helps` is False where a larger reservation cannot
    change the outcome (a limit the user set). `device` is the one whose memory was full, by index,
    or `NO_DEVICE`; None where it was none's. The rest is what was measured: `steps` of the process
    that made the most, the time of the first one, the median step and the mean of all but the
    first, and `unseen`, the reason in words where steps could not be seen; `device_peak_bytes` is
    what its processes held of all devices' memory, contexts not counted, `device_busy` the part of
    the time in which a kernel ran on its only device, and `device_part` the part of that device in
    use.
    """

    status: Status
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    peak_bytes: int | None = None
    retry_helps: bool = True
    device: int | None = None
    stopped: StopHow | None = None
    steps: int | None = None
    step_ns: int | None = None
    mean_step_ns: int | None = None
    first_step_ns: int | None = None
    cpu_s: float | None = None
    device_peak_bytes: int | None = None
    device_busy: float | None = None
    device_part: float | None = None
    unseen: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """What a started job is given; None leaves a thing as the caller's environment has it.

    `device_bytes` is what of the memory of each of its devices is counted as its own, others being
    given the rest; None: its devices are its alone. `device_part` is the most of each device's
    multiprocessors that all its processes together may use; None: no limit.
    """

    cores: tuple[int, ...] | None = None
    threads: int | None = None
    reserved_bytes: int = 0
    cap_bytes: int | None = None
    devices: tuple[int, ...] = ()
    device_bytes: int | None = None
    device_part: float | None = None
    alone: bool = False


# --- Events: what happened. `t` is integer ns on the driver's clock. -----------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """A job may be placed from now on (also after its predecessors ended ok).

    A Tick follows the last of those that arrive at one instant.
    """

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
class Replanned:
    """Jobs that wait may have other placements from now on."""

    t: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; readings in the view are fresh."""

    t: int


Event = Arrived | Started | Phase | Exited | MemoryPressure | Cancelled | Replanned | Tick


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
    """Why a job waits: the pending reason on the screen.

    `wants` is how many cores it would take at once if other runs held none; None where they are not
    what it waits for.
    """

    job: int
    reason: str
    wants: int | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Put an ended job back into the queue, with this reservation for its next attempt."""

    job: int
    reserved_bytes: int | None
    reason: str
    counts: Literal["retry", "oom", "none"]


@dataclass(frozen=True, slots=True)
class Replan:
    """Something was learnt that may change the plan; a Replanned event follows in any case."""

    reason: str


@dataclass(frozen=True, slots=True)
class Settle:
    """The job's final word."""

    job: int
    status: Status
    cause: str


Action = Start | Reshare | Stop | Reserve | Wait | Retry | Replan | Settle
Memory = Mapping[str, Any]
