import random

import pytest

from headway.core.plan import MODES
from headway.planners.collocation import fixed_plan, loose_plans, mixed_plan, near_plan
from headway.testing.machines import fake_machine
from headway.testing.queues import fake_job, fake_jobs, known_job


def placement(mode="partitioned", *, cores=4, keep_threads=False, environment=None, **asked):
    plan = fixed_plan(
        [fake_job("a", **asked)],
        fake_machine(cores=cores),
        mode=mode,
        keep_threads=keep_threads,
        environment=environment or {},
    )
    return plan.placements[0]


@pytest.mark.parametrize(
    ("mode", "knobs"),
    [
        ("serial", {"slots": 1, "pin": False, "admit": True}),
        ("naive", {"slots": None, "pin": False, "admit": False}),
        ("shared", {"slots": 4, "pin": False, "admit": True}),
        ("partitioned", {"slots": 4, "pin": True, "admit": True}),
    ],
)
def test_the_four_modes_are_one_policy_with_other_knobs(mode, knobs):
    plan = fixed_plan([fake_job("a")], fake_machine(cores=4), mode=mode, environment={})
    assert (plan.policy.name, plan.policy.knobs) == ("queue", knobs)
    assert plan.reason


def test_threads_are_divided_one_a_job():
    assert placement("partitioned").threads == placement("shared").threads == 1
    assert placement("partitioned").cores == 1


@pytest.mark.parametrize("mode", ["serial", "naive"])
def test_serial_and_naive_leave_the_environment_as_it_is(mode):
    assert placement(mode).threads is None
    assert placement(mode, threads=3).threads == 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "asked",
    [
        {"environment": {"OMP_NUM_THREADS": "2"}},
        {"env": (("OMP_NUM_THREADS", "2"),)},
        {"command": "OMP_NUM_THREADS=2 python train.py"},
        {"command": 'NOTE="two words" OMP_NUM_THREADS="2" python train.py'},
        {"command": "env OMP_NUM_THREADS=2 python train.py"},
        {"command": "export OMP_NUM_THREADS=2; python train.py"},
        {"environment": {"MKL_NUM_THREADS": "2"}},
        {"environment": {"OMP_NUM_THREADS": "2,1"}},
    ],
)
def test_a_count_that_the_user_set_is_never_overridden(mode, asked):
    placed = placement(mode, **asked)
    assert placed.threads is None
    if mode in ("shared", "partitioned"):
        assert placed.cores == 2, "and it counts for the room it takes"


def test_threads_of_the_job_file_pin_the_count_against_everything():
    placed = placement(threads=3, environment={"OMP_NUM_THREADS": "2"}, keep_threads=True)
    assert (placed.threads, placed.cores) == (3, 3)


def test_more_threads_than_cores_are_written_as_asked():
    placed = placement(threads=8, cores=2)
    assert (placed.threads, placed.cores) == (8, 2)


def test_keep_threads_gives_all_cores_to_who_would_take_them():
    placed = placement(keep_threads=True)
    assert (placed.threads, placed.cores) == (None, 4)
    asked = placement(keep_threads=True, environment={"OMP_NUM_THREADS": "2"})
    assert (asked.threads, asked.cores) == (None, 2)


def test_cores_asked_for_are_threads_too():
    plan = fixed_plan(
        [fake_job("a", cores=3)], fake_machine(cores=4), mode="partitioned", environment={}
    )
    assert (plan.placements[0].threads, plan.placements[0].cores) == (3, 3)


def test_alone_takes_all_cores():
    plan = fixed_plan(
        [fake_job("a", mode="alone")], fake_machine(cores=4), mode="partitioned", environment={}
    )
    placed = plan.placements[0]
    assert (placed.alone, placed.cores, placed.threads) == (True, 4, 4)


@pytest.mark.parametrize(("mode", "cap"), [(m, m == "partitioned") for m in MODES])
def test_only_partitioned_makes_declared_memory_a_cap(mode, cap):
    assert placement(mode, memory_bytes=2**30).cap_memory is cap
    assert placement(mode).cap_memory is False


def mixed_of(*paces, cores=2, **asked):
    """The mixed plan of jobs with these paces, and what it was made from."""
    jobs, machine = fake_jobs(len(paces), **asked), fake_machine(cores=cores)
    workloads = [
        known_job(job.name, pace, start_up_s=1.0, peak_bytes=10**8)
        for job, pace in zip(jobs, paces, strict=True)
    ]
    return mixed_plan(jobs, machine, workloads, environment={}), machine, workloads


PLAIN = {1: (10.0, 1.0), 2: (9.0, 2.0)}
LOADS = {1: (10.0, 1.8), 2: (11.0, 2.0)}
WAITS = {1: (10.0, 0.5), 2: (9.0, 1.0)}


def test_a_job_that_loads_beside_its_thread_is_given_cores_for_both():
    plan, _, _ = mixed_of(LOADS)
    assert [(each.cores, each.threads) for each in plan.placements] == [(2, 1)]


def test_what_a_second_core_is_worth_decides_and_no_idle_one_is_taken_beyond_it():
    plan, _, _ = mixed_of(PLAIN, PLAIN)
    assert [(each.cores, each.most_cores) for each in plan.placements] == [(1, 1), (1, 1)]


def test_jobs_that_keep_their_cores_busy_have_cores_of_their_own():
    assert not list(loose_plans(*mixed_of(PLAIN, PLAIN)))


@pytest.mark.parametrize("other", [LOADS, WAITS])
def test_jobs_that_leave_cores_or_want_more_are_also_tried_free_to_move(other):
    plans = list(loose_plans(*mixed_of(PLAIN, other, PLAIN)))
    assert {plan.policy.knobs["extra"] for plan in plans} == {0, 1}
    assert not any(plan.policy.knobs["pin"] or plan.policy.knobs["learns"] for plan in plans)
    one_each = plans[-1]
    assert [each.threads for each in one_each.placements] == [1, 1, 1]
    assert one_each.mode == "shared"


def test_a_near_plan_keeps_every_job_and_every_place():
    mixed, machine, workloads = mixed_of(PLAIN, WAITS, PLAIN, LOADS)
    plan, source = next(loose_plans(mixed, machine, workloads)), random.Random(3)
    seen = set()
    for _ in range(50):
        near = near_plan(plan, cores=2, source=source)
        assert [each.job for each in near.placements] == [each.job for each in plan.placements]
        assert sorted(p.rank for p in near.placements) == sorted(p.rank for p in plan.placements)
        assert all(1 <= each.threads <= 2 for each in near.placements)
        seen.add((near.policy.knobs["extra"], *((p.rank, p.threads) for p in near.placements)))
    assert len(seen) > 5


def test_threads_of_the_user_stay_in_every_near_plan():
    mixed, machine, workloads = mixed_of(WAITS, WAITS, WAITS, threads=1)
    for plan in loose_plans(mixed, machine, workloads):
        near = near_plan(plan, cores=2, source=random.Random(0))
        assert [each.threads for each in near.placements] == [1, 1, 1]
