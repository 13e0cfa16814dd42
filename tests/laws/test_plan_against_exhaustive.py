"""A plan beside the best of all ways to run its jobs, both carried out in the simulated world.

`bench/exhaustive.py` holds a hundred lists to the same bar; here are the first of them.
"""

import random
from itertools import permutations, product

import pytest

from headway.costs.interference import Member, rates
from headway.costs.pair_coefficients import PairCoefficients
from headway.numerics.moldable import Moldable, list_schedule
from headway.testing.exhaustive import best_way, carried_out, compare
from headway.testing.machines import fake_machine
from headway.testing.queues import FakeQueue, fake_jobs, known_job, known_queue

NEAR = 1e-6


def queue_of(*paces, cores=2, held=()):
    """Jobs with these paces and no start-up, holding these parts of the memory."""
    jobs, machine = fake_jobs(len(paces)), fake_machine(cores=cores)
    parts = held or [0.0] * len(jobs)
    workloads = {
        job.name: known_job(
            job.name, pace, start_up_s=0.0, peak_bytes=int(part * machine.capacity_bytes)
        )
        for job, pace, part in zip(jobs, paces, parts, strict=True)
    }
    return FakeQueue(jobs=jobs, machine=machine, workloads=workloads)


def found(queue, below=float("inf")):
    """The best way by the search, and what it takes in the simulated world."""
    workloads = [queue.workloads[job.name] for job in queue.jobs]
    cores, memory = queue.machine.usable_cores, queue.machine.capacity_bytes
    way = best_way(workloads, cores=cores, memory=memory, below=below)
    if way is None:
        return None, None
    told = carried_out(way, queue.jobs, workloads, queue.machine)
    assert not told.lost
    return way, told.makespan.value


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_the_plan_takes_at_most_5_percent_longer_than_the_best(seed):
    compared = compare(known_queue(random.Random(seed)))
    assert compared.best_s <= compared.plan.makespan.value <= 1.05 * compared.best_s
    assert abs(compared.off_by_s) <= NEAR * compared.best_s


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 106))
def test_the_search_knows_what_its_way_takes(seed):
    way, told_s = found(known_queue(random.Random(seed)))
    assert told_s == pytest.approx(way.makespan_s, rel=NEAR)
    assert found(known_queue(random.Random(seed)), below=way.makespan_s) == (None, None)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "cores"), [(1, 2), (2, 2), (3, 3)])
def test_no_list_schedule_ends_before_the_best_way(seed, cores):
    source = random.Random(seed)
    paces, held = [], []
    for _ in range(4):
        alone_s = source.uniform(5, 50)
        paces.append(
            {w: (alone_s / w ** source.uniform(-0.3, 0.9), w) for w in range(1, cores + 1)}
        )
        held.append(source.uniform(0.1, 0.7))
    tasks = [
        Moldable(tuple(pace[width][0] for width in range(1, cores + 1)), part)
        for pace, part in zip(paces, held, strict=True)
    ]
    lists = min(
        list_schedule(tasks, widths, order, cores=cores, memory=1.0).makespan
        for widths in product(range(1, cores + 1), repeat=len(tasks))
        for order in permutations(range(len(tasks)))
    )
    way, told_s = found(queue_of(*paces, cores=cores, held=held))
    least_s = sum(min(w * s for w, (s, _) in pace.items()) for pace in paces) / cores
    assert least_s - NEAR <= way.makespan_s <= lists + NEAR
    assert told_s == pytest.approx(way.makespan_s, rel=NEAR)


def test_memory_keeps_jobs_apart():
    alone = {1: (10.0, 1), 2: (8.0, 2)}
    _, beside_s = found(queue_of(alone, alone, held=(0.4, 0.5)))
    _, apart_s = found(queue_of(alone, alone, held=(0.6, 0.5)))
    assert (beside_s, apart_s) == (pytest.approx(10.0), pytest.approx(16.0))


def test_who_waits_at_times_shares_a_core():
    waits = {1: (10.0, 0.5), 2: (9.0, 1.0)}
    way, told_s = found(queue_of(waits, waits, waits, waits))
    assert told_s == pytest.approx(10.0)
    assert [step.cores for step in way.steps] == [None] * 4


def test_who_loads_beside_its_threads_takes_what_others_leave():
    loads, plain = {1: (10.0, 1.6), 2: (10.0, 2.0)}, {1: (4.0, 1.0), 2: (4.0, 2.0)}
    _, told_s = found(queue_of(loads, plain))
    rate, _ = rates(
        [Member("loads", 1, 1.6), Member("plain", 1, 1.0)], range(2), PairCoefficients()
    )
    assert told_s == pytest.approx(4.0 + 10.0 - 4.0 * rate)
