from headway.core.units import GIB, NS_PER_S
from headway.core.view import View
from headway.core.words import Exited, Outcome, Reshare, Retry, Settle, Share, Start, Stop
from headway.planners.queue import Queue
from headway.reports.summary import job_result, result_of
from headway.sim.attempt import Fate
from headway.sim.drive import drive
from headway.testing.machines import fake_machine
from headway.testing.queues import FakeQueue, fake_job, fake_jobs


def summary_of(queue, mode="partitioned"):
    plan = queue.plan(mode)
    world = queue.world(plan)
    drive(Queue(**plan.policy.knobs), world)
    return result_of(world.view, plan, began_ns=0, ended_ns=world.now_ns, notes=["x", "x"])


def view_of(*jobs, mode="shared"):
    queue = FakeQueue(jobs=jobs)
    view = View.of(jobs, queue.plan(mode).placements, queue.machine)
    for index in range(len(jobs)):
        view.arrive(index)
    return view, queue.plan(mode)


def test_a_run_that_went_well():
    result = summary_of(FakeQueue(jobs=fake_jobs(2)))
    assert (result.outcome, result.exit_code, result.mode) == ("ok", 0, "partitioned")
    first, second = result.jobs
    assert (first.start, first.end, first.first_step, first.attempts) == (0.0, 11.0, 1.0, 1)
    assert (first.steps, first.step_s, first.peak_bytes) == (100, 0.1, 10**8)
    assert (first.cores, second.cores, first.threads) == ((0,), (1,), 1)
    assert result.notes[0] == "x"
    assert result.notes[1].startswith("thread counts were set for 2 of 2 jobs")
    assert len(result.notes) == 2


def test_serial_changes_no_threads_and_says_nothing_of_them():
    assert summary_of(FakeQueue(jobs=fake_jobs(2)), mode="serial").notes == ("x",)


def test_failures_have_their_cause():
    queue = FakeQueue(jobs=[fake_job("a"), fake_job("b", after=("a",))], fates={"a": Fate(fails=1)})
    result = summary_of(queue)
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert [(job.status, job.exit_code) for job in result.jobs] == [
        ("failed", 1),
        ("cancelled", None),
    ]
    assert result.jobs[1].cause == "needs a, which ended failed"
    assert result.jobs[1].attempts == 0


def test_nothing_placed_is_infeasible():
    result = summary_of(FakeQueue(jobs=[fake_job("a", cores=9)]))
    assert (result.outcome, result.exit_code) == ("infeasible", 3)


def test_a_job_that_waits_tells_why_it_waits_not_why_it_was_stopped():
    view, plan = view_of(fake_job("a"), fake_job("b"))
    view.apply(Start(0, Share()), 1)
    view.apply(Stop(0, "memory", "only 1 GiB was left"), 2)
    assert job_result(view.states[0]).cause == "only 1 GiB was left"
    view.apply(Exited(3, 0, Outcome("cancelled", stopped="memory")), 3)
    view.apply(Retry(0, GIB, "gave way; waits for 1.0 GiB", "none"), 3)
    found = job_result(view.states[0])
    assert (found.status, found.cause) == ("waiting", "gave way; waits for 1.0 GiB")
    assert found.notes == ("gave way once when memory ran low",)
    assert result_of(view, plan, began_ns=0, ended_ns=4).outcome == "interrupted"


def test_a_confinement_is_told_whatever_came_after():
    view, _ = view_of(fake_job("a"))
    view.apply(Start(0, Share(threads=1)), 1)
    view.apply(Reshare(0, (0,), "computes with 2 threads, its share is 1"), 2)
    view.apply(Exited(3, 0, Outcome("failed", cause="exit 1")), 3)
    view.apply(Settle(0, "failed", "exit 1"), 3)
    found = job_result(view.states[0])
    assert (found.cause, found.notes) == ("exit 1", ("computes with 2 threads, its share is 1",))


def test_a_stalled_job_is_marked_while_it_runs():
    view, _ = view_of(fake_job("a"))
    view.apply(Start(0, Share()), 1)
    view.states[0].stalled_mark = True
    assert job_result(view.states[0]).notes[0].startswith("stalled: no step")
    view.apply(Exited(3, 0, Outcome("ok", unseen="not torch", notes=("left a daemon",))), 3)
    view.apply(Settle(0, "ok", ""), 3)
    assert job_result(view.states[0]).notes == ("not torch", "left a daemon")


def test_others_and_too_large_peaks_are_noted():
    view, plan = view_of(fake_job("a"))
    view.foreign_cores = 1.26
    view.states[0].peak_bytes = 9 * GIB
    notes = result_of(view, plan, began_ns=0, ended_ns=NS_PER_S).notes
    assert notes == (
        "others use 1.3 cores of this machine",
        "a job's peak of 9.0 GiB is above what the machine has for jobs",
    )


def test_times_are_seconds_of_the_last_attempt():
    view, plan = view_of(fake_job("a"))
    view.apply(Start(0, Share()), 2 * NS_PER_S)
    view.apply(Exited(3 * NS_PER_S, 0, Outcome("failed")), 3 * NS_PER_S)
    view.apply(Retry(0, None, "again", "retry"), 3 * NS_PER_S)
    view.apply(Start(0, Share()), 4 * NS_PER_S)
    found = result_of(view, plan, began_ns=NS_PER_S, ended_ns=9 * NS_PER_S)
    assert (found.start, found.end) == (1.0, 9.0)
    assert (found.jobs[0].start, found.jobs[0].end, found.jobs[0].attempts) == (4.0, None, 2)
    assert fake_machine().usable_cores == 2
