"""Plans for GPUs beside the best of all ways of sharing them, in the simulator.

    python bench/gpu_sharing.py                 # a table
    python bench/gpu_sharing.py --json          # the same figures for a machine
    python bench/gpu_sharing.py --seeds 7 8     # these lists alone

A hundred lists of two to seven jobs on one or two GPUs of the catalogue, drawn with the seeds 0 to
99 (`testing.gpu_queues`), all exactly known. The plan that is chosen stands beside the best of all:
exclusive use, time-slices and MPS with two to seven jobs on a GPU, MPS with what each job's kernels
fill, and each combination of MIG layouts of the GPUs, those left whole among them. Bar: no plan
ends more than 1.05 times as late as the best. Nothing here was measured on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections import Counter
from typing import Any

from _common import busy_cores, keep
from headway.planners.gpu_sharing import sharing_plans
from headway.planning import EVERY_WAY, chosen
from headway.probes.profiles import Recall
from headway.testing.gpu_queues import complete, ends_s, every_division, gpu_queue

LISTS = 100
BAR = 1.05


def row(seed: int) -> dict[str, Any]:
    """One list: what was planned, what is best, and what exclusive use would take."""
    queue = gpu_queue(random.Random(seed))
    workloads = [queue.workloads[job.name] for job in queue.jobs]
    plain = queue.plan("partitioned")
    began_s = time.process_time()
    planned = chosen(
        queue.jobs, queue.machine, Recall(tuple(workloads), ()), ways=EVERY_WAY, environment={}
    )
    planned_s = time.process_time() - began_s
    shared = sharing_plans(plain, workloads)
    tried = [(ends_s(plan, queue), plan) for plan in (*shared, *every_division(queue, plain))]
    best_s, best = min(tried, key=lambda one: one[0])
    told = planned.choice.chosen
    return {
        "seed": seed,
        "devices": [device.name for device in queue.machine.devices],
        "jobs": len(queue.jobs),
        "way": told.plan.division.way,
        "best": best.division.way,
        "complete": complete(told),
        "ratio": told.makespan.value / best_s,
        "of_exclusive": told.makespan.value / tried[0][0],
        "tried": len(tried),
        "planning_cpu_s": round(planned_s, 2),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How far from the best, and how much sooner than with exclusive use."""
    ratios = [each["ratio"] for each in rows]
    gains = [each["of_exclusive"] for each in rows]
    return {
        "lists": len(rows),
        "worst": max(ratios),
        "median": statistics.median(ratios),
        "of_exclusive_median": statistics.median(gains),
        "of_exclusive_worst": max(gains),
        "ways": dict(Counter(each["way"] for each in rows)),
        "best": dict(Counter(each["best"] for each in rows)),
        "incomplete": sum(not each["complete"] for each in rows),
        "planning_cpu_s_most": max(each["planning_cpu_s"] for each in rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(LISTS)))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    busy = busy_cores()
    rows = []
    for seed in arguments.seeds:
        rows.append(row(seed))
        if not arguments.json:
            told = rows[-1]
            print(
                f"{seed:4d}  {len(told['devices'])} x {told['devices'][0]:<10} {told['jobs']} jobs "
                f"{told['way']:<12}{told['ratio']:.4f} of the best ({told['best']}), "
                f"{told['of_exclusive']:.2f} of exclusive, {told['planning_cpu_s']:.1f} s",
                flush=True,
            )
    figures = {"bar": BAR, "simulated": True, **summary(rows), "rows": rows}
    if arguments.seeds == list(range(LISTS)):
        path = keep("gpu-sharing", figures, busy)
        print(f"kept in {os.path.relpath(path)}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(figures))
    else:
        print({name: value for name, value in figures.items() if name != "rows"})
    return 0 if figures["worst"] <= BAR and not figures["incomplete"] else 1


if __name__ == "__main__":
    sys.exit(main())
