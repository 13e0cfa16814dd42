"""The geometry of lanes: every attempt where it ran, nothing drawn over anything else."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headway.core.timeline import Span
from headway.forecast.expected import Expected
from headway.forecast.queue import JobForecast
from headway.reports.lanes import (
    MOST_BARS,
    MOST_LANES,
    MOST_PLANNED_JOBS,
    MOST_TRACKS,
    MOST_WAITING,
)
from headway.reports.lanes import lanes_of as lanes_of_all
from results import about, everything, happened, job, ran, result, timeline


def lanes_of(whole, spans, plan, *, live=False):
    return lanes_of_all(whole, happened(timeline=spans, expected=plan, live=live))


def lanes_named(picture):
    return {lane.name: lane for lane in picture.lanes}


def expected(*stays):
    return Expected(
        makespan=about(100.0, 90.0, 110.0),
        jobs=tuple(
            JobForecast(name=f"j{n}", status="ok", start_s=begin, end_s=end)
            for n, (begin, end) in enumerate(stays)
        ),
    )


def test_bars_stand_where_and_when_their_jobs_ran():
    whole, shown = everything()
    picture = lanes_of(whole, shown.timeline, None)
    lanes = lanes_named(picture)
    assert list(lanes) == ["core 0", "core 1"]
    first, second, third = lanes["core 0"].bars
    assert (first.job, first.start_up, first.x) == (0, True, 0.0)
    assert (second.job, second.start_up, second.label) == (0, False, "1 lstm-a")
    assert abs(first.width + second.width - 100 * 60 / 118) < 0.01
    assert abs(third.x + third.width - 100) < 0.01
    # The last attempt of the third job had both cores, whatever the lane of its span says.
    assert [bar.job for bar in lanes["core 1"].bars] == [1, 1, 2]
    assert [bar.ok for bar in lanes["core 1"].bars] == [False, False, True]
    assert lanes["core 1"].bars[1].title == "2 lstm-b, attempt 2: failed, 0:30 to 0:42"


def test_a_run_that_goes_on_reaches_to_now():
    whole = result(
        job("a", 0.0, 0.0, status="running", end=None),
        job("b", status="waiting", attempts=0, start=None, end=None, cores=None),
        seconds=40.0,
    )
    picture = lanes_of(whole, timeline(*ran(0, 0.0, 40.0, status="running")), None, live=True)
    (bar,) = picture.lanes[0].bars
    assert (bar.ok, bar.x, bar.width) == (True, 0.0, 100.0)
    assert bar.title == "1 a: running, 0:00 to 0:40"
    assert [wait.title for wait in picture.waiting] == ["2 b: waited, 0:00 to 0:40"]


def test_who_waited_from_when_to_when():
    whole, shown = everything()
    waits = lanes_of(whole, shown.timeline, None).waiting
    assert [wait.title for wait in waits] == [
        "2 lstm-b: waited, 0:20 to 0:30",
        "3 lstm-c: waited, 0:00 to 1:00",
    ]


def test_the_plan_lies_under_the_lane_where_the_job_ran():
    whole = result(job("a", 0, 50), job("b", 50, 100, cores=(1,)))
    spans = timeline(*ran(0, 0, 50), *ran(1, 50, 100, core=1))
    lanes = lanes_named(lanes_of(whole, spans, expected((0, 40), (40, 90))))
    (line,) = lanes["core 1"].planned
    assert (line.job, line.x, line.width, line.track) == (1, 40.0, 50.0, 0)


def test_a_plan_that_took_far_longer_leaves_room_for_what_happened():
    whole = result(job("a", 0, 50))
    picture = lanes_of(whole, timeline(*ran(0, 0, 50)), expected((0, 5000)))
    assert abs(picture.lanes[0].bars[0].width - 100 / 1.5) < 0.01
    assert picture.lanes[0].planned[0].width == 100.0


def test_a_plan_of_another_list_is_not_drawn():
    whole = result(job("a", 0, 50))
    assert (
        lanes_of(whole, timeline(*ran(0, 0, 50)), expected((0, 9), (0, 9))).lanes[0].planned == ()
    )


def test_cores_with_the_same_on_them_share_a_lane():
    whole = result(job("a", 0, 50, cores=(0, 1, 2)), job("b", 0, 50, cores=(3,)))
    spans = timeline(*ran(0, 0, 50), *ran(1, 0, 50, core=3))
    assert list(lanes_named(lanes_of(whole, spans, None))) == ["cores 0-2", "core 3"]


def test_jobs_without_cores_of_their_own_lie_below_each_other():
    whole = result(*(job(f"j{n}", 0, 50, cores=None) for n in range(3)))
    spans = timeline(*(span for n in range(3) for span in ran(n, 0, 50, core=None)))
    (lane,) = lanes_of(whole, spans, None).lanes
    assert (lane.name, lane.tracks) == ("any core", 3)
    assert [bar.track for bar in lane.bars] == [0, 1, 2]


def test_many_at_once_get_thinner_tracks_without_letters():
    whole = result(*(job(f"j{n}", 0, 50, cores=None) for n in range(MOST_TRACKS + 9)))
    spans = timeline(*(span for n in range(MOST_TRACKS + 9) for span in ran(n, 0, 50, core=None)))
    picture = lanes_of(whole, spans, None)
    (lane,) = picture.lanes
    assert (lane.tracks, len(lane.bars)) == (MOST_TRACKS, MOST_TRACKS + 9)
    assert lane.pitch * lane.tracks <= 660
    assert not lane.labelled
    assert picture.remarks == (
        f"what ran beside {MOST_TRACKS - 1} others may lie over another bar",
    )


def test_a_job_on_many_cores_counts_as_many_bars():
    """Each of two hundred jobs on sixteen of twenty cores, never the same ones twice in a row."""
    whole = result(
        *(job(f"j{n}", n, n + 1, cores=tuple((n + k) % 20 for k in range(16))) for n in range(200))
    )
    spans = timeline(*(span for n in range(200) for span in ran(n, n, n + 1)))
    picture = lanes_of(whole, spans, None)
    assert sum(len(lane.bars) for lane in picture.lanes) <= MOST_BARS
    assert picture.remarks[0] == f"the {MOST_BARS // 16} longest of 200 bars are drawn"


def test_no_spans_no_picture():
    whole = result(job("a"))
    assert lanes_of(whole, None, None) is None
    assert lanes_of(whole, timeline(), None) is None


def test_spans_of_strangers_are_left_out():
    """Somebody wrote into the timeline: jobs that are not there, arguments without sense."""
    odd = [
        Span(t=-5, d=10**9, lane="core", kind="compute", name="x", job=0, args={"attempt": []}),
        Span(t=0, d=1, lane="n0/core\u00b2", kind="compute", name="x", job=99),
        Span(t=0, d=1, lane="n0/core0", kind="idle", name="x"),
    ]
    whole = result(job("a", cores=None))
    (lane,) = lanes_of(whole, timeline(*odd), None).lanes
    assert [(bar.job, bar.x) for bar in lane.bars] == [(0, 0.0)]


def test_long_lists_are_thinned_and_it_is_said():
    count = 2000  # of which 1,600 on the lanes that are drawn
    whole = result(*(job(f"j{n}", n, n + 1, cores=(n % 80,)) for n in range(count)))
    spans = timeline(*(span for n in range(count) for span in ran(n, n, n + 1, core=n % 80)))
    plan = expected(*((n, n + 1) for n in range(count)))
    picture = lanes_of(whole, spans, plan)
    assert len(picture.lanes) == MOST_LANES
    assert sum(len(lane.bars) for lane in picture.lanes) <= 1.1 * MOST_BARS
    assert len(picture.waiting) == MOST_WAITING
    assert count > MOST_PLANNED_JOBS
    assert not any(lane.planned for lane in picture.lanes)
    assert picture.remarks == (
        "the plan is left out",
        f"the {count * MOST_BARS // 1600:,} longest of {count:,} bars are drawn",
        f"the first {MOST_LANES} of 80 lanes are drawn",
        f"{MOST_WAITING} of the jobs that waited are drawn, evenly chosen",
    )


STAYS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=30
)


@given(STAYS)
def test_bars_of_a_track_never_overlap(stays):
    jobs = [job(f"j{n}", cores=None) for n in range(len(stays))]
    spans = [
        span
        for n, (core, begin, length) in enumerate(stays)
        for span in ran(n, begin, begin + length, core=core)
    ]
    picture = lanes_of(result(*jobs), timeline(*spans), None)
    assert sum(len(lane.bars) for lane in picture.lanes) == len(stays)
    for lane in picture.lanes:
        for track in range(lane.tracks):
            bars = sorted((bar.x, bar.x + bar.width) for bar in lane.bars if bar.track == track)
            assert bars
            for (_, end), (begin, _) in pairwise(bars):
                assert begin >= end - 0.01
            assert bars[0][0] >= 0
            assert bars[-1][1] <= 100.01
