"""Laws of dividing energy: none is lost or made, and order says nothing."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headway.core.energy import DeviceUse, split_energy

uses = st.lists(
    st.builds(
        DeviceUse,
        name=st.sampled_from("abcdef"),
        share=st.floats(0, 1),
        seconds=st.floats(0, 1e7),
    ),
    max_size=12,
)
totals = st.integers(0, 2**63)


@given(totals, uses)
def test_the_parts_are_the_whole(total, uses):
    split = split_energy(total, uses)
    assert sum(part for _, part in split.parts) + split.unattributed_mj == total


@given(totals, uses, st.randoms())
def test_the_order_of_the_uses_does_not_matter(total, uses, rng):
    shuffled = rng.sample(uses, len(uses))
    assert dict(split_energy(total, uses).parts) == dict(split_energy(total, shuffled).parts)


@given(totals, uses)
def test_each_part_is_its_proportion_to_a_mj(total, uses):
    weights = {use.name: Fraction(0) for use in uses}
    for use in uses:
        weights[use.name] += Fraction(use.share) * Fraction(use.seconds)
    whole = sum(weights.values())
    split = split_energy(total, uses)
    for name, weight in weights.items():
        exact = total * weight / whole if whole else 0
        assert abs(split.of(name) - exact) < 1
