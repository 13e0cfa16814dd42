from itertools import pairwise

import pytest

from headway.core.folder import Folder
from headway.core.timeline import Header, Reading, Span, Timeline, lane_of
from headway.core.units import NS_PER_S
from headway.core.workload import Workload
from headway.planners.queue import Queue
from headway.probes.progress import Progress, alone_step_s, passages_of, replayed
from headway.sim.drive import drive
from headway.sim.world import SimulatedWorld
from headway.testing.machines import fake_machine
from headway.testing.queues import FakeQueue, fake_job


def half_speed_beside_another(beside):
    return [1.0 if len(beside) == 1 else 0.5] * len(beside)


def watched(*seconds):
    """The passages of jobs of 0.1 s a step that go at half their speed beside another."""
    jobs = [fake_job(name) for name in "abc"[: len(seconds)]]
    workloads = [
        Workload.opaque(job.name, work_ns=s * NS_PER_S, start_up_ns=NS_PER_S, steps=10 * s)
        for job, s in zip(jobs, seconds, strict=True)
    ]
    queue = FakeQueue(jobs=jobs, machine=fake_machine(cores=2))
    plan = queue.plan("partitioned")
    world = SimulatedWorld(
        jobs, plan.placements, queue.machine, workloads, together=half_speed_beside_another
    )
    progress = Progress()
    drive(Queue(**plan.policy.knobs), world, watch=progress.watch)
    return progress.passages(), world


def test_steps_are_counted_for_each_set_of_neighbours():
    passages, _ = watched(10, 30)
    beside = [p for p in passages if p.beside]
    alone = [p for p in passages if not p.beside]
    assert {p.job for p in beside} == {0, 1}
    assert {p.job for p in alone} == {1}
    for passage in beside:
        assert passage.steps / passage.seconds == pytest.approx(5, rel=0.1)
        assert passage.jobs == (0, 1)
    assert alone_step_s(passages)[1] == pytest.approx(0.1, rel=0.1)
    assert 0 not in alone_step_s(passages)


def test_passages_of_a_job_do_not_overlap_and_end_with_their_neighbours():
    passages, _ = watched(10, 30, 5)
    for job in range(3):
        mine = sorted((p for p in passages if p.job == job), key=lambda p: p.first_ns)
        assert mine
        for one, next_one in pairwise(mine):
            assert one.last_ns <= next_one.first_ns


def test_a_step_from_before_the_change_opens_no_passage():
    progress = Progress()
    progress.now_running({0: True}, 0)
    progress.made(0, 10, 1)
    progress.made(0, 90, 9)
    progress.now_running({0: True, 1: True}, 100)
    progress.made(0, 95, 10)
    progress.made(0, 150, 12)
    progress.made(0, 250, 22)
    assert [(p.beside, p.steps) for p in progress.passages()] == [((), 8), ((1,), 10)]


def test_a_program_that_starts_over_counts_anew():
    progress = Progress()
    progress.now_running({0: True}, 0)
    for t_ns, steps in ((10, 5), (20, 9), (30, 2), (40, 6)):
        progress.made(0, t_ns, steps)
    assert [(p.first_ns, p.steps) for p in progress.passages()] == [(30, 4)]


def span(job, name, begin, end):
    return Span(t=begin, d=end - begin, lane="n0/core0", kind="compute", name=name, job=job)


def test_files_tell_the_same_as_watching():
    timeline = Timeline(
        header=Header(source="measured"),
        spans=(
            span(0, "start-up", 0, 100),
            span(0, "steps", 100, 1000),
            span(1, "start-up", 300, 400),
            span(1, "steps", 400, 2000),
        ),
    )
    steps = [(0, t, t // 10) for t in range(100, 1001, 50)]
    steps += [(1, t, t // 20) for t in range(400, 2001, 100)]
    readings = [Reading(t=t, lane=lane_of(job), name="steps", value=n) for job, t, n in steps]
    readings.append(Reading(t=5, lane="job/77", name="steps", value=3))
    readings.append(Reading(t=500, lane=lane_of(0), name="cores", value=1.0))
    found = [
        (p.job, p.beside, p.starting, p.first_ns, p.last_ns) for p in replayed(timeline, readings)
    ]
    assert sorted(found) == [
        (0, (), 0, 100, 250),
        (0, (), 1, 300, 350),
        (0, (1,), 0, 400, 950),
        (1, (), 0, 1000, 1900),
        (1, (0,), 0, 400, 900),
    ]


def test_a_folder_without_files_has_no_passages(tmp_path):
    with_rubbish = tmp_path / "run"
    with_rubbish.mkdir(mode=0o700)
    folder = Folder.open(with_rubbish)
    assert passages_of(folder) == []
    (with_rubbish / "timeline.jsonl").write_bytes(b'{"schema": 1, "source": "measured"}\n')
    (with_rubbish / "counters.jsonl").write_bytes(b"\xff\x00nonsense\n{}\n")
    assert passages_of(folder) == []
    folder.close()
