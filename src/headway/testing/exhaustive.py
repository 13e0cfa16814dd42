"""The best of all ways to run a few known jobs, to hold a plan against.

[Note: what is searched]
A way to run a list says when each job starts, with how many threads, and on which cores. Whoever
starts does so at the beginning or where another job ends: an earlier start than that has no room,
and between two ends nothing becomes free. Two kinds of ways are searched, each without a gap:

- *on cores of their own*: any number of cores for each job and any number of threads on them.
  Cores may stay idle for a job that is to have them later. Starts are looked at in the order of
  time, so what is not free any more can only become free: of two beginnings with the same jobs,
  one that leaves every core and all memory free no later is at least as good, and is kept alone.
- *free to move*: any set of jobs beside each other, with any threads, as fast as
  `costs.interference` says. Sets in which threads would crowd each other are left out: they go at
  0.04 to 0.3 of their speed (measured), and where everything runs at once they are tried as a mode.

Both leave out what cannot end before the best that is known: all work that is left, divided by the
cores, and the longest job that is left. `carried_out` then tells what a way found here takes in the
simulated world: the searches' own clock is never believed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import Annotated, NamedTuple

from pydantic import Field

from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.noun import Noun
from headway.core.plan import MODES
from headway.core.policy import Policy
from headway.core.view import View
from headway.core.words import Action, Event, Exited, Memory, Settle, Share, Start, Tick
from headway.core.workload import Workload
from headway.costs.interference import Member, crowding, rates
from headway.costs.pair_coefficients import PairCoefficients
from headway.forecast.queue import Forecast, forecast
from headway.planners.collocation import fixed_plan
from headway.planning import chosen, score
from headway.probes.profiles import Recall
from headway.testing.queues import FakeQueue

# Ends that are nearer than this part of a makespan are the same end.
_NEAR = 1e-9


class Step(Noun):
    """The start of a job: once these others have ended, with so many threads.

    `cores` is how many it has of its own; None where it is free to move.
    """

    job: int
    after: tuple[int, ...]
    threads: Annotated[int, Field(ge=1)]
    cores: Annotated[int, Field(ge=1)] | None = None


class Found(NamedTuple):
    """A way to run a list, in the order of its starts, and what it takes by the search's clock."""

    steps: tuple[Step, ...]
    makespan_s: float


class Scripted(Policy):
    """Starts each job at its step, whatever happens."""

    steps: tuple[Step, ...]

    def start(self, view: View) -> Memory:
        """Nothing has to be remembered."""
        return {}

    def decide(self, memory: Memory, event: Event, view: View) -> tuple[Memory, Sequence[Action]]:
        """Starts what may start now.

        Raises:
            ValueError: A step wants more cores than are free.
        """
        actions: list[Action] = []
        if isinstance(event, Exited):
            actions.append(Settle(event.job, event.outcome.status, event.outcome.cause))
        if isinstance(event, Exited | Tick):
            actions.extend(self._starts(view))
        return memory, actions

    def _starts(self, view: View) -> Iterator[Start]:
        free = sorted(view.free_cores)
        for step in self.steps:
            state = view.states[step.job]
            ended = all(view.states[other].outcome is not None for other in step.after)
            if not state.queued or not ended:
                continue
            if step.cores is not None and step.cores > len(free):
                raise ValueError(f"{state.job.name} is to have {step.cores} cores of {free}")
            own = None if step.cores is None else tuple(free[: step.cores])
            del free[: step.cores or 0]
            reserved = state.placement.expected_bytes or 0
            yield Start(step.job, Share(cores=own, threads=step.threads, reserved_bytes=reserved))


def carried_out(
    found: Found, jobs: Sequence[Job], workloads: Sequence[Workload], machine: Machine
) -> Forecast:
    """What becomes of a way to run a list in the simulated world."""
    plan = fixed_plan(jobs, machine, mode="naive", environment={})
    return forecast(plan, Scripted(steps=found.steps), jobs, workloads, machine, mixtures=0)


class Compared(NamedTuple):
    """A plan beside the best of all ways to run its jobs; both makespans are simulated, in s.

    `best` is a fixed mode, "planned", or the kind of way that ends first; `off_by_s` is how far the
    search's own clock was off.
    """

    plan: Forecast
    best: str
    best_s: float
    off_by_s: float = 0.0

    @property
    def ratio(self) -> float:
        """How many times as long as the best the plan takes."""
        return self.plan.makespan.value / self.best_s


def compare(queue: FakeQueue) -> Compared:
    """What is planned for a list that is exactly known, beside the best of all.

    Raises:
        ValueError: The plan loses a job.
    """
    workloads = [queue.workloads[job.name] for job in queue.jobs]
    recall = Recall(tuple(workloads), ())
    planned = chosen(queue.jobs, queue.machine, recall, environment={})
    plan = planned.choice.chosen
    if plan.lost or any(job.end_s is None or job.reason for job in plan.jobs):
        raise ValueError(f"{plan.plan.mode} loses a job: {plan.jobs}")
    known = {"planned": plan}
    for mode in MODES:
        fixed = score(queue.plan(mode), queue.jobs, workloads, queue.machine)
        if not fixed.lost:
            known[mode] = fixed
    best = min(known, key=lambda name: known[name].makespan.value)
    best_s = known[best].makespan.value
    way = best_way(
        workloads,
        cores=queue.machine.usable_cores,
        memory=queue.machine.capacity_bytes,
        below=best_s,
    )
    if way is None:
        return Compared(plan, best, best_s)
    told = carried_out(way, queue.jobs, workloads, queue.machine)
    if told.lost:
        raise ValueError(f"the best way loses a job: {told.jobs}")
    kind = "free to move" if way.steps[0].cores is None else "on cores of their own"
    return Compared(plan, kind, told.makespan.value, told.makespan.value - way.makespan_s)


def best_way(
    workloads: Sequence[Workload], *, cores: int, memory: float, below: float = inf
) -> Found | None:
    """The way in which the last job ends first, or None where none ends before `below`.

    See [Note: what is searched]. The work grows fast with the number of jobs: eight are many.

    Args:
        workloads: Of jobs that may all start at once, their paces and peaks exactly known.
        cores: How many there are.
        memory: Bytes that jobs which run together may hold; nobody may need more.
        below: Seconds; what is known to be possible.
    """
    peaks = [workload.peak_bytes.value for workload in workloads]
    narrow = [_own_cores(workload, cores) for workload in workloads]
    best = _OnOwnCores(narrow, peaks, cores=cores, memory=memory).search(below)
    wide = [_free_to_move(workload, cores) for workload in workloads]
    if any(way.busy != way.threads for ways in wide for way in ways):
        limit = below if best is None else best.makespan_s
        best = _FreeToMove(wide, peaks, cores=cores, memory=memory).search(limit) or best
    return best


# --- on cores of their own -----------------------------------------------------------------------


class _Own(NamedTuple):
    """What a job takes on cores of its own, in s."""

    cores: int
    threads: int
    time: float


def _own_cores(workload: Workload, cores: int) -> list[_Own]:
    """A job's ways, each faster than all with fewer cores."""
    ways: list[_Own] = []
    for width in range(1, cores + 1):
        for threads in range(1, width + 1):
            pace = workload.pace(threads)
            # What keeps more cores busy than it has takes as many times as long.
            time = workload.start_up.value + pace.work.value * max(1.0, pace.cores / width)
            if not ways or time < ways[-1].time:
                ways = [way for way in ways if way.cores < width] + [_Own(width, threads, time)]
    return ways


class _Begun(NamedTuple):
    """Some jobs started: when the last was, who still runs then, and how it came to that."""

    start: float
    makespan: float
    running: tuple[tuple[float, int, float], ...]  # end, cores, memory; the first to end first
    free_from: tuple[float, ...]  # by core, the first to be free first
    steps: tuple[tuple[int, _Own, float], ...]


class _OnOwnCores:
    """The search among ways in which each job has cores of its own."""

    def __init__(
        self, ways: Sequence[Sequence[_Own]], peaks: Sequence[float], *, cores: int, memory: float
    ) -> None:
        self._ways, self._peaks = ways, peaks
        self._cores, self._memory = cores, memory
        self._memory_binds = sum(peaks) > memory
        self._areas = [min(way.cores * way.time for way in each) for each in ways]
        self._shortest = [min(way.time for way in each) for each in ways]

    def search(self, below: float) -> Found | None:
        """The best way; None where none ends before `below`."""
        count, best = len(self._ways), None
        levels: list[dict[int, list[_Begun]]] = [{} for _ in range(count + 1)]
        levels[0][0] = [_Begun(0.0, 0.0, (), (0.0,) * self._cores, ())]
        for level, following in pairwise(levels):
            for started, beginnings in level.items():
                for begun in beginnings:
                    for job in range(count):
                        if started >> job & 1:
                            continue
                        now = started | 1 << job
                        for longer in self._with(begun, job):
                            if self._bound(longer, now) >= below * (1 - _NEAR):
                                continue
                            if now == (1 << count) - 1:
                                below, best = longer.makespan, longer
                            else:
                                self._keep(following.setdefault(now, []), longer)
            level.clear()
        return None if best is None else Found(_own_steps(best), best.makespan)

    def _with(self, begun: _Begun, job: int) -> Iterator[_Begun]:
        """The job started as soon as there is room, but not before the others."""
        for way in self._ways[job]:
            start = self._room_from(begun, way.cores, self._peaks[job])
            end = start + way.time
            still = [each for each in begun.running if each[0] > start * (1 + _NEAR)]
            running = tuple(sorted([*still, (end, way.cores, self._peaks[job])]))
            free = [start] * (self._cores - sum(cores for _, cores, _ in running))
            held = [each_end for each_end, cores, _ in running for _ in range(cores)]
            yield _Begun(
                start,
                max(begun.makespan, end),
                running,
                (*free, *held),
                (*begun.steps, (job, way, start)),
            )

    def _room_from(self, begun: _Begun, cores: int, peak: float) -> float:
        free = self._cores - sum(held for _, held, _ in begun.running)
        left = self._memory - sum(held for _, _, held in begun.running)
        start = begun.start
        for end, held_cores, held_memory in begun.running:
            if free >= cores and left >= peak:
                break
            start, free, left = end, free + held_cores, left + held_memory
        return start

    def _bound(self, begun: _Begun, started: int) -> float:
        """What it takes at least, however it goes on."""
        rest = [job for job in range(len(self._ways)) if not started >> job & 1]
        busy = sum((end - begun.start) * cores for end, cores, _ in begun.running)
        area = busy + sum(self._areas[job] for job in rest)
        longest = max((self._shortest[job] for job in rest), default=0.0)
        return max(begun.makespan, begun.start + max(area / self._cores, longest))

    def _keep(self, kept: list[_Begun], begun: _Begun) -> None:
        """Add a beginning, unless another with the same jobs is as good; drop what is worse."""
        if any(self._as_good(other, begun) for other in kept):
            return
        kept[:] = [other for other in kept if not self._as_good(begun, other)]
        kept.append(begun)

    def _as_good(self, one: _Begun, other: _Begun) -> bool:
        if one.makespan > other.makespan:
            return False
        if any(mine > theirs for mine, theirs in zip(one.free_from, other.free_from, strict=True)):
            return False
        return not self._memory_binds or all(
            _held_before(one, end) <= _held_before(other, end) for end, _, _ in one.running
        )


def _held_before(begun: _Begun, time: float) -> float:
    """Memory held just before a time by those who run."""
    return sum(memory for end, _, memory in begun.running if end >= time)


def _own_steps(begun: _Begun) -> tuple[Step, ...]:
    ends = {job: start + way.time for job, way, start in begun.steps}
    return tuple(
        Step(job=job, after=_ended(ends, start), threads=way.threads, cores=way.cores)
        for job, way, start in begun.steps
    )


def _ended(ends: Mapping[int, float], time: float) -> tuple[int, ...]:
    return tuple(job for job, end in sorted(ends.items()) if end <= time * (1 + _NEAR))


# --- free to move --------------------------------------------------------------------------------


class _Free(NamedTuple):
    """How a job goes alone with so many threads: seconds of work, and cores kept busy."""

    threads: int
    start_up: float
    work: float
    busy: float

    @property
    def time(self) -> float:
        return self.start_up + self.work


def _free_to_move(workload: Workload, cores: int) -> list[_Free]:
    """A job's ways, each faster than all with fewer threads, the first the fewest."""
    ways: list[_Free] = []
    for threads in range(1, cores + 1):
        pace = workload.pace(threads)
        work = pace.work.value * max(1.0, pace.cores / cores)
        way = _Free(threads, workload.start_up.value, work, min(pace.cores, float(cores)))
        if not ways or way.time < ways[-1].time:
            ways.append(way)
    return ways


@dataclass(slots=True)
class _Live:
    """A job that runs: what is left of its start-up and of its work, in s as it goes alone."""

    job: int
    way: _Free
    start_up: float
    work: float

    @property
    def figures(self) -> tuple[int, float, bool]:
        """Threads, cores kept busy, and whether it starts up, which takes a core of any job."""
        starts_up = self.start_up > 0
        return self.way.threads, 1.0 if starts_up else self.way.busy, starts_up

    @property
    def area(self) -> float:
        return self.start_up + self.work * self.way.busy


@dataclass(slots=True)
class _Moment:
    """Where a job has ended, or the beginning: who may start is decided here."""

    now: float
    live: list[_Live]
    waiting: tuple[int, ...]
    ended: tuple[int, ...]
    steps: tuple[Step, ...]


class _FreeToMove:
    """The search among ways in which all jobs are free to move between cores."""

    def __init__(
        self, ways: Sequence[Sequence[_Free]], peaks: Sequence[float], *, cores: int, memory: float
    ) -> None:
        self._ways, self._peaks = ways, peaks
        self._cores, self._memory = cores, memory
        self._areas = [min(w.start_up + w.work * w.busy for w in each) for each in ways]
        self._shortest = [min(way.time for way in each) for each in ways]
        self._best: Found | None = None
        self._below = inf

    def search(self, below: float) -> Found | None:
        """The best way; None where none ends before `below`."""
        self._below = below
        self._from(_Moment(0.0, [], tuple(range(len(self._ways))), (), ()))
        return self._best

    def _from(self, moment: _Moment) -> None:
        if self._bound(moment) >= self._below * (1 - _NEAR):
            return
        if not moment.waiting and not moment.live:
            self._best, self._below = Found(moment.steps, moment.now), moment.now
            return
        for starts in self._sets(moment):
            later = self._after(moment, starts)
            if later is not None:
                self._from(later)

    def _bound(self, moment: _Moment) -> float:
        """What it takes at least, however it goes on."""
        area = sum(live.area for live in moment.live)
        area += sum(self._areas[job] for job in moment.waiting)
        longest = max(
            [live.start_up + live.work for live in moment.live]
            + [self._shortest[job] for job in moment.waiting],
            default=0.0,
        )
        return moment.now + max(area / self._cores, longest)

    def _sets(self, moment: _Moment) -> Iterator[tuple[tuple[int, _Free], ...]]:
        """Who may start now, with which threads; large sets first."""
        left = self._memory - sum(self._peaks[live.job] for live in moment.live)
        running = [live.way for live in moment.live]

        def extended(
            place: int, chosen: tuple[tuple[int, _Free], ...], left: float
        ) -> Iterator[tuple[tuple[int, _Free], ...]]:
            if place == len(moment.waiting):
                if chosen or running:
                    yield chosen
                return
            job = moment.waiting[place]
            for way in self._ways[job] if self._peaks[job] <= left else ():
                beside = [*running, *(each for _, each in chosen), way]
                if not _crowded(_figures(beside), self._cores):
                    yield from extended(place + 1, (*chosen, (job, way)), left - self._peaks[job])
            yield from extended(place + 1, chosen, left)

        yield from extended(0, (), left)

    def _after(self, moment: _Moment, starts: Sequence[tuple[int, _Free]]) -> _Moment | None:
        """The next moment; None where somebody would be crowded before it."""
        live = [_Live(each.job, each.way, each.start_up, each.work) for each in moment.live]
        live += [_Live(job, way, way.start_up, way.work) for job, way in starts]
        now, ended = moment.now, moment.ended
        while len(ended) == len(moment.ended):
            going = _going(
                tuple(each.figures for each in live),
                self._cores,
            )
            if going is None:
                return None
            lasts = [
                (each.start_up or each.work) / rate for each, rate in zip(live, going, strict=True)
            ]
            step = min(lasts)
            for each, rate, last in zip(live, going, lasts, strict=True):
                done = inf if last <= step * (1 + _NEAR) else step * rate
                if each.start_up > 0:
                    each.start_up = max(0.0, each.start_up - done)
                else:
                    each.work = max(0.0, each.work - done)
            now += step
            ended += tuple(each.job for each in live if not each.start_up and not each.work)
            live = [each for each in live if each.start_up or each.work]
        steps = tuple(
            Step(job=job, after=tuple(sorted(moment.ended)), threads=way.threads)
            for job, way in starts
        )
        begun = {job for job, _ in starts}
        waiting = tuple(job for job in moment.waiting if job not in begun)
        return _Moment(now, live, waiting, ended, moment.steps + steps)


def _figures(ways: Sequence[_Free]) -> tuple[tuple[int, float], ...]:
    return tuple(sorted((way.threads, way.busy) for way in ways))


@lru_cache(maxsize=2**16)
def _crowded(figures: tuple[tuple[int, float], ...], cores: int) -> bool:
    """Whether threads would crowd each other once all compute."""
    members = [Member("", threads, busy) for threads, busy in figures]
    return min(crowding(members, range(cores))) < 1


@lru_cache(maxsize=2**16)
def _going(figures: tuple[tuple[int, float, bool], ...], cores: int) -> tuple[float, ...] | None:
    """How fast each goes beside the others; None where somebody is crowded."""
    members = [Member("", threads, busy, None, start_up) for threads, busy, start_up in figures]
    if min(crowding(members, range(cores))) < 1:
        return None
    return rates(members, range(cores), PairCoefficients())
