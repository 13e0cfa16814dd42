"""Completion as bash asks for it; and that a Tab says nothing, starts nothing and runs no name."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from terminals import COMMAND, Place, environment_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here"),
]

HOSTILE = ["$(touch pwned)", "`touch pwned`", "a;touch pwned", "*", "two words", "it's", 'say "x"']


class Bash:
    """A bash in which completion of `headway` was installed."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder)
        program = folder / "bin" / "headway"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}"
        self.environment = {**environment_of(folder), "HOME": str(folder), "PATH": path}

    def do(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            # The last command of `bash -c` would take bash's place.
            ["bash", "--norc", "-c", f"{script}\n:"],
            cwd=self.place.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def offers(self, *words: str) -> list[str]:
        """What a Tab after the words offers; the last word is the one that is begun."""
        line = " ".join(map(shlex.quote, words))
        done = self.do(
            f"source ~/.bash_completions/headway.sh; COMP_WORDS=(headway {line})\n"
            f"COMP_CWORD={len(words)}; _headway_completion headway\n"
            "printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split("\n")[:-1] if done.stdout != "\n" else []


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    shell = Bash(tmp_path)
    done = shell.do("headway --install-completion")
    assert (done.returncode, done.stderr) == (0, "")
    assert "bash completion installed in" in done.stdout
    assert "headway.sh" in (tmp_path / ".bashrc").read_text()
    return shell


def test_verbs_options_and_modes(bash: Bash):
    assert {"run", "status", "clean", "explain"} <= set(bash.offers(""))
    assert bash.offers("ex") == ["explain"]
    assert bash.offers("run", "--fil") == ["--filter"]
    assert bash.offers("run", "--mode", "par") == ["partitioned"]
    assert bash.offers("run", "jo") == [], "files are the shell's own"
    assert not (bash.place.folder / "state").exists(), "a Tab writes nothing"


def test_runs_and_jobs_of_the_newest_run_or_the_one_that_is_named(bash: Bash):
    for run, job in (("old", "cnn-1"), ("new", "lstm-1")):
        bash.place.write(f"[name={job}] true", f"[name=both-{run}] true")
        assert bash.place.do("run", "jobs.txt", "--out", run, "-q").code == 0
    assert bash.offers("logs", "") == ["lstm-1", "both-new", "new", "old"]
    assert bash.offers("logs", "l") == ["lstm-1"]
    assert bash.offers("logs", "old", "") == ["cnn-1", "both-old"]
    assert bash.offers("logs", "old", "cnn-1", "") == ["both-old"]
    assert bash.offers("status", "lstm-1", "") == ["both-new"]
    for words in (("clean", ""), ("run", "--resume", "")):
        assert bash.offers(*words) == ["new", "old"]


def test_names_that_a_shell_could_take_for_more_are_not_offered(bash: Bash):
    tables = [
        f"[[job]]\ncommand = 'true'\nname = {json.dumps(name)}" for name in [*HOSTILE, "fine"]
    ]
    bash.place.write(*tables)
    assert bash.place.do("run", "jobs.txt", "--out", "r", "-q").code == 0
    assert bash.offers("logs", "") == ["fine", "r"]
    assert not (bash.place.folder / "pwned").exists()


@pytest.mark.parametrize("damage", ["", "{", '{"jobs": 1}', '{"jobs": [1]}', None])
def test_whatever_is_wrong_nothing_is_said(bash: Bash, damage: str | None):
    bash.place.write("[name=a] true")
    assert bash.place.do("run", "jobs.txt", "--out", "r", "-q").code == 0
    jobs = bash.place.folder / "r" / "jobs.json"
    jobs.unlink()
    if damage is not None:
        jobs.write_text(damage)
    assert bash.offers("logs", "") == ["r"]
    for instruction in ("nonsense", "complete_nonsense", "source_", "_"):
        done = bash.place.do("run", "jobs.txt", environment={"_HEADWAY_COMPLETE": instruction})
        assert (done.out, done.err) == ("", "")
    assert not (bash.place.folder / "headway-runs").exists()


def test_no_noun_is_loaded_for_what_is_asked_most(bash: Bash):
    bash.place.write("[name=a] true")
    assert bash.place.do("run", "jobs.txt", "--out", "r", "-q").code == 0
    asked = {"COMP_WORDS": "headway logs ", "COMP_CWORD": "2", "_HEADWAY_COMPLETE": "complete_bash"}
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from headway.cli import main\nmain([])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=bash.place.folder,
        env={**bash.environment, **asked},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["a", "r"]
    loaded = set(done.stderr.split())
    assert not loaded & {"headway.front", "headway.core.noun", "headway.core.run", "rich", "torch"}
