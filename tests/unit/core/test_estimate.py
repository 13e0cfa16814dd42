import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.estimate import Estimate, unknown


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
