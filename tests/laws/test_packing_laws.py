"""Laws of guided packing, on random lists in the simulated world."""

from collections import defaultdict

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headway.core.units import GIB, MIB, NS_PER_S
from headway.core.words import FINAL, Exited, Start
from headway.core.workload import Workload
from headway.planners.guided_packing import GuidedPacking, packed_plan
from headway.sim.attempt import Fate
from headway.testing.conformance import check_policy
from headway.testing.machines import fake_device, fake_machine
from headway.testing.queues import FakeQueue, fake_job


@st.composite
def lists(draw, *, most=10):
    """A list for devices and host, and what was predicted: sometimes nothing, never too little."""
    sizes = draw(st.lists(st.sampled_from([4, 8, 16]), max_size=3))
    machine = fake_machine(
        cores=draw(st.sampled_from([2, 4, 16])),
        memory_bytes=32 * GIB,
        devices=[
            fake_device(
                index,
                memory_bytes=size * GIB,
                users=draw(st.sampled_from([(), (), (), ("unknown",)])),
            )
            for index, size in enumerate(sizes)
        ],
    )
    jobs, true, told, fates = [], {}, [], {}
    for index in range(draw(st.integers(1, most))):
        name = f"job-{index}"
        needs = draw(st.sampled_from([None, 0, 500, 1500, 3500, 7000, 15_500]))
        part = draw(st.sampled_from([None, 0.001, 0.25, 0.5, 0.9, 1.0]))
        workload = Workload.opaque(
            name,
            work_ns=draw(st.integers(0, 20)) * NS_PER_S // 2,
            start_up_ns=draw(st.sampled_from([0, NS_PER_S])),
            peak_bytes=draw(st.sampled_from([10**7, GIB])),
            device_bytes=None if needs is None else needs * MIB,
            device_part=part,
        )
        true[name] = workload
        unknown = {"device_bytes": None, "device_part": None}
        known = draw(st.sampled_from([True, True, True, False]))
        told.append(workload if known else workload.model_copy(update=unknown))
        fates[name] = Fate(fails=draw(st.sampled_from([0, 0, 0, 1])))
        jobs.append(
            fake_job(
                name,
                gpus=draw(st.sampled_from([None, 1, 1, 1, 2])),
                gpu_memory_bytes=draw(st.sampled_from([None, None, None, 2 * GIB])),
                group=draw(st.sampled_from([None, None, None, "g"])),
                retries=draw(st.sampled_from([0, 1])),
                priority=draw(st.sampled_from([0, 0, 1])),
            )
        )
    return FakeQueue(jobs=jobs, machine=machine, workloads=true, fates=fates), told


POLICIES = st.builds(
    GuidedPacking,
    rule=st.sampled_from(["guided", "guided", "precise", "ratio", "single"]),
    per_device=st.integers(1, 3),
    full_load=st.sampled_from([None, 0.5, 1.0]),
    patience=st.sampled_from([0, 2, 16]),
)


def lodgers(world):
    """After each start: by device, the shares of all on it with the jobs they are of."""
    now = defaultdict(dict)
    for _, word in world.words:
        if isinstance(word, Start):
            for device in word.share.devices:
                now[device][word.job] = word.share
            yield now
        elif isinstance(word, Exited):
            for on in now.values():
                on.pop(word.job, None)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(case=lists(), policy=POLICIES)
def test_every_list_ends_and_no_device_is_given_twice_over(case, policy):
    queue, told = case
    plan = packed_plan(queue.plan("shared"), told, policy)
    world = check_policy(policy, plan, queue)
    assert all(state.status in FINAL for state in world.view.states)
    wanted = [
        state.job.gpus or int(bool(state.job.gpu_memory_bytes)) for state in world.view.states
    ]
    for now in lodgers(world):
        for device, on in now.items():
            if any(share.device_bytes is None for share in on.values()):
                assert len(on) <= 1, "a device that is one job's alone"
            if policy.rule == "ratio":
                assert len(on) <= policy.per_device
            if policy.rule == "single":
                assert len(on) <= 1
            if policy.rule == "precise" and len(on) > 1:
                parts = [plan.placements[job].expected_device_part for job in on]
                assert sum(1.0 if part is None else part for part in parts) <= 1 + 1e-9
            room = queue.machine.devices[device].memory_bytes
            assert sum(share.device_bytes or 0 for share in on.values()) <= room
    for _, word in world.words:
        if isinstance(word, Start):
            assert len(word.share.devices) == wanted[word.job]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(case=lists(), rule=st.sampled_from(["guided", "precise"]))
def test_a_need_that_is_known_is_never_killed_for(case, rule):
    """Only a job of which nothing is known may ask for more than there is, and hurts nobody."""
    queue, told = case
    for job, known in zip(queue.jobs, told, strict=True):
        needs = queue.workloads[job.name].device_bytes
        declared = job.gpu_memory_bytes
        assume(known.device_bytes or not (declared and needs and needs.value > declared))
    policy = GuidedPacking(rule=rule)
    world = check_policy(policy, packed_plan(queue.plan("shared"), told, policy), queue)
    for _, word in world.words:
        if isinstance(word, Exited) and word.outcome.status == "oom":
            assert told[word.job].device_bytes is None
            assert not word.outcome.retry_helps, "it was alone"
