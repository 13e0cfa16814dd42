"""A job, measured: what it does, how long, how large."""

from typing import Annotated, Literal

from pydantic import Field

from headway.core.estimate import Estimate
from headway.core.job import Name
from headway.core.noun import Noun


class Op(Noun):
    """One piece of a job's work; a command nobody looks into is a single opaque one.

    `work_ns` is how long it takes with all that it demands to itself: `cores` may be a part of a
    core, `memory_bytes` is what it holds at most.
    """

    id: str
    kind: Literal["opaque"] = "opaque"
    work_ns: Annotated[int, Field(ge=0)]
    cores: Annotated[float, Field(gt=0)] = 1.0
    memory_bytes: Annotated[int, Field(ge=0)] = 0


class Workload(Noun):
    """What is known of one job: its ops in the order they run, and its figures with bounds.

    `start_up` is what passes before the first step (imports, loading data), apart from the ops;
    `duration` is both together with the machine to itself; `steps` is None where they cannot be
    seen.
    """

    job: Name
    ops: Annotated[tuple[Op, ...], Field(min_length=1)]
    start_up: Estimate
    duration: Estimate
    peak_bytes: Estimate
    steps: Estimate | None = None

    @classmethod
    def opaque(
        cls,
        job: str,
        *,
        work_ns: int,
        start_up_ns: int = 0,
        cores: float = 1.0,
        peak_bytes: int = 0,
        steps: int | None = None,
        source: str = "stated",
    ) -> "Workload":
        """A command nobody looks into, its figures taken for exact.

        >>> Workload.opaque("a", work_ns=2_000_000_000, start_up_ns=500_000_000).duration.value
        2.5
        """

        def exactly(value: float, unit: Literal["s", "bytes", "steps"]) -> Estimate:
            return Estimate(
                value=value, low=value, high=value, unit=unit, origin="assumed", source=source
            )

        return cls(
            job=job,
            ops=(Op(id=job, work_ns=work_ns, cores=cores, memory_bytes=peak_bytes),),
            start_up=exactly(start_up_ns / 1e9, "s"),
            duration=exactly((start_up_ns + work_ns) / 1e9, "s"),
            peak_bytes=exactly(peak_bytes, "bytes"),
            steps=None if steps is None else exactly(steps, "steps"),
        )
