"""Whether the report's figures of jobs beside each other agree with what the jobs print themselves.

    python bench/common_window.py                5 rounds, about 8 minutes
    python bench/common_window.py --rounds 1

A round runs a perceptron and an LSTM, one thread each: twice one after another (the second time
gives the noise, A/A), then side by side, all with one fresh profile store. Each job writes when
each of its steps ended. From these stamps alone follows how fast each went in the time that both
made steps, as a part of its speed alone; the report says the same from what Headway saw of them
from outside, and their sum, the weighted speed-up.

Then two jobs with the threads that they take by themselves run under `naive`: the report must name
the oversubscribed threads and both jobs.

Exit code 1 where a bar is missed, see docs/benches.md.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _arms import TRAIN, plain_environment
from _common import headway, keep, spread, warn_of_others

STEPS = {"mlp": 30000, "lstm": 1200}
NAIVE_STEPS = {"mlp": 20000, "lstm": 800}
AGREE = 0.03
LEAST_SPEED_UP = 1.9

Stamps = list[int]


def train(kind: str, steps: int, stamps: Path) -> str:
    return f"{sys.executable} {TRAIN} --kind {kind} --steps {steps} --stamps {stamps}"


def run(place: Path, lines: Sequence[str], mode: str) -> dict[str, Any]:
    """The result of a run of these lines, learnt from and adding to the store in `place`.

    Raises:
        SystemExit: A job did not end ok.
    """
    jobs, folder = place / "jobs.txt", place / "run"
    jobs.write_text("".join(f"{line}\n" for line in lines))
    done = subprocess.run(
        headway("run", jobs, "--mode", mode, "--out", folder, "--no-progress"),
        env=plain_environment() | {"XDG_STATE_HOME": str(place / "state")},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"headway run ended with {done.returncode}:\n{done.stdout}")
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    shutil.rmtree(folder)
    return result


def stamps_of(place: Path) -> dict[str, Stamps]:
    return {
        kind: [int(line) for line in path_of(place, kind).read_text().split()] for kind in STEPS
    }


def path_of(place: Path, kind: str) -> Path:
    return place / f"{kind}.stamps"


def step_s(stamps: Stamps) -> float:
    return (stamps[-1] - stamps[0]) / (len(stamps) - 1)


def within(stamps: Stamps, window: tuple[int, int]) -> Stamps:
    return [stamp for stamp in stamps if window[0] <= stamp <= window[1]]


def one_round(place: Path) -> dict[str, Any]:
    """Progress of each job as the report has it and as the stamps have it; noise and speed-up."""
    lines = [
        f"[name={kind} threads=1] {train(kind, steps, path_of(place, kind))}"
        for kind, steps in STEPS.items()
    ]
    run(place, lines, "serial")
    again = stamps_of(place)
    run(place, lines, "serial")
    alone = stamps_of(place)
    result = run(place, lines, "partitioned")
    beside = stamps_of(place)
    window = max(s[0] for s in beside.values()), min(s[-1] for s in beside.values())
    # The store knows both times alone and takes the median: so do the stamps.
    alone_s = {
        kind: statistics.median([step_s(again[kind]), step_s(alone[kind])]) for kind in STEPS
    }
    stamped = {kind: alone_s[kind] / step_s(within(beside[kind], window)) for kind in STEPS}
    (told,) = result["windows"][:1] or [None]
    if told is None:
        raise SystemExit("the report tells of no common window")
    reported = {
        name: progress["value"]
        for name, progress in zip(told["jobs"], told["progress"], strict=True)
    }
    return {
        "window_s": (window[1] - window[0]) / 1e9,
        "reported_window_s": told["seconds"],
        "alone_step_s": {kind: value / 1e9 for kind, value in alone_s.items()},
        "alone_again": {kind: step_s(again[kind]) / step_s(alone[kind]) for kind in STEPS},
        "stamped": stamped,
        "reported": reported,
        "reported_speed_up": told["weighted_speed_up"]["value"],
        "off": {kind: reported[kind] / stamped[kind] - 1 for kind in STEPS},
    }


def naive_names_them(place: Path) -> str:
    """What the report says of two jobs with default threads under naive; "" where it is silent."""
    lines = [
        f"[name={kind}] {train(kind, steps, path_of(place, kind))}"
        for kind, steps in NAIVE_STEPS.items()
    ]
    notes = run(place, lines, "naive")["notes"]
    return next((note for note in notes if note.startswith("oversubscribed threads")), "")


def figures(rounds: Sequence[dict[str, Any]], naive: str) -> dict[str, Any]:
    off = {kind: spread([abs(one["off"][kind]) for one in rounds]) for kind in STEPS}
    noise = {kind: spread([abs(one["alone_again"][kind] - 1) for one in rounds]) for kind in STEPS}
    speed_up = spread([one["reported_speed_up"] for one in rounds])
    sums = [one["reported_speed_up"] - sum(one["reported"].values()) for one in rounds]
    verdicts = {
        f"{kind}: progress as stamped within {AGREE:.0%}": "met"
        if off[kind]["median"] <= max(AGREE, noise[kind]["high"])
        else "MISSED"
        for kind in STEPS
    }
    verdicts["their sum is the weighted speed-up"] = (
        "met" if max(map(abs, sums)) < 1e-6 else "MISSED"
    )
    verdicts[f"weighted speed-up of two one-thread jobs >= {LEAST_SPEED_UP}"] = (
        "met" if speed_up["median"] >= LEAST_SPEED_UP else "MISSED"
    )
    named = all(kind in naive for kind in NAIVE_STEPS)
    verdicts["naive: oversubscribed threads are named"] = "met" if named else "MISSED"
    return {
        "off": off,
        "noise": noise,
        "weighted_speed_up": speed_up,
        "naive_note": naive,
        "verdicts": verdicts,
        "rounds": list(rounds),
    }


def show(result: dict[str, Any]) -> None:
    for kind in STEPS:
        told = result["off"][kind]
        print(
            f"{kind}: reported against stamped progress, off by {told['median']:.2%} in the median "
            f"of {told['count']} (A/A {result['noise'][kind]['median']:.2%})"
        )
    speed_up = result["weighted_speed_up"]
    print(
        f"weighted speed-up {speed_up['median']:.3f} "
        f"(90% {speed_up['low']:.3f} to {speed_up['high']:.3f})"
    )
    print(f"naive: {result['naive_note'] or 'nothing said'}")
    for what, state in result["verdicts"].items():
        print(f"{what}: {state}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    busy = warn_of_others()
    rounds = []
    for _ in range(arguments.rounds):
        place = Path(tempfile.mkdtemp(prefix="headway-progress-"))
        try:
            rounds.append(one_round(place))
            naive = naive_names_them(place) if len(rounds) == arguments.rounds else ""
        finally:
            shutil.rmtree(place, ignore_errors=True)
        print(json.dumps(rounds[-1]["off"]), file=sys.stderr, flush=True)
    result = figures(rounds, naive)
    path = keep("common-window", result, busy)
    print(f"kept in {path.name}", file=sys.stderr)
    print(json.dumps(result)) if arguments.json else show(result)
    return 1 if any(state == "MISSED" for state in result["verdicts"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
