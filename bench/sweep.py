"""Three sweeps, each run side by side, one after another, and as people run them today.

    python bench/sweep.py --sweep a              six small perceptrons
    python bench/sweep.py --sweep b              four jobs that wait for two loader processes each
    python bench/sweep.py --sweep c              six jobs whose memory does not fit together
    python bench/sweep.py --sweep a --pairs 7    as quoted; 3 rounds are for a look
    python bench/sweep.py --sweep a --quick      one short round, to see that everything works;
                                                 its figures are not kept

A round runs each arm once, in an order that changes from round to round: `headway run`
(partitioned) twice, which gives the noise (A/A); `headway run --mode serial` with the threads that
the jobs take by themselves; and `xargs -P2` with the same, which is stopped at 2.7 times the
slowest partitioned run so far: a ratio to what was stopped reads "at most". Ratios are of makespans
(the whole command) within a round. `shared` runs once, `naive` once and at most three times as long
as serial.
Start-up (imports) and steps of the jobs are shown apart, from what the jobs print themselves.

Sweep c runs under a memory cgroup of 2 GB around the whole command, and no job states its memory.

Exit code 1 where a bar is missed, see docs/benches.md.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _arms import HEADWAY_MODES, TRAIN, Outcome, median_or_none, memory_group, run_arm
from _common import alternated, keep, paired, verdict, warn_of_others

LEAST_STEPS_S = 10.0
XARGS_CAP = 2.7
NAIVE_CAP = 3.0
NAIVE_LEAST_CAP_S = 20.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """Jobs by their arguments to bench/jobs/train.py, and what is asked of them."""

    title: str
    jobs: tuple[tuple[str, int, int], ...]
    """Kind, steps, and memory in MiB (for kind memory)."""
    bars: dict[str, float]
    """Most that partitioned may take, as a part of another arm."""
    limit_bytes: int | None = None

    @property
    def arms(self) -> list[str]:
        others = ["serial", "xargs"] if self.limit_bytes is None else ["serial"]
        return ["partitioned", *others, "again"]

    def commands(self, scale: float) -> list[str]:
        return [
            f"{sys.executable} {TRAIN} --kind {kind} --steps {max(5, round(steps * scale))} "
            f"--seed {seed}" + (f" --memory-mb {memory_mb}" if kind == "memory" else "")
            for seed, (kind, steps, memory_mb) in enumerate(self.jobs)
        ]


# Steps are counted for 10 s and more of them in the faster of one and two threads.
SWEEPS = {
    "a": Sweep("six small perceptrons", 6 * (("mlp", 15500, 0),), {"serial": 0.55, "xargs": 0.4}),
    "b": Sweep("four loader-bound jobs", 4 * (("loader", 450, 0),), {"serial": 0.7}),
    "c": Sweep(
        "six jobs under 2 GB: two of 950 MiB and four of 650",
        (
            ("memory", 140, 950),
            *2 * (("memory", 200, 650),),
            ("memory", 140, 950),
            *2 * (("memory", 200, 650),),
        ),
        {"serial": 1.0},
        limit_bytes=2_000_000_000,
    ),
}


def measure(sweep: Sweep, arguments: argparse.Namespace) -> list[list[Outcome]]:
    """All rounds; the last list holds what runs once."""
    commands = sweep.commands(arguments.scale)
    rounds = []
    for number in range(arguments.pairs):
        found = []
        for arm in alternated(sweep.arms, number):
            cap_s = None
            if arm == "xargs":
                ours = [one for done in (*rounds, found) for one in done if is_ours(one)]
                cap_s = XARGS_CAP * max(one.makespan_s for one in ours)
            found.append(run_once(sweep, arm, commands, cap_s=cap_s))
            tell(f"round {number + 1} of {arguments.pairs}, {describe(found[-1])}")
        rounds.append(found)
    if arguments.no_once:
        return [*rounds, []]
    serial_s = statistics.median(makespans(rounds, "serial"))
    once = []
    for arm, cap_s in (("shared", None), ("naive", max(NAIVE_LEAST_CAP_S, NAIVE_CAP * serial_s))):
        once.append(run_once(sweep, arm, commands, cap_s=cap_s))
        tell(f"once, {describe(once[-1])}")
    return [*rounds, once]


def run_once(
    sweep: Sweep, arm: str, commands: Sequence[str], *, cap_s: float | None = None
) -> Outcome:
    with group_of(sweep) as group:
        return run_arm(arm, commands, cap_s=cap_s, group=group)


@contextlib.contextmanager
def group_of(sweep: Sweep) -> Iterator[Path | None]:
    """A fresh group for each arm: what one leaves in the page cache is not charged to the next."""
    if sweep.limit_bytes is None:
        yield None
    else:
        with memory_group(sweep.limit_bytes) as group:
            yield group


def is_ours(outcome: Outcome) -> bool:
    return outcome.arm in ("partitioned", "again")


def makespans(rounds: Sequence[Sequence[Outcome]], arm: str) -> list[float]:
    return [one.makespan_s for found in rounds for one in found if one.arm == arm]


def describe(outcome: Outcome) -> str:
    words = [f"{outcome.arm}: {outcome.makespan_s:.1f} s"]
    if outcome.capped:
        words.append(f"STOPPED there with {outcome.part_done:.0%} of the steps made")
    if outcome.steps_s:
        start_up_s, steps_s = map(statistics.median, (outcome.start_up_s, outcome.steps_s))
        words.append(f"a job: start-up {start_up_s:.1f} s, steps {steps_s:.1f} s")
    bad = {status: count for status, count in outcome.statuses.items() if status != "ok"}
    words += [f"{count} {status}" for status, count in bad.items()]
    if outcome.oom_kills or outcome.gave_way:
        words.append(f"{outcome.oom_kills} out of memory, {outcome.gave_way} gave way")
    return ", ".join(words)


def figures(sweep: Sweep, rounds: Sequence[Sequence[Outcome]]) -> dict[str, Any]:
    """Medians of each arm, paired ratios with their intervals, and whether the bars are met."""
    *pairs, once = rounds
    ours = makespans(pairs, "partitioned")
    ratios = {f"partitioned / {arm}": paired(ours, makespans(pairs, arm)) for arm in sweep.arms[1:]}
    verdicts = {
        f"partitioned / {arm} <= {bar}": verdict(
            ratios[f"partitioned / {arm}"], ratios["partitioned / again"], bar
        )
        for arm, bar in sweep.bars.items()
    }
    watched = [one for found in pairs for one in found if is_ours(one)]
    if sweep.limit_bytes is not None:
        kills = sum(one.oom_kills for one in watched)
        verdicts["no out-of-memory"] = "met" if kills == 0 else f"MISSED ({kills})"
    unfinished = [one for one in watched if set(one.statuses) != {"ok"}]
    verdicts["all jobs ok"] = f"MISSED ({len(unfinished)} runs)" if unfinished else "met"
    return {
        "title": sweep.title,
        "arms": {arm: arm_figures(pairs, arm) for arm in sweep.arms},
        "ratios": ratios,
        "verdicts": verdicts,
        "once": [one.as_dict() for one in once],
        "rounds": [[one.as_dict() for one in found] for found in pairs],
    }


def arm_figures(rounds: Sequence[Sequence[Outcome]], arm: str) -> dict[str, Any]:
    found = [one for outcomes in rounds for one in outcomes if one.arm == arm]
    start_up_s = [value for one in found for value in one.start_up_s]
    steps_s = [value for one in found for value in one.steps_s]
    return {
        "makespan_s": statistics.median(one.makespan_s for one in found),
        "stopped": sum(one.capped for one in found),
        "part_done": statistics.median(one.part_done for one in found),
        "job_start_up_s": median_or_none(start_up_s),
        "job_steps_s": median_or_none(steps_s),
        "shortest_steps_s": min(steps_s, default=None),
        "jobs_at_once": HEADWAY_MODES.get(arm, 2),
    }


def show(name: str, result: dict[str, Any]) -> None:
    print(f"\nsweep {name}, {result['title']}; medians")
    print(f"{'':14}{'makespan':>10}{'start-up':>10}{'steps':>8}   of a job")
    for arm, found in result["arms"].items():
        title = "partitioned, A/A" if arm == "again" else arm
        times = (found["makespan_s"], found["job_start_up_s"], found["job_steps_s"])
        shown = [f"{value:.1f} s" if value is not None else "-" for value in times]
        line = f"{title:16}{shown[0]:>8}{shown[1]:>10}{shown[2]:>8}"
        if found["stopped"]:
            line += f"   stopped in {found['stopped']} rounds, {found['part_done']:.0%} done"
        print(line)
    for one in result["once"]:
        more = "more than " if one["capped"] else ""
        bad = {status: n for status, n in one["statuses"].items() if status != "ok"}
        ended = ", ".join(f"{n} {status}" for status, n in bad.items())
        print(f"{one['arm']:16}{more}{one['makespan_s']:.1f} s, once{'; ' if ended else ''}{ended}")
    print()
    for what, ratio in result["ratios"].items():
        label = what.replace("again", "partitioned (A/A)")
        at_most = "at most " if result["arms"][what.split(" / ")[1]]["stopped"] else ""
        print(
            f"{label}: {at_most}{ratio['median']:.3f} (90% {ratio['low']:.3f} to "
            f"{ratio['high']:.3f}, {ratio['count']} pairs)"
        )
    for what, state in result["verdicts"].items():
        print(f"{what}: {state}")


def too_short(result: dict[str, Any]) -> bool:
    """Whether a job had less than 10 s of steps, so that start-up decides more than it should."""
    shortest = [found["shortest_steps_s"] for found in result["arms"].values()]
    return any(one is not None and one < LEAST_STEPS_S for one in shortest)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweep", choices=SWEEPS, default="a")
    parser.add_argument("--pairs", type=int, default=3, help="rounds; 7 for a figure to quote")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of steps")
    parser.add_argument("--no-once", action="store_true", help="leave out shared and naive")
    parser.add_argument("--quick", action="store_true", help="one round with a fiftieth of steps")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error(f"--pairs {arguments.pairs}: give a number of at least 1")
    if arguments.quick:
        arguments.pairs, arguments.scale = 1, 0.02
    return arguments


def main() -> int:
    arguments = parse()
    # Whoever ends us ends what we started too: an exception passes through `run_arm`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    busy = warn_of_others()
    sweep = SWEEPS[arguments.sweep]
    result = figures(sweep, measure(sweep, arguments))
    if not arguments.quick and too_short(result):
        tell(f"warning: a job had less than {LEAST_STEPS_S:.0f} s of steps; raise --scale")
    if not arguments.quick:
        tell(f"kept in {os.path.relpath(keep(f'sweep-{arguments.sweep}', result, busy))}")
    if arguments.json:
        print(json.dumps(result))
    else:
        show(arguments.sweep, result)
    missed = [state for state in result["verdicts"].values() if state.startswith("MISSED")]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
