import math

import pytest
from pydantic import ValidationError

from headway.core.readings import UNDER_MIG, Reading


@pytest.mark.parametrize(
    "fields", [{}, {"value": 1.0, "reason": "x"}, {"value": -1.0}, {"value": math.nan}]
)
def test_a_reading_is_a_value_or_a_reason(fields):
    with pytest.raises(ValidationError):
        Reading(**fields)


def test_zero_is_a_value_and_missing_is_not_zero():
    assert Reading.of(0) != Reading.missing(UNDER_MIG)
    assert Reading.of(0).value == 0
    assert Reading.missing(UNDER_MIG).value is None


def test_a_difference_needs_both():
    gone = Reading.missing("gone")
    assert Reading.of(5).minus(gone, fell="x") == gone
    assert gone.minus(Reading.of(5), fell="x") == gone
    assert Reading.of(5).minus(Reading.of(5), fell="x").value == 0


def test_it_comes_back_from_its_file():
    for reading in (Reading.of(2.5), Reading.missing(UNDER_MIG)):
        assert Reading.from_json(reading.to_json(), source="x") == reading
