"""Stories of the queue policy, with its exact words."""

import pytest

from headway.core.units import GIB, MIB, NS_PER_S
from headway.core.view import View
from headway.core.words import (
    Arrived,
    Exited,
    MemoryPressure,
    Outcome,
    Phase,
    Reserve,
    Reshare,
    Retry,
    Settle,
    Share,
    Start,
    Started,
    Stop,
    Tick,
    Wait,
)
from headway.core.workload import Workload
from headway.planners.queue import Queue
from headway.sim.attempt import Fate
from headway.sim.drive import drive
from headway.testing.conformance import check_policy
from headway.testing.machines import fake_device, fake_machine
from headway.testing.queues import FakeQueue, fake_job, fake_jobs


class Story:
    """A policy with a view of its own: each word is answered, and done, in the view."""

    def __init__(self, jobs, *, mode="partitioned", machine=None, **knobs):
        queue = FakeQueue(jobs=jobs, machine=machine or fake_machine(cores=2))
        plan = queue.plan(mode)
        self.policy = Queue(**{**plan.policy.knobs, **knobs})
        self.view = View.of(queue.jobs, plan.placements, queue.machine)
        self.memory = self.policy.start(self.view)
        self.t = 0

    def tell(self, event):
        self.view.apply(event, event.t)
        return self.ask(event)

    def ask(self, event):
        self.memory, actions = self.policy.decide(self.memory, event, self.view)
        for action in actions:
            self.view.apply(action, event.t)
        return list(actions)

    def arrive(self, *indices):
        actions = [action for index in indices for action in self.tell(Arrived(self.t, index))]
        return [*actions, *self.tell(Tick(self.t))]

    def run(self, index, *, peak, phase="steps"):
        """The job has left its start-up holding so much."""
        self.view.states[index].resident_bytes = self.view.states[index].peak_bytes = peak
        return self.tell(Phase(self.t, index, phase))

    def tick(self, seconds=1):
        self.t += int(seconds * NS_PER_S)
        return self.tell(Tick(self.t))

    def end(self, index, status="ok", **facts):
        return self.tell(Exited(self.t, index, Outcome(status, **facts)))


def started(actions):
    return {action.job: action.share for action in actions if isinstance(action, Start)}


def test_a_job_that_hangs_at_the_very_first_instant_stalls_too():
    story = Story([fake_job("a", stall_timeout_s=5.0)])
    story.arrive(0)
    story.view.states[0].quiet_since_ns = 0
    (stop,) = story.tick(6)
    assert (stop.job, stop.how) == (0, "stall")


# --- memory --------------------------------------------------------------------------------------


def test_unknown_jobs_reserve_a_fair_share_until_their_first_steps():
    story = Story(fake_jobs(3))
    capacity = int(8 * GIB * 0.95)
    first, second = story.arrive(0), story.arrive(1)
    assert first == [Start(0, Share(cores=(0,), threads=1, reserved_bytes=capacity // 2))]
    assert started(second)[1].reserved_bytes == capacity - capacity // 2
    assert story.arrive(2) == []
    story.run(0, peak=GIB)
    assert story.tick() == [Reserve(0, int(GIB * 1.15))]
    assert story.tick() == [], "a change below 2% is not worth a word"


def test_a_declared_need_is_reserved_and_is_the_cap_of_a_partitioned_job():
    story = Story([fake_job("a", memory_bytes=2 * GIB), fake_job("b", memory_bytes=3 * GIB)])
    shares = started(story.arrive(0, 1))
    assert [(s.reserved_bytes, s.cap_bytes) for s in shares.values()] == [
        (2 * GIB, 2 * GIB),
        (3 * GIB, 3 * GIB),
    ]
    story.run(0, peak=GIB)
    assert story.tick() == [], "what is a cap is not corrected"


def test_in_shared_mode_a_declared_need_is_reserved_but_no_cap():
    story = Story([fake_job("a", memory_bytes=6 * GIB)], mode="shared")
    assert started(story.arrive(0)) == {0: Share(threads=1, reserved_bytes=6 * GIB)}


def test_a_job_waits_for_the_memory_it_declared():
    story = Story(fake_jobs(2, memory_bytes=5 * GIB))
    assert started(story.arrive(0))
    assert story.arrive(1) == [Wait(1, "waits for 5.0 GiB of memory: 2.6 GiB not reserved")]
    assert story.tick() == [], "the same reason is not told again"
    assert started(story.end(0, peak_bytes=GIB)) == {
        1: Share(cores=(0,), threads=1, reserved_bytes=5 * GIB, cap_bytes=5 * GIB)
    }


def test_the_95th_percentile_of_a_script_is_what_the_next_of_it_reserves():
    story = Story(fake_jobs(40, memory_bytes=None), mode="serial")
    for index in range(20):
        story.arrive(index)
        story.end(index, peak_bytes=(index + 1) * 100 * MIB)
    assert story.view.peak_of_script("./train") == 1900 * MIB
    four = Story(fake_jobs(5), machine=fake_machine(cores=4))
    four.view.peaks = story.view.peaks
    assert started(four.arrive(0))[0].reserved_bytes == int(1900 * MIB * 1.15)


def test_a_learnt_need_holds_back_a_job_for_which_there_is_no_room():
    story = Story(fake_jobs(3))
    story.arrive(0)
    story.end(0, peak_bytes=6 * GIB)
    story.arrive(1)
    assert story.view.states[1].share.reserved_bytes == int(6 * GIB * 1.15)
    assert story.arrive(2) == [Wait(2, "waits for 6.9 GiB of memory: 717 MiB not reserved")]


def expecting(story, *needs):
    """The jobs of a story, measured before to need so much."""
    for state, expected in zip(story.view.states, needs, strict=True):
        state.placement = state.placement.model_copy(update={"expected_bytes": expected})


def test_a_measured_need_stays_reserved_while_the_memory_still_grows():
    story = Story(fake_jobs(2))
    expecting(story, 4 * GIB, 5 * GIB)
    assert started(story.arrive(0))[0].reserved_bytes == 4 * GIB
    story.run(0, peak=GIB)
    assert story.arrive(1) == [Wait(1, "waits for 5.0 GiB of memory: 3.6 GiB not reserved")]
    assert story.tick() == []
    story.view.states[0].peak_bytes = 4 * GIB + 1
    assert story.tick() == [Reserve(0, int((4 * GIB + 1) * 1.15))]


def test_who_waits_behind_another_is_told_again_only_what_is_new():
    story = Story(fake_jobs(4), machine=fake_machine(cores=3))
    expecting(story, 5 * GIB, 4 * GIB, 6 * GIB, GIB)
    waits = [action.reason for action in story.arrive(0, 1, 2) if isinstance(action, Wait)]
    assert [reason.partition(":")[0] for reason in waits] == [
        "waits for 4.0 GiB of memory",
        "waits for 6.0 GiB of memory",
    ]
    assert list(started(story.arrive(3))) == [3]
    # The first in the queue hears what is left now, the one behind it nothing.
    assert [action.job for action in story.tick() if isinstance(action, Wait)] == [1]
    story.end(3)
    assert list(started(story.end(0))) == [1]


def test_an_unknown_need_is_not_started_into_a_sliver():
    story = Story([fake_job("a", memory_bytes=7 * GIB), fake_job("b")], mode="shared")
    story.arrive(0)
    told = "waits for memory: 614 MiB not reserved, and its need is not known yet"
    assert story.arrive(1) == [Wait(1, told)]


def test_what_others_hold_is_not_given():
    machine = fake_machine(cores=2, foreign_bytes=4 * GIB)
    story = Story([fake_job("a", memory_bytes=5 * GIB)], machine=machine)
    told = "waits for 5.0 GiB of memory: 3.6 GiB free, others use 4.0 GiB"
    assert story.arrive(0) == [Wait(0, told)]
    story.view.foreign_bytes = GIB
    assert started(story.tick())


def test_who_waits_for_others_holds_nobody_back():
    machine = fake_machine(cores=2, foreign_bytes=4 * GIB)
    jobs = [fake_job("a", memory_bytes=5 * GIB), *fake_jobs(3)]
    story = Story(jobs, machine=machine, patience=0)
    story.arrive(0)
    assert list(started(story.arrive(1, 2))) == [1, 2]


def test_the_newest_gives_way_and_comes_back_with_a_larger_reservation():
    story = Story(fake_jobs(2))
    story.arrive(0, 1)
    story.view.states[1].started_ns = 5
    story.run(0, peak=3 * GIB)
    story.run(1, peak=2 * GIB)
    [stop] = story.tell(MemoryPressure(story.t, 300 * MIB))
    assert (stop.job, stop.how) == (1, "memory")
    assert stop.reason == (
        "only 300 MiB of memory were left on the machine; the newest job gives way "
        "(it held 2.0 GiB)"
    )
    assert story.tell(MemoryPressure(story.t, 200 * MIB)) == [], "one at a time"
    actions = story.end(1, "cancelled", stopped="memory", peak_bytes=2 * GIB)
    needed = int(2 * GIB * 1.3**2)
    assert actions[0] == Retry(1, needed, "gave way; waits for 3.4 GiB", "none")
    story.tick()
    story.end(0, peak_bytes=3 * GIB)
    assert story.view.states[1].share.reserved_bytes == needed
    assert story.view.states[1].stops == 1


def test_the_last_one_running_is_never_stopped_for_memory():
    story = Story(fake_jobs(1))
    story.arrive(0)
    assert story.tell(MemoryPressure(0, 0)) == []


def test_a_corrected_reservation_is_not_given_away_at_the_first_steps():
    story = Story(fake_jobs(2))
    story.arrive(0)
    story.view.states[0].peak_bytes = 3 * GIB
    story.end(0, "oom", peak_bytes=3 * GIB, cause="killed")
    story.tick()
    needed = story.view.states[0].share.reserved_bytes
    assert needed == int(3 * GIB * 1.3)
    story.run(0, peak=GIB)
    assert not [action for action in story.tick() if isinstance(action, Reserve)]


def test_out_of_memory_is_tried_twice_again_and_given_up_with_a_reason():
    jobs = [fake_job("a", memory_bytes=GIB)]
    queue = FakeQueue(jobs=jobs, fates={"a": Fate(needs_bytes=5 * GIB)})
    plan = queue.plan("partitioned")
    world = check_policy(Queue(**plan.policy.knobs), plan, queue)
    told = [word for _, word in world.words if isinstance(word, (Start, Retry, Settle))]
    reasons = [word.reason for word in told if isinstance(word, Retry)]
    assert reasons == [
        f"killed at its cap of {cap} GiB; the job itself grew. "
        f"Waits for {needed} GiB, then retries ({number} of 2)"
        for cap, needed, number in (("1.0", "1.3", 1), ("1.3", "2.2", 2))
    ]
    caps = [word.share.cap_bytes for word in told if isinstance(word, Start)]
    assert caps == [GIB, int(GIB * 1.3), int(int(GIB * 1.3) * 1.3**2)]
    state = world.view.states[0]
    assert (state.status, state.attempt) == ("oom", 3)
    assert state.cause == (
        "killed at its cap of 2.2 GiB; the job itself grew; given up after 3 attempts"
    )


def test_out_of_memory_with_the_whole_machine_is_given_up():
    jobs = [fake_job("a")]
    queue = FakeQueue(jobs=jobs, fates={"a": Fate(needs_bytes=20 * GIB)})
    plan = queue.plan("partitioned")
    world = check_policy(Queue(**plan.policy.knobs), plan, queue)
    state = world.view.states[0]
    assert (state.status, state.attempt) == ("oom", 1)
    assert state.cause == (
        "killed at 20.0 GiB; the machine's memory was full; given up after 1 attempt"
    )


def test_a_retry_that_cannot_help_is_not_made():
    story = Story(fake_jobs(1))
    story.arrive(0)
    assert story.end(0, "oom", cause="ulimit", peak_bytes=MIB, retry_helps=False) == [
        Settle(0, "oom", "ulimit")
    ]


# --- retries and last words ----------------------------------------------------------------------


def test_a_failing_job_is_retried_as_often_as_it_asked():
    queue = FakeQueue(jobs=[fake_job("a", retries=2)], fates={"a": Fate(fails=5)})
    plan = queue.plan("partitioned")
    world = check_policy(Queue(**plan.policy.knobs), plan, queue)
    retries = [word for _, word in world.words if isinstance(word, Retry)]
    assert [(word.reason, word.counts) for word in retries] == [
        ("exit 1: fails in attempt 1; retries (1 of 2)", "retry"),
        ("exit 1: fails in attempt 2; retries (2 of 2)", "retry"),
    ]
    state = world.view.states[0]
    assert (state.status, state.cause, state.attempt) == ("failed", "exit 1: fails in attempt 3", 3)


def test_a_lost_job_is_never_run_again_by_itself():
    queue = FakeQueue(jobs=[fake_job("a", retries=3)], fates={"a": Fate(lost=1)})
    plan = queue.plan("partitioned")
    world = check_policy(Queue(**plan.policy.knobs), plan, queue)
    assert (world.view.states[0].status, world.view.states[0].attempt) == ("lost", 1)


def test_followers_of_a_failed_job_are_cancelled_down_the_chain():
    jobs = [fake_job("a"), fake_job("b", after=("a",)), fake_job("c", after=("b",)), fake_job("d")]
    queue = FakeQueue(jobs=jobs, fates={"a": Fate(fails=1)})
    plan = queue.plan("partitioned")
    world = check_policy(Queue(**plan.policy.knobs), plan, queue)
    assert [(s.status, s.cause) for s in world.view.states] == [
        ("failed", "exit 1: fails in attempt 1"),
        ("cancelled", "needs a, which ended failed"),
        ("cancelled", "needs b, which ended cancelled"),
        ("ok", ""),
    ]


def test_time_out_and_stall_are_told_at_the_tick_after():
    jobs = [fake_job("a", timeout_s=3.0), fake_job("b", stall_timeout_s=5.0)]
    queue = FakeQueue(jobs=jobs, fates={"b": Fate(hangs_at=0.1)})
    plan = queue.plan("partitioned")
    world = check_policy(Queue(**plan.policy.knobs), plan, queue)
    stops = [(t / NS_PER_S, word.job, word.reason) for t, word in world.words if type(word) is Stop]
    assert stops == [
        (4.0, 0, "timeout=3.0 s is over"),
        (8.0, 1, "no step and no CPU time for 5.0 s"),
    ]
    assert [state.status for state in world.view.states] == ["timeout", "stalled"]


def test_ctrl_c_puts_a_job_back_and_starts_nothing():
    story = Story(fake_jobs(1))
    story.arrive(0)
    story.view.draining = True
    assert story.end(0, "cancelled", stopped="interrupt") == [
        Retry(0, None, "stopped with the run", "none")
    ]
    assert story.tick() == []
    story.view.draining = False
    assert list(started(story.tick())) == [0]


def test_a_whole_story_on_two_cores_word_for_word():
    queue = FakeQueue(
        jobs=[fake_job("a"), fake_job("b")],
        machine=fake_machine(cores=1, memory_bytes=GIB),
        workloads={
            name: Workload.opaque(name, work_ns=2 * NS_PER_S, peak_bytes=MIB) for name in "ab"
        },
    )
    plan = queue.plan("serial")
    world = queue.world(plan)
    drive(Queue(**plan.policy.knobs), world)
    told = [(t // NS_PER_S, word) for t, word in world.words if not isinstance(word, Tick)]
    capacity = int(GIB * 0.95)
    share = Share(reserved_bytes=capacity)
    learnt = Outcome("ok", exit_code=0, peak_bytes=MIB, unseen="steps are not visible")
    assert told == [
        (0, Arrived(0, 0)),
        (0, Arrived(0, 1)),
        (0, Start(0, share)),
        (0, Started(0, 0, 1)),
        (0, Phase(0, 0, "steady")),
        (1, Reserve(0, int(MIB * 1.15))),
        (2, Exited(2 * NS_PER_S, 0, learnt)),
        (2, Settle(0, "ok", "")),
        (2, Start(1, share)),
        (2, Started(2 * NS_PER_S, 1, 1)),
        (2, Phase(2 * NS_PER_S, 1, "steady")),
        (2, Reserve(1, int(MIB // 10 * 1.15))),
        (3, Reserve(1, int(MIB * 1.15))),
        (4, Exited(4 * NS_PER_S, 1, learnt)),
        (4, Settle(1, "ok", "")),
    ]


# --- what can never be placed --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"cores": 3}, "needs 3 cores, this machine has 2; lower cores="),
        (
            {"memory_bytes": 9 * GIB},
            "needs 9.0 GiB, this machine has 7.6 GiB for jobs (RAM); lower memory=",
        ),
        ({"gpus": 2}, "needs 2 GPUs, 1 are visible here"),
        (
            {"gpu_memory_bytes": 100 * GIB},
            "needs a GPU with 100.0 GiB; the largest has 80.0 GiB",
        ),
        (
            {"gpu_memory_bytes": GIB},
            "asks for a part of a GPU, which this version does not share; write gpus=1",
        ),
    ],
)
def test_infeasible_in_words(asked, reason):
    machine = fake_machine(cores=2, devices=[fake_device(0)])
    story = Story([fake_job("a", **asked)], machine=machine)
    assert story.arrive(0) == [Settle(0, "infeasible", reason)]


def test_a_device_of_unknown_use_is_never_given():
    machine = fake_machine(devices=[fake_device(0, used_bytes=None), fake_device(1)])
    story = Story([fake_job("a", gpus=1), fake_job("b", gpus=2)], machine=machine)
    assert started(story.arrive(0))[0].devices == (1,)
    [word] = story.arrive(1)
    assert (word.status, "its memory is unknown" in word.cause) == ("infeasible", True)


def test_a_job_waits_for_a_device_until_others_leave_it_and_holds_nobody_back():
    machine = fake_machine(devices=[fake_device(0, users=("bob 4711",))])
    story = Story([fake_job("a", gpus=1), *fake_jobs(2)], machine=machine, patience=0)
    told = "waits for 1 free GPU; device 0: used by bob 4711"
    assert story.arrive(0) == [Wait(0, told)]
    assert list(started(story.arrive(1))) == [1]
    story.view.see_devices([fake_device(0)])
    assert started(story.tick())[0].devices == (0,)


def test_a_group_too_wide_for_the_machine_is_infeasible_as_a_whole():
    story = Story([fake_job(name, group="g", cores=cores) for name, cores in (("a", 1), ("b", 2))])
    words = [word for word in story.arrive(0, 1) if isinstance(word, Settle)]
    assert [(word.job, word.status) for word in words] == [(0, "infeasible"), (1, "infeasible")]
    assert words[0].cause == "group g needs 3 cores at once, 2 run at once"


# --- order ---------------------------------------------------------------------------------------


def test_a_group_waits_for_its_last_member_without_holding_others_back():
    """Its predecessor stands at the end of a list longer than anybody's patience."""
    small = fake_jobs(40)
    jobs = [
        fake_job("g1", group="g"),
        fake_job("g2", group="g", after=("last",)),
        *small,
        fake_job("last"),
    ]
    queue = FakeQueue(jobs=jobs)
    plan = queue.plan("partitioned")
    world = check_policy(Queue(**plan.policy.knobs), plan, queue)
    assert {state.status for state in world.view.states} == {"ok"}
    assert world.view.states[0].started_ns == world.view.states[1].started_ns


def test_a_group_of_jobs_that_want_the_machine_starts_together_alone():
    jobs = [fake_job("x"), *(fake_job(name, group="g", mode="alone", cores=1) for name in "ab")]
    story = Story(jobs)
    story.arrive(0, 1)
    reason = "waits to have the machine to itself"
    words = story.arrive(2)
    assert words == [Wait(1, reason), Wait(2, reason)]
    assert list(started(story.end(0))) == [1, 2]


def test_a_group_starts_however_few_cores_others_leave():
    story = Story([fake_job(name, group="g") for name in "ab"])
    story.view.foreign_cores = 1.5
    assert list(started(story.arrive(0, 1))) == [0, 1]


def test_a_group_shares_the_memory_among_its_members():
    jobs = [fake_job("a", group="g"), fake_job("b", group="g", memory_bytes=6 * GIB)]
    story = Story(jobs, mode="shared")
    shares = started(story.arrive(0, 1))
    assert shares[1].reserved_bytes == 6 * GIB
    assert sum(share.reserved_bytes for share in shares.values()) <= story.view.capacity_bytes


def test_patience_counts_every_overtaker_also_within_one_decision():
    jobs = [fake_job("x", cores=4), fake_job("wide", cores=4), *fake_jobs(9)]
    machine = fake_machine(cores=8)
    story = Story(jobs, machine=machine, mode="shared", slots=8, patience=3)
    for index in range(len(jobs)):
        story.view.apply(Arrived(0, index), 0)
    story.view.states[1].placement = story.view.states[1].placement.model_copy(update={"cores": 8})
    assert list(started(story.ask(Tick(0)))) == [0, 2, 3, 4]
    assert story.memory == {"blocked": 1, "overtaken": 3}
    assert started(story.tick()) == {}


# --- cores and threads ---------------------------------------------------------------------------


def test_others_work_takes_slots_away_but_never_the_last():
    story = Story(fake_jobs(4), machine=fake_machine(cores=4), mode="shared")
    story.view.foreign_cores = 2.2
    assert list(started(story.arrive(0, 1, 2, 3))) == [0, 1]
    story.view.foreign_cores = 1.2
    assert list(started(story.tick())) == [2]
    crowded = Story(fake_jobs(2))
    crowded.view.foreign_cores = 7.0
    assert list(started(crowded.arrive(0, 1))) == [0]


def test_pinned_jobs_have_cores_of_their_own():
    jobs = [fake_job("a", cores=2), fake_job("b"), fake_job("c")]
    story = Story(jobs, machine=fake_machine(cores=4))
    shares = started(story.arrive(0, 1, 2))
    assert [share.cores for share in shares.values()] == [(0, 1), (2,), (3,)]
    assert [share.threads for share in shares.values()] == [2, 1, 1]


def test_more_run_at_once_than_there_are_cores_where_the_plan_says_so():
    story = Story(fake_jobs(5), mode="shared", extra=2)
    assert len(started(story.arrive(*range(5)))) == 4
    assert list(started(story.end(1))) == [4]


def test_a_retry_gets_the_threads_of_the_first_attempt_again():
    story = Story([fake_job("a", retries=1)])
    assert started(story.arrive(0))[0].threads == 1
    changed = story.view.states[0].placement.model_copy(update={"threads": 2})
    story.view.states[0].placement = changed
    story.end(0, "failed", cause="exit 1")
    assert started(story.tick())[0].threads == 1


def test_who_computes_with_more_threads_than_its_share_is_confined_and_named():
    story = Story(fake_jobs(2), mode="shared")
    story.arrive(0, 1)
    for index in (0, 1):
        story.view.states[index].busy_threads = 2
    words = [word for word in story.tick() if isinstance(word, Reshare)]
    told = "computes with 2 threads, its share is 1: confined to core "
    assert words == [Reshare(0, (0,), f"{told}0"), Reshare(1, (1,), f"{told}1")]
    assert not [word for word in story.tick() if isinstance(word, Reshare)]


def test_a_machine_that_shrank_runs_what_was_planned_for_more_cores():
    four = FakeQueue(
        jobs=[fake_job("a", mode="alone"), fake_job("b")], machine=fake_machine(cores=4)
    )
    plan = four.plan("partitioned")
    assert plan.placements[0].cores == 4
    two = FakeQueue(jobs=four.jobs, machine=fake_machine(cores=2))
    world = check_policy(Queue(**plan.policy.knobs), plan, two)
    assert [state.status for state in world.view.states] == ["ok", "ok"]


def test_what_others_hold_at_the_start_is_taken_from_the_machine():
    story = Story(fake_jobs(1), machine=fake_machine(foreign_bytes=GIB))
    assert story.view.free_bytes == int(8 * GIB * 0.95) - GIB
    assert started(story.arrive(0))[0].reserved_bytes == story.view.capacity_bytes // 2 - GIB // 2


def test_one_decision_never_gives_a_device_twice():
    machine = fake_machine(cores=4, devices=[fake_device(0), fake_device(1)])
    jobs = [*fake_jobs(3, gpus=1), *(fake_job(name, gpus=1, group="g") for name in "ab")]
    story = Story(jobs, machine=machine)
    for index in range(len(jobs)):
        story.view.apply(Arrived(0, index), 0)
    shares = started(story.ask(Tick(0)))
    assert {job: share.devices for job, share in shares.items()} == {0: (0,), 1: (1,)}
    assert story.view.states[2].wait_reason == "waits for 1 free GPU"
    assert started(story.end(0))[2].devices == (0,)
    assert started(story.end(1)) == {}, "the group needs both"
    group = started(story.end(2))
    assert {job: share.devices for job, share in group.items()} == {3: (0,), 4: (1,)}
