"""What the recorder costs a job.

    python bench/agent.py            all of it, with a paired check on real training
    python bench/agent.py --calls    without the paired check (needs no torch)

The bar is on the call: at most 3 us, the median over repeats of 100,000 calls each. The paired part
is a check, since a shared machine cannot show 1% in wall-clock time: one process trains a small
MLP in blocks that alternate between hook on and hook off, beside an A/A arm where it stays off.
"""

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECORDER = Path(__file__).resolve().parent.parent / "src" / "headway" / "agent" / "recorder"
BAR_NS = 3000


def recorder_module():
    path = RECORDER / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("recorder_under_bench", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call_cost_ns(hook, calls, repeats):
    """Nanoseconds of one call of the hook, the loop's own cost included, once per repeat."""
    clock = time.perf_counter_ns
    costs = []
    for _ in range(repeats):
        start_ns = clock()
        for _ in range(calls):
            hook(None, (), {})
        costs.append((clock() - start_ns) / calls)
    return costs


def start_cost_ns(folder, pairs):
    """Differences between neighbouring starts of an empty Python job, with and without."""
    recorded = {"PYTHONPATH": str(RECORDER), "HEADWAY_RECORDER_DIR": folder}
    differences = []
    for pair in range(pairs):
        times = {}
        for arm in ("with", "without") if pair % 2 else ("without", "with"):
            environment = os.environ | (recorded if arm == "with" else {})
            start_ns = time.perf_counter_ns()
            subprocess.run([sys.executable, "-c", ""], env=environment, check=True)
            times[arm] = time.perf_counter_ns() - start_ns
        differences.append(times["with"] - times["without"])
    return differences


class BareTorch:
    """As much of torch as the hook touches, for a machine without it."""

    __file__ = __file__


def block_runner(torch, width):
    """Give a function that trains for some steps and tells the ns of one."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters())
    inputs, labels = torch.randn(64, width), torch.randint(10, (64,))

    def block(steps):
        start_ns = time.perf_counter_ns()
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        return (time.perf_counter_ns() - start_ns) / steps

    return block


def paired(torch, block, hook, pairs, steps):
    """Step times in ns by arm, as pairs of neighbouring blocks whose order alternates."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def one(recorded):
        if not recorded:
            return block(steps)
        handle = register_optimizer_step_post_hook(hook)
        try:
            return block(steps)
        finally:
            handle.remove()

    block(steps)
    arms = {"hook on / off": [], "A/A (off / off)": []}
    for pair in range(pairs):
        for arm, times in arms.items():
            treated = arm.startswith("hook")
            if pair % 2:
                plain_ns, other_ns = one(False), one(treated)
            else:
                other_ns, plain_ns = one(treated), one(False)
            times.append((other_ns, plain_ns))
    return arms


def interval(values, seed=0, draws=2000):
    """Bounds of the median that hold 90% of bootstrap draws."""
    source = random.Random(seed)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.05 * draws)], medians[int(0.95 * draws)]


def paired_result(times):
    ratios = [other / plain for other, plain in times]
    low, high = interval(ratios)
    return {
        "median_ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "step_ns": statistics.median(plain for _, plain in times),
        "pairs": len(ratios),
    }


def measure(arguments, folder):
    recorder = recorder_module()
    torch = BareTorch
    if not arguments.calls:
        import torch
    hook = recorder.make_hook(recorder.Recorder(folder), torch)
    costs = call_cost_ns(hook, arguments.count, arguments.repeats)
    starts = start_cost_ns(folder, arguments.pairs)
    low, high = interval(starts)
    result = {
        "call_ns": statistics.median(costs),
        "call_low_ns": min(costs),
        "call_high_ns": max(costs),
        "bar_ns": BAR_NS,
        "within_bar": statistics.median(costs) <= BAR_NS,
        "start_ns": statistics.median(starts),
        "start_low_ns": low,
        "start_high_ns": high,
    }
    if not arguments.calls:
        arms = paired(
            torch, block_runner(torch, arguments.width), hook, arguments.pairs, arguments.steps
        )
        result["paired_check"] = {arm: paired_result(times) for arm, times in arms.items()}
    return result


def show(result):
    print(
        f"one call: {result['call_ns']:.0f} ns, median "
        f"({result['call_low_ns']:.0f} to {result['call_high_ns']:.0f}); "
        f"bar {result['bar_ns']} ns: {'met' if result['within_bar'] else 'MISSED'}"
    )
    print(
        f"one start of Python: {result['start_ns'] / 1e6:+.2f} ms, median of differences "
        f"(90% {result['start_low_ns'] / 1e6:+.2f} to {result['start_high_ns'] / 1e6:+.2f})"
    )
    for arm, found in result.get("paired_check", {}).items():
        print(
            f"check, {arm}: median of {found['pairs']} paired ratios {found['median_ratio']:.4f} "
            f"(90% {found['low']:.4f} to {found['high']:.4f}), step {found['step_ns'] / 1e6:.2f} ms"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", action="store_true", help="only the cost of a call, no torch")
    parser.add_argument("--count", type=int, default=100_000, help="calls in a repeat")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=41, help="pairs in each comparison")
    parser.add_argument("--steps", type=int, default=60, help="training steps in a block")
    parser.add_argument("--width", type=int, default=128, help="width of the network")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(arguments, folder)
    print(json.dumps(result)) if arguments.json else show(result)
    return 0 if result["within_bar"] else 1


if __name__ == "__main__":
    sys.exit(main())
