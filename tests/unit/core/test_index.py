import os

import pytest

from headway.core import index
from headway.core.index import MARKER, REMOVED, RUNS_FOLDER


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def run_at(path, *, made_s=0, marker=MARKER, known=True):
    path.mkdir(parents=True)
    (path / marker).write_text("{}")
    os.utime(path / marker, (made_s, made_s))
    if known:
        index.remember(path)
    return path


def test_without_an_index_there_are_no_runs(tmp_path):
    assert index.recent_runs() == []
    assert index.vanished() == 0
    index.forget_vanished()
    assert not (tmp_path / "state").exists()


def test_the_newest_first_from_everywhere_or_from_here(tmp_path, monkeypatch):
    here = run_at(tmp_path / "a", made_s=1)
    local = run_at(tmp_path / "here" / RUNS_FOLDER / "b", made_s=3, known=False)
    monkeypatch.chdir("/")
    there = run_at(tmp_path / "c", made_s=2)
    monkeypatch.chdir(tmp_path / "here")
    assert index.recent_runs() == [local, there, here]
    assert index.recent_runs(here=True) == [local, here]
    assert index.recent_runs(limit=1) == [local]


def test_the_index_is_private_and_paths_may_be_odd(tmp_path):
    path = run_at(tmp_path / os.fsdecode(b"a\xff \xe2\x80\xa8b"))
    assert index.recent_runs() == [path]
    for file in (index.state_folder(), index.state_folder() / "runs"):
        assert file.stat().st_mode & 0o077 == 0


def test_a_link_in_the_place_of_the_index_is_neither_read_nor_written(tmp_path):
    other = tmp_path / "other"
    other.write_text("kept")
    index.state_folder().mkdir(parents=True, mode=0o700)
    (index.state_folder() / "runs").symlink_to(other)
    run_at(tmp_path / "a")
    assert index.recent_runs() == []
    assert other.read_text() == "kept"


def test_what_is_gone_is_forgotten_and_nothing_else(tmp_path):
    stays, cut_short = run_at(tmp_path / "a"), run_at(tmp_path / "b", marker=REMOVED)
    for name in ("c", "d"):
        path = run_at(tmp_path / name)
        (path / MARKER).unlink()
    index.remember(stays)
    assert index.vanished() == 2
    index.forget_vanished()
    assert index.vanished() == 0
    lines = (index.state_folder() / "runs").read_text().splitlines()
    assert lines == [f"{os.getcwd()}\t{path}" for path in (stays, cut_short)]
    assert index.recent_runs() == [stays]
    assert index.recent_runs(which=index.is_left_over) == [cut_short]


def test_a_folder_that_cannot_be_looked_into_is_not_forgotten(tmp_path):
    run_at(tmp_path / "disk" / "a")
    (tmp_path / "disk").rename(tmp_path / "away")
    (tmp_path / "disk").symlink_to(tmp_path / "disk")  # neither there nor surely gone
    assert index.vanished() == 0
    assert index.recent_runs() == []


def test_a_run_that_is_remembered_while_others_are_forgotten_stays(tmp_path, monkeypatch):
    (run_at(tmp_path / "gone") / MARKER).unlink()
    looked, late = index._gone, tmp_path / "late"

    def meanwhile(path):
        if not late.exists():
            run_at(late)
        return looked(path)

    monkeypatch.setattr(index, "vanished", lambda: 1)
    monkeypatch.setattr(index, "_gone", meanwhile)
    index.forget_vanished()
    assert index.recent_runs() == [late]
