"""Tasks that may be given one core or several: how wide, and in which order, to end early.

Such tasks are called moldable: the width is chosen before a task starts and then stays. Choosing
widths and order together is NP-hard. Here widths come from thresholds, as in Turek, Wolf and Yu
(SPAA 1992): for a time d every task gets the fewest cores with which it takes at most d. Each
choice is tried with a list schedule, widest and longest first, and the best one is improved by
changing one width or exchanging two places in the order for as long as that helps, then from
places nearby.
"""

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

# Thresholds that are tried for a long list; of a short one all are.
MOST_THRESHOLDS = 24
# Longer lists exchange places drawn at random: all pairs of a thousand would be half a million.
MOST_PAIRED = 64


@dataclass(frozen=True, slots=True)
class Moldable:
    """A task: `times[w - 1]` is what it takes on w cores, `memory` what it holds while it runs."""

    times: tuple[float, ...]
    memory: float = 0.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Widths by task, tasks in the order in which they are tried, and when each one ends.

    Attributes:
        widths: Cores of each task.
        order: Indices of the tasks.
        ends: By task, in the unit of `Moldable.times`, counted from the start of the first.
    """

    widths: tuple[int, ...]
    order: tuple[int, ...]
    ends: tuple[float, ...]

    @property
    def makespan(self) -> float:
        """When the last one ends; 0 without tasks."""
        return max(self.ends, default=0.0)

    @property
    def cost(self) -> tuple[float, float]:
        """What is made small: the makespan, and where it ties the sum of the ends."""
        return self.makespan, sum(self.ends)


def list_schedule(
    tasks: Sequence[Moldable],
    widths: Sequence[int],
    order: Sequence[int],
    *,
    cores: int,
    memory: float,
) -> Schedule:
    """Start each task in this order as soon as it fits; what fits beside may overtake.

    A task that needs more than the whole memory runs alone.

    >>> two = [Moldable((3.0, 2.0)), Moldable((3.0, 2.0))]
    >>> list_schedule(two, [1, 1], [0, 1], cores=2, memory=1.0).makespan
    3.0
    >>> list_schedule(two, [2, 2], [0, 1], cores=2, memory=1.0).makespan
    4.0
    """
    ends = [0.0] * len(tasks)
    waiting = list(order)
    running: list[tuple[float, int]] = []
    now, free_cores, free_memory = 0.0, cores, memory
    while waiting or running:
        left = []
        for place, index in enumerate(waiting):
            if not free_cores:
                left.extend(waiting[place:])
                break
            fits = tasks[index].memory <= free_memory or not running
            if widths[index] <= free_cores and fits:
                free_cores -= widths[index]
                free_memory -= tasks[index].memory
                ends[index] = now + tasks[index].times[widths[index] - 1]
                heapq.heappush(running, (ends[index], index))
            else:
                left.append(index)
        waiting = left
        now = running[0][0]
        while running and running[0][0] <= now:
            _, index = heapq.heappop(running)
            free_cores += widths[index]
            free_memory += tasks[index].memory
    return Schedule(tuple(widths), tuple(order), tuple(ends))


def best_schedule(
    tasks: Sequence[Moldable], *, cores: int, memory: float = float("inf"), tries: int = 12000
) -> Schedule:
    """Widths and an order with which the last task ends early.

    Args:
        tasks: Each with a time for 1 up to `cores` cores.
        cores: How many there are.
        memory: What tasks that run together may hold, in the unit of `Moldable.memory`.
        tries: About how many schedules are looked at, of a list of eight or fewer; of a longer one
            fewer by the square of its length, since each takes longer and is nearer to the best.

    Narrow tasks side by side, and a wide one with both cores:

    >>> small, wide = Moldable((1.0, 1.0)), Moldable((10.0, 6.0))
    >>> found = best_schedule([small, wide, small, small, small], cores=2)
    >>> found.makespan, found.widths
    (8.0, (1, 2, 1, 1, 1))
    """
    if not tasks:
        return Schedule((), (), ())

    def tried(widths: Sequence[int], order: Sequence[int] | None = None) -> Schedule:
        return list_schedule(
            tasks,
            widths,
            _longest_first(tasks, widths) if order is None else order,
            cores=cores,
            memory=memory,
        )

    best = min(
        (tried(widths) for widths in _allotments(tasks, cores)), key=lambda found: found.cost
    )
    left = tries * 64 // max(8, len(tasks)) ** 2
    source = random.Random(0)
    current = best
    while left > 0 and (cores > 1 or len(tasks) > 1):
        for widths, order in _neighbours(current, cores, source):
            left -= 1
            found = tried(widths, order)
            if found.cost < current.cost:
                current = found
                break
            if left <= 0:
                break
        else:  # nothing near is better: go on from a place not far from the best
            current = tried(*_shaken(best, cores, source))
        best = min(best, current, key=lambda found: found.cost)
    return best


def _allotments(tasks: Sequence[Moldable], cores: int) -> Iterator[tuple[int, ...]]:
    """For each threshold the fewest cores with which every task takes no longer."""
    times = sorted({time for task in tasks for time in task.times[:cores]})
    step = max(1, len(times) // MOST_THRESHOLDS)
    seen = set()
    for threshold in [*times[::step], times[-1]]:
        widths = tuple(_narrowest(task, threshold, cores) for task in tasks)
        if widths not in seen:
            seen.add(widths)
            yield widths


def _narrowest(task: Moldable, threshold: float, cores: int) -> int:
    fastest = min(range(cores), key=lambda place: (task.times[place], place))
    enough = (place for place in range(cores) if task.times[place] <= threshold)
    return 1 + next(enough, fastest)


def _longest_first(tasks: Sequence[Moldable], widths: Sequence[int]) -> list[int]:
    return sorted(
        range(len(tasks)),
        key=lambda index: (-widths[index], -tasks[index].times[widths[index] - 1], index),
    )


def _neighbours(
    schedule: Schedule, cores: int, source: random.Random
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Schedules that differ in one width or in two places of the order, in any order."""
    count = len(schedule.order)
    changes = [(index, width) for index in range(count) for width in range(1, cores + 1)]
    if count <= MOST_PAIRED:
        pairs = list(combinations(range(count), 2))
    else:
        pairs = [(source.randrange(count), source.randrange(count)) for _ in range(2000)]
    moves = [(True, *change) for change in changes] + [(False, *pair) for pair in pairs]
    source.shuffle(moves)
    for is_width, first, second in moves:
        if not is_width:
            yield schedule.widths, _exchanged(schedule.order, first, second)
        elif schedule.widths[first] != second:
            yield _replaced(schedule.widths, first, second), schedule.order


def _shaken(
    schedule: Schedule, cores: int, source: random.Random
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    widths, order = schedule.widths, schedule.order
    count = len(order)
    for _ in range(2):
        widths = _replaced(widths, source.randrange(count), source.randint(1, cores))
        order = _exchanged(order, source.randrange(count), source.randrange(count))
    return widths, order


def _replaced(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _exchanged(order: tuple[int, ...], first: int, second: int) -> tuple[int, ...]:
    changed = list(order)
    changed[first], changed[second] = changed[second], changed[first]
    return tuple(changed)
