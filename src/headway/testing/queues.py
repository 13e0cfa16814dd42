"""Queues to try a policy on: jobs with what they do in the simulated world."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Any

from headway.core.estimate import Estimate
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import Mode, Plan
from headway.core.units import MIB, NS_PER_S, Unit
from headway.core.workload import Pace, Workload
from headway.planners.collocation import fixed_plan
from headway.sim.attempt import MILLI, Fate
from headway.sim.world import SimulatedWorld
from headway.testing.machines import fake_machine


def fake_job(name: str, **asked: Any) -> Job:
    """A job of this name; `asked` are fields of `Job`."""
    return Job.model_validate({"name": name, "command": f"./{name}", "folder": "/work", **asked})


def fake_jobs(count: int, **asked: Any) -> list[Job]:
    """Jobs of one script, named ``job-1`` and so on, that all ask for the same.

    >>> [job.name for job in fake_jobs(2, memory_bytes=2**30)]
    ['job-1', 'job-2']
    """
    return [
        fake_job(f"job-{number}", **{"command": f"./train {number}", **asked})
        for number in range(1, count + 1)
    ]


@dataclass(frozen=True, slots=True)
class FakeQueue:
    """A list of jobs on a machine, and what each does there.

    Where `workloads` has no entry for a job, it works for ten seconds on one core, with a tenth of
    a GiB.
    """

    jobs: Sequence[Job]
    machine: Machine = field(default_factory=fake_machine)
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    fates: Mapping[str, Fate] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def plan(self, mode: Mode) -> Plan:
        """The plan of a fixed mode."""
        return fixed_plan(self.jobs, self.machine, mode=mode, environment=self.environment)

    def world(self, plan: Plan, *, tick_ns: int = NS_PER_S) -> SimulatedWorld:
        """A new world in which this plan can be carried out."""
        return SimulatedWorld(
            self.jobs,
            plan.placements,
            self.machine,
            [self.workloads.get(job.name) or _usual(job) for job in self.jobs],
            fates=self.fates,
            tick_ns=tick_ns,
            idle_ticks=500,
        )


def _usual(job: Job) -> Workload:
    return Workload.opaque(
        job.name, work_ns=10 * NS_PER_S, start_up_ns=NS_PER_S, peak_bytes=10**8, steps=100
    )


def exactly(value: float, unit: Unit = "s") -> Estimate:
    """What was measured and never varies."""
    return Estimate(
        value=value, low=value, high=value, unit=unit, origin="measured", source="2 runs"
    )


def known_job(
    name: str, paces: Mapping[int, tuple[float, float]], *, start_up_s: float, peak_bytes: int
) -> Workload:
    """A job of which all is exactly known.

    Args:
        name: Of the job.
        paces: Seconds of work and cores kept busy by count of threads; the highest count is what
            it takes by itself.
        start_up_s: Before its first step.
        peak_bytes: What it holds at most.
    """
    work_s, busy = paces[max(paces)]
    opaque = Workload.opaque(name, work_ns=round(work_s * NS_PER_S), cores=busy)
    return opaque.model_copy(
        update={
            "start_up": exactly(start_up_s),
            "duration": exactly(start_up_s + work_s),
            "peak_bytes": exactly(peak_bytes, "bytes"),
            "paces": tuple(
                Pace(threads=threads, work=exactly(work), cores=cores)
                for threads, (work, cores) in sorted(paces.items())
            ),
            "own_threads": max(paces),
        }
    )


def known_queue(source: random.Random) -> FakeQueue:
    """Two to seven jobs as trainings are, on two or four cores, all exactly known.

    They last 10 to 1,000 s on a core and start up for 1 to 8 s; twice the threads are worth 0.8 to
    1.9. One in five has processes that load data beside its threads, one in five waits for
    something at times. In one list of three memory for all is not there.
    """
    cores = source.choice((2, 4))
    machine = fake_machine(cores=cores)
    tight = source.random() < 1 / 3
    jobs = fake_jobs(source.randint(2, 7))
    workloads = {}
    for job in jobs:
        alone_s, worth = 10 ** source.uniform(1, 3), source.uniform(0.8, 1.9)
        kind = source.choice(("plain", "plain", "plain", "loads", "waits"))
        beside = source.randint(200, 800) / MILLI if kind == "loads" else 0.0
        part = source.randint(400, 950) / MILLI if kind == "waits" else 1.0
        held = source.uniform(0.1, 0.75) if tight else 0.0
        workloads[job.name] = known_job(
            job.name,
            {
                threads: (alone_s / worth ** log2(threads), min(cores, threads * part + beside))
                for threads in (1, 2, 4)
                if threads <= cores
            },
            start_up_s=source.uniform(1, 8),
            peak_bytes=100 * MIB + int(held * machine.capacity_bytes),
        )
    return FakeQueue(jobs=jobs, machine=machine, workloads=workloads)
