"""What there is to show of a run beside its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import Plan
from headway.core.timeline import Reading, Timeline
from headway.forecast.expected import Expected


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of what an attempt wrote to a stream; `cut` where there was more before it."""

    stream: str
    content: bytes
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Happened:
    """What there is to show beside a result; every part but the first two may be missing.

    `jobs` are in the order of the result's, `tails` by a job's index.
    """

    machine: Machine
    plan: Plan
    jobs: Sequence[Job] = ()
    timeline: Timeline | None = None
    readings: Sequence[Reading] = ()
    expected: Expected | None = None
    tails: Mapping[int, Sequence[Tail]] = field(default_factory=dict)
