"""A job, measured: what it does, how long, how large."""

from math import log2
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from headway.core.estimate import Estimate
from headway.core.job import Name
from headway.core.noun import Noun
from headway.core.units import NS_PER_S

# What twice the threads are worth where only one count was measured; see `Workload.pace`.
WORTH_LEAST, WORTH_LIKELY, WORTH_MOST = 0.8, 1.25, 1.8
_BOUNDS = ("low", "value", "high")


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


class Pace(Noun):
    """How a job goes alone, computing with so many threads on as many cores of its own.

    `work` is in seconds, start-up not counted, and `step` one step of it, where that was seen;
    `cores` is how many it keeps busy on average.
    """

    threads: Annotated[int, Field(ge=1)]
    work: Estimate
    step: Estimate | None = None
    cores: Annotated[float, Field(gt=0)] = 1.0


class Workload(Noun):
    """What is known of one job: its ops in the order they run, and its figures with bounds.

    `start_up` is what passes before the first step (imports, loading data), apart from the ops;
    `duration` is both together with the machine to itself; `steps` is None where they cannot be
    seen. `paces` are those that were measured, by threads; with none, the ops are as they stand
    whatever the threads. `own_threads` is the count it takes by itself; None: one for each core
    that it sees. `device_bytes` is the most that it holds of the memory of each device that it
    uses, its context not counted; `device_busy` is the part of the time in which a kernel of it
    runs there while it is alone on a whole one, and `device_part` the part of that device that it
    keeps busy all in all: the multiprocessors that its kernels fill count too. None: not known, or
    it uses none. `remark` says what a reader should know of where the figures come from.
    """

    job: Name
    ops: Annotated[tuple[Op, ...], Field(min_length=1)]
    start_up: Estimate
    duration: Estimate
    peak_bytes: Estimate
    steps: Estimate | None = None
    paces: tuple[Pace, ...] = ()
    own_threads: Annotated[int, Field(ge=1)] | None = None
    device_bytes: Estimate | None = None
    device_busy: Estimate | None = None
    device_part: Estimate | None = None
    remark: str = ""

    @model_validator(mode="after")
    def _paces_in_order(self) -> Self:
        threads = [pace.threads for pace in self.paces]
        if threads != sorted(set(threads)):
            raise ValueError(f"paces must ascend in threads, each count once; given {threads}")
        return self

    @property
    def known(self) -> bool:
        """Whether it can be said how long the job takes."""
        return self.duration.known

    def pace(self, threads: int) -> Pace:
        """How it goes with so many threads: measured, or reckoned from the nearest count that was.

        What doubling the threads is worth differs from job to job: measured on two cores were 0.87
        for a small perceptron and 1.68 to 1.70 for an LSTM, a wide perceptron and a large vector.
        The bounds of a pace that was not measured hold all of these.

        >>> def seconds(value):
        ...     return Estimate(
        ...         value=value, low=value, high=value, unit="s", origin="measured", source="a run"
        ...     )
        >>> job = Workload.opaque("a", work_ns=10**10).model_copy(
        ...     update={"paces": (Pace(threads=1, work=seconds(10.0)),)}
        ... )
        >>> guess = job.pace(2).work
        >>> round(guess.low, 1), round(guess.value, 1), round(guess.high, 1), guess.origin
        (5.6, 8.0, 12.5, 'extrapolated')
        """
        if not self.paces:
            op = self.ops[0]
            return Pace(threads=threads, work=self._work(), cores=op.cores)
        near = min(self.paces, key=lambda pace: (abs(log2(pace.threads / threads)), pace.threads))
        if near.threads == threads:
            return near
        doublings = log2(threads / near.threads)
        with_threads = f"with {near.threads} thread" + ("" if near.threads == 1 else "s")
        factors = sorted(worth**-doublings for worth in (WORTH_MOST, WORTH_LIKELY, WORTH_LEAST))

        def reckoned(measured: Estimate) -> Estimate:
            return measured.model_copy(
                update={
                    "low": measured.low * factors[0],
                    "value": measured.value * factors[1],
                    "high": measured.high * factors[2],
                    "origin": "extrapolated",
                    "source": f"{measured.source}, {with_threads}",
                }
            )

        return Pace(
            threads=threads,
            work=reckoned(near.work),
            step=None if near.step is None else reckoned(near.step),
            cores=max(1.0, near.cores * threads / near.threads),
        )

    def exactly(self, bound: Literal["low", "value", "high"]) -> "Workload":
        """The same job with every estimate taken for exact at one of its bounds."""

        def pinned(estimate: Estimate) -> Estimate:
            at = getattr(estimate, bound)
            return estimate.model_copy(update={"low": at, "value": at, "high": at})

        def pinned_if_known(estimate: Estimate | None) -> Estimate | None:
            return None if estimate is None else pinned(estimate)

        return self.model_copy(
            update={
                "start_up": pinned(self.start_up),
                "duration": pinned(self.duration),
                "peak_bytes": pinned(self.peak_bytes),
                "device_bytes": pinned_if_known(self.device_bytes),
                "device_busy": pinned_if_known(self.device_busy),
                "device_part": pinned_if_known(self.device_part),
                "paces": tuple(
                    pace.model_copy(update={"work": pinned(pace.work)}) for pace in self.paces
                ),
            }
        )

    def ops_with(self, threads: int) -> tuple[Op, ...]:
        """What the job does when it computes with so many threads."""
        if not self.paces:
            return self.ops
        pace = self.pace(threads)
        op = self.ops[0]
        work_ns = round(pace.work.value * NS_PER_S)
        return (op.model_copy(update={"work_ns": work_ns, "cores": pace.cores}),)

    def _work(self) -> Estimate:
        duration, start_up_s = self.duration, self.start_up.value
        bounds = {name: max(0.0, getattr(duration, name) - start_up_s) for name in _BOUNDS}
        return duration.model_copy(update=bounds)

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
        device_bytes: int | None = None,
        device_busy: float | None = None,
        device_part: float | None = None,
        source: str = "stated",
    ) -> "Workload":
        """A command nobody looks into, its figures taken for exact.

        >>> Workload.opaque("a", work_ns=2_000_000_000, start_up_ns=500_000_000).duration.value
        2.5
        """

        def exactly(value: float, unit: Literal["s", "bytes", "steps", "ratio"]) -> Estimate:
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
            device_bytes=None if device_bytes is None else exactly(device_bytes, "bytes"),
            device_busy=None if device_busy is None else exactly(device_busy, "ratio"),
            device_part=None if device_part is None else exactly(device_part, "ratio"),
        )
