from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import BadFile
from headway.core.timeline import Header, Kind, Span, Timeline, attempt_spans, read_timeline
from headway.core.view import View
from headway.core.words import Exited, Outcome, Share, Start
from headway.planners.queue import Queue
from headway.sim.drive import drive
from headway.testing.queues import FakeQueue, fake_job, fake_jobs

SPANS = st.builds(
    Span,
    t=st.integers(),
    d=st.integers(0),
    lane=st.text(),
    kind=st.sampled_from(get_args(Kind)),
    name=st.text(),
    job=st.none() | st.integers(0, 9),
    step=st.none() | st.integers(0, 9),
    id=st.none() | st.integers(0, 9),
    deps=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    args=st.dictionaries(st.text(), st.integers() | st.text(), max_size=2),
)


@given(st.lists(SPANS, max_size=5))
def test_lines_read_back(spans):
    timeline = Timeline(header=Header(source="imported", lanes=("a",)), spans=tuple(spans))
    assert read_timeline([line + "\n" for line in timeline.lines()], source="x") == timeline


def test_a_last_line_cut_short_is_left_out_and_a_damaged_one_named():
    span = Span(t=0, d=1, lane="a", kind="host", name="n")
    lines = [
        line + "\n"
        for line in Timeline(header=Header(source="measured"), spans=(span,) * 2).lines()
    ]
    cut = [*lines[:2], lines[2][:9]]
    assert len(read_timeline(cut, source="t").spans) == 1
    with pytest.raises(BadFile, match=r"t:2: field"):
        read_timeline([lines[0], '{"t": 0}\n', lines[2]], source="t")
    with pytest.raises(BadFile, match="empty"):
        read_timeline([], source="t")


def test_an_attempt_is_its_start_up_and_its_steps():
    queue = FakeQueue(jobs=[fake_job("a")])
    view = View.of(queue.jobs, queue.plan("serial").placements, queue.machine)
    view.arrive(0)
    assert attempt_spans(view.states[0], 50) == []
    view.apply(Start(0, Share(cores=(1,))), 100)
    (so_far,) = attempt_spans(view.states[0], 150)
    assert (so_far.name, so_far.t, so_far.d, so_far.args["status"]) == (
        "command",
        100,
        50,
        "running",
    )
    view.states[0].first_step_ns = 130
    view.apply(Exited(200, 0, Outcome("ok")), 200)
    spans = attempt_spans(view.states[0], 200, epoch_ns=50)
    assert [(span.name, span.kind, span.t, span.d, span.lane) for span in spans] == [
        ("start-up", "host", 50, 30, "n0/core1"),
        ("steps", "compute", 80, 70, "n0/core1"),
    ]
    assert spans[0].args == {"attempt": 1, "status": "ok"}


def test_a_simulated_run_has_a_timeline_without_overlaps_on_a_core():
    queue = FakeQueue(jobs=fake_jobs(5))
    plan = queue.plan("partitioned")
    world = queue.world(plan)
    drive(Queue(**plan.policy.knobs), world)
    timeline = world.timeline()
    assert timeline.header.source == "simulated"
    assert timeline.header.lanes == ("n0/core0", "n0/core1")
    for lane in timeline.header.lanes:
        spans = sorted((span.t, span.t + span.d) for span in timeline.spans if span.lane == lane)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert max(span.t + span.d for span in timeline.spans) == world.makespan_ns
