from headway.core.job import Job
from headway.core.units import GIB, NS_PER_S
from headway.core.view import View
from headway.core.words import Exited, Outcome, Settle, Share, Start
from headway.core.workload import Workload
from headway.planners.queue import Queue
from headway.reports.limits import limited_by
from headway.reports.oversubscription import oversubscribed
from headway.sim.drive import drive
from headway.testing.machines import fake_machine
from headway.testing.queues import FakeQueue, fake_job, fake_jobs


def limit_of(jobs, seconds, *, mode="partitioned", **asked):
    queue = FakeQueue(
        jobs=jobs,
        machine=fake_machine(cores=2, memory_bytes=8 * GIB),
        workloads={
            job.name: Workload.opaque(job.name, work_ns=s * NS_PER_S, steps=100)
            for job, s in zip(jobs, seconds, strict=True)
        },
    )
    world = queue.world(queue.plan(mode))
    drive(Queue(**queue.plan(mode).policy.knobs), world)
    return limited_by(world.view)


def test_full_cores_are_the_limit():
    assert limit_of(fake_jobs(4), [10, 10, 10, 10]).startswith("the cores:")


def test_a_long_last_job_is_named():
    words = limit_of(fake_jobs(3), [10, 10, 60])
    assert words.startswith("the end: while job-3 went on")
    assert "43%" in words  # 60 of 2 x 70 s


def test_cores_that_stood_free_while_jobs_waited():
    jobs = fake_jobs(4, memory_bytes=5 * GIB)
    assert limit_of(jobs, [10, 10, 10, 10]).startswith("room: ")


def test_no_run_has_no_limit():
    jobs = fake_jobs(2)
    queue = FakeQueue(jobs=jobs)
    assert limited_by(View.of(jobs, queue.plan("serial").placements, queue.machine)) == ""


def side_by_side(threads, cores=None, apart_s=0):
    """The view of two jobs of 30 s each, `apart_s` after each other, seen with such threads."""
    jobs: list[Job] = [fake_job("a"), fake_job("b")]
    queue = FakeQueue(jobs=jobs, machine=fake_machine(cores=2))
    view = View.of(jobs, queue.plan("naive").placements, queue.machine)
    for index in range(2):
        view.arrive(index)
        view.apply(Start(index, Share(cores=cores)), index * apart_s * NS_PER_S)
        view.states[index].busy_threads = threads
        if apart_s:
            end(view, index, (30 + index * apart_s) * NS_PER_S)
    for index in list(view.running):
        end(view, index, 30 * NS_PER_S)
    return view


def end(view, index, t):
    view.apply(Exited(t, index, Outcome("ok", exit_code=0)), t)
    view.apply(Settle(index, "ok", ""), t)


def test_threads_that_are_too_many_for_the_cores_are_named():
    words = oversubscribed(side_by_side(2))
    assert words.startswith("oversubscribed threads: up to 4 on 2 cores, for 0:30: a (2), b (2)")


def test_one_thread_each_is_not_oversubscribed():
    assert oversubscribed(side_by_side(1)) == ""


def test_one_after_another_is_not_oversubscribed():
    assert oversubscribed(side_by_side(2, apart_s=30)) == ""


def test_threads_that_were_not_seen_are_not_accused():
    assert oversubscribed(side_by_side(None)) == ""
