"""Random lists of jobs on GPUs of the catalogue, all exactly known, and all ways to run them.

Nothing of them was measured on a GPU: they try a planner, not a device.
"""

import random
from collections.abc import Iterator
from itertools import product
from math import inf

from headway.core import catalogue
from headway.core.plan import Layout, Plan
from headway.core.units import GIB, NS_PER_S
from headway.core.workload import Workload
from headway.forecast.queue import Forecast
from headway.planners.gpu_sharing import divisible, maximal_layouts, mig_plan
from headway.planning import score
from headway.testing.queues import FakeQueue, fake_job

KINDS = ("a100-40gb", "a30-24gb", "h100-80gb")


def gpu_queue(source: random.Random) -> FakeQueue:
    """Two to seven jobs on one or two GPUs of a kind that can be divided.

    They last 1 to 15 minutes, have a kernel running for 20% to 100% of the time that fills 5% to
    100% of the multiprocessors, and hold 1 to 20 GiB; one in ten wants two GPUs where there are
    two.
    """
    count = source.choice((1, 2))
    machine = catalogue.machine(source.choice(KINDS), count=count)
    jobs, workloads = [], {}
    for number in range(1, source.randint(2, 7) + 1):
        wants = 2 if count == 2 and source.random() < 0.1 else 1
        job = fake_job(f"job-{number}", gpus=wants)
        busy = source.uniform(0.2, 1.0)
        jobs.append(job)
        workloads[job.name] = Workload.opaque(
            job.name,
            work_ns=round(source.uniform(60, 900) * NS_PER_S),
            start_up_ns=round(source.uniform(2, 10) * NS_PER_S),
            peak_bytes=GIB,
            device_bytes=round(20 ** source.random() * GIB),
            device_busy=busy,
            device_part=busy * source.uniform(0.05, 1.0),
        )
    return FakeQueue(jobs=jobs, machine=machine, workloads=workloads)


def every_division(queue: FakeQueue, plain: Plan) -> Iterator[Plan]:
    """A plan for each combination of layouts of the queue's GPUs, those left whole among them.

    Layouts to which an instance could be added are left out: whatever can be done with them can be
    done with that instance beside.
    """
    how = divisible(queue.machine)
    gpus = [device.uuid for device in queue.machine.devices]
    choices = [[None, *maximal_layouts(how[gpu].table)] for gpu in gpus]
    workloads = [queue.workloads[job.name] for job in queue.jobs]
    for chosen in product(*choices):
        layouts = [
            Layout(gpu=gpu, profiles=profiles)
            for gpu, profiles in zip(gpus, chosen, strict=True)
            if profiles is not None
        ]
        if layouts:
            yield mig_plan(plain, workloads, layouts)


def ends_s(plan: Plan, queue: FakeQueue) -> float:
    """When a queue would end under a plan, in s; infinity where a job of it never could."""
    workloads = [queue.workloads[job.name] for job in queue.jobs]
    told = score(plan, queue.jobs, workloads, queue.machine, bounds=False)
    return told.makespan.value if complete(told) else inf


def complete(told: Forecast) -> bool:
    """Whether every job has its place and the memory that it needs."""
    infeasible = any(job.status == "infeasible" for job in told.jobs)
    return told.makespan.known and not told.lost and not infeasible
