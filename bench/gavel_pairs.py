"""Share or not, on measured pairs of jobs on a GPU: what is kept of an oracle's throughput.

    python bench/gavel_pairs.py                # a table
    python bench/gavel_pairs.py --json         # the same figures for a machine

Needs the data sets in $HEADWAY_DATA: traces/gavel, from github.com/stanford-futuredata/gavel,
scheduler/simulation_throughputs.json and scheduler/physical_cluster_throughputs.json, gzipped. Each
has steps per second of 26 job types alone and of 306 to 340 pairs of them on a K80, P100 and V100.
The pairs are the same in both. The job types alone were measured again for the second: 0.9 to 1.25
times as fast, but five (Recommendation) 1.5 to 12 times, their pairs as before. So the second says
little of what sharing gives, and stands here for jobs that lose much by it. A pair of zeros did not
fit or was not run: whether jobs fit is no question of throughput, so such pairs are left out.

Throughput is in solo speeds added up: 1.0 for one after another, rate/solo + rate/solo for sharing.
Each pair has as much to do as any other and comes once, in an order drawn with the seed, so no pair
is known from before: what helps is only that its job types have been seen beside others. For each
pair the oracle takes the better of the two; a policy gets what it chose, less 2% of that where it
made a trial. What it keeps is its sum over the oracle's. The policies:

    ours           a trial where it is worth its cost; learns from trials alone
    ours, alike    the same where both rates of a trial are off by the same factor
    ours, runs     learns also from pairs that share without a trial, read in the same way
    prior only     no trial: shares by what it believes, learns from pairs that share
    always try     a trial for each pair, then as ours
    always share, never share

A trial reads the two rates, each off by its own normally distributed 5%; no policy sees a true
rate. All begin knowing nothing, with the same settings for every GPU. One of the settings was taken
from these pairs themselves: how far what is not known of two rates is alike (`ALIKE`). Bar: ours
keeps 97% in the worst seed on each GPU of each file.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _common import busy_cores, keep
from headway.costs.pair_coefficients import PairCoefficients
from headway.costs.sharing_trial import APART, Outlook, Trial, decide

PLACE = Path("traces", "gavel")
FILES = ("simulation", "physical_cluster")
GPUS = ("k80", "p100", "v100")
SAME_FOR_ALL = {"always try": "try", "always share": "share", "never share": "apart"}
LEARN_FROM_RUNS = ("ours, runs", "prior only")
POLICIES = ("ours", "ours, alike", *LEARN_FROM_RUNS, *SAME_FOR_ALL)
BAR = 0.97
NOISE = 0.05
TRIAL = Trial(cost=0.02, noise=NOISE)
# Without coefficients two jobs that take turns on a GPU go at half their speed.
PREDICTED = 0.5
# A job beside another may be nearly stopped, and no faster than alone by more than a reading's
# noise; before anything is known, a rate of 0.3 to 0.8 (two in three).
NOTHING_KNOWN = PairCoefficients(low=0.05, high=1.1 / PREDICTED, prior_spread=0.5, noise=NOISE)


Figures = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """Two job types that shared a GPU, with their true rates relative to solo."""

    kinds: tuple[str, str]
    rates: tuple[float, float]

    @property
    def shared(self) -> float:
        return sum(self.rates)

    @property
    def best(self) -> float:
        return max(self.shared, APART)


@dataclass(frozen=True)
class Outcome:
    """What a policy and the oracle got of a stream of pairs, and how many of them it tried."""

    got: float
    best: float
    trials: int
    pairs: int

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.got + other.got,
            self.best + other.best,
            self.trials + other.trials,
            self.pairs + other.pairs,
        )


def read_pairs(folder: Path, file: str, gpu: str) -> list[Pair]:
    """The distinct pairs of one-GPU jobs that were run on a GPU, in alphabetical order."""
    with gzip.open(folder / PLACE / f"{file}_throughputs.json.gz", "rt") as stream:
        table: dict[str, dict[str, Any]] = json.load(stream)[gpu]
    pairs = []
    for one, row in sorted(table.items()):
        for other, rates in sorted(row.items()):
            if other != "null" and one <= other and any(rates):
                alone = row["null"], table[other]["null"]
                relative = rates[0] / alone[0], rates[1] / alone[1]
                pairs.append(Pair((one, other), relative))
    return pairs


class Stream:
    """Pairs that come one after another, met by one policy."""

    def __init__(self, pairs: list[Pair], policy: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pairs = self.rng.sample(pairs, len(pairs))
        self.policy = policy
        self.known = NOTHING_KNOWN

    def run(self) -> Outcome:
        """The whole stream."""
        got, trials = 0.0, 0
        for pair in self.pairs:
            choice = self.first(pair)
            tried = choice == "try"
            if tried:
                self.read(pair)
                choice = decide(self.outlook(pair)).choice
            elif choice == "share" and self.policy in LEARN_FROM_RUNS:
                self.read(pair)
            got += (pair.shared if choice == "share" else APART) * (1 - TRIAL.cost * tried)
            trials += tried
        return Outcome(got, sum(pair.best for pair in self.pairs), trials, len(self.pairs))

    def first(self, pair: Pair) -> str:
        """What the policy does with a pair before it runs."""
        if self.policy in SAME_FOR_ALL:
            return SAME_FOR_ALL[self.policy]
        outlook = self.outlook(pair)
        return (decide if self.policy == "prior only" else TRIAL.advise)(outlook).choice

    def outlook(self, pair: Pair) -> Outlook:
        return Outlook.of(pair.kinds, (PREDICTED, PREDICTED), self.known)

    def read(self, pair: Pair) -> None:
        """Learn from the pair running side by side, read with noise."""
        errors = [self.rng.gauss(1, NOISE) for _ in pair.rates]
        if self.policy == "ours, alike":
            errors[1] = errors[0]
        readings = [max(0.0, rate * error) for rate, error in zip(pair.rates, errors, strict=True)]
        self.known = self.known.observed(pair.kinds, [each / PREDICTED for each in readings])


def measure(folder: Path, file: str, seeds: int, policies: Sequence[str]) -> Figures:
    """For each GPU of a file and all together, what each policy kept: median and worst seed."""
    pairs = {gpu: read_pairs(folder, file, gpu) for gpu in GPUS}
    outcomes = {
        (gpu, policy): [Stream(pairs[gpu], policy, seed).run() for seed in range(seeds)]
        for gpu in GPUS
        for policy in policies
    }
    for policy in policies:
        by_seed = zip(*(outcomes[gpu, policy] for gpu in GPUS), strict=True)
        outcomes["all", policy] = [sum(rest, first) for first, *rest in by_seed]
    return {
        gpu: {
            "pairs": outcomes[gpu, policies[0]][0].pairs,
            "oracle": outcomes[gpu, policies[0]][0].best / outcomes[gpu, policies[0]][0].pairs,
            "kept": {policy: summary(outcomes[gpu, policy]) for policy in policies},
        }
        for gpu in (*GPUS, "all")
    }


def summary(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Shares of the oracle's throughput over the seeds, and the median share of pairs tried."""
    kept = [outcome.got / outcome.best for outcome in outcomes]
    return {
        "median": statistics.median(kept),
        "worst": min(kept),
        "tried": statistics.median(outcome.trials / outcome.pairs for outcome in outcomes),
    }


def met(figures: Figures) -> bool:
    """Whether ours kept enough in its worst seed on each GPU."""
    return all(figures[gpu]["kept"]["ours"]["worst"] >= BAR for gpu in GPUS)


def show(file: str, figures: Figures) -> None:
    """The table of one file."""
    print(f"{file}: kept of the oracle's throughput, median (worst seed), pairs tried")
    print(" " * 13, *(f"{gpu} ({figures[gpu]['pairs']} pairs)".rjust(27) for gpu in figures))
    print("oracle".ljust(13), *(f"{figures[gpu]['oracle']:.3f}".rjust(27) for gpu in figures))
    for policy in POLICIES:
        cells = [figures[gpu]["kept"][policy] for gpu in figures]
        texts = [f"{c['median']:.2%} ({c['worst']:.2%}) {c['tried']:.0%}" for c in cells]
        print(policy.ljust(13), *(text.rjust(27) for text in texts))
    print(f"ours keeps {BAR:.0%} in every seed on each GPU: {'met' if met(figures) else 'MISSED'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if "HEADWAY_DATA" not in os.environ:
        print("set HEADWAY_DATA to the folder of the data sets, see --help", file=sys.stderr)
        return 2
    folder = Path(os.environ["HEADWAY_DATA"])
    if not (folder / PLACE).is_dir():
        print(f"HEADWAY_DATA is {folder}, which has no {PLACE}; see --help", file=sys.stderr)
        return 2
    busy = busy_cores()
    result = {file: measure(folder, file, arguments.seeds, tuple(POLICIES)) for file in FILES}
    path = keep("gavel-pairs", {"seeds": arguments.seeds, "bar": BAR, "figures": result}, busy)
    print(f"kept in {os.path.relpath(path)}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(result))
    else:
        for file, figures in result.items():
            show(file, figures)
    return 0 if all(map(met, result.values())) else 1


if __name__ == "__main__":
    sys.exit(main())
