import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.estimate import Estimate, total, unknown


@st.composite
def estimates(draw):
    low, value, high = sorted(draw(st.tuples(*[st.floats(0, 1e12)] * 3)))
    return Estimate(
        value=value,
        low=low,
        high=draw(st.sampled_from([high, math.inf])),
        unit="s",
        coverage=draw(st.floats(0.01, 1)),
        origin=draw(st.sampled_from(["measured", "modelled", "extrapolated", "assumed"])),
        source=draw(st.text(max_size=5)),
        samples=draw(st.integers(0, 9)),
    )


@given(estimates())
def test_to_json_and_back(estimate):
    text = estimate.to_json()
    assert Estimate.from_json(text, source="x") == estimate
    assert (json.loads(text)["high"] is None) == math.isinf(estimate.high)


def test_unknown_is_null_in_files():
    text = unknown("bytes").to_json()
    assert json.loads(text)["value"] is None
    assert not Estimate.from_json(text, source="x").known


@pytest.mark.parametrize("bounds", [(0, 1, 3), (4, 1, 3), (2, 3, 1), (math.nan, 0, 1)])
def test_bounds_that_do_not_hold_the_value_are_refused(bounds):
    value, low, high = map(float, bounds)
    with pytest.raises(ValueError, match="bounds must hold the value"):
        Estimate(value=value, low=low, high=high, unit="s", origin="measured", source="")


@given(st.lists(estimates(), min_size=1, max_size=6), st.floats(0, 1))
def test_a_sum_holds_its_value_and_is_widest_where_errors_go_together(parts, correlation):
    some, most = total(parts, correlation=correlation), total(parts)
    assert some.low <= some.value <= some.high
    assert some.value == most.value
    assert some.high <= most.high * (1 + 1e-9)
    assert some.low >= most.low * (1 - 1e-9) - 1e-6
    assert some.known == all(part.known for part in parts)
    assert some.samples == min(part.samples for part in parts)
    assert some.coverage == min(part.coverage for part in parts)


@given(estimates())
def test_the_sum_of_one_is_itself(estimate):
    alone = total([estimate])
    assert (alone.value, alone.origin) == (estimate.value, estimate.origin)
    assert alone.low == pytest.approx(estimate.low, abs=1e-3)
    assert alone.high == pytest.approx(estimate.high)


def test_the_weakest_origin_counts():
    parts = [
        Estimate(value=1.0, low=1.0, high=1.0, unit="s", origin=origin, source=origin)
        for origin in ("measured", "assumed", "modelled")
    ]
    assert total(parts).origin == "assumed"
    assert total(parts).source == "measured + assumed + modelled"


@pytest.mark.parametrize(
    ("parts", "correlation"),
    [([], 1.0), ([unknown("s"), unknown("bytes")], 1.0), ([unknown("s")], 1.5)],
)
def test_sums_that_mean_nothing_are_refused(parts, correlation):
    with pytest.raises(ValueError, match="need parts of one unit"):
        total(parts, correlation=correlation)
