"""A Policy decides, a World acts: the protocols of both, and of the engines that make worlds.

`drive(policy, world)` (sim/drive.py) is the only loop; the simulated world and every engine's
world speak the words of core/words.py, so what was simulated is what runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from headway.core.job import Job
from headway.core.machine import Device, Machine
from headway.core.noun import Noun
from headway.core.plan import Placement, Plan
from headway.core.readings import DeviceUse
from headway.core.run import Run
from headway.core.view import View
from headway.core.words import Action, Event, Memory


class Policy(Noun, ABC):
    """Decides who starts when. Pure: no I/O, no clock; its memory is plain JSON data."""

    @abstractmethod
    def start(self, view: View) -> Memory:
        """The memory before the first event."""

    @abstractmethod
    def decide(self, memory: Memory, event: Event, view: View) -> tuple[Memory, Sequence[Action]]:
        """The new memory, and what shall be done now; the arguments are not changed."""


class World(Protocol):
    """Where actions happen and events come from; simulated or real."""

    view: View

    def recall(self) -> Memory | None:
        """The policy's memory of an earlier life of this run, or None."""

    def next(self) -> Event | None:
        """The next event, or None when there is nothing left to wait for."""

    def perform(self, *actions: Action) -> bool:
        """Do all that was decided about one event, and let the view say so.

        False where another run has taken something since the view was made, so that nothing of it
        was done: the view is right now, and the same event wants a new decision.
        """

    def remember(self, memory: Memory) -> None:
        """Keep the policy's memory with the journal."""

    def replan(self, placements: Mapping[int, Placement], reason: str) -> None:
        """Give jobs that wait these placements, by index; Replanned follows, also after none."""


class LiveWorld(World, Protocol):
    """What an engine's world offers beside: to those who supervise a run."""

    @property
    def began_ns(self) -> int:
        """When the run began, in ns since the epoch, in whichever of its lives."""

    @property
    def notes(self) -> Sequence[str]:
        """What the engine has to say about the run, in words."""

    def interrupt(self, level: int) -> None:
        """Safe in a signal handler. 1: start nothing new; 2: stop what runs; 3: kill it now."""

    def cancel(self, names: Collection[str]) -> None:
        """Cancel jobs in whatever state they are."""

    def again(self, indices: Collection[int]) -> None:
        """Settled jobs shall run again."""

    def only(self, indices: Collection[int]) -> None:
        """Start nothing, and end as soon as these jobs are settled."""

    def watch_use_with(self, read: Callable[[], Mapping[int, DeviceUse]]) -> None:
        """How to read what the machine's devices do, by their indexes."""

    def see_devices_with(self, look: Callable[[], Iterable[Device]]) -> None:
        """How to read the machine's devices again: others come to them and leave them."""


class Engine(Noun, ABC):
    """Carries a Plan out on real machines."""

    @abstractmethod
    def open(
        self,
        run: Run,
        plan: Plan,
        jobs: Sequence[Job],
        machine: Machine,
        *,
        recorder: Path | None,
        environment: Mapping[str, str],
    ) -> AbstractContextManager[LiveWorld]:
        """A world over the run, from where its journal ends; what still runs outlives it."""
