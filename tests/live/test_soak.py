"""Three of each kind of `make soak`; see bench/soak.py."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import soak  # noqa: E402
import supervised  # noqa: E402

COUNT = 3
REASON = supervised.can_use_groups()


@pytest.mark.slow
@pytest.mark.cgroup
@pytest.mark.root
@pytest.mark.skipif(REASON != "", reason=REASON or "can be run here")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.torch] if kind == "allocator" else [])
        for kind in soak.KINDS
    ],
)
def test_three_of_three(kind):
    if kind == "allocator" and importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    argv = [sys.executable, str(BENCH / "soak.py"), "--only", kind, "--count", str(COUNT), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(BENCH.parent / "src")}
    ran = subprocess.run(argv, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    assert (told["right"], told["failures"]) == (COUNT, [])
