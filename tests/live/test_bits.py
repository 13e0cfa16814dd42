"""A job's numbers beside others are those it has alone: the bench of it, with few steps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BITS = Path(__file__).resolve().parents[2] / "bench" / "bits.py"


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: nothing runs beside it")
def test_loss_and_parameters_are_bit_equal_alone_and_beside_others() -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, BITS, "--threads", "1", "--part", "0.05", "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert {row["kind"] for row in found["jobs"]} == {"mlp", "lstm", "wide"}
    for row in found["jobs"]:
        assert row["threads"] == 1, row
        assert (row["loss_beside"], row["digest_beside"]) == (
            row["loss_alone"],
            row["digest_alone"],
        )
    # Different work has different numbers, or equality would say nothing.
    assert len({row["digest_alone"] for row in found["jobs"]}) == 3
    assert found["report"] == {
        "a changed count is in the report": True,
        "--keep-threads changes none": True,
    }
