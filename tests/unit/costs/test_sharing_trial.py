import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.costs.pair_coefficients import PairCoefficients
from headway.costs.sharing_trial import Outlook, Trial, decide, expected_best


@pytest.mark.parametrize(
    ("outlook", "choice"),
    [
        (Outlook(1.6, 0.1, 9), "share"),
        (Outlook(0.6, 0.1, 9), "apart"),
        (Outlook(1.05, 0.3, 9), "try"),
        (Outlook(1.6, 0.1, 0), "try"),
    ],
)
def test_what_is_open_is_tried_and_what_is_clear_is_not(outlook, choice):
    assert Trial().advise(outlook).choice == choice


def test_a_trial_that_costs_too_much_is_not_made():
    open_question = Outlook(1.0, 0.2, 9)
    assert Trial(cost=0.02).advise(open_question).choice == "try"
    assert Trial(cost=0.2).advise(open_question).choice != "try"


def test_a_trial_that_reads_nothing_is_not_made():
    assert Trial(noise=10.0).advise(Outlook(1.0, 0.2, 9)).choice != "try"


def test_the_reason_has_the_figures():
    words = Trial().advise(Outlook(1.0, 0.3, 9)).reason
    assert words == (
        "a trial is worth 7.6% of the throughput; together they give 1.00 (0.68 to 1.47) times "
        "one after another"
    )


@given(st.floats(0.1, 3), st.floats(0.001, 1))
def test_knowing_more_never_hurts_and_helps_most_where_it_is_open(mean, spread):
    assert expected_best(mean, spread) >= max(mean, 1.0) - 1e-12
    assert expected_best(mean, spread) <= expected_best(mean, 1.5 * spread) + 1e-12


def test_the_outlook_follows_what_was_read():
    known = PairCoefficients(low=0.1, high=2.2, prior_spread=0.5)
    before = Outlook.of(["a", "b"], [0.5, 0.5], known)
    assert (before.throughput, before.partners) == (1.0, 0)
    after = Outlook.of(["a", "b"], [0.5, 0.5], known.observed(["a", "b"], [1.6, 1.4]))
    assert 1.4 < after.throughput < 1.5
    assert after.spread < before.spread / 4
    assert after.partners == 1
    assert decide(after).choice == "share"


def test_what_is_not_known_of_two_jobs_is_half_alike():
    # Two rates of 0.5, each with the prior's spread: between sqrt(1/2) of it and all of it.
    spread = Outlook.of(["a", "b"], [0.5, 0.5], PairCoefficients(prior_spread=0.4)).spread
    assert spread == pytest.approx(0.4 * 0.75**0.5)
