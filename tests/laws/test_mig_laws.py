"""Laws of MIG layouts, on every table of the catalogue."""

from collections import Counter
from functools import cache
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headway.core import catalogue
from headway.core.mig import Refusal

TABLES = [known.mig for known in map(catalogue.device, catalogue.names()) if known.mig]


@st.composite
def wishes(draw, most=8):
    """A table, and profiles of it in any order."""
    table = draw(st.sampled_from(TABLES))
    names = st.sampled_from([profile.name for profile in table.profiles])
    return table, draw(st.lists(names, max_size=most))


def slices(placement):
    return range(placement.start, placement.start + placement.size)


def every_layout(table, names):
    """Starts for these instances, in their order, at which no two overlap; by trying all."""
    profiles = [table.profile(name) for name in names]
    for starts in product(*(profile.starts for profile in profiles)):
        taken = [
            piece
            for profile, start in zip(profiles, starts, strict=True)
            for piece in range(start, start + profile.size)
        ]
        if len(set(taken)) == len(taken):
            yield frozenset(taken)


def kinds_of(table):
    """Compute slices, and memory slices at one start, of all that could be added."""
    return frozenset(
        (profile.compute, frozenset(range(start, start + profile.size)))
        for profile in table.profiles
        for start in profile.starts
    )


@cache
def most_added(kinds, taken):
    """The most compute slices that can still be added beside the memory slices in use."""
    free = [(compute, pieces) for compute, pieces in kinds if not pieces & taken]
    return max((compute + most_added(kinds, taken | pieces) for compute, pieces in free), default=0)


@given(wishes())
def test_a_layout_holds_what_was_asked_without_overlap(wish):
    table, names = wish
    placed = table.layout(names)
    if isinstance(placed, Refusal):
        assert placed.reason
        return
    assert Counter(placement.profile for placement in placed) == Counter(names)
    taken = [piece for placement in placed for piece in slices(placement)]
    assert len(set(taken)) == len(taken), "no two overlap"
    for placement in placed:
        profile = table.profile(placement.profile)
        assert placement.start in profile.starts
        assert placement.size == profile.size
        assert slices(placement).stop <= table.memory
    assert sum(table.profile(name).compute for name in names) <= table.compute
    sizes = [placement.size for placement in placed]
    assert sizes == sorted(sizes, reverse=True)


@given(wishes(), st.randoms())
def test_a_part_of_what_fits_fits(wish, rng):
    table, names = wish
    if isinstance(table.layout(names), Refusal):
        return
    part = rng.sample(names, rng.randint(0, len(names)))
    assert not isinstance(table.layout(part), Refusal)


@given(wishes(), st.randoms())
def test_the_order_of_the_wishes_does_not_matter(wish, rng):
    table, names = wish
    assert table.layout(names) == table.layout(rng.sample(names, len(names)))


@pytest.mark.slow
@settings(deadline=None)
@given(wishes(most=5))
def test_it_is_refused_only_where_no_placement_exists_and_wastes_no_room(wish):
    table, names = wish
    assume(sum("+me" in name for name in names) < 2)
    placed = table.layout(names)
    possible = set(every_layout(table, names))
    assert isinstance(placed, Refusal) == (not possible)
    if not isinstance(placed, Refusal):
        kinds = kinds_of(table)
        taken = frozenset(piece for placement in placed for piece in slices(placement))
        assert most_added(kinds, taken) == max(most_added(kinds, other) for other in possible)
