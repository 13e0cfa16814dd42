"""What jobs do to each other in a run that goes on: measured beside predicted, kept for others."""

from collections.abc import Callable, Sequence

from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.view import JobState, View
from headway.core.words import Event
from headway.core.workload import Workload
from headway.costs.interference import Member, rates
from headway.costs.pair_coefficients import PairCoefficients
from headway.probes.profiles import PairRatio, kind_digest, machine_digest
from headway.probes.progress import LEAST_STEPS, Passage, Progress, alone_step_s

LEAST_S = 3.0
"""A shorter time side by side tells more of the moment than of the jobs."""


class Neighbours:
    """Watches a run, and hands what its jobs did to each other to the store.

    How a job goes alone is told by its own steps while nothing else ran; where there are none, by
    what was known of it before.

    Args:
        jobs: In the order of the list.
        machine: Where they run.
        before: What was known of them when the run began; empty for nothing.
        keep: Where the ratios go; False: it is busy, and they are handed over again.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        machine: Machine,
        *,
        before: Sequence[Workload],
        keep: Callable[[Sequence[PairRatio]], bool],
    ) -> None:
        self._kinds = [kind_digest(job) for job in jobs]
        self._machine = machine
        self._machine_digest = machine_digest(machine)
        self._before = before
        self._keep = keep
        self._progress = Progress()
        self._members: dict[int, Member] = {}
        self._looked_at = 0
        self._alone: list[Passage] = []
        self._open: list[Passage] = []  # nobody knows yet how their jobs go alone
        self._held: list[PairRatio] = []

    def watch(self, event: Event, view: View) -> None:
        """Take in what the view says after an event; see `sim.drive`."""
        self._progress.watch(event, view)
        for index, state in view.running.items():
            self._members[index] = self._member(state)

    def stretch_of(self, job: int) -> float | None:
        """How many times as long as alone as placed its steps took, by its own steps alone."""
        mine = [passage for passage in self._progress.passages() if passage.job == job]
        step_s = alone_step_s(mine).get(job)
        if step_s is None:
            return None
        steps = sum(passage.steps for passage in mine)
        return sum(passage.seconds for passage in mine) / (steps * step_s)

    def learn(self, *, now_ns: int) -> None:
        """Keep what was measured since the last time."""
        closed = self._progress.closed
        for passage in closed[self._looked_at :]:
            if not passage.beside and not passage.starting:
                self._alone.append(passage)
            elif _tells(passage):
                self._open.append(passage)
        self._looked_at = len(closed)
        alone = alone_step_s(self._alone)
        without = []
        for passage in self._open:
            step_s = alone.get(passage.job) or self._known_step_s(passage.job)
            if step_s is None:
                without.append(passage)  # it may yet step by itself
            else:
                self._held += self._ratios(passage, step_s, now_ns)
        self._open = without
        if self._held and self._keep(self._held):
            self._held = []

    def _ratios(self, passage: Passage, step_s: float, now_ns: int) -> list[PairRatio]:
        """The job's speed beside each of the others over the one that the cores explain."""
        members = [self._members[job] for job in (passage.job, *passage.beside)]
        predicted = rates(members, self._machine.host.cores, PairCoefficients())[0]
        ratio = passage.steps * step_s / passage.seconds / predicted
        # Beside several each is taken to have done an equal part.
        each = ratio ** (1 / len(passage.beside))
        kind = self._kinds[passage.job]
        return [
            PairRatio(kind, self._kinds[other], self._machine_digest, each, now_ns)
            for other in passage.beside
        ]

    def _known_step_s(self, job: int) -> float | None:
        """Seconds a step alone with the threads that it has, where that was measured before."""
        if not self._before:
            return None
        known, threads = self._before[job], self._members[job].threads
        step = next((pace.step for pace in known.paces if pace.threads == threads), None)
        return None if step is None or step.origin != "measured" else step.value

    def _member(self, state: JobState) -> Member:
        share = state.share
        pinned = share.cores if share is not None else None
        own = len(pinned) if pinned else self._machine.usable_cores
        known = self._before[state.index] if self._before else None
        threads = state.threads or (known.own_threads if known is not None else None) or own
        cores = known.pace(threads).cores if known is not None and known.known else float(threads)
        return Member(self._kinds[state.index], threads, cores, pinned)


def _tells(passage: Passage) -> bool:
    """Whether a time side by side says something of neighbours."""
    long_enough = passage.seconds >= LEAST_S and passage.steps >= LEAST_STEPS
    return bool(passage.beside) and not passage.starting and long_enough
