"""Laws of dividing cores, checked against all sets of members, and of what is learnt of pairs."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.costs.interference import FASTEST, Member, fluid, rates
from headway.costs.pair_coefficients import PairCoefficients
from headway.sim.pool import FULL_RATE, EqualShare

CORES = (0, 1, 4, 5)
KINDS = ("lstm", "mem", "mlp", "wide")
NEAR = 1e-9

law = settings(deadline=None)
pytestmark = pytest.mark.slow


@st.composite
def members(draw, threads=(1,), pins=True):
    return Member(
        draw(st.sampled_from(KINDS)),
        draw(st.sampled_from(threads)),
        draw(st.integers(1, 32)) / 8,
        tuple(sorted(draw(st.sets(st.sampled_from(CORES), min_size=1))))
        if pins and draw(st.booleans())
        else None,
        draw(st.booleans()),
    )


def shares(running: list[Member]) -> list[float]:
    return [
        rate * member.wanted_cores
        for rate, member in zip(fluid(running, CORES), running, strict=True)
    ]


def groups(running: list[Member]) -> list[tuple[int, ...]]:
    everyone = range(len(running))
    return list(
        chain.from_iterable(combinations(everyone, size) for size in range(len(running) + 1))
    )


def reachable(running: list[Member], group: tuple[int, ...]) -> int:
    return len({core for index in group for core in running[index].pinned or CORES})


@law
@given(st.lists(members(), min_size=1, max_size=5))
def test_nobody_is_faster_than_alone_and_no_group_has_more_than_its_cores(running):
    assert all(0 < rate <= 1 for rate in fluid(running, CORES))
    given_cores = shares(running)
    for group in groups(running):
        assert sum(given_cores[i] for i in group) <= reachable(running, group) + NEAR


@law
@given(st.lists(members(), min_size=1, max_size=5))
def test_no_core_is_idle_that_anybody_could_use(running):
    # The most that can be given: over all groups, the cores a group reaches and what others want.
    wanted = [member.wanted_cores for member in running]
    most = min(
        reachable(running, group) + sum(wanted) - sum(wanted[i] for i in group)
        for group in groups(running)
    )
    assert sum(shares(running)) == pytest.approx(most)


@law
@given(st.lists(members(), min_size=1, max_size=5))
def test_who_wants_more_shares_its_cores_with_nobody_who_has_more(running):
    given_cores = shares(running)
    full = [
        group
        for group in groups(running)
        if sum(given_cores[i] for i in group) >= reachable(running, group) - NEAR
    ]
    for index, member in enumerate(running):
        if given_cores[index] < member.wanted_cores - NEAR:
            assert any(
                index in group and max(given_cores[i] for i in group) <= given_cores[index] + NEAR
                for group in full
            )


@law
@given(st.lists(members(), min_size=1, max_size=5), members())
def test_who_joins_speeds_nobody(running, late):
    before = fluid(running, CORES)
    after = fluid([*running, late], CORES)
    assert all(now <= earlier + NEAR for earlier, now in zip(before, after, strict=False))


@law
@given(st.lists(members(pins=False), min_size=1, max_size=8))
def test_without_pins_it_is_the_simulators_equal_share(running):
    milli = [round(1000 * member.wanted_cores) for member in running]
    demands = sorted(set(milli))
    pool = EqualShare(capacity=1000 * len(CORES))
    plain = dict(zip(demands, pool.rates(demands, list(map(milli.count, demands))), strict=True))
    for rate, demand in zip(fluid(running, CORES), milli, strict=True):
        assert rate == pytest.approx(plain[demand] / FULL_RATE, abs=2e-6)


readings = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS), st.floats(0, 5), st.floats(0, 5)),
    max_size=12,
)


def learnt(seen):
    known = PairCoefficients()
    for one, other, *ratios in seen:
        known = known.observed([one, other], ratios)
    return known


@law
@given(st.lists(members(threads=(1, 2, 4)), min_size=1, max_size=6), readings)
def test_rates_are_above_nothing_and_at_most_a_little_above_alone(running, seen):
    assert all(0 < rate <= FASTEST for rate in rates(running, CORES, learnt(seen)))


@law
@given(readings)
def test_coefficients_stay_in_their_bounds_and_estimates_around_them(seen):
    known = learnt(seen)
    for kind in (*KINDS, "never seen"):
        for beside in KINDS:
            estimate = known.estimate(kind, beside)
            assert 0.3 <= estimate.low <= estimate.value <= estimate.high <= 1.1
            assert estimate.value == known.value(kind, beside)


@law
@given(readings)
def test_coefficients_to_json_and_back(seen):
    known = learnt(seen)
    known.value("lstm", "mem")
    back = PairCoefficients.from_json(known.to_json(), source="state")
    assert back == known
    assert back.value("lstm", "mem") == known.value("lstm", "mem")


@law
@given(st.floats(0.3, 1.1), st.floats(0.3, 1.1))
def test_coefficients_converge_to_a_constant_truth(truth, other_truth):
    known = learnt([("lstm", "mem", truth, other_truth)] * 30)
    assert known.value("lstm", "mem") == pytest.approx(truth, rel=0.03)
    assert known.value("mem", "lstm") == pytest.approx(other_truth, rel=0.03)


@law
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS), st.floats(0.3, 1.1)),
        unique_by=lambda seen: frozenset(seen[:2]),
    ).flatmap(lambda seen: st.tuples(st.just(seen), st.permutations(seen)))
)
def test_the_order_in_which_pairs_are_seen_does_not_matter(orders):
    one, other = (learnt([(*pair, pair[2]) for pair in seen]) for seen in orders)
    assert one.to_json() == other.to_json()
    assert one.value("lstm", "wide") == other.value("lstm", "wide")
