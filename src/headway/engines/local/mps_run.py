"""What MPS means to the attempts of one run: who is a client, who waits, what is said of an end."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.core.machine import Machine
from headway.core.view import JobState, View
from headway.core.words import Outcome
from headway.engines.local.attempt import Attempt
from headway.engines.local.mps_host import MpsHost
from headway.engines.local.stopping import pids_of

_WAITS = "MPS, which waits until all of its clients have left"


class MpsRun:
    """The daemon of a run and its attempts, as the world asks about them at its turns.

    Args:
        run: The run's folder.
        machine: Its devices are those that are shared.
        view: What is free is kept in step with what MPS takes.
        environment: The caller's variables.
        kept: What an earlier life kept of the daemon, or None.
    """

    def __init__(
        self,
        run: Path,
        machine: Machine,
        view: View,
        *,
        environment: Mapping[str, str],
        kept: Mapping[str, Any] | None,
    ) -> None:
        devices = [device.uuid for device in machine.devices if not device.unknown]
        self.host = MpsHost(run, devices, environment=environment)
        if kept is None:
            self.host.start()
        else:
            self.host.adopt(kept)
        self._machine = machine
        self._view = view
        self._faulty = False

    @property
    def faulty(self) -> bool:
        """Whether devices are held back because of an error of a GPU."""
        return self._faulty

    def variables(self, attempt: Attempt, state: JobState) -> dict[str, str]:
        """What an attempt that is about to start is given, so that it is a client."""
        share = state.share
        if share is None or not share.devices:
            return {}
        variables = self.host.environment(share, processes=state.job.processes)
        attempt.mps = bool(variables)
        attempt.faults_before = self.host.faults
        return variables

    def look(self, t: int, attempts: Iterable[Attempt]) -> list[str]:
        """What is to be said of the daemon, and of those that are to be its clients."""
        self.host.look(t)
        self._hold_devices()
        for attempt in attempts:
            self._see(attempt)
        said = list(self.host.notes)
        self.host.notes.clear()
        return said

    def told(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        """The outcome of an attempt with what MPS has to do with it."""
        blame = ""
        if outcome.status == "failed":
            blame = self.host.blame(attempt.tree_pids, since=attempt.faults_before)
        return replace(outcome, notes=(*outcome.notes, blame)) if blame else outcome

    def _hold_devices(self) -> None:
        """After an error of a GPU the daemon takes nobody until all that it hit have left."""
        if self.host.faulty:
            # What a job of ours holds stays its own; the rest is not to be had.
            self._view.see_devices(
                device.model_copy(update={"users": (_WAITS,)}) for device in self._machine.devices
            )
        elif self._faulty:
            self._view.see_devices(self._machine.devices)
        self._faulty = self.host.faulty

    def _see(self, attempt: Attempt) -> None:
        """Whether it is a client, which is asked once, when it has made its first steps."""
        state = self._view.states[attempt.index]
        if not attempt.mps or state.phase == "start-up":
            return
        if attempt.served is None:
            attempt.served = self.host.served(pids_of(attempt))
        elif attempt.served.done():
            attempt.mps = False
            if attempt.served.result() is False:
                name = state.job.name
                self.host.notes.append(
                    f"{name} is no client of MPS: it shares its GPU in time slices"
                )
