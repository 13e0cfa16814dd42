"""From jobs and a machine to a plan: what is known of them, which plans there are, which is best.

Planners, forecasts and the profile store meet here, below the front door and a run's handle.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from headway.core import tables
from headway.core.errors import DoesNotFit
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import Placement, Plan, Way
from headway.core.policy import Policy
from headway.core.view import View
from headway.core.workload import Workload
from headway.costs.pair_coefficients import PairCoefficients
from headway.forecast.expected import Expected
from headway.forecast.queue import Forecast, forecast, untold
from headway.planners.collocation import (
    Choice,
    apart_plan,
    candidates,
    choose,
    fixed_plan,
    loose_plans,
    mixed_plan,
    near_plan,
)
from headway.planners.feasible import why_not
from headway.planners.gpu_sharing import (
    best_layouts,
    divided,
    divisible,
    mig_plan,
    sharing_plans,
)
from headway.probes.profiles import ProfileStore, Recall, kind_digest

# A longer list is run as it stands: recalling and simulating it would take longer than it gains.
MOST_PLANNED = 2000
# Only the next ones are planned again while a list runs: meanwhile nobody watches its memory.
PLANNED_AHEAD = 64
# About so many simulated jobs go into making a plan better in which nobody has cores of its own.
TRIED_NEAR = 2400
# It goes on from plans that are worse than the best by no more than this part (record-to-record
# travel: Dueck, New optimization heuristics, 1993).
STRAYS = 0.05
# Of a run's time, at most this part goes into planning it again.
PLANNING_PART = 0.02
NOTHING_LEARNT = PairCoefficients()
WHOLE_GPUS: tuple[Way, ...] = ("exclusive",)
EVERY_WAY: tuple[Way, ...] = ("exclusive", "time-slices", "mps", "mig")
# A job that goes at less than this part of what its cores explain may be better off by itself.
LOSING = 0.9


@dataclass(frozen=True, slots=True)
class Planned:
    """A choice among forecasts, best first where makespans are known, and what it was made from.

    `notes` tell what was left out in reading the list, and what is wrong with the store.
    """

    choice: Choice
    forecasts: tuple[Forecast, ...]
    recall: Recall
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        """The chosen plan, with the reason in words."""
        return self.choice.chosen.plan.model_copy(update={"reason": self.choice.reason})

    @property
    def expected(self) -> Expected:
        """What the chosen plan is expected to come to."""
        return Expected.of(self.choice.chosen, self.recall.workloads)


def plan_of(
    jobs: Sequence[Job],
    machine: Machine,
    *,
    store: ProfileStore,
    keep_threads: bool = False,
    ways: Collection[Way] = WHOLE_GPUS,
    environment: Mapping[str, str],
) -> Planned:
    """Choose how to run a list by predicted makespan.

    Args:
        jobs: In the order of the file.
        machine: What they are placed on.
        store: What earlier runs learnt.
        keep_threads: Leave every thread count as the environment has it.
        ways: How jobs may share GPUs; with "mig" these may be divided in another way than they are.
        environment: The caller's variables.

    Raises:
        DoesNotFit: No job can run on this machine.
    """
    words, reasons = _not_predicted(jobs, machine)
    if words:
        plan = fixed_plan(
            jobs, machine, mode="partitioned", keep_threads=keep_threads, environment=environment
        )
        told = untold(plan, jobs, words, infeasible=reasons)
        return Planned(Choice(chosen=told, reason=words), (told,), Recall((), ()))
    recall = store.recall(jobs, machine, environment=environment)
    return chosen(
        jobs,
        machine,
        recall,
        coefficients=coefficients_of(jobs, machine, store),
        keep_threads=keep_threads,
        ways=ways,
        environment=environment,
    )


def chosen(
    jobs: Sequence[Job],
    machine: Machine,
    recall: Recall,
    *,
    coefficients: PairCoefficients = NOTHING_LEARNT,
    keep_threads: bool = False,
    ways: Collection[Way] = WHOLE_GPUS,
    environment: Mapping[str, str],
) -> Planned:
    """Choose by what is known of the jobs, wherever that is from; the rest as in `plan_of`."""
    plans = candidates(
        jobs, machine, recall.workloads, keep_threads=keep_threads, environment=environment
    )
    if recall.known < len(jobs):
        plans = plans[-1:]  # without makespans there is nothing to compare
    if any(map(_on_gpu, jobs)):
        plans += gpu_plans(
            plans[-1], jobs, recall.workloads, machine, coefficients=coefficients, ways=ways
        )
    else:
        plans = _with_loose(plans, jobs, recall.workloads, machine, coefficients)
    forecasts = [
        score(plan, jobs, recall.workloads, machine, coefficients=coefficients) for plan in plans
    ]
    choice = choose(forecasts, busy_alone=busy_alone(recall.workloads, machine))
    forecasts.sort(key=lambda one: (one is not choice.chosen, one.makespan.value))
    return Planned(choice, tuple(forecasts), recall)


def gpu_plans(
    plain: Plan,
    jobs: Sequence[Job],
    workloads: Sequence[Workload],
    machine: Machine,
    *,
    coefficients: PairCoefficients = NOTHING_LEARNT,
    ways: Collection[Way],
) -> list[Plan]:
    """The best plan of each way of sharing GPUs; none where it is not known what jobs do to one.

    Args:
        plain: With cores and threads for each job.
        jobs: In the order of the file.
        workloads: One a job.
        machine: With GPUs.
        coefficients: As in `chosen`.
        ways: As in `plan_of`.
    """
    if not all(
        workload.known and _known_on_gpu(workload)
        for job, workload in zip(jobs, workloads, strict=True)
        if _on_gpu(job)
    ):
        return []

    def ends(plan: Plan) -> float:
        """When the list would end; infinity where a job would have no place, or no memory."""
        told = score(plan, jobs, workloads, machine, coefficients=coefficients, bounds=False)
        left_out = any(job.status == "infeasible" for job in told.jobs)
        return inf if told.lost or left_out else told.makespan.value

    best: dict[Way, tuple[float, Plan]] = {}
    for plan in sharing_plans(plain, workloads):
        way, end_s = plan.division.way, ends(plan)
        if way in ways and (way not in best or end_s < best[way][0]):
            best[way] = end_s, plan
    how = divisible(machine) if "mig" in ways else {}
    layouts = best_layouts(machine, how, lambda tried: ends(mig_plan(plain, workloads, tried)))
    if layouts is not None:
        plan = mig_plan(plain, workloads, layouts)
        best["mig"] = ends(plan), plan
    # The plain way stays, also where somebody finds no place in it: the others are set beside it.
    return [plan for way, (end_s, plan) in best.items() if end_s < inf or way in WHOLE_GPUS]


def _on_gpu(job: Job) -> bool:
    return bool(job.gpus) or job.gpu_memory_bytes is not None


def _known_on_gpu(workload: Workload) -> bool:
    return workload.device_bytes is not None and (
        workload.device_busy is not None or workload.device_part is not None
    )


def _apart_if_better(
    mixed: Plan,
    jobs: Sequence[Job],
    workloads: Sequence[Workload],
    machine: Machine,
    coefficients: PairCoefficients,
) -> Plan:
    """The plan, or none beside another, where pairings were seen to lose more than they gain."""
    if not all(workload.known for workload in workloads):
        return mixed
    apart = apart_plan(mixed, jobs, machine)
    told = [
        score(plan, jobs, workloads, machine, coefficients=coefficients) for plan in (apart, mixed)
    ]
    return choose(told).chosen.plan


def expected_of(
    plan: Plan,
    jobs: Sequence[Job],
    machine: Machine,
    *,
    store: ProfileStore,
    environment: Mapping[str, str],
) -> Expected:
    """What a plan that is given is expected to come to; arguments as of `plan_of`.

    Raises:
        DoesNotFit: No job can run on this machine.
    """
    words, reasons = _not_predicted(jobs, machine)
    if words:
        return Expected.of(untold(plan, jobs, words, infeasible=reasons), ())
    recall = store.recall(jobs, machine, environment=environment)
    coefficients = coefficients_of(jobs, machine, store)
    told = score(plan, jobs, recall.workloads, machine, coefficients=coefficients)
    return Expected.of(told, recall.workloads)


def coefficients_of(jobs: Sequence[Job], machine: Machine, store: ProfileStore) -> PairCoefficients:
    """What earlier runs, or this one, learnt of these jobs' scripts beside each other."""
    kinds = {kind_digest(job): job.script for job in jobs}
    return PairCoefficients.of(
        (kinds[pair.first], kinds[pair.second], pair.ratio)
        for pair in store.pair_ratios(kinds, machine)
    )


def _with_loose(
    plans: list[Plan],
    jobs: Sequence[Job],
    workloads: Sequence[Workload],
    machine: Machine,
    coefficients: PairCoefficients,
) -> list[Plan]:
    """The plans with the best of those in which nobody has cores of its own, if there are any.

    It takes the place of the one of its mode, where that is no better.
    """

    def ends(plan: Plan) -> tuple[int, float]:
        told = score(plan, jobs, workloads, machine, coefficients=coefficients, bounds=False)
        return told.lost, told.makespan.value

    tried = [(ends(plan), plan) for plan in loose_plans(plans[-1], machine, workloads)]
    if not tried:
        return plans
    best, loose = min(tried, key=lambda one: one[0])
    current, source = loose, random.Random(0)
    for _ in range(TRIED_NEAR // len(jobs)):
        near = near_plan(current, cores=machine.usable_cores, source=source)
        found = ends(near)
        if found <= (best[0], best[1] * (1 + STRAYS)):
            current = near
        if found < best:
            best, loose = found, near
    same = [plan for plan in plans if plan.mode == loose.mode]
    if same and min(map(ends, same)) <= best:
        return plans
    return [*(plan for plan in plans if plan not in same), loose]


def _not_predicted(jobs: Sequence[Job], machine: Machine) -> tuple[str, Sequence[str]]:
    """Why nothing is predicted of a list, "" where it is; and why each job can never be placed.

    Raises:
        DoesNotFit: None of them can.
    """
    if any(job.devices for job in jobs):
        reasons = why_not(jobs, machine)
        if all(reasons):
            raise DoesNotFit(f"no job of the list can run here: {reasons[0]}")
        words = "judged by memory and slices alone: how long jobs take on GPUs is not predicted yet"
        return words, reasons
    if len(jobs) > MOST_PLANNED:
        return f"not planned: more than {MOST_PLANNED:,} jobs", ()
    return "", ()


def score(
    plan: Plan,
    jobs: Sequence[Job],
    workloads: Sequence[Workload],
    machine: Machine,
    *,
    coefficients: PairCoefficients | None = None,
    bounds: bool = True,
) -> Forecast:
    """What a plan would come to, under its own policy; see `forecast`."""
    knobs = dict(plan.policy.knobs)
    knobs |= {"learns": False} if "learns" in knobs else {}
    policy = tables.load("headway.planners", plan.policy.name, Policy).model_validate(knobs)
    if plan.division.layouts:
        machine = divided(machine, plan.division, divisible(machine))
    return forecast(
        plan, policy, jobs, workloads, machine, coefficients=coefficients, bounds=bounds
    )


def busy_alone(workloads: Sequence[Workload], machine: Machine) -> float | None:
    """Part of all cores that the jobs keep busy one after another; None where it is not known."""
    cores = machine.usable_cores
    busy = total = 0.0
    for workload in workloads:
        if not workload.known:
            return None
        pace = workload.pace(workload.own_threads or cores)
        busy += pace.work.value * min(pace.cores, cores)
        total += workload.duration.value
    return busy / (total * cores) if total else None


def replanner(
    jobs: Sequence[Job],
    machine: Machine,
    *,
    store: ProfileStore,
    keep_threads: bool = False,
    environment: Mapping[str, str],
    learn: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[View], Mapping[int, Placement]]:
    """Something that plans the jobs of a run that still wait, with what is known by now.

    It gives the placements that change, by job; none where there is no time for planning.

    Args:
        jobs: All of the run, in the order of the file.
        machine: What they are placed on.
        store: What was learnt, in this run too.
        keep_threads: As in `plan_of`.
        environment: The caller's variables.
        learn: Called before the store is asked: keeps what was seen since then.
        clock: Seconds, to keep the work within its part of the run's time.
    """
    began_s = clock()
    spent_s = 0.0

    def replan(view: View) -> Mapping[int, Placement]:
        nonlocal spent_s
        now_s = clock()
        if spent_s > PLANNING_PART * (now_s - began_s) or not view.waiting:
            return {}
        learn()
        waiting = view.waiting[:PLANNED_AHEAD]
        chosen = [jobs[index] for index in waiting]
        known = store.recall(chosen, machine, environment=environment).workloads
        plan = mixed_plan(
            chosen, machine, known, keep_threads=keep_threads, environment=environment
        )
        coefficients = coefficients_of(chosen, machine, store)
        if any(pair.ratio < LOSING for pair in coefficients.pairs):
            plan = _apart_if_better(plan, chosen, known, machine, coefficients)
        # Those that are planned again stay before those that are not.
        rest = (view.states[index].placement.rank for index in view.waiting[PLANNED_AHEAD:])
        first = min(rest, default=0) - len(waiting) - 1
        placements = {
            index: placement.model_copy(update={"rank": first + placement.rank})
            for index, placement in zip(waiting, plan.placements, strict=True)
        }
        spent_s += clock() - now_s
        return {
            index: placement
            for index, placement in placements.items()
            if placement != view.states[index].placement
        }

    return replan
