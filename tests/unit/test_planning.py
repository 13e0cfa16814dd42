"""From jobs and a machine to a plan, with what is known and within bounded work."""

import pytest

from headway.core import catalogue
from headway.core.errors import DoesNotFit
from headway.core.units import NS_PER_S
from headway.planners.queue import Queue
from headway.planning import MOST_PLANNED, PLANNED_AHEAD, expected_of, plan_of, replanner
from headway.probes.profiles import ProfileStore
from headway.sim.drive import drive
from headway.testing.machines import fake_machine
from headway.testing.profiles import past_attempt
from headway.testing.queues import FakeQueue, fake_job, fake_jobs


@pytest.fixture
def store(tmp_path):
    with ProfileStore.open(tmp_path / "headway") as opened:
        yield opened


def test_nothing_known_is_tried_and_said(store):
    planned = plan_of(fake_jobs(3), fake_machine(), store=store, environment={})
    assert planned.plan.mode == "partitioned"
    assert planned.plan.reason.startswith("to be learnt")
    assert planned.plan.policy.knobs["learns"]
    assert len(planned.forecasts) == 1


def test_what_a_run_learnt_is_known_to_the_next(store):
    queue = FakeQueue(jobs=fake_jobs(4))
    with store.learner(queue.machine, environment={}) as learner:
        world = queue.world(queue.plan("partitioned"))
        drive(Queue(slots=2, pin=True), world, watch=learner.watch)
    planned = plan_of(queue.jobs, queue.machine, store=store, environment={})
    modes = [one.plan.mode for one in planned.forecasts]
    assert sorted(modes) == ["naive", "partitioned", "serial", "shared"]
    assert planned.choice.chosen.makespan.known
    assert modes[0] == planned.plan.mode
    makespans = [one.makespan.value for one in planned.forecasts[1:]]
    assert makespans == sorted(makespans)


def test_who_is_known_is_predicted_beside_who_is_not(store):
    queue = FakeQueue(jobs=fake_jobs(2))
    with store.learner(queue.machine, environment={}) as learner:
        world = queue.world(queue.plan("partitioned"))
        drive(Queue(slots=2, pin=True), world, watch=learner.watch)
    jobs = [*queue.jobs, fake_job("stranger")]
    planned = plan_of(jobs, queue.machine, store=store, environment={})
    assert not planned.choice.chosen.makespan.known
    first, second, stranger = planned.expected.jobs
    assert first.duration.value == second.duration.value == pytest.approx(11, rel=0.01)
    assert stranger.duration is None
    fixed = queue.plan("serial").model_copy(update={"placements": planned.plan.placements})
    given = expected_of(fixed, jobs, queue.machine, store=store, environment={})
    assert given.jobs[0].duration is not None


def test_a_job_whose_memory_was_never_seen_can_be_planned(store):
    job = fake_job("a")
    store.learn([past_attempt(job, fake_machine(), ended_ns=1, peak_bytes=None)] * 2)
    planned = plan_of([job], fake_machine(), store=store, environment={})
    assert planned.choice.chosen.makespan.known
    assert not planned.choice.chosen.peak_bytes.known


def test_a_long_list_is_not_looked_into(store):
    planned = plan_of(fake_jobs(MOST_PLANNED + 1), fake_machine(), store=store, environment={})
    assert planned.plan.reason == f"not planned: more than {MOST_PLANNED:,} jobs"
    assert not planned.plan.policy.knobs.get("learns")


def test_named_devices_are_judged_by_slices(store):
    slices = ("4g.20gb", "2g.10gb", "2g.10gb")
    jobs = [
        fake_job(f"big-{i}", group="big", gpus=1, devices=(0,), collocation=profile)
        for i, profile in enumerate(slices)
    ]
    machine = catalogue.machine("a100-40gb")
    with pytest.raises(DoesNotFit, match="needs 8 of 7 compute slices"):
        plan_of(jobs, machine, store=store, environment={})
    small = fake_job("small", gpus=1, devices=(0,), collocation="1g.5gb")
    planned = plan_of([*jobs, small], machine, store=store, environment={})
    statuses = [job.status for job in planned.choice.chosen.jobs]
    assert statuses == ["infeasible", "infeasible", "infeasible", "waiting"]


def test_a_run_is_planned_again_with_what_it_learnt_and_not_for_too_long(store):
    queue = FakeQueue(jobs=fake_jobs(6))
    now = [0.0]

    def clock():
        now[0] += 0.5
        return now[0]

    planned = plan_of(queue.jobs, queue.machine, store=store, environment={})
    asked = []
    with store.learner(queue.machine, environment={}) as learner:
        replan = replanner(
            queue.jobs,
            queue.machine,
            store=store,
            environment={},
            learn=learner.flush,
            clock=clock,
        )
        world = queue.world(planned.plan)

        def spied(view):
            placements = replan(view)
            asked.append(placements)
            return placements

        drive(Queue(**planned.plan.policy.knobs), world, watch=learner.watch, replan=spied)
    assert all(state.status == "ok" for state in world.view.states)
    first, *later = asked
    # What is known has its place in the plan; who was started before any of it was known has none.
    assert sorted(first) == [2, 3, 4, 5]
    # By the clock above each planning takes half of the time there is: one in fifty is allowed.
    assert later == [{}] * len(later)
    assert world.makespan_ns == 3 * 11 * NS_PER_S


def test_the_next_ones_are_planned_again_and_stay_the_next_ones(store):
    queue = FakeQueue(jobs=fake_jobs(PLANNED_AHEAD + 10))
    with store.learner(queue.machine, environment={}) as learner:
        world = queue.world(queue.plan("partitioned"))
        drive(Queue(slots=2, pin=True), world, watch=learner.watch)
    view = queue.world(queue.plan("partitioned")).view
    for index in view.arrivals():
        view.arrive(index)
    placements = replanner(queue.jobs, queue.machine, store=store, environment={})(view)
    assert sorted(placements) == list(range(PLANNED_AHEAD))
    view.replan(placements)
    assert sorted(view.waiting[:PLANNED_AHEAD]) == list(range(PLANNED_AHEAD))
    assert view.waiting[PLANNED_AHEAD:] == list(range(PLANNED_AHEAD, PLANNED_AHEAD + 10))
