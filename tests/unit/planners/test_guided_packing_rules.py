import pytest

from headway.core.estimate import Estimate
from headway.core.plan import Plan
from headway.core.units import GIB, MIB, NS_PER_S
from headway.core.words import Exited, Start, Wait
from headway.core.workload import Workload
from headway.planners.guided_packing import GuidedPacking, packed_plan
from headway.sim.attempt import Fate
from headway.testing.conformance import check_policy
from headway.testing.machines import fake_device, fake_machine
from headway.testing.queues import FakeQueue, fake_job, fake_jobs

CONTEXT = GuidedPacking().context_bytes


def work(name, *, gib=None, part=None, seconds=10, **more):
    return Workload.opaque(
        name,
        work_ns=seconds * NS_PER_S,
        start_up_ns=NS_PER_S,
        peak_bytes=10**8,
        device_bytes=None if gib is None else int(gib * GIB),
        device_part=part,
        **more,
    )


def machine(*gib, cores=16, **more):
    devices = [fake_device(i, memory_bytes=int(size * GIB)) for i, size in enumerate(gib)]
    return fake_machine(cores=cores, memory_bytes=64 * GIB, devices=devices, **more)


def ran(jobs, workloads, *, on, policy=None, fates=None, known=True):
    """The world after all jobs, every answer checked; `known`: the needs are in the placements."""
    policy = policy or GuidedPacking()
    queue = FakeQueue(
        jobs=jobs,
        machine=on,
        workloads={one.job: one for one in workloads},
        fates=fates or {},
    )
    plan = queue.plan("shared")
    plan = packed_plan(plan, workloads, policy) if known else plan
    return check_policy(policy, plan, queue)


def devices_at(world, t=0):
    return {w.job: w.share.devices for at, w in world.words if isinstance(w, Start) and at == t}


def reasons(world, job):
    return [w.reason for _, w in world.words if isinstance(w, Wait) and w.job == job]


# --- memory ---------------------------------------------------------------------------------------


def test_jobs_are_counted_with_margin_and_context():
    jobs = fake_jobs(3, gpus=1)
    workloads = [work(job.name, gib=4, part=0.1) for job in jobs]
    world = ran(jobs, workloads, on=machine(10.5))
    share = next(w.share for _, w in world.words if isinstance(w, Start))
    assert share.device_bytes == int(4 * GIB * 1.1) + 1 + CONTEXT
    assert devices_at(world) == {0: (0,), 1: (0,)}
    assert reasons(world, 2) == ["waits for 1 GPU with 5.0 GiB left, and not kept busy by others"]


def test_what_is_declared_counts_where_it_is_more_than_what_was_predicted():
    jobs = fake_jobs(2, gpus=1, gpu_memory_bytes=8 * GIB)
    world = ran(jobs, [work(job.name, gib=1, part=0.1) for job in jobs], on=machine(16))
    assert devices_at(world) == {0: (0,)}


def test_a_declared_need_is_enough_to_share_a_device():
    jobs = fake_jobs(2, gpus=1, gpu_memory_bytes=2 * GIB)
    world = ran(jobs, [work(job.name, gib=2) for job in jobs], on=machine(16), known=False)
    # Of their demand nothing is known: each counts as all of the device, so the second has to wait.
    assert devices_at(world) == {0: (0,)}
    unlimited = GuidedPacking(full_load=None)
    world = ran(
        jobs, [work(j.name, gib=2) for j in jobs], on=machine(16), known=False, policy=unlimited
    )
    assert devices_at(world) == {0: (0,), 1: (0,)}


def test_a_job_of_unknown_need_gets_a_device_to_itself():
    jobs = fake_jobs(3, gpus=1)
    workloads = [work(jobs[0].name), *(work(job.name, gib=1, part=0.1) for job in jobs[1:])]
    world = ran(jobs, workloads, on=machine(16, 16))
    assert devices_at(world) == {0: (0,), 1: (1,), 2: (1,)}
    first = next(w.share for _, w in world.words if isinstance(w, Start))
    assert first.device_bytes is None


def test_a_job_that_fits_only_without_its_margin_gets_the_device_to_itself():
    jobs = fake_jobs(2, gpus=1)
    workloads = [work(jobs[0].name, gib=15, part=0.1), work(jobs[1].name, gib=0.1, part=0.1)]
    world = ran(jobs, workloads, on=machine(16))
    assert devices_at(world) == {0: (0,)}
    assert all(state.status == "ok" for state in world.view.states)


@pytest.mark.parametrize(
    ("asked", "gib", "words"),
    [
        (
            {"gpus": 1},
            16,
            "is predicted to need 1 GPU with 16.6 GiB each, its context included; the largest here "
            "has 16.0 GiB; lower the batch",
        ),
        ({"gpus": 3}, 1, "needs 3 GPUs, 2 are visible here"),
        ({"gpu_memory_bytes": 20 * GIB}, 1, "needs 1 GPU with 20.0 GiB each, 0 of 2 have that"),
    ],
)
def test_a_job_that_fits_no_device_is_infeasible_in_words(asked, gib, words):
    job = fake_job("a", **asked)
    world = ran([job], [work("a", gib=gib, part=0.1)], on=machine(16, 16))
    state = world.view.states[0]
    assert state.status == "infeasible"
    assert state.cause.startswith(words)


def test_a_device_on_which_a_job_fits_only_without_its_margin_is_left_to_others():
    jobs = fake_jobs(2, gpus=1)
    workloads = [work(jobs[0].name, gib=7, part=0.1), work(jobs[1].name, gib=2, part=0.1)]
    assert devices_at(ran(jobs, workloads, on=machine(8, 16))) == {0: (1,), 1: (0,)}


def test_a_job_that_asks_for_memory_of_a_gpu_alone_shares_one():
    jobs = fake_jobs(2, gpu_memory_bytes=2 * GIB)
    world = ran(jobs, [work(job.name, gib=1, part=0.3) for job in jobs], on=machine(16))
    assert devices_at(world) == {0: (0,), 1: (0,)}


def test_a_prediction_is_taken_at_its_high_bound():
    memory = Estimate(
        value=2 * GIB, low=GIB, high=7 * GIB, unit="bytes", origin="modelled", source="x"
    )
    jobs = fake_jobs(2, gpus=1)
    workloads = [
        work(job.name, gib=2, part=0.1).model_copy(update={"device_bytes": memory}) for job in jobs
    ]
    assert devices_at(ran(jobs, workloads, on=machine(16))) == {0: (0,)}


# --- who shares with whom -------------------------------------------------------------------------


def test_a_device_is_free_again_only_when_all_have_left_it():
    jobs = fake_jobs(3, gpus=1)
    workloads = [
        work(jobs[0].name, gib=2, part=0.2, seconds=5),
        work(jobs[1].name, gib=2, part=0.2, seconds=20),
        work(jobs[2].name),
    ]
    world = ran(jobs, workloads, on=machine(16))
    began = world.view.states[2].started_ns
    assert began == world.view.states[1].ended_ns
    assert world.view.free_devices == {0}


def test_a_job_on_several_devices_is_counted_on_each():
    jobs = [fake_job("a", gpus=2), fake_job("b", gpus=1), fake_job("c", gpus=2)]
    workloads = [
        work("a", gib=8, part=0.4),
        work("b", gib=2, part=0.3),
        work("c", gib=6, part=0.2),
    ]
    world = ran(jobs, workloads, on=machine(16, 16))
    # With b on device 0, only device 1 has the 7.2 GiB for c.
    assert devices_at(world) == {0: (0, 1), 1: (0,)}


def test_members_of_a_group_start_together_or_are_infeasible():
    jobs = fake_jobs(3, gpus=1, group="g")
    fit = [work(job.name, gib=4, part=0.2) for job in jobs]
    assert devices_at(ran(jobs, fit, on=machine(16))).keys() == {0, 1, 2}
    large = [work(job.name, gib=6, part=0.2) for job in jobs]
    world = ran(jobs, large, on=machine(16))
    assert {state.status for state in world.view.states} == {"infeasible"}
    assert world.view.states[0].cause.startswith(
        "group g cannot start at once: beside the others job-3 waits for 1 GPU with 7.2 GiB left"
    )


def test_a_group_that_has_to_wait_takes_no_room_from_those_behind_it():
    jobs = [fake_job("a", gpus=1), *fake_jobs(2, gpus=1, group="g"), fake_job("b", gpus=1)]
    needs = [8, 4, 4, 4]
    workloads = [work(j.name, gib=gib, part=0.1) for j, gib in zip(jobs, needs, strict=True)]
    assert devices_at(ran(jobs, workloads, on=machine(16))) == {0: (0,), 3: (0,)}


def test_precise_counts_to_the_last_thousandth():
    jobs = fake_jobs(4, gpus=1)
    parts = [0.5, 0.25, 0.25, 0.001]
    workloads = [work(j.name, gib=1, part=p) for j, p in zip(jobs, parts, strict=True)]
    world = ran(jobs, workloads, on=machine(16), policy=GuidedPacking(rule="precise"))
    assert devices_at(world).keys() == {0, 1, 2}


@pytest.mark.parametrize(("rule", "at_once"), [("ratio", 3), ("single", 1)])
def test_rules_that_count_do_not_look_at_needs(rule, at_once):
    jobs = fake_jobs(5, gpus=1)
    workloads = [work(job.name, gib=0.1, part=1.0) for job in jobs]
    world = ran(jobs, workloads, on=machine(16), policy=GuidedPacking(rule=rule, per_device=3))
    assert len(devices_at(world)) == at_once


def test_devices_that_others_use_are_left_alone():
    devices = [fake_device(0, users=("x",), used_bytes=GIB), fake_device(1), fake_device(2)]
    jobs = fake_jobs(2, gpus=1)
    on = fake_machine(cores=4, devices=[devices[0], devices[1]])
    world = ran(jobs, [work(job.name, gib=1, part=0.6) for job in jobs], on=on)
    assert set(devices_at(world).values()) == {(1,)}


# --- out of memory --------------------------------------------------------------------------------


def test_after_an_out_of_memory_a_job_gets_its_device_to_itself():
    jobs = fake_jobs(2, gpus=1)
    told = [work(job.name, gib=2, part=0.1) for job in jobs]
    true = [told[0], work(jobs[1].name, gib=14, part=0.1)]
    policy = GuidedPacking()
    queue = FakeQueue(jobs=jobs, machine=machine(16), workloads={w.job: w for w in true})
    world = check_policy(policy, packed_plan(queue.plan("shared"), told, policy), queue)
    outcome = next(w.outcome for _, w in world.words if isinstance(w, Exited))
    assert (outcome.status, outcome.device, outcome.retry_helps) == ("oom", 0, True)
    assert world.view.states[1].status == "ok"
    assert world.view.states[1].last_share.device_bytes is None
    assert world.view.states[1].last_share.reserved_bytes > 0


def test_an_out_of_memory_of_a_job_that_is_alone_is_final():
    job = fake_job("a", gpus=1)
    world = ran([job], [work("a", gib=17, part=0.1)], on=machine(16), known=False)
    state = world.view.states[0]
    assert (state.status, state.attempt) == ("oom", 1)
    assert "device 0 (fake GPU)" in state.cause


def test_out_of_memory_retries_are_bounded():
    jobs = fake_jobs(2, gpus=1)
    workloads = [work(jobs[0].name, gib=12, part=0.1, seconds=90), work(jobs[1].name, gib=12)]
    policy = GuidedPacking(rule="ratio", oom_retries=1)
    world = ran(jobs, workloads, on=machine(16), policy=policy)
    state = world.view.states[1]
    assert (state.status, state.attempt) == ("oom", 2)
    assert state.cause.endswith("given up after 2 attempts")


# --- the host as a device -------------------------------------------------------------------------


def host_jobs(count, **asked):
    jobs = fake_jobs(count, **asked)
    return jobs, [work(job.name) for job in jobs]


@pytest.mark.parametrize(
    ("rule", "at_once"), [("guided", 4), ("precise", 4), ("ratio", 3), ("single", 1)]
)
def test_jobs_without_devices_share_the_host(rule, at_once):
    jobs, workloads = host_jobs(6, memory_bytes=GIB)
    policy = GuidedPacking(rule=rule, per_device=3)
    world = ran(jobs, workloads, on=fake_machine(cores=4), policy=policy)
    assert len(devices_at(world)) == at_once
    assert all(state.status == "ok" for state in world.view.states)


def test_memory_of_the_host_is_hard():
    jobs, workloads = host_jobs(4, memory_bytes=3 * GIB)
    world = ran(jobs, workloads, on=fake_machine(cores=4, memory_bytes=8 * GIB))
    assert len(devices_at(world)) == 2


def test_memory_of_the_host_is_not_looked_at_by_count():
    jobs, workloads = host_jobs(4)
    fates = {job.name: Fate(needs_bytes=3 * GIB) for job in jobs}
    on = fake_machine(cores=4, memory_bytes=8 * GIB)
    killed = {}
    for rule in ("ratio", "guided"):
        jobs, workloads = host_jobs(4, memory_bytes=3 * GIB)
        world = ran(jobs, workloads, on=on, policy=GuidedPacking(rule=rule), fates=fates)
        killed[rule] = sum(
            isinstance(w, Exited) and w.outcome.status == "oom" for _, w in world.words
        )
    assert killed["guided"] == 0 < killed["ratio"]


def test_a_group_larger_than_what_runs_at_once_on_the_host_is_infeasible():
    jobs, workloads = host_jobs(2, group="g")
    world = ran(jobs, workloads, on=fake_machine(cores=4), policy=GuidedPacking(rule="single"))
    assert {state.status for state in world.view.states} == {"infeasible"}
    assert "1 at once" in world.view.states[0].cause


def test_jobs_on_the_host_and_on_devices_run_beside_each_other():
    jobs = [fake_job("a"), fake_job("b", gpus=1), fake_job("c", gpus=1)]
    workloads = [work("a"), work("b", gib=2, part=0.3), work("c", gib=2, part=0.3)]
    world = ran(jobs, workloads, on=machine(16))
    assert devices_at(world) == {0: (), 1: (0,), 2: (0,)}


# --- as data --------------------------------------------------------------------------------------


def test_a_packed_plan_is_read_back_as_it_was_and_names_this_policy():
    jobs = fake_jobs(2, gpus=1)
    workloads = [work(jobs[0].name, gib=2, part=0.3), work(jobs[1].name)]
    policy = GuidedPacking(rule="precise", context_bytes=400 * MIB)
    plan = packed_plan(FakeQueue(jobs=jobs, machine=machine(16)).plan("shared"), workloads, policy)
    again = Plan.from_json(plan.to_json(), source="x")
    assert again == plan
    assert GuidedPacking.model_validate(again.policy.knobs) == policy
    assert again.policy.name == "guided_packing"
    assert again.placements[1].expected_device_bytes is None


@pytest.mark.parametrize(
    "knobs",
    [{"rule": "best"}, {"per_device": 0}, {"margin": 0.9}, {"full_load": 0.0}, {"slots": 2}],
)
def test_wrong_knobs_are_refused(knobs):
    with pytest.raises(ValueError, match=next(iter(knobs))):
        GuidedPacking(**knobs)
