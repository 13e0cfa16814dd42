import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.units import NS_PER_S
from headway.core.view import View
from headway.core.words import Exited, Outcome, Settle, Share, Start
from headway.reports.remaining import remaining, remaining_of_job
from headway.testing.machines import fake_machine
from headway.testing.queues import FakeQueue, fake_jobs


def view_of(count):
    queue = FakeQueue(jobs=fake_jobs(count), machine=fake_machine())
    view = View.of(queue.jobs, queue.plan("shared").placements, queue.machine)
    for index in range(count):
        view.arrive(index)
    return view


def ended(view, index, *, seconds, steps=100):
    """A job that started now ends after so many seconds."""
    began = view.t
    view.apply(Start(index, Share()), began)
    t = began + int(seconds * NS_PER_S)
    view.apply(Exited(t, index, Outcome("ok", steps=steps, step_ns=NS_PER_S // 10)), t)
    view.apply(Settle(index, "ok", ""), t)
    view.t = began


def running(view, index, *, steps=None, step_s=None):
    view.apply(Start(index, Share()), view.t)
    state = view.states[index]
    state.steps = steps
    state.step_ns = None if step_s is None else step_s * NS_PER_S


def test_nothing_is_known_before_a_job_of_the_script_has_ended():
    view = view_of(2)
    running(view, 0, steps=10, step_s=0.1)
    assert not remaining(view).known
    assert not remaining_of_job(view.states[0], view).known


def test_nothing_is_left_when_all_have_ended():
    view = view_of(1)
    ended(view, 0, seconds=10)
    assert remaining(view).value == remaining(view).high == 0
    assert remaining_of_job(view.states[0], view).high == 0


def test_steps_that_are_left_times_their_time():
    view = view_of(2)
    ended(view, 0, seconds=12, steps=100)
    running(view, 1, steps=40, step_s=0.5)
    left = remaining_of_job(view.states[1], view)
    assert (left.value, left.low, left.high) == pytest.approx((30, 27, 34))
    assert left.origin == "extrapolated"


def test_more_steps_than_any_before_it_leave_nothing_but_the_end():
    view = view_of(2)
    ended(view, 0, seconds=12, steps=100)
    running(view, 1, steps=140, step_s=0.5)
    left = remaining_of_job(view.states[1], view)
    assert (left.value, left.low, left.high) == (0, 0, 1)


def test_a_job_in_its_start_up_has_the_time_of_others_less_what_has_passed():
    view = view_of(2)
    ended(view, 0, seconds=10)
    running(view, 1)
    view.t += 4 * NS_PER_S
    left = remaining_of_job(view.states[1], view)
    assert (left.value, left.low, left.high) == pytest.approx((6, 5, 7))


def test_waiting_jobs_follow_on_as_many_lanes_as_run():
    view = view_of(6)
    ended(view, 0, seconds=10)
    running(view, 1, steps=0, step_s=0.1)
    running(view, 2, steps=50, step_s=0.1)
    left = remaining(view)
    # Lanes are free after 10 and 5 s; three jobs of 10 s each follow: 5+10, 10+10, 15+10.
    assert left.value == pytest.approx(25)
    assert left.low < left.value < left.high


def test_one_unknown_job_makes_the_whole_unknown():
    view = view_of(3)
    ended(view, 0, seconds=10)
    view.states[2].job = view.states[2].job.model_copy(update={"command": "./other"})
    assert not remaining(view).known
    assert math.isinf(remaining(view).value)


@given(
    durations=st.lists(st.floats(0.1, 1000), min_size=1, max_size=6),
    runs=st.integers(0, 3),
    done=st.integers(0, 200),
)
def test_bounds_hold_the_value(durations, runs, done):
    view = view_of(len(durations) + 6)
    for index, seconds in enumerate(durations):
        ended(view, index, seconds=seconds, steps=50 + index)
    for index in range(len(durations), len(durations) + runs):
        running(view, index, steps=done, step_s=0.25)
    left = remaining(view)
    assert 0 <= left.low <= left.value <= left.high < math.inf
