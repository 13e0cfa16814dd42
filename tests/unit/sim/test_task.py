"""What a task refuses to be."""

from __future__ import annotations

import dataclasses

import pytest

from headway.sim.task import SimulationError, Task, find_cycle


@pytest.mark.parametrize("name", ["work_ns", "latency_ns", "release_ns"])
@pytest.mark.parametrize("value", [-1, 1.0, True, None])
def test_times_are_whole_numbers_of_nanoseconds(name, value):
    with pytest.raises(SimulationError, match=f"task 'a': {name} is .* whole number of ns"):
        Task(**{"id": "a", "work_ns": 1, name: value})


@pytest.mark.parametrize("amount", [0, -3, 0.5])
def test_demands_are_whole_numbers_of_at_least_one(amount):
    with pytest.raises(SimulationError, match="use a finer unit"):
        Task("a", 1, demands=(("cores", amount),))


def test_a_pool_is_named_once():
    with pytest.raises(SimulationError, match="names a pool twice"):
        Task("a", 1, demands=(("cores", 1), ("cores", 2)))


def test_a_task_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Task("a", 1).work_ns = 2


def test_a_cycle_is_found_behind_long_chains_without_recursion():
    chain = {str(n): Task(str(n), 1, deps=(str(n + 1),)) for n in range(5_000)}
    assert find_cycle(chain) == []
    chain["5000"] = Task("5000", 1, deps=("4999",))
    assert find_cycle(chain) == ["4999", "5000", "4999"]
