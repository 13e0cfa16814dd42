"""The four fixed ways of running a list on one host: which share each job is given.

serial       one after another, environment untouched
naive        everything at once, no limits: what happens when nobody divides anything
shared       as many at once as there are cores, threads divided, free to move between cores
partitioned  the same, but each job on cores of its own, its declared memory a cap
"""

from collections.abc import Mapping, Sequence

from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import Mode, Placement, Plan, PolicyChoice
from headway.core.threads import own_threads


def fixed_plan(
    jobs: Sequence[Job],
    machine: Machine,
    *,
    mode: Mode,
    keep_threads: bool = False,
    environment: Mapping[str, str],
) -> Plan:
    """The plan of one fixed mode for these jobs.

    Args:
        jobs: In the order of the file.
        machine: Its usable cores bound what runs at once.
        mode: One of the four above.
        keep_threads: Leave every thread count as the caller's environment has it; a job whose count
            is not set anywhere then takes all cores, as its library would.
        environment: The caller's variables: a thread count set there is never overridden.
    """
    cores = machine.usable_cores
    slots = {"serial": 1, "naive": None}.get(mode, cores)
    divides = mode in ("shared", "partitioned")
    placements = tuple(
        _placement(job, cores, divides, mode, keep_threads, environment) for job in jobs
    )
    policy = PolicyChoice(
        name="queue",
        knobs={"slots": slots, "pin": mode == "partitioned", "admit": mode != "naive"},
    )
    return Plan(mode=mode, policy=policy, placements=placements, reason=_reason(mode, cores))


def _placement(
    job: Job,
    cores: int,
    divides: bool,
    mode: Mode,
    keep_threads: bool,
    environment: Mapping[str, str],
) -> Placement:
    alone = job.mode == "alone"
    theirs = own_threads(job, environment)
    if not divides:
        # serial and naive are what the user would get without Headway: only `threads=` is written.
        return Placement(job=job.name, threads=job.threads, devices=job.gpus or 0, alone=alone)
    untouched = job.threads is None and (keep_threads or theirs is not None)
    default = cores if alone or (keep_threads and theirs is None) else 1
    wanted = job.cores or job.threads or theirs or default
    return Placement(
        job=job.name,
        cores=wanted if job.cores else min(wanted, cores),
        threads=None if untouched else job.threads or min(wanted, cores),
        devices=job.gpus or 0,
        alone=alone,
        cap_memory=mode == "partitioned" and job.memory_bytes is not None,
    )


def _reason(mode: Mode, cores: int) -> str:
    return {
        "serial": "one after another, each with the environment as it is",
        "naive": "everything at once, nothing divided",
        "shared": f"up to {cores} at once, threads divided, free to move between cores",
        "partitioned": f"up to {cores} at once, each on cores of its own",
    }[mode]
