"""Plans for GPUs: what they may never do, and how near they are to the best of all ways."""

import random

import pytest

from headway.core import catalogue
from headway.core.mig import Refusal
from headway.core.plan import Division, Layout, Plan
from headway.core.units import GIB, NS_PER_S
from headway.core.workload import Workload
from headway.planners.gpu_sharing import (
    divided,
    divisible,
    maximal_layouts,
    mig_plan,
    sharing_plans,
)
from headway.planning import EVERY_WAY, chosen, gpu_plans, score
from headway.probes.profiles import Recall
from headway.testing.gpu_queues import complete, ends_s, every_division, gpu_queue
from headway.testing.queues import FakeQueue, fake_job


def workloads_of(queue):
    return [queue.workloads[job.name] for job in queue.jobs]


def planned(queue, *, ways=EVERY_WAY):
    recall = Recall(tuple(workloads_of(queue)), ())
    return chosen(queue.jobs, queue.machine, recall, ways=ways, environment={})


@pytest.mark.parametrize("kind", ["a100-40gb", "a100-80gb", "h100-80gb", "h200-141gb"])
def test_twelve_layouts_of_seven_slices(kind):
    table = catalogue.device(kind).mig
    double = {one.name for one in table.profiles if one.compute == 1 and one.size == 2}
    plain = [one for one in maximal_layouts(table) if not double & set(one)]
    sizes = {tuple(int(name[0]) for name in layout) for layout in plain}
    assert sizes == {
        (7,), (4, 3), (4, 2, 1), (4, 1, 1, 1), (3, 3), (3, 2, 2), (3, 2, 1, 1), (3, 1, 1, 1, 1),
        (2, 2, 2, 1), (2, 2, 1, 1, 1), (2, 1, 1, 1, 1, 1), (1,) * 7,
    }  # fmt: skip
    for layout in maximal_layouts(table):
        assert not isinstance(table.layout(layout), Refusal)


def test_a_layout_that_cannot_be_is_refused():
    machine = catalogue.machine("a100-40gb")
    layouts = (Layout(gpu="a100-40gb/0", profiles=("4g.20gb", "4g.20gb")),)
    with pytest.raises(ValueError, match="needs 8 of 7 compute slices"):
        divided(machine, Division(way="mig", layouts=layouts), divisible(machine))
    elsewhere = (Layout(gpu="a100-40gb/9", profiles=("7g.40gb",)),)
    with pytest.raises(ValueError, match="a100-40gb/9, which is not here"):
        divided(machine, Division(way="mig", layouts=elsewhere), divisible(machine))


def test_a_plan_with_a_division_comes_back_from_its_file():
    queue = gpu_queue(random.Random(1))
    plan = mig_plan(
        queue.plan("partitioned"),
        workloads_of(queue),
        [Layout(gpu=queue.machine.devices[0].uuid, profiles=("1g.5gb",))],
    )
    assert Plan.from_json(plan.to_json(), source="plan.json") == plan
    with pytest.raises(ValueError, match="do not go together"):
        Division(way="mps", layouts=plan.division.layouts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_plan_goes_over_memory_or_gives_a_process_two_slices(seed):
    queue = gpu_queue(random.Random(seed))
    plain = queue.plan("partitioned")
    plans = [*sharing_plans(plain, workloads_of(queue)), *every_division(queue, plain)]
    for plan in plans:
        told = score(plan, queue.jobs, workloads_of(queue), queue.machine, bounds=False)
        assert not told.lost, plan.reason  # an out-of-memory of a device is a lost attempt
        if plan.division.way != "mig":
            continue
        wide = {job.name for job in queue.jobs if (job.gpus or 0) > 1}
        parts = divided(queue.machine, plan.division, divisible(queue.machine)).devices
        if sum(not part.is_part for part in parts) < 2:
            infeasible = {job.name for job in told.jobs if job.status == "infeasible"}
            assert wide <= infeasible


def test_equal_parts_of_the_multiprocessors_sum_to_one():
    queue = gpu_queue(random.Random(3))
    for plan in sharing_plans(queue.plan("partitioned"), workloads_of(queue)):
        most = plan.policy.knobs.get("most")
        parts = [placement.most_device_part for placement in plan.placements]
        if plan.division.way == "mps" and "equal" in plan.reason:
            assert parts == [1 / most] * len(parts)
        elif plan.division.way != "mps":
            assert set(parts) == {None}


def test_jobs_that_fill_little_are_put_side_by_side():
    jobs = [fake_job(f"j{n}", gpus=1) for n in range(4)]
    workloads = {
        job.name: Workload.opaque(
            job.name,
            work_ns=100 * NS_PER_S,
            device_bytes=4 * GIB,
            device_busy=0.9,
            device_part=0.2,
        )
        for job in jobs
    }
    queue = FakeQueue(jobs=jobs, machine=catalogue.machine("a100-40gb"), workloads=workloads)
    plan = planned(queue, ways=("exclusive", "time-slices", "mps"))
    assert plan.plan.division.way == "mps"
    assert plan.choice.chosen.makespan.value == pytest.approx(100, rel=0.02)
    told = {one.plan.division.way: one.makespan.value for one in reversed(plan.forecasts)}
    # In turns each has a quarter of the time: 400 s of kernels at 90% each.
    assert told["time-slices"] == pytest.approx(360, rel=0.02)
    assert told["exclusive"] == pytest.approx(400, rel=0.02)


def test_jobs_that_fill_the_device_are_left_alone():
    jobs = [fake_job(f"j{n}", gpus=1) for n in range(3)]
    workloads = {
        job.name: Workload.opaque(
            job.name, work_ns=100 * NS_PER_S, device_bytes=GIB, device_busy=1.0, device_part=1.0
        )
        for job in jobs
    }
    queue = FakeQueue(jobs=jobs, machine=catalogue.machine("a100-40gb"), workloads=workloads)
    assert planned(queue).plan.division.way == "exclusive"


def test_only_ways_that_are_allowed_are_looked_at():
    queue = gpu_queue(random.Random(0))
    assert planned(queue, ways=("exclusive",)).plan.division.way == "exclusive"
    ways = {one.plan.division.way for one in planned(queue, ways=("exclusive", "mps")).forecasts}
    assert ways == {"exclusive", "mps"}


def test_what_jobs_do_to_a_gpu_must_be_known():
    job = fake_job("a", gpus=1)
    queue = FakeQueue(jobs=[job], machine=catalogue.machine("a100-40gb"))
    known = Workload.opaque("a", work_ns=NS_PER_S)
    plain = queue.plan("partitioned")
    assert gpu_plans(plain, queue.jobs, [known], queue.machine, ways=EVERY_WAY) == []


@pytest.mark.slow
def test_no_way_of_sharing_ends_much_earlier_than_the_plan():
    """Through all ways and all combinations of layouts; bench/gpu_sharing.py does 100 lists."""
    worst = 0.0
    ways = set()
    for seed in range(8):
        queue = gpu_queue(random.Random(seed))
        plain = queue.plan("partitioned")
        tried = [*sharing_plans(plain, workloads_of(queue)), *every_division(queue, plain)]
        best_s = min(ends_s(plan, queue) for plan in tried)
        plan = planned(queue)
        assert complete(plan.choice.chosen)
        ways.add(plan.plan.division.way)
        worst = max(worst, plan.choice.chosen.makespan.value / best_s)
    assert worst <= 1.05
    assert len(ways) >= 3
