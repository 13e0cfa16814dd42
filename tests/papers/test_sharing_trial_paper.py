"""Share or not on Gavel's pairs: bench/gavel_pairs.py with fewer seeds. Strength: *band*."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import gavel_pairs

pytestmark = [
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.skipif("HEADWAY_DATA" not in os.environ, reason="HEADWAY_DATA is not set"),
]


@pytest.fixture(scope="module", params=gavel_pairs.FILES)
def figures(request):
    policies = ("ours", "always share", "never share")
    return gavel_pairs.measure(Path(os.environ["HEADWAY_DATA"]), request.param, 2, policies)


@pytest.mark.parametrize("gpu", gavel_pairs.GPUS)
def test_keeps_97_percent_of_the_oracle(figures, gpu):
    assert figures[gpu]["kept"]["ours"]["worst"] >= 0.97
    assert 0 < figures[gpu]["kept"]["ours"]["tried"] < 0.8


def test_is_better_than_doing_the_same_for_all(figures):
    kept = {policy: each["worst"] for policy, each in figures["all"]["kept"].items()}
    assert kept["ours"] > kept["always share"]
    assert kept["ours"] > kept["never share"]


@pytest.mark.parametrize(("gpu", "pairs"), [("k80", 306), ("p100", 340), ("v100", 330)])
def test_the_pairs_that_were_run(gpu, pairs):
    found = gavel_pairs.read_pairs(Path(os.environ["HEADWAY_DATA"]), "simulation", gpu)
    assert len(found) == pairs
    assert len({kind for pair in found for kind in pair.kinds}) <= 26
