"""The queue policy of every fixed mode: in the queue's order, as far as there is room.

Its rules are those of `planners.admission`; a job that asks for devices is given whole ones.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from headway.core.policy import Policy
from headway.core.view import View
from headway.core.words import Action, Event, Memory
from headway.planners.admission import Admission
from headway.planners.admission.devices import WholeDevices


class Queue(Policy):
    """First come, first served, with room for what fits beside.

    Knobs: `slots` is how many cores' worth of jobs run at once (None: no limit), and `extra` how
    many more, where jobs that are free to move leave cores idle; `pin` gives each job cores of its
    own; `admit` holds jobs back for memory; `patience` bounds overtaking; `oom_retries` bounds how
    often an out-of-memory is tried again; `learns` asks for another plan whenever a job has ended
    well.
    """

    slots: Annotated[int, Field(ge=1)] | None = None
    extra: Annotated[int, Field(ge=0)] = 0
    pin: bool = False
    admit: bool = True
    patience: Annotated[int, Field(ge=0)] = 16
    oom_retries: Annotated[int, Field(ge=0)] = 2
    learns: bool = False

    def start(self, view: View) -> Memory:
        """Nobody has been overtaken yet."""
        return self._admission.start()

    def decide(self, memory: Memory, event: Event, view: View) -> tuple[Memory, Sequence[Action]]:
        """Answer one event; see `planners.admission` for the rules."""
        return self._admission.decide(memory, event, view)

    @property
    def _admission(self) -> Admission:
        return Admission(
            devices=WholeDevices(),
            slots=self.slots,
            extra=self.extra,
            pin=self.pin,
            admit=self.admit,
            patience=self.patience,
            oom_retries=self.oom_retries,
            learns=self.learns,
        )
