"""What there is to show of a run beside its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headway.core.estimate import Estimate
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import Plan
from headway.core.timeline import Timeline
from headway.forecast.expected import Expected
from headway.reports.curves import Curves


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of what an attempt wrote to a stream; `cut` where there was more before it."""

    stream: str
    content: bytes
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Happened:
    """What there is to show beside a result; every part but the first two may be missing.

    `jobs` are in the order of the result's, `tails` and `left_of` by a job's index. While the run
    goes on it is `live`, and `left` and `left_of` tell how many seconds it and its jobs still take.
    """

    machine: Machine
    plan: Plan
    jobs: Sequence[Job] = ()
    timeline: Timeline | None = None
    curves: Curves = field(default_factory=Curves)
    expected: Expected | None = None
    tails: Mapping[int, Sequence[Tail]] = field(default_factory=dict)
    live: bool = False
    left: Estimate | None = None
    left_of: Mapping[int, Estimate] = field(default_factory=dict)
