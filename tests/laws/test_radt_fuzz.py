"""Any bytes below radT's columns end in the right jobs or in one sentence."""

import csv
import io
import shlex
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import BadJobFile
from headway.core.jobfile import parse
from headway.core.radt import COLUMNS

GOOD = {
    "Experiment": ("1", "33"), "Workload": ("1", "2", "3"),
    "Status": ("", "FINISHED a (0)", "FAILED b"), "Run": ("", "0af3"), "Devices": ("0", "2", "0+1"),
    "Collocation": ("-", "MPS", "3g.20gb", "nan"), "Listeners": ("smi+top",),
    "File": ("train.py", "timm/train.py", "my code/a.py"),
    "Params": ("", "--lr 0.1", "--name 'a b'", "--betas 0.9,0.99", '--x "y"'),
}  # fmt: skip
ODD = ("", "-", "\x1b[31m", "\u202e", "'", '"', "a\nb", "9" * 300, "\r", "nan", "$(x)", "\ufeff")


def csv_file(rng: Random) -> bytes:
    """A CSV with up to eight rows and now and then an odd value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=rng.choice(("\n", "\r\n")))
    writer.writerow(COLUMNS)
    for _ in range(rng.randrange(1, 8)):
        writer.writerow(rng.choice(GOOD[c] if rng.random() < 0.99 else ODD) for c in COLUMNS)
    return text.getvalue().encode()


def damaged(data: bytes, rng: Random) -> bytes:
    """The file after up to two accidents: a byte put in, or some cut out."""
    cut = bytearray(data)
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(len(cut) + 1)
        if rng.random() < 0.5:
            cut[at:at] = rng.choice((b",", b'"', b"\n", b"\r", b"\0", b"\xff", b"'"))
        else:
            del cut[at : at + rng.randrange(1, 12)]
    return bytes(cut)


def holds(text: bytes) -> bool:
    """Check the law on one file; whether it was read."""
    try:
        jobs = parse(text, source="sweep.csv", folder="/here").jobs
    except BadJobFile as error:
        sentence = str(error)
        assert sentence.startswith("sweep.csv:")
        assert sentence.endswith(" Nothing was started.")
        assert sentence.isprintable(), sentence
        assert len(sentence) < 1000
        return False
    assert len({job.name for job in jobs}) == len(jobs) > 0
    for job in jobs:
        assert job.group is not None
        assert job.name.startswith(job.group)
        assert job.name.isprintable()
        assert "\n" not in job.command
        assert shlex.split(job.command)[0] == "python"
        assert len(job.devices) == job.gpus
    return True


@pytest.mark.slow
def test_500_damaged_files():
    rng = Random(3)
    read = sum(holds(damaged(csv_file(rng), rng)) for _ in range(500))
    assert 50 < read < 450, "the generator should make good files and bad ones"


@pytest.mark.slow
@given(st.binary())
def test_any_bytes_below_the_header(data):
    holds(",".join(COLUMNS).encode() + b"\n" + data)


_SCRIPTS = st.text(st.characters(categories=["L", "N", "P", "Zs"], exclude_characters="/"))


@pytest.mark.slow
@given(st.lists(_SCRIPTS.map(lambda name: f"x{name}.py"), min_size=1, max_size=6))
def test_any_script_is_one_word_of_its_command(scripts):
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for script in scripts:
        writer.writerow([1, 1, "", "", 0, "-", f"folder/{script}", "", "--lr 1"])
    jobs = parse(text.getvalue().encode(), source="s.csv", folder="/here").jobs
    for job, script in zip(jobs, scripts, strict=True):
        assert shlex.split(job.command) == ["python", script, "--lr", "1"]
        assert job.folder == "/here/folder"
