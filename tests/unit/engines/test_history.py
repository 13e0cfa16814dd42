"""What a journal tells is the view as it stood: on random queues, to the last field."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.core.errors import BadFile
from headway.core.job import Jobs
from headway.core.plan import MODES
from headway.core.run import Run
from headway.core.words import Exited, Outcome, Reshare, Retry, Settle, Share, Start, Stop, Tick
from headway.engines.local.history import history
from headway.engines.local.journal import JOURNAL, Journal
from headway.planners.queue import Queue
from headway.sim.attempt import Fate
from headway.sim.drive import drive
from headway.testing.queues import FakeQueue, fake_job

# What a sampler measures while a job runs; the journal has it only once an attempt has ended.
MEASURED = {
    "phase": None,
    "resident_bytes": None,
    "cores_used": None,
    "busy_threads": None,
    "processes": None,
    "quiet_since_ns": None,
    "last_step_ns": None,
}


def made(path, queue, mode="partitioned"):
    return Run.create(
        path,
        plan=queue.plan(mode),
        machine=queue.machine,
        jobs=Jobs(source="x", jobs=tuple(queue.jobs)),
    )


@pytest.fixture
def run(tmp_path):
    queue = FakeQueue(jobs=[fake_job("a"), fake_job("b", after=("a",))])
    run = made(tmp_path / "run", queue)
    yield run
    run.folder.close()


def written(run, *words):
    journal = Journal(run.folder)
    for t, word in enumerate(words):
        if isinstance(word, dict):
            journal.note(t, word)
        else:
            journal.word(t, word)
    journal.commit()
    journal.close()


def told(run):
    return history(run, run.plan, run.jobs.jobs, run.machine)


@st.composite
def queues(draw):
    count = draw(st.integers(1, 5))
    jobs = [
        fake_job(
            f"job-{index}",
            retries=draw(st.integers(0, 2)),
            after=(f"job-{draw(st.integers(0, index - 1))}",)
            if index and draw(st.booleans())
            else (),
        )
        for index in range(count)
    ]
    fates = {
        job.name: Fate(
            fails=draw(st.integers(0, 2)),
            threads=draw(st.sampled_from([None, 3])),
            needs_bytes=draw(st.sampled_from([None, 3 * 2**30, 9 * 2**30])),
        )
        for job in jobs
    }
    return FakeQueue(jobs=jobs, fates=fates)


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(queue=queues(), mode=st.sampled_from(MODES))
def test_a_replayed_journal_gives_the_view_back(tmp_path_factory, queue, mode):
    plan = queue.plan(mode)
    world = queue.world(plan)
    drive(Queue(**plan.policy.knobs), world)
    run = made(tmp_path_factory.mktemp("history") / "run", queue, mode)
    journal = Journal(run.folder)
    for t, word in world.words:
        if not isinstance(word, Tick):
            journal.word(t, word)
    journal.commit()
    journal.close()
    view = told(run).view
    for state, lived in zip(view.states, world.view.states, strict=True):
        for field in type(state).__slots__:
            if field not in MEASURED:
                assert getattr(state, field) == getattr(lived, field), field
    for field in ("waiting", "free_cores", "free_devices", "reserved_bytes", "unsettled"):
        assert getattr(view, field) == getattr(world.view, field)
    assert (view.peaks, view.step_counts) == (world.view.peaks, world.view.step_counts)
    run.folder.close()


def test_a_run_that_never_began_has_nothing_to_tell(run):
    found = told(run)
    assert (found.began_ns, found.ended_ns, found.lives, found.memory) == (None, None, 0, None)
    assert found.view.arrivals() == [0]


def test_lives_boots_groups_and_memory_are_kept(run):
    written(
        run,
        {"k": "open", "boot": "one", "groups": {"memory": "/g"}, "notes": ["no cpuset"]},
        Start(0, Share()),
        {"k": "memory", "memory": {"blocked": 1}},
        {"k": "open", "boot": "two", "groups": {}, "notes": []},
        {"k": "note", "text": "a word"},
    )
    found = told(run)
    assert (found.lives, found.memory, found.notes) == (2, {"blocked": 1}, ["no cpuset", "a word"])
    assert (found.boots, found.groups) == ({0: "one"}, {0: {"memory": "/g"}})
    assert (found.began_ns, found.ended_ns) == (0, 4)
    assert list(found.view.running) == [0]


def test_a_stop_that_has_not_worked_yet_is_told_and_one_that_has_is_not(run):
    stop = Stop(0, "timeout", "timeout=3 s is over")
    written(run, Start(0, Share()), stop)
    assert told(run).stops == {0: ("timeout", "timeout=3 s is over")}
    written(run, Exited(2, 0, Outcome("timeout", stopped="timeout")))
    assert told(run).stops == {}
    assert told(run).events == [(1, "a: timeout=3 s is over")]


def test_a_confinement_is_an_event(run):
    written(run, Start(0, Share()), Reshare(0, (0,), "computes with 2 threads"))
    assert told(run).events == [(1, "a: computes with 2 threads")]
    assert told(run).view.states[0].confined == "computes with 2 threads"


def test_a_crash_between_the_words_of_a_chain_leaves_the_follower_unready(run):
    written(
        run,
        Start(0, Share()),
        Exited(1, 0, Outcome("failed")),
        Settle(0, "failed", "exit 1"),
    )
    view = told(run).view
    assert view.arrivals() == []
    assert list(view.abandoned()) == [Settle(1, "cancelled", "needs a, which ended failed")]


def test_jobs_that_shall_run_again_wait(run):
    written(
        run,
        Start(0, Share()),
        Exited(1, 0, Outcome("failed")),
        Settle(0, "failed", "exit 1"),
        Settle(1, "cancelled", ""),
        {"k": "again", "job": 0},
        {"k": "again", "job": 1},
    )
    view = told(run).view
    assert view.arrivals() == [0]
    assert view.unsettled == 2


@pytest.mark.parametrize(
    "words",
    [
        [Start(7, Share())],
        [Settle(-1, "ok", "")],
        [{"k": "again", "job": 9}],
        [Exited(0, 0, Outcome("ok"))],
        [Start(0, Share()), Exited(1, 0, Outcome("ok")), Exited(2, 0, Outcome("ok"))],
        [{"k": "memory"}],
        [Retry(2, None, "", "none")],
    ],
)
def test_words_that_contradict_the_run_are_a_damaged_journal(run, words):
    written(run, *words)
    with pytest.raises(BadFile, match=rf"{JOURNAL}: what it says of t=\d does not fit"):
        told(run)
