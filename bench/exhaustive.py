"""The plan beside the best of all ways to run a list: how much longer does it take?

    python bench/exhaustive.py                 # a table
    python bench/exhaustive.py --json          # the same figures for a machine
    python bench/exhaustive.py --seeds 7 8     # these lists alone

A hundred lists of two to seven jobs, drawn with the seeds 0 to 99, as `testing.queues.known_queue`
says, all exactly known. The plan that is chosen is carried out in the simulated world under its own
policy. Beside it stands the best of all fixed modes and of all that `testing.exhaustive` searches,
simulated too. Bar: no plan takes more than 1.05 times as long as the best.
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
from headway.testing.exhaustive import compare
from headway.testing.queues import known_queue

LISTS = 100
BAR = 1.05
MARKS = (1.0, 1.01, 1.02, 1.05)
# The searches' clock counts in s, the simulator in ns: more than this part apart is a fault.
NEAR = 1e-6


def row(seed: int) -> dict[str, Any]:
    """One list: what was planned, what is best, and how far apart they are."""
    queue = known_queue(random.Random(seed))
    start_s = time.process_time()
    compared = compare(queue)
    return {
        "seed": seed,
        "cores": queue.machine.usable_cores,
        "jobs": len(queue.jobs),
        "mode": compared.plan.plan.mode,
        "best": compared.best,
        "ratio": compared.ratio,
        "off": abs(compared.off_by_s) / compared.best_s,
        "cpu_s": round(time.process_time() - start_s, 2),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The distribution of the ratios."""
    ratios = [each["ratio"] for each in rows]
    return {
        "lists": len(rows),
        "worst": max(ratios),
        "median": statistics.median(ratios),
        "mean": statistics.fmean(ratios),
        "above": {str(mark): sum(ratio > mark * (1 + NEAR) for ratio in ratios) for mark in MARKS},
        "modes": dict(Counter(each["mode"] for each in rows)),
        "best": dict(Counter(each["best"] for each in rows)),
        "clock_off": max(each["off"] for each in rows),
        "cpu_s": round(sum(each["cpu_s"] for each in rows), 1),
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
                f"{seed:4d}  {told['cores']} cores {told['jobs']} jobs  {told['mode']:<12}"
                f"{told['ratio']:.4f}  best: {told['best']:<24}{told['cpu_s']:6.2f} s",
                flush=True,
            )
    figures = {"bar": BAR, **summary(rows), "rows": rows}
    if arguments.seeds == list(range(LISTS)):
        path = keep("exhaustive", figures, busy)
        print(f"kept in {os.path.relpath(path)}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(figures))
    else:
        print({name: value for name, value in figures.items() if name != "rows"})
    met = figures["worst"] <= BAR and figures["clock_off"] <= NEAR
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
