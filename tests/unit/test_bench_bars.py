"""How the sweeps' bars are judged: what counts as the best mode, and which times are divided."""

import doctest
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import _bars
import _common
import _sweeps
import _warm
from _arms import Outcome, Work


def outcome(arm, makespan_s, *, ok=True, oom_kills=0, plan=""):
    return Outcome(
        arm=arm,
        makespan_s=makespan_s,
        capped=False,
        start_up_s=[],
        steps_s=[],
        statuses={"ok": 4} if ok else {"ok": 3, "failed": 1},
        oom_kills=oom_kills,
        gave_way=0,
        part_done=1.0,
        plan=plan,
    )


def rounds_of(**makespans_s):
    """Rounds from the times of each arm; one with fewer times runs in the first rounds alone."""
    longest = max(map(len, makespans_s.values()))
    return [
        {arm: outcome(arm, times[n]) for arm, times in makespans_s.items() if n < len(times)}
        for n in range(longest)
    ]


def test_the_examples_of_verdicts_and_orders_hold():
    tried = doctest.testmod(_common)
    assert tried.attempted > 0
    assert tried.failed == 0


def test_only_times_of_one_round_are_divided():
    rounds = rounds_of(auto=[1.0, 8.0], again=[1.0, 8.0], serial=[2.0, 16.0], naive=[4.0])
    assert _bars.ratio_of(rounds, "auto", "serial")["median"] == 0.5
    once = _bars.ratio_of(rounds, "auto", "naive")
    assert (once["median"], once["count"]) == (0.25, 1)
    rounds[0]["naive"] = outcome("naive", 1.25)
    told = _bars.Bar(0.85, ("serial", "naive")).judge(rounds)
    assert told == "met: 0.800 times naive, in 1 of 2 rounds"


def test_the_best_mode_is_the_best_over_all_rounds_and_not_of_each():
    rounds = rounds_of(
        auto=[10.0] * 3, again=[10.0] * 3, serial=[10.0, 10.0, 19.0], shared=[12.0, 12.0, 5.0]
    )
    assert _bars.best_of(rounds, _bars.FIXED) == "serial"
    assert _bars.Bar(1.05, _bars.FIXED).judge(rounds) == "met: 1.000 times serial"


@pytest.mark.parametrize("trouble", [{"ok": False}, {"oom_kills": 1}])
def test_a_mode_that_failed_in_one_round_is_not_the_best(trouble):
    rounds = rounds_of(auto=[9.0, 9.0], again=[9.0, 9.0], serial=[10.0, 10.0], shared=[5.0, 5.0])
    assert _bars.best_of(rounds, _bars.FIXED) == "shared"
    rounds[1]["shared"] = outcome("shared", 5.0, **trouble)
    assert _bars.best_of(rounds, _bars.FIXED) == "serial"
    assert _bars.best_of(rounds, ("shared",)) is None


def test_a_mode_that_ran_once_is_compared_within_its_round():
    # The machine was three times as fast in the first round.
    rounds = rounds_of(
        auto=[3.0, 9.0, 9.0], again=[3.0, 9.0, 9.0], serial=[4.0, 12.0, 12.0], naive=[5.0]
    )
    assert _bars.best_of(rounds, _bars.FIXED) == "serial"


def test_a_bar_is_missed_by_what_is_beyond_the_noise():
    slower = {"auto": [12.0] * 3, "serial": [10.0] * 3}
    bar = _bars.Bar(1.05, _bars.FIXED)
    assert bar.judge(rounds_of(**slower, again=[12.0] * 3)) == "MISSED: 1.200 times serial"
    # Whole intervals count: one round in which auto was as fast does not excuse the others.
    close = rounds_of(auto=[10.0, 12.0, 12.0], again=[12.0, 10.0, 12.0], serial=[10.0] * 3)
    assert bar.judge(close) == "within noise: 1.200 times serial"


def test_the_same_plan_in_every_round_counts_as_equal():
    rounds = rounds_of(auto=[12.0, 12.0], again=[12.0, 12.0], serial=[10.0, 10.0])
    for found in rounds:
        for arm in ("auto", "serial"):
            found[arm] = outcome(arm, found[arm].makespan_s, plan="one")
    assert _bars.Bar(1.05, _bars.FIXED).judge(rounds) == "met: 1.000 times serial"
    assert _bars.Bar(0.85, ("serial",)).judge(rounds) == "MISSED"
    rounds[1]["auto"] = outcome("auto", 12.0, plan="another")
    assert _bars.Bar(1.05, _bars.FIXED).judge(rounds) == "MISSED: 1.200 times serial"


def test_what_did_not_run_is_not_judged():
    rounds = rounds_of(auto=[1.0], again=[1.0], partitioned=[1.0])
    assert _bars.Bar(0.4, ("xargs",), arm="partitioned").judge(rounds).startswith("not judged")


def test_every_bar_has_a_name_of_its_own():
    for sweep in _sweeps.SWEEPS.values():
        assert len({bar.label for bar in sweep.bars}) == len(sweep.bars)


def test_wide_jobs_are_set_against_all_others_together():
    jobs = (Work("mlp", 5), Work("wide", 5), Work("mlp", 5))
    assert _warm.wide_by_others(jobs, [4.0, 12.0, 4.0]) == 1.5


def test_the_wide_job_gets_the_steps_that_make_it_so_long(monkeypatch):
    jobs = (Work("mlp", 101), Work("wide", 11), Work("mlp", 101))
    trial = Outcome(
        arm="alone-2",
        makespan_s=30.0,
        capped=False,
        start_up_s=[2.0, 3.0, 2.0],
        steps_s=[10.0, 1.0, 10.0],  # a wide step takes 0.1 s
        statuses={"ok": 3},
        oom_kills=0,
        gave_way=0,
        part_done=1.0,
    )
    monkeypatch.setattr(_warm, "run_arm", lambda *_, **__: trial)
    found = _warm.balanced(jobs, 1.5)
    assert found == (jobs[0], Work("wide", 331), jobs[2])  # 3 s, and 330 steps to 36 s
