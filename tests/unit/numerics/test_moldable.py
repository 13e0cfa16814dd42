"""Widths and orders: never below a bound, close to the best of all."""

import random
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.numerics.moldable import Moldable, best_schedule, list_schedule


def drawn(source: random.Random, count: int, cores: int, *, memory: bool) -> list[Moldable]:
    """Tasks as trainings are: more cores are worth from 0.8 to 1.8 a doubling."""
    tasks = []
    for _ in range(count):
        worth = source.uniform(0.8, 1.8)
        alone = source.choice([1.0, 1.0, 3.0, 8.0]) * source.uniform(5, 15)
        times = tuple(alone / worth ** (width - 1) for width in range(1, cores + 1))
        tasks.append(Moldable(times, source.uniform(0.1, 0.8) if memory else 0.0))
    return tasks


def best_of_two_cores(tasks: list[Moldable]) -> float:
    """Two cores, memory for all: wide tasks one after another, the others on the best two sides."""
    best = float("inf")
    for widths in product((1, 2), repeat=len(tasks)):
        wide = sum(task.times[1] for task, width in zip(tasks, widths, strict=True) if width == 2)
        narrow = [task.times[0] for task, width in zip(tasks, widths, strict=True) if width == 1]
        for sides in product((0, 1), repeat=max(0, len(narrow) - 1)):
            left = sum(t for t, side in zip(narrow, (0, *sides), strict=False) if side == 0)
            best = min(best, wide + max(left, sum(narrow) - left))
    return best


@pytest.mark.slow
def test_two_cores_within_5_percent_of_the_best() -> None:
    source = random.Random(7)
    for _ in range(100):
        tasks = drawn(source, source.randint(1, 7), 2, memory=False)
        found = best_schedule(tasks, cores=2)
        assert best_of_two_cores(tasks) - 1e-9 <= found.makespan
        assert found.makespan <= 1.05 * best_of_two_cores(tasks)


@pytest.mark.slow
@pytest.mark.parametrize("cores", [2, 3])
def test_memory_within_5_percent_of_the_best_order(cores: int) -> None:
    source = random.Random(11)
    for _ in range(12):
        tasks = drawn(source, source.randint(2, 5), cores, memory=True)
        best = min(
            list_schedule(tasks, widths, order, cores=cores, memory=1.0).makespan
            for widths in product(range(1, cores + 1), repeat=len(tasks))
            for order in permutations(range(len(tasks)))
        )
        assert best_schedule(tasks, cores=cores, memory=1.0).makespan <= 1.05 * best


durations = st.floats(0.1, 100.0)


@given(
    st.lists(st.tuples(st.tuples(durations, durations, durations), st.floats(0, 1.5)), max_size=9),
    st.integers(1, 3),
)
def test_nothing_overlaps_more_than_there_is(
    drawn_tasks: list[tuple[tuple[float, ...], float]], cores: int
) -> None:
    tasks = [Moldable(*task) for task in drawn_tasks]
    found = best_schedule(tasks, cores=cores, memory=1.0, tries=50)
    spans = []
    for task, width, end in zip(tasks, found.widths, found.ends, strict=True):
        spans.append((end - task.times[width - 1], end, width, task.memory))
    for start, _, _, _ in spans:
        beside = [span for span in spans if span[0] <= start + 1e-9 < span[1] - 1e-9]
        assert sum(span[2] for span in beside) <= cores
        assert len(beside) == 1 or sum(span[3] for span in beside) <= 1.0 + 1e-9
    work = sum(min(w * t for w, t in enumerate(task.times[:cores], 1)) for task in tasks)
    assert found.makespan >= work / cores - 1e-6
    assert sorted(found.order) == list(range(len(tasks)))
