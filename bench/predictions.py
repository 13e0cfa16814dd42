"""How well a warm forecast holds: the sweep of the examples, predicted and then run.

    python bench/predictions.py                 one run to learn from, one to judge
    python bench/predictions.py --before 2      two runs to learn from
    python bench/predictions.py --rounds 5      five runs to judge
    python bench/predictions.py --quick         with a fiftieth of the steps; figures are not kept

A profile store of its own begins empty. `headway run` fills it; each round is one more such run,
planned and predicted from all that was run before it. `result.json` has what was predicted when the
run began, of each job as it was placed and of the whole run, beside what was measured.

An error is the difference as a part of what was measured.

Bars: 80% of the jobs inside their bounds, the makespan inside its own in 80% of the rounds, and a
job's median error 10%. Exit code 1 where one is missed.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from _arms import plain_environment
from _common import ROOT, headway, keep, warn_of_others

EXAMPLES = ROOT / "examples" / "sweep.txt"
INSIDE, ERROR = 0.8, 0.1
QUICK = 0.02
LEAST_STEPS = 20


@dataclass(frozen=True, slots=True)
class Check:
    """A predicted time beside the measured one; all in seconds.

    `actual_s` is None where it did not end well: then it is outside of all bounds.
    """

    name: str
    low_s: float
    value_s: float
    high_s: float
    actual_s: float | None

    @property
    def inside(self) -> bool:
        return self.actual_s is not None and self.low_s <= self.actual_s <= self.high_s

    @property
    def error(self) -> float | None:
        """Above 0 where it was predicted too long."""
        return None if self.actual_s is None else self.value_s / self.actual_s - 1

    @property
    def half_width(self) -> float:
        """Of the bounds, as a part of the value."""
        return (self.high_s - self.low_s) / 2 / self.value_s

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"inside": self.inside, "error": self.error}


@dataclass(frozen=True, slots=True)
class Round:
    """One prediction and what came of it."""

    mode: str
    makespan: Check
    jobs: tuple[Check, ...]


class Sweep:
    """The list in a folder of its own, with a state folder that nothing else writes to."""

    def __init__(self, place: Path, scale: float) -> None:
        self._place = place
        self._runs = 0
        self.list = place / "jobs.txt"
        self.list.write_text(scaled(EXAMPLES.read_text(), scale))
        self._environment = plain_environment() | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(place / "state"),
        }

    def run(self) -> dict[str, Any]:
        """What `result.json` says of one more run."""
        self._runs += 1
        folder = self._place / f"run-{self._runs}"
        words = ("run", self.list, "--out", folder, "--no-progress")
        done = subprocess.run(
            headway(*words), cwd=ROOT, env=self._environment, capture_output=True, text=True
        )
        if done.returncode not in (0, 1):
            raise SystemExit(f"headway run ended with {done.returncode}:\n{done.stderr}")
        return json.loads((folder / "result.json").read_text())


def scaled(text: str, scale: float) -> str:
    """A list with a part of the steps of each job.

    >>> scaled("[name=a] python a.py --steps 3000 --width 2", 0.1)
    '[name=a] python a.py --steps 300 --width 2'
    """
    return re.sub(
        r"(?<=--steps )\d+", lambda found: str(max(LEAST_STEPS, round(int(found[0]) * scale))), text
    )


def judged(result: dict[str, Any]) -> Round:
    """What a run's `result.json` says was predicted, beside what it says was measured.

    Raises:
        SystemExit: Nothing was predicted of the run, or of a job.
    """
    took_s = result["end"] - result["start"] if result["outcome"] == "ok" else None
    return Round(
        mode=result["mode"],
        makespan=_check("makespan", result["predicted"], took_s),
        jobs=tuple(
            _check(
                job["name"],
                job["predicted"],
                job["end"] - job["start"] if job["status"] == "ok" else None,
            )
            for job in result["jobs"]
        ),
    )


def _check(name: str, predicted: dict[str, Any] | None, actual_s: float | None) -> Check:
    if predicted is None:
        raise SystemExit(f"{name}: nothing was predicted")
    return Check(name, predicted["low"], predicted["value"], predicted["high"], actual_s)


def figures(rounds: Sequence[Round]) -> dict[str, Any]:
    """How many were inside, how far off they were, and whether that is good enough."""
    jobs = [job for found in rounds for job in found.jobs]
    makespans = [found.makespan for found in rounds]
    inside, whole = share_inside(jobs), share_inside(makespans)
    error = median_error(jobs)
    return {
        "jobs": {
            "count": len(jobs),
            "inside": inside,
            "median_error": error,
            "median_half_width": statistics.median(job.half_width for job in jobs),
        },
        "makespans": {
            "count": len(makespans),
            "inside": whole,
            "median_error": median_error(makespans),
            "median_half_width": statistics.median(one.half_width for one in makespans),
        },
        "verdicts": {
            f"jobs inside their bounds >= {INSIDE:.0%}": state(inside >= INSIDE),
            f"makespans inside their bounds >= {INSIDE:.0%}": state(whole >= INSIDE),
            f"median error of a job <= {ERROR:.0%}": state(error is not None and error <= ERROR),
        },
        "rounds": [
            {
                "mode": found.mode,
                "makespan": found.makespan.as_dict(),
                "jobs": [job.as_dict() for job in found.jobs],
            }
            for found in rounds
        ],
    }


def share_inside(checks: Sequence[Check]) -> float:
    return sum(check.inside for check in checks) / len(checks)


def median_error(checks: Sequence[Check]) -> float | None:
    """Of the errors' sizes; None where nothing ended well."""
    errors = [abs(check.error) for check in checks if check.error is not None]
    return statistics.median(errors) if errors else None


def state(met: bool) -> str:
    return "met" if met else "MISSED"


def show(result: dict[str, Any]) -> None:
    for number, found in enumerate(result["rounds"], start=1):
        print(f"\nround {number}, planned {found['mode']}")
        print(f"{'':14}{'predicted':>10}{'bounds':>20}{'measured':>11}{'error':>8}")
        for check in (*found["jobs"], found["makespan"]):
            print(line_of(check))
    print()
    for what in ("jobs", "makespans"):
        part = result[what]
        error = "-" if part["median_error"] is None else f"{part['median_error']:.1%}"
        print(
            f"{part['count']} {what}: {part['inside']:.0%} inside their bounds, median error "
            f"{error}, median half-width of the bounds {part['median_half_width']:.0%}"
        )
    for what, met in result["verdicts"].items():
        print(f"{what}: {met}")


def line_of(check: dict[str, Any]) -> str:
    bounds = f"{check['low_s']:.1f} to {check['high_s']:.1f} s"
    line = f"{check['name']:14}{check['value_s']:>8.1f} s{bounds:>20}"
    if check["actual_s"] is None:
        return f"{line}   did not end well"
    line += f"{check['actual_s']:>9.1f} s{check['error']:>+8.0%}"
    return line if check["inside"] else f"{line}   outside"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=int, default=1, help="runs that only teach")
    parser.add_argument("--rounds", type=int, default=1, help="predicted and run so many times")
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the steps")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for name in ("before", "rounds"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} {getattr(arguments, name)}: give a number of at least 1")
    return arguments


def main() -> int:
    arguments = parse()
    busy = warn_of_others()
    place = Path(tempfile.mkdtemp(prefix="headway-predictions-"))
    try:
        sweep = Sweep(place, QUICK if arguments.quick else 1.0)
        for _ in range(arguments.before):
            sweep.run()
        rounds = [judged(sweep.run()) for _ in range(arguments.rounds)]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    result = {"before": arguments.before, **figures(rounds)}
    if not arguments.quick:
        print(f"kept in {os.path.relpath(keep('predictions', result, busy))}", file=sys.stderr)
    print(json.dumps(result)) if arguments.json else show(result)
    return 1 if "MISSED" in result["verdicts"].values() else 0


if __name__ == "__main__":
    sys.exit(main())
