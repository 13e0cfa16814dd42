import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.units import GIB, MIB, NS_PER_S
from headway.core.words import Exited, Settle, Share, Start
from headway.core.workload import Workload
from headway.sim.devices import SimulatedDevices
from headway.sim.pool import FULL_RATE, ProportionalShare
from headway.sim.task import SimulationError
from headway.sim.world import SimulatedWorld
from headway.testing.machines import fake_device, fake_machine
from headway.testing.queues import FakeQueue, fake_jobs

SHARED = Share(devices=(0,), device_bytes=0)


def work(name, *, gib=0.0, part=0.5, seconds=10, start_up=1):
    return Workload.opaque(
        name,
        work_ns=seconds * NS_PER_S,
        start_up_ns=start_up * NS_PER_S,
        device_bytes=int(gib * GIB),
        device_part=part,
    )


def started(workloads, *, context_bytes=0, shares=None, together=None, devices=1):
    """A world in which all start at once on shared devices; driven without a policy."""
    jobs = fake_jobs(len(workloads), gpus=1)
    on = fake_machine(
        cores=8, devices=[fake_device(i, memory_bytes=10 * GIB) for i in range(devices)]
    )
    plan = FakeQueue(jobs=jobs, machine=on).plan("shared")
    world = SimulatedWorld(
        jobs, plan.placements, on, workloads, context_bytes=context_bytes, together=together
    )
    while world.view.t == 0 and len(world.view.waiting) < len(jobs):
        world.next()
    world.perform(
        *(Start(index, (shares or [SHARED] * len(jobs))[index]) for index in range(len(jobs)))
    )
    ends = {}
    while (event := world.next()) is not None:
        if isinstance(event, Exited):
            ends[event.job] = event
            world.perform(Settle(event.job, event.outcome.status, event.outcome.cause))
    return [ends[index] for index in range(len(jobs))]


def seconds(ends):
    return [event.t / NS_PER_S for event in ends]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([0.5, 0.5], [11, 11]),  # together the whole: nobody is slowed
        ([1.0, 1.0], [21, 21]),
        ([0.75, 0.75], [16, 16]),
        ([1.0, 0.5], [16, 16]),  # both at 2/3, the small one too
        ([0.3, 0.3, 0.4], [11, 11, 11]),
    ],
)
def test_demands_above_the_whole_slow_all_alike(parts, expected):
    ends = started([work(f"job-{n}", part=part) for n, part in enumerate(parts, start=1)])
    assert seconds(ends) == pytest.approx(expected, abs=1e-4)


def test_those_that_stay_go_on_at_full_speed():
    ends = started([work("job-1", part=1.0, seconds=5), work("job-2", part=1.0, seconds=20)])
    # 1 s of start-up, 10 s at half speed, then 15 s alone.
    assert seconds(ends) == pytest.approx([11, 26], abs=1e-4)


def test_start_up_keeps_no_device_busy():
    ends = started([work("job-1", part=1.0), work("job-2", part=1.0, start_up=30)])
    assert seconds(ends) == pytest.approx([11, 40], abs=1e-4)


def test_jobs_on_different_devices_do_not_slow_each_other():
    shares = [Share(devices=(0,), device_bytes=0), Share(devices=(1,), device_bytes=0)]
    ends = started([work("job-1", part=1.0), work("job-2", part=1.0)], shares=shares, devices=2)
    assert seconds(ends) == pytest.approx([11, 11], abs=1e-4)


def test_a_model_of_neighbours_on_cores_comes_on_top():
    workloads = [work("job-1", part=1.0), work("job-2", part=1.0)]
    ends = started(workloads, together=lambda beside: [1.0 if b.start_up else 0.5 for b in beside])
    assert seconds(ends) == pytest.approx([41, 41], abs=1e-4)


def test_whoever_asks_for_more_than_is_left_ends_and_the_others_go_on():
    ends = started([work("job-1", gib=6, part=0.1), work("job-2", gib=5, part=0.1, start_up=2)])
    assert [event.outcome.status for event in ends] == ["ok", "oom"]
    assert ends[1].outcome.device == 0
    assert ends[1].outcome.retry_helps
    assert (
        ends[1].outcome.cause
        == "asked for 5.0 GiB of device 0 (fake GPU), of which 4.0 GiB were free"
    )
    assert seconds(ends) == [11, 2]


def test_contexts_count_from_the_start_on():
    fits = [work(f"job-{n}", gib=4.9, part=0.1) for n in (1, 2)]
    assert [e.outcome.status for e in started(fits, context_bytes=100 * MIB)] == ["ok", "ok"]
    assert [e.outcome.status for e in started(fits, context_bytes=110 * MIB)] == ["ok", "oom"]
    nothing = [work(f"job-{n}", part=0.1, start_up=5) for n in (1, 2, 3)]
    ends = started(nothing, context_bytes=4 * GIB)
    assert [(e.outcome.status, e.t) for e in ends][2] == ("oom", 0)


def test_a_job_that_no_room_would_help_is_told_so():
    (end,) = started([work("job-1", gib=11)])
    assert (end.outcome.status, end.outcome.retry_helps) == ("oom", False)


def test_memory_is_free_again_after_an_end():
    devices = SimulatedDevices([fake_device(0, memory_bytes=10 * GIB)], context_bytes=0)
    job = work("a", gib=6)
    assert devices.hold(0, SHARED, job, stepping=True) is None
    assert devices.hold(1, SHARED, job, stepping=True) is not None
    devices.leave(0)
    assert devices.hold(1, SHARED, job, stepping=True) is None


def test_memory_in_use_by_others_stays_in_use():
    device = fake_device(0, memory_bytes=10 * GIB, used_bytes=GIB)
    devices = SimulatedDevices([device], context_bytes=0)
    assert devices.hold(0, SHARED, work("a", gib=9.5), stepping=True) is not None


def test_a_workload_that_says_nothing_of_devices_holds_nothing():
    quiet = Workload.opaque("a", work_ns=1)
    devices = SimulatedDevices([fake_device(0)], context_bytes=GIB)
    assert devices.usage(SHARED, quiet) == (1.0, ())
    assert devices.hold(0, SHARED, quiet, stepping=True) is None


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 5)), min_size=1, max_size=6),
    st.integers(1, 2000),
)
def test_a_proportional_pool_is_never_overdrawn_and_slows_all_alike(classes, capacity):
    demands, counts = [d for d, _ in classes], [c for _, c in classes]
    rates = ProportionalShare(capacity).rates(demands, counts)
    assert len(set(rates)) == 1
    total = sum(d * c for d, c in classes)
    if total <= capacity:
        assert rates[0] == FULL_RATE
    else:
        assert 0 <= capacity * FULL_RATE - rates[0] * total < total


@pytest.mark.parametrize("capacity", [0, 1.5])
def test_a_pool_needs_a_whole_capacity(capacity):
    with pytest.raises(SimulationError, match="whole number"):
        ProportionalShare(capacity)
