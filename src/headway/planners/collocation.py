"""The ways of running a list on one host: which share each job is given, and which way is best.

serial       one after another, environment untouched
naive        everything at once, no limits: what happens when nobody divides anything
shared       as many at once as there are cores, threads divided, free to move between cores
partitioned  the same, but each job on cores of its own, its declared memory a cap
mixed        partitioned with as many cores for each job as end the list early, in such an order

[Note: what is not known is tried] Until a job was measured nobody can say what it gains from a
second core. It starts on one of its own, which costs it at most what its threads would have gained
(1.8 times as long was the most seen), and takes the idle ones beside it where nobody else can.
That no gain beats a small one holds for measured jobs only: else nothing would ever be learnt.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from headway.core.errors import DoesNotFit
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.noun import Noun
from headway.core.plan import MODES, Mode, Placement, Plan, PolicyChoice, digest_of
from headway.core.threads import own_threads
from headway.core.workload import Workload
from headway.forecast.queue import Forecast
from headway.numerics.moldable import Moldable, best_schedule

# How many jobs may run side by side in a plan that is looked into: the work grows with the square.
MOST_AT_ONCE = 32
# About so many jobs are looked at in loose plans of each kind: of a long list few plans, or none.
LOOSE_JOBS = 1000
# A job that computes all the time keeps its cores this nearly busy.
LEFT_IDLE = 0.1
# More jobs at once than cores are worth it where they promise this part more: what they cost each
# other in caches and switches is not in the model, and they hold more memory.
CROWD_COST = 0.05
# A run's time differs by this part from one time to the next: less is no gain.
LEAST_GAIN = 0.03
# Of two that end at the same time the simpler one is taken.
_SIMPLE: tuple[Mode, ...] = ("serial", "partitioned", "shared", "mixed", "naive")


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
    return Plan(
        mode=mode,
        policy=policy,
        placements=placements,
        keep_threads=keep_threads,
        jobs_digest=digest_of(jobs),
        reason=_reason(mode, cores),
    )


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


def mixed_plan(
    jobs: Sequence[Job],
    machine: Machine,
    workloads: Sequence[Workload],
    *,
    keep_threads: bool = False,
    environment: Mapping[str, str],
) -> Plan:
    """Cores for each job and an order in which the list is predicted to end early.

    Jobs of unknown duration come first, on one core each, so that they are known soon.

    Args:
        jobs: In the order of the file.
        machine: Its usable cores and memory bound what runs at once.
        workloads: What is known of them, one a job.
        keep_threads: As in `fixed_plan`; then no width is chosen.
        environment: The caller's variables.
    """
    plain = fixed_plan(
        jobs, machine, mode="partitioned", keep_threads=keep_threads, environment=environment
    )
    cores = machine.usable_cores
    known = [index for index, workload in enumerate(workloads) if workload.known]
    free = [placement.threads is not None for placement in plain.placements]
    choosable = [
        free[index] and job.threads is None and job.cores is None and job.mode != "alone"
        for index, job in enumerate(jobs)
    ]
    tasks = [
        _task(workloads[index], plain.placements[index], choosable[index], cores) for index in known
    ]
    found = best_schedule(tasks, cores=cores, memory=_capacity(machine))
    widths = dict(zip(known, found.widths, strict=True))
    ranks = {known[place]: rank for rank, place in enumerate(found.order, start=1)}
    placements = []
    for index, placement in enumerate(plain.placements):
        peak = workloads[index].peak_bytes
        update: dict[str, int | None] = {
            "rank": ranks.get(index, 0),
            "expected_bytes": int(peak.high) if peak.known and peak.origin == "measured" else None,
        }
        if choosable[index]:
            width = widths.get(index, 1)
            update |= {
                "cores": width,
                "threads": _best_threads(workloads[index], width) if index in widths else width,
                "most_cores": max(width, _worth_trying(workloads[index], cores)),
            }
        placements.append(placement.model_copy(update=update))
    wide = sum(width > 1 for index, width in widths.items() if choosable[index])
    return plain.model_copy(
        update={
            "mode": "mixed" if wide else "partitioned",
            "placements": tuple(placements),
            "policy": plain.policy.model_copy(
                update={"knobs": {**plain.policy.knobs, "learns": True}}
            ),
            "reason": f"{wide} with more cores than one, the others side by side"
            if wide
            else plain.reason,
        }
    )


def apart_plan(mixed: Plan, jobs: Sequence[Job], machine: Machine) -> Plan:
    """One after another under the policy of a mixed plan: for a list whose pairings lose.

    Args:
        mixed: The plan that is carried out.
        jobs: Its jobs.
        machine: Each gets all of its usable cores, and the threads that it takes by itself.
    """
    placements = tuple(
        placement.model_copy(
            update={
                "cores": machine.usable_cores,
                "threads": job.threads,
                "most_cores": None,
                "alone": True,
            }
        )
        for placement, job in zip(mixed.placements, jobs, strict=True)
    )
    return mixed.model_copy(
        update={"mode": "serial", "placements": placements, "reason": _reason("serial", 1)}
    )


def candidates(
    jobs: Sequence[Job],
    machine: Machine,
    workloads: Sequence[Workload],
    *,
    keep_threads: bool = False,
    environment: Mapping[str, str],
) -> list[Plan]:
    """The plans worth a forecast: serial always, naive for few jobs that fit in memory at once.

    Shared differs from partitioned where jobs leave cores idle; long lists are not looked into for
    that.

    The planned order takes the place of the file's where every job gets one core.
    """
    mixed = mixed_plan(jobs, machine, workloads, keep_threads=keep_threads, environment=environment)
    held = sum(w.peak_bytes.value for w in workloads if w.peak_bytes.known)
    plans = []
    for mode in MODES:
        if mode == "naive" and (held > _capacity(machine) or len(jobs) > MOST_AT_ONCE):
            continue
        if mode == "shared" and len(jobs) > LOOSE_JOBS // 2:
            continue
        if mode != mixed.mode:
            plans.append(
                fixed_plan(
                    jobs, machine, mode=mode, keep_threads=keep_threads, environment=environment
                )
            )
    return [*plans, mixed]


def loose_plans(mixed: Plan, machine: Machine, workloads: Sequence[Workload]) -> Iterator[Plan]:
    """Plans in which nobody has cores of its own, where that may give cores to use that stay idle.

    A job may keep less than a core busy for each of its threads, or more where processes load its
    data beside them. So as many run at once as there are cores, or more; with the threads of the
    mixed plan, or with one each and the longest first.

    Args:
        mixed: As `mixed_plan` gives it.
        machine: Its usable cores bound what runs at once.
        workloads: What is known of the jobs; nothing is given where a duration is not.
    """
    cores = machine.usable_cores
    if len(workloads) > LOOSE_JOBS // 2 or not all(workload.known for workload in workloads):
        return
    if not any(_leaves_cores(each, cores) for each in workloads):
        return
    longest = sorted(range(len(workloads)), key=lambda index: -_area(workloads[index], 1))
    ranks = {index: rank for rank, index in enumerate(longest, start=1)}
    planned, one_each = [], []
    for index, placement in enumerate(mixed.placements):
        free = placement.most_cores is not None
        # A job that is free to move uses what is there, and counts for one core a thread.
        own = {"cores": placement.threads} if free else {}
        one = {"cores": 1, "threads": 1} if free else {}
        planned.append(placement.model_copy(update={**own, "cap_memory": False}))
        one_each.append(planned[-1].model_copy(update={**one, "rank": ranks[index]}))
    busy = sum(_area(each, 1) for each in workloads) / sum(
        each.pace(1).work.value for each in workloads
    )
    likely = max(0, round(cores / busy) - cores)
    most = max(0, min(len(workloads), MOST_AT_ONCE) - cores)
    extras = sorted(range(most + 1), key=lambda extra: (abs(extra - likely), extra))
    for placements in (planned, one_each):
        for extra in extras[: max(1, LOOSE_JOBS // len(workloads))]:
            yield _loose(mixed, placements, extra, cores)


def _loose(plan: Plan, placements: Sequence[Placement], extra: int, cores: int) -> Plan:
    wide = any((placement.threads or 1) > 1 for placement in placements)
    # All its jobs are known, and planning again would give them cores of their own.
    knobs = {**plan.policy.knobs, "pin": False, "extra": extra, "learns": False}
    return plan.model_copy(
        update={
            "mode": "mixed" if wide else "shared",
            "placements": tuple(placements),
            "policy": plan.policy.model_copy(update={"knobs": knobs}),
            "reason": f"up to {cores + extra} at once, threads divided, free to move between cores",
        }
    )


def near_plan(plan: Plan, *, cores: int, source: random.Random) -> Plan:
    """A loose plan like another: more at once, or fewer; other threads for a job; two exchanged."""
    placements = list(plan.placements)
    extra = plan.policy.knobs["extra"]
    free = [index for index, each in enumerate(placements) if each.most_cores is not None]
    one, other = source.choices(range(len(placements)), k=2)
    move = source.random()
    if move < 0.2:
        extra = max(0, extra + source.choice((-1, 1)))
    elif move < 0.6 and free:
        index, threads = source.choice(free), source.randint(1, cores)
        update = {"cores": threads, "threads": threads}
        placements[index] = placements[index].model_copy(update=update)
    else:
        ranks = placements[one].rank, placements[other].rank
        for index, rank in zip((other, one), ranks, strict=True):
            placements[index] = placements[index].model_copy(update={"rank": rank})
    return _loose(plan, placements, extra, cores)


def _leaves_cores(workload: Workload, cores: int) -> bool:
    """Whether a job keeps more or fewer cores busy than it has threads, as far as was measured."""
    return any(
        abs(min(pace.cores, cores) - pace.threads) > LEFT_IDLE * pace.threads
        for pace in workload.paces
        if pace.threads <= cores
    )


def _area(workload: Workload, threads: int) -> float:
    """Seconds of cores that a job takes."""
    pace = workload.pace(threads)
    return workload.start_up.value + pace.work.value * pace.cores


def fastest_threads(workload: Workload, cores: int) -> int:
    """The count of threads with which a job is thought to go fastest; of equal ones the smallest.

    A job of which nothing is known may gain by every core.
    """
    if not workload.known:
        return cores
    return min(
        range(1, cores + 1), key=lambda threads: (workload.pace(threads).work.value, threads)
    )


def _worth_trying(workload: Workload, cores: int) -> int:
    """Up to how many idle cores a job may take: of those whose worth is known it has its part."""
    fastest = fastest_threads(workload, cores)
    measured = workload.known and fastest <= max(
        (each.threads for each in workload.paces), default=cores
    )
    return 1 if measured else fastest


def _capacity(machine: Machine) -> float:
    """Bytes that jobs may use in all, beside others."""
    return max(0.0, machine.capacity_bytes - machine.foreign.memory_bytes)


def _task(workload: Workload, placement: Placement, choosable: bool, cores: int) -> Moldable:
    """A job for the search; one whose width is given never ends with another."""
    start_up_s = workload.start_up.value if workload.start_up.known else 0.0
    given = min(placement.cores or 1, cores)
    times = []
    for width in range(1, cores + 1):
        if choosable:
            work_s = _work_s(workload, _best_threads(workload, width), width)
        elif width < given:
            work_s = inf
        else:
            work_s = _work_s(workload, placement.threads or workload.own_threads or given, given)
        times.append(start_up_s + work_s)
    peak = workload.peak_bytes
    return Moldable(tuple(times), peak.high if peak.known else 0.0)


def _best_threads(workload: Workload, width: int) -> int:
    """With how many threads a job is planned to go fastest on so many cores of its own.

    Fewer than cores where further threads are worth nothing, or where it has processes beside them.
    """
    return min(
        range(1, width + 1), key=lambda threads: (_work_s(workload, threads, width), threads)
    )


def _work_s(workload: Workload, threads: int, width: int) -> float:
    """Seconds of work to plan with: nobody waits for cores whose worth was never measured."""
    pace = workload.pace(threads)
    measured = [each.threads for each in workload.paces]
    work_s = pace.work.high if measured and threads > max(measured) else pace.work.value
    # A job that keeps more cores busy than it has takes as many times as long.
    return work_s * max(1.0, pace.cores / width)


class Choice(Noun):
    """Which of several plans is carried out, and why.

    `margin` is how much longer the runner-up is predicted to take, as a part of the chosen one's
    makespan; None where makespans are not known.
    """

    chosen: Forecast
    runner_up: Forecast | None = None
    margin: float | None = None
    reason: str


def choose(forecasts: Sequence[Forecast], *, busy_alone: float | None = None) -> Choice:
    """The forecast with the shortest makespan whose jobs all have the memory they need.

    A gain inside the bounds is no gain: then serial wins, where it was measured what serial takes.

    Args:
        forecasts: One or more; serial among them where makespans are known.
        busy_alone: Part of all cores that the jobs keep busy one after another, where known.

    Raises:
        DoesNotFit: No job can run under any of them; says why.
    """
    able = [one for one in forecasts if not one.feasible]
    if not able:
        raise DoesNotFit(f"no job of the list can run here: {forecasts[0].feasible}")
    fitting = [one for one in able if not one.lost] or able
    if not all(one.makespan.known for one in able):
        tried = next((one for one in fitting if one.plan.policy.knobs.get("learns")), fitting[0])
        why = tried.makespan.source
        return Choice(
            chosen=tried,
            reason=("to be learnt: " if why.startswith("never") else "no prediction: ")
            + f"{why}. Each starts on a core of its own, which can cost it at most what more "
            "threads would have gained it",
        )
    serial = next(one for one in able if one.plan.mode == "serial")
    order = sorted(fitting, key=_place)
    best = order[0]
    if best.plan.mode != "serial" and _no_gain(best, serial):
        gain = 1 - best.makespan.value / serial.makespan.value
        busy = ""
        if busy_alone is not None:
            busy = f"; one job alone keeps {busy_alone:.0%} of the cores busy"
        return Choice(
            chosen=serial,
            runner_up=best,
            margin=best.makespan.value / serial.makespan.value - 1,
            reason=f"no gain from sharing: {best.plan.title} is predicted to save {gain:.0%}, "
            f"which is inside the bounds{busy}",
        )
    if len(order) == 1:
        return Choice(chosen=best, reason="nothing else has the memory")
    runner_up = order[1]
    margin = runner_up.makespan.value / best.makespan.value - 1 if best.makespan.value else 0.0
    against = serial.makespan.value / best.makespan.value if best.makespan.value else 1.0
    words = (
        f"{against:.1f} times faster than one after another"
        if best.plan.mode != "serial"
        else "every way of sharing is predicted to end later"
    )
    return Choice(chosen=best, runner_up=runner_up, margin=margin, reason=words)


def _place(one: Forecast) -> tuple[float, int]:
    """Where a forecast stands among others; see CROWD_COST."""
    crowds = (
        one.plan.mode == "naive"
        or one.plan.policy.knobs.get("extra", 0) > 0
        or one.plan.division.way != "exclusive"
    )
    expected_s = one.makespan.value * (1 + CROWD_COST * crowds)
    return expected_s, _SIMPLE.index(one.plan.mode)


def _no_gain(best: Forecast, serial: Forecast) -> bool:
    """Whether what is gained lies inside the bounds; nothing is said of what was not measured.

    A job that takes longer than thought takes longer in both: they are compared simulation by
    simulation, not bound by bound.
    """
    if serial.makespan.origin not in ("measured", "modelled"):
        return False
    return any(
        one > (1 - LEAST_GAIN) * other
        for one, other in zip(best.spans_s, serial.spans_s, strict=True)
    )
