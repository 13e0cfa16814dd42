"""How a run stands that another process may supervise: read from its folder, again and again."""

import time
from dataclasses import dataclass
from functools import cached_property

from headway.core.recording import read_folder
from headway.core.recording import summary as steps_of
from headway.core.run import Result, Run
from headway.core.view import View
from headway.engines.local.control import supervisor_of
from headway.engines.local.history import Reader
from headway.reports.summary import result_of


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands; `view` is None where it has ended and its result was kept."""

    result: Result
    view: View | None
    live: bool


class Onlooker:
    """Looks at one run; what was read of its journal is not read again."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def look(self) -> Standing:
        """How it stands: as its journal tells while it goes on, as it ended afterwards.

        Raises:
            BadFile: A file of the run cannot be read; it is named.
        """
        live = supervisor_of(self._run) is not None
        if not live:
            result = self._run.result()
            if result is not None and result.outcome != "interrupted":
                return Standing(result, None, live=False)
        told = self._reader.read_on()
        self._look_at_steps(told.view)
        now_ns = time.time_ns()
        result = result_of(
            told.view,
            self._run.plan,
            began_ns=told.began_ns or now_ns,
            ended_ns=now_ns if told.view.unsettled else told.ended_ns or now_ns,
            notes=[*self._run.jobs.notes, *told.notes],
        )
        return Standing(result, told.view, live)

    @cached_property
    def _reader(self) -> Reader:
        run = self._run
        return Reader(run, run.plan, run.jobs.jobs, run.machine)

    def _look_at_steps(self, view: View) -> None:
        """Steps of running jobs straight from the recorder: the journal has those of ended ones."""
        offset_ns = time.time_ns() - time.monotonic_ns()
        for state in view.running.values():
            found = steps_of(
                read_folder(self._run.attempt_path(state.index, state.attempt) / "steps")
            )
            if found is not None:
                state.steps, state.step_ns = found.steps, found.median_step_ns
                state.first_step_ns = found.first_ns + offset_ns
