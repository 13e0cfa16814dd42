import json
import math

import pytest

from headway.core.errors import BadFile
from headway.costs.pair_coefficients import PairCoefficients
from headway.costs.pair_effects import fit


def test_a_pair_that_nobody_knows_is_at_one_and_assumed():
    estimate = PairCoefficients().estimate("a", "b")
    assert (estimate.value, estimate.origin, estimate.samples) == (1.0, "assumed", 0)
    assert estimate.low < 1.0 < estimate.high


def test_a_reading_moves_its_pair_and_narrows_it():
    before = PairCoefficients()
    after = before.observed(["a", "b"], [0.7, 1.0])
    assert 0.7 < after.value("a", "b") < 0.85
    assert after.belief("a", "b").spread < before.belief("a", "b").spread / 1.5
    assert after.estimate("a", "b").origin == "measured"
    assert before.value("a", "b") == 1.0


def test_a_pair_that_never_ran_borrows_from_what_each_did_with_others():
    # One kind suffers beside anyone, one makes anyone suffer.
    known = PairCoefficients(prior_spread=0.3)
    for beside in ("a", "b", "c"):
        known = known.observed(["frail", beside], [0.6, 1.0])
        known = known.observed(["heavy", beside], [1.0, 0.7])
    estimate = known.estimate("frail", "heavy")
    assert estimate.origin == "extrapolated"
    assert 0.35 < estimate.value < 0.55
    assert known.value("heavy", "frail") > 0.8


def test_one_outlier_does_not_speak_for_its_kind():
    kinds = [f"k{number}" for number in range(8)]
    fine = {(kind, beside): 0.0 for kind in kinds for beside in kinds}
    wild = fine | {("k0", "k1"): math.log(0.05)}
    log, variance = fit(wild, prior_variance=0.01).borrowed(("k0", "new"))
    # Its plain mean beside the eight is -0.37.
    assert -0.03 < log < 0
    assert variance < 0.02


def test_the_last_readings_count_most():
    known = PairCoefficients()
    for ratio in [1.0] * 10 + [0.6] * 10:
        known = known.observed(["a", "b"], [ratio, 1.0])
    assert known.value("a", "b") == pytest.approx(0.6, abs=0.08)


def test_readings_that_scatter_leave_a_pair_less_certain():
    def after(ratios):
        known = PairCoefficients()
        for ratio in ratios:
            known = known.observed(["a", "b"], [ratio, 1.0])
        return known.belief("a", "b").spread

    assert after([0.5, 1.0] * 5) > 2 * after([0.75] * 10)


def test_two_of_a_kind_give_two_readings_of_one_pair():
    known = PairCoefficients().observed(["a", "a"], [0.8, 0.9])
    assert [record.count for record in known.pairs] == [2]


def test_three_at_once_share_what_was_lost():
    known = PairCoefficients().observed(["a", "b", "c"], [0.81, 1.0, 1.0])
    ratios = {(record.kind, record.beside): record.ratio for record in known.pairs}
    assert ratios["a", "b"] == ratios["a", "c"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("kinds", "ratios", "words"),
    [
        (["a"], [1.0], "1 ratios of 1 kinds"),
        (["a", "b"], [1.0], "1 ratios of 2 kinds"),
        (["a", "b"], [1.0, -0.1], "a ratio is -0.1"),
        (["a", "b"], [math.nan, 1.0], "a ratio is nan"),
    ],
)
def test_readings_that_cannot_be_are_refused(kinds, ratios, words):
    with pytest.raises(ValueError, match=words):
        PairCoefficients().observed(kinds, ratios)


def test_a_file_with_a_pair_twice_is_refused():
    data = json.loads(PairCoefficients().observed(["a", "b"], [1.0, 1.0]).to_json())
    data["pairs"] *= 2
    with pytest.raises(BadFile, match=r"state: .*alphabetical order, each once"):
        PairCoefficients.from_json(json.dumps(data), source="state")
