"""Jobs side by side on devices, by need or by count: kills for memory, and makespans.

    python bench/guided_packing.py                # a table
    python bench/guided_packing.py --json         # the same figures for a machine
    python bench/guided_packing.py --seeds 100    # fewer mixes

Two kinds of random mixes on 4 devices, in simulated time without interference (demands that come to
more than a device slow all on it alike; otherwise nobody slows anybody):

    light    64 jobs of 0.5 to 10 GiB on devices of 16 GiB, each keeping 0.1 to 0.6 of one busy
    any      3 to 64 jobs, on devices of 16 or 80 GiB, keeping from little to all of one busy

What is predicted of a job's memory is up to 10% too high and up to 3% too low; its demand is
predicted right. Nobody is told how long a job takes. Each mix goes through every arm:

    guided      memory is hard; the least busy device that is not fully busy yet
    unlimited   the same without that limit: the paper's policy to the letter
    precise     memory and demand are hard
    ratio       4 jobs on each device, whatever they need; a job that is killed is lost
    single      one job on each device

A makespan of ratio is that of the jobs that were left. Bars: no kill under guided and precise in
any mix, kills under ratio in most light ones; a median makespan of guided / single of 0.65 or less
on light mixes; and on no mix does guided or precise end later than single by more than its longest
job. Mixes on which an arm ends later than single at all are counted, and the worst are named.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from _common import busy_cores, keep, spread
from headway.core.units import GIB
from headway.core.words import Exited
from headway.planners.guided_packing import GuidedPacking
from headway.sim.world import SimulatedWorld
from headway.testing.mixes import Mix, device_mix

ARMS = {
    "guided": GuidedPacking(),
    "unlimited": GuidedPacking(full_load=None),
    "precise": GuidedPacking(rule="precise"),
    "ratio": GuidedPacking(rule="ratio", oom_retries=0),
    "single": GuidedPacking(rule="single"),
}
BAR = 0.65
MOST_LATER = 1.0
NAMED = 5

Figures = dict[str, Any]


def any_mix(seed: int) -> Mix:
    source = random.Random(seed)
    return device_mix(
        seed,
        jobs=source.choice([3, 6, 10, 20, 40, 64]),
        device_bytes=source.choice([16, 80]) * GIB,
        parts=source.choice([(0.1, 0.2), (0.1, 0.5), (0.1, 1.0), (0.9, 1.0)]),
        large=source.choice([0.0, 0.3, 1.0]),
    )


MIXES: dict[str, Callable[[int], Mix]] = {"light": device_mix, "any": any_mix}


@dataclass(frozen=True)
class Result:
    """One mix under one arm; `later` is against single, in lengths of the longest job."""

    kills: int
    ratio: float
    later: float


def kills(world: SimulatedWorld) -> int:
    return sum(isinstance(word, Exited) and word.outcome.status == "oom" for _, word in world.words)


def through_all(mix: Mix) -> dict[str, Result]:
    worlds = {arm: mix.run(policy) for arm, policy in ARMS.items()}
    single_ns, longest_ns = worlds["single"].makespan_ns, max(mix.durations_ns)
    return {
        arm: Result(
            kills(world),
            world.makespan_ns / single_ns,
            (world.makespan_ns - single_ns) / longest_ns,
        )
        for arm, world in worlds.items()
    }


def figures_of(results: list[dict[str, Result]]) -> Figures:
    figures = {}
    for arm in ARMS:
        own = [result[arm] for result in results]
        worst = sorted(range(len(own)), key=lambda seed: -own[seed].later)
        losing = [seed for seed in worst if own[seed].later > 0]
        figures[arm] = {
            "kills": sum(one.kills for one in own),
            "mixes_with_kills": sum(one.kills > 0 for one in own),
            "makespan_over_single": spread([one.ratio for one in own]),
            "worst_ratio": max(one.ratio for one in own),
            "most_later_in_jobs": max(one.later for one in own),
            "mixes_later_than_single": len(losing),
            "worst_mixes": [
                {"seed": seed, "ratio": own[seed].ratio, "later_in_jobs": own[seed].later}
                for seed in losing[:NAMED]
            ],
        }
    return figures


def verdicts(figures: Figures, seeds: int) -> dict[str, bool]:
    light, whatever = figures["light"], figures["any"]
    guided = ("guided", "precise")
    return {
        "no kill under guided and precise": not any(
            mixes[arm]["kills"] for mixes in (light, whatever) for arm in guided
        ),
        "kills under ratio in most light mixes": light["ratio"]["mixes_with_kills"] > seeds / 2,
        f"guided / single <= {BAR} on light mixes": (
            light["guided"]["makespan_over_single"]["median"] <= BAR
        ),
        "never later than single by more than the longest job": all(
            mixes[arm]["most_later_in_jobs"] <= MOST_LATER
            for mixes in (light, whatever)
            for arm in guided
        ),
    }


def show(figures: Figures) -> None:
    for kind in MIXES:
        print(f"{kind} mixes")
        print("  arm        kills  mixes  / single (90%)          worst  later, most (jobs)  mixes")
        for arm, own in figures[kind].items():
            ratio = own["makespan_over_single"]
            print(
                f"  {arm:<9} {own['kills']:>6} {own['mixes_with_kills']:>6}"
                f"  {ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
                f"  {own['worst_ratio']:>6.3f}  {own['most_later_in_jobs']:>18.2f}"
                f"  {own['mixes_later_than_single']:>5}"
            )
        for arm, own in figures[kind].items():
            for case in own["worst_mixes"]:
                print(
                    f"    {arm}, seed {case['seed']}: {case['ratio']:.3f} of single, "
                    f"{case['later_in_jobs']:.2f} longest jobs later"
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000, help="mixes of each kind")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    busy = busy_cores()
    began_s = time.monotonic()
    figures: Figures = {
        kind: figures_of([through_all(make(seed)) for seed in range(args.seeds)])
        for kind, make in MIXES.items()
    }
    parts = [
        workload.device_part.value
        for seed in range(min(args.seeds, 20))
        for workload in device_mix(seed).predicted
        if workload.device_part is not None
    ]
    met = verdicts(figures, args.seeds)
    figures |= {
        "seeds": args.seeds,
        "mean_demand_of_light_mixes": statistics.fmean(parts),
        "took_s": time.monotonic() - began_s,
        "bars": met,
    }
    path = keep("guided-packing", figures, busy)
    if args.json:
        print(json.dumps(figures))
    else:
        show(figures)
        for bar, holds in met.items():
            print(f"{'met' if holds else 'MISSED'}: {bar}")
        print(f"kept in {path}")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
