"""What jobs do to each other: measured in a run, kept, and heeded by the next plan and this one."""

from itertools import pairwise

import pytest

from headway.core.units import NS_PER_S
from headway.core.workload import Workload
from headway.forecast.neighbours import Neighbours
from headway.planners.queue import Queue
from headway.planning import coefficients_of, plan_of, replanner
from headway.probes.profiles import ProfileStore
from headway.sim.drive import drive
from headway.sim.world import SimulatedWorld
from headway.testing.machines import fake_machine
from headway.testing.queues import FakeQueue, fake_jobs


@pytest.fixture
def store(tmp_path):
    with ProfileStore.open(tmp_path / "headway") as opened:
        yield opened


def carried_out(store, jobs, plan, *, beside, machine, before=(), seconds=20, again=False):
    """Run a list in a world where each goes at the speed `beside` when another steps too."""

    def together(attempts):
        stepping = sum(not attempt.start_up for attempt in attempts)
        return [beside if stepping > 1 and not attempt.start_up else 1.0 for attempt in attempts]

    workloads = [
        Workload.opaque(job.name, work_ns=seconds * NS_PER_S, start_up_ns=NS_PER_S, steps=200)
        for job in jobs
    ]
    world = SimulatedWorld(jobs, plan.placements, machine, workloads, together=together)
    neighbours = Neighbours(jobs, machine, before=before, keep=store.learn_pairs)
    with store.learner(machine, environment={}, stretch_of=neighbours.stretch_of) as learner:

        def watch(event, view):
            neighbours.watch(event, view)
            learner.watch(event, view)

        def learn():
            learner.flush()
            neighbours.learn(now_ns=world.view.t)

        replan = replanner(jobs, machine, store=store, environment={}, learn=learn)
        policy = Queue(**plan.policy.knobs)
        drive(policy, world, watch=watch, replan=replan if again else None)
        learn()
    return world


def known_alone(store, jobs, machine):
    """Let the store know each job alone with one thread and with two."""
    queue = FakeQueue(jobs=jobs, machine=machine)
    for threads in (1, 2):
        placements = [
            placement.model_copy(update={"cores": 2, "threads": threads, "alone": True})
            for placement in queue.plan("partitioned").placements
        ]
        plan = queue.plan("partitioned").model_copy(update={"placements": tuple(placements)})
        carried_out(store, jobs, plan, beside=1.0, machine=machine)
    return store.recall(jobs, machine, environment={}).workloads


def test_what_neighbours_cost_is_measured_against_the_time_alone(store):
    machine, jobs = fake_machine(cores=2), fake_jobs(2)
    before = known_alone(store, jobs, machine)
    assert all(workload.known for workload in before)
    plan = FakeQueue(jobs=jobs, machine=machine).plan("partitioned")
    carried_out(store, jobs, plan, beside=0.6, machine=machine, before=before)
    script = jobs[0].script
    assert coefficients_of(jobs, machine, store).pairs[0].ratio == pytest.approx(0.6, rel=0.05)
    assert coefficients_of(jobs, machine, store).value(script, script) < 0.7


def test_nothing_is_said_of_neighbours_where_nobody_was_alone(store):
    machine, jobs = fake_machine(cores=2), fake_jobs(2)
    plan = FakeQueue(jobs=jobs, machine=machine).plan("partitioned")
    carried_out(store, jobs, plan, beside=0.6, machine=machine)
    assert coefficients_of(jobs, machine, store).pairs == ()


def test_steps_alone_in_this_run_tell_how_far_neighbours_stretched_it(store):
    machine, jobs = fake_machine(cores=2), fake_jobs(2)
    plan = FakeQueue(jobs=jobs, machine=machine).plan("partitioned")
    world = carried_out(store, jobs, plan, beside=0.5, machine=machine)
    assert world.makespan_ns > 30 * NS_PER_S
    recalled = store.recall(jobs, machine, environment={})
    # Both were slowed down by each other all the time: nobody can say from what.
    assert recalled.workloads[0].duration.value > 30


def test_a_plan_heeds_what_was_learnt_of_pairs(store):
    machine, jobs = fake_machine(cores=2), fake_jobs(4)
    before = known_alone(store, jobs, machine)
    assert plan_of(jobs, machine, store=store, environment={}).plan.mode != "serial"
    pair = FakeQueue(jobs=jobs[:2], machine=machine).plan("partitioned")
    carried_out(store, jobs[:2], pair, beside=0.4, machine=machine, before=before[:2])
    assert plan_of(jobs, machine, store=store, environment={}).plan.mode == "serial"


def test_a_pairing_that_loses_is_undone_in_the_same_run(store):
    machine, jobs = fake_machine(cores=2), fake_jobs(8)
    before = known_alone(store, jobs, machine)
    plan = plan_of(jobs, machine, store=store, environment={}).plan
    assert plan.mode == "partitioned"
    world = carried_out(store, jobs, plan, beside=0.4, machine=machine, before=before, again=True)
    assert all(state.status == "ok" for state in world.view.states)
    spans = sorted((state.started_ns, state.ended_ns) for state in world.view.states)
    together = [one for one, other in pairwise(spans) if other[0] < one[1]]
    # Only those that ran when it was learnt: the others are one after another.
    assert 1 <= len(together) <= 3
    apart_s = sum(end - begin for begin, end in spans[4:]) / NS_PER_S
    assert apart_s == pytest.approx(4 * 21, rel=0.05)
