import pytest

from headway.core.estimate import Estimate
from headway.core.estimate import unknown as not_known
from headway.core.units import NS_PER_S
from headway.core.workload import Pace, Workload
from headway.forecast.expected import Expected
from headway.forecast.queue import forecast
from headway.planners.queue import Queue
from headway.probes.progress import Progress
from headway.reports.comparison import COST_OF_COMPANY, Known, compared
from headway.reports.summary import result_of
from headway.sim.attempt import Fate
from headway.sim.drive import drive
from headway.sim.world import SimulatedWorld
from headway.testing.machines import fake_machine
from headway.testing.queues import FakeQueue, fake_job

SLOWED = 0.8


def seconds(value, origin="measured"):
    return Estimate(
        value=value, low=0.9 * value, high=1.1 * value, unit="s", origin=origin, source="a run"
    )


def known_job(name, one_thread_s, two_threads_s=None, steps=101):
    """A job of 1 s of start-up, measured with one thread, or with one and with two."""
    per_step = 1 / (steps - 1)
    paces = [Pace(threads=1, work=seconds(one_thread_s), step=seconds(one_thread_s * per_step))]
    if two_threads_s is not None:
        step = seconds(two_threads_s * per_step)
        paces.append(Pace(threads=2, work=seconds(two_threads_s), step=step, cores=2.0))
    base = Workload.opaque(
        name, work_ns=round(one_thread_s * NS_PER_S), start_up_ns=NS_PER_S, steps=steps
    )
    return base.model_copy(
        update={"paces": tuple(paces), "start_up": seconds(1.0), "own_threads": 2}
    )


def slowed_by_neighbours(beside):
    return [1.0 if len(beside) == 1 else SLOWED] * len(beside)


def carried_out(workloads, *, before=None, learnt=(), mode="partitioned", fates=None):
    """A simulated run of these jobs on two cores, compared with what was known before and after."""
    jobs = [fake_job(workload.job) for workload in workloads]
    queue = FakeQueue(jobs=jobs, machine=fake_machine(cores=2))
    plan = queue.plan(mode)
    world = SimulatedWorld(
        jobs,
        plan.placements,
        queue.machine,
        workloads,
        together=slowed_by_neighbours,
        fates=fates,
    )
    progress = Progress()
    drive(Queue(**plan.policy.knobs), world, watch=progress.watch)
    result = result_of(world.view, plan, began_ns=0, ended_ns=world.now_ns)
    expected = None
    if before is not None:
        told = forecast(plan, Queue(**plan.policy.knobs), jobs, before, queue.machine)
        expected = Expected.of(told, before)
    known = Known(expected=expected, learnt=learnt, passages=progress.passages())
    return compared(result, world.view, known)


def test_both_references_of_a_measured_pair():
    pair = [known_job("a", 20, 16), known_job("b", 20, 40)]
    result = carried_out(pair, before=pair)
    a, b = result.jobs
    took = 21 / SLOWED
    assert a.seconds == pytest.approx(took)
    assert a.as_placed.times.value == pytest.approx(took / 21)
    assert a.as_placed.alone.origin == "measured"
    assert a.by_default.times.value == pytest.approx(took / 17)
    assert b.by_default.times.value == pytest.approx(took / 41)
    assert a.by_default.times.low < a.by_default.times.value < a.by_default.times.high
    assert result.serial.value == pytest.approx(17 + 41)
    assert result.weighted_speed_up.value == pytest.approx((17 + 41) / took)
    assert result.mean_slowdown.value == pytest.approx((took / 17 + took / 41) / 2)


def test_progress_in_the_common_window_adds_up_to_its_weighted_speed_up():
    pair = [known_job("a", 20, 16), known_job("b", 20, 40)]
    (window,) = carried_out(pair, before=pair).windows
    assert window.jobs == ("a", "b")
    a, b = (progress.value for progress in window.progress)
    # Steps are made at 0.8 of the one-thread speed, and set against the two-thread speed.
    assert a == pytest.approx(SLOWED * 16 / 20, rel=0.03)
    assert b == pytest.approx(SLOWED * 40 / 20, rel=0.03)
    assert window.weighted_speed_up.value == pytest.approx(a + b)


def test_predictions_stand_beside_what_happened():
    pair = [known_job("a", 20), known_job("b", 20)]
    result = carried_out(pair, before=pair)
    # The forecast knows nothing of these neighbours: 21 s each, and it took 26 s.
    assert result.jobs[0].predicted.value == pytest.approx(21)
    assert result.jobs[0].predicted.high < result.jobs[0].seconds
    assert result.predicted.value == pytest.approx(21)


def test_a_job_is_never_compared_with_its_own_time_beside_others():
    pair = [known_job("a", 20), known_job("b", 20)]
    unknown = [Workload.opaque(w.job, work_ns=1).model_copy(update={"paces": ()}) for w in pair]
    unknown = [w.model_copy(update={"duration": not_known("s")}) for w in unknown]
    one_thread = [w.model_copy(update={"own_threads": 1}) for w in pair]
    result = carried_out(pair, before=unknown, learnt=one_thread)
    job = result.jobs[0]
    assert job.as_placed is None
    assert job.by_default.alone.origin == "assumed"
    assert job.by_default.alone.low == pytest.approx(1 * 0.9 + 20 * 0.9 * (1 - COST_OF_COMPANY))
    assert "as if neighbours had cost it nothing" in job.by_default.alone.source


def test_other_threads_than_it_ran_with_are_reckoned_and_marked():
    pair = [known_job("a", 20), known_job("b", 20)]
    job = carried_out(pair, before=None, learnt=pair).jobs[0]
    assert job.by_default.alone.origin == "extrapolated"
    assert job.by_default.alone.low < 17 < job.by_default.alone.high


def test_its_own_first_steps_alone_tell_what_neighbours_cost():
    # The second starts when the first of its predecessor has ended: job a is alone for a while.
    jobs = [known_job("a", 60), known_job("b", 10), known_job("c", 20)]
    result = carried_out(jobs, learnt=jobs)
    a = result.jobs[0]
    assert a.as_placed is not None
    assert a.as_placed.alone.value == pytest.approx(61, rel=0.05)
    assert a.as_placed.alone.source == "its own steps while nothing else ran"
    assert a.as_placed.times.value == pytest.approx(a.seconds / 61, rel=0.05)


def test_only_jobs_that_ended_ok_are_compared():
    pair = [known_job("a", 20, 16), known_job("b", 20, 40)]
    result = carried_out(pair, before=pair, fates={"b": Fate(fails=9)})
    assert result.jobs[1].status == "failed"
    assert result.jobs[1].by_default is None
    assert result.serial.value == pytest.approx(17)


def test_nothing_known_is_said_as_nothing():
    pair = [known_job("a", 20), known_job("b", 20)]
    result = carried_out(pair)
    assert (result.serial, result.weighted_speed_up, result.mean_slowdown) == (None, None, None)
    assert result.windows == ()
    assert result.jobs[0].predicted is None
