"""The page on disk: what is read of a run folder into which strangers may have written."""

import os
import stat

import pytest

from headway.core.job import Jobs
from headway.core.run import Run
from headway.core.timeline import COUNTERS, TIMELINE, Reading, counter_line
from headway.core.units import GIB
from headway.handle import RunHandle
from headway.reports import pagefile
from headway.reports.pagefile import ALL_TAILS_BYTES, TAIL_BYTES, write_page
from headway.testing.queues import FakeQueue, fake_jobs
from results import T, job, ran, result, timeline


@pytest.fixture
def run(tmp_path):
    queue = FakeQueue(jobs=fake_jobs(2))
    listed = Jobs(source="jobs.txt", jobs=tuple(queue.jobs))
    made = Run.create(
        tmp_path / "sweep-1", plan=queue.plan("serial"), machine=queue.machine, jobs=listed
    )
    yield made
    made.folder.close()


WHOLE = result(job("job-1"), job("job-2", 60.0, 118.0))


def attempt(run, index=0):
    folder = run.attempt_path(index, 1)
    folder.mkdir(parents=True, mode=0o700)
    return folder


def written(run, whole=WHOLE):
    write_page(run, whole)
    return (run.path / "report.html").read_text(encoding="utf-8")


def test_a_folder_without_records_or_logs_has_a_page(run):
    text = written(run)
    assert "No attempt of this run was written down" in text
    assert stat.S_IMODE(os.stat(run.path / "report.html").st_mode) == 0o600


def test_records_and_logs_are_shown(run):
    lines = timeline(*ran(0, 0.0, 60.0)).lines()
    (run.path / TIMELINE).write_text("".join(f"{line}\n" for line in lines))
    reading = Reading(t=0, lane="job/1", name="resident_bytes", value=3 * GIB)
    (run.path / COUNTERS).write_text(counter_line(reading) + "\n")
    (attempt(run) / "stdout").write_text("loss 0.25\n")
    text = written(run)
    assert "1 job-1: ok, 0:00 to 1:00" in text
    assert "3.0 GiB" in text
    assert "<h3>stdout</h3>" in text
    assert "loss 0.25" in text


def test_records_that_are_broken_cost_the_picture_alone(run):
    (run.path / TIMELINE).write_bytes(b"\xff{nonsense\n{}\n")
    (run.path / COUNTERS).write_bytes(b"\xff{nonsense\n{}\n")
    assert "No attempt of this run was written down" in written(run)


def test_of_a_long_log_the_end_is_read(run):
    (attempt(run) / "stdout").write_text("".join(f"line {n}\n" for n in range(200_000)))
    text = written(run)
    assert "<h3>the end of stdout</h3>" in text
    assert "line 199998\nline 199999</pre>" in text
    assert "line 1\n" not in text
    assert len(text) < 40_000


def test_a_line_of_a_megabyte_is_cut(run):
    (attempt(run) / "stdout").write_text("x" * 2**20)
    text = written(run)
    assert "x" * (TAIL_BYTES // 2) in text
    assert "x" * (TAIL_BYTES + 1) not in text


def test_what_is_no_plain_file_is_not_opened(run, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("not for the page")
    folder = attempt(run)
    (folder / "stdout").symlink_to(secret)
    os.mkfifo(folder / "stderr")
    (run.path / "jobs" / "2").symlink_to(tmp_path)
    text = written(run)
    assert "not for the page" not in text
    assert text.count("It wrote nothing that could be read.") == 2


def test_all_logs_together_have_a_bound_and_failed_jobs_their_part():
    jobs = [job(f"j{n}", status="failed" if n % 500 == 0 else "ok") for n in range(5000)]
    sizes = pagefile._sizes(jobs)
    assert len(pagefile.STREAMS) * sum(sizes.values()) <= ALL_TAILS_BYTES
    assert {sizes[n] for n in range(0, 5000, 500)} == {TAIL_BYTES}
    never = job("waiting", attempts=0, status="waiting")
    assert pagefile._sizes([never]) == {}


def test_a_page_that_cannot_be_written_is_told_in_words(run, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    handle = RunHandle(run)
    monkeypatch.setattr(run.folder, "replace", full)
    words = handle.write_page(WHOLE)
    assert words == "report.html was not written: [Errno 28] No space left on device"
    assert handle.page is None


def test_a_page_that_cannot_be_made_is_told_too(run, monkeypatch):
    monkeypatch.setattr(pagefile, "page", lambda *_, **__: 1 / 0)
    assert RunHandle(run).write_page(WHOLE) == "report.html was not written: division by zero"


def test_the_page_says_when_the_run_ended(run):
    assert "Ended 2023-11-14 22:15 UTC." in written(run)
    assert WHOLE.end == T + 118.0
