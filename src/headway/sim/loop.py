"""The event loop: one instant at a time, exact, and the same on every machine.

At each instant the loop takes every event of that time, lets the caller speak, starts lanes in the
order of their index, and divides the touched pools anew, once, before time moves on. A caller
speaks between two calls of `Simulator.advance`, which never returns things of two different times.
`simulate` is the short way for a whole graph with nobody to ask.

[Note: ties] The heap's key is (time, priority, serial), the serial being the order of adding. Ends
at one time are all taken before a lane chooses, so their order decides nothing. A lane chooses the
lowest (priority, serial) among what is ready. So where tasks of one lane have different priorities,
the order in which they were added cannot be seen in any time; where they have equal ones, that
order, and nothing else, decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from headway.sim.pool import FULL_RATE, RATE_BITS, Group, Lane, Pool, PoolState
from headway.sim.task import (
    CANCELLED,
    ENDED,
    FLOWING,
    LATENT,
    READY,
    TIMED,
    WAITING,
    Entry,
    Record,
    RecordKind,
    Result,
    SimulationError,
    Span,
    Task,
    find_cycle,
    named,
)


class Simulator:
    """A simulated machine that a caller drives: add tasks, advance, see what happened, speak again.

    Args:
        lanes: Names of the lanes; their order is the order in which they start tasks.
        pools: What tasks may draw on.

    Raises:
        SimulationError: two lanes or two pools have one name.

    Two jobs of 6 ns share two cores, where each could use both; the second comes 2 ns late:

    >>> from headway.sim.pool import EqualShare
    >>> sim = Simulator(pools=[Pool("cores", EqualShare(capacity=2))])
    >>> sim.add(Task("first", 6, demands=(("cores", 2),)))
    >>> [record.kind for record in sim.run_until(2)]
    ['started']
    >>> sim.add(Task("second", 6, demands=(("cores", 2),)))
    >>> [(record.t_ns, record.kind, record.id) for record in sim.run_until(100)]
    [(2, 'started', 'second'), (10, 'ended', 'first'), (12, 'ended', 'second')]
    """

    def __init__(self, *, lanes: Iterable[str] = (), pools: Iterable[Pool] = ()) -> None:
        self.now_ns = 0
        names, pools = list(lanes), list(pools)
        self._lanes = [Lane(name, index) for index, name in enumerate(names)]
        self._lane_of = dict(zip(names, self._lanes, strict=True))
        self._pool_of = {pool.name: PoolState(pool) for pool in pools}
        if len(self._lane_of) < len(names) or len(self._pool_of) < len(pools):
            raise SimulationError(
                f"names of lanes and of pools must differ, but the lanes are {named(names)} "
                f"and the pools {named(pool.name for pool in pools)}"
            )
        self._group_of: dict[tuple[tuple[str, int], ...], Group] = {}
        self._entries: dict[str, Entry] = {}
        self._open_gates: set[str] = set()
        self._at_gate: dict[str, list[Entry]] = {}
        self._events: list[tuple[int, tuple[int, int], int, Entry | Group]] = []
        # What has to be done at this instant before time moves on:
        self._loose: list[Entry] = []  # ready, and on no lane
        self._touched_lanes: set[int] = set()
        self._touched_groups: dict[Group, None] = {}
        self._log: list[tuple[RecordKind, Entry]] = []

    # -- what a caller may do at any instant ------------------------------------------------------

    def add(self, *tasks: Task) -> None:
        """Add tasks, all or (on an error) none. They may depend on each other in any order.

        Raises:
            SimulationError: an id was used before; a lane, pool or dependency is not known; a
                dependency was cancelled; the dependencies form a cycle.
        """
        fresh: dict[str, Entry] = {}
        ahead: list[tuple[str, str]] = []
        serial = len(self._entries)
        for task in tasks:
            if task.id in fresh or task.id in self._entries:
                raise SimulationError(f"there is a task {task.id!r} already; give it another id")
            for dep in task.deps:
                if dep not in fresh:
                    self._check_dep(task.id, dep, ahead)
            fresh[task.id] = Entry(task, serial, self._find_lane(task), self._find_group(task))
            serial += 1
        if ahead:
            self._check_ahead(ahead, fresh)
        self._entries.update(fresh)
        for entry in fresh.values():
            self._link(entry)

    def cancel(self, task_id: str) -> tuple[Record, ...]:
        """Stop a task now, and with it all that waits for its end, directly or not.

        What it has done so far stays as a span marked `cancelled`. A task that has ended or was
        cancelled before is left as it is, and nothing is returned.

        Raises:
            SimulationError: there is no such task.
        """
        stack = [self._entry(task_id)]
        records = []
        while stack:
            entry = stack.pop()
            if entry.state >= ENDED:
                continue
            self._release(entry, CANCELLED)
            lane = entry.task.lane
            records.append(Record(self.now_ns, "cancelled", entry.task.id, lane))
            stack.extend(reversed(entry.followers))
        return tuple(records)

    def open_gate(self, name: str) -> None:
        """Let go of the tasks held by this gate, and of later ones: a gate stays open."""
        self._open_gates.add(name)
        for entry in self._at_gate.pop(name, ()):
            self._close_condition(entry)

    # -- time moves on ----------------------------------------------------------------------------

    def advance(self, until_ns: int | None = None) -> list[Record]:
        """Go on to the next time a task starts or ends, and say which; all of it at `now_ns`.

        Ends come first, and lanes choose in the next call: tasks that a caller adds in between take
        part in the choice. So one instant may take several calls.

        Args:
            until_ns: Go no further than this. If nothing happens up to and at this time, the answer
                is empty and `now_ns` is this time.

        Returns:
            What started or ended; empty if nothing more will happen by itself (or by `until_ns`).

        Raises:
            SimulationError: `until_ns` is in the past, or a task's rate falls below 2^-20.
        """
        if until_ns is not None and until_ns < self.now_ns:
            raise SimulationError(f"time is {self.now_ns} ns already; cannot go back to {until_ns}")
        while not self._log and self._step(until_ns):
            pass
        log, self._log = self._log, []
        return [Record(self.now_ns, kind, entry.task.id, entry.task.lane) for kind, entry in log]

    def run_until(self, until_ns: int) -> list[Record]:
        """Advance up to and including `until_ns`, with nobody speaking in between."""
        records: list[Record] = []
        while happened := self.advance(until_ns):
            records += happened
        return records

    def finish(self) -> None:
        """Advance until nothing more happens by itself, without saying what did."""
        while self._step(None):
            self._log.clear()

    # -- what can be asked ------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        """Ids of the tasks that have neither ended nor been cancelled, in the order of adding."""
        return [key for key, entry in self._entries.items() if entry.state < ENDED]

    def rate_of(self, task_id: str) -> int:
        """The rate at which a task works from now on, in units of 2^-20; 0 while it does not."""
        entry = self._entry(task_id)
        self._share()
        if entry.state == FLOWING and entry.group:
            return entry.group.rate
        return FULL_RATE if entry.state == TIMED and self._worked_ns(entry) >= 0 else 0

    def remaining_ns(self, task_id: str) -> int:
        """Work a task has still to do, in ns at full rate, rounded up; 0 once it is over."""
        entry = self._entry(task_id)
        if entry.state >= ENDED:
            return 0
        if entry.state == FLOWING and entry.group:
            return -((entry.group.reading(self.now_ns) - entry.target) >> RATE_BITS)
        worked_ns = self._worked_ns(entry) if entry.state == TIMED else 0
        return entry.task.work_ns - max(worked_ns, 0)

    def result(self) -> Result:
        """The spans of all tasks that have ended, or were cancelled after they had started."""
        return Result(
            tuple(
                sorted(
                    Span(e.start_ns, e.end_ns, e.task.id, e.task.lane, e.state == CANCELLED)
                    for e in self._entries.values()
                    if e.state >= ENDED and e.start_ns >= 0
                )
            )
        )

    # -- adding -----------------------------------------------------------------------------------

    def _entry(self, task_id: str) -> Entry:
        entry = self._entries.get(task_id)
        if entry is None:
            raise SimulationError(f"there is no task {task_id!r} among {named(self._entries)}")
        return entry

    def _find_lane(self, task: Task) -> Lane | None:
        if task.lane is None:
            return None
        lane = self._lane_of.get(task.lane)
        if lane is None:
            raise SimulationError(
                f"task {task.id!r} is on lane {task.lane!r}, but the lanes are "
                f"{named(self._lane_of)}; name it when the simulator is made"
            )
        return lane

    def _find_group(self, task: Task) -> Group | None:
        if not task.demands:
            return None
        group = self._group_of.get(task.demands)
        if group is not None:
            return group
        for name, _ in task.demands:
            if name not in self._pool_of:
                raise SimulationError(
                    f"task {task.id!r} draws on pool {name!r}, but the pools are "
                    f"{named(self._pool_of)}; name it when the simulator is made"
                )
        ordered = tuple(sorted(task.demands))
        if ordered not in self._group_of:
            self._group_of[ordered] = Group(tuple((self._pool_of[n], d) for n, d in ordered))
        return self._group_of.setdefault(task.demands, self._group_of[ordered])

    def _check_dep(self, task_id: str, dep: str, ahead: list[tuple[str, str]]) -> None:
        """Refuse a cancelled dependency; one not known so far goes on the list `ahead`."""
        known = self._entries.get(dep)
        if known is None:
            ahead.append((task_id, dep))
        elif known.state == CANCELLED:
            raise SimulationError(
                f"task {task_id!r} waits for {dep!r}, which was cancelled; leave the task out"
            )

    def _check_ahead(self, ahead: list[tuple[str, str]], fresh: dict[str, Entry]) -> None:
        """Check dependencies that stand after their followers: only they can close a cycle."""
        for task_id, dep in ahead:
            if dep not in fresh:
                raise SimulationError(
                    f"task {task_id!r} waits for {dep!r}, which is not known; add it before, or "
                    "in the same call"
                )
        cycle = find_cycle({key: entry.task for key, entry in fresh.items()})
        if cycle:
            raise SimulationError(
                f"tasks wait for each other in a circle: {' -> '.join(cycle)} "
                "(each waits for the next); take one of these dependencies away"
            )

    def _link(self, entry: Entry) -> None:
        """Note what an entry has to wait for."""
        task = entry.task
        for dep in task.deps:
            before = self._entries[dep]
            if before.state != ENDED:
                entry.open_conditions += 1
                before.followers.append(entry)
        if task.gate is not None and task.gate not in self._open_gates:
            entry.open_conditions += 1
            self._at_gate.setdefault(task.gate, []).append(entry)
        if task.release_ns > self.now_ns:
            entry.open_conditions += 1
            heappush(self._events, (task.release_ns, entry.priority, entry.serial, entry))
        if not entry.open_conditions:
            self._make_ready(entry)

    # -- one instant ------------------------------------------------------------------------------

    def _step(self, until_ns: int | None) -> bool:
        """Do the next part of this instant, else go to the next one; False if there is none."""
        if self._loose or (self._events and self._events[0][0] <= self.now_ns):
            self._take_events()
        elif self._touched_lanes:
            self._start_lanes()
        else:
            if self._touched_groups:
                self._share()
            next_ns = self._next_ns()
            if next_ns is None or (until_ns is not None and next_ns > until_ns):
                self.now_ns = self.now_ns if until_ns is None else until_ns
                return False
            self.now_ns = next_ns
            self._take_events()
        return True

    def _next_ns(self) -> int | None:
        """The time of the next event that still holds."""
        events = self._events
        while events:
            time_ns, _, _, subject = events[0]
            if isinstance(subject, Group):
                if subject.next_ns == time_ns:
                    return time_ns
            elif subject.state != CANCELLED:
                return time_ns
            heappop(events)
        return None

    def _take_events(self) -> None:
        """Take all events of this time, and those that tasks without lane and work add to it."""
        events, now_ns = self._events, self.now_ns
        while True:
            while events and events[0][0] <= now_ns:
                subject = heappop(events)[3]
                if isinstance(subject, Group):
                    for entry in subject.take_due(now_ns):
                        self._end(entry)
                elif subject.state == TIMED:
                    self._end(subject)
                elif subject.state == WAITING:
                    self._close_condition(subject)
                elif subject.state == LATENT:
                    self._flow(subject)
            if not self._loose:
                return
            loose, self._loose = self._loose, []
            for entry in loose:
                if entry.state == READY:
                    self._begin(entry)

    def _start_lanes(self) -> None:
        touched, self._touched_lanes = self._touched_lanes, set()
        for index in sorted(touched):
            lane = self._lanes[index]
            while lane.running is None and lane.waiting:
                entry = heappop(lane.waiting)[2]
                if entry.state == READY:
                    lane.running = entry
                    self._begin(entry)

    def _share(self) -> None:
        """Divide the touched pools anew, and note when the next member of each group ends."""
        affected, self._touched_groups = self._touched_groups, {}
        for pool in dict.fromkeys(pool for group in affected for pool, _ in group.demands):
            pool.share(affected)
        for group in affected:
            if group.count:
                head = group.retime(self.now_ns)
                heappush(self._events, (group.next_ns, head.priority, head.serial, group))

    # -- one task ---------------------------------------------------------------------------------

    def _close_condition(self, entry: Entry) -> None:
        entry.open_conditions -= 1
        if not entry.open_conditions and entry.state == WAITING:
            self._make_ready(entry)

    def _make_ready(self, entry: Entry) -> None:
        entry.state = READY
        lane = entry.lane
        if lane is None:
            self._loose.append(entry)
        else:
            heappush(lane.waiting, (entry.priority, entry.serial, entry))
            self._touched_lanes.add(lane.index)

    def _begin(self, entry: Entry) -> None:
        entry.start_ns = self.now_ns
        self._log.append(("started", entry))
        task = entry.task
        if entry.group is None:
            self._end_at(self.now_ns + task.latency_ns + task.work_ns, entry)
        elif task.latency_ns:
            entry.state = LATENT
            after_ns = self.now_ns + task.latency_ns
            heappush(self._events, (after_ns, entry.priority, entry.serial, entry))
        else:
            self._flow(entry)

    def _flow(self, entry: Entry) -> None:
        """Begin to draw on pools."""
        if entry.group is None or not entry.task.work_ns:
            self._end_at(self.now_ns, entry)
        else:
            entry.group.join(entry, self.now_ns)
            self._touched_groups[entry.group] = None

    def _end_at(self, time_ns: int, entry: Entry) -> None:
        entry.state = TIMED
        entry.end_ns = time_ns
        heappush(self._events, (time_ns, entry.priority, entry.serial, entry))

    def _end(self, entry: Entry) -> None:
        self._log.append(("ended", entry))
        self._release(entry, ENDED)
        for follower in entry.followers:
            self._close_condition(follower)

    def _release(self, entry: Entry, state: int) -> None:
        """Take an entry out, with `state` for good: free its lane and its part of the pools."""
        group, lane = entry.group, entry.lane
        if group is not None and entry.state == FLOWING:
            group.leave()
            self._touched_groups[group] = None
        entry.state = state
        entry.end_ns = self.now_ns
        if lane is not None and lane.running is entry:
            lane.running = None
            self._touched_lanes.add(lane.index)

    def _worked_ns(self, entry: Entry) -> int:
        """What a task whose end is known has worked; negative during its latency."""
        return self.now_ns - (entry.end_ns - entry.task.work_ns)


def simulate(
    tasks: Iterable[Task], *, lanes: Iterable[str] = (), pools: Iterable[Pool] = ()
) -> Result:
    """Run a whole graph from time 0 to its end.

    Raises:
        SimulationError: as `Simulator.add`; or some tasks can never start, since nobody is here to
            open their gates.

    >>> result = simulate([Task("a", 3, lane="gpu"), Task("b", 4, lane="gpu")], lanes=["gpu"])
    >>> result.makespan_ns, result.by_id()["b"].start_ns
    (7, 3)
    """
    simulator = Simulator(lanes=lanes, pools=pools)
    simulator.add(*tasks)
    simulator.finish()
    held = simulator.unfinished()
    if held:
        raise SimulationError(
            f"nothing more can start, but tasks are left: {named(held)}; a gate is closed: "
            "open it through a Simulator"
        )
    return simulator.result()
