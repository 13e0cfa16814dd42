"""Grids, priorities and filters, from the list to jobs.json and through a resume."""

import json
import signal
from pathlib import Path

import pytest
from terminals import Place, until

import headway
from headway.core.errors import UsageError

pytestmark = pytest.mark.slow

HOSTILE = "; touch pwned #$(touch pwned)`touch pwned`'"


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


def names_in(run: Path) -> list[str]:
    return [job["name"] for job in json.loads((run / "jobs.json").read_text())["jobs"]]


def test_a_grid_runs_every_combination_and_no_value_as_code(here: Place):
    here.write(
        "[[job]]",
        'name = "say"',
        'command = """printf \'%s\\n\' {word} "$SEED" >> said"""',
        'env = { SEED = "{seed}" }',
        f"grid = {{ word = ['plain', '''{HOSTILE}'''], seed = [1, 2] }}",
        "[[job]]",
        'command = "wc -l said"',
        'after = ["say"]',
        name="jobs.toml",
    )
    done = here.do("run", "jobs.toml", "--mode", "serial", "--out", "r")
    assert done.code == 0, done
    assert (here.folder / "said").read_text().splitlines() == [
        *("plain", "1", "plain", "2"),
        *(HOSTILE, "1", HOSTILE, "2"),
    ]
    assert not (here.folder / "pwned").exists()
    assert names_in(here.folder / "r")[:2] == ["say-wordplain-seed1", "say-wordplain-seed2"]
    assert here.do("logs", "r", "wc").out == "8 said\n"
    assert here.do("logs", "r", "say-wordplain-seed1").code == 0


def test_priorities_order_the_queue_and_survive_a_resume(here: Place):
    wait = "touch started; until [ -e go ]; do sleep 0.05; done; "
    here.write(
        "[name=low priority=-1] echo low >> order",
        "[name=first] echo first >> order",
        "[name=second] echo second >> order",
        f"[name=top priority=9] {wait} echo top >> order",
        "[name=member group=g] echo member >> order",
    )
    with here.start("run", "jobs.txt", "--mode", "serial", "--out", "r") as process:
        until((here.folder / "started").exists, "the job of the highest priority")
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not (here.folder / "order").exists()
    (here.folder / "go").touch()
    assert here.do("run", "--resume", "r").code == 0
    assert (here.folder / "order").read_text().split() == [
        "top",
        "first",
        "second",
        "member",
        "low",
    ]


def test_a_retry_goes_by_priority_too(here: Place):
    fails_once = "test -e go && echo {} >> order"
    here.write(
        *(
            f"[name={name} priority={priority}] {fails_once.format(name)}"
            for name, priority in (("low", -1), ("first", 0), ("top", 9), ("second", 0))
        )
    )
    assert here.do("run", "jobs.txt", "--mode", "serial", "--out", "r").code == 1
    (here.folder / "go").touch()
    assert here.do("retry", "r").code == 0
    assert (here.folder / "order").read_text().split() == ["top", "first", "second", "low"]


def test_a_filter_keeps_some_jobs_and_the_run_knows_no_others(here: Place):
    here.write(
        "[name=lstm-1] true", "[name=lstm-2] true", "[name=lstm-big] true", "[name=cnn] true"
    )
    kept = ("--filter", "lstm-*", "--filter", "!*big")
    assert here.do("run", "jobs.txt", "--out", "r", *kept).code == 0
    assert names_in(here.folder / "r") == ["lstm-1", "lstm-2"]
    assert here.do("run", "-", *kept, "--out", "s", given=b"[name=lstm-3] true\n").code == 2
    assert here.do("run", "-", *kept[:2], "--out", "s", given=b"[name=lstm-3] true\n").code == 0
    refused = here.do("run", "jobs.txt", "--filter", "rnn")
    assert (refused.code, refused.out) == (2, "")
    assert "there are: lstm-1, lstm-2, lstm-big, cnn" in refused.err
    for words in (("--resume", "r"), ("--", "true")):
        refused = here.do("run", "--filter", "cnn", *words)
        assert refused.code == 2
        assert "--filter" in refused.err
    assert not (here.folder / "headway-runs").exists()


def test_the_front_door_takes_one_pattern_or_several(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    commands = ["[name=a] true", "[name=b] true"]
    assert [job.name for job in headway.run(commands, filter="b").status().jobs] == ["b"]
    assert [job.name for job in headway.run(commands, filter=["!b"]).status().jobs] == ["a"]
    with pytest.raises(UsageError, match="matches the name of no job"):
        headway.run(commands, filter="c")
