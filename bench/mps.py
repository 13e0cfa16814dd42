"""Copies of one training on one GPU: under MPS, and taking turns as they do without it.

    python bench/mps.py                    # 1, 2, 4 and 7 copies of three sizes, three rounds
    python bench/mps.py --quick            # one short round; its figures are not kept

Needs an NVIDIA GPU with nothing else on it, torch with CUDA, and nvidia-cuda-mps-control. In each
cell the copies warm up, start to count at the same moment, and step for the same time; the two ways
take turns from round to round. STP is the sum of the copies' speeds, each as a part of the speed of
one copy alone without MPS. Beside it stands what `costs/device_sharing.py` predicts from how busy
the GPU was with that copy alone. Bars: MPS is no slower than taking turns in any cell; the
predicted STP is within 15% in 80% of the cells.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _common import ROOT, environment, keep, paired, warn_of_others
from headway.core.machine import Device
from headway.core.mps import equal_shares
from headway.core.plan import Way
from headway.core.words import Share
from headway.core.workload import Workload
from headway.costs.device_sharing import DeviceSharing
from headway.probes.device_use import DeviceWatch
from headway.probes.devices import load_nvml, read_devices
from headway.system.mps_daemon import start_daemon
from headway.system.mps_tool import MpsMissing, find_executables

SIZES = ("small", "medium", "large")
COPIES = (1, 2, 4, 7)
WITHIN = 0.15
MOST_CELLS_OFF = 0.2
LOOK_S = 0.25


def run(
    size: str, copies: int, seconds: float, variables: Sequence[Mapping[str, str]], gpu: str
) -> list[dict[str, Any]]:
    """What copies of one size come to that step at the same time."""
    command = [sys.executable, str(ROOT / "bench" / "jobs" / "gpu_train.py")]
    started = [
        subprocess.Popen(
            [*command, "--size", size, "--seconds", str(seconds)],
            env={**environment(), "CUDA_VISIBLE_DEVICES": gpu, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for own in variables[:copies]
    ]
    for one in started:
        if one.stdout is None or one.stdout.readline() != "ready\n":
            raise SystemExit(f"a copy of {size} did not become ready (exit {one.wait()})")
    for one in started:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    return [json.loads(one.communicate()[0]) for one in started]


def speed(figures: Sequence[Mapping[str, Any]]) -> float:
    """Steps a second of all copies together."""
    return sum(one["steps"] / one["seconds"] for one in figures)


def load_of(size: str, seconds: float, device: Device) -> tuple[dict[str, Any], Workload]:
    """One copy alone: its speed, and what it does to the GPU."""
    looks: list[tuple[float | None, float | None]] = []
    over = threading.Event()

    def watch() -> None:
        with DeviceWatch(load_nvml(), [device]) as devices:
            while not over.wait(LOOK_S):
                looks.append(devices.read()[device.index])

    watcher = threading.Thread(target=watch)
    watcher.start()
    (alone,) = run(size, 1, seconds, [{}], device.uuid)
    over.set()
    watcher.join()
    # The last looks fall into the steps; the first ones into start-up.
    late = looks[-int(0.8 * seconds / LOOK_S) :]
    busy = statistics.mean(one for one, _ in late if one is not None)
    parts = [part for _, part in late if part is not None]
    part = min(busy, statistics.mean(parts)) if parts else busy
    workload = Workload.opaque(
        size, work_ns=1, device_busy=busy, device_part=part, device_bytes=alone["peak_bytes"]
    )
    return alone, workload


def predicted(workload: Workload, copies: int, device: Device, way: Way) -> float:
    """STP of so many copies by the model."""
    model = DeviceSharing(way)
    share = Share(devices=(device.index,), device_part=1 / copies if way == "mps" else None)
    usage = model.usage(workload, share, device)
    (rate,) = model.pool.rates([usage.milli], [copies])
    return copies * rate / 2**20 / usage.stretch


def measure(arguments: argparse.Namespace, device: Device) -> dict[str, Any]:
    try:
        control = find_executables().control
    except MpsMissing as error:
        raise SystemExit(str(error)) from None
    loads = {size: load_of(size, arguments.seconds, device) for size in arguments.sizes}
    cells: dict[tuple[str, int], dict[Way, list[float]]] = {}
    for number in range(arguments.rounds):
        ways: list[Way] = ["time-slices", "mps"] if number % 2 else ["mps", "time-slices"]
        for way in ways:
            with tempfile.TemporaryDirectory(prefix="hw-mps-", dir="/tmp") as place:
                daemon = None
                if way == "mps":
                    daemon = start_daemon(control, Path(place), devices=[device.uuid])
                for size in arguments.sizes:
                    for copies in COPIES:
                        own: list[dict[str, str]] = [{}] * copies
                        if daemon is not None:
                            client = daemon.control.client_environment()
                            shares = equal_shares([1] * copies)
                            own = [{**client, **share.environment()} for share in shares]
                        told = run(size, copies, arguments.seconds, own, device.uuid)
                        cells.setdefault((size, copies), {}).setdefault(way, []).append(speed(told))
                        print(f"round {number + 1}, {copies} x {size}, {way}: {speed(told):.1f}/s")
                if daemon is not None:
                    daemon.end()
                    time.sleep(1)
    return {
        "loads": {
            size: {
                "steps_per_s": speed([alone]),
                "busy": workload.device_busy.value if workload.device_busy else None,
                "part": workload.device_part.value if workload.device_part else None,
                "peak_bytes": alone["peak_bytes"],
            }
            for size, (alone, workload) in loads.items()
        },
        "cells": [
            cell_of(size, copies, found, *loads[size], device)
            for (size, copies), found in cells.items()
        ],
    }


def cell_of(
    size: str,
    copies: int,
    found: Mapping[Way, Sequence[float]],
    alone: Mapping[str, Any],
    workload: Workload,
    device: Device,
) -> dict[str, Any]:
    own = speed([alone])
    ways = {}
    for way, speeds in found.items():
        stp = statistics.median(speeds) / own
        told = predicted(workload, copies, device, way)
        ways[way] = {"stp": stp, "predicted": told, "within": abs(told / stp - 1) <= WITHIN}
    ratio = paired(found["mps"], found["time-slices"])
    return {"size": size, "copies": copies, "ways": ways, "mps_by_time_slices": ratio}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--quick", action="store_true", help="one short round")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, 3.0
    busy = warn_of_others()
    devices = read_devices(load_nvml(), os.environ.get("CUDA_VISIBLE_DEVICES")).devices
    free = [device for device in devices if not device.taken and not device.is_part]
    if not free:
        raise SystemExit("there is no GPU here that nobody uses")
    figures = {"device": free[0].name, **measure(arguments, free[0])}
    cells = figures["cells"]
    slower = [cell for cell in cells if cell["mps_by_time_slices"]["high"] < 1]
    told = [way["within"] for cell in cells for way in cell["ways"].values()]
    figures["verdicts"] = {
        "MPS no slower in each cell": "met" if not slower else f"MISSED in {len(slower)}",
        "predicted STP within 15% in 80% of cells": "met"
        if sum(told) >= (1 - MOST_CELLS_OFF) * len(told)
        else f"MISSED ({sum(told)} of {len(told)})",
    }
    if not arguments.quick:
        print(f"kept in {os.path.relpath(keep('mps', figures, busy))}", file=sys.stderr)
    print(json.dumps(figures, indent=1))
    return 0 if all(word == "met" for word in figures["verdicts"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
