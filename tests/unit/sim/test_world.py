"""The simulated world's own facts, to the nanosecond."""

import pytest

from headway.core.policy import Policy
from headway.core.units import GIB, MIB, NS_PER_S
from headway.core.words import (
    Exited,
    MemoryPressure,
    Phase,
    Reshare,
    Settle,
    Share,
    Start,
    Stop,
    Tick,
)
from headway.core.workload import Workload
from headway.planners.queue import Queue
from headway.sim.attempt import Fate
from headway.sim.drive import drive
from headway.sim.task import SimulationError
from headway.testing.machines import fake_machine
from headway.testing.queues import FakeQueue, fake_job, fake_jobs, known_job


def work(name, seconds, *, start_up=0.0, cores=1.0, peak=MIB, steps=None):
    return Workload.opaque(
        name,
        work_ns=int(seconds * NS_PER_S),
        start_up_ns=int(start_up * NS_PER_S),
        cores=cores,
        peak_bytes=peak,
        steps=steps,
    )


def driven(queue, mode, **knobs):
    plan = queue.plan(mode)
    world = queue.world(plan)
    drive(Queue(**{**plan.policy.knobs, **knobs}), world)
    return world


def ends(world):
    return [state.ended_ns / NS_PER_S for state in world.view.states]


def exits(world):
    return [word.outcome for _, word in world.words if isinstance(word, Exited)]


class Nobody(Policy):
    """Starts nothing."""

    def start(self, view):
        return {}

    def decide(self, memory, event, view):
        return memory, []


def test_jobs_share_cores_equally_when_there_are_more():
    queue = FakeQueue(
        jobs=fake_jobs(3),
        machine=fake_machine(cores=2),
        workloads={f"job-{n}": work(f"job-{n}", 4, cores=2.0) for n in (1, 2, 3)},
    )
    assert ends(driven(queue, "naive")) == pytest.approx([12, 12, 12], abs=1e-4)
    assert ends(driven(queue, "serial")) == [4, 8, 12]
    # One thread each: twice as long, two at once.
    assert ends(driven(queue, "partitioned")) == [8, 8, 16]


def test_start_up_takes_one_core_and_comes_first():
    queue = FakeQueue(
        jobs=[fake_job("a", cores=2)],
        workloads={"a": work("a", 4, start_up=1.5, cores=2.0, steps=8)},
    )
    world = driven(queue, "partitioned")
    assert ends(world) == [5.5]
    phases = [(t, word.phase) for t, word in world.words if isinstance(word, Phase)]
    assert phases == [(1_500_000_000, "steps")]
    [outcome] = exits(world)
    assert (outcome.steps, outcome.step_ns) == (8, NS_PER_S // 2)
    assert outcome.first_step_ns == 1_500_000_000


def test_ticks_come_every_second_and_fates_at_their_part():
    queue = FakeQueue(
        jobs=[fake_job("a")],
        workloads={"a": work("a", 4)},
        fates={"a": Fate(fails=1, ends_at=0.625)},
    )
    world = driven(queue, "serial")
    ticks = [t for t, word in world.words if isinstance(word, Tick)]
    assert ticks == [0, NS_PER_S, 2 * NS_PER_S]
    assert ends(world) == [2.5]
    assert exits(world)[0].exit_code == 1


def test_who_passes_its_cap_is_killed_at_the_cap():
    queue = FakeQueue(
        jobs=[fake_job("a", memory_bytes=GIB)],
        workloads={"a": work("a", 10, peak=2 * GIB)},
        fates={"a": Fate(grown_at=1.0)},
    )
    world = driven(queue, "partitioned", oom_retries=0)
    [outcome] = exits(world)
    assert (outcome.status, outcome.peak_bytes, outcome.signal) == ("oom", GIB, 9)
    assert ends(world) == [6.0], "it holds 1.2 GiB at the tick after half of its work"


def test_a_cap_is_looked_at_when_a_short_job_ends_too():
    queue = FakeQueue(
        jobs=[fake_job("a", memory_bytes=GIB)], workloads={"a": work("a", 0.5, peak=2 * GIB)}
    )
    world = driven(queue, "partitioned", oom_retries=0)
    assert exits(world)[0].status == "oom"


def test_the_largest_is_killed_when_the_machine_is_full():
    queue = FakeQueue(
        jobs=fake_jobs(2),
        machine=fake_machine(memory_bytes=4 * GIB),
        workloads={
            "job-1": work("job-1", 10, peak=3 * GIB),
            "job-2": work("job-2", 10, peak=2 * GIB),
        },
    )
    world = driven(queue, "naive", oom_retries=0)
    assert [state.status for state in world.view.states] == ["oom", "ok"]
    assert exits(world)[0].cause == "killed at 3.0 GiB; the machine's memory was full"


def test_the_newest_gives_way_before_the_machine_is_full():
    queue = FakeQueue(
        jobs=fake_jobs(2),
        machine=fake_machine(memory_bytes=4 * GIB),
        workloads={name: work(name, 20, peak=2 * GIB - 30 * MIB) for name in ("job-1", "job-2")},
        fates={name: Fate(grown_at=0.5) for name in ("job-1", "job-2")},
    )
    world = driven(queue, "shared")
    pressure = [t for t, word in world.words if isinstance(word, MemoryPressure)]
    stops = [(t, word.job, word.how) for t, word in world.words if isinstance(word, Stop)]
    assert stops == [(pressure[0], 1, "memory")]
    assert [state.status for state in world.view.states] == ["ok", "ok"]
    assert world.view.states[1].started_ns >= world.view.states[0].ended_ns


def test_confined_to_one_core_the_rest_of_the_work_takes_longer():
    queue = FakeQueue(
        jobs=fake_jobs(2),
        machine=fake_machine(cores=2),
        workloads={name: work(name, 4, cores=2.0) for name in ("job-1", "job-2")},
        fates={"job-1": Fate(threads=2)},
    )
    world = driven(queue, "shared")
    [(t, reshare)] = [(t, word) for t, word in world.words if isinstance(word, Reshare)]
    assert (t, reshare.job, reshare.cores) == (NS_PER_S, 0, (0,))
    # 8 core-seconds: one second beside job-2 (1 core each), then one core each.
    assert ends(world) == pytest.approx([8, 8], abs=1e-4)


def test_a_job_that_hangs_goes_quiet_and_waits_for_its_time_out():
    queue = FakeQueue(
        jobs=[fake_job("a", timeout_s=7.0)],
        workloads={"a": work("a", 10, steps=100)},
        fates={"a": Fate(hangs_at=0.3)},
    )
    world = driven(queue, "serial")
    state = world.view.states[0]
    assert (state.status, state.ended_ns, state.steps) == ("timeout", 8 * NS_PER_S, 30)
    assert state.quiet_since_ns == 3 * NS_PER_S
    assert state.cores_used == 0


def test_what_would_never_end_is_refused_by_name():
    queue = FakeQueue(jobs=[fake_job("a"), fake_job("b")], fates={"a": Fate(hangs_at=0.5)})
    plan = queue.plan("serial")
    stuck = r"these have not ended: .*a \(steps\).*b \(.*time-out"
    with pytest.raises(SimulationError, match=stuck):
        drive(Queue(**plan.policy.knobs), queue.world(plan))
    with pytest.raises(SimulationError, match="see what the policy waits for"):
        drive(Nobody(), queue.world(plan))


def test_ctrl_c_twice_stops_what_runs_and_leaves_the_rest_waiting():
    queue = FakeQueue(jobs=fake_jobs(3))
    plan = queue.plan("partitioned")
    world = queue.world(plan)

    def watch(event, view):
        if event == Tick(3 * NS_PER_S) and not view.draining:
            world.interrupt(2)

    drive(Queue(**plan.policy.knobs), world, watch=watch)
    assert [state.status for state in world.view.states] == ["waiting"] * 3
    assert [state.attempt for state in world.view.states] == [1, 1, 0]
    assert {outcome.stopped for outcome in exits(world)} == {"interrupt"}
    assert world.now_ns == 3 * NS_PER_S


def test_cancelling_reaches_running_and_waiting_jobs_and_their_followers():
    queue = FakeQueue(jobs=[fake_job("a"), fake_job("b"), fake_job("c", after=("a",))])
    plan = queue.plan("serial")
    world = queue.world(plan)

    def watch(event, view):
        if isinstance(event, Tick) and event.t == 2 * NS_PER_S:
            world.cancel(["a", "b"])
            world.cancel(["a", "b"])

    drive(Queue(**plan.policy.knobs), world, watch=watch)
    settles = [(word.job, word.status) for _, word in world.words if isinstance(word, Settle)]
    assert sorted(settles) == [(0, "cancelled"), (1, "cancelled"), (2, "cancelled")]
    assert world.view.states[2].cause == "needs a, which ended cancelled"


def test_ops_run_one_after_another_each_with_its_own_width():
    parts = work("a", 2).ops[0], work("b", 3, cores=2.0).ops[0]
    whole = work("a", 5).model_copy(update={"ops": parts})
    queue = FakeQueue(jobs=[fake_job("a", cores=2)], workloads={"a": whole})
    assert ends(driven(queue, "partitioned")) == [5]
    assert ends(driven(FakeQueue(jobs=[fake_job("a")], workloads={"a": whole}), "shared")) == [8]


def test_what_does_not_belong_together_is_refused():
    queue = FakeQueue(jobs=[fake_job("a")], fates={"z": Fate()})
    with pytest.raises(SimulationError, match="not known: 'z'"):
        queue.world(queue.plan("serial"))


def test_a_share_that_is_given_is_the_share_that_runs():
    queue = FakeQueue(jobs=[fake_job("a")], workloads={"a": work("a", 4, cores=4.0)})
    world = queue.world(queue.plan("serial"))
    while world.next() is not None:
        if world.view.states[0].queued:
            world.perform(Start(0, Share(cores=(0, 1))))
        elif world.view.states[0].outcome is not None and not world.view.states[0].final:
            world.perform(Settle(0, "ok", ""))
    assert ends(world) == [8]


def test_a_measured_pace_says_how_many_cores_its_threads_keep_busy():
    loads = known_job("job-1", {1: (10.0, 1.6), 2: (9.0, 2.0)}, start_up_s=0.0, peak_bytes=MIB)
    queue = FakeQueue(jobs=fake_jobs(1), workloads={"job-1": loads})
    assert ends(driven(queue, "shared")) == [10.0]
    assert ends(driven(queue, "partitioned")) == [16.0]
    assert not [word for _, word in driven(queue, "shared").words if isinstance(word, Reshare)]
