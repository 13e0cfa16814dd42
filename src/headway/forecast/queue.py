"""A queue of jobs under a plan, carried out in the simulated world.

[Note: bounds] Bounds do not pass through a simulation by themselves: a longer job can end a list
sooner. So the list is simulated with every job at its low bound, at its value and at its high
bound, and a few times with each job at one of the three; the forecast holds all of them.
"""

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache

from headway.core.estimate import Estimate, Origin, least_sure, total, unknown
from headway.core.job import Job, Name
from headway.core.machine import Machine
from headway.core.noun import Noun
from headway.core.plan import Plan
from headway.core.policy import Policy
from headway.core.units import NS_PER_S
from headway.core.view import JobState
from headway.core.words import Status
from headway.core.workload import Workload
from headway.costs.device_sharing import DeviceSharing
from headway.costs.interference import Member, rates
from headway.costs.pair_coefficients import PairCoefficients
from headway.sim.attempt import Beside, Together
from headway.sim.drive import drive
from headway.sim.task import SimulationError
from headway.sim.world import SimulatedWorld

MIXTURES = 3
# Ticks a simulated list: its policy corrects reservations and looks at time-outs at each.
TICKS = 200
QUICK_TICKS = 20
# After so many without anything going on, a job waits for what others hold.
IDLE_TICKS = 50


class JobForecast(Noun):
    """What becomes of one job: when it would start and end, in s from the start of the list.

    `duration` is how long its last attempt would take beside its neighbours. All three are None
    where it would not run, and where durations are not known; `reason` says why a job is
    infeasible.
    """

    name: Name
    group: Name | None = None
    status: Status
    reason: str = ""
    start_s: float | None = None
    end_s: float | None = None
    duration: Estimate | None = None


class Forecast(Noun):
    """What a plan would come to.

    `makespan` is unknown where a job's duration is; `feasible` says why no job can run, "" where
    one can; `lost` is how many attempts would end for want of memory. `spans_s` are the makespans
    of all that was simulated, in s: the same job has the same duration in the same place of two
    forecasts, so that they can be compared place by place.
    """

    plan: Plan
    feasible: str = ""
    makespan: Estimate
    peak_bytes: Estimate
    jobs: tuple[JobForecast, ...]
    lost: int = 0
    spans_s: tuple[float, ...] = ()


def forecast(
    plan: Plan,
    policy: Policy,
    jobs: Sequence[Job],
    workloads: Sequence[Workload],
    machine: Machine,
    *,
    coefficients: PairCoefficients | None = None,
    mixtures: int | None = None,
    bounds: bool = True,
) -> Forecast:
    """Carry a plan out in the simulated world.

    Args:
        plan: Its placements are tried, one a job.
        policy: What the plan's policy stands for.
        jobs: In the order of the file.
        workloads: One a job, in the same order. A job of unknown duration gets a nominal one, to
            see who can be placed at all, and the makespan is unknown.
        machine: What the jobs are placed on.
        coefficients: What was learnt of kinds of jobs beside each other.
        mixtures: How many simulations with each job at one of its bounds or its value; as many as
            keep the work bounded, where not said.
        bounds: Whether to say how far off it may be; if not, the list is simulated once, and looked
            at less often meanwhile.

    >>> from headway.planners.queue import Queue
    >>> from headway.testing.queues import FakeQueue, fake_jobs
    >>> queue = FakeQueue(jobs=fake_jobs(4))
    >>> workloads = [Workload.opaque(job.name, work_ns=10 * NS_PER_S) for job in queue.jobs]
    >>> plan = queue.plan("partitioned")
    >>> told = forecast(plan, Queue(**plan.policy.knobs), queue.jobs, workloads, queue.machine)
    >>> told.makespan.value, told.makespan.high
    (20.0, 20.0)
    """
    machine = _undisturbed(machine)
    together = _together(machine, coefficients or PairCoefficients())
    if mixtures is None:
        mixtures = min(MIXTURES, 500 // max(1, len(jobs)))
    known = all(workload.known for workload in workloads)
    seen = all(workload.peak_bytes.known for workload in workloads)
    workloads = [_with_memory(workload) for workload in workloads]
    try:
        nominal = [_nominal(workload) for workload in workloads]
        ticks = TICKS if bounds else QUICK_TICKS
        middle = _simulated(plan, policy, jobs, nominal, machine, together, ticks=ticks)
    except SimulationError as error:
        return untold(plan, jobs, f"cannot be simulated: {error}")
    others = []
    if known and bounds:
        others = [
            _simulated(plan, policy, jobs, variant, machine, together)
            for variant in _variants(workloads, mixtures)
        ]
    spans = [middle, *others]
    return Forecast(
        plan=plan,
        feasible=_why_none(middle),
        makespan=_makespan(spans, workloads) if known else unknown("s", source=_unknown(workloads)),
        peak_bytes=_peak(spans)
        if seen
        else unknown("bytes", source="memory of some jobs was never measured"),
        jobs=tuple(
            _job_forecast(spans, index, workload, timed=known)
            for index, workload in enumerate(workloads)
        ),
        spans_s=tuple(world.makespan_ns / NS_PER_S for world in spans) if known else (),
        lost=max(sum(map(_attempts_lost, world.view.states)) for world in spans),
    )


def _attempts_lost(state: JobState) -> int:
    """How many attempts of a job ended for want of memory, the last one included."""
    return state.oom_retries + state.stops + (state.status == "oom")


def untold(
    plan: Plan, jobs: Sequence[Job], why: str, *, infeasible: Sequence[str] = ()
) -> Forecast:
    """The forecast of a list that is not simulated.

    Args:
        plan: What would be carried out.
        jobs: In the order of the file.
        why: What keeps it from being simulated, in words.
        infeasible: Why each job can never be placed, "" where it can; nobody is, where not said.
    """
    return Forecast(
        plan=plan,
        makespan=unknown("s", source=why),
        peak_bytes=unknown("bytes", source=why),
        jobs=tuple(
            JobForecast(
                name=job.name,
                group=job.group,
                status="infeasible" if reason else "waiting",
                reason=reason,
            )
            for job, reason in zip(jobs, infeasible or [""] * len(jobs), strict=True)
        ),
    )


def _together(machine: Machine, coefficients: PairCoefficients) -> Together:
    """The model of neighbours on this machine's cores."""
    # Under a time quota fewer cores' worth of time are there than cores: as many stand for all.
    usable = machine.host.cores[: machine.usable_cores]
    stand_in = {core: usable[n % len(usable)] for n, core in enumerate(machine.host.cores)}

    # A job is looked at many times with the same neighbours, in this simulation and the next.
    @lru_cache(maxsize=1024)
    def together(beside: tuple[Beside, ...]) -> Sequence[float]:
        members = [
            Member(*one._replace(pinned=one.pinned and tuple({stand_in[c] for c in one.pinned})))
            for one in beside
        ]
        return rates(members, usable, coefficients)

    return lambda beside: together(tuple(beside))


def _undisturbed(machine: Machine) -> Machine:
    """The machine as others leave it: they come and go, and nobody knows when."""
    devices = tuple(
        device if device.unknown else device.model_copy(update={"used_bytes": 0, "users": ()})
        for device in machine.devices
    )
    return machine.model_copy(update={"devices": devices, "elsewhere": ()})


def _variants(workloads: Sequence[Workload], mixtures: int) -> Iterator[list[Workload]]:
    yield [workload.exactly("low") for workload in workloads]
    yield [workload.exactly("high") for workload in workloads]
    source = random.Random(0)
    for _ in range(mixtures):
        yield [workload.exactly(source.choice(("low", "value", "high"))) for workload in workloads]


def _simulated(
    plan: Plan,
    policy: Policy,
    jobs: Sequence[Job],
    workloads: Sequence[Workload],
    machine: Machine,
    together: Together,
    *,
    ticks: int = TICKS,
) -> SimulatedWorld:
    total_s = sum(workload.duration.value for workload in workloads)
    world = SimulatedWorld(
        jobs,
        plan.placements,
        machine,
        workloads,
        together=together,
        sharing=DeviceSharing(plan.division.way),
        tick_ns=max(NS_PER_S, round(total_s * NS_PER_S / ticks)),
        idle_ticks=IDLE_TICKS,
    )
    drive(policy, world)
    return world


def _with_memory(workload: Workload) -> Workload:
    """A workload whose memory can be simulated: of one that was never seen, what is sure."""
    peak = workload.peak_bytes
    if peak.known:
        return workload
    sure = peak.model_copy(update={"value": peak.low, "high": peak.low})
    return workload.model_copy(update={"peak_bytes": sure})


def _nominal(workload: Workload) -> Workload:
    """A workload that can be simulated: what is not known of it lasts a minute."""
    if workload.known:
        return workload.exactly("value")
    return Workload.opaque(
        workload.job,
        work_ns=60 * NS_PER_S,
        peak_bytes=int(workload.peak_bytes.value),
    )


def _makespan(worlds: Sequence[SimulatedWorld], workloads: Sequence[Workload]) -> Estimate:
    cores = worlds[0].view.machine.usable_cores
    times = [world.makespan_ns / NS_PER_S for world in worlds]
    works = [
        _work_as_placed(state, workload, cores)
        for state, workload in zip(worlds[0].view.states, workloads, strict=True)
    ]
    return _simulated_seconds(times, works)


def _simulated_seconds(times: Sequence[float], works: Sequence[Estimate]) -> Estimate:
    """What simulations gave, the first with all values: as sure as what it is reckoned from."""
    origins: list[Origin] = ["modelled", *(work.origin for work in works)]
    return Estimate(
        value=times[0],
        low=min(times),
        high=max(times),
        unit="s",
        origin=least_sure(origins),
        source="simulated",
        samples=min((work.samples for work in works), default=0),
    )


def _work_as_placed(state: JobState, workload: Workload, cores: int) -> Estimate:
    """What a job's time was reckoned from: its pace with the threads that it was given."""
    share = state.last_share
    if share is None or not workload.paces:
        return workload.duration
    own = len(share.cores) if share.cores else cores
    return workload.pace(share.threads or workload.own_threads or own).work


def _peak(worlds: Sequence[SimulatedWorld]) -> Estimate:
    peaks = [_held_at_once(world) for world in worlds]
    return Estimate(
        value=peaks[0],
        low=min(peaks),
        high=max(peaks),
        unit="bytes",
        coverage=0.98,
        origin="modelled",
        source="simulated",
    )


def _held_at_once(world: SimulatedWorld) -> int:
    """The most that jobs which ran together held, each counted with its peak."""
    changes = []
    for span in world.timeline().spans:
        held = 0 if span.job is None else world.view.states[span.job].peak_bytes
        changes += [(span.t, held), (span.t + span.d, -held)]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def _unknown(workloads: Sequence[Workload]) -> str:
    names = [workload.job for workload in workloads if not workload.known]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"never measured: {', '.join(names[:3])}{more}"


def _why_none(world: SimulatedWorld) -> str:
    states = world.view.states
    if any(state.status != "infeasible" for state in states) or not states:
        return ""
    return states[0].cause


def _job_forecast(
    worlds: Sequence[SimulatedWorld], index: int, workload: Workload, *, timed: bool
) -> JobForecast:
    state = worlds[0].view.states[index]
    if state.status == "infeasible":
        return JobForecast(
            name=state.job.name, group=state.job.group, status="infeasible", reason=state.cause
        )
    ran = timed and _seconds(state) is not None
    return JobForecast(
        name=state.job.name,
        group=state.job.group,
        status="waiting",
        reason=state.cause if state.status != "ok" else "",
        start_s=(state.started_ns or 0) / NS_PER_S if ran else None,
        end_s=(state.ended_ns or 0) / NS_PER_S if ran else None,
        duration=_duration(worlds, index, workload, timed=timed),
    )


def _duration(
    worlds: Sequence[SimulatedWorld], index: int, workload: Workload, *, timed: bool
) -> Estimate | None:
    """How long a job's last attempt would take; beside jobs that nobody knows, as if alone."""
    state = worlds[0].view.states[index]
    if not workload.known or _seconds(state) is None:
        return None
    work = _work_as_placed(state, workload, worlds[0].view.machine.usable_cores)
    if not timed:
        alone = total([work, workload.start_up])
        return alone.model_copy(update={"origin": least_sure(["modelled", alone.origin])})
    times = [_seconds(world.view.states[index]) for world in worlds]
    return _simulated_seconds([seconds for seconds in times if seconds is not None], [work])


def _seconds(state: JobState) -> float | None:
    """How long the last attempt of a job took; None where there was none."""
    if state.started_ns is None or state.ended_ns is None:
        return None
    return (state.ended_ns - state.started_ns) / NS_PER_S
