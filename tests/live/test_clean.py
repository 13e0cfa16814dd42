"""`headway clean` on real runs: what has ended goes where it is wanted, what lives never."""

import json
import os
import signal
from pathlib import Path

import pytest
from terminals import Place, until

import headway
from headway.core.errors import UnknownName

pytestmark = pytest.mark.slow

WAITS_FOR_GO = "sh -c 'touch started; until [ -e go ]; do sleep 0.05; done'"


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_it_lists_first_and_removes_when_it_is_said(here: Place):
    here.write("true")
    for name in ("old", "new"):
        assert here.do("run", "jobs.txt", "--out", name, "-q").code == 0
    listed = here.do("clean", "--keep", "1")
    assert listed.code == 0
    assert listed.out.splitlines()[-1] == "nothing was removed: the same with --yes does it"
    assert "1 run would go" in listed.out
    assert "stays      new  the newest" in listed.out
    assert (here.folder / "old").is_dir()
    done = here.do("clean", "--keep", "1", "--yes")
    assert (done.code, done.err) == (0, "")
    assert "1 run removed" in done.out
    assert not (here.folder / "old").exists()
    assert here.do("status", "new").code == 0
    assert here.do("status", "old").code == 2
    named = here.do("clean", "new", "--older-than", "1d", "--yes")
    assert (named.code, "not old enough" in named.out) == (1, True)
    assert here.do("clean", "old").code == 2


def test_json_and_forgetting_what_is_gone(here: Place):
    here.write("true")
    for name in ("a", "b"):
        assert here.do("run", "jobs.txt", "--out", name, "-q").code == 0
    (here.folder / "a").rename(here.folder / "moved")
    data = json.loads(here.do("clean", "--json", "--yes").out)
    assert (data["schema"], data["dry_run"], data["forgotten"]) == (1, False, 1)
    (run,) = data["runs"]
    assert (run["run"], run["state"], run["verdict"]) == (str(here.folder / "b"), "ok", "gone")
    assert data["freed_bytes"] == run["size_bytes"] > 0
    assert (here.folder / "state" / "headway" / "runs").read_text() == ""
    assert (here.folder / "moved" / ".headway").exists()


def test_what_lives_stays_whatever_is_said(here: Place):
    here.write(f"[name=a] {WAITS_FOR_GO}", "[name=b after=a] true")
    assert here.do("run", "jobs.txt", "--detach", "--out", "r").code == 0
    until((here.folder / "started").exists, "the job")
    supervisor = json.loads(here.do("status", "r", "--json").out)["supervisor"]
    everything = ("clean", "r", "--unfinished", "--yes")
    refused = here.do(*everything)
    assert refused.code == 1
    assert f"supervised by process {supervisor}" in refused.out
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: json.loads(here.do("status", "r", "--json").out)["supervisor"] is None, "its end")
    refused = here.do(*everything)
    assert refused.code == 1
    assert "a job of it still runs" in refused.out
    (here.folder / "go").touch()
    until((here.folder / "r/jobs/1/1/exit").exists, "the job's end")
    unfinished = here.do("clean", "r", "--yes")
    assert unfinished.code == 1
    assert "unfinished: --resume goes on with it" in unfinished.out
    assert here.do("run", "--resume", "r", "-q").code == 0
    assert here.do("clean", "r", "--yes").code == 0
    assert not (here.folder / "r").exists()


def test_a_removal_that_was_cut_short_is_ended_by_the_next(here: Place):
    here.write("true")
    assert here.do("run", "jobs.txt", "--out", "r", "-q").code == 0
    (here.folder / "r" / ".headway").rename(here.folder / "r" / ".headway-removed")
    assert here.do("run", "--resume", "r").code == 2
    assert "removed in part" in here.do("clean").out
    assert here.do("clean", "--keep", "5", "--yes").code == 0
    assert not (here.folder / "r").exists()


def test_the_front_door_removes_only_what_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    runs = [headway.run(["true"], out=name).path for name in ("a", "b")]
    assert headway.clean([], dry_run=False).runs == ()
    assert [fate.verdict for fate in headway.clean().runs] == ["goes", "goes"]
    assert [fate.run for fate in headway.clean(runs[0], dry_run=False).runs] == [str(runs[0])]
    assert [path.exists() for path in runs] == [False, True]
    with pytest.raises(UnknownName):
        headway.clean("a")
    assert headway.clean(older_than_s=3600.0, dry_run=False).runs[0].reason == "not old enough"
