"""What Headway itself costs: supervision, memory, starting many jobs, and its own start.

    python bench/footprint.py                     everything, about two minutes
    python bench/footprint.py --only supervision  or starts, help, agent

- supervision: 8 jobs of 3 processes that sleep. Processor time of all of Headway's processes (the
  supervisor, the zygote, the keepers) in a window, as a part of one core; bar 0.5%. Their memory
  is PSS, added up; bar 80 MB.
- starts: `headway run` on 1,000 jobs that are `true`; bar 10 s for the whole command. Each must
  have one attempt with one claim and one exit record.
- help: wall time of `headway --help`, median of 10; bar 0.4 s. `import headway` over a bare Python:
  bar 0.2 s, and nothing heavy may come with it.
- agent: bench/agent.py; bar 3 us a step.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import ROOT, environment, headway, keep, warn_of_others

sys.path.insert(0, str(ROOT / "src"))

from headway.system import procfs

JOBS = 8
SLEEP_JOB = "sleep {0} & sleep {0} & wait"
PROCESSES = 3
SUPERVISION_BAR = 0.005
MEMORY_BAR_BYTES = 80_000_000
STARTS = 1000
STARTS_BAR_S = 10.0
HELP_BAR_S = 0.4
IMPORT_BAR_S = 0.2
HEAVY = ("torch", "numpy", "scipy", "pydantic", "typer", "rich", "psutil")

Figures = dict[str, Any]


def supervision(arguments: argparse.Namespace) -> Figures:
    """Processor time in a window, and memory, of a run whose jobs only sleep."""
    window_s = arguments.window
    with tempfile.TemporaryDirectory() as place:
        jobs = Path(place, "jobs.txt")
        jobs.write_text(f"{SLEEP_JOB.format(window_s + 60)}\n" * JOBS)
        run = Path(place, "run")
        words = ("run", jobs, "--mode", "naive", "--out", run, "--no-progress")
        process = subprocess.Popen(
            headway(*words),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            keepers = wait_for_jobs(process.pid)
            ours = {process.pid, zygote_of(process.pid), *keepers}
            # What a start costs is not supervision: first steadiness is judged 5 s after it.
            time.sleep(arguments.settle)
            used_s = {pid: cpu_s(pid) for pid in ours}
            begin_s = time.monotonic()
            time.sleep(window_s)
            passed_s = time.monotonic() - begin_s
            used_s = {pid: cpu_s(pid) - used_s[pid] for pid in ours}
            memory_bytes = {pid: procfs.pss_bytes(pid) or 0 for pid in ours}
            on_machine = len(procfs.scan())
        finally:
            end_run(process)
    supervisor = process.pid
    part = sum(used_s.values()) / passed_s
    memory = sum(memory_bytes.values())
    return {
        "jobs": JOBS,
        "processes_each": PROCESSES,
        "processes_on_machine": on_machine,
        "window_s": round(passed_s, 1),
        "core_part": round(part, 5),
        "core_part_supervisor": round(used_s[supervisor] / passed_s, 5),
        "core_part_bar": SUPERVISION_BAR,
        "pss_bytes": memory,
        "pss_bytes_supervisor": memory_bytes[supervisor],
        "pss_bytes_bar": MEMORY_BAR_BYTES,
        "met": part <= SUPERVISION_BAR and memory <= MEMORY_BAR_BYTES,
    }


def wait_for_jobs(supervisor: int, limit_s: float = 60.0) -> list[int]:
    """The keepers' pids, once every job has all of its processes.

    Raises:
        TimeoutError: They did not appear.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        entries = procfs.scan()
        below = procfs.descendants(entries, [supervisor])[supervisor]
        keepers = [entry.pid for entry in below if entry.name == "headway-keeper"]
        jobs = procfs.descendants(entries, keepers)
        if len(keepers) == JOBS and all(len(tree) == PROCESSES for tree in jobs.values()):
            return keepers
        time.sleep(0.05)
    raise TimeoutError(f"{JOBS} jobs of {PROCESSES} processes did not appear within {limit_s} s")


def zygote_of(supervisor: int) -> int:
    below = procfs.descendants(procfs.scan(), [supervisor])[supervisor]
    return next(entry.pid for entry in below if entry.name == "headway-zygote")


def cpu_s(pid: int) -> float:
    """Seconds a process has run, in all of its threads, as the scheduler counts them."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def end_run(process: subprocess.Popen[bytes]) -> None:
    """Stop a run and its jobs, and wait for it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def starts(arguments: argparse.Namespace) -> Figures:
    """Seconds that a list of trivial commands takes, and whether each ran exactly once."""
    count = arguments.count
    times_s = []
    once = True
    with tempfile.TemporaryDirectory() as place:
        jobs = Path(place, "jobs.txt")
        jobs.write_text("true\n" * count)
        for repeat in range(arguments.repeats):
            run = Path(place, f"run-{repeat}")
            words = ("run", jobs, "--out", run, "--no-progress")
            begin_s = time.perf_counter()
            subprocess.run(
                headway(*words),
                env=environment(),
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            times_s.append(time.perf_counter() - begin_s)
            once = once and each_once(run, count)
    return {
        "jobs": count,
        "wall_s": [round(one, 2) for one in times_s],
        "wall_s_median": round(statistics.median(times_s), 2),
        "wall_s_bar": STARTS_BAR_S,
        "each_exactly_once": once,
        "met": once and statistics.median(times_s) <= STARTS_BAR_S,
    }


def each_once(run: Path, count: int) -> bool:
    """Whether every job has one attempt, with a claim that is not void and a good exit record."""
    attempts = sorted(run.glob("jobs/*/*/"))
    claims = [json.loads((one / "claim").read_text().splitlines()[0]) for one in attempts]
    records = [json.loads((one / "exit").read_text()) for one in attempts]
    statuses = [job["status"] for job in json.loads((run / "result.json").read_text())["jobs"]]
    return (
        len({one.parent for one in attempts}) == len(attempts) == count
        and all(claim["pid"] is not None for claim in claims)
        and all(record["exit_code"] == 0 for record in records)
        and statuses == ["ok"] * count
    )


def help_and_import(arguments: argparse.Namespace) -> Figures:
    """Seconds of `headway --help`, and of `import headway` over a Python that imports nothing."""
    del arguments
    bare, imported, helped = [], [], []
    for _ in range(10):
        bare.append(wall_s([sys.executable, "-c", "pass"]))
        imported.append(wall_s([sys.executable, "-c", "import headway"]))
        helped.append(wall_s(headway("--help")))
    over_s = statistics.median(one - other for one, other in zip(imported, bare, strict=True))
    heavy = heavy_modules()
    return {
        "help_s": round(statistics.median(helped), 3),
        "help_s_bar": HELP_BAR_S,
        "import_over_bare_s": round(over_s, 3),
        "import_over_bare_s_bar": IMPORT_BAR_S,
        "heavy_modules": heavy,
        "met": statistics.median(helped) <= HELP_BAR_S and over_s <= IMPORT_BAR_S and not heavy,
    }


def wall_s(command: list[str]) -> float:
    begin_s = time.perf_counter()
    subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin_s


def heavy_modules() -> list[str]:
    """What `import headway` brings that it must not."""
    script = f"import sys, headway; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, env=environment(), check=True, capture_output=True, text=True)
    return found.stdout.split()


def agent(arguments: argparse.Namespace) -> Figures:
    """What bench/agent.py measures."""
    words = [] if arguments.paired else ["--calls"]
    command = [sys.executable, str(ROOT / "bench" / "agent.py"), "--json", *words]
    found = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(found.stdout)
    return {**figures, "met": figures["within_bar"]}


PARTS: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "supervision": supervision,
    "starts": starts,
    "help": help_and_import,
    "agent": agent,
}


def show(part: str, figures: Figures) -> None:
    state = "met" if figures["met"] else "MISSED"
    match part:
        case "supervision":
            print(
                f"supervision, {figures['jobs']} jobs of {figures['processes_each']} processes, "
                f"{figures['window_s']} s: {100 * figures['core_part']:.2f}% of a core "
                f"(supervisor {100 * figures['core_part_supervisor']:.2f}%; bar 0.5%), "
                f"PSS {figures['pss_bytes'] / 1e6:.1f} MB "
                f"(supervisor {figures['pss_bytes_supervisor'] / 1e6:.1f}; bar 80): {state}"
            )
        case "starts":
            print(
                f"{figures['jobs']} jobs that are `true`: {figures['wall_s_median']} s "
                f"(bar {STARTS_BAR_S:.0f}); each exactly once: {figures['each_exactly_once']}: "
                f"{state}"
            )
        case "help":
            print(
                f"headway --help: {figures['help_s']} s (bar {HELP_BAR_S}); import headway over "
                f"bare Python: {figures['import_over_bare_s']} s (bar {IMPORT_BAR_S}); heavy "
                f"modules with it: {', '.join(figures['heavy_modules']) or 'none'}: {state}"
            )
        case "agent":
            print(f"recorder: {figures['call_ns'] / 1000:.2f} us a step (bar 3): {state}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="may be given several times")
    parser.add_argument("--window", type=int, default=60, help="seconds of supervision measured")
    parser.add_argument("--settle", type=int, default=8, help="seconds after the jobs' start")
    parser.add_argument("--count", type=int, default=STARTS, help="jobs that are `true`")
    parser.add_argument("--repeats", type=int, default=3, help="of the list of `true`")
    parser.add_argument("--paired", action="store_true", help="agent: with its check on torch")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    busy = warn_of_others()
    results = {}
    for part in arguments.only or PARTS:
        results[part] = PARTS[part](arguments)
        path = keep(f"footprint-{part}", {"figures": results[part]}, busy)
        print(f"kept in {os.path.relpath(path)}", file=sys.stderr)
        if not arguments.json:
            show(part, results[part])
    if arguments.json:
        print(json.dumps(results))
    return 0 if all(figures["met"] for figures in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
