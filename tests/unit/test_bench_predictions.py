"""What counts as a good prediction in the bench of it."""

import doctest
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import predictions
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


def job_result(**changes):
    predicted = {"low": 8.0, "value": 10.0, "high": 12.0}
    ended = {"name": "a", "status": "ok", "start": 100.0, "end": 109.0, "predicted": predicted}
    return ended | changes


def result(*jobs):
    makespan = {"low": 15.0, "value": 20.0, "high": 25.0}
    outcome = "ok" if all(job["status"] == "ok" for job in jobs) else "failed"
    times = {"start": 100.0, "end": 130.0, "predicted": makespan}
    return times | {"outcome": outcome, "mode": "mixed", "jobs": list(jobs)}


def test_what_a_run_predicted_is_set_beside_what_it_took():
    judged = predictions.judged(result(job_result(), job_result(end=113.0)))
    assert [job.inside for job in judged.jobs] == [True, False]
    assert (judged.makespan.value_s, judged.makespan.actual_s) == (20.0, 30.0)
    assert not judged.makespan.inside


def test_of_a_run_with_a_failed_job_the_makespan_is_outside_too():
    judged = predictions.judged(result(job_result(), job_result(status="failed")))
    assert judged.jobs[1].actual_s is None
    assert judged.makespan.actual_s is None


def test_a_run_that_predicts_nothing_is_no_round():
    with pytest.raises(SystemExit, match="a: nothing was predicted"):
        predictions.judged(result(job_result(predicted=None)))
