"""Tasks per second of the simulator, beside SimPy on the same graph.

    python bench/simulator.py            # a table
    python bench/simulator.py --json     # the same figures for a machine

Three graphs: *lanes* (random dependencies over 64 lanes, no pools), *wide* (64 equal sharers of one
pool at all times) and *mixed* (the graph of *lanes* with 30% of its tasks drawing on a pool).
Seconds are of CPU time, alike for both. Building the tasks is not timed; adding them is, as is
making SimPy's processes. Rounds alternate between the two. SimPy has no processor sharing, so it
stands beside *lanes* alone. Its makespan is shown because it differs a little: a SimPy resource
goes to the first who asks in an instant, a lane to the most urgent of all who got ready in it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import simpy

from headway.sim.loop import simulate
from headway.sim.pool import EqualShare, Pool
from headway.sim.task import Task

LANES = [f"lane{index}" for index in range(64)]
POOL = Pool("cores", EqualShare(capacity=16_000))


def lanes_graph(tasks: int, rng: random.Random) -> list[Task]:
    """Each task on a random lane, after up to two of the 200 before it."""
    return [
        Task(
            f"t{index}",
            work_ns=rng.randrange(1_000, 1_000_000),
            lane=rng.choice(LANES),
            deps=tuple(
                f"t{rng.randrange(max(0, index - 200), index)}" for _ in range(min(index, 2))
            ),
            priority=(0, index),
        )
        for index in range(tasks)
    ]


def wide_graph(tasks: int, rng: random.Random) -> list[Task]:
    """64 chains side by side, every task drawing one core of 16."""
    return [
        Task(
            f"t{index}",
            work_ns=rng.randrange(1_000, 1_000_000),
            deps=(f"t{index - 64}",) if index >= 64 else (),
            demands=(("cores", 1_000),),
        )
        for index in range(tasks)
    ]


def mixed_graph(tasks: int, rng: random.Random) -> list[Task]:
    """The graph of lanes with 30% of its tasks drawing half, one or two cores."""
    return [
        replace(task, demands=(("cores", rng.choice([500, 1_000, 2_000])),))
        if rng.random() < 0.3
        else task
        for task in lanes_graph(tasks, rng)
    ]


def run_simpy(tasks: list[Task]) -> int:
    """The same graph with a process a task and a priority resource a lane; its makespan in ns."""
    env = simpy.Environment()
    lanes = {name: simpy.PriorityResource(env) for name in LANES}
    processes: dict[str, simpy.Process] = {}

    def process(task: Task) -> Generator[simpy.Event, Any, None]:
        for dep in task.deps:
            yield processes[dep]
        with lanes[task.lane or ""].request(priority=task.priority[1]) as turn:
            yield turn
            yield env.timeout(task.work_ns)

    for task in tasks:
        processes[task.id] = env.process(process(task))
    env.run()
    return int(env.now)


def run_headway(tasks: list[Task]) -> int:
    """The makespan in ns."""
    return simulate(tasks, lanes=LANES, pools=[POOL]).makespan_ns


def tasks_per_s(run: Callable[[list[Task]], int], tasks: list[Task]) -> tuple[float, int]:
    """One timed round: its rate, and the makespan found."""
    start = time.process_time()
    makespan_ns = run(tasks)
    return len(tasks) / (time.process_time() - start), makespan_ns


def measure(tasks: int, rounds: int, seed: int) -> dict[str, Any]:
    """All figures: medians over the rounds, in tasks/s."""
    build = {"lanes": lanes_graph, "wide": wide_graph, "mixed": mixed_graph}
    graphs = {name: make(tasks, random.Random(seed)) for name, make in build.items()}
    rates: dict[str, list[float]] = {name: [] for name in [*graphs, "simpy"]}
    ratios = []
    for _ in range(rounds):
        rate, makespan_ns = tasks_per_s(run_headway, graphs["lanes"])
        simpy_rate, simpy_makespan_ns = tasks_per_s(run_simpy, graphs["lanes"])
        rates["lanes"].append(rate)
        rates["simpy"].append(simpy_rate)
        ratios.append(rate / simpy_rate)
        for name in ("wide", "mixed"):
            rates[name].append(tasks_per_s(run_headway, graphs[name])[0])
    return {
        "schema": 1,
        "tasks": tasks,
        "rounds": rounds,
        "tasks_per_s": {name: round(statistics.median(values)) for name, values in rates.items()},
        "lanes_over_simpy": round(statistics.median(ratios), 2),
        "makespan_ns": {"lanes": makespan_ns, "simpy": simpy_makespan_ns},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=20_000, help="tasks in each graph")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    figures = measure(args.tasks, args.rounds, args.seed)
    if args.json:
        print(json.dumps(figures))
        return
    print(f"median of {args.rounds} rounds, {args.tasks} tasks a graph")
    for name, rate in figures["tasks_per_s"].items():
        print(f"  {name:<6} {rate:>9,} tasks/s")
    print(f"  lanes / simpy = {figures['lanes_over_simpy']}")
    print("  makespans:", ", ".join(f"{k} {v:,} ns" for k, v in figures["makespan_ns"].items()))


if __name__ == "__main__":
    main()
