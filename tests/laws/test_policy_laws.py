"""Laws of every queue policy, on random queues in the simulated world."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.holdings import Elsewhere, Hold, Reservation
from headway.core.plan import MODES, PolicyChoice
from headway.core.units import GIB, MIB, NS_PER_S
from headway.core.words import FINAL, Exited, Settle, Start
from headway.core.workload import Workload
from headway.planners.queue import Queue
from headway.sim.attempt import Fate
from headway.sim.drive import drive
from headway.testing.conformance import CheckedPolicy, check_policy, policies
from headway.testing.machines import fake_device, fake_machine
from headway.testing.queues import FakeQueue, fake_job

MODE_NAMES = list(MODES)


@st.composite
def machines(draw, *, devices=True, foreign=True):
    return fake_machine(
        cores=draw(st.integers(1, 4)),
        memory_bytes=draw(st.sampled_from([1, 2, 8])) * GIB,
        foreign_bytes=draw(st.sampled_from([0, 0, GIB // 2])) if foreign else 0,
        devices=[
            fake_device(index, used_bytes=used, users=users)
            for index, (used, users) in enumerate(
                draw(
                    st.lists(
                        st.sampled_from([(0, ()), (0, ()), (0, ("unknown",)), (None, ())]),
                        max_size=3,
                    )
                )
            )
        ]
        if devices
        else [],
    )


@st.composite
def fates(draw):
    return Fate(
        fails=draw(st.sampled_from([0, 0, 0, 1, 2])),
        lost=draw(st.sampled_from([0, 0, 0, 0, 1])),
        ends_at=draw(st.sampled_from([0.0, 0.3, 1.0])),
        needs_bytes=draw(st.sampled_from([None, GIB // 8, GIB // 2, 900 * MIB, 3 * GIB])),
        grown_at=draw(st.sampled_from([0.05, 0.7])),
        threads=draw(st.sampled_from([None, None, None, 2, 4])),
    )


@st.composite
def queues(draw, *, most=8):
    jobs, workloads, chosen = [], {}, {}
    machine = draw(machines())
    most_cores, most_gpus = machine.usable_cores, min(1, len(machine.devices))
    count = draw(st.integers(most // 2, most))
    groups = draw(
        st.lists(st.sampled_from([None, None, None, "g", "h"]), min_size=count, max_size=count)
    )
    modes = {group: draw(st.sampled_from(["shared", "shared", "alone"])) for group in ("g", "h")}
    for index in range(count):
        name, group = f"job-{index}", groups[index]
        # Members of a group have no predecessors here but those before the first of any group:
        # job files in which a group would wait for itself are refused when they are read.
        first = next((place for place, other in enumerate(groups) if other), count)
        reach = index if group is None and index < first else min(index, first)
        after = draw(st.lists(st.integers(0, reach - 1), max_size=2, unique=True)) if reach else []
        asked = {
            "command": f"python {draw(st.sampled_from(['a.py', 'b.py']))} {index}",
            "memory_bytes": draw(st.sampled_from([None, None, GIB // 4, GIB // 2])),
            "cores": draw(st.sampled_from([None, None, 1, most_cores])),
            "gpus": draw(st.sampled_from([None, None, None, most_gpus])),
            "retries": draw(st.sampled_from([0, 0, 1, 3])),
            "timeout_s": draw(st.sampled_from([None, None, None, 4.0])),
            "mode": modes[group] if group else draw(st.sampled_from(["shared"] * 5 + ["alone"])),
            "group": group,
            "priority": draw(st.sampled_from([0, 0, 0, -1, 2])),
            "after": tuple(f"job-{other}" for other in after),
        }
        if draw(st.integers(0, 11)) == 11:
            # Cannot be placed on most machines.
            asked |= draw(st.sampled_from([{"memory_bytes": 9 * GIB}, {"cores": 4}, {"gpus": 2}]))
        fate = draw(fates())
        if draw(st.sampled_from([False] * 9 + [True])):
            fate = Fate(hangs_at=0.5)
            asked["stall_timeout_s"] = 5.0
        jobs.append(fake_job(name, **asked))
        chosen[name] = fate
        workloads[name] = Workload.opaque(
            name,
            work_ns=draw(st.integers(0, 12)) * NS_PER_S // 2,
            start_up_ns=draw(st.sampled_from([0, NS_PER_S, 2_700_000_000])),
            cores=draw(st.sampled_from([0.5, 1.0, 1.0, 2.0, 4.0])),
            peak_bytes=draw(st.sampled_from([0, 10**7, 10**8, GIB // 2])),
            steps=draw(st.sampled_from([None, 0, 10, 1000])),
        )
    return FakeQueue(jobs=jobs, machine=machine, workloads=workloads, fates=chosen)


def others_leave(event, view):
    """After a minute nobody else holds memory of the machine any more."""
    if event.t > 60 * NS_PER_S:
        view.foreign_bytes = 0


@st.composite
def other_runs(draw):
    """What another run holds, for any machine."""
    cores = draw(st.sets(st.integers(0, 3), max_size=3))
    unnamed = draw(st.integers(0, 2))
    devices = draw(st.sampled_from([(), ("GPU-00000000",)]))
    pinned = Hold(
        job=1,
        attempt=1,
        cores=tuple(sorted(cores)),
        slots=len(cores) + unnamed,
        reserved_bytes=draw(st.sampled_from([0, GIB // 4, 3 * GIB])),
        devices=devices,
    )
    return Reservation(
        run="/x/other",
        supervisor=(1, 1),
        cores=(0, 1, 2, 3),
        jobs=(pinned,),
        wants=draw(st.integers(0, 2)),
        served_ns=draw(st.sampled_from([0, 5, 50])) * NS_PER_S,
    )


def starts_of(world):
    return [(t, word.job) for t, word in world.words if isinstance(word, Start)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODE_NAMES)
@settings(max_examples=80, deadline=None)
@given(queue=queues())
def test_every_mode_brings_every_job_to_its_last_word(mode, queue):
    plan = queue.plan(mode)
    world = check_policy(Queue(**plan.policy.knobs), plan, queue, watch=others_leave)
    view = world.view
    assert all(state.status in FINAL for state in view.states)
    began, ended = {}, {}
    for t, word in world.words:
        if isinstance(word, Start):
            began.setdefault(word.job, t)
        elif isinstance(word, Settle):
            ended[word.job] = t
    for state in view.states:
        names = [view.by_name[name] for name in state.job.after]
        if state.attempt:
            assert all(view.states[other].status == "ok" for other in names)
            assert all(ended[other] <= began[state.index] for other in names)
        elif any(view.states[other].status != "ok" for other in names):
            assert state.status in ("cancelled", "infeasible")
            assert state.cause
        if state.status == "infeasible":
            assert state.attempt == 0
            assert state.cause
        assert state.attempt <= 1 + state.retries + state.oom_retries + state.stops
    for members in view.groups.values():
        firsts = {began[index] for index in members if index in began}
        assert len(firsts) <= 1, "a group starts at one instant"


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(policies()), ids=lambda kind: kind.__name__)
@settings(max_examples=60, deadline=None)
@given(queue=queues(most=5), mode=st.sampled_from(MODE_NAMES))
def test_every_policy_keeps_the_rules_with_its_own_knobs(kind, queue, mode):
    check_policy(kind(), queue.plan(mode), queue, watch=others_leave)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODE_NAMES)
@settings(max_examples=60, deadline=None)
@given(queue=queues(most=5), others=st.lists(other_runs(), min_size=1, max_size=4))
def test_other_runs_come_and_go(mode, queue, others):
    """Every answer keeps off what they hold, and once they are gone every job has its turn."""
    plan = queue.plan(mode)

    def watch(event, view):
        others_leave(event, view)
        turn = event.t // (7 * NS_PER_S)
        runs = [others[turn % len(others)]] if event.t <= 60 * NS_PER_S else []
        view.see_elsewhere(Elsewhere.of(runs, cores=view.machine.host.cores))

    world = check_policy(Queue(**plan.policy.knobs), plan, queue, watch=watch)
    assert all(state.status in FINAL for state in world.view.states)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(queue=queues(most=5))
def test_naive_starts_everything_at_once(queue):
    plain = [
        job.model_copy(
            update={
                "after": (),
                "group": None,
                "mode": "shared",
                "gpus": None,
                "memory_bytes": None,
            }
            | {"cores": None, "retries": 0}
        )
        for job in queue.jobs
    ]
    queue = FakeQueue(jobs=plain, machine=queue.machine, workloads=queue.workloads)
    plan = queue.plan("naive")
    world = check_policy(Queue(**plan.policy.knobs), plan, queue, watch=others_leave)
    first = {}
    for t, job in starts_of(world):
        first.setdefault(job, t)
    assert set(first.values()) == {0}
    assert len(first) == len(plain)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    works=st.lists(st.integers(0, 20), min_size=1, max_size=12),
    start_up=st.integers(0, 3),
    cores=st.integers(1, 4),
)
def test_partitioned_is_never_slower_than_serial_for_one_thread_jobs(works, start_up, cores):
    jobs = [fake_job(f"job-{index}") for index in range(len(works))]
    workloads = {
        job.name: Workload.opaque(
            job.name,
            work_ns=work * NS_PER_S // 2,
            start_up_ns=start_up * NS_PER_S,
            peak_bytes=10**6,
        )
        for job, work in zip(jobs, works, strict=True)
    }
    queue = FakeQueue(jobs=jobs, machine=fake_machine(cores=cores), workloads=workloads)
    spans = {}
    for mode in ("serial", "partitioned"):
        plan = queue.plan(mode)
        world = check_policy(Queue(**plan.policy.knobs), plan, queue)
        spans[mode] = world.makespan_ns
    assert spans["serial"] == sum(works) * NS_PER_S // 2 + start_up * len(works) * NS_PER_S
    assert spans["partitioned"] <= spans["serial"]
    # Greedy on n cores: Graham's bound.
    longest = max(works) * NS_PER_S // 2 + start_up * NS_PER_S
    assert spans["partitioned"] <= spans["serial"] / cores + longest


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    works=st.lists(st.integers(1, 20), min_size=4, max_size=40),
    place=st.integers(0, 3),
    patience=st.integers(0, 6),
    kind=st.sampled_from(["wide", "alone"]),
    cores=st.integers(2, 4),
)
def test_who_needs_much_is_overtaken_by_patience_jobs_at_most(works, place, patience, kind, cores):
    asked = {"cores": cores} if kind == "wide" else {"mode": "alone"}
    jobs = [
        fake_job(f"job-{index}", **(asked if index == place else {})) for index in range(len(works))
    ]
    workloads = {
        job.name: Workload.opaque(job.name, work_ns=work * NS_PER_S // 4, peak_bytes=10**6)
        for job, work in zip(jobs, works, strict=True)
    }
    queue = FakeQueue(jobs=jobs, machine=fake_machine(cores=cores), workloads=workloads)
    plan = queue.plan("partitioned")
    world = check_policy(Queue(**plan.policy.knobs, patience=patience), plan, queue)
    order = [job for _, job in starts_of(world)]
    overtakers = [job for job in order[: order.index(place)] if job > place]
    assert len(overtakers) <= patience


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    priorities=st.lists(st.integers(-2, 2), min_size=1, max_size=12),
    works=st.lists(st.integers(0, 8), min_size=12, max_size=12),
    mode=st.sampled_from(MODE_NAMES),
    cores=st.integers(1, 3),
)
def test_equal_jobs_start_by_priority_and_then_as_the_file_has_them(priorities, works, mode, cores):
    jobs = [fake_job(f"job-{index}", priority=p) for index, p in enumerate(priorities)]
    workloads = {
        job.name: Workload.opaque(job.name, work_ns=work * NS_PER_S, peak_bytes=10**6)
        for job, work in zip(jobs, works, strict=False)
    }
    queue = FakeQueue(jobs=jobs, machine=fake_machine(cores=cores), workloads=workloads)
    plan = queue.plan(mode)
    world = check_policy(Queue(**plan.policy.knobs), plan, queue)
    order = [job for _, job in starts_of(world)]
    assert order == sorted(range(len(jobs)), key=lambda index: (-priorities[index], index))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(queue=queues(most=6), mode=st.sampled_from(MODE_NAMES), cut=st.integers(0, 40))
def test_memory_that_went_through_the_journal_decides_the_same(queue, mode, cut):
    """CheckedPolicy asks with restored memory at every event; here all that follows is compared."""

    class Restored(CheckedPolicy):
        def decide(self, memory, event, view):
            return self.policy.decide(json.loads(json.dumps(memory)), event, view)

    plan = queue.plan(mode)
    policy = Queue(**plan.policy.knobs)
    plain, restored = queue.world(plan), queue.world(plan)
    drive(policy, plain, watch=others_leave)
    drive(Restored(policy=policy), restored, watch=others_leave)
    assert plain.words == restored.words


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(queue=queues(most=6), mode=st.sampled_from(MODE_NAMES), after=st.integers(0, 30))
def test_draining_lets_what_runs_end_and_starts_nothing(queue, mode, after):
    plan = queue.plan(mode)
    world = queue.world(plan)
    told = []

    def watch(event, view):
        others_leave(event, view)
        told.append(event)
        if len(told) == after + 1:
            world.interrupt(1)

    drive(CheckedPolicy(policy=Queue(**plan.policy.knobs)), world, watch=watch)
    assert not world.view.running
    place = len(told) if len(told) <= after else None
    if place is None:
        last_start = max((t for t, _ in starts_of(world)), default=0)
        assert last_start <= told[after].t


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(queue=queues(most=6), mode=st.sampled_from(MODE_NAMES), data=st.data())
def test_cancelled_jobs_are_settled_once_and_stay_cancelled(queue, mode, data):
    plan = queue.plan(mode)
    world = queue.world(plan)
    victim = data.draw(st.sampled_from([job.name for job in queue.jobs]))
    when = data.draw(st.integers(0, 20))
    told = []

    def watch(event, view):
        others_leave(event, view)
        told.append(event)
        if len(told) == when:
            world.cancel([victim])

    drive(CheckedPolicy(policy=Queue(**plan.policy.knobs)), world, watch=watch)
    settles = [word.job for _, word in world.words if isinstance(word, Settle)]
    assert sorted(settles) == list(range(len(queue.jobs)))
    exits = [word for _, word in world.words if isinstance(word, Exited)]
    index = world.view.by_name[victim]
    if any(word.outcome.stopped == "cancel" for word in exits):
        assert world.view.states[index].status == "cancelled"


@pytest.mark.parametrize("mode", MODE_NAMES)
def test_fixed_plans_name_a_policy_of_the_table(mode):
    plan = FakeQueue(jobs=[fake_job("a")]).plan(mode)
    assert isinstance(plan.policy, PolicyChoice)
    assert Queue.model_validate(plan.policy.knobs).slots == plan.policy.knobs["slots"]
