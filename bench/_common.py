"""What the benches share: starting Headway, medians with intervals, order of arms, provenance."""

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
# Cores that others may keep busy before a figure is worth little.
QUIET_CORES = 0.5


def headway(*words: str | Path) -> list[str]:
    """The command line of Headway as it stands in this checkout."""
    return [sys.executable, "-m", "headway", *map(str, words)]


def environment() -> dict[str, str]:
    """The caller's variables, with this checkout's package found first."""
    inherited = os.environ.get("PYTHONPATH")
    source = str(ROOT / "src")
    return os.environ | {"PYTHONPATH": f"{source}:{inherited}" if inherited else source}


def interval(values: Sequence[float], *, seed: int = 0, draws: int = 4000) -> tuple[float, float]:
    """Bounds of the median that hold 90% of bootstrap draws."""
    source = random.Random(seed)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.05 * draws)], medians[int(0.95 * draws)]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median of some values with its 90% interval and their number."""
    low, high = interval(values)
    return {"median": statistics.median(values), "low": low, "high": high, "count": len(values)}


def paired(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """The ratios of measurements taken in the same round."""
    return spread([one / other for one, other in zip(ours, theirs, strict=True)])


def verdict(ratio: Mapping[str, float], same: Mapping[str, float], bar: float) -> str:
    """How a ratio stands to its bar: its median decides.

    A bar that is nearer to 1 than the interval of equal arms counts as missed only where the whole
    interval of the ratio lies beyond it; see docs/benches.md.

    Args:
        ratio: As `paired` gives it.
        same: The ratio of the same thing to itself, as `paired` gives it.
        bar: The most it may be.

    >>> noise = {"median": 1.0, "low": 0.9, "high": 1.1}
    >>> verdict({"median": 1.02, "low": 0.95, "high": 1.2}, noise, 1.0)
    'within noise'
    >>> verdict({"median": 0.72, "low": 0.6, "high": 0.8}, noise, 0.7)
    'MISSED'
    """
    if ratio["median"] <= bar:
        return "met"
    close = abs(bar - 1) <= same["high"] - same["low"]
    return "within noise" if close and ratio["low"] <= bar else "MISSED"


def alternated(arms: Sequence[str], round_number: int) -> list[str]:
    """The order of a round: turned by one each round and reversed in every other one.

    >>> [alternated("abc", n) for n in range(3)]
    [['a', 'b', 'c'], ['a', 'c', 'b'], ['c', 'a', 'b']]
    """
    turn = round_number % len(arms)
    order = [*arms[turn:], *arms[:turn]]
    return order[::-1] if round_number % 2 else order


def busy_cores(window_s: float = 2.0) -> float:
    """Cores of the machine that were busy during a window that starts now."""

    def ticks() -> int:
        words = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        return sum(map(int, words)) - int(words[3]) - int(words[4])

    before = ticks()
    time.sleep(window_s)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / window_s


def warn_of_others() -> float:
    """The cores that others keep busy now, before anything is measured; warns of many."""
    busy = busy_cores()
    if busy > QUIET_CORES:
        print(
            f"warning: {busy:.1f} cores are busy with other things: figures are worth little",
            file=sys.stderr,
        )
    return busy


def provenance(busy: float) -> dict[str, Any]:
    """Where and when figures were taken, with what."""
    versions = {"python": platform.python_version(), "kernel": platform.release()}
    for package in ("torch", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "none"
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": " ".join(["python", os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]]),
        "commit": _commit(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": versions,
        "busy_cores_before": round(busy, 2),
    }


def keep(name: str, figures: Mapping[str, Any], busy: float) -> Path:
    """Write figures with their provenance to bench/results/."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {"schema": 1, "provenance": provenance(busy), **figures}
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    """The commit that was measured; "+" where the tree differs from it, "none" outside of git."""
    git = ["git", "-C", str(ROOT)]
    try:
        commit = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return commit + ("+" if changed else "")
