"""Predicted against actual: bounds, dots and what is shown of many."""

from headway.reports.dots import MOST_ROWS, dots_of
from results import about, job


def predicted(name, took_s, value, low, high, **more):
    return job(name, 0.0, took_s, predicted=about(value, low, high), **more)


def test_a_row_has_bounds_and_both_dots():
    dots = dots_of(
        [predicted("a", 50.0, 40.0, 30.0, 60.0), predicted("b", 100.0, 80.0, 70.0, 90.0)]
    )
    first, second = dots.rows
    assert first.low < first.predicted < first.actual < first.high
    assert first.title == "1 a: took 50 s, predicted 40 s (30 s to 1 min 00 s): inside"
    assert (first.where, second.where) == ("inside", "above")
    assert (dots.inside, dots.told, dots.remark, dots.logarithmic) == (1, 2, "", False)
    assert abs(first.actual / second.actual - 0.5) < 1e-4


def test_only_jobs_that_ended_ok_and_were_predicted():
    unknown = about(float("inf"), 0.0, float("inf"))
    jobs = [
        predicted("a", 50.0, 40.0, 30.0, 60.0, status="failed"),
        job("b"),
        job("c", predicted=unknown),
    ]
    assert dots_of(jobs) is None


def test_times_far_apart_are_on_a_logarithmic_axis():
    dots = dots_of([predicted("a", 1.0, 1.0, 0.9, 1.1), predicted("b", 1e4, 1e4, 9e3, 1.1e4)])
    assert dots.logarithmic
    assert 1 < dots.rows[0].actual < 10 < 90 < dots.rows[1].actual < 99


def test_of_many_those_that_were_predicted_worst():
    jobs = [predicted(f"j{n}", 100.0 + n, 100.0, 90.0, 110.0) for n in range(MOST_ROWS + 5)]
    dots = dots_of(jobs)
    assert [row.job for row in dots.rows] == list(range(5, MOST_ROWS + 5))
    assert dots.told == MOST_ROWS + 5
    assert dots.inside == 11
    assert dots.remark == f"the {MOST_ROWS} of {MOST_ROWS + 5} jobs that were predicted worst"
