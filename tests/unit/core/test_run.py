import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import BadFile, UnknownName, UsageError
from headway.core.job import Jobs
from headway.core.run import EXIT_CODES, JobResult, Result, Run, outcome_of
from headway.core.words import FINAL
from headway.testing.machines import fake_machine
from headway.testing.queues import FakeQueue, fake_jobs

STATUSES = st.sampled_from(sorted(FINAL | {"waiting", "running"}))


@pytest.fixture
def made(tmp_path):
    queue = FakeQueue(jobs=fake_jobs(2))
    plan = queue.plan("serial")
    run = Run.create(
        tmp_path / "runs" / "r1",
        plan=plan,
        machine=queue.machine,
        jobs=Jobs(source="jobs.txt", jobs=tuple(queue.jobs)),
    )
    yield run
    run.folder.close()


def test_what_was_made_is_what_is_opened(made):
    opened = Run.open(made.path)
    assert opened.name == "r1"
    assert opened.plan == made.plan == FakeQueue(jobs=fake_jobs(2)).plan("serial")
    assert opened.machine == fake_machine()
    assert [job.name for job in opened.jobs.jobs] == ["job-1", "job-2"]
    assert "PATH" in opened.jobs.environment.digests
    assert (opened.marker.source, opened.marker.folder) == ("jobs.txt", os.getcwd())
    assert opened.result() is None
    opened.folder.close()


def test_everything_is_private(made):
    for path in [made.path, *made.path.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_no_value_of_the_callers_environment_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "hunter2hunter2")
    queue = FakeQueue(jobs=fake_jobs(1))
    run = Run.create(
        tmp_path / "r",
        plan=queue.plan("serial"),
        machine=queue.machine,
        jobs=Jobs(source="x", jobs=tuple(queue.jobs)),
    )
    run.folder.close()
    assert not [p for p in run.path.rglob("*") if p.is_file() and b"hunter2" in p.read_bytes()]


def test_a_folder_that_is_there_is_not_taken(made):
    queue = FakeQueue(jobs=fake_jobs(1))
    with pytest.raises(UsageError, match="exists already; choose another --out"):
        Run.create(
            made.path,
            plan=queue.plan("serial"),
            machine=queue.machine,
            jobs=Jobs(source="x", jobs=tuple(queue.jobs)),
        )


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    queue = FakeQueue(jobs=fake_jobs(1))
    with pytest.raises(UsageError, match="choose another folder with --out"):
        Run.create(
            tmp_path / "file" / "r",
            plan=queue.plan("serial"),
            machine=queue.machine,
            jobs=Jobs(source="x", jobs=tuple(queue.jobs)),
        )


def test_what_is_no_run_is_said_so(tmp_path, made):
    with pytest.raises(UnknownName, match="no run at"):
        Run.open(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir(mode=0o700)
    with pytest.raises(UnknownName, match=r"it has no \.headway file"):
        Run.open(tmp_path / "empty")
    made.path.chmod(0o777)
    with pytest.raises(BadFile, match="others may write"):
        Run.open(made.path)
    made.path.chmod(0o700)
    (tmp_path / "link").symlink_to(made.path)
    with pytest.raises((BadFile, UnknownName)):
        Run.open(tmp_path / "link")


def test_files_of_a_run_that_are_damaged_are_named(made):
    made.folder.replace("plan.json", b"\xff")
    with pytest.raises(BadFile, match=r"plan\.json: cannot be read"):
        Run.open(made.path).plan  # noqa: B018
    made.folder.remove("machine.json")
    with pytest.raises(BadFile, match=r"machine\.json"):
        Run.open(made.path).machine  # noqa: B018


def test_a_result_is_kept_and_read(made):
    result = Result(
        outcome="failed",
        mode="serial",
        start=1.0,
        end=2.0,
        jobs=(JobResult(name="job-1", status="oom", cause="killed", attempts=3),),
    )
    made.write_result(result)
    assert made.result() == result
    assert made.result().exit_code == 1


def test_requests_are_whole_files_in_the_order_they_were_made(made):
    for name in ("a", "b"):
        made.request("cancel", [name])
    with made.folder.sub("requests") as requests:
        found = [json.loads(requests.read_bytes(name, limit=999)) for name in requests.names()]
    assert [(request["verb"], request["jobs"]) for request in found] == [
        ("cancel", ["a"]),
        ("cancel", ["b"]),
    ]


def test_attempts_are_numbered_from_one(made):
    assert made.attempt_path(0, 2).relative_to(made.path).parts == ("jobs", "1", "2")


@given(st.lists(STATUSES, min_size=1))
def test_zero_only_where_every_job_ran_and_succeeded(statuses):
    outcome = outcome_of(statuses)
    assert (EXIT_CODES[outcome] == 0) == all(status == "ok" for status in statuses)
    unfinished = any(status in ("waiting", "running") for status in statuses)
    assert (EXIT_CODES[outcome] == 130) == unfinished
    if outcome == "infeasible":
        assert set(statuses) <= {"infeasible", "cancelled"}
