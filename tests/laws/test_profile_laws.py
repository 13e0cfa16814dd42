"""Laws of the bounds that the profile store gives, and how often they hold on known draws."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.probes.profiles.attempts import part_shared
from headway.probes.profiles.bounds import MEMORY_QUANTILE, PRIOR, TIME, next_value, student

values = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=25)
spreads = st.floats(0.001, 1.0)
shifts = st.floats(0.0, 1.0)


@given(values, spreads, shifts, st.booleans())
def test_bounds_hold_the_middle_and_the_middle_is_within_what_was_seen(seen, spread, shift, robust):
    low, middle, high = next_value(seen, spread=spread, shift=shift, robust=robust)
    assert 0 < low <= middle <= high < math.inf
    assert min(seen) <= middle <= max(seen)


@given(values, spreads, shifts)
def test_order_does_not_matter(seen, spread, shift):
    once = next_value(seen, spread=spread, shift=shift)
    assert next_value(seen[::-1], spread=spread, shift=shift) == once


@given(values, spreads, st.floats(0.01, 100), st.booleans())
def test_units_do_not_matter(seen, spread, unit, robust):
    once = next_value(seen, spread=spread, robust=robust)
    other = next_value([value * unit for value in seen], spread=spread, robust=robust)
    assert other == pytest.approx([bound * unit for bound in once], rel=1e-6)


@given(st.floats(1e-3, 1e6), st.integers(1, 24), spreads, shifts, st.booleans())
def test_the_same_value_once_more_never_widens(value, count, spread, shift, robust):
    _, _, few = next_value([value] * count, spread=spread, shift=shift, robust=robust)
    _, _, more = next_value([value] * (count + 1), spread=spread, shift=shift, robust=robust)
    assert more < few


@given(values, spreads, st.floats(0.01, 1.0))
def test_no_number_of_values_narrows_below_a_shift(seen, spread, shift):
    _, middle, high = next_value(seen * 4, spread=spread, shift=shift)
    assert high / middle >= math.exp(1.28 * shift)


@given(st.lists(st.floats(0.95, 1.05), min_size=4, max_size=12), st.floats(10.0, 1e6))
def test_one_wild_time_among_five_or_more_moves_the_bounds_little(seen, wild):
    low, middle, high = next_value([*seen, wild], spread=TIME.again)
    assert 0.95 <= middle <= 1.05
    assert high / low < 2.2


@pytest.mark.parametrize(
    ("quantile", "freedom", "printed"),
    # From printed tables of Student's distribution.
    [(0.90, 3, 1.638), (0.90, 5, 1.476), (0.90, 30, 1.310), (0.98, 3, 3.482), (0.98, 5, 2.757)],
)
def test_students_t_is_as_printed(quantile, freedom, printed):
    assert student(quantile, freedom) == pytest.approx(printed, rel=0.012)


def draws(spread, count, times, seed):
    """Runs of jobs whose own spread lies around `spread` as the prior says, and a next run each."""
    rng = random.Random(seed)
    for _ in range(times):
        chi = sum(rng.gauss(0, 1) ** 2 for _ in range(PRIOR))
        own = spread * math.sqrt(PRIOR / chi)
        *seen, following = (math.exp(rng.gauss(0, own)) for _ in range(count + 1))
        yield seen, following


@pytest.mark.parametrize(("count", "widest"), [(1, 0.17), (3, 0.14), (10, 0.11), (20, 0.10)])
def test_times_lie_between_their_bounds_as_often_as_promised_and_no_wider(count, widest):
    held, widths = 0, []
    for seen, following in draws(TIME.again, count, times=2000, seed=count):
        low, middle, high = next_value(seen, spread=TIME.again)
        held += low <= following <= high
        widths.append(high / middle - 1)
    assert 0.78 <= held / 2000 <= 0.87
    assert sorted(widths)[1000] < widest


@pytest.mark.parametrize("spread", [0.02, 0.055, 0.12])
def test_twenty_runs_say_themselves_how_far_they_lie_apart(spread):
    rng, held, widths = random.Random(1), 0, []
    for _ in range(2000):
        *seen, following = (math.exp(rng.gauss(0, spread)) for _ in range(21))
        low, middle, high = next_value(seen, spread=TIME.again)
        held += low <= following <= high
        widths.append(math.log(high / middle))
    assert held / 2000 >= 0.76
    # The interval of somebody who knew the law would be 1.28 spreads either way.
    assert sorted(widths)[1000] < 1.28 * max(spread, 0.03) * 1.3


@pytest.mark.parametrize("count", [1, 3, 10])
def test_memory_stays_below_its_bound_as_often_as_promised(count):
    held = 0
    for seen, following in draws(0.025, count, times=2000, seed=count):
        *_, high = next_value(seen, spread=0.025, quantile=MEMORY_QUANTILE, robust=False)
        held += following <= max(high, *seen, 0)
    assert held / 2000 >= 0.97


intervals = st.lists(
    st.tuples(st.integers(-20, 120), st.integers(0, 50)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=12,
)


@given(intervals)
def test_the_part_shared_is_that_of_the_single_instants(others):
    shared = sum(any(first <= t < last for first, last in others) for t in range(100))
    assert part_shared(0, 100, others) == pytest.approx(shared / 100)
