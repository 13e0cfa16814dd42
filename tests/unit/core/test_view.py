import pytest

from headway.core.holdings import Elsewhere, Hold, Reservation
from headway.core.units import GIB
from headway.core.view import View
from headway.core.words import (
    Arrived,
    Exited,
    Outcome,
    Phase,
    Reserve,
    Reshare,
    Retry,
    Settle,
    Share,
    Start,
    Stop,
    Tick,
    Wait,
)
from headway.testing.machines import fake_device, fake_machine
from headway.testing.queues import FakeQueue, fake_job, fake_jobs


def view_of(*jobs, machine=None, arrived=True):
    queue = FakeQueue(jobs=jobs, machine=machine or fake_machine())
    view = View.of(jobs, queue.plan("partitioned").placements, queue.machine)
    if arrived:
        for index in view.arrivals():
            view.apply(Arrived(0, index), 0)
    return view


def test_the_queue_keeps_the_order_of_the_file():
    view = view_of(*fake_jobs(5), arrived=False)
    for index in (3, 0, 4, 1):
        view.apply(Arrived(0, index), 0)
    assert view.waiting == [0, 1, 3, 4]
    view.apply(Start(1, Share()), 1)
    view.apply(Settle(3, "cancelled", ""), 1)
    assert view.waiting == [0, 4]


def test_a_higher_priority_goes_before_and_equals_keep_the_order_of_the_file():
    jobs = [fake_job(f"job-{index}", priority=p) for index, p in enumerate((0, -1, 5, 0, 5, -1))]
    view = view_of(*jobs, arrived=False)
    assert view.arrivals() == [2, 4, 0, 3, 1, 5]
    for index in (5, 3, 2, 1, 0, 4):
        view.apply(Arrived(0, index), 0)
    assert view.waiting == [2, 4, 0, 3, 1, 5]
    assert view.arrivals() == []
    view.apply(Start(4, Share()), 1)
    view.apply(Settle(1, "cancelled", ""), 1)
    view.apply(Settle(2, "cancelled", ""), 1)
    assert view.waiting == [0, 3, 5]
    view.apply(Exited(2, 4, Outcome("failed")), 2)
    view.apply(Retry(4, None, "again", "retry"), 2)
    assert view.waiting == [4, 0, 3, 5]


def test_a_group_has_the_highest_priority_of_its_members():
    jobs = [
        fake_job("a", priority=1),
        fake_job("b", group="g", priority=-3),
        fake_job("c", group="g", priority=2),
        fake_job("d", group="h", priority=-1),
        fake_job("e", group="h", priority=-2),
        fake_job("f"),
    ]
    assert view_of(*jobs).waiting == [1, 2, 0, 5, 3, 4]


def test_followers_join_the_queue_in_its_order():
    jobs = [fake_job("a"), fake_job("b", after=("a",)), fake_job("c", after=("a",), priority=1)]
    view = view_of(*jobs)
    settle = Settle(0, "ok", "")
    assert view.follow(settle, view.apply(settle, 1)) == ([2, 1], [])


def test_a_share_is_taken_and_given_back():
    machine = fake_machine(cores=4, memory_bytes=10 * GIB, devices=[fake_device(0), fake_device(1)])
    view = view_of(*fake_jobs(2), machine=machine)
    whole = view.free_bytes
    assert whole == view.capacity_bytes == int(9.5 * GIB)
    view.apply(Start(0, Share(cores=(1, 2), reserved_bytes=GIB, devices=(1,))), 5)
    assert (view.free_cores, view.free_devices) == ({0, 3}, {0})
    assert view.free_bytes == whole - GIB
    view.apply(Reserve(0, 2 * GIB), 6)
    assert view.free_bytes == whole - 2 * GIB
    view.apply(Exited(7, 0, Outcome("ok")), 7)
    assert (view.free_cores, view.free_devices) == ({0, 1, 2, 3}, {0, 1})
    assert (view.free_bytes, view.reserved_bytes) == (whole, 0)
    assert view.states[0].last_share.reserved_bytes == 2 * GIB


def test_what_other_runs_hold_is_not_free_until_they_give_it_back():
    machine = fake_machine(cores=3, devices=[fake_device(0), fake_device(1)])
    view = view_of(*fake_jobs(2), machine=machine)
    view.apply(Start(0, Share(cores=(0,), devices=(0,))), 1)
    hold = Hold(
        job=1, attempt=1, cores=(0, 1), slots=2, reserved_bytes=GIB, devices=("GPU-00000001",)
    )
    run = Reservation(run="/x/a", supervisor=(1, 1), cores=(0, 1, 2), jobs=(hold,))
    whole = view.free_bytes
    view.see_elsewhere(Elsewhere.of([run], cores=machine.host.cores))
    assert (view.free_cores, view.free_devices, view.free_bytes) == ({2}, set(), whole - GIB)
    view.apply(Exited(2, 0, Outcome("ok")), 2)
    assert (view.free_cores, view.free_devices) == ({2}, {0})
    view.see_devices(machine.devices)
    assert view.free_devices == {0}
    view.see_elsewhere(Elsewhere())
    assert (view.free_cores, view.free_devices, view.free_bytes) == ({0, 1, 2}, {0, 1}, whole)


def test_a_core_that_another_job_holds_too_stays_taken():
    view = view_of(*fake_jobs(2))
    view.apply(Start(0, Share(cores=(0,))), 1)
    view.apply(Start(1, Share()), 1)
    view.apply(Reshare(1, (0,), "confined"), 2)
    view.apply(Exited(3, 0, Outcome("ok")), 3)
    assert view.free_cores == {1}
    view.apply(Exited(4, 1, Outcome("ok")), 4)
    assert view.free_cores == {0, 1}


def test_an_attempt_begins_with_nothing_of_the_last():
    view = view_of(fake_job("a"))
    view.apply(Start(0, Share(threads=2)), 1)
    state = view.states[0]
    view.apply(Phase(2, 0, "steps"), 2)
    view.apply(Reshare(0, (0,), "confined"), 2)
    view.apply(Stop(0, "memory", "full"), 3)
    assert (state.stopping, state.stops, state.cause) == (True, 1, "full")
    view.apply(Exited(4, 0, Outcome("cancelled", steps=7, step_ns=5, peak_bytes=GIB)), 4)
    assert (state.steps, state.step_ns, state.peak_bytes) == (7, 5, GIB)
    assert not state.stopping
    view.apply(Retry(0, 2 * GIB, "again", "oom"), 4)
    assert (state.status, state.wait_reason, state.oom_retries, state.retries) == (
        "waiting",
        "again",
        1,
        0,
    )
    view.apply(Start(0, Share(threads=5)), 6)
    assert (state.attempt, state.phase, state.steps, state.peak_bytes) == (2, "start-up", None, 0)
    assert (state.confined, state.cause, state.wait_reason, state.outcome) == ("", "", "", None)
    assert state.threads == 2, "the count of the first attempt is kept"


def test_time_never_goes_back():
    view = view_of(fake_job("a"))
    view.apply(Tick(9), 9)
    view.apply(Tick(4), 4)
    assert view.t == 9


def test_reasons_to_wait_are_kept_until_the_start():
    view = view_of(fake_job("a"))
    view.apply(Wait(0, "waits for a core"), 1)
    assert view.states[0].wait_reason == "waits for a core"
    view.apply(Start(0, Share()), 2)
    assert view.states[0].wait_reason == ""


def test_followers_arrive_after_their_last_predecessor():
    view = view_of(fake_job("a"), fake_job("b"), fake_job("c", after=("a", "b")))
    assert view.waiting == [0, 1]
    assert view.apply(Settle(0, "ok", ""), 1) == []
    settle = Settle(1, "ok", "")
    concerned = view.apply(settle, 2)
    assert view.follow(settle, concerned) == ([2], [])
    assert view.ready(2)
    view.apply(Arrived(2, 2), 2)
    assert not view.ready(2)


def test_followers_of_a_failed_job_are_cancelled():
    view = view_of(fake_job("a"), fake_job("b", after=("a",)), fake_job("c", after=("b",)))
    settle = Settle(0, "failed", "exit 1")
    arrived, cancelled = view.follow(settle, view.apply(settle, 1))
    assert (arrived, cancelled) == ([], [Settle(1, "cancelled", "needs a, which ended failed")])


def test_a_crash_between_two_last_words_makes_no_follower_ready():
    """The journal has the failed job's word, and not yet the follower's."""
    view = view_of(fake_job("a"), fake_job("b", after=("a",)), fake_job("c", after=("a", "b")))
    view.apply(Settle(0, "failed", "exit 1"), 1)
    assert view.arrivals() == []
    words = []
    for settle in view.abandoned():
        words.append(settle)
        view.apply(settle, 2)
    assert [(word.job, word.cause) for word in words] == [
        (1, "needs a, which ended failed"),
        (2, "needs a, which ended failed"),
    ]
    assert view.unsettled == 0


def test_reopened_jobs_wait_for_each_other_again():
    view = view_of(fake_job("a"), fake_job("b", after=("a",)))
    view.apply(Settle(0, "failed", ""), 1)
    view.apply(Settle(1, "cancelled", ""), 1)
    for index in (0, 1):
        view.reopen(index)
    assert view.arrivals() == [0]
    assert view.unsettled == 2
    settle = Settle(0, "ok", "")
    assert view.follow(settle, view.apply(settle, 2)) == ([1], [])


def test_only_attempts_that_show_the_need_teach_the_peak():
    view = view_of(*fake_jobs(4))
    for index, (status, peak) in enumerate(
        [("ok", GIB), ("failed", 5 * GIB), ("oom", 3 * GIB), ("ok", 2 * GIB)]
    ):
        view.apply(Start(index, Share()), 1)
        view.apply(Exited(2, index, Outcome(status, peak_bytes=peak)), 2)
    assert view.peaks["./train"] == [GIB, 2 * GIB, 3 * GIB]
    assert view.peak_of_script("./train") == 3 * GIB
    assert view.peak_of_script("./other") is None


def test_the_95th_percentile_is_a_peak_that_was_seen():
    view = view_of(fake_job("a"))
    view.peaks["./a"] = list(range(1, 101))
    assert view.peak_of_script("./a") == 95
    view.peaks["./a"] = [7]
    assert view.peak_of_script("./a") == 7


@pytest.mark.parametrize(("status", "learnt"), [("ok", [9]), ("failed", []), ("oom", [])])
def test_steps_are_learnt_of_those_who_did_them_all(status, learnt):
    view = view_of(fake_job("a"))
    view.apply(Start(0, Share()), 1)
    view.apply(Exited(2, 0, Outcome(status, steps=9, step_ns=1)), 2)
    assert view.step_counts["./a"] == learnt


def test_devices_come_and_go_with_their_other_users():
    busy = fake_device(1, users=("bob 4711",))
    machine = fake_machine(devices=[fake_device(0), busy, fake_device(2, used_bytes=None)])
    view = view_of(*fake_jobs(1), machine=machine)
    assert view.free_devices == {0}
    view.apply(Start(0, Share(devices=(0,))), 1)
    view.see_devices([fake_device(0, users=("me",)), fake_device(1)])
    assert view.free_devices == {1}
    view.apply(Exited(2, 0, Outcome("ok")), 2)
    assert view.free_devices == {0, 1}


def test_a_shared_device_is_free_once_the_last_has_left_it():
    jobs = fake_jobs(2, gpus=1)
    view = view_of(*jobs, machine=fake_machine(devices=[fake_device(0)]))
    for index in (0, 1):
        view.apply(Start(index, Share(devices=(0,), device_bytes=GIB)), 1)
    assert view.free_devices == set()
    view.apply(Exited(2, 0, Outcome("ok")), 2)
    assert view.free_devices == set()
    view.apply(Exited(3, 1, Outcome("ok")), 3)
    assert view.free_devices == {0}
