"""One look at a run: everything that its page shows now."""

from dataclasses import dataclass, replace

from headway.core.estimate import Estimate, unknown
from headway.core.run import Result, Run
from headway.core.timeline import CounterReader, Header, Timeline, attempt_spans
from headway.core.units import NS_PER_S
from headway.core.view import View
from headway.forecast.expected import Expected
from headway.reports.comparison import Known, compared
from headway.reports.curves import Curves
from headway.reports.happened import Happened
from headway.reports.page import Pieces, pieces
from headway.reports.pagefile import gathered
from headway.reports.remaining import remaining, remaining_of_job
from headway.reports.standing import Onlooker


@dataclass(frozen=True, slots=True)
class Glance:
    """The page of a run as it stands, and whether it goes on."""

    pieces: Pieces
    live: bool


class Watcher:
    """Looks at one run; what was read of its growing files is not read again."""

    def __init__(self, run: Run, expected: Expected | None) -> None:
        self._run = run
        self._expected = expected
        self._onlooker = Onlooker(run)
        self._counters = CounterReader(run.folder)
        self._curves = Curves()

    def look(self) -> Glance:
        """The page as it is now.

        Raises:
            BadFile: A file of the run cannot be read; it is named.
        """
        standing = self._onlooker.look()
        for reading in self._counters.read_on():
            self._curves.take(reading)
        result = standing.result
        happened = gathered(self._run, result, expected=self._expected, curves=self._curves)
        if standing.view is not None:
            result = self._compared(result, standing.view)
            if standing.live:
                happened = self._going_on(result, happened, standing.view)
        return Glance(pieces(result, happened, name=self._run.name), standing.live)

    def _compared(self, result: Result, view: View) -> Result:
        """With what was predicted; memory of jobs that run is what they were seen to hold."""
        known = self._expected.workloads if self._expected is not None else ()
        result = compared(result, view, Known(expected=self._expected, learnt=known))
        jobs = list(result.jobs)
        for index in view.running:
            if index in self._curves.memory:
                peak = max(value for _, value in self._curves.memory[index].points)
                jobs[index] = jobs[index].model_copy(update={"peak_bytes": int(peak)})
        return result.model_copy(update={"jobs": tuple(jobs)})

    def _going_on(self, result: Result, happened: Happened, view: View) -> Happened:
        """With the attempts that run now, and how long everything will still take."""
        began_ns, now_ns = int(result.start * NS_PER_S), int(result.end * NS_PER_S)
        ended = happened.timeline or Timeline(header=Header(source="measured"), spans=())
        spans = [
            span
            for state in view.running.values()
            for span in attempt_spans(state, now_ns, epoch_ns=began_ns)
        ]
        expected = self._expected
        # What jobs of the same script have taken in this run tells more than what was known before.
        left, left_of = (
            remaining(view),
            {i: remaining_of_job(s, view) for i, s in view.running.items()},
        )
        if expected is not None:
            if not left.known:
                left = _less(expected.makespan, result.seconds)
            for index, state in view.running.items():
                if not left_of[index].known and state.started_ns is not None:
                    passed_s = (now_ns - state.started_ns) / NS_PER_S
                    left_of[index] = _less(expected.jobs[index].duration, passed_s)
        return replace(
            happened,
            timeline=ended.model_copy(update={"spans": (*ended.spans, *spans)}),
            live=True,
            left=left,
            left_of=left_of,
        )


def _less(whole: Estimate | None, passed_s: float) -> Estimate:
    """What is left of a time when so much of it has passed."""
    if whole is None or not whole.known:
        return unknown("s")
    value, low, high = (max(0.0, s - passed_s) for s in (whole.value, whole.low, whole.high))
    return whole.model_copy(update={"value": value, "low": low, "high": high})
