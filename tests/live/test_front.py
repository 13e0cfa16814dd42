"""The front door from Python: real runs, from a list of commands to the report."""

import os
from pathlib import Path

import pytest

import headway
from headway.core.errors import UnknownName, UsageError
from headway.system.cgroups import Cgroups


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.slow
def test_a_list_of_commands_and_jobs_runs_and_tells() -> None:
    job = headway.Job(name="own", command="echo from a job", folder=os.getcwd())
    handle = headway.run(["[name=fine] echo fine", job, "[name=off after=fine] exit 4"])
    result = handle.status()
    assert [(j.name, j.status) for j in result.jobs] == [
        ("fine", "ok"),
        ("own", "ok"),
        ("off", "failed"),
    ]
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert handle.logs("fine") == "fine\n"
    assert handle.logs("own") == "from a job\n"
    assert handle.explain().jobs[2].cause == "exit 4; nothing on stderr"
    assert headway.open_run().path == handle.path
    assert headway.open_run(handle.name).status() == result


@pytest.mark.slow
def test_retry_runs_what_failed_and_nothing_else() -> None:
    command = "[name=b] echo again >> b; test $(wc -l < b) = 2"
    handle = headway.run(["[name=a] echo once >> a", command])
    assert handle.status().outcome == "failed"
    assert handle.retry(failed=True).outcome == "ok"
    assert Path("a").read_text() == "once\n"
    assert Path("b").read_text() == "again\nagain\n"
    with pytest.raises(UsageError, match="nothing to retry"):
        handle.retry(failed=True)


@pytest.mark.slow
def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UnknownName, match="no run was started from this folder"):
        headway.open_run()
    handle = headway.run(["true"])
    with pytest.raises(UnknownName, match='no job "b" in run'):
        handle.logs("b")
    assert handle.wait().outcome == "ok"
    assert handle.cancel() == list(handle.status().jobs)


@pytest.mark.slow
@pytest.mark.cgroup
def test_a_job_cannot_leave_the_cores_of_its_cpuset() -> None:
    cgroups = Cgroups.discover()
    why_not = [reason for reason in cgroups.usable.values() if reason]
    if why_not:
        pytest.skip(f"cgroup: {why_not[0]}")
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("cgroup: one core leaves nothing to escape to")
    script = f"import os; os.sched_setaffinity(0, {cores}); print(os.sched_getaffinity(0))"
    handle = headway.run([f'python3 -c "{script}"'], mode="partitioned")
    given = handle.status().jobs[0].cores
    assert given is not None
    assert len(given) == 1
    assert handle.logs(handle.status().jobs[0].name) == f"{set(given)}\n"
