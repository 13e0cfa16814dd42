"""What the page of a long list costs the end of its run, and how large it is.

    python bench/report_page.py               a list of 1,000 jobs
    python bench/report_page.py --jobs 200    another length

Makes the folder of a run as it is when all jobs have ended, with timeline, counters, what was
expected and a log of each job, and writes its page several times. The first time in a process is
what a run pays: it has the imports and the template's compilation in it. Processor time is what is
measured: nothing is waited for.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import environment, keep, spread, warn_of_others
from headway.core.estimate import Estimate
from headway.core.job import Job, Jobs
from headway.core.run import JobResult, Result, Run, Slowdown
from headway.core.timeline import (
    COUNTERS,
    TIMELINE,
    Header,
    Reading,
    Span,
    counter_line,
    lane_of,
    span_line,
)
from headway.core.units import NS_PER_S
from headway.forecast.expected import Expected
from headway.forecast.queue import JobForecast
from headway.handle import RunHandle
from headway.testing.queues import FakeQueue

ROUNDS = 9
BAR_S = 0.3
BAR_BYTES = 3_000_000
CORES = 2
STEP_S = 0.05
T = 1_700_000_000.0


def about(value: float, unit: str = "s") -> Estimate:
    return Estimate(
        value=value,
        low=value * 0.9,
        high=value * 1.1,
        unit=unit,
        origin="measured",
        source="5 runs, the last 2 days ago",
    )


def made(count: int, place: Path) -> None:
    """A run folder of so many jobs that have ended, with its result."""
    jobs = [
        Job(name=f"job-{n}", command=f"python train.py --seed {n}", folder="/")
        for n in range(count)
    ]
    queue = FakeQueue(jobs=jobs)
    run = Run.create(
        place,
        plan=queue.plan("partitioned"),
        machine=queue.machine,
        jobs=Jobs(source="jobs.txt", jobs=tuple(jobs)),
    )
    results, forecasts, spans, readings = [], [], [], []
    for n in range(count):
        begin_s, took_s = 30.0 * (n // CORES), 25.0 + n % 5
        slowdown = Slowdown(alone=about(24.0), times=about(took_s / 24.0, "ratio"))
        results.append(
            JobResult(
                name=jobs[n].name,
                status="ok",
                exit_code=0,
                attempts=1,
                start=T + begin_s,
                end=T + begin_s + took_s,
                peak_bytes=200 * 2**20 + n,
                steps=500,
                step_s=STEP_S,
                first_step=T + begin_s + 3,
                threads=1,
                cores=(n % CORES,),
                predicted=about(27.0),
                as_placed=slowdown,
                by_default=slowdown,
            )
        )
        forecasts.append(
            JobForecast(
                name=jobs[n].name,
                status="ok",
                start_s=begin_s,
                end_s=begin_s + 27,
                duration=about(27.0),
            )
        )
        for name, start_s, stop_s in (("start-up", 0.0, 3.0), ("steps", 3.0, took_s)):
            spans.append(
                Span(
                    t=int((begin_s + start_s) * NS_PER_S),
                    d=int((stop_s - start_s) * NS_PER_S),
                    lane=f"n0/core{n % CORES}",
                    kind="compute",
                    name=name,
                    job=n,
                    args={"attempt": 1, "status": "ok"},
                )
            )
        readings += [
            Reading(
                t=int((begin_s + s) * NS_PER_S), lane=lane_of(n), name=name, value=200.0 * 2**20
            )
            for s in range(1, 25, 8)
            for name in ("resident_bytes", "cores", "steps")
        ]
        folder = run.attempt_path(n, 1)
        folder.mkdir(parents=True, mode=0o700)
        (folder / "stdout").write_text("".join(f"step {k} loss 0.25\n" for k in range(500)))
        (folder / "stderr").write_text("warning: nothing to warn of\n" * 4)
    end_s = max(job.end for job in results) - T
    header = Header(source="measured").to_json()
    (place / TIMELINE).write_text("\n".join([header, *map(span_line, spans)]) + "\n")
    (place / COUNTERS).write_text("\n".join(map(counter_line, readings)) + "\n")
    RunHandle(run).expect(Expected(makespan=about(end_s), jobs=tuple(forecasts)))
    run.write_result(
        Result(
            outcome="ok",
            mode="partitioned",
            start=T,
            end=T + end_s,
            jobs=tuple(results),
            predicted=about(end_s),
            serial=about(24.0 * count),
        )
    )


# What a run does at its end, in a process that has its nouns loaded, as one that ran has.
WRITE = """
import sys, time
from pathlib import Path
from headway.core.run import Run
from headway.handle import RunHandle
import headway.reports.comparison, headway.reports.summary
handle = RunHandle(Run.open(Path(sys.argv[1])))
run, result = handle.folder, handle.folder.result()
run.plan, run.machine, run.jobs
began_s = time.process_time()
trouble = handle.write_page(result)
print(time.process_time() - began_s)
sys.exit(trouble or 0)
"""


def measured(place: Path) -> float:
    """Processor seconds that a page took, once."""
    done = subprocess.run(
        [sys.executable, "-c", WRITE, place],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--json", action="store_true", help="figures for a program")
    asked = parser.parse_args()
    busy = warn_of_others()
    with tempfile.TemporaryDirectory(prefix="headway-page-") as folder:
        place = Path(folder) / "run"
        made(asked.jobs, place)
        seconds = spread([measured(place) for _ in range(ROUNDS)])
        size = (place / "report.html").stat().st_size
    figures = {"jobs": asked.jobs, "seconds": seconds, "bytes": size}
    missed = asked.jobs == 1000 and (seconds["median"] > BAR_S or size > BAR_BYTES)
    if asked.json:
        print(json.dumps(figures))
    else:
        print(
            f"the page of {asked.jobs:,} jobs: {seconds['median']:.3f} s "
            f"({seconds['low']:.3f} to {seconds['high']:.3f}), {size / 1e6:.2f} MB"
        )
    keep("report_page", figures, busy)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
