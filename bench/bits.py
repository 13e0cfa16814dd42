"""Whether a job's numbers are the same alone and beside others, to the last bit.

    python bench/bits.py                  with 1 thread and with 2, a few minutes
    python bench/bits.py --threads 1      only these
    python bench/bits.py --part 0.1       a tenth of the steps

Three kinds of jobs (a small and a wide perceptron, an LSTM) run one after another, each with the
machine to itself, and then all of them twice in one list side by side, with the same number of
threads. The last loss and a digest of all parameters must be equal. With one thread the jobs run
partitioned, each on a core of its own. With two threads on two cores partitioned would run them one
after another, so they run `naive`, all at once, which is as disturbed as a job can be.

Last, that the report says so where Headway changed thread counts, and not where it did not.
Exit code 1 where anything differs.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _arms import TRAIN, plain_environment
from _common import headway, keep, warn_of_others

STEPS = {"mlp": 400, "lstm": 200, "wide": 40}
# Two threads on a core that they share with others would spin most of their time: waiting without
# spinning changes how long a step takes, and no number.
PASSIVE = "env=OMP_WAIT_POLICY=PASSIVE"
CHANGED = "thread counts were set"

Job = tuple[str, str]
"""Name, and the line of the job file."""


def jobs_of(threads: int, part: float, *, copies: int) -> list[Job]:
    return [
        (
            f"{kind}-{copy}",
            f"[name={kind}-{copy} threads={threads} {PASSIVE}] {sys.executable} {TRAIN} "
            f"--kind {kind} --steps {max(3, round(steps * part))}",
        )
        for copy in range(copies)
        for kind, steps in STEPS.items()
    ]


def run(lines: Sequence[str], *options: str) -> dict[str, Any]:
    """What each job printed, by its name, and the notes of the run.

    Raises:
        SystemExit: A job did not end ok.
    """
    place = Path(tempfile.mkdtemp(prefix="headway-bits-"))
    try:
        jobs, folder = place / "jobs.txt", place / "run"
        jobs.write_text("".join(f"{line}\n" for line in lines))
        done = subprocess.run(
            headway("run", jobs, *options, "--out", folder, "--no-progress"),
            env=plain_environment(),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"headway run ended with {done.returncode}:\n{done.stdout}")
        result = json.loads((folder / "result.json").read_text())
        printed = {
            job["name"]: json.loads((folder / f"jobs/{number}/1/stdout").read_text())
            for number, job in enumerate(result["jobs"], start=1)
        }
        return {"printed": printed, "notes": result["notes"]}
    finally:
        shutil.rmtree(place, ignore_errors=True)


def compare(threads: int, part: float) -> list[dict[str, Any]]:
    """For each job that ran beside others: its figures, and those of the same job alone."""
    alone_jobs = jobs_of(threads, part, copies=1)
    beside_jobs = jobs_of(threads, part, copies=2)
    alone = run([line for _, line in alone_jobs], "--mode", "serial")["printed"]
    mode = "partitioned" if threads == 1 else "naive"
    beside = run([line for _, line in beside_jobs], "--mode", mode)["printed"]
    rows = []
    for name, found in beside.items():
        kind = found["kind"]
        reference = alone[f"{kind}-0"]
        same = all(
            found[key] == reference[key]
            for key in ("loss", "parameters_digest", "threads", "steps")
        )
        rows.append(
            {
                "job": name,
                "kind": kind,
                "threads": found["threads"],
                "mode": mode,
                "steps": found["steps"],
                "loss_alone": reference["loss"],
                "loss_beside": found["loss"],
                "digest_alone": reference["parameters_digest"],
                "digest_beside": found["parameters_digest"],
                "equal": same and found["threads"] == threads,
            }
        )
    return rows


def report_tells() -> dict[str, bool]:
    """Whether the report speaks of changed thread counts where it should, and only there."""
    line = f"{sys.executable} {TRAIN} --kind mlp --steps 3"
    return {
        "a changed count is in the report": _speaks(run([line], "--mode", "partitioned")),
        "--keep-threads changes none": not _speaks(run([line], "--keep-threads")),
    }


def _speaks(found: dict[str, Any]) -> bool:
    return any(CHANGED in note for note in found["notes"])


def show(rows: Sequence[dict[str, Any]], told: dict[str, bool]) -> None:
    for row in rows:
        threads = "1 thread" if row["threads"] == 1 else f"{row['threads']} threads"
        loss = float.fromhex(row["loss_beside"])
        state = "equal" if row["equal"] else f"DIFFERS from {float.fromhex(row['loss_alone'])!r}"
        print(
            f"{row['job']:8} {threads}, {row['mode']}, {row['steps']} steps: loss {loss!r}, "
            f"parameters {row['digest_beside'][:12]}: {state}"
        )
    for what, state in told.items():
        print(f"{what}: {'yes' if state else 'NO'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, choices=[1, 2], action="append")
    parser.add_argument("--part", type=float, default=1.0, help="of the steps")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    busy = warn_of_others()
    rows = []
    for threads in arguments.threads or [1, 2]:
        rows += compare(threads, arguments.part)
    told = report_tells()
    equal = all(row["equal"] for row in rows) and all(told.values())
    result = {"jobs": rows, "report": told, "all_equal": equal}
    if arguments.part >= 1 and arguments.threads is None:
        path = keep("bits", result, busy)
        print(f"kept in {path.name}", file=sys.stderr)
    print(json.dumps(result)) if arguments.json else show(rows, told)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
