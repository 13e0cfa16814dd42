"""The four fixed ways of running a list on one host: which share each job is given.

serial       one after another, environment untouched
naive        everything at once, no limits: what happens when nobody divides anything
shared       as many at once as there are cores, threads divided, free to move between cores
partitioned  the same, but each job on cores of its own, its declared memory a cap
"""

import re
import shlex
from collections.abc import Mapping, Sequence

from headway.core.environment import THREAD_VARIABLES
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import Mode, Placement, Plan, PolicyChoice

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_BEFORE_ASSIGNMENTS = {"env", "export", ";", "&&", "\n"}


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


def own_threads(job: Job, environment: Mapping[str, str]) -> int | None:
    """The thread count that the user set for a job outside `threads=`: command, env, caller."""
    for name in THREAD_VARIABLES:
        for text in (
            _leading(job.command).get(name),
            dict(job.env).get(name),
            environment.get(name),
        ):
            # OMP_NUM_THREADS may be a list for nested levels; the first entry is the outer one.
            first = (text or "").split(",")[0].strip()
            if first.isdigit() and int(first) > 0:
                return int(first)
    return None


def _leading(command: str) -> dict[str, str]:
    """Assignments in front of a shell command: ``A=1 B=2 python ...``, also after env or export.

    >>> _leading("export A=1; B='2 3' env C=4 python train.py D=5")
    {'A': '1', 'B': '2 3', 'C': '4'}
    """
    try:
        # Shells end a word at these too; quotes are taken off.
        lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|\n")
        lexer.whitespace = " \t\r"
        words = list(lexer)
    except ValueError:
        return {}
    found: dict[str, str] = {}
    for word in words:
        assignment = _ASSIGNMENT.fullmatch(word)
        if assignment:
            found[assignment[1]] = assignment[2]
        elif word not in _BEFORE_ASSIGNMENTS:
            break
    return found


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
