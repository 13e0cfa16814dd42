"""How fast jobs went beside whom: their steps while the set of running jobs stayed the same.

No job is ever paused to be measured: what tells a job's own speed is the time that it ran by itself
anyway, in this run or an earlier one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.core.folder import Folder
from headway.core.timeline import Reading, Timeline, lane_of, readings_of, timeline_of
from headway.core.units import NS_PER_S
from headway.core.view import View
from headway.core.words import Event

# One step more or less than were seen is then a few percent of them.
LEAST_STEPS = 5


@dataclass(frozen=True, slots=True)
class Passage:
    """Steps that a job made while the same others ran.

    `beside` are those that were past their start-up, `starting` how many were not. From the end of
    one step, at `first_ns`, to the end of another, at `last_ns`, it made `steps`.
    """

    job: int
    beside: tuple[int, ...]
    starting: int
    first_ns: int
    last_ns: int
    steps: int

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return (self.last_ns - self.first_ns) / NS_PER_S

    @property
    def jobs(self) -> tuple[int, ...]:
        """Who was past the start-up: the job and those beside it, in the order of the list."""
        return tuple(sorted((self.job, *self.beside)))


class Progress:
    """Puts passages together from what is seen of a run while it goes on, or from its files.

    Told who runs, in the order of time, and how many steps each had made at the end of one of them:

    >>> progress = Progress()
    >>> progress.now_running({0: True}, 0)
    >>> progress.made(0, 100, 1), progress.made(0, 300, 21)
    (None, None)
    >>> progress.now_running({0: True, 1: False}, 310)
    >>> [(passage.beside, passage.steps, passage.last_ns) for passage in progress.passages()]
    [((), 20, 300)]

    Attributes:
        closed: The passages that are over.

    """

    def __init__(self) -> None:
        self._running: dict[int, bool] = {}
        self._changed_ns = 0
        self._open: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
        self.closed: list[Passage] = []

    def watch(self, event: Event, view: View) -> None:
        """Take in what the view says after an event; see `sim.drive`."""
        self.now_running(
            {index: state.phase != "start-up" for index, state in view.running.items()}, event.t
        )
        for index, state in view.running.items():
            if state.steps is not None and state.last_step_ns is not None:
                self.made(index, state.last_step_ns, state.steps)

    def now_running(self, running: dict[int, bool], t_ns: int) -> None:
        """Who runs from now on, and whether it is past its start-up."""
        if running == self._running:
            return
        self.closed += self._passages()
        self._open = {}
        self._running, self._changed_ns = running, t_ns

    def made(self, job: int, t_ns: int, steps: int) -> None:
        """A job's last step, the `steps`-th, ended at `t_ns`."""
        if t_ns < self._changed_ns or not self._running.get(job):
            return
        mark = (t_ns, steps)
        first = self._open[job][0] if job in self._open else mark
        # A job that starts over within an attempt (execv) counts from the start again.
        self._open[job] = (first if first[1] <= steps else mark, mark)

    def passages(self) -> list[Passage]:
        """All passages so far, those that still go on too."""
        return [*self.closed, *self._passages()]

    def _passages(self) -> Iterable[Passage]:
        for job, ((first_ns, first), (last_ns, last)) in self._open.items():
            if last > first and last_ns > first_ns:
                others = [other for other in self._running if other != job]
                yield Passage(
                    job,
                    beside=tuple(sorted(other for other in others if self._running[other])),
                    starting=sum(not self._running[other] for other in others),
                    first_ns=first_ns,
                    last_ns=last_ns,
                    steps=last - first,
                )


def passages_of(folder: Folder) -> list[Passage]:
    """The passages of a run, from its timeline and counters; none where these cannot be read."""
    timeline = timeline_of(folder)
    return [] if timeline is None else replayed(timeline, readings_of(folder, "steps"))


def replayed(timeline: Timeline, readings: Sequence[Reading]) -> list[Passage]:
    """The passages that a timeline of attempts and the readings of steps tell of."""
    # At one instant: who left, who came or stepped first, then the readings.
    words: list[tuple[int, int, int, str | int]] = []
    for span in timeline.spans:
        if span.job is None:
            continue
        words.append((span.t, 1, span.job, span.name))
        if span.name != "start-up":
            words.append((span.t + span.d, 0, span.job, "ended"))
    jobs = {lane_of(span.job): span.job for span in timeline.spans if span.job is not None}
    words += [
        (reading.t, 2, jobs[reading.lane], int(reading.value))
        for reading in readings
        if reading.name == "steps" and reading.lane in jobs
    ]
    progress = Progress()
    running: dict[int, bool] = {}
    for t_ns, _, job, word in sorted(words, key=lambda word: word[:3]):
        if isinstance(word, int):
            progress.made(job, t_ns, word)
            continue
        running = {other: steps for other, steps in running.items() if other != job}
        if word != "ended":
            running[job] = word != "start-up"
        progress.now_running(running, t_ns)
    return progress.passages()


def alone_step_s(passages: Iterable[Passage]) -> dict[int, float]:
    """Seconds a step of each job that was seen to step by itself, by job.

    >>> alone = Passage(0, beside=(), starting=0, first_ns=0, last_ns=10**9, steps=20)
    >>> beside = Passage(0, beside=(1,), starting=0, first_ns=10**9, last_ns=4 * 10**9, steps=20)
    >>> alone_step_s([alone, beside])
    {0: 0.05}
    """
    steps: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for passage in passages:
        if not passage.beside and not passage.starting:
            steps[passage.job] = steps.get(passage.job, 0) + passage.steps
            seconds[passage.job] = seconds.get(passage.job, 0.0) + passage.seconds
    return {job: seconds[job] / steps[job] for job in steps if steps[job] >= LEAST_STEPS}
