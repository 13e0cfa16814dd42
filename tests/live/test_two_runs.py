"""Runs in different folders of one user share the machine: with real supervisors."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from headway import front
from headway.core.holdings import Reservation
from headway.engines.local.reservations import ReservationFile, as_they_stand

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from supervised import SOURCES, Place, await_true, kill

CORES = sorted(os.sched_getaffinity(0))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(CORES) < 2, reason="needs two cores to share"),
]


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """A runtime folder for these runs alone."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder / "headway"


@pytest.fixture
def places(runtime, tmp_path):
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(Place(tmp_path / name))
    yield made
    for place in made:  # after a failed test, so that nothing lives on
        for attempt in place.attempts():
            claim = attempt.read_claim()
            if attempt.read_exit() is None and claim is not None and claim.keeper_pid:
                started = attempt.read_started()
                kill(claim.keeper_pid, claim.keeper_start_ticks or 0)
                if started is not None:
                    kill(started.command_pid, started.command_start_ticks)


def noted(place, seconds):
    """A job that writes down on which core it ran, from when to when."""
    core = "$(grep Cpus_allowed_list /proc/self/status | cut -f 2)"
    return f"c={core} t=$(date +%s%N); sleep {seconds}; echo $c $t $(date +%s%N) >> {place.effects}"


def gated(place, name):
    gate = place.path / f"{name}.gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    return f"[name={name}] echo {name} >> {place.effects}; {wait}"


def opened(place, *names):
    for name in names:
        (place.path / f"{name}.gate").touch()


def began(place, *names):
    for name in names:
        await_true(lambda name=name: place.counts()[name], f"{name} began")


def stated(place) -> Reservation | None:
    """What a run states, as it stands."""
    file = ReservationFile()
    runs = as_they_stand(file.parse(file.read()))
    return next((run for run in runs if run.run == str(place.run)), None)


def reason_of(place):
    return next(job.cause for job in place.jobs() if job.status == "waiting")


def spans(places):
    """Core, begin and end of every job that ran, in order."""
    lines = [line.split() for place in places for line in place.effects.read_text().splitlines()]
    return sorted((int(core), int(begin), int(end)) for core, begin, end in lines)


@pytest.mark.parametrize("again", range(3))
def test_two_runs_that_start_together_never_get_the_same_core(places, runtime, again):
    for place in places:
        place.prepare([noted(place, 0.1)] * (2 * len(CORES)))
    running = [place.start() for place in places]
    assert [place.finish(process) for place, process in zip(places, running, strict=True)] == [0, 0]
    ran = spans(places)
    assert len(ran) == 4 * len(CORES)
    for (core, _, end), (other, begin, _) in pairwise(ran):
        assert core != other or end <= begin, f"two jobs at once on core {core}"
    assert list(runtime.glob("reservations-*")) == [], "nobody holds anything any more"


def test_what_a_killed_supervisor_leaves_running_keeps_its_core(places, runtime):
    first, second = places
    first.prepare([gated(first, f"a{core}") for core in CORES])
    second.prepare([gated(second, "b")])
    process = first.start()
    began(first, *(f"a{core}" for core in CORES))
    process.kill()
    process.wait()
    waiting = second.start()
    holds = "; run " + first.run.name + f" in {first.path} holds core"
    await_true(lambda: holds in reason_of(second), "it says for whom it waits")
    assert second.counts() == {}
    opened(first, f"a{CORES[0]}")
    began(second, "b")
    (hold,) = stated(second).jobs
    assert hold.cores == (CORES[0],)
    assert CORES[0] not in {core for hold in stated(first).jobs for core in hold.cores}
    opened(second, "b")
    assert second.finish(waiting) == 0
    opened(first, *(f"a{core}" for core in CORES))
    await_true(lambda: stated(first) is None, "the entry ends with the last job")
    assert first.finish() == 0


def test_whoever_resumes_a_run_takes_its_cores_over(places, runtime):
    first, second = places
    first.prepare([gated(first, f"a{core}") for core in CORES])
    process = first.start()
    began(first, *(f"a{core}" for core in CORES))
    await_true(lambda: all(hold.keeper for hold in stated(first).jobs), "the keepers are stated")
    before = stated(first)
    process.kill()
    process.wait()
    resumed = first.start()
    await_true(lambda: stated(first).supervisor[0] == resumed.pid, "it is stated anew")
    assert stated(first).jobs == before.jobs
    second.prepare([noted(second, 0)])
    other = second.start()
    await_true(lambda: "holds core" in reason_of(second), "it waits")
    opened(first, *(f"a{core}" for core in CORES))
    assert (first.finish(resumed), second.finish(other)) == (0, 0)


def test_a_run_that_came_later_gets_its_part(places, runtime):
    first, second = places
    first.prepare([noted(first, 0.3)] * (8 * len(CORES)))
    second.prepare([noted(second, 0.3)] * 2)
    process = first.start()
    await_true(first.counts, "the first one is at it")
    assert second.finish() == 0
    assert len(spans([first])) < 8 * len(CORES), "it did not have to wait for all of the first"
    assert first.finish(process) == 0


def test_a_run_within_a_job_of_another_lives_on_what_the_job_holds(places, runtime):
    first, second = places
    second.prepare([noted(second, 0)] * 2)
    supervised = Path(__file__).resolve().parents[2] / "bench" / "supervised.py"
    inner = f"PYTHONPATH={SOURCES} {sys.executable} {supervised} supervise {second.run}"
    others = [gated(first, f"a{core}") for core in CORES[1:]]
    first.prepare([inner, *others])
    process = first.start()
    began(first, *(f"a{core}" for core in CORES[1:]))
    await_true(lambda: len(second.counts()) > 0, "the inner run runs beside")
    await_true(lambda: (second.run / "result.json").exists(), "it ends")
    opened(first, *(f"a{core}" for core in CORES[1:]))
    assert first.finish(process) == 0
    assert [job.status for job in second.jobs()] == ["ok", "ok"]


def test_without_a_place_for_the_file_a_run_goes_on_and_says_so(places, runtime):
    runtime.mkdir(mode=0o777)
    runtime.chmod(0o777)  # where anybody may write, nothing can be trusted
    first = places[0]
    first.prepare(["true"])
    assert first.finish() == 0
    assert any("sharing with other runs is off" in note for note in first.result().notes)


def test_a_damaged_file_is_set_aside_in_words_and_made_anew(places, runtime):
    first = places[0]
    first.prepare([gated(first, "a")])
    file = ReservationFile()
    runtime.mkdir(mode=0o700)
    file.path.write_bytes(b'{"schema": 1, "runs": [{"run')
    process = first.start()
    began(first, "a")
    assert stated(first).jobs[0].slots == 1
    assert file.path.with_name(file.name + ".damaged").exists()
    opened(first, "a")
    assert first.finish(process) == 0
    assert any("set aside as" in note for note in first.result().notes)


def test_detect_shows_what_other_runs_hold(places, runtime):
    first = places[0]
    first.prepare([gated(first, "a")])
    process = first.start()
    began(first, "a")
    await_true(lambda: stated(first).jobs[0].keeper, "its keeper is stated")
    machine = front.detect()
    assert [run.run for run in machine.elsewhere] == [str(first.run)]
    done = subprocess.run(
        [sys.executable, "-m", "headway", "detect"],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"run {first.run.name} in {first.path} holds core {CORES[0]}" in done.stdout
    opened(first, "a")
    assert first.finish(process) == 0
    assert front.detect().elsewhere == ()
