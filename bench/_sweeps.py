"""The sweeps as data: their jobs, and what is asked of them."""

from dataclasses import dataclass, replace

from _arms import THREADS_ALONE, Work, commands_of
from _bars import FIXED, Bar

ARMS = ("auto", "again", "serial", "partitioned")
"""Run in every round."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Jobs, and what is asked of them.

    Attributes:
        title: In words.
        jobs: In the order of the list.
        bars: What is asked of ratios.
        alone: A job that each round also runs alone with one thread and with two.
        least_worth: What a second thread must be worth to it, for the sweep to be what it says.
        limit_bytes: Of memory, for the whole command.
        wide_times: The wide job's steps are chosen so that alone it takes so many times as long as
            the others one after another, and all jobs are known before the arms run.

    """

    title: str
    jobs: tuple[Work, ...]
    bars: tuple[Bar, ...]
    alone: Work | None = None
    least_worth: float | None = None
    limit_bytes: int | None = None
    wide_times: float | None = None

    @property
    def arms(self) -> list[str]:
        return [*ARMS, *(THREADS_ALONE if self.alone else ())]

    def scaled(self, scale: float) -> "Sweep":
        return replace(
            self,
            jobs=tuple(job.scaled(scale) for job in self.jobs),
            alone=self.alone and self.alone.scaled(scale),
        )

    def commands(self, arm: str) -> list[str]:
        alone = arm in THREADS_ALONE and self.alone
        return commands_of([alone] if alone else self.jobs)


SERIAL = ("serial",)
SMALL = Work("mlp", 30000)
LSTM = Work("lstm", 3600)
NO_LOSS = Bar(1.05, FIXED)
# Steps are counted for 10 s and more of them in the faster of one and two threads, on the fastest
# machine so far.
SWEEPS = {
    "a": Sweep(
        "six small perceptrons",
        6 * (SMALL,),
        (
            Bar(0.55, SERIAL),
            NO_LOSS,
            Bar(0.55, SERIAL, arm="partitioned"),
            Bar(0.4, ("xargs",), arm="partitioned"),
        ),
    ),
    "b": Sweep(
        "a wide job among four small ones",
        (SMALL, Work("wide", 400), *3 * (SMALL,)),
        (Bar(0.85, SERIAL), NO_LOSS),
        alone=Work("wide", 200),
        least_worth=1.6,
    ),
    "c": Sweep("four LSTMs of equal length", 4 * (LSTM,), (Bar(0.95, SERIAL), NO_LOSS), alone=LSTM),
    "d": Sweep(
        "four loader-bound jobs",
        4 * (Work("loader", 450),),
        (Bar(0.7, SERIAL), NO_LOSS, Bar(0.7, SERIAL, arm="partitioned")),
    ),
    "e": Sweep(
        "six jobs under 2 GB: two of 950 MiB and four of 650",
        2 * (Work("memory", 240, 950), *2 * (Work("memory", 380, 650),)),
        (Bar(1.1, FIXED), NO_LOSS, Bar(1.0, SERIAL, arm="partitioned")),
        limit_bytes=2_000_000_000,
    ),
    "f": Sweep(
        "a long wide job and two small ones, all known",
        (SMALL, Work("wide", 60), SMALL),  # 60 steps are enough to time one
        (Bar(0.85, ("serial", "partitioned")),),
        wide_times=1.5,
    ),
}
