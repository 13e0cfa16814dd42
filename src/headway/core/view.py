"""What a policy sees: the queue and the machine's free room.

Updated per event, never rebuilt: every method here costs O(1), or O(log n) for the queue's order.
A policy only reads; worlds call the methods below the line.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from headway.core.holdings import Elsewhere
from headway.core.job import Job
from headway.core.machine import Device, Machine
from headway.core.plan import Placement
from headway.core.words import (
    FINAL,
    Action,
    Arrived,
    Event,
    Exited,
    Outcome,
    Phase,
    Replanned,
    Reserve,
    Reshare,
    Retry,
    Settle,
    Share,
    Start,
    Status,
    Stop,
    Tick,
    Wait,
)


@dataclass(slots=True)
class JobState:
    """One job as it stands now. Times are ns on the driver's clock, memory is bytes."""

    index: int
    job: Job
    placement: Placement
    status: Status = "waiting"
    attempt: int = 0
    share: Share | None = None
    last_share: Share | None = None  # of the attempt that ended last
    threads: int | None = None  # of the first attempt: a retry gets the same count again
    reserved_bytes: int | None = None  # corrected reservation for the next attempt
    retries: int = 0
    oom_retries: int = 0
    stops: int = 0  # times the memory guard stopped it
    started_ns: int | None = None
    ended_ns: int | None = None
    first_step_ns: int | None = None
    phase: str = "start-up"
    steps: int | None = None
    step_ns: float | None = None
    last_step_ns: int | None = None
    resident_bytes: int = 0
    peak_bytes: int = 0
    cores_used: float = 0.0
    busy_threads: int | None = None  # threads of its busiest process that really compute
    processes: int = 0
    quiet_since_ns: int | None = None  # neither a step nor CPU time since then
    stalled_mark: bool = False
    stopping: bool = False
    confined: str = ""  # why it was held to fewer cores, in words
    queued: bool = False
    wait_reason: str = ""
    wants: int = 0  # cores that it would take at once if other runs held none
    outcome: Outcome | None = None
    cause: str = ""
    missing: set[str] = field(default_factory=set)  # predecessors that have not ended ok yet
    priority: int = 0  # of its group the highest; higher ones are taken first

    @property
    def final(self) -> bool:
        """True once the job has its last word."""
        return self.status in FINAL


@dataclass(slots=True)
class View:
    """The queue, the running set, and what is free.

    `capacity_bytes` is what jobs may use in all; `foreign_bytes` and `foreign_cores` are what
    others use of the machine now; `elsewhere` is what other runs of the same user hold, which is
    neither free nor foreign. `served_ns` is when a job was started last. `draining` forbids new
    starts (the user pressed Ctrl-C).
    """

    machine: Machine
    states: list[JobState]
    t: int = 0
    waiting: list[int] = field(default_factory=list)  # sorted by `place`
    running: dict[int, JobState] = field(default_factory=dict)
    free_cores: set[int] = field(default_factory=set)
    free_devices: set[int] = field(default_factory=set)
    reserved_bytes: int = 0
    foreign_bytes: int = 0
    foreign_cores: float = 0.0
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    served_ns: int = 0
    draining: bool = False
    unsettled: int = 0
    groups: dict[str, list[int]] = field(default_factory=dict)
    by_name: dict[str, int] = field(default_factory=dict)
    followers: dict[str, list[int]] = field(default_factory=dict)
    peaks: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    step_counts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, jobs: Sequence[Job], placements: Sequence[Placement], machine: Machine) -> "View":
        """The view before the first event: nothing waits yet, everything is free."""
        states = [
            JobState(index, job, placement, missing=set(job.after), priority=priority)
            for index, (job, placement, priority) in enumerate(
                zip(jobs, placements, _priorities(jobs), strict=True)
            )
        ]
        view = cls(
            machine=machine,
            states=states,
            free_cores=set(machine.host.cores),
            # A device of which we cannot tell that it is empty is not free.
            free_devices={device.index for device in machine.devices if not device.taken},
            foreign_bytes=machine.foreign.memory_bytes,
            unsettled=len(states),
        )
        for state in states:
            view.by_name[state.job.name] = state.index
            if state.job.group is not None:
                view.groups.setdefault(state.job.group, []).append(state.index)
            for name in state.job.after:
                view.followers.setdefault(name, []).append(state.index)
        return view

    @property
    def capacity_bytes(self) -> int:
        """Memory that all jobs together may use: the limit, less 5% for the system."""
        return self.machine.capacity_bytes

    @property
    def free_bytes(self) -> int:
        """What may still be reserved: capacity less others' use and what is reserved."""
        others = self.foreign_bytes + self.elsewhere.reserved_bytes
        return self.capacity_bytes - others - self.reserved_bytes

    def peak_of_script(self, script: str) -> int | None:
        """95th percentile (nearest rank) of the peaks of ended attempts of one script, bytes."""
        peaks = self.peaks.get(script)
        return peaks[ceil(0.95 * len(peaks)) - 1] if peaks else None

    def place(self, index: int) -> tuple[int, int, int]:
        """Where a job stands in the queue: by priority, by rank in the plan, as in the file."""
        state = self.states[index]
        return -state.priority, state.placement.rank, index

    # --- below: called by worlds only ------------------------------------------------------------

    def apply(self, word: Event | Action, t: int) -> list[int]:
        """Let the view say what happened or was done; the same for live words and journalled ones.

        Returns the jobs that a Settle concerns next (see `settle`), else nothing.
        """
        self.t = max(self.t, t)
        match word:
            case Start(job, share):
                self.start(job, share, t)
            case Exited(_, job, outcome):
                self.end(job, outcome, t)
            case Retry(job, reserved_bytes, reason, counts):
                self.requeue(job, reserved_bytes, reason)
                self.states[job].retries += counts == "retry"
                self.states[job].oom_retries += counts == "oom"
            case Settle(job, status, cause):
                return self.settle(job, status, cause)
            case Arrived(_, job):
                self.arrive(job)
            case Reserve(job, reserved_bytes):
                self.reserve(job, reserved_bytes)
            case Stop(job, how, reason):
                state = self.states[job]
                state.stopping, state.cause = True, reason
                state.stops += how == "memory"
            case Reshare(job, cores, reason):
                self.confine(job, cores, reason)
            case Phase(_, job, phase):
                self.states[job].phase = phase
            case Wait(job, reason, wants):
                self.states[job].wait_reason, self.states[job].wants = reason, wants or 0
            case Replanned() | Tick():
                pass
        return []

    def arrive(self, index: int) -> None:
        """A job joins the queue at its place."""
        insort(self.waiting, index, key=self.place)
        self.states[index].queued = True

    def leave_queue(self, index: int) -> None:
        """A job that waited does not any more."""
        if self.states[index].queued:
            del self.waiting[bisect_left(self.waiting, self.place(index), key=self.place)]
            self.states[index].queued = False

    def start(self, index: int, share: Share, t: int) -> JobState:
        """A job leaves the queue and takes its share."""
        state = self.states[index]
        self.leave_queue(index)
        state.status, state.share = "running", share
        state.started_ns, state.ended_ns, state.first_step_ns = t, None, None
        state.attempt += 1
        state.threads = share.threads if state.threads is None else state.threads
        state.phase, state.steps, state.step_ns, state.last_step_ns = "start-up", None, None, None
        state.resident_bytes = state.peak_bytes = state.processes = 0
        state.cores_used, state.busy_threads, state.quiet_since_ns = 0.0, None, None
        state.stalled_mark = state.stopping = False
        state.wait_reason, state.outcome, state.cause, state.confined = "", None, "", ""
        state.wants, self.served_ns = 0, t
        self.running[index] = state
        if share.cores is not None:
            self.free_cores.difference_update(share.cores)
        self.free_devices.difference_update(share.devices)
        self.reserved_bytes += share.reserved_bytes
        return state

    def reserve(self, index: int, reserved_bytes: int) -> None:
        """The reservation of a running job changes."""
        state = self.states[index]
        assert state.share is not None
        self.reserved_bytes += reserved_bytes - state.share.reserved_bytes
        state.share = replace(state.share, reserved_bytes=reserved_bytes)

    def confine(self, index: int, cores: tuple[int, ...], reason: str) -> None:
        """A running job is held to these cores from now on."""
        state = self.states[index]
        assert state.share is not None
        state.share = replace(state.share, cores=cores)
        state.confined = reason
        self.free_cores.difference_update(cores)

    def end(self, index: int, outcome: Outcome, t: int) -> None:
        """A running job's attempt ended; its share is free again."""
        state = self.running.pop(index)
        share = state.share
        assert share is not None
        if share.cores is not None:
            taken = {c for other in self.running.values() for c in _pinned(other)}
            self.free_cores.update(set(share.cores) - taken - self.elsewhere.cores)
        free = self._unheld(share.devices)
        if share.device_bytes is not None:
            free -= self._given_devices()
        self.free_devices.update(free)
        self.reserved_bytes -= share.reserved_bytes
        state.outcome, state.share, state.last_share, state.ended_ns = outcome, None, share, t
        state.stopping = False
        if outcome.steps is not None:
            state.steps, state.step_ns = outcome.steps, outcome.step_ns
            state.first_step_ns = outcome.first_step_ns
        if outcome.peak_bytes:
            state.peak_bytes = max(state.peak_bytes, outcome.peak_bytes)
        if outcome.status in ("ok", "oom") and state.peak_bytes:
            insort(self.peaks[state.job.script], state.peak_bytes)
        if outcome.status == "ok" and state.steps:
            insort(self.step_counts[state.job.script], state.steps)

    def requeue(self, index: int, reserved_bytes: int | None, reason: str) -> None:
        """An ended job waits for another attempt."""
        state = self.states[index]
        state.status, state.wait_reason, state.wants = "waiting", reason, 0
        state.reserved_bytes = reserved_bytes
        self.arrive(index)

    def reopen(self, index: int) -> None:
        """A settled job is wanted again: it waits for its predecessors, then for room."""
        state = self.states[index]
        state.status, state.cause, state.retries, state.oom_retries = "waiting", "", 0, 0
        state.missing = {n for n in state.job.after if self.states[self.by_name[n]].status != "ok"}
        self.unsettled += 1

    def replan(self, placements: Mapping[int, Placement]) -> None:
        """Jobs that do not run are to be placed otherwise from now on."""
        for index, placement in placements.items():
            if index not in self.running and not self.states[index].final:
                self.states[index].placement = placement
        self.waiting.sort(key=self.place)

    def see_devices(self, devices: Iterable[Device]) -> None:
        """Others came to devices or left them; those that our own jobs hold are theirs anyway."""
        held = self._given_devices()
        seen = {device.uuid: device for device in devices}
        now = []
        for device in self.machine.devices:
            fresh = seen.get(device.uuid) if device.index not in held else None
            now.append(
                device if fresh is None else fresh.model_copy(update={"index": device.index})
            )
        self.machine = self.machine.model_copy(update={"devices": tuple(now)})
        self._free_what_nobody_holds()

    def see_elsewhere(self, elsewhere: Elsewhere) -> None:
        """Other runs took something or gave it back."""
        self.elsewhere = elsewhere
        pinned = {core for state in self.running.values() for core in _pinned(state)}
        self.free_cores = set(self.machine.host.cores) - pinned - elsewhere.cores
        self._free_what_nobody_holds()

    def _free_what_nobody_holds(self) -> None:
        given = self._given_devices()
        empty = (device.index for device in self.machine.devices if not device.taken)
        self.free_devices = self._unheld(index for index in empty if index not in given)

    def _given_devices(self) -> set[int]:
        return {index for state in self.running.values() for index in _devices_of(state)}

    def _unheld(self, devices: Iterable[int]) -> set[int]:
        """Those of these devices that no other run holds."""
        held = {d.index for d in self.machine.devices if d.uuid in self.elsewhere.devices}
        return set(devices) - held

    def settle(self, index: int, status: Status, cause: str) -> list[int]:
        """A job has its last word; returns the jobs that waited for this one alone.

        Where it did not end ok, those are settled as cancelled by the caller.
        """
        state = self.states[index]
        self.leave_queue(index)
        state.status, state.cause, state.wait_reason = status, cause, ""
        self.unsettled -= 1
        freed = []
        for follower in self.followers.get(state.job.name, ()):
            other = self.states[follower]
            if status == "ok":
                # A failed predecessor stays missing: whoever resumes between its last word and
                # the follower's must not take the follower for ready.
                other.missing.discard(state.job.name)
            if not other.final and (status != "ok" or not other.missing):
                freed.append(follower)
        return freed

    # --- what a world tells by itself ------------------------------------------------------------

    def ready(self, index: int) -> bool:
        """Whether a job can join the queue: it waits, outside it, and misses no predecessor."""
        state = self.states[index]
        return state.status == "waiting" and not state.queued and not state.missing

    def arrivals(self) -> list[int]:
        """The jobs that can join the queue now, the first of it first."""
        return sorted(filter(self.ready, range(len(self.states))), key=self.place)

    def follow(self, settle: Settle, concerned: Sequence[int]) -> tuple[list[int], list[Settle]]:
        """What a last word means for those whom it concerns: who arrives, and whose last it is too.

        Args:
            settle: The word, already applied.
            concerned: What applying it returned.
        """
        if settle.status == "ok":
            return sorted(concerned, key=self.place), []
        cause = f"needs {self.states[settle.job].job.name}, which ended {settle.status}"
        return [], [
            Settle(index, "cancelled", cause) for index in concerned if not self.states[index].final
        ]

    def abandoned(self) -> Iterator[Settle]:
        """Last words of jobs whose predecessor ended without success; apply each as it comes."""
        for state in self.states:
            if state.status != "waiting" or state.queued:
                continue
            for name in sorted(state.missing):
                other = self.states[self.by_name[name]]
                if other.final and not state.final:
                    cause = f"needs {name}, which ended {other.status}"
                    yield Settle(state.index, "cancelled", cause)


def _priorities(jobs: Sequence[Job]) -> list[int]:
    """The priority of each job; a group has the highest of its members."""
    highest: dict[str, int] = {}
    for job in jobs:
        if job.group is not None:
            highest[job.group] = max(job.priority, highest.get(job.group, job.priority))
    return [job.priority if job.group is None else highest[job.group] for job in jobs]


def _pinned(state: JobState) -> Iterable[int]:
    return state.share.cores or () if state.share else ()


def _devices_of(state: JobState) -> Iterable[int]:
    return state.share.devices if state.share else ()
