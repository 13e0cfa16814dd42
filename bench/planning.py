"""How long planning takes: a list that nobody has seen, a list that is known, and again in a run.

    python bench/planning.py                   # a table
    python bench/planning.py --json            # the same figures for a machine
    python bench/planning.py --jobs 1000       # one length alone

*cold*: `headway.planning.plan_of` with an empty profile store. *warm*: with one that holds two
attempts of each job with one thread and two with a thread a core, written by `ProfileStore.learn`;
the store is opened anew for each round, as each run does. Wall time, median of the rounds. Bar: 5 s
for 1,000 jobs.

*again*: a warm list is carried out in the simulated world and planned again after each job that
ends, as a run does. The run's clock is the simulated one, and what planning takes for real is added
to it. Bar: what it takes is at most 2% of the run, and one planning beyond that.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _common import keep, warn_of_others
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import Placement
from headway.core.units import MIB, NS_PER_S
from headway.core.view import View
from headway.planners.queue import Queue
from headway.planning import PLANNING_PART, plan_of, replanner
from headway.probes.profiles import ProfileStore
from headway.sim.drive import drive
from headway.testing.machines import fake_machine
from headway.testing.profiles import past_attempt
from headway.testing.queues import FakeQueue, fake_jobs, known_job

LENGTHS = (10, 100, 1000)
CORES = (2, 8)
BAR_S = 5.0


def paces(source: random.Random, cores: int) -> dict[int, float]:
    """Seconds of a job with one thread and with a thread a core."""
    alone_s = source.uniform(20, 400)
    return {1: alone_s, cores: alone_s / cores ** source.uniform(-0.3, 0.9)}


def fill(store: ProfileStore, jobs: list[Job], machine: Machine, seed: int) -> None:
    """Two attempts of each job with each count of threads."""
    source = random.Random(seed)
    rows = []
    for job in jobs:
        peak_bytes = source.randint(100, 900) * MIB
        for threads, seconds in paces(source, machine.usable_cores).items():
            for again in range(2):
                work_s = seconds * source.uniform(0.97, 1.03)
                rows.append(
                    past_attempt(
                        job,
                        machine,
                        threads=threads,
                        cores=threads,
                        cores_used=threads * 0.98,
                        start_up_s=3.0,
                        work_s=work_s,
                        total_s=3.0 + work_s,
                        steps=1000,
                        peak_bytes=peak_bytes,
                        ended_ns=time.time_ns() - again * NS_PER_S,
                    )
                )
    store.learn(rows)


def planning_s(folder: Path, jobs: list[Job], machine: Machine, rounds: int) -> dict[str, Any]:
    """Seconds to plan a list with the store in a folder."""
    times = []
    for _ in range(rounds):
        start_s = time.perf_counter()
        with ProfileStore.open(folder) as store:
            planned = plan_of(jobs, machine, store=store, environment={})
        times.append(time.perf_counter() - start_s)
    return {
        "median_s": statistics.median(times),
        "worst_s": max(times),
        "mode": planned.plan.mode,
        "plans": len(planned.forecasts),
    }


class RunClock:
    """The time of a simulated run, to which what planning takes for real is added."""

    def __init__(self) -> None:
        self.simulated_s = self.planning_s = 0.0
        self.longest_s = 0.0
        self.plannings = self.asked = 0
        self._since_s: float | None = None

    def now_s(self) -> float:
        running = 0.0 if self._since_s is None else time.perf_counter() - self._since_s
        return self.simulated_s + self.planning_s + running

    def timed(self, replan: Any, view: View) -> Mapping[int, Placement]:
        """Plan again, on the clock."""
        self.simulated_s, self._since_s = view.t / NS_PER_S, time.perf_counter()
        placements: Mapping[int, Placement] = replan(view)
        took_s = time.perf_counter() - self._since_s
        self._since_s = None
        self.planning_s += took_s
        self.longest_s = max(self.longest_s, took_s)
        self.asked += 1
        self.plannings += bool(placements)
        return placements


def again(folder: Path, jobs: list[Job], machine: Machine, seed: int) -> dict[str, Any]:
    """What planning again takes of a run."""
    source = random.Random(seed)
    workloads = {}
    for job in jobs:
        peak_bytes = source.randint(100, 900) * MIB
        timed = paces(source, machine.usable_cores)
        workloads[job.name] = known_job(
            job.name,
            {threads: (seconds, threads * 0.98) for threads, seconds in timed.items()},
            start_up_s=3.0,
            peak_bytes=peak_bytes,
        )
    queue = FakeQueue(jobs=jobs, machine=machine, workloads=workloads)
    clock = RunClock()
    with ProfileStore.open(folder) as store:
        planned = plan_of(jobs, machine, store=store, environment={})
        world = queue.world(planned.plan, tick_ns=60 * NS_PER_S)
        with store.learner(machine, environment={}) as learner:
            replan = replanner(
                jobs,
                machine,
                store=store,
                environment={},
                learn=learner.flush,
                clock=clock.now_s,
            )
            drive(
                Queue(**{**planned.plan.policy.knobs, "learns": True}),
                world,
                watch=learner.watch,
                replan=lambda view: clock.timed(replan, view),
            )
    run_s = world.makespan_ns / NS_PER_S + clock.planning_s
    return {
        "asked": clock.asked,
        "changed": clock.plannings,
        "mean_s": clock.planning_s / max(1, clock.asked),
        "longest_s": clock.longest_s,
        "part_of_run": clock.planning_s / run_s,
        "met": clock.planning_s <= PLANNING_PART * run_s + clock.longest_s,
    }


def measure(lengths: list[int], rounds: int, seed: int) -> dict[str, Any]:
    """All figures, by cores and length."""
    figures: dict[str, Any] = {}
    for cores in CORES:
        machine = fake_machine(cores=cores)
        for length in lengths:
            jobs = fake_jobs(length)
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder) / "headway"
                cold = planning_s(place, jobs, machine, rounds)
                with ProfileStore.open(place) as store:
                    fill(store, jobs, machine, seed)
                warm = planning_s(place, jobs, machine, rounds)
                figures[f"{length} jobs, {cores} cores"] = {
                    "cold": cold,
                    "warm": warm,
                    "again": again(place, jobs, machine, seed),
                }
    return figures


def missed(figures: dict[str, Any]) -> list[str]:
    """Where a bar is missed."""
    return [
        name
        for name, each in figures.items()
        if max(each["cold"]["median_s"], each["warm"]["median_s"]) > BAR_S
        or not each["again"]["met"]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    busy = warn_of_others()
    figures = measure(arguments.jobs, arguments.rounds, arguments.seed)
    wrong = missed(figures)
    if arguments.jobs == list(LENGTHS):
        path = keep("planning", {"bar_s": BAR_S, "missed": wrong, "figures": figures}, busy)
        print(f"kept in {os.path.relpath(path)}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(figures))
        return bool(wrong)
    for name, each in figures.items():
        cold, warm, then = each["cold"], each["warm"], each["again"]
        print(
            f"{name:<20} cold {cold['median_s']:6.3f} s  warm {warm['median_s']:6.3f} s "
            f"({warm['plans']} plans, {warm['mode']})  again {then['asked']} times, "
            f"{then['mean_s'] * 1000:.1f} ms each, longest {then['longest_s'] * 1000:.0f} ms, "
            f"{then['part_of_run']:.2%} of the run"
        )
    print(f"1,000 jobs within {BAR_S:.0f} s: {'MISSED: ' + ', '.join(wrong) if wrong else 'met'}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
