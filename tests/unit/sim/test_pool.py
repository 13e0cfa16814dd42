"""Sharing models by their numbers."""

from __future__ import annotations

import pytest

from headway.sim.pool import FULL_RATE, EqualShare, Unshared
from headway.sim.task import SimulationError


@pytest.mark.parametrize(
    ("capacity", "demands", "counts", "shares"),
    [
        (4, [1, 2], [1, 1], [1, 2]),  # enough for all
        (4, [4], [8], [0.5]),  # eight equal ones
        (4, [1, 4], [2, 1], [1, 2]),  # the large one gets what the small ones leave
        (4, [1, 4, 4], [1, 1, 1], [1, 1.5, 1.5]),  # equal demands in two classes
        (1, [1, 1], [1, 3], [0.25, 0.25]),
        (5, [], [], []),
    ],
)
def test_equal_share_divides_max_min_fair(capacity, demands, counts, shares):
    rates = EqualShare(capacity).rates(demands, counts)
    got = [rate * demand / FULL_RATE for rate, demand in zip(rates, demands, strict=True)]
    assert got == shares


def test_rates_are_rounded_down_so_that_a_pool_is_never_overdrawn():
    assert EqualShare(1).rates([1], [3]) == [FULL_RATE // 3]
    assert FULL_RATE // 3 * 3 < FULL_RATE


def test_unshared_gives_everyone_the_full_rate():
    assert Unshared().rates([1, 9], [5, 5]) == [FULL_RATE, FULL_RATE]


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True])
def test_a_capacity_is_a_whole_number_of_at_least_one(capacity):
    with pytest.raises(SimulationError, match=r"capacity is .* use a finer unit"):
        EqualShare(capacity)
