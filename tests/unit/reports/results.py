"""A run that never was, with everything that a page can show; strangers' texts can be chosen."""

from dataclasses import dataclass

from headway.core.estimate import Estimate
from headway.core.job import Job
from headway.core.plan import Plan, PolicyChoice
from headway.core.run import CommonWindow, JobResult, Result, Slowdown
from headway.core.timeline import Header, Reading, Span, Timeline
from headway.core.units import GIB, NS_PER_S
from headway.forecast.expected import Expected
from headway.forecast.queue import JobForecast
from headway.reports.curves import Curves
from headway.reports.happened import Happened, Tail
from headway.testing.machines import fake_machine

T = 1_700_000_000.0


def about(value, low, high, *, unit="s", origin="measured", source="9 runs"):
    return Estimate(value=value, low=low, high=high, unit=unit, origin=origin, source=source)


def slowdown(took_s, alone_s, *, source="9 runs"):
    alone = about(alone_s, alone_s * 0.9, alone_s * 1.1, source=source)
    ratio = about(
        took_s / alone.value, took_s / alone.high, took_s / alone.low, unit="ratio", source=source
    )
    return Slowdown(alone=alone, times=ratio)


@dataclass(frozen=True)
class Texts:
    """What strangers wrote."""

    name: str = "lstm"
    text: str = "exit 1: ValueError"
    log: bytes = b"step 1\nstep 2\n"


def ran(job: int, begin_s: float, end_s: float, *, core=0, attempt=1, status="ok", first_s=None):
    """The spans of an attempt."""
    parts = [("command", begin_s, end_s)]
    if first_s is not None:
        parts = [("start-up", begin_s, first_s), ("steps", first_s, end_s)]
    return [
        Span(
            t=int(start * NS_PER_S),
            d=int((stop - start) * NS_PER_S),
            lane="n0/host" if core is None else f"n0/core{core}",
            kind="host" if name == "start-up" else "compute",
            name=name,
            job=job,
            args={"attempt": attempt, "status": status},
        )
        for name, start, stop in parts
    ]


def timeline(*spans):
    return Timeline(header=Header(source="measured"), spans=tuple(spans))


def job(name, begin_s=0.0, end_s=60.0, **more):
    given = {"status": "ok", "attempts": 1, "threads": 1, "cores": (0,), **more}
    return JobResult(**{"name": name, "start": T + begin_s, "end": T + end_s, **given})


def result(*jobs, seconds=118.0, **more):
    given = {"outcome": "ok", "mode": "partitioned", **more}
    return Result(start=T, end=T + seconds, jobs=jobs, **given)


def happened(*, jobs=(), reason="2 at a time", cores=2, **more):
    plan = Plan(mode="partitioned", policy=PolicyChoice(name="queue"), placements=(), reason=reason)
    return Happened(machine=fake_machine(cores), plan=plan, jobs=jobs, **more)


def readings():
    """Memory of two jobs over five looks, and steps of the first."""
    return [
        Reading(t=second * NS_PER_S, lane=lane, name=name, value=value)
        for second in range(1, 6)
        for lane, name, value in (
            ("job/1", "resident_bytes", GIB * second / 5),
            ("job/1", "steps", 20 * second),
            ("job/2", "resident_bytes", 1.5 * GIB * second / 5),
        )
    ]


def everything(texts: Texts | None = None) -> tuple[Result, Happened]:
    """Three jobs on two cores, the second of which failed once and then for good."""
    texts = texts or Texts()
    names = [f"{texts.name}-{letter}" for letter in "abc"]
    source = texts.text
    jobs = (
        job(
            names[0],
            0.0,
            60.0,
            peak_bytes=GIB,
            steps=1240,
            step_s=0.0341,
            first_step=T + 4.0,
            predicted=about(58.0, 50.0, 66.0, origin="modelled", source=source),
            as_placed=slowdown(60.0, 57.0, source=source),
            by_default=slowdown(60.0, 50.0, source=source),
            notes=(texts.text,),
        ),
        job(
            names[1],
            30.0,
            42.0,
            status="failed",
            exit_code=1,
            attempts=2,
            cores=(1,),
            cause=texts.text,
        ),
        job(
            names[2],
            60.0,
            118.0,
            cores=(0, 1),
            threads=2,
            peak_bytes=2 * GIB,
            predicted=about(40.0, 35.0, 45.0, origin="modelled", source=source),
        ),
    )
    ratio = {"unit": "ratio", "source": source}
    whole = result(
        *jobs,
        outcome="failed",
        notes=(texts.text,),
        predicted=about(110.0, 100.0, 120.0, origin="modelled", source=source),
        serial=about(224.2, 210.0, 240.0, origin="assumed", source=source),
        weighted_speed_up=about(1.9, 1.78, 2.03, **ratio),
        mean_slowdown=about(1.2, 1.09, 1.33, **ratio),
        windows=(
            CommonWindow(
                jobs=(names[0], names[2]),
                seconds=31.0,
                progress=(about(0.93, 0.9, 0.96, **ratio), about(0.88, 0.8, 0.95, **ratio)),
                weighted_speed_up=about(1.81, 1.7, 1.91, **ratio),
            ),
        ),
        limited_by=f"the end: {texts.text}",
    )
    shown = happened(
        jobs=[Job(name=name, command=f"python {texts.text}", folder="/home/me") for name in names],
        reason=texts.text,
        timeline=timeline(
            *ran(0, 0.0, 60.0, first_s=4.0),
            *ran(1, 0.0, 20.0, core=1, status="failed"),
            *ran(1, 30.0, 42.0, core=1, attempt=2, status="failed"),
            *ran(2, 60.0, 118.0),
        ),
        curves=Curves.of(readings()),
        expected=Expected(
            makespan=about(110.0, 100.0, 120.0),
            jobs=tuple(
                JobForecast(name=name, status="ok", start_s=20.0 * n, end_s=20.0 * n + 40)
                for n, name in enumerate(names)
            ),
        ),
        tails={index: [Tail("stderr", texts.log), Tail("stdout", texts.log)] for index in range(3)},
    )
    return whole, shown
