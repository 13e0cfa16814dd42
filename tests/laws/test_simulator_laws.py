"""Laws of the simulator on random graphs, and its equality with a slow and plain one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.sim.loop import Simulator, simulate
from headway.sim.pool import FULL_RATE, RATE_BITS, EqualShare, Pool
from headway.sim.task import Result, Span, Task

LANES = ("lane0", "lane1", "lane2")
CAPACITY = {"cores": 3, "link": 4}
POOLS = [Pool(name, EqualShare(capacity)) for name, capacity in CAPACITY.items()]

law = settings(deadline=None)  # how fast it runs is a matter of bench/simulator.py
pytestmark = pytest.mark.slow


@st.composite
def graphs(draw, lanes=(None, *LANES), pools=tuple(CAPACITY), distinct_priorities=False):
    """Up to 12 tasks in the order of their dependencies, with times of up to 20 ns."""
    tasks = []
    for index in range(draw(st.integers(1, 12))):
        drawn_pools = draw(st.lists(st.sampled_from(pools), unique=True)) if pools else []
        earlier = [task.id for task in tasks]
        deps = draw(st.lists(st.sampled_from(earlier), max_size=3)) if earlier else []
        tasks.append(
            Task(
                f"t{index}",
                work_ns=draw(st.integers(0, 20)),
                lane=draw(st.sampled_from(lanes)),
                deps=tuple(deps),
                demands=tuple((pool, draw(st.integers(1, 5))) for pool in drawn_pools),
                latency_ns=draw(st.sampled_from([0, 0, 1, 5])),
                priority=(draw(st.integers(0, 2)), index if distinct_priorities else 0),
                release_ns=draw(st.sampled_from([0, 0, 3, 10])),
            )
        )
    return tasks


def run(tasks: list[Task]) -> Result:
    return simulate(tasks, lanes=LANES, pools=POOLS)


# -- the slow simulator: one nanosecond at a time, one number a task ------------------------------


def max_min_rates(demands: dict[str, int], capacity: int) -> dict[str, int]:
    """Raise everyone's share together; who has all it demands drops out."""
    rates, left, open_demands = {}, Fraction(capacity), dict(demands)
    while open_demands:
        level = left / len(open_demands)
        content = [key for key, demand in open_demands.items() if demand <= level]
        for key in content:
            left -= open_demands.pop(key)
            rates[key] = FULL_RATE
        if not content:
            rates.update({k: int(level * FULL_RATE / demand) for k, demand in open_demands.items()})
            break
    return rates


def naive_spans(tasks: list[Task]) -> tuple[Span, ...]:
    waiting = list(tasks)
    running: dict[str, Task] = {}
    latency_left: dict[str, int] = {}
    work_left: dict[str, int] = {}
    start: dict[str, int] = {}
    end: dict[str, int] = {}
    now = 0

    def ready(task):
        return task.release_ns <= now and all(dep in end for dep in task.deps)

    def begin(task):
        waiting.remove(task)
        running[task.id] = task
        start[task.id] = now
        latency_left[task.id] = task.latency_ns
        work_left[task.id] = task.work_ns << RATE_BITS

    while waiting or running:
        while True:
            over = [key for key in running if latency_left[key] == 0 and work_left[key] <= 0]
            for key in over:
                end[key] = now
                del running[key]
            loose = [task for task in waiting if task.lane is None and ready(task)]
            for task in loose:
                begin(task)
            if over or loose:
                continue
            began = False
            for lane in LANES:
                if not any(task.lane == lane for task in running.values()):
                    candidates = [task for task in waiting if task.lane == lane and ready(task)]
                    if candidates:
                        begin(min(candidates, key=lambda task: task.priority))  # first of equals
                        began = True
            if not began:
                break
        drawing = {key: task for key, task in running.items() if latency_left[key] == 0}
        rates = dict.fromkeys(drawing, FULL_RATE)
        for pool, capacity in CAPACITY.items():
            demands = {k: d for k, task in drawing.items() for p, d in task.demands if p == pool}
            for key, rate in max_min_rates(demands, capacity).items():
                rates[key] = min(rates[key], rate)
        now += 1
        for key in running:
            if latency_left[key]:
                latency_left[key] -= 1
            else:
                work_left[key] -= rates[key]
    return tuple(sorted(Span(start[task.id], end[task.id], task.id, task.lane) for task in tasks))


@law
@given(graphs())
def test_it_equals_the_slow_simulator_exactly(tasks):
    assert run(tasks).spans == naive_spans(tasks)


# -- laws -----------------------------------------------------------------------------------------


@law
@given(graphs())
def test_work_is_conserved_and_no_pool_is_overdrawn(tasks):
    sim = Simulator(lanes=LANES, pools=POOLS)
    sim.add(*tasks)
    done = dict.fromkeys((task.id for task in tasks), 0)
    last_rate = dict(done)
    sim.run_until(0)
    while sim.unfinished():
        rates = {task.id: sim.rate_of(task.id) for task in tasks}
        for pool, capacity in CAPACITY.items():
            used = sum(rates[task.id] * d for task in tasks for p, d in task.demands if p == pool)
            assert used <= capacity * FULL_RATE
        for key, rate in rates.items():
            done[key] += rate
            last_rate[key] = rate or last_rate[key]
        sim.run_until(sim.now_ns + 1)
    for task in tasks:
        surplus = done[task.id] - (task.work_ns << RATE_BITS)
        # The last nanosecond may do more than was left, and that is all.
        assert 0 <= surplus < max(last_rate[task.id], 1)


@law
@given(graphs())
def test_what_remains_never_grows_and_ends_at_zero(tasks):
    sim = Simulator(lanes=LANES, pools=POOLS)
    sim.add(*tasks)
    before = {task.id: task.work_ns for task in tasks}
    while sim.unfinished():
        sim.run_until(sim.now_ns + 1)
        after = {task.id: sim.remaining_ns(task.id) for task in tasks}
        assert all(0 <= after[key] <= before[key] <= after[key] + 1 for key in before)
        before = after
    assert set(before.values()) <= {0}


@law
@given(graphs())
def test_makespan_is_at_least_the_critical_path_and_the_largest_lane_load(tasks):
    earliest_end: dict[str, int] = {}
    load = dict.fromkeys((None, *LANES), 0)
    for task in tasks:
        begin = max([task.release_ns, *(earliest_end[dep] for dep in task.deps)])
        earliest_end[task.id] = begin + task.latency_ns + task.work_ns
        load[task.lane] += task.latency_ns + task.work_ns
    bound = max(*earliest_end.values(), *(load[lane] for lane in LANES))
    assert run(tasks).makespan_ns >= bound


@law
@given(graphs())
def test_same_input_gives_the_same_bytes(tasks):
    assert repr(run(tasks)) == repr(run(tasks))


@law
@given(graphs(distinct_priorities=True), st.randoms(use_true_random=False))
def test_the_order_of_adding_is_not_seen_where_priorities_differ(tasks, rng):
    shuffled = list(tasks)
    rng.shuffle(shuffled)
    assert repr(run(shuffled)) == repr(run(tasks))


@law
@given(graphs())
def test_spans_of_one_lane_never_overlap(tasks):
    spans = run(tasks).spans
    for lane in LANES:
        held = [span for span in spans if span.lane == lane]
        assert all(one.end_ns <= next_.start_ns for one, next_ in pairwise(held))


@law
@given(graphs(lanes=(None,), pools=()), st.data())
def test_without_lanes_and_pools_a_longer_task_ends_nothing_sooner(tasks, data):
    index = data.draw(st.integers(0, len(tasks) - 1))
    longer = list(tasks)
    longer[index] = replace(
        tasks[index], work_ns=tasks[index].work_ns + data.draw(st.integers(1, 30))
    )
    before, after = run(tasks).by_id(), run(longer).by_id()
    assert all(after[key].end_ns >= before[key].end_ns for key in before)


@law
@given(graphs(), st.integers(1, 10**18))
def test_a_later_beginning_shifts_everything_and_changes_nothing(tasks, shift_ns):
    # A task released at 0 and one that waits only for others must both wait for the new zero.
    later = [replace(task, release_ns=task.release_ns + shift_ns) for task in tasks]
    shifted = tuple(
        span._replace(start_ns=span.start_ns + shift_ns, end_ns=span.end_ns + shift_ns)
        for span in run(tasks).spans
    )
    assert run(later).spans == shifted


@law
@given(graphs())
def test_a_clock_for_each_task_gives_the_same_as_one_for_equal_tasks(tasks):
    # A pool of its own, which never slows it, puts each task into a group of its own.
    own = [Pool(task.id, EqualShare(1)) for task in tasks]
    apart = [
        replace(task, demands=(*task.demands, (task.id, 1))) if task.demands else task
        for task in tasks
    ]
    assert simulate(apart, lanes=LANES, pools=[*POOLS, *own]).spans == run(tasks).spans


@law
@given(graphs())
def test_tasks_added_just_before_their_release_run_as_if_known_from_the_start(tasks):
    in_order: list[Task] = []
    for task in tasks:  # never released before what it waits for, so that it can be added after it
        floor_ns = max([task.release_ns, *(t.release_ns for t in in_order if t.id in task.deps)])
        in_order.append(replace(task, release_ns=floor_ns))
    in_order.sort(key=lambda task: task.release_ns)
    sim = Simulator(lanes=LANES, pools=POOLS)
    for task in in_order:
        if task.release_ns > sim.now_ns + 1:
            sim.run_until(task.release_ns - 1)
        sim.add(task)
    sim.finish()
    assert sim.result() == run(in_order)


@law
@given(graphs(), st.data())
def test_a_task_cancelled_before_the_start_leaves_the_graph_without_it(tasks, data):
    victim = data.draw(st.sampled_from(tasks)).id
    sim = Simulator(lanes=LANES, pools=POOLS)
    sim.add(*tasks)
    gone = {record.id for record in sim.cancel(victim)}
    sim.finish()
    rest = [task for task in tasks if task.id not in gone]
    assert victim in gone
    assert not any(gone.intersection(task.deps) for task in rest)
    assert sim.result() == run(rest)


@law
@given(graphs(), st.data())
def test_after_a_cancellation_at_any_time_the_rest_still_ends(tasks, data):
    victim = data.draw(st.sampled_from(tasks)).id
    sim = Simulator(lanes=LANES, pools=POOLS)
    sim.add(*tasks)
    sim.run_until(data.draw(st.integers(0, 30)))
    gone = {record.id for record in sim.cancel(victim)}
    at_ns = sim.now_ns
    sim.finish()
    spans = sim.result().by_id()
    assert sim.unfinished() == []
    assert {key for key, span in spans.items() if not span.cancelled} == {
        task.id for task in tasks if task.id not in gone
    }
    assert all(span.end_ns == at_ns for span in spans.values() if span.cancelled)


@law
@given(st.integers(1, 50), st.lists(st.tuples(st.integers(1, 20), st.integers(1, 5)), min_size=1))
def test_equal_share_is_max_min_fair(capacity, classes):
    classes.sort()
    demands, counts = [d for d, _ in classes], [count for _, count in classes]
    rates = EqualShare(capacity).rates(demands, counts)
    members = {f"{index}.{k}": d for index, (d, count) in enumerate(classes) for k in range(count)}
    expected = max_min_rates(members, capacity)
    assert rates == [expected[f"{index}.0"] for index in range(len(classes))]
    used = sum(rate * d * count for rate, (d, count) in zip(rates, classes, strict=True))
    assert used <= capacity * FULL_RATE
    if any(rate < FULL_RATE for rate in rates):  # then nothing lies idle, but for rounding down
        assert used > capacity * FULL_RATE - sum(d * count for d, count in classes)
