"""What past attempts say of a job, and how sure they are of it."""

import os

import pytest

from headway.core.units import GIB
from headway.probes.profiles import ProfileStore
from headway.probes.profiles.identity import UNKNOWN_CONTENT
from headway.probes.profiles.recall import OOM_FACTOR
from headway.testing.machines import fake_machine
from headway.testing.profiles import past_attempt
from headway.testing.queues import fake_job

TWO, FOUR = fake_machine(cores=2), fake_machine(cores=4)
HOUR_NS = 3600 * 10**9
NOW_NS = 1000 * HOUR_NS


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("one")
    return path


@pytest.fixture
def store(tmp_path):
    with ProfileStore.open(tmp_path / "state") as opened:
        yield opened


def job_of(script, arguments="", name="a"):
    return fake_job(name, command=f"python train.py {arguments}", folder=str(script.parent))


def run(job, *, machine=TWO, hours_ago=2, **changes):
    """An attempt with two threads; `seconds` of work after a second of start-up."""
    seconds = changes.pop("seconds", 10.0)
    figures = {"threads": 2, "start_up_s": 1.0, "work_s": seconds, "total_s": seconds + 1.0}
    ended_ns = NOW_NS - hours_ago * HOUR_NS
    return past_attempt(job, machine, **{**figures, "ended_ns": ended_ns, **changes})


def recalled(store, *jobs, machine=TWO):
    return store.recall(jobs, machine, environment={}, now_ns=NOW_NS)


def workload(store, job, machine=TWO):
    return recalled(store, job, machine=machine).workloads[0]


def pace(store, job, threads):
    (found,) = (p for p in workload(store, job).paces if p.threads == threads)
    return found


def factor(estimate):
    """How many times the value the upper bound is."""
    return estimate.high / estimate.value


def test_the_same_job_again_is_measured(store, script):
    job = job_of(script)
    store.learn([run(job, seconds=s, steps=100, peak_bytes=GIB) for s in (9.0, 10.0, 10.5)])
    known = workload(store, job)
    assert known.remark == "measured 2 h ago"
    assert (known.duration.value, known.duration.origin) == (pytest.approx(11.0), "measured")
    assert known.duration.low < 10.0 < 11.5 < known.duration.high < 13.0
    assert known.start_up.value == pytest.approx(1.0)
    assert (known.steps.low, known.steps.high) == (100, 100)
    assert known.peak_bytes.value == pytest.approx(GIB)
    assert known.peak_bytes.coverage == 0.98
    assert known.ops[0].work_ns == pytest.approx(10**10)
    assert known.ops[0].memory_bytes == pytest.approx(GIB)


def test_one_run_alone_gives_about_a_sixth_either_way(store, script):
    store.learn([run(job_of(script), peak_bytes=GIB)])
    known = workload(store, job_of(script))
    assert factor(known.paces[0].work) == pytest.approx(1.155, abs=0.01)
    assert factor(known.peak_bytes) == pytest.approx(1.15, abs=0.01)


def test_of_an_unknown_job_it_is_said_that_it_is_unknown(store, script):
    known = workload(store, job_of(script))
    assert not known.known
    assert not known.start_up.known
    assert not known.peak_bytes.known
    assert known.remark == "never measured"
    assert known.ops[0].work_ns > 0
    assert known.pace(1).work.known is False


def test_a_changed_script_is_a_hint_only(store, script):
    store.learn([run(job_of(script), hours_ago=72) for _ in range(9)])
    script.write_text("two")
    known = workload(store, job_of(script))
    assert known.remark == ("train.py has changed since it was measured 3 days ago: a hint only")
    assert known.duration.origin == "extrapolated"
    assert factor(known.paces[0].work) > 2.0


def test_a_script_touched_but_not_changed_is_still_known(store, script):
    store.learn([run(job_of(script))])
    os.utime(script, (1, 1))
    assert workload(store, job_of(script)).duration.origin == "measured"


def test_a_script_that_changed_while_it_ran_was_never_measured_as_it_is(store, script):
    store.learn([run(job_of(script), content=UNKNOWN_CONTENT)])
    assert workload(store, job_of(script)).duration.origin == "extrapolated"


def test_another_machine_is_a_hint_only(store, script):
    store.learn([run(job_of(script), machine=FOUR)])
    known = workload(store, job_of(script))
    assert known.remark == "measured on another machine 2 h ago: a hint only"
    assert known.duration.origin == "extrapolated"
    assert factor(known.paces[0].work) > 2.0


def test_both_changed_is_wider_than_either(store, script):
    job = job_of(script)
    store.learn([run(job, machine=FOUR)])
    other_machine = factor(workload(store, job).paces[0].work)
    script.write_text("two")
    known = workload(store, job)
    assert "has changed since it was measured on another machine" in known.remark
    assert factor(known.paces[0].work) > other_machine


def test_what_is_measured_here_and_now_beats_every_hint(store, script):
    job = job_of(script)
    store.learn([run(job, machine=FOUR, seconds=99.0), run(job, content="older", seconds=50.0)])
    store.learn([run(job, hours_ago=99)])
    assert workload(store, job).duration.value == pytest.approx(11.0)


def test_other_arguments_are_extrapolated_and_wide(store, script):
    store.learn(
        [run(job_of(script, f"--lr {lr}"), seconds=s) for lr, s in enumerate([8.0, 10, 15])]
    )
    known = workload(store, job_of(script, "--lr 9"))
    assert known.remark == "3 jobs of train.py with other arguments, measured 2 h ago"
    assert (known.duration.origin, known.duration.samples) == ("extrapolated", 3)
    assert known.duration.value == pytest.approx(11.0)
    assert known.paces[0].work.low < 8.0
    assert known.paces[0].work.high > 15.0


def test_a_count_that_one_other_job_had_says_nothing_of_the_rest(store, script):
    for number in range(3):
        small = job_of(script, f"--width {number}")
        store.learn([run(small, threads=1, cores=1, seconds=2.0 + number / 10)])
    store.learn([run(job_of(script, "--width 9"), threads=2, cores=2, seconds=40.0)])
    paces = workload(store, job_of(script, "--width 5")).paces
    assert [found.threads for found in paces] == [1]
    assert paces[0].work.value == pytest.approx(2.1, rel=0.05)


def test_many_attempts_of_one_other_job_are_one_job(store, script):
    store.learn([run(job_of(script, "1")) for _ in range(30)])
    known = workload(store, job_of(script, "2"))
    assert known.duration.samples == 1
    assert factor(known.paces[0].work) > 2.0


def test_other_scripts_say_nothing(store, script):
    store.learn([run(fake_job("b", command="python other.py", folder=str(script.parent)))])
    assert not workload(store, job_of(script)).known


def test_a_program_that_is_no_file_is_measured_and_its_changes_unseen(store):
    job = fake_job("a", command="train --lr 1")
    store.learn([run(job)])
    known = workload(store, job)
    assert known.duration.origin == "measured"
    assert known.remark == "measured 2 h ago; changes of what it runs cannot be seen"


def test_paces_by_threads(store, script):
    job = job_of(script)
    store.learn([run(job, threads=1, seconds=16.0, cores_used=1.0), run(job, cores_used=21 / 11)])
    known = workload(store, job)
    assert [(p.threads, round(p.work.value, 3)) for p in known.paces] == [(1, 16.0), (2, 10.0)]
    assert [round(p.cores, 3) for p in known.paces] == [1.0, 2.0]  # start-up takes one
    assert known.duration.value == pytest.approx(11.0)  # with two, as by itself
    pinned = workload(store, job.model_copy(update={"threads": 1}))
    assert pinned.duration.value == pytest.approx(17.0)


def test_a_default_count_that_was_not_measured_is_extrapolated(store, script):
    job = job_of(script)
    store.learn([run(job, threads=1, seconds=16.0)])
    duration = workload(store, job).duration
    assert duration.origin == "extrapolated"
    assert duration.low < 10.0 < 16.0 < duration.high


def test_more_threads_than_cores_is_no_pace(store, script):
    job = job_of(script)
    store.learn([run(job, cores=1, seconds=40.0, start_up_s=None)])
    assert not workload(store, job).known
    store.learn([run(job, cores=2)])
    assert pace(store, job, 2).work.samples == 1


def test_in_company_on_cores_of_its_own_is_as_good_as_alone(store, script):
    job = job_of(script)
    store.learn([run(job, cores=2, alone_part=0.0)])
    assert pace(store, job, 2).work.origin == "measured"


@pytest.mark.parametrize("company", [{"alone_part": 0.5}, {"foreign_part": 0.5, "cores": 2}])
def test_in_company_on_shared_cores_is_wide_and_below_what_it_took(store, script, company):
    job = job_of(script)
    store.learn([run(job, seconds=20.0, cores_used=1.0, **company)])
    work = pace(store, job, 2).work
    assert work.origin == "extrapolated"
    assert work.low < 10.0 < work.value < 20.0 < work.high
    store.learn([run(job)])
    assert pace(store, job, 2).work.origin == "measured"
    assert pace(store, job, 2).work.samples == 1


def test_a_known_stretch_is_taken_off(store, script):
    job = job_of(script)
    store.learn([run(job, seconds=20.0, alone_part=0.0, stretch=2.0)])
    assert pace(store, job, 2).work.value == pytest.approx(10.0)


def test_a_run_that_something_disturbed_moves_little(store, script):
    job = job_of(script)
    store.learn([run(job, seconds=s) for s in (10.0, 10.1, 9.9, 10.2, 9.8, 60.0)])
    work = pace(store, job, 2).work
    assert work.value == pytest.approx(10.05)
    assert factor(work) < 1.15


def test_steps_that_cannot_be_seen_leave_start_up_in_the_work(store, script):
    job = job_of(script)
    store.learn([run(job, start_up_s=None, work_s=None)])
    known = workload(store, job)
    assert (known.start_up.value, known.steps) == (0.0, None)
    assert known.duration.value == pytest.approx(11.0)


def test_one_that_ran_out_of_memory_needs_more_than_it_held(store, script):
    job = job_of(script)
    store.learn([run(job, status="oom", peak_bytes=GIB, work_s=None)])
    known = workload(store, job)
    assert (known.known, known.peak_bytes.known) == (False, False)
    assert known.peak_bytes.low == GIB
    assert known.remark == "ran out of memory at 1.0 GiB, never seen to its end"
    assert known.start_up.value == pytest.approx(1.0)
    store.learn([run(job, peak_bytes=GIB // 2)])
    peak = workload(store, job).peak_bytes
    assert (peak.value, peak.high) == (GIB, pytest.approx(GIB * OOM_FACTOR))


def test_no_bound_of_memory_is_below_what_was_seen(store, script):
    job = job_of(script)
    peaks = [GIB] * 15 + [2 * GIB]
    store.learn([run(job, peak_bytes=peak) for peak in peaks])
    assert workload(store, job).peak_bytes.high >= 2 * GIB
    store.learn([run(job, status="failed", peak_bytes=5 * GIB)])
    assert workload(store, job).peak_bytes.high >= 5 * GIB


def test_what_an_older_script_held_is_no_floor(store, script):
    job = job_of(script)
    store.learn([run(job, status="oom", peak_bytes=5 * GIB, content="older")])
    store.learn([run(job, peak_bytes=GIB)])
    assert workload(store, job).peak_bytes.high < 2 * GIB


def test_other_jobs_are_each_as_likely_as_the_next(store, script):
    """One that is unlike the rest is no disturbed run: the job may be like it."""
    figures = [(10.0, GIB)] * 15 + [(40.0, 16 * GIB)]
    for number, (seconds, peak_bytes) in enumerate(figures):
        store.learn([run(job_of(script, str(number)), seconds=seconds, peak_bytes=peak_bytes)])
    known = workload(store, job_of(script, "new"))
    assert known.paces[0].work.high > 15.0
    assert known.peak_bytes.high >= 16 * GIB


def test_steps_that_differ_have_bounds(store, script):
    job = job_of(script)
    store.learn([run(job, steps=steps) for steps in (90, 100, 130)])
    steps = workload(store, job).steps
    assert steps.low < 95 < 110 < steps.high


def test_the_words_say_how_many_are_known_how_old_and_on_what_they_rest(store, script):
    known, changed = job_of(script, "1"), fake_job("b", command="sh b.sh", folder="/nowhere")
    store.learn([run(known), run(known, hours_ago=72), run(changed, content="older")])
    told = recalled(store, known, changed, job_of(script, "2", "c"), fake_job("d"))
    assert told.known == 3
    assert told.words == (
        "3 of 4 jobs known from earlier runs: 1 measured 2 h to 3 days ago, 2 guessed",
        "1 job: b.sh has changed since it was measured 2 h ago: a hint only",
        "1 job: 1 job of train.py with other arguments, measured 2 h to 3 days ago",
    )
    assert recalled(store, fake_job("d")).words == ()


def test_long_lists_have_few_words(store, script):
    jobs = [fake_job(f"j{n}", command=f"sh s{n}.sh") for n in range(9)]
    store.learn([run(job, machine=FOUR, hours_ago=n + 1) for n, job in enumerate(jobs)])
    words = recalled(store, *jobs).words
    assert len(words) == 7
    assert words[-1] == "4 more jobs guessed likewise"
