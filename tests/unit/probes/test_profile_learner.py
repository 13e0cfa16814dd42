"""What is kept of a run while it is watched: whole attempts, in company or alone, in few writes."""

import os
from dataclasses import replace

import pytest

from headway.core.plan import Placement
from headway.core.units import NS_PER_S
from headway.core.view import View
from headway.core.words import Exited, Outcome, Reshare, Share, Start, Tick
from headway.core.workload import Workload
from headway.planners.queue import Queue
from headway.probes.profiles.attempts import Learner, part_shared
from headway.probes.profiles.identity import NO_FILE, UNKNOWN_CONTENT, Contents
from headway.sim.attempt import Fate
from headway.sim.drive import drive
from headway.testing.machines import fake_machine
from headway.testing.queues import FakeQueue, fake_job

BEGAN_NS = 10**18


class Kept:
    """Takes what a learner hands over; `busy` refuses it."""

    def __init__(self):
        self.rows = []
        self.writes = 0
        self.busy = False

    def __call__(self, attempts, *, wait_s):
        self.writes += 1
        if not self.busy:
            self.rows += attempts
        return not self.busy


class Watched:
    """A run of two jobs as its words come, and a learner that watches; times in seconds."""

    def __init__(self, *jobs, environment=None, cores=2, **knobs):
        jobs = jobs or (fake_job("a"), fake_job("b"))
        machine = fake_machine(cores=cores)
        self.view = View.of(jobs, [Placement(job=job.name) for job in jobs], machine)
        self.kept = Kept()
        self.learner = Learner(self.kept, machine, environment=environment or {}, **knobs)

    def tell(self, word, second, *, watch=True):
        t = BEGAN_NS + round(second * NS_PER_S)
        self.view.apply(word, t)
        if watch:
            event = replace(word, t=t) if hasattr(word, "t") else Tick(t)
            self.learner.watch(event, self.view)

    def tick(self, second):
        self.tell(Tick(0), second)

    def start(self, index, second, **share):
        self.view.arrive(index)
        self.tell(Start(index, Share(**share)), second)

    def end(self, index, second, status="ok", **outcome):
        self.tell(Exited(0, index, Outcome(status, **outcome)), second)

    def rows(self):
        self.learner.flush()
        return self.kept.rows


@pytest.fixture
def watched():
    return Watched()


def at(second):
    return BEGAN_NS + round(second * NS_PER_S)


def test_an_attempt_as_it_is_kept(watched):
    watched.start(0, 0, cores=(1,), threads=1)
    watched.end(
        0, 12, steps=100, mean_step_ns=90_000_000, first_step_ns=at(2), cpu_s=9.0, peak_bytes=7
    )
    (row,) = watched.rows()
    assert (row.start_up_s, row.work_s, row.total_s) == (2.0, 10.0, 12.0)
    assert (row.threads, row.cores, row.steps, row.step_s) == (1, 1, 100, 0.09)
    assert (row.cores_used, row.peak_bytes, row.status) == (0.75, 7, "ok")
    assert (row.alone_part, row.foreign_part, row.stretch) == (1.0, 0.0, None)
    assert (row.ended_ns, row.script_name) == (at(12), "a")


@pytest.mark.parametrize(
    ("asked", "share", "environment", "count"),
    [
        ({}, {"threads": 1}, {}, 1),
        ({}, {}, {}, 4),
        ({}, {}, {"OMP_NUM_THREADS": "3"}, 3),
        ({}, {"cores": (0, 1)}, {}, 2),  # libraries count the cores that they see
        ({}, {"cores": (0, 1)}, {"OMP_NUM_THREADS": "4"}, 4),
    ],
)
def test_the_threads_it_had(asked, share, environment, count):
    watched = Watched(fake_job("a", **asked), environment=environment, cores=4)
    watched.start(0, 0, **share)
    watched.end(0, 10)
    assert watched.rows()[0].threads == count


def test_one_that_was_confined_computed_with_more_threads_than_it_was_given(watched):
    watched.start(0, 0, threads=1, cores=(0,))
    watched.view.states[0].busy_threads = 2
    watched.tell(Reshare(0, (0,), "it computes with 2 threads"), 3)
    watched.end(0, 10)
    (row,) = watched.rows()
    assert (row.threads, row.tells_pace) == (2, False)


def test_the_part_of_its_time_that_it_was_alone(watched):
    watched.start(0, 0)
    watched.start(1, 4)
    watched.end(1, 6)
    watched.start(1, 9)
    watched.end(0, 10)
    watched.end(1, 19)
    assert [round(row.alone_part, 3) for row in watched.rows()] == [0.0, 0.7, 0.9]


def test_others_count_where_they_leave_too_few_cores(watched):
    watched.start(0, 0)
    watched.view.states[0].cores_used = 1.0
    watched.view.foreign_cores = 0.9
    watched.tick(4)  # 1.9 of 2 cores
    watched.view.foreign_cores = 1.9
    watched.tick(6)
    watched.tick(8)
    watched.view.foreign_cores = 0.1
    watched.end(0, 10)
    (row,) = watched.rows()
    assert row.foreign_part == pytest.approx(0.4)


def test_what_is_not_kept(watched):
    watched.start(0, 0)
    watched.end(0, 0.9)  # too short to be worth planning
    watched.start(0, 1)
    watched.end(0, 9, "lost")
    assert watched.rows() == []


def test_an_attempt_that_ran_before_the_supervisor_is_no_measurement_but_a_neighbour(watched):
    watched.view.arrive(1)
    watched.tell(Start(1, Share()), -30, watch=False)
    watched.tick(0)
    watched.start(0, 2)
    watched.end(0, 12)
    watched.end(1, 20)
    (row,) = watched.rows()
    assert (row.total_s, row.alone_part) == (10.0, 0.0)


def test_an_attempt_that_was_followed_by_another_at_once_is_kept_as_it_was(watched):
    """The policy's answer to an end may start the job again before anybody sees the view."""
    watched.start(0, 0, threads=1, cores=(0,))
    watched.tell(Exited(0, 0, Outcome("oom", peak_bytes=5)), 4, watch=False)
    watched.view.arrive(0)
    watched.tell(Start(0, Share(threads=1, cores=(0, 1))), 4, watch=False)
    watched.learner.watch(Exited(at(4), 0, Outcome("oom", peak_bytes=5)), watched.view)
    watched.end(0, 10)
    first, second = watched.rows()
    assert (first.status, first.total_s, first.cores, first.peak_bytes) == ("oom", 4.0, 1, 5)
    assert (second.status, second.total_s, second.cores) == ("ok", 6.0, 2)


def test_nonsense_that_a_job_wrote_into_its_own_recording_is_not_kept(watched):
    watched.start(0, 0)
    watched.end(0, 10, steps=2**64 - 1)
    assert watched.rows() == []


def test_a_first_step_outside_the_attempt_is_none(watched):
    watched.start(0, 0)
    watched.end(0, 10, steps=5, first_step_ns=at(11))
    (row,) = watched.rows()
    assert (row.start_up_s, row.work_s) == (None, None)


def test_somebody_may_know_the_stretch():
    watched = Watched(stretch_of={0: 1.5}.get)
    for index in (0, 1):
        watched.start(index, 0)
        watched.end(index, 10)
    assert [row.stretch for row in watched.rows()] == [1.5, None]


def test_writes_are_few(watched):
    for number in range(40):
        watched.start(0, 2 * number)
        watched.end(0, 2 * number + 1.5)
    assert watched.kept.writes <= 40 * 2 / 5 + 1
    assert len(watched.rows()) == 40


def test_a_run_of_trivial_jobs_writes_nothing():
    jobs = [fake_job(f"true-{n}", command="true") for n in range(50)]
    watched = Watched(*jobs)
    for index in range(50):
        watched.start(index, index / 10)
        watched.end(index, index / 10 + 0.05)
    assert watched.rows() == []
    assert watched.kept.writes == 0


def test_what_a_busy_store_does_not_take_is_held_back_and_never_without_end(monkeypatch):
    monkeypatch.setattr("headway.probes.profiles.attempts._MOST_HELD", 3)
    watched = Watched()
    watched.kept.busy = True
    for number in range(9):
        watched.start(0, 10 * number)
        watched.end(0, 10 * number + 6)
    watched.tick(100)
    watched.kept.busy = False
    assert [row.ended_ns for row in watched.rows()] == [at(66), at(76), at(86)]


def test_a_script_is_known_as_it_was_when_its_job_began(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("one")
    os.utime(script, ns=(at(-1), at(-1)))
    before = Contents().of(str(script))
    watched = Watched(fake_job("a", command="python train.py", folder=str(tmp_path)))
    watched.start(0, 0)
    script.write_text("two")
    os.utime(script, ns=(at(5), at(5)))
    watched.end(0, 10)
    assert watched.rows()[0].content == before


def test_a_script_that_was_edited_before_anybody_looked_is_unknown(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("two")
    os.utime(script, ns=(at(1), at(1)))
    assert Contents().of(str(script), since_ns=at(0)) == UNKNOWN_CONTENT
    assert Contents().of(str(script), since_ns=at(2)) == Contents().of(str(script))


def test_what_is_no_plain_file_has_no_content(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    for path in ("", str(tmp_path), str(tmp_path / "pipe.py"), str(tmp_path / "gone.py")):
        assert Contents().of(path) == NO_FILE


def test_a_file_that_changes_is_read_again(tmp_path):
    contents, script = Contents(), tmp_path / "train.py"
    script.write_text("one")
    before = contents.of(str(script))
    script.write_text("three")
    assert contents.of(str(script)) != before


def test_only_so_much_of_a_script_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("headway.probes.profiles.identity._CONTENT_BYTES", 3)
    (tmp_path / "a.py").write_text("abcd")
    (tmp_path / "b.py").write_text("abce")
    assert Contents().of(str(tmp_path / "a.py")) == Contents().of(str(tmp_path / "b.py"))


def test_a_module_has_the_content_of_its_file(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("one")
    watched = Watched(fake_job("a", command="python -m pkg.train", folder=str(tmp_path)))
    watched.start(0, 10**6)  # after the file was written, however the clocks stand
    watched.end(0, 10**6 + 10)
    (row,) = watched.rows()
    assert row.script_name == "-m pkg.train"
    assert row.content in (UNKNOWN_CONTENT, Contents().of(str(tmp_path / "pkg" / "train.py")))


def test_parts_shared_with_nobody_and_with_everybody():
    assert part_shared(0, 10, []) == 0.0
    assert part_shared(0, 10, [(-5, 50), (2, 3)]) == 1.0
    assert part_shared(5, 5, [(0, 10)]) == 0.0


def test_a_simulated_run_is_learnt_as_it_went():
    queue = FakeQueue(
        [fake_job("a"), fake_job("b"), fake_job("c")],
        workloads={
            "b": Workload.opaque("b", work_ns=4 * NS_PER_S, start_up_ns=NS_PER_S, steps=8),
        },
        fates={"c": Fate(fails=1)},
    )
    kept = Kept()
    with Learner(kept, queue.machine, environment={}) as learner:
        drive(Queue(slots=2, pin=True), queue.world(queue.plan("partitioned")), watch=learner.watch)
    rows = {row.script_name: row for row in kept.rows}
    assert {name: row.status for name, row in rows.items()} == {"a": "ok", "b": "ok", "c": "failed"}
    assert (rows["b"].start_up_s, rows["b"].work_s, rows["b"].steps) == (1.0, 4.0, 8)
    assert (rows["b"].threads, rows["b"].cores, rows["b"].alone_part) == (1, 1, 0.0)
    assert rows["a"].undisturbed
