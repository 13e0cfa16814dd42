"""One ended attempt as the store keeps it, and the learner that makes such rows from a live run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, Protocol, Self

from pydantic import Field, ValidationError

from headway.core.machine import Machine
from headway.core.noun import Noun
from headway.core.threads import own_threads
from headway.core.units import NS_PER_S
from headway.core.view import JobState, View
from headway.core.words import Event, Exited, Outcome, Status
from headway.probes.profiles.identity import Contents, Identity, machine_digest, path_of

LEAST_S = 1.0
"""A shorter attempt is not worth a row: nothing is gained by planning it."""
DISTURBED_PART = 0.1
"""Up to this part of its time in company an attempt counts as alone."""

# A transaction costs an fsync, a run of 1,000 short jobs must not pay 1,000 of them; and what is
# not written yet is lost when the supervisor is killed.
_WRITE_EVERY_NS = 5 * NS_PER_S
_WAIT_S = 0.2  # for another writer, while jobs run; the next turn tries again
_MOST_HELD = 1000

Digest = Annotated[str, Field(max_length=64)]
Seconds = Annotated[float, Field(ge=0, le=1e10)]
Part = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, lt=2**62)]
Interval = tuple[int, int]


class PastAttempt(Noun):
    """What is kept of one ended attempt: who, when, how it was placed, and what was measured.

    `threads` is the count it computed with, `cores` how many cores it was held to (None: not held).
    `start_up_s` passes before the first step and `work_s` after it, a mean step takes `step_s`; all
    None where no step was seen. `cores_used` is its average over all its time. `alone_part` is the
    part of its time without a neighbour of the same run, `foreign_part` the part in which others
    had no core left for it. `stretch`: it took so many times as long as it would have alone as
    placed (None: not known). `device_bytes`, `device_busy` and `device_part` are what it held of
    its only device, how much of the time a kernel ran there and how much of the device was in use;
    the last two of a job that had it to itself.
    """

    key: Digest
    script: Digest
    script_name: Annotated[str, Field(max_length=110)]
    content: Digest
    machine: Digest
    ended_ns: Count
    status: Status
    threads: Annotated[int, Field(ge=1, lt=2**31)]
    cores: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    start_up_s: Seconds | None = None
    work_s: Seconds | None = None
    total_s: Seconds
    steps: Count | None = None
    step_s: Seconds | None = None
    peak_bytes: Count | None = None
    cores_used: Annotated[float, Field(ge=0, le=1e6)] | None = None
    alone_part: Part = 1.0
    foreign_part: Part = 0.0
    stretch: Annotated[float, Field(ge=0.1, le=1e4)] | None = None
    device_bytes: Count | None = None
    device_busy: Part | None = None
    device_part: Part | None = None

    @property
    def tells_pace(self) -> bool:
        """Whether it ended ok, with a core for each of its threads."""
        return self.status == "ok" and (self.cores is None or self.threads <= self.cores)

    @property
    def undisturbed(self) -> bool:
        """Whether its time is what it would have been alone as placed (`stretch` taken off)."""
        had_cores = self.cores is not None or self.alone_part >= 1 - DISTURBED_PART
        return self.stretch is not None or (had_cores and self.foreign_part <= DISTURBED_PART)

    @property
    def work_alone_s(self) -> float:
        """Its time from the first step on, or whole where none was seen; never quite 0."""
        work_s = self.total_s if self.work_s is None else self.work_s
        return max(1e-3, work_s / (self.stretch or 1.0))

    @property
    def step_alone_s(self) -> float | None:
        """Seconds a step alone as placed."""
        return None if self.step_s is None else self.step_s / (self.stretch or 1.0)

    @property
    def work_cores(self) -> float | None:
        """Cores it kept busy from its first step on; imports before that take one."""
        if self.cores_used is None:
            return None
        start_up_s = self.start_up_s or 0.0
        work_s = max(1e-3, self.total_s - start_up_s)
        return max(0.05, (self.cores_used * self.total_s - start_up_s) / work_s)


def part_shared(began_ns: int, ended_ns: int, others: Iterable[Interval]) -> float:
    """The part of an interval that at least one of the others overlaps.

    >>> part_shared(0, 10, [(3, 6), (2, 4), (9, 20)])
    0.5
    """
    shared_ns, reached_ns = 0, began_ns
    for first_ns, last_ns in sorted(others):
        first_ns, last_ns = max(first_ns, reached_ns), min(last_ns, ended_ns)
        if last_ns > first_ns:
            shared_ns += last_ns - first_ns
            reached_ns = last_ns
    return shared_ns / (ended_ns - began_ns) if ended_ns > began_ns else 0.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """A running attempt when it was first seen."""

    attempt: int
    started_ns: int
    content: str | None  # None: it was running before this learner


class Keep(Protocol):
    """Writes rows, waiting so long for other writers; False: try again later."""

    def __call__(self, attempts: Sequence[PastAttempt], *, wait_s: float) -> bool:
        """Whether that is done with."""


class Learner:
    """Watches a run and hands what its attempts tell to the store, several in one go.

    An attempt is learnt from where it was watched from start to end. Use it in a `with`, or call
    `flush` at the end.

    Args:
        keep: Where the rows go.
        machine: Where the jobs run.
        environment: The caller's variables.
        stretch_of: How many times as long as alone as placed a job's attempt took so far, by the
            job's index, where somebody knows.
    """

    def __init__(
        self,
        keep: Keep,
        machine: Machine,
        *,
        environment: Mapping[str, str],
        stretch_of: Callable[[int], float | None] | None = None,
    ) -> None:
        self._keep = keep
        self._machine = machine
        self._machine_digest = machine_digest(machine)
        self._environment = environment
        self._stretch_of = stretch_of
        self._contents = Contents()
        self._began_ns: int | None = None
        self._reached_ns = 0
        self._running: dict[int, _Seen] = {}
        self._ended: list[Interval] = []  # in the order of their ends, as is the next
        self._foreign: list[Interval] = []
        self._held: list[PastAttempt] = []
        self._written_ns = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.flush()

    def watch(self, event: Event, view: View) -> None:
        """Take in one event and what the view says after it was answered; see `sim.drive`."""
        if self._began_ns is None:
            self._began_ns = self._reached_ns = self._written_ns = event.t
        self._look_at_others(event.t, view)
        if isinstance(event, Exited):
            self._end(event, view.states[event.job])
        for index, state in view.running.items():
            if index not in self._running:
                self._running[index] = self._see(state)
        if self._held and event.t - self._written_ns >= _WRITE_EVERY_NS:
            self._write(event.t, wait_s=_WAIT_S)

    def flush(self) -> None:
        """Write what is held back."""
        if self._held:
            self._write(self._reached_ns, wait_s=10 * _WAIT_S)

    def _write(self, t_ns: int, *, wait_s: float) -> None:
        self._written_ns = t_ns
        if self._keep(self._held, wait_s=wait_s):
            self._held = []
        else:
            del self._held[:-_MOST_HELD]

    def _look_at_others(self, t_ns: int, view: View) -> None:
        """Whether others left our jobs without cores since the last event."""
        since_ns, self._reached_ns = self._reached_ns, max(self._reached_ns, t_ns)
        if view.foreign_cores < 0.5:
            return
        ours = sum(state.cores_used for state in view.running.values())
        if ours + view.foreign_cores <= self._machine.usable_cores:
            return
        if self._foreign and self._foreign[-1][1] == since_ns:
            since_ns = self._foreign.pop()[0]
        self._foreign.append((since_ns, self._reached_ns))

    def _see(self, state: JobState) -> _Seen:
        started_ns = state.started_ns or 0
        content = None
        if self._began_ns is not None and started_ns >= self._began_ns:
            content = self._contents.of(path_of(state.job), since_ns=started_ns)
        return _Seen(state.attempt, started_ns, content)

    def _end(self, event: Exited, state: JobState) -> None:
        seen = self._running.pop(event.job, None)
        if seen is None:
            return
        row = self._row(event.t, event.outcome, state, seen)
        if row is not None:
            self._held.append(row)
        self._ended.append((seen.started_ns, event.t))
        if not self._running:
            self._ended, self._foreign = [], []

    def _row(self, t_ns: int, outcome: Outcome, state: JobState, seen: _Seen) -> PastAttempt | None:
        total_s = (t_ns - seen.started_ns) / NS_PER_S
        share = state.last_share
        if seen.content is None or share is None or outcome.status == "lost" or total_s < LEAST_S:
            return None
        first_ns = outcome.first_step_ns
        stepped = first_ns is not None and seen.started_ns <= first_ns <= t_ns
        identity = Identity.of(state.job, self._environment)
        stretch_of = self._stretch_of
        try:
            return PastAttempt(
                key=identity.key,
                script=identity.script,
                script_name=identity.script_name,
                content=seen.content,
                machine=self._machine_digest,
                ended_ns=t_ns,
                status=outcome.status,
                threads=self._threads(state, seen),
                cores=None if share.cores is None else len(share.cores),
                start_up_s=(first_ns - seen.started_ns) / NS_PER_S
                if stepped and first_ns
                else None,
                work_s=(t_ns - first_ns) / NS_PER_S if stepped and first_ns else None,
                total_s=total_s,
                steps=outcome.steps,
                step_s=None if outcome.mean_step_ns is None else outcome.mean_step_ns / NS_PER_S,
                peak_bytes=outcome.peak_bytes or None,
                cores_used=None if outcome.cpu_s is None else outcome.cpu_s / total_s,
                alone_part=1 - self._part(seen, t_ns, self._ended, self._neighbours(t_ns)),
                foreign_part=self._part(seen, t_ns, self._foreign),
                stretch=None if stretch_of is None else stretch_of(state.index),
                device_bytes=outcome.device_peak_bytes if len(share.devices) == 1 else None,
                device_busy=outcome.device_busy,
                device_part=outcome.device_part,
            )
        except ValidationError:
            return None  # steps come from a file that the job itself could write nonsense into

    def _threads(self, state: JobState, seen: _Seen) -> int:
        """The count it computed with: set by us, by its user, or one a core that it could see."""
        cores = state.last_share.cores if state.last_share is not None else None
        own = state.threads or own_threads(state.job, self._environment)
        threads = own or (self._machine.usable_cores if cores is None else len(cores))
        if state.confined and state.attempt == seen.attempt:
            # It was confined for computing with more than it was given.
            threads = max(threads, state.busy_threads or 1)
        return threads

    def _neighbours(self, t_ns: int) -> list[Interval]:
        return [(other.started_ns, t_ns) for other in self._running.values()]

    @staticmethod
    def _part(
        seen: _Seen, t_ns: int, ended: Sequence[Interval], more: Sequence[Interval] = ()
    ) -> float:
        recent = takewhile(lambda interval: interval[1] > seen.started_ns, reversed(ended))
        return part_shared(seen.started_ns, t_ns, [*recent, *more])
