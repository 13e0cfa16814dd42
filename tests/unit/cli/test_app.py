import json
import os
import subprocess
import sys

import pytest

import headway
import headway.cli as cli
from headway.cli.app import Typed
from headway.cli.signals import Interrupts, words_for

VERBS = ["detect", "run", "status", "logs", "wait", "cancel", "retry", "clean", "explain"]


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.dispatch(list(words))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("words", [[], *([verb] for verb in VERBS)], ids=" ".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_everywhere_and_has_examples(words, flag, capsys):
    code, out, err = answer(capsys, *words, flag)
    assert (code, err) == (0, "")
    assert "Examples:" in out
    assert f"headway {' '.join(words)}".strip() in out
    assert max(map(len, out.splitlines())) <= 80


def test_help_loads_no_noun_and_nothing_heavy():
    code = (
        "import sys\nfrom headway.cli import dispatch\ndispatch(['--help'])\n"
        "dispatch(['run', '--help'])\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('pydantic', 'rich', 'numpy', 'torch')"
        " or m.startswith(('headway.core', 'headway.front'))])"
    )
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(headway.__path__[0])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_version(capsys):
    code, out, _ = answer(capsys, "--version")
    assert (code, out.split()[0]) == (0, "headway")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["frobnicate"], "frobnicate"),
        (["status", "--colour"], "--colour"),
        (["run", "--mode"], "--mode"),
        (["run"], "no job file given"),
        (["run", "python", "x.py"], "headway run -- python x.py"),
        (["run", "nothing.txt"], "nothing.txt"),
        (["run", "--timeout", "5", "jobs.txt"], "timeout=10m"),
        (["run", "--resume", "r", "jobs.txt"], "leave the job file away"),
        (["run", "--resume", "r", "--mode", "serial"], "--mode"),
        (["run", "--resume", "no-such-run"], "no-such-run"),
        (["run", "--"], "no command"),
        (["run", "--mode", "serial", "--", "true"], "--mode"),
        (["run", "--timeout", "soon", "--", "true"], "soon"),
        (["run", "jobs.txt", "--", "true"], "jobs.txt"),
        (["logs", "-f", "--json"], "choose one"),
        (["wait", "--timeout", "x"], "x"),
        (["status", "no-such-run"], "no-such-run"),
        (["clean", "no-such-run"], "no-such-run"),
        (["clean", "--older-than", "soon"], '--older-than: "soon"'),
        (["clean", "--keep", "-1"], "--keep"),
        (["run", "--resume", "r", "--filter", "a"], "--filter"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_usage_is_one_line_and_exit_2(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    code, out, err = answer(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("headway: ")
    assert err.count("\n") == 1
    assert said in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["mixed", "exclusive", "mps", "mig", "fast"])
def test_modes_that_are_not_there_are_refused_in_words(mode, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.txt").write_text("true\n")
    code, _, err = answer(capsys, "run", "jobs.txt", "--mode", mode)
    assert code == 2
    assert "serial naive shared partitioned" in err
    assert not (tmp_path / "headway-runs").exists()


def test_elsewhere_than_on_linux_one_sentence(capsys, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    code, _, err = answer(capsys, "status")
    assert code == 2
    assert "Linux" in err
    assert "darwin" in err
    assert answer(capsys, "run", "--help")[0] == 0


def test_a_bug_is_one_line_with_a_traceback_on_demand(capsys, monkeypatch):
    import headway.front

    def broken() -> None:
        raise ZeroDivisionError("oops HF_TOKEN=hf_abcdefabcdefabcdef\nsecond line")

    monkeypatch.setattr(headway.front, "detect", broken)
    code, out, err = answer(capsys, "detect")
    assert (code, out, err.count("\n")) == (70, "", 1)
    assert "please report" in err
    assert "hf_abc" not in err
    code, _, err = answer(capsys, "detect", "-v")
    assert code == 70
    assert "Traceback" in err
    code, _, err = answer(capsys, "-v", "detect")
    assert "Traceback" in err


def test_ctrl_c_elsewhere_is_130(capsys, monkeypatch):
    import headway.front

    def pressed() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(headway.front, "detect", pressed)
    assert answer(capsys, "detect")[0] == 130


@pytest.mark.parametrize(
    ("words", "rest", "command"),
    [
        (["run", "--", "a", "--", "b"], ["run"], ["a", "--", "b"]),
        (["-q", "run", "-q", "--", "a", "-h"], ["-q", "run", "-q"], ["a", "-h"]),
        (["run", "jobs.txt"], ["run", "jobs.txt"], None),
        (["logs", "--", "-odd-name"], ["logs", "--", "-odd-name"], None),
    ],
)
def test_only_the_dashes_of_run_begin_a_command(words, rest, command):
    typed, left = Typed.split(words)
    assert (left, typed.command) == (rest, command)


def test_json_of_the_machine(capsys):
    code, out, _ = answer(capsys, "detect", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["schema"] == 1
    assert data["hosts"][0]["cores"]
    assert out.count("\n") == 1


def test_interrupts_count_and_reach_a_world_that_comes_late():
    class World:
        def __init__(self):
            self.levels = []

        def interrupt(self, level):
            self.levels.append(level)

    interrupts, world = Interrupts(), World()
    interrupts._press(2, None)
    interrupts.attach(world)
    interrupts._press(2, None)
    interrupts._press(2, None)
    interrupts._press(2, None)
    assert world.levels == [1, 2, 3, 3]
    terminated = Interrupts()
    terminated.attach(late := World())
    terminated._end(15, None)
    terminated._end(15, None)
    assert late.levels == [2, 2]


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("running", [0, 1, 2])
def test_what_ctrl_c_did_is_said_in_ascii(level, running):
    words = words_for(level, running)
    assert words.isascii()
    assert ("1 job" in words) == (running == 1)
