"""What goes into the simulator and what comes out: tasks, records of what happened, spans.

A `Task` is what a caller says and never changes. An `Entry` is the simulator's own note beside it:
which conditions are still open, where it stands, when it started and ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from headway.core.errors import HeadwayError

if TYPE_CHECKING:
    from headway.sim.pool import Group, Lane


class SimulationError(HeadwayError):
    """What was asked of the simulator cannot be done; the text says what to change."""


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work that takes time, perhaps on a lane, perhaps drawing on pools.

    A task starts when its dependencies have ended, its gate is open, its release time has come and
    its lane is free. It then holds its lane for `latency_ns` without drawing on any pool, and after
    that until `work_ns` is done at the rate its pools allow.

    Raises:
        SimulationError: a time is negative or not a plain integer, or a demand is below 1 or names
            a pool twice.

    >>> Task("load", work_ns=1_500, lane="disk", demands=(("cores", 1_000),)).work_ns
    1500
    """

    id: str
    """Unique in one simulation, and never used again in it."""
    work_ns: int
    """Time it takes at full rate, in ns."""
    lane: str | None = None
    """The lane it occupies; None starts it as soon as nothing else holds it."""
    deps: tuple[str, ...] = ()
    """Ids of the tasks that must have ended before."""
    demands: tuple[tuple[str, int], ...] = ()
    """(pool, amount it draws at full rate), the amount in the pool's own unit."""
    latency_ns: int = 0
    """Fixed time before the work begins, in ns: a message's start, a launch."""
    priority: tuple[int, int] = (0, 0)
    """(step, position): the lowest waiting on a lane goes first; equal ones as they were added."""
    release_ns: int = 0
    """Not before this time, in ns; a time already past is now."""
    gate: str | None = None
    """Held until `Simulator.open_gate` is called with this name."""

    def __post_init__(self) -> None:
        for name in ("work_ns", "latency_ns", "release_ns"):
            value = getattr(self, name)
            if value.__class__ is not int or value < 0:
                raise SimulationError(
                    f"task {self.id!r}: {name} is {value!r}, but must be a whole number of ns, "
                    "0 or more; round it first"
                )
        for pool, amount in self.demands:
            if amount.__class__ is not int or amount < 1:
                raise SimulationError(
                    f"task {self.id!r} demands {amount!r} of pool {pool!r}, but a demand must be a "
                    "whole number, 1 or more; use a finer unit (1000 for one core), or leave it out"
                )
        if len({pool for pool, _ in self.demands}) < len(self.demands):
            raise SimulationError(
                f"task {self.id!r} names a pool twice in {self.demands!r}; add the amounts up"
            )


RecordKind = Literal["started", "ended", "cancelled"]


class Record(NamedTuple):
    """Something that happened to a task."""

    t_ns: int
    kind: RecordKind
    id: str
    lane: str | None


class Span(NamedTuple):
    """The time a task ran, in ns: from its start (latency included) up to its end."""

    start_ns: int
    end_ns: int
    id: str
    lane: str | None
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What a simulation came to."""

    spans: tuple[Span, ...]
    """By start, end and id: the order of adding does not show."""

    @property
    def makespan_ns(self) -> int:
        """The time of the last end, counted from 0; 0 if nothing ran."""
        return max((span.end_ns for span in self.spans), default=0)

    def by_id(self) -> dict[str, Span]:
        """Each task's span under its id."""
        return {span.id: span for span in self.spans}


# Where a task stands. Plain integers: the loop compares them several times a task.
WAITING: Final = 0  # a dependency, its gate or its release is still open
READY: Final = 1  # may start as soon as its lane is free
LATENT: Final = 2  # started, and draws on its pools once its latency is over
FLOWING: Final = 3  # drawing on its pools; its end moves whenever their members change
TIMED: Final = 4  # started, and its end is known and stands in the heap
ENDED: Final = 5
CANCELLED: Final = 6


class Entry:
    """Where one task stands."""

    __slots__ = (
        "end_ns",
        "followers",
        "group",
        "lane",
        "open_conditions",
        "priority",
        "serial",
        "start_ns",
        "state",
        "target",
        "task",
    )

    def __init__(self, task: Task, serial: int, lane: Lane | None, group: Group | None) -> None:
        self.task = task
        self.serial = serial
        self.priority = task.priority
        self.lane = lane
        self.group = group
        self.state: int = WAITING
        self.open_conditions = 0
        self.followers: list[Entry] = []
        self.start_ns = -1
        self.end_ns = -1
        self.target = 0  # reading of the group's clock at which its work is done


def find_cycle(tasks: Mapping[str, Task]) -> list[str]:
    """A cycle among the dependencies, as ids that end with the first one again; empty if none.

    Dependencies outside `tasks` are passed over.

    >>> find_cycle({"a": Task("a", 1, deps=("b",)), "b": Task("b", 1, deps=("a",))})
    ['a', 'b', 'a']
    """
    finished: set[str] = set()
    for root in tasks:
        if root in finished:
            continue
        path = {root: None}  # an ordered set: the chain of dependencies being followed
        stack = [iter(tasks[root].deps)]
        while stack:
            dep = next(stack[-1], None)
            if dep is None:
                stack.pop()
                finished.add(path.popitem()[0])
            elif dep in path:
                chain = list(path)
                return [*chain[chain.index(dep) :], dep]
            elif dep in tasks and dep not in finished:
                path[dep] = None
                stack.append(iter(tasks[dep].deps))
    return []


def named(names: Iterable[str], *, limit: int = 8) -> str:
    """The names for an error's text: the first `limit`, then how many more.

    >>> named(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    >>> named([])
    'none'
    """
    known = list(names)
    text = ", ".join(repr(name) for name in known[:limit]) or "none"
    return text if len(known) <= limit else f"{text} and {len(known) - limit} more"
