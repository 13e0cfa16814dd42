"""Sweeps, run as Headway chooses, in each fixed mode, and as people run them today.

    python bench/sweep.py --sweep a              six small perceptrons
    python bench/sweep.py --sweep b              a wide job among four small ones
    python bench/sweep.py --sweep c              four LSTMs of equal length
    python bench/sweep.py --sweep d              four jobs that wait for two loader processes each
    python bench/sweep.py --sweep e              six jobs whose memory does not fit together
    python bench/sweep.py --sweep f              a long wide job and two small ones, all known
    python bench/sweep.py --sweep a --pairs 7    as quoted; 3 rounds are for a look
    python bench/sweep.py --sweep a --quick      one short round, to see that everything works;
                                                 its figures are not kept

A round runs each arm once, in an order that changes from round to round: `headway run` as it comes
(auto) twice, which gives the noise (A/A), and with `--mode serial` and partitioned. Serial leaves
jobs the threads that they take by themselves. The first round ends with `--mode shared`, with
`xargs -P2`, without a thread count too, which is stopped at 2.7 times the slowest of auto and
partitioned so far, and with `--mode naive`, stopped at three times serial: a ratio to what was
stopped reads "at most". `--every` runs these three in every round. Ratios are of makespans (the
whole command) within a round. Start-up (imports) and steps of the jobs are shown apart, from what
the jobs print themselves.

In sweeps a to e nobody knows the jobs: each arm begins with an empty profile store. In sweep f each
job has run alone with one thread and with two before, and each arm has a copy of what that taught.
Sweeps b and c also run a job alone with one thread and with two in every round: what a second
thread is worth bounds what sharing can gain. Sweep e runs under a memory cgroup of 2 GB around the
whole command, and no job states its memory.

Exit code 1 where a bar is missed, see docs/benches.md.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from _arms import THREADS_ALONE, Outcome, median_or_none, memory_group, run_arm
from _bars import Round, makespans, ratio_of, together
from _common import alternated, keep, spread, warn_of_others
from _sweeps import SWEEPS, Sweep
from _warm import learn_balanced, wide_by_others

LEAST_STEPS_S = 10.0
XARGS_CAP = 2.7
NAIVE_CAP = 3.0
NAIVE_LEAST_CAP_S = 20.0

ONCE = ("shared", "xargs", "naive")
OURS = ("auto", "again", "partitioned")
"""The arms whose jobs must all end well."""


def measure(sweep: Sweep, arguments: argparse.Namespace, store: Path | None) -> list[Round]:
    """What came of each arm in all rounds."""
    rounds: list[Round] = []
    for number in range(arguments.pairs):
        found: Round = {}
        rounds.append(found)
        for arm in order_of(sweep, number, arguments):
            found[arm] = run_once(sweep, arm, cap_s=cap_of(arm, rounds), store=store)
            tell(f"round {number + 1} of {arguments.pairs}, {describe(found[arm])}")
    return rounds


def order_of(sweep: Sweep, number: int, arguments: argparse.Namespace) -> list[str]:
    """The arms of a round; in the first one those with a cap come last, when it is known."""
    if arguments.no_once or (number and not arguments.every):
        return alternated(sweep.arms, number)
    return alternated([*sweep.arms, *ONCE], number)


def cap_of(arm: str, rounds: Sequence[Round]) -> float | None:
    if arm == "xargs":
        return XARGS_CAP * max(time_s for one in OURS for time_s in makespans(rounds, one))
    if arm == "naive":
        return max(NAIVE_LEAST_CAP_S, NAIVE_CAP * statistics.median(makespans(rounds, "serial")))
    return None


def run_once(sweep: Sweep, arm: str, *, cap_s: float | None, store: Path | None) -> Outcome:
    with group_of(sweep) as group, copy_of(store) as state:
        return run_arm(arm, sweep.commands(arm), cap_s=cap_s, group=group, state=state)


@contextlib.contextmanager
def group_of(sweep: Sweep) -> Iterator[Path | None]:
    """A fresh group for each arm: what one leaves in the page cache is not charged to the next."""
    if sweep.limit_bytes is None:
        yield None
    else:
        with memory_group(sweep.limit_bytes) as group:
            yield group


@contextlib.contextmanager
def copy_of(store: Path | None) -> Iterator[Path | None]:
    """What was learnt before, for one arm: nothing learnt in it tells the next."""
    if store is None:
        yield None
    else:
        with tempfile.TemporaryDirectory(prefix="headway-state-") as place:
            yield Path(shutil.copytree(store, Path(place) / "state"))


def describe(outcome: Outcome) -> str:
    words = [f"{outcome.arm}: {outcome.makespan_s:.1f} s"]
    if outcome.mode not in ("", outcome.arm):
        words.append(outcome.mode)
    if outcome.capped:
        words.append(f"STOPPED there with {outcome.part_done:.0%} of the steps made")
    if outcome.steps_s:
        start_up_s, steps_s = map(statistics.median, (outcome.start_up_s, outcome.steps_s))
        words.append(f"a job: start-up {start_up_s:.1f} s, steps {steps_s:.1f} s")
    words += troubles(outcome)
    if outcome.oom_kills or outcome.gave_way:
        words.append(f"{outcome.oom_kills} out of memory, {outcome.gave_way} gave way")
    return ", ".join(words)


def troubles(outcome: Outcome) -> list[str]:
    return [f"{count} {status}" for status, count in outcome.statuses.items() if status != "ok"]


def figures(sweep: Sweep, rounds: Sequence[Round]) -> dict[str, Any]:
    """Medians of each arm, paired ratios with their intervals, and whether the bars are met."""
    others = [arm for arm in rounds[0] if arm != "auto" and arm not in THREADS_ALONE]
    wanted = [("auto", arm) for arm in others]
    wanted += [(bar.arm, *bar.against) for bar in sweep.bars if bar.arm != "auto"]
    ratios = {
        f"{arm} / {other}": ratio_of(rounds, arm, other)
        for arm, other in wanted
        if together(rounds, arm, other)
    }
    alone = alone_figures(rounds)
    verdicts = {bar.label: bar.judge(rounds) for bar in sweep.bars}
    if sweep.least_worth is not None and alone is not None:
        met = alone["second_thread"]["median"] >= sweep.least_worth
        verdicts[f"a second thread is worth >= {sweep.least_worth}"] = "met" if met else "MISSED"
    return {
        "title": sweep.title,
        "jobs": [job._asdict() for job in sweep.jobs],
        "arms": {arm: arm_figures(rounds, arm) for arm in rounds[0]},
        "ratios": ratios,
        "alone": alone,
        "verdicts": verdicts | troubles_of_ours(sweep, rounds),
        "rounds": [[one.as_dict() for one in found.values()] for found in rounds],
    }


def troubles_of_ours(sweep: Sweep, rounds: Sequence[Round]) -> dict[str, str]:
    watched = [found[arm] for found in rounds for arm in OURS]
    verdicts = {}
    if sweep.limit_bytes is not None:
        kills = sum(one.oom_kills for one in watched)
        verdicts["no out-of-memory"] = "met" if kills == 0 else f"MISSED ({kills})"
    unfinished = [one for one in watched if set(one.statuses) != {"ok"}]
    verdicts["all jobs ok"] = f"MISSED ({len(unfinished)} runs)" if unfinished else "met"
    return verdicts


def alone_figures(rounds: Sequence[Round]) -> dict[str, Any] | None:
    """What a second thread is worth to a job, and how little two at once can take for its like.

    Jobs of equal length take T1/2 each where two run at once with one thread, and T2 each one after
    another with two: the limit of the ratio is T1 / (2 T2). It is given for the job as it is, and
    for its steps alone: the longer the job, the less its start-up counts.
    """
    pairs = [pair for pair in together(rounds, *THREADS_ALONE) if all(one.sound for one in pair)]
    if not pairs:
        return None
    jobs_s = [[one.jobs_s[0] for one in pair] for pair in pairs]
    steps_s = [[one.steps_s[0] for one in pair] for pair in pairs]
    return {
        "one_thread_s": statistics.median(one for one, _ in jobs_s),
        "two_threads_s": statistics.median(two for _, two in jobs_s),
        "second_thread": spread([one / two for one, two in steps_s]),
        "limit": spread([one / (2 * two) for one, two in jobs_s]),
        "limit_of_steps": spread([one / (2 * two) for one, two in steps_s]),
    }


def arm_figures(rounds: Sequence[Round], arm: str) -> dict[str, Any]:
    found = [outcomes[arm] for outcomes in rounds if arm in outcomes]
    start_up_s = [value for one in found for value in one.start_up_s]
    steps_s = [value for one in found for value in one.steps_s]
    return {
        "makespan_s": statistics.median(one.makespan_s for one in found),
        "runs": len(found),
        "modes": sorted({one.mode for one in found if one.mode}),
        "stopped": sum(one.capped for one in found),
        "troubles": sorted({words for one in found for words in troubles(one)}),
        "oom_kills": sum(one.oom_kills for one in found),
        "part_done": statistics.median(one.part_done for one in found),
        "job_start_up_s": median_or_none(start_up_s),
        "job_steps_s": median_or_none(steps_s),
        "shortest_steps_s": min(steps_s, default=None),
    }


def show(name: str, result: dict[str, Any]) -> None:
    print(f"\nsweep {name}, {result['title']}; medians")
    print(f"{'':14}{'makespan':>10}{'start-up':>10}{'steps':>8}   of a job")
    for arm, found in result["arms"].items():
        print(line_of(arm, found, rounds=len(result["rounds"])))
    print()
    show_known(result)
    for what, ratio in result["ratios"].items():
        label = what.replace("again", "auto (A/A)")
        other = result["arms"][what.split(" / ")[1]]
        at_most = "at most " if other["stopped"] else ""
        broken = ", but not all its jobs ended well" if other["troubles"] and not at_most else ""
        print(f"{label}: {at_most}{in_words(ratio)}{broken}")
    for what, state in result["verdicts"].items():
        print(f"{what}: {state}")


def line_of(arm: str, found: dict[str, Any], *, rounds: int) -> str:
    title = "auto, A/A" if arm == "again" else arm
    times = (found["makespan_s"], found["job_start_up_s"], found["job_steps_s"])
    shown = [f"{value:.1f} s" if value is not None else "-" for value in times]
    words = [mode for mode in found["modes"] if mode != arm and arm not in THREADS_ALONE]
    words += [f"in {found['runs']} of {rounds} rounds"] if found["runs"] < rounds else []
    if found["stopped"]:
        words.append(f"stopped in {found['stopped']} rounds, {found['part_done']:.0%} done")
    words += found["troubles"]
    words += [f"{found['oom_kills']} out of memory"] if found["oom_kills"] else []
    return f"{title:16}{shown[0]:>8}{shown[1]:>10}{shown[2]:>8}   {', '.join(words)}".rstrip()


def show_known(result: dict[str, Any]) -> None:
    """What jobs take alone, where that was measured."""
    alone, known = result["alone"], result.get("known")
    if alone is not None:
        print(
            f"alone: T1 {alone['one_thread_s']:.1f} s with one thread, T2 "
            f"{alone['two_threads_s']:.1f} s with two; a second thread is worth "
            f"{in_words(alone['second_thread'])} to its steps"
        )
        print(
            f"limit of two at once, T1 / (2 T2): {in_words(alone['limit'])}; of steps alone "
            f"{alone['limit_of_steps']['median']:.3f}"
        )
    if known is not None:
        for job in known["jobs"]:
            took = ", ".join(f"{time_s:.1f} s with {n}" for n, time_s in job["alone_s"].items())
            print(f"known before: {job['kind']}, {job['steps']:,} steps: {took} threads")
        again = known["wide_by_others_serial"]
        print(
            f"wide / the others one after another, two threads: {known['wide_by_others']:.2f} when "
            f"learnt, {'not known' if again is None else f'{again:.2f}'} in the serial arm"
        )


def in_words(ratio: dict[str, float]) -> str:
    return (
        f"{ratio['median']:.3f} (90% {ratio['low']:.3f} to {ratio['high']:.3f}, "
        f"{ratio['count']} pairs)"
    )


def too_short(result: dict[str, Any]) -> bool:
    """Whether a job had less than 10 s of steps, so that start-up decides more than it should."""
    shortest = [
        found["shortest_steps_s"]
        for arm, found in result["arms"].items()
        if arm not in THREADS_ALONE
    ]
    return any(one is not None and one < LEAST_STEPS_S for one in shortest)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_sweep(sweep: Sweep, arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of a sweep; of one whose jobs are known, what they took alone too."""
    if sweep.wide_times is None:
        return figures(sweep, measure(sweep, arguments, None))
    with tempfile.TemporaryDirectory(prefix="headway-known-") as place:
        tell("how long the jobs take alone, with one thread and with two")
        jobs, known, state = learn_balanced(sweep.jobs, sweep.wide_times, Path(place))
        sweep = replace(sweep, jobs=jobs)
        rounds = measure(sweep, arguments, state)
    return {**figures(sweep, rounds), "known": known_figures(sweep, known, rounds)}


def known_figures(
    sweep: Sweep, jobs: list[dict[str, Any]], rounds: Sequence[Round]
) -> dict[str, Any]:
    serial = [found["serial"] for found in rounds]
    return {
        "jobs": jobs,
        "wide_by_others": wide_by_others(sweep.jobs, [job["alone_s"][2] for job in jobs]),
        "wide_by_others_serial": median_or_none(
            [wide_by_others(sweep.jobs, one.jobs_s) for one in serial if one.sound]
        ),
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweep", choices=SWEEPS, default="a")
    parser.add_argument("--pairs", type=int, default=3, help="rounds; 7 for a figure to quote")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of steps")
    parser.add_argument("--every", action="store_true", help="xargs and naive in every round")
    parser.add_argument("--no-once", action="store_true", help="leave out xargs and naive")
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
    result = run_sweep(SWEEPS[arguments.sweep].scaled(arguments.scale), arguments)
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
