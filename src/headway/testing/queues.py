"""Queues to try a policy on: jobs with what they do in the simulated world."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import Mode, Plan
from headway.core.units import NS_PER_S
from headway.core.workload import Workload
from headway.planners.collocation import fixed_plan
from headway.sim.attempt import Fate
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
