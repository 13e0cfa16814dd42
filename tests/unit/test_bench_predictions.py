"""What counts as a good prediction in the bench of it."""

import doctest
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import predictions
from headway.planning import plan_of
from headway.probes.profiles import ProfileStore
from headway.testing.machines import fake_machine
from headway.testing.profiles import past_attempt
from headway.testing.queues import fake_jobs
from predictions import Check, Round


def check(value_s, actual_s, *, low_s=None, high_s=None):
    return Check("a", low_s or value_s * 0.8, value_s, high_s or value_s * 1.25, actual_s)


def verdicts(*rounds):
    return set(predictions.figures(rounds)["verdicts"].values())


def test_the_examples_hold():
    tried = doctest.testmod(predictions)
    assert tried.attempted > 0
    assert tried.failed == 0


def test_a_job_that_did_not_end_well_is_outside_and_has_no_error():
    lost = check(10.0, None)
    assert not lost.inside
    assert lost.error is None
    assert predictions.share_inside([check(10.0, 10.0), lost]) == 0.5


def test_errors_are_parts_of_what_was_measured_whatever_their_sign():
    assert check(9.0, 10.0).error == pytest.approx(-0.1)
    checks = [check(9.0, 10.0), check(13.0, 10.0), check(10.5, 10.0)]
    assert predictions.median_error(checks) == pytest.approx(0.1)


def test_all_is_met_by_exact_predictions_and_nothing_by_wild_ones():
    exact, wild = check(10.0, 10.0), check(10.0, 30.0)
    assert verdicts(Round("mixed", exact, (exact, exact))) == {"met"}
    assert verdicts(Round("mixed", wild, (wild, wild))) == {"MISSED"}


def test_makespans_are_judged_over_the_rounds():
    exact, wild = check(10.0, 10.0), check(10.0, 30.0)
    good = Round("mixed", exact, (exact,))
    bad = Round("mixed", wild, (exact,))
    assert verdicts(*4 * (good,), bad) == {"met"}
    assert "MISSED" in verdicts(good, good, bad)


def test_a_job_is_predicted_as_placed_and_with_bounds(tmp_path):
    jobs, machine = fake_jobs(4), fake_machine(cores=2)
    with ProfileStore.open(tmp_path / "headway") as store:
        store.learn([past_attempt(job, machine, peak_bytes=2**27) for job in jobs])
        planned = plan_of(jobs, machine, store=store, environment={})
    for value_s, low_s, high_s in predictions.spans_of(jobs, planned, machine):
        assert value_s == pytest.approx(10.0)
        assert low_s < value_s < high_s


def test_nothing_is_predicted_of_jobs_that_never_ran(tmp_path):
    jobs, machine = fake_jobs(2), fake_machine(cores=2)
    with ProfileStore.open(tmp_path / "headway") as store:
        planned = plan_of(jobs, machine, store=store, environment={})
    with pytest.raises(SystemExit, match="never measured"):
        predictions.spans_of(jobs, planned, machine)
