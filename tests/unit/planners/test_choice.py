"""Which plan is chosen: by predicted makespan, with memory as a hard bound."""

import random
from itertools import permutations, product

import pytest

from headway.core.errors import DoesNotFit
from headway.core.estimate import Estimate, unknown
from headway.core.plan import Plan
from headway.core.units import GIB, MIB, NS_PER_S
from headway.core.workload import Pace, Workload
from headway.forecast.queue import Forecast, forecast
from headway.planners.collocation import candidates, choose, mixed_plan
from headway.planners.queue import Queue
from headway.testing.machines import fake_device, fake_machine
from headway.testing.queues import fake_job, fake_jobs


def measured(value, unit="s", spread=0.05):
    low, high = value * (1 - spread), value * (1 + spread)
    return Estimate(value=value, low=low, high=high, unit=unit, origin="measured", source="2 runs")


def known(name, one_s, two_s, *, start_up_s=0.0, peak_bytes=100 * MIB, spread=0.05):
    """A job measured with one and with two threads."""
    plain = Workload.opaque(name, work_ns=int(two_s * NS_PER_S))
    return plain.model_copy(
        update={
            "start_up": measured(start_up_s, spread=0),
            "duration": measured(start_up_s + two_s, spread=spread),
            "peak_bytes": measured(float(peak_bytes), "bytes", spread=0),
            "paces": (
                Pace(threads=1, work=measured(one_s, spread=spread), cores=1.0),
                Pace(threads=2, work=measured(two_s, spread=spread), cores=2.0),
            ),
        }
    )


def never_measured(name):
    nothing = unknown("s")
    plain = Workload.opaque(name, work_ns=NS_PER_S)
    return plain.model_copy(
        update={"start_up": nothing, "duration": nothing, "peak_bytes": unknown("bytes")}
    )


def scored(jobs, machine, workloads) -> list[Forecast]:
    plans = candidates(jobs, machine, workloads, environment={})
    return [score(plan, jobs, machine, workloads) for plan in plans]


def score(plan: Plan, jobs, machine, workloads) -> Forecast:
    policy = Queue(**{**plan.policy.knobs, "learns": False})
    return forecast(plan, policy, jobs, workloads, machine)


def test_small_jobs_go_side_by_side():
    jobs = fake_jobs(6)
    workloads = [known(job.name, 10.0, 11.0) for job in jobs]
    choice = choose(scored(jobs, fake_machine(), workloads))
    assert choice.chosen.plan.mode == "partitioned"
    assert choice.chosen.makespan.value == pytest.approx(30.0)
    assert "2.2 times faster" in choice.reason
    assert choice.runner_up is not None


def test_a_long_wide_job_gets_both_cores_after_the_small_ones():
    # Alone with two threads it takes 1.5 times the small ones' serial sum.
    jobs = [fake_job("wide"), *fake_jobs(6)]
    workloads = [known("wide", 150.0, 90.0), *(known(job.name, 10.0, 10.0) for job in jobs[1:])]
    forecasts = scored(jobs, fake_machine(), workloads)
    choice = choose(forecasts)
    assert choice.chosen.plan.mode == "mixed"
    assert choice.chosen.makespan.value == pytest.approx(120.0, rel=0.01)
    by_mode = {one.plan.mode: one.makespan.value for one in forecasts}
    assert choice.chosen.makespan.value <= 0.85 * min(by_mode["serial"], by_mode["partitioned"])


def test_a_gain_inside_the_bounds_is_no_gain():
    jobs = fake_jobs(4)
    workloads = [known(job.name, 19.5, 10.0) for job in jobs]
    choice = choose(scored(jobs, fake_machine(), workloads), busy_alone=0.97)
    assert choice.chosen.plan.mode == "serial"
    assert "inside the bounds; one job alone keeps 97% of the cores busy" in choice.reason


def test_a_gain_that_every_simulation_has_counts_however_wide_the_bounds():
    jobs = fake_jobs(4)
    workloads = [known(job.name, 17.0, 10.0, spread=0.15) for job in jobs]
    choice = choose(scored(jobs, fake_machine(), workloads))
    serial = next(
        one for one in scored(jobs, fake_machine(), workloads) if one.plan.mode == "serial"
    )
    assert choice.chosen.plan.mode == "partitioned"
    assert choice.chosen.makespan.high > serial.makespan.low
    assert len(choice.chosen.spans_s) == len(serial.spans_s) > 2


@pytest.mark.parametrize(("part", "wins"), [(0.97, False), (0.90, True)])
def test_more_jobs_than_cores_at_once_must_promise_more(part, wins):
    jobs = fake_jobs(6)
    told = scored(jobs, fake_machine(), [known(job.name, 10.0, 11.0) for job in jobs])
    plain = choose(told).chosen
    knobs = {**plain.plan.policy.knobs, "extra": 1, "pin": False}
    crowded = plain.plan.model_copy(
        update={
            "mode": "shared",
            "policy": plain.plan.policy.model_copy(update={"knobs": knobs}),
        }
    )
    span = plain.makespan.model_copy(
        update={bound: getattr(plain.makespan, bound) * part for bound in ("low", "value", "high")}
    )
    spans_s = tuple(span_s * part for span_s in plain.spans_s)
    better = plain.model_copy(update={"plan": crowded, "makespan": span, "spans_s": spans_s})
    assert (choose([*told, better]).chosen is better) == wins


def test_what_serial_takes_was_not_measured_so_sharing_is_tried():
    jobs = fake_jobs(4)
    one = [
        known(job.name, 19.5, 10.0).model_copy(
            update={"paces": (Pace(threads=1, work=measured(19.5)),)}
        )
        for job in jobs
    ]
    assert choose(scored(jobs, fake_machine(), one)).chosen.plan.mode != "serial"


def test_unknown_jobs_are_tried_in_shares_of_one_core():
    jobs = fake_jobs(4)
    workloads = [known(jobs[0].name, 10.0, 10.0), *(never_measured(job.name) for job in jobs[1:])]
    choice = choose(scored(jobs, fake_machine(), workloads))
    assert not choice.chosen.makespan.known
    assert choice.reason.startswith("to be learnt: never measured: job-2, job-3, job-4")
    assert [placement.cores for placement in choice.chosen.plan.placements] == [1, 1, 1, 1]
    assert [placement.most_cores for placement in choice.chosen.plan.placements] == [1, 2, 2, 2]


def test_nobody_waits_for_a_second_core_of_unknown_worth():
    jobs = fake_jobs(3)
    workloads = [
        known(job.name, 10.0, 6.0).model_copy(
            update={"paces": (Pace(threads=1, work=measured(10.0)),)}
        )
        for job in jobs
    ]
    placements = mixed_plan(jobs, fake_machine(), workloads, environment={}).placements
    assert [placement.cores for placement in placements] == [1, 1, 1]
    assert [placement.most_cores for placement in placements] == [2, 2, 2]


def test_memory_is_a_hard_bound():
    jobs = fake_jobs(4)
    workloads = [known(job.name, 10.0, 10.0, peak_bytes=1200 * MIB) for job in jobs]
    forecasts = scored(jobs, fake_machine(memory_bytes=2 * GIB), workloads)
    assert "naive" not in [one.plan.mode for one in forecasts]
    chosen = choose(forecasts).chosen
    assert not chosen.lost
    assert chosen.peak_bytes.high <= 2 * GIB


def test_nothing_fits():
    jobs = [fake_job("huge", memory_bytes=100 * GIB)]
    with pytest.raises(DoesNotFit, match=r"needs 100\.0 GiB"):
        choose(scored(jobs, fake_machine(), [never_measured("huge")]))


def test_what_the_user_pinned_is_kept():
    jobs = [fake_job("two", threads=2), fake_job("own", command="OMP_NUM_THREADS=1 ./own")]
    workloads = [known(job.name, 10.0, 10.0) for job in jobs]
    first, second = mixed_plan(jobs, fake_machine(), workloads, environment={}).placements
    assert (first.cores, first.threads, first.most_cores) == (2, 2, None)
    assert (second.cores, second.threads, second.most_cores) == (1, None, None)


def best_of_all(jobs, machine, workloads) -> float:
    """Every width and every order, each carried out in the simulated world."""
    plain = mixed_plan(jobs, machine, workloads, environment={})
    best = float("inf")
    for widths in product((1, 2), repeat=len(jobs)):
        for order in permutations(range(len(jobs))):
            placements = tuple(
                placement.model_copy(
                    update={"cores": width, "threads": width, "most_cores": None, "rank": rank}
                )
                for placement, width, rank in zip(plain.placements, widths, order, strict=True)
            )
            plan = plain.model_copy(update={"placements": placements})
            policy = Queue(**{**plan.policy.knobs, "learns": False})
            found = forecast(plan, policy, jobs, workloads, machine, mixtures=0)
            best = min(best, found.makespan.value)
    return best


@pytest.mark.slow
def test_close_to_the_best_of_all_widths_and_orders():
    source = random.Random(3)
    for _ in range(6):
        jobs = fake_jobs(source.randint(2, 4))
        workloads = []
        for job in jobs:
            one_s = source.choice([1, 1, 3, 8]) * source.uniform(5, 15)
            workloads.append(known(job.name, one_s, one_s / source.uniform(0.85, 1.75), spread=0.0))
        machine = fake_machine()
        chosen = choose(scored(jobs, machine, workloads)).chosen
        assert chosen.makespan.value <= 1.05 * best_of_all(jobs, machine, workloads)


@pytest.mark.slow
def test_a_thousand_jobs_are_planned_close_to_the_bound():
    source = random.Random(5)
    jobs = fake_jobs(1000)
    workloads = [
        known(job.name, one_s := source.uniform(20, 400), one_s / source.uniform(0.85, 1.75))
        for job in jobs
    ]
    forecasts = scored(jobs, fake_machine(), workloads)
    chosen = choose(forecasts).chosen
    serial = next(one for one in forecasts if one.plan.mode == "serial")
    work_s = sum(min(w.pace(1).work.value, 2 * w.pace(2).work.value) for w in workloads)
    assert work_s / 2 <= chosen.makespan.value <= min(serial.makespan.value, 1.01 * work_s / 2)


def test_naive_pays_for_threads_that_are_too_many():
    jobs = fake_jobs(6)
    workloads = [known(job.name, 10.0, 11.0) for job in jobs]
    makespans = {
        one.plan.mode: one.makespan.value for one in scored(jobs, fake_machine(), workloads)
    }
    # Six two-thread trainings at once on two cores: not ended after 4.2 times their serial time.
    assert makespans["naive"] > 4.2 * makespans["serial"]
    assert makespans["partitioned"] < makespans["shared"] * 1.01 < makespans["serial"]


def test_devices_that_others_use_are_planned_with_all_the_same():
    machine = fake_machine(devices=[fake_device(0, used_bytes=21 * GIB, users=["somebody"])])
    jobs = [fake_job("train", gpus=1)]
    chosen = choose(scored(jobs, machine, [known("train", 10.0, 10.0)])).chosen
    assert chosen.makespan.value == pytest.approx(10.0)


def test_what_waits_for_others_has_no_makespan():
    machine = fake_machine(memory_bytes=8 * GIB, foreign_bytes=7 * GIB)
    jobs = [fake_job("large", memory_bytes=4 * GIB)]
    choice = choose(scored(jobs, machine, [known("large", 10.0, 10.0)]))
    assert not choice.chosen.makespan.known
    assert choice.reason.startswith("no prediction: cannot be simulated: nothing has gone on")
