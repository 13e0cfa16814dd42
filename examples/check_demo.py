"""Measure what the demo gains: the sweep side by side, then each job alone, one after another.

Alone, a job has the whole machine and the threads it takes by default. Prints the makespan of the
sweep divided by the sum of the solo times; exits with 1 where that is above 0.75 or a job fails.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

JOBS_FILE = "examples/sweep.txt"
LIMIT = 0.75


def run(mode, folder, *options):
    """Run the sweep in a mode; return name: (start, end) of each job, in seconds of the clock."""
    print(f"\n{mode}:", flush=True)
    command = ["headway", "run", JOBS_FILE, "--mode", mode, "--out", str(folder), *options]
    code = subprocess.run(command).returncode
    if code:
        sys.exit(f"`{' '.join(command)}` ended with exit code {code}")
    jobs = json.loads((folder / "result.json").read_text())["jobs"]
    return {job["name"]: (job["start"], job["end"]) for job in jobs}


def durations(times):
    """Return name: seconds from a job's start to its end."""
    return {name: end - start for name, (start, end) in times.items()}


def main():
    folder = Path("headway-runs") / time.strftime("check-%Y%m%d-%H%M%S")
    folder.parent.mkdir(exist_ok=True)
    beside = run("auto", folder.with_name(f"{folder.name}-auto"))
    # --keep-threads: alone, a job is to run as it would without Headway.
    alone = run("serial", folder.with_name(f"{folder.name}-serial"), "--keep-threads")

    makespan_s = max(end for _, end in beside.values()) - min(start for start, _ in beside.values())
    beside_s, alone_s = durations(beside), durations(alone)
    sum_s = sum(alone_s.values())
    print(f"\n{'job':<12} {'alone, s':>10} {'side by side, s':>16}")
    for name in alone_s:
        print(f"{name:<12} {alone_s[name]:>10.1f} {beside_s[name]:>16.1f}")
    print(f"\nmakespan side by side         {makespan_s:6.1f} s")
    print(f"sum of the solo times         {sum_s:6.1f} s")
    print(f"makespan / sum of solo times  {makespan_s / sum_s:6.2f}   (at most {LIMIT})")
    sys.exit(makespan_s / sum_s > LIMIT)


if __name__ == "__main__":
    main()
