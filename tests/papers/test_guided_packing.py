"""CASE (Chen, Porter, Pande; PPoPP 2022): several jobs on one device, guided by what each needs.

| claim | where | strength |
|---|---|---|
| memory is never exceeded; packing by count alone exceeds it | introduction | law, random mixes |
| less time than one job on each device | evaluation, up to 2.5x | band: 0.65 of it or less |
| policy B takes the device with the least work of those whose memory fits | scheduler | exact |
| policy A waits where the work does not fit | scheduler | exact |
| a job that waits is not passed by for ever | scheduler, retried in order | law |

The mixes are of 64 jobs on 4 devices, in simulated time without interference; what is predicted of
memory is up to 10% too high and up to 3% too low. `bench/guided_packing.py` takes 1,000 of them.
"""

import random

import pytest

from headway.core.units import GIB, NS_PER_S
from headway.core.words import Exited, Settle, Start
from headway.planners.guided_packing import GuidedPacking
from headway.testing.conformance import check_policy
from headway.testing.mixes import device_mix

SEEDS = range(100)
GUIDED = GuidedPacking()
PRECISE = GuidedPacking(rule="precise")
SINGLE = GuidedPacking(rule="single")
# No retries: an attempt that is killed is a job that is lost, as in the paper.
RATIO = GuidedPacking(rule="ratio", oom_retries=0)


def killed(world):
    return sum(isinstance(word, Exited) and word.outcome.status == "oom" for _, word in world.words)


def starts(world):
    return [(t, word.job, word.share) for t, word in world.words if isinstance(word, Start)]


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "seeds"), [(GUIDED, SEEDS), (PRECISE, SEEDS[:25])], ids=["guided", "precise"]
)
def test_no_job_is_killed_for_memory_in_any_mix(policy, seeds):
    for seed in seeds:
        world = device_mix(seed).run(policy)
        assert killed(world) == 0, f"seed {seed}"
        assert all(state.status == "ok" for state in world.view.states)


@pytest.mark.slow
def test_a_fixed_number_of_jobs_on_each_device_kills_in_most_mixes():
    seeds = SEEDS[:25]
    with_kills = [seed for seed in seeds if killed(device_mix(seed).run(RATIO))]
    assert len(with_kills) > len(seeds) / 2


@pytest.mark.slow
def test_the_allowance_for_contexts_and_the_margin_are_what_prevents_it():
    trusting = GuidedPacking(context_bytes=0, margin=1.0, oom_retries=0)
    assert any(killed(device_mix(seed).run(trusting)) for seed in SEEDS[:20])


def test_a_job_that_ran_out_of_memory_comes_back_alone_and_ends_well():
    trusting = GuidedPacking(context_bytes=0, margin=1.0)
    world = next(w for seed in SEEDS if killed(w := device_mix(seed).run(trusting)))
    died = {w.job for _, w in world.words if isinstance(w, Exited) and w.outcome.status == "oom"}
    again = [share for _, job, share in starts(world)[64 - len(died) :] if job in died]
    assert any(share.device_bytes is None for share in again)
    assert all(state.status == "ok" for state in world.view.states)


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_list_ends_in_065_of_the_time_of_one_job_on_each_device():
    for seed in SEEDS[:15]:
        mix = device_mix(seed)
        parts = [mix.queue.workloads[job.name].device_part.value for job in mix.queue.jobs]
        assert sum(parts) / len(parts) <= 0.40
        ratio = mix.run(GUIDED).makespan_ns / mix.run(SINGLE).makespan_ns
        assert ratio <= 0.65, f"seed {seed}"


def any_mix(seed):
    """Few jobs or many, small or large, that keep little or all of a device busy."""
    source = random.Random(seed)
    return device_mix(
        seed,
        jobs=source.choice([3, 6, 10, 20, 40]),
        devices=source.choice([1, 2, 3, 4]),
        device_bytes=source.choice([16, 80]) * GIB,
        parts=source.choice([(0.1, 0.2), (0.1, 0.5), (0.1, 1.0), (0.9, 1.0)]),
        large=source.choice([0.0, 0.3, 1.0]),
    )


def later_than_single(mix, policy):
    """How much later a list ends than with one job on each device, in lengths of its longest."""
    later_ns = mix.run(policy).makespan_ns - mix.run(SINGLE).makespan_ns
    return later_ns / max(mix.durations_ns)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [GUIDED, PRECISE], ids=lambda policy: policy.rule)
def test_no_list_ends_later_than_one_by_one_by_more_than_its_longest_job(policy):
    for seed in range(150):
        assert later_than_single(any_mix(seed), policy) <= 1, f"seed {seed}"


@pytest.mark.slow
def test_without_a_full_load_some_list_does():
    """Why a busy device takes no more: the paper's rule to the letter binds jobs too early."""
    unlimited = GuidedPacking(full_load=None)
    later = {policy: [] for policy in (GUIDED, unlimited)}
    for seed in range(40):
        mix = device_mix(seed, jobs=40, device_bytes=80 * GIB, parts=(0.9, 1.0), large=0.0)
        for policy, lengths in later.items():
            lengths.append(later_than_single(mix, policy))
    assert max(later[unlimited]) > 1
    assert max(later[GUIDED]) <= 1


def test_nobody_is_slowed_where_demand_is_hard():
    mix = device_mix(3)
    world = mix.run(PRECISE)
    lasted = [state.ended_ns - state.started_ns for state in world.view.states]
    assert lasted == pytest.approx(mix.durations_ns, abs=10)


def test_no_decision_depends_on_how_long_jobs_take():
    """Until the first one ends, lists that differ in durations alone are told the same."""
    mix = device_mix(5)
    work = [mix.queue.workloads[job.name].ops[0].work_ns for job in mix.queue.jobs]
    random.Random(0).shuffle(work)
    changed = {
        job.name: workload.model_copy(
            update={"ops": (workload.ops[0].model_copy(update={"work_ns": ns}),)}
        )
        for (job, ns) in zip(mix.queue.jobs, work, strict=True)
        for workload in (mix.queue.workloads[job.name],)
    }
    queue = type(mix.queue)(jobs=mix.queue.jobs, machine=mix.queue.machine, workloads=changed)
    worlds = [mix.run(GUIDED), type(mix)(queue, mix.predicted).run(GUIDED)]
    first = [[(j, s) for t, j, s in starts(world) if t == 0] for world in worlds]
    assert first[0] == first[1]
    assert len(first[0]) > 4
    assert worlds[0].makespan_ns != worlds[1].makespan_ns


# --- nobody starves -------------------------------------------------------------------------------


def passed_by(world):
    """How often the first of those that wait was passed by, by job."""
    waiting = list(range(len(world.view.states)))
    counts = dict.fromkeys(waiting, 0)
    for _, job, _ in starts(world):
        if job != waiting[0]:
            counts[waiting[0]] += 1
        waiting.remove(job)
    return counts


@pytest.mark.parametrize("patience", [0, 3, 16])
@pytest.mark.parametrize("policy", [GUIDED, PRECISE], ids=lambda policy: policy.rule)
def test_the_first_that_waits_is_passed_by_patience_jobs_at_most(policy, patience):
    most = 0
    for seed in range(8):
        world = device_mix(seed).run(policy.model_copy(update={"patience": patience}))
        most = max(most, *passed_by(world).values())
    assert most <= patience
    assert (most > 0) is (patience > 0)


# --- the rules ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["guided", "precise", "ratio", "single"])
def test_every_answer_keeps_the_rules_of_policies(rule):
    mix = device_mix(7, jobs=20, devices=2)
    policy = GuidedPacking(rule=rule)
    world = check_policy(policy, mix.plan(policy), mix.queue)
    assert sum(isinstance(word, Settle) for _, word in world.words) == 20


def test_the_rules_by_example():
    """Two devices of 16 GiB; jobs of 4 GiB and less fit four to a device."""
    mix = device_mix(1, jobs=5, devices=2, large=0.0)
    asked = [0.5, 0.7, 0.4, 0.2, 0.1]
    predicted = tuple(
        workload.model_copy(
            update={
                "device_part": workload.device_part.model_copy(
                    update={"low": part, "value": part, "high": part}
                )
            }
        )
        for workload, part in zip(mix.predicted, asked, strict=True)
    )
    mix = type(mix)(mix.queue, predicted)

    def devices(policy):
        return {job: share.devices[0] for t, job, share in starts(mix.run(policy)) if t == 0}

    # B: 0.5 on 0, 0.7 on 1, 0.4 on 0 (0.5 < 0.7), 0.2 on 1 (0.7 < 0.9), 0.1 on 0 (0.9 = 0.9).
    assert devices(GUIDED) == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    # A: the same here, since no sum passes 1; with 0.6 in place of 0.4 the third has to wait.
    assert devices(PRECISE) == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    wide = predicted[2].model_copy(
        update={
            "device_part": predicted[2].device_part.model_copy(
                update={"low": 0.6, "value": 0.6, "high": 0.6}
            )
        }
    )
    mix = type(mix)(mix.queue, (*predicted[:2], wide, *predicted[3:]))
    assert devices(GUIDED) == {0: 0, 1: 1, 2: 0, 3: 1, 4: 1}
    assert 2 not in devices(PRECISE)
    assert devices(SINGLE) == {0: 0, 1: 1}
    assert devices(GuidedPacking(rule="ratio", per_device=2)).keys() == {0, 1, 2, 3}


def test_published_sizes_of_the_mix():
    mix = device_mix(0)
    assert len(mix.queue.jobs) == 64
    assert [device.memory_bytes for device in mix.queue.machine.devices] == [16 * GIB] * 4
    assert min(mix.durations_ns) >= 60 * NS_PER_S
