"""The simulated world of the queue: jobs as tasks on a pool of cores, on the simulator's clock.

It speaks the words of `core.words` and lets the same view say what happened, so a policy cannot
tell it from the real one. It does nothing but what it is told: with the same arguments the same
words come at the same nanoseconds.

[Note: what is simulated] A job has a start-up on one core, then its ops one after another, each as
wide as it demands and its share allows (half the cores take twice as long). All draw on one pool,
shared equally, unless a model of neighbours is given: then that says how fast each goes. Memory
grows evenly over the first part of the work. It is looked at once a tick and at an attempt's end;
that is also when a cap, the kernel and the guard act. A stop takes no time. What several jobs on
one device mean to each other stands in `sim.devices`.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import Placement
from headway.core.timeline import Header, Span, Timeline, attempt_spans
from headway.core.units import NS_PER_S, show_bytes
from headway.core.view import View
from headway.core.words import (
    Action,
    Arrived,
    Cancelled,
    Event,
    Exited,
    Memory,
    MemoryPressure,
    Outcome,
    Phase,
    Replan,
    Replanned,
    Reshare,
    Retry,
    Settle,
    Start,
    Started,
    Status,
    Stop,
    StopHow,
    Tick,
)
from headway.core.workload import Workload
from headway.sim.attempt import MILLI, Fate, SimulatedAttempt, Together
from headway.sim.devices import CONTEXT_BYTES, DeviceModel, SimulatedDevices
from headway.sim.loop import Simulator
from headway.sim.pool import EqualShare, Pool
from headway.sim.task import SimulationError, named

# Below this part of the memory free, the world tells of pressure; as the real guard does.
PRESSURE_PART = 0.04
_STOPPED_AS: Mapping[StopHow, Status] = {"timeout": "timeout", "stall": "stalled"}


class SimulatedWorld:
    """A run in simulated time; see `core.policy.World` for the protocol.

    `words` keeps every event told and every action performed, with its time: what the journal is
    to the real world. `memory` is the policy's memory as it was remembered last.

    Args:
        jobs: In the order of the file.
        placements: One a job, as in a Plan.
        machine: Its usable cores are the pool, its memory is what the kernel defends.
        workloads: One a job.
        fates: By name of the job, where it does not simply do what its workload says.
        together: How fast attempts go beside each other, asked whenever the running set changes.
        sharing: How they share devices; None: each draws its part, and all are slowed alike.
        context_bytes: What each process takes of a device's memory for itself.
        tick_ns: How often readings are taken.
        idle_ticks: After so many without anything going on the policy waits for what will never be.

    >>> from headway.core.job import Job
    >>> from headway.planners.collocation import fixed_plan
    >>> from headway.planners.queue import Queue
    >>> from headway.sim.drive import drive
    >>> from headway.testing.machines import fake_machine
    >>> jobs = [Job(name=name, command="./train", folder="/") for name in "abc"]
    >>> plan = fixed_plan(jobs, fake_machine(cores=2), mode="partitioned", environment={})
    >>> world = SimulatedWorld(
    ...     jobs,
    ...     plan.placements,
    ...     fake_machine(cores=2),
    ...     [Workload.opaque(name, work_ns=10 * NS_PER_S) for name in "abc"],
    ... )
    >>> drive(Queue(**plan.policy.knobs), world)
    >>> [(state.status, state.ended_ns / NS_PER_S) for state in world.view.states]
    [('ok', 10.0), ('ok', 10.0), ('ok', 20.0)]
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        placements: Sequence[Placement],
        machine: Machine,
        workloads: Sequence[Workload],
        *,
        fates: Mapping[str, Fate] | None = None,
        together: Together | None = None,
        sharing: DeviceModel | None = None,
        context_bytes: int = CONTEXT_BYTES,
        tick_ns: int = NS_PER_S,
        idle_ticks: int = 20_000,
    ) -> None:
        self.view = View.of(jobs, placements, machine)
        self.words: list[tuple[int, Event | Action]] = []
        self.memory: Memory | None = None
        self._workloads = list(workloads)
        self._fates = dict(fates or {})
        unknown = self._fates.keys() - self.view.by_name.keys()
        if len(self._workloads) != len(jobs) or unknown:
            raise SimulationError(
                f"{len(jobs)} jobs need as many workloads, {len(self._workloads)} were given, and "
                f"fates of jobs of the list only (not known: {named(sorted(unknown))})"
            )
        self._together = together
        cores = EqualShare(capacity=MILLI * machine.usable_cores)
        self._devices = SimulatedDevices(
            machine.devices, context_bytes=context_bytes, model=sharing
        )
        self._simulator = Simulator(pools=[Pool("cores", cores), *self._devices.pools])
        self._attempts: dict[int, SimulatedAttempt] = {}
        self._by_task: dict[str, SimulatedAttempt] = {}
        self._events: deque[Event] = deque(Arrived(0, index) for index in self.view.arrivals())
        self._events.append(Tick(0))
        self._tick_ns = self._next_tick_ns = tick_ns
        self._most_idle_ticks, self._idle_ticks = idle_ticks, 0
        self._spans: list[Span] = []
        # Whether who runs, or how, is another than when it was last asked how fast each goes.
        self._changed = False

    # --- the protocol of a world -----------------------------------------------------------------

    def recall(self) -> Memory | None:
        """None: a simulation starts anew."""
        return self.memory

    def remember(self, memory: Memory) -> None:
        """Keep the policy's memory."""
        self.memory = memory

    def replan(self, placements: Mapping[int, Placement], reason: str) -> None:
        """Give jobs that wait these placements; `Replanned` follows."""
        if placements:
            self.words.append((self.now_ns, Replan(reason)))
            self.view.replan(placements)
        self._events.append(Replanned(self.now_ns))

    def next(self) -> Event | None:
        """The next event; None when every job is settled, or none runs and no new one may start.

        Raises:
            SimulationError: Nothing goes on any more, and still jobs wait.
        """
        while True:
            while self._events:
                event = self._events.popleft()
                if not isinstance(event, Arrived) or self.view.ready(event.job):
                    return self._happened(event)
            if self.view.unsettled == 0 or (self.view.draining and not self._attempts):
                return None
            self._advance()

    def perform(self, *actions: Action) -> bool:
        """Let the view say so, and do it; True, since nobody else is here to be faster."""
        for action in actions:
            self._do(action)
        return True

    def _do(self, action: Action) -> None:
        todo = [action]
        while todo:
            action = todo.pop()
            self.words.append((self.now_ns, action))
            concerned = self.view.apply(action, self.now_ns)
            match action:
                case Start(job):
                    self._begin(job)
                case Stop(job, how, reason):
                    outcome = Outcome(_STOPPED_AS.get(how, "cancelled"), reason, stopped=how)
                    self._leave(self._attempts[job], outcome)
                case Reshare(job):
                    self._reshare(self._attempts[job])
                case Retry():
                    self._events.append(Tick(self.now_ns))
                case Settle():
                    arrived, cancelled = self.view.follow(action, concerned)
                    self._events.extend(Arrived(self.now_ns, index) for index in arrived)
                    self._events.extend([Tick(self.now_ns)] if arrived else [])
                    todo.extend(cancelled)

    # --- what users ask for ----------------------------------------------------------------------

    def interrupt(self, level: int) -> None:
        """Ctrl-C: 1 starts nothing new, 2 and more also stop what runs."""
        self.view.draining = True
        self._events.append(Tick(self.now_ns))
        for index in list(self._attempts) if level > 1 else ():
            self.perform(Stop(index, "interrupt", "stopped with the run"))

    def cancel(self, names: Collection[str]) -> None:
        """Cancel jobs; what has ended stays as it ended."""
        for name in names:
            index = self.view.by_name[name]
            if index in self._attempts:
                self.perform(Stop(index, "cancel", "cancelled by the user"))
            elif self.view.states[index].status == "waiting":
                self.perform(Settle(index, "cancelled", "cancelled by the user"))
                self._events.append(Cancelled(self.now_ns, index))

    # --- what can be asked -----------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """The simulator's time."""
        return self._simulator.now_ns

    @property
    def makespan_ns(self) -> int:
        """When the last attempt so far ended; 0 if none did."""
        return max((span.t + span.d for span in self._spans), default=0)

    def timeline(self) -> Timeline:
        """What ran where and when."""
        lanes = tuple(dict.fromkeys(span.lane for span in self._spans))
        return Timeline(header=Header(source="simulated", lanes=lanes), spans=tuple(self._spans))

    # --- time moves on ---------------------------------------------------------------------------

    def _happened(self, event: Event) -> Event:
        self.words.append((event.t, event))
        self.view.apply(event, event.t)
        if isinstance(event, Exited):
            self._spans.extend(attempt_spans(self.view.states[event.job], event.t))
        return event

    def _advance(self) -> None:
        self._retime()
        records = self._simulator.advance(self._next_tick_ns)
        for record in records:
            if record.kind == "ended":
                self._task_ended(self._by_task.pop(record.id))
        if records:
            self._idle_ticks = 0
        elif self.now_ns == self._next_tick_ns:
            self._tick()

    def _tick(self) -> None:
        self._next_tick_ns += self._tick_ns
        self._idle_ticks += 1 if not self._by_task else 0
        if self._idle_ticks > self._most_idle_ticks:
            stuck = [
                f"{state.job.name} ({state.wait_reason or state.phase})"
                for state in self.view.states
                if not state.final
            ]
            raise SimulationError(
                f"nothing has gone on for {self._most_idle_ticks} ticks, and these have not ended: "
                f"{named(stuck)}; give hanging jobs a time-out, or see what the policy waits for"
            )
        for attempt in list(self._attempts.values()):
            self._read(attempt)
        self._defend_memory()
        self._events.append(Tick(self.now_ns))

    # --- attempts --------------------------------------------------------------------------------

    def _begin(self, index: int) -> None:
        state = self.view.states[index]
        assert state.share is not None
        fate = self._fates.get(state.job.name, Fate())
        stretch, demands = self._devices.usage(state.share, self._workloads[index])
        attempt = SimulatedAttempt(
            index,
            state.attempt,
            self._workloads[index],
            fate,
            state.share,
            self.view.machine,
            stretch=stretch,
            device_demands=demands,
        )
        self._attempts[index] = attempt
        self._events.append(Started(self.now_ns, index, state.attempt))
        if self._holds_devices(attempt):
            self._go_on(attempt)

    def _holds_devices(self, attempt: SimulatedAttempt) -> bool:
        """Whether it got what it now asks of its devices' memory; one that did not is over."""
        outcome = self._devices.hold(
            attempt.index, attempt.share, attempt.workload, stepping=attempt.started_up
        )
        if outcome is not None:
            self._leave(attempt, outcome)
        return outcome is None

    def _go_on(self, attempt: SimulatedAttempt) -> None:
        """Add the attempt's next task; one that hangs has none."""
        self._changed = True
        if self._add_task(attempt):
            return
        if not attempt.hangs:
            self._leave(attempt, self._end_of(attempt))
        else:
            attempt.hung_since_ns = self.now_ns

    def _add_task(self, attempt: SimulatedAttempt) -> bool:
        """Whether there is one more to add."""
        task = attempt.next_task(pooled=self._together is None)
        if task is not None:
            self._by_task[task.id] = attempt
            self._simulator.add(task)
        return task is not None

    def _retime(self) -> None:
        """Let each attempt go on as fast as those beside it allow from now on."""
        if self._together is None or not self._changed:
            return
        self._changed = False
        live = [attempt for attempt in self._attempts.values() if attempt.task is not None]
        kinds = [self.view.states[attempt.index].job.script for attempt in live]
        beside = [attempt.beside(kind) for attempt, kind in zip(live, kinds, strict=True)]
        for attempt, rate in zip(live, self._together(beside), strict=True):
            if rate != attempt.rate:
                self._interrupt(attempt)
                attempt.rate = rate
                self._add_task(attempt)

    def _interrupt(self, attempt: SimulatedAttempt) -> None:
        """Take an attempt's task back; what it has done stays done."""
        if attempt.task is not None:
            left_ns = self._simulator.remaining_ns(attempt.task)
            self._simulator.cancel(attempt.task)
            del self._by_task[attempt.task]
            attempt.interrupted(left_ns)

    def _task_ended(self, attempt: SimulatedAttempt) -> None:
        state = self.view.states[attempt.index]
        if attempt.task_ended():
            if not self._holds_devices(attempt):
                return
            seen = attempt.steps is not None
            if seen:
                state.first_step_ns = self.now_ns
            self._events.append(Phase(self.now_ns, attempt.index, "steps" if seen else "steady"))
        self._go_on(attempt)

    def _reshare(self, attempt: SimulatedAttempt) -> None:
        """Give the rest of the attempt's work its new share."""
        share = self.view.states[attempt.index].share
        assert share is not None
        self._interrupt(attempt)
        attempt.share = share
        if attempt.hung_since_ns is None:
            self._go_on(attempt)

    def _end_of(self, attempt: SimulatedAttempt) -> Outcome:
        """How an attempt ends that was let alone."""
        cap_bytes = attempt.share.cap_bytes
        if cap_bytes is not None and attempt.held_bytes(attempt.until) > cap_bytes:
            return _over_cap(cap_bytes)
        if attempt.number <= attempt.fate.fails:
            return Outcome("failed", f"exit 1: fails in attempt {attempt.number}", exit_code=1)
        if attempt.number <= attempt.fate.lost:
            return Outcome("lost", "its keeper is gone and left no exit record")
        return Outcome("ok", exit_code=0)

    def _leave(self, attempt: SimulatedAttempt, outcome: Outcome) -> None:
        """An attempt is over, with what was measured of it."""
        self._changed = True
        self._read(attempt)
        if attempt.task is not None:
            self._simulator.cancel(attempt.task)
            self._by_task.pop(attempt.task, None)
        del self._attempts[attempt.index]
        self._devices.leave(attempt.index)
        state = self.view.states[attempt.index]
        measured = replace(
            outcome,
            peak_bytes=state.peak_bytes,
            steps=state.steps,
            step_ns=None if state.step_ns is None else int(state.step_ns),
            mean_step_ns=None if state.step_ns is None else int(state.step_ns),
            first_step_ns=state.first_step_ns,
            unseen="" if attempt.steps is not None else "steps are not visible",
        )
        self._events.append(Exited(self.now_ns, attempt.index, measured))

    # --- readings --------------------------------------------------------------------------------

    def _read(self, attempt: SimulatedAttempt) -> None:
        """What a sampler would see of an attempt now."""
        state, task = self.view.states[attempt.index], attempt.task
        part = self._part_done(attempt)
        state.resident_bytes = attempt.held_bytes(part)
        if attempt.share.cap_bytes is not None:
            # The kernel gives no page above the cap.
            state.resident_bytes = min(state.resident_bytes, attempt.share.cap_bytes)
        state.peak_bytes = max(state.peak_bytes, state.resident_bytes)
        state.cores_used = attempt.width / MILLI if task is not None else 0.0
        state.processes = 1
        state.quiet_since_ns = self.now_ns if task is not None else attempt.hung_since_ns
        if attempt.started_up:
            state.busy_threads = attempt.busy_threads
        if attempt.steps is not None and state.first_step_ns is not None:
            state.steps = int(attempt.steps * part)
            if state.steps:
                state.last_step_ns = state.quiet_since_ns
                state.step_ns = (self.now_ns - state.first_step_ns) / state.steps

    def _part_done(self, attempt: SimulatedAttempt) -> float:
        task = attempt.task
        return attempt.part_done(self._simulator.remaining_ns(task) if task is not None else 0)

    def _defend_memory(self) -> None:
        """Caps first, then the kernel, then the guard's word."""
        for attempt in list(self._attempts.values()):
            cap_bytes = attempt.share.cap_bytes
            if cap_bytes is not None and attempt.held_bytes(self._part_done(attempt)) > cap_bytes:
                self._leave(attempt, _over_cap(cap_bytes))
        while self._attempts and self._free_bytes() < 0:
            largest = max(
                self._attempts.values(),
                key=lambda attempt: (
                    self.view.states[attempt.index].resident_bytes,
                    attempt.index,
                ),
            )
            held = show_bytes(self.view.states[largest.index].resident_bytes)
            cause = f"killed at {held}; the machine's memory was full"
            self._leave(largest, Outcome("oom", cause, signal=9))
        free_bytes = self._free_bytes()
        mark = PRESSURE_PART * self.view.machine.host.memory_bytes
        if free_bytes < mark and len(self._attempts) > 1:
            self._events.append(MemoryPressure(self.now_ns, free_bytes))

    def _free_bytes(self) -> int:
        ours = sum(self.view.states[index].resident_bytes for index in self._attempts)
        return self.view.machine.host.memory_bytes - self.view.foreign_bytes - ours


def _over_cap(cap_bytes: int) -> Outcome:
    cause = f"killed at its cap of {show_bytes(cap_bytes)}; the job itself grew"
    return Outcome("oom", cause, signal=9)
