"""The simulator, told as stories: each test is a small case whose times can be found by hand."""

from __future__ import annotations

import pytest

from headway.sim.loop import Simulator, simulate
from headway.sim.pool import FULL_RATE, EqualShare, Pool
from headway.sim.task import SimulationError, Span, Task

CORES = Pool("cores", EqualShare(capacity=2))


def times(result):
    """Start and end of each task."""
    return {span.id: (span.start_ns, span.end_ns) for span in result.spans}


def told(records):
    return [f"{record.t_ns} {record.id} {record.kind}" for record in records]


def flow(name, work_ns, demand=2, **knobs):
    return Task(name, work_ns, demands=(("cores", demand),), **knobs)


# -- dependencies and lanes -----------------------------------------------------------------------


def test_an_empty_graph_takes_no_time():
    assert simulate([]).spans == ()
    assert simulate([]).makespan_ns == 0


def test_a_task_starts_when_the_last_of_its_dependencies_ends():
    result = simulate([Task("a", 3), Task("b", 5), Task("c", 1, deps=("a", "b"))])
    assert times(result) == {"a": (0, 3), "b": (0, 5), "c": (5, 6)}
    assert result.makespan_ns == 6


def test_dependencies_may_stand_later_in_the_list():
    result = simulate([Task("c", 1, deps=("b",)), Task("b", 2, deps=("a",)), Task("a", 3)])
    assert times(result) == {"a": (0, 3), "b": (3, 5), "c": (5, 6)}


def test_a_lane_runs_one_task_at_a_time_the_lowest_priority_first():
    tasks = [
        Task("late", 2, lane="gpu", priority=(1, 0)),
        Task("second", 3, lane="gpu", priority=(0, 7)),
        Task("first", 4, lane="gpu", priority=(0, 3)),
    ]
    result = simulate(tasks, lanes=["gpu"])
    assert times(result) == {"first": (0, 4), "second": (4, 7), "late": (7, 9)}


def test_equal_priorities_run_in_the_order_of_adding():
    result = simulate([Task(name, 2, lane="gpu") for name in "zay"], lanes=["gpu"])
    assert times(result) == {"z": (0, 2), "a": (2, 4), "y": (4, 6)}


def test_a_running_task_is_not_interrupted_by_a_more_urgent_one():
    tasks = [
        Task("long", 10, lane="gpu", priority=(5, 0)),
        Task("urgent", 1, lane="gpu", priority=(0, 0), release_ns=3),
    ]
    assert times(simulate(tasks, lanes=["gpu"]))["urgent"] == (10, 11)


def test_a_lane_chooses_among_all_that_gets_ready_in_the_same_instant():
    # At 4 the lane comes free, and other's end makes the urgent task ready: the urgent one wins.
    tasks = [
        Task("holder", 4, lane="gpu"),
        Task("patient", 1, lane="gpu", priority=(1, 0)),
        Task("other", 4),
        Task("nothing", 0, deps=("other",)),
        Task("urgent", 1, lane="gpu", deps=("nothing",)),
    ]
    result = times(simulate(tasks, lanes=["gpu"]))
    assert (result["urgent"], result["patient"]) == ((4, 5), (5, 6))


def test_lanes_start_in_the_order_of_their_index():
    sim = Simulator(lanes=["second", "first"])
    sim.add(Task("a", 1, lane="first"), Task("b", 1, lane="second"))
    assert told(sim.advance()) == ["0 b started", "0 a started"]


def test_a_release_time_holds_a_task_back():
    assert times(simulate([Task("a", 2, release_ns=7)])) == {"a": (7, 9)}


def test_tasks_without_work_pass_through_a_lane_in_no_time():
    tasks = [Task(f"t{index}", 0, lane="gpu", release_ns=5) for index in range(3)]
    result = simulate([*tasks, Task("after", 1, deps=("t2",))], lanes=["gpu"])
    assert times(result) == {"t0": (5, 5), "t1": (5, 5), "t2": (5, 5), "after": (5, 6)}


def test_a_chain_of_ten_thousand_empty_tasks_needs_no_recursion():
    tasks = [Task("0", 0)]
    tasks += [Task(str(n), 0, deps=(str(n - 1),)) for n in range(1, 10_000)]
    assert simulate(tasks).makespan_ns == 0


def test_spans_come_by_start_end_and_id():
    spans = simulate([Task("b", 2), Task("a", 2), Task("c", 1)]).spans
    assert spans == (Span(0, 1, "c", None), Span(0, 2, "a", None), Span(0, 2, "b", None))


# -- pools ----------------------------------------------------------------------------------------


def test_two_tasks_that_want_the_whole_pool_get_half_each():
    result = simulate([flow("a", 10), flow("b", 10)], pools=[CORES])
    assert times(result) == {"a": (0, 20), "b": (0, 20)}


def test_a_pool_that_is_large_enough_slows_nobody():
    result = simulate([flow("a", 10, demand=1), flow("b", 4, demand=1)], pools=[CORES])
    assert times(result) == {"a": (0, 10), "b": (0, 4)}


def test_a_late_joiner_slows_the_first_from_then_on():
    # Alone until 4 (4 of 10 done), half speed beside b: the other 6 take 12; b has 4 left at 16.
    result = simulate([flow("a", 10), flow("b", 10, release_ns=4)], pools=[CORES])
    assert times(result) == {"a": (0, 16), "b": (4, 20)}


def test_what_small_demands_leave_goes_to_the_others():
    # Shares of 4 cores among demands of 1, 2 and 4: 1, 1.5 and 1.5, so rates 1, 3/4 and 3/8.
    sim = Simulator(pools=[Pool("cores", EqualShare(capacity=4))])
    sim.add(flow("one", 6, demand=1), flow("two", 6, demand=2), flow("four", 6, demand=4))
    sim.advance()
    rates = [sim.rate_of(name) / FULL_RATE for name in ("one", "two", "four")]
    assert rates == [1.0, 0.75, 0.375]
    # one ends at 6; two (4.5 done) and four (2.25 done) go on at 1 and 1/2: two ends at 7.5, and
    # is seen to at 8; four (3.25 done) is alone then, and needs 2.75.
    sim.finish()
    assert times(sim.result()) == {"one": (0, 6), "two": (0, 8), "four": (0, 11)}


def test_ends_round_up_to_the_next_nanosecond():
    three = [flow(name, 1, demand=2) for name in "abc"]
    assert simulate(three, pools=[CORES]).makespan_ns == 4  # 1 ns at a rate just below 1/3


def test_a_task_on_two_pools_goes_at_the_smaller_of_its_shares():
    pools = [CORES, Pool("link", EqualShare(capacity=100))]
    tasks = [
        Task("both", 10, demands=(("link", 100), ("cores", 2))),
        Task("cores only", 10, demands=(("cores", 2),)),
        Task("link a", 40, demands=(("link", 100),)),
        Task("link b", 40, demands=(("link", 100),)),
        Task("link c", 40, demands=(("link", 100),)),
    ]
    sim = Simulator(pools=pools)
    sim.add(*tasks)
    sim.advance()
    assert sim.rate_of("both") == FULL_RATE // 4
    # The half of the cores that it has and cannot use is not given to others.
    assert sim.rate_of("cores only") == FULL_RATE // 2
    sim.finish()
    assert times(sim.result())["both"] == (0, 40)


def test_the_order_of_demands_means_nothing():
    pools = [CORES, Pool("link", EqualShare(capacity=1))]
    one = Task("one", 6, demands=(("cores", 2), ("link", 1)))
    other = Task("other", 6, demands=(("link", 1), ("cores", 2)))
    assert times(simulate([one, other], pools=pools)) == {"one": (0, 12), "other": (0, 12)}


def test_an_unshared_pool_slows_nobody():
    result = simulate([flow("a", 10, demand=9), flow("b", 10, demand=9)], pools=[Pool("cores")])
    assert result.makespan_ns == 10


def test_latency_holds_the_lane_but_draws_on_no_pool():
    # send waits 5 ns before it draws, so load is alone until then: 5 of its 10, then half speed
    # until send has done its 3; load has 2 left at 11.
    tasks = [
        flow("load", 10, lane="disk"),
        flow("send", 3, latency_ns=5, lane="link"),
        Task("next", 1, lane="link", priority=(1, 0)),
    ]
    result = times(simulate(tasks, lanes=["disk", "link"], pools=[CORES]))
    assert result == {"load": (0, 13), "send": (0, 11), "next": (11, 12)}


def test_a_pooled_task_without_work_ends_after_its_latency():
    result = simulate([flow("a", 0, latency_ns=3), flow("b", 0)], pools=[CORES])
    assert times(result) == {"a": (0, 3), "b": (0, 0)}


# -- a caller drives ------------------------------------------------------------------------------


def test_a_caller_sees_each_instant_and_speaks_before_lanes_choose():
    sim = Simulator(lanes=["gpu"])
    sim.add(Task("a", 5, lane="gpu"), Task("queued", 5, lane="gpu", priority=(1, 0)))
    assert told(sim.advance()) == ["0 a started"]
    assert told(sim.advance()) == ["5 a ended"]
    sim.add(Task("urgent", 2, lane="gpu"))  # still at 5, before the lane has chosen
    assert told(sim.advance()) == ["5 urgent started"]
    assert told(sim.advance()) == ["7 urgent ended"]
    assert told(sim.run_until(50)) == ["7 queued started", "12 queued ended"]
    assert (sim.advance(), sim.now_ns) == ([], 50)


def test_advance_goes_no_further_than_it_is_told():
    sim = Simulator()
    sim.add(Task("a", 10))
    assert told(sim.advance(4)) == ["0 a started"]
    assert (sim.advance(4), sim.now_ns, sim.remaining_ns("a")) == ([], 4, 6)
    assert told(sim.advance(10)) == ["10 a ended"]


def test_time_does_not_go_back():
    sim = Simulator()
    sim.run_until(9)
    with pytest.raises(SimulationError, match="time is 9 ns already; cannot go back to 3"):
        sim.advance(3)


def test_a_gate_holds_a_task_until_it_is_opened_and_stays_open():
    sim = Simulator()
    sim.add(Task("a", 2, gate="go"))
    assert sim.run_until(10) == []
    sim.open_gate("go")
    sim.open_gate("go")
    sim.add(Task("b", 3, gate="go"))
    sim.finish()
    assert times(sim.result()) == {"a": (10, 12), "b": (10, 13)}


def test_a_gate_can_be_opened_before_anyone_stands_at_it():
    sim = Simulator()
    sim.open_gate("go")
    sim.add(Task("a", 2, gate="go"))
    sim.finish()
    assert times(sim.result()) == {"a": (0, 2)}


def test_whole_graphs_refuse_a_gate_that_nobody_opens():
    with pytest.raises(SimulationError, match=r"tasks are left: 'a', 'b'; a gate is closed"):
        simulate([Task("a", 2, gate="go"), Task("b", 1, deps=("a",))])


def test_jobs_are_started_and_stopped_by_a_caller():
    sim = Simulator(pools=[CORES])
    sim.add(flow("one", 10), flow("two", 10))
    sim.run_until(4)
    assert (sim.remaining_ns("one"), sim.rate_of("one")) == (8, FULL_RATE // 2)
    assert told(sim.cancel("two")) == ["4 two cancelled"]
    assert (sim.rate_of("one"), sim.rate_of("two")) == (FULL_RATE, 0)
    assert told(sim.run_until(20)) == ["12 one ended"]
    assert sim.result().spans == (
        Span(0, 4, "two", None, cancelled=True),
        Span(0, 12, "one", None),
    )


def test_cancelling_frees_the_lane_and_takes_along_what_waits():
    sim = Simulator(lanes=["gpu"])
    sim.add(
        Task("a", 10, lane="gpu"),
        Task("b", 1, deps=("a",)),
        Task("c", 1, deps=("b",), release_ns=40),
        Task("d", 1, deps=("b", "c")),
        Task("next", 5, lane="gpu", priority=(1, 0)),
    )
    sim.run_until(3)
    cancelled = sim.cancel("a")
    assert [(record.id, record.lane) for record in cancelled] == [
        ("a", "gpu"),
        ("b", None),
        ("c", None),
        ("d", None),
    ]
    sim.finish()
    assert sim.now_ns == 8  # events of what is gone do not move the clock
    assert times(sim.result()) == {"a": (0, 3), "next": (3, 8)}


def test_a_task_waiting_on_a_lane_or_at_a_gate_can_be_cancelled():
    sim = Simulator(lanes=["gpu"])
    sim.add(
        Task("a", 4, lane="gpu"), Task("b", 4, lane="gpu"), Task("c", 4, gate="go"), Task("d", 4)
    )
    assert [sim.cancel(name)[0].id for name in ("b", "c", "d")] == ["b", "c", "d"]
    sim.open_gate("go")
    sim.finish()
    assert times(sim.result()) == {"a": (0, 4)}


def test_cancelling_during_the_latency_frees_the_lane():
    sim = Simulator(lanes=["link"], pools=[CORES])
    sim.add(flow("a", 4, latency_ns=6, lane="link"), flow("b", 4, lane="link"))
    sim.run_until(2)
    sim.cancel("a")
    sim.finish()
    assert times(sim.result()) == {"a": (0, 2), "b": (2, 6)}


def test_what_is_gone_does_not_move_the_clock():
    sim = Simulator(pools=[CORES])
    sim.add(Task("timed", 10), flow("pooled", 10))
    sim.run_until(3)
    sim.cancel("timed")
    sim.cancel("pooled")
    assert (sim.advance(), sim.now_ns) == ([], 3)


def test_cancelling_what_is_over_does_nothing():
    sim = Simulator()
    sim.add(Task("a", 4))
    sim.finish()
    assert sim.cancel("a") == ()
    assert (sim.remaining_ns("a"), sim.rate_of("a")) == (0, 0)


def test_rate_and_rest_are_known_at_every_stage():
    sim = Simulator(lanes=["gpu"], pools=[CORES])
    sim.add(Task("a", 4, latency_ns=2, lane="gpu"), flow("b", 4, latency_ns=2, lane="gpu"))
    seen = []
    for until_ns in (1, 3, 7, 9, 12):
        sim.run_until(until_ns)
        seen.append([(sim.rate_of(n) // FULL_RATE, sim.remaining_ns(n)) for n in ("a", "b")])
    assert seen == [
        [(0, 4), (0, 4)],
        [(1, 3), (0, 4)],
        [(0, 0), (0, 4)],
        [(0, 0), (1, 3)],
        [(0, 0), (0, 0)],
    ]


# -- what is refused ------------------------------------------------------------------------------


def test_a_circle_of_dependencies_is_refused_by_its_names():
    tasks = [
        Task("a", 1, deps=("c",)),
        Task("b", 1, deps=("a",)),
        Task("c", 1, deps=("free", "b")),
        Task("free", 1),
    ]
    with pytest.raises(SimulationError, match="in a circle: a -> c -> b -> a"):
        simulate(tasks)
    with pytest.raises(SimulationError, match="in a circle: self -> self"):
        simulate([Task("self", 1, deps=("self",))])


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([Task("a", 1), Task("a", 2)], "there is a task 'a' already"),
        ([Task("a", 1, deps=("ghost",))], "'a' waits for 'ghost', which is not known"),
        ([Task("a", 1, lane="gpu7")], "on lane 'gpu7', but the lanes are 'gpu0', 'gpu1'"),
        ([Task("a", 1, demands=(("ram", 1),))], "draws on pool 'ram', but the pools are 'cores'"),
    ],
)
def test_what_is_not_known_is_refused_and_nothing_is_added(tasks, words):
    sim = Simulator(lanes=["gpu0", "gpu1"], pools=[CORES])
    with pytest.raises(SimulationError, match=words):
        sim.add(Task("good", 1), *tasks)
    assert sim.unfinished() == []
    assert sim.advance() == []


def test_a_cancelled_dependency_is_refused():
    sim = Simulator()
    sim.add(Task("a", 1))
    sim.cancel("a")
    with pytest.raises(SimulationError, match="'b' waits for 'a', which was cancelled"):
        sim.add(Task("b", 1, deps=("a",)))


def test_asking_for_an_unknown_task_names_the_known_ones():
    sim = Simulator()
    sim.add(*(Task(f"t{index}", 1) for index in range(10)))
    with pytest.raises(SimulationError, match=r"no task 'x' among 't0', .*'t7' and 2 more"):
        sim.cancel("x")


def test_two_lanes_or_pools_of_one_name_are_refused():
    with pytest.raises(SimulationError, match="must differ, but the lanes are 'a', 'a'"):
        Simulator(lanes=["a", "a"])
    with pytest.raises(SimulationError, match="and the pools 'cores', 'cores'"):
        Simulator(pools=[CORES, CORES])


def test_a_rate_too_small_to_count_is_refused_instead_of_running_for_ever():
    pool = Pool("link", EqualShare(capacity=1))
    with pytest.raises(SimulationError, match=r"'a' would run at less than 2\^-20 .* capacity"):
        simulate([Task("a", 1, demands=(("link", 1 << 21),))], pools=[pool])
