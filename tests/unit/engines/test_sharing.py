"""Supervisors' sides of one reservation file: real files, real policies, no processes."""

import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.units import GIB, MIB, NS_PER_S
from headway.core.view import View
from headway.core.words import Arrived, Exited, Outcome, Phase, Reshare, Share, Start, Tick
from headway.engines.local import reservations
from headway.engines.local.reservations import LOCK, ReservationFile, as_they_stand
from headway.engines.local.sharing import Sharing
from headway.planners.queue import Queue
from headway.system.procfs import start_ticks
from headway.testing.machines import fake_device, fake_machine
from headway.testing.queues import FakeQueue, fake_jobs

ME = (os.getpid(), start_ticks(os.getpid()))
NOBODY = (2**22, 1)  # above the largest pid there can be


class Run:
    """A run as its supervisor has it, but for the processes."""

    def __init__(self, folder, name, count, *, mode="partitioned", machine=None, **asked):
        machine = machine or fake_machine(cores=2)
        jobs = fake_jobs(count, **{"memory_bytes": 16 * MIB, **asked})
        plan = FakeQueue(jobs=jobs, machine=machine).plan(mode)
        self.policy = Queue(**plan.policy.knobs)
        self.view = View.of(jobs, plan.placements, machine)
        self.memory = self.policy.start(self.view)
        self.keepers = {}
        self.sharing = Sharing(
            Path("/x") / name,
            self.view,
            counted=mode != "naive",
            keeper_of=self.keepers.get,
            file=ReservationFile(folder),
        )
        self.sharing.refresh()
        self.refused = 0

    def arrive(self, t=0):
        for index in self.view.arrivals():
            self.tell(Arrived(t, index))
        self.tell(Tick(t))  # as after the last of those that arrive at one instant
        self.sharing.update()
        return self

    def tell(self, event):
        """What `drive` and a world do with an event."""
        self.view.apply(event, event.t)
        memory, actions = self.policy.decide(self.memory, event, self.view)
        while not self._taken(actions, event.t):
            self.refused += 1
            memory, actions = self.policy.decide(self.memory, event, self.view)
        self.memory = memory
        for action in actions:
            self.view.apply(action, event.t)
        if not isinstance(event, Tick):
            self.sharing.update()

    def _taken(self, actions, t):
        takes = any(isinstance(action, Start | Reshare) for action in actions)
        return not takes or self.sharing.take(actions, t)

    def tick(self, t):
        for index in list(self.view.running):
            self.tell(Phase(t, index, "steps"))
        self.sharing.refresh()
        self.tell(Tick(t))

    def end(self, index, t):
        self.tell(Exited(t, index, Outcome("ok")))

    @property
    def cores(self):
        return sorted(c for s in self.view.running.values() for c in s.share.cores or ())

    @property
    def reason(self):
        return self.view.states[self.view.waiting[0]].wait_reason


def stated(folder):
    file = ReservationFile(folder)
    return {Path(run.run).name: run for run in file.parse(file.read())}


# --- what is stated ------------------------------------------------------------------------------


def test_a_start_is_stated_with_all_it_takes(tmp_path):
    machine = fake_machine(cores=2, devices=[fake_device(0)])
    run = Run(tmp_path, "a", 1, machine=machine, gpus=1).arrive(t=7)
    (entry,) = stated(tmp_path).values()
    (hold,) = entry.jobs
    assert (entry.supervisor, entry.served_ns, entry.wants) == (ME, 7, 0)
    assert (hold.cores, hold.slots, hold.reserved_bytes) == ((0,), 1, 16 * MIB)
    assert (hold.devices, hold.keeper) == (("GPU-00000000",), None)
    run.keepers[0] = (11, 12)
    run.sharing.refresh()
    assert stated(tmp_path)["a"].jobs[0].keeper == (11, 12)


def test_nothing_is_left_once_nobody_holds_anything(tmp_path):
    run = Run(tmp_path, "a", 1).arrive()
    assert os.stat(tmp_path / ReservationFile(tmp_path).name).st_mode & 0o777 == 0o600
    run.end(0, 1)
    assert os.listdir(tmp_path) == [LOCK]


@pytest.mark.parametrize(("mode", "slots"), [("serial", 2), ("shared", 1), ("naive", 0)])
def test_what_the_other_modes_hold(tmp_path, mode, slots):
    Run(tmp_path, "a", 1, mode=mode).arrive()
    (hold,) = stated(tmp_path)["a"].jobs
    assert (hold.cores, hold.slots) == ((), slots)


def test_jobs_that_go_on_without_a_supervisor_stay_stated(tmp_path):
    run = Run(tmp_path, "a", 3).arrive()
    run.keepers[0] = ME
    run.sharing.close()
    entry = stated(tmp_path)["a"]
    assert (len(entry.jobs), entry.wants) == (2, 0)
    killed = entry.model_copy(update={"supervisor": NOBODY, "served_ns": 0})
    (left,) = as_they_stand([killed])
    assert [hold.keeper for hold in left.jobs] == [ME], "one lives; of the other there is no claim"


def test_a_start_that_was_asked_for_just_now_may_yet_be_claimed(tmp_path, monkeypatch):
    Run(tmp_path, "a", 1).arrive(t=5)
    killed = stated(tmp_path)["a"].model_copy(update={"supervisor": NOBODY, "run": str(tmp_path)})
    monkeypatch.setattr(reservations.time, "time_ns", lambda: 5 + NS_PER_S)
    assert as_they_stand([killed]) == (killed,)
    monkeypatch.setattr(reservations.time, "time_ns", lambda: 5 + 11 * NS_PER_S)
    assert as_they_stand([killed]) == ()
    claim = tmp_path / "jobs" / "1" / "1" / "claim"
    claim.parent.mkdir(parents=True)
    claim.write_text(f'{{"pid": {ME[0]}, "start": {ME[1]}, "boot": "b", "t": 1}}\n')
    (left,) = as_they_stand([killed])
    assert left.jobs[0].keeper == ME


# --- what others see -----------------------------------------------------------------------------


def test_cores_of_another_run_are_not_free_and_the_reason_names_it(tmp_path):
    first = Run(tmp_path, "sweep-1", 2).arrive()
    second = Run(tmp_path, "sweep-2", 1).arrive()
    assert (first.cores, second.cores) == ([0, 1], [])
    assert second.view.free_cores == set()
    told = "waits for a free core; run sweep-1 in /x holds cores 0, 1, 32 MiB"
    assert second.reason == told
    assert stated(tmp_path)["sweep-2"].wants == 1
    first.end(0, 1)
    second.tick(2)
    assert second.cores == [0]
    assert stated(tmp_path)["sweep-2"].wants == 0


def test_of_two_decisions_from_one_view_the_second_is_made_again(tmp_path):
    first, second = Run(tmp_path, "a", 1), Run(tmp_path, "b", 1)
    first.arrive()
    second.arrive()
    assert (first.cores, second.cores) == ([0], [1])
    assert (first.refused, second.refused) == (0, 1)


def test_a_group_starts_whole_or_not_at_all(tmp_path):
    first, second = Run(tmp_path, "a", 1), Run(tmp_path, "b", 2, group="g")
    first.arrive()
    second.arrive()
    assert second.cores == []
    assert "waits for a free core; run a" in second.reason


def test_memory_of_another_run_counts_once(tmp_path):
    first = Run(tmp_path, "a", 1, memory_bytes=5 * GIB).arrive()
    second = Run(tmp_path, "b", 1, memory_bytes=4 * GIB)
    capacity = second.view.capacity_bytes
    assert second.view.free_bytes == capacity - 5 * GIB
    second.arrive()
    assert second.reason == (
        "waits for 4.0 GiB of memory: 2.6 GiB not reserved; run a in /x holds core 0, 5.0 GiB"
    )
    first.end(0, 1)
    second.tick(2)
    assert second.cores == [0]


def test_a_device_of_another_run_is_not_given_and_no_reason_to_leave_cores_idle(tmp_path):
    machine = fake_machine(cores=2, devices=[fake_device(0)])
    first = Run(tmp_path, "a", 1, machine=machine, gpus=1).arrive()
    second = Run(tmp_path, "b", 1, machine=machine, gpus=1).arrive()
    assert second.view.free_devices == set()
    assert second.reason == "waits for 1 free GPU; run a in /x holds core 0, 16 MiB, 1 GPU"
    assert "b" not in stated(tmp_path), "it has no use for a core"
    first.end(0, 1)
    second.tick(2)
    assert second.view.states[0].share.devices == (0,)


def test_a_job_alone_waits_until_other_runs_have_ended_and_they_for_it(tmp_path):
    first = Run(tmp_path, "a", 1).arrive()
    alone = Run(tmp_path, "b", 1, mode="serial").arrive()
    assert "waits for 2 free cores; run a" in alone.reason
    first.end(0, 1)
    alone.tick(2)
    assert list(alone.view.running) == [0]
    third = Run(tmp_path, "c", 1).arrive()
    assert third.cores == []
    assert "run b in /x holds 2 unnamed cores" in third.reason


def test_a_job_that_takes_more_threads_is_never_confined_to_a_core_of_another_run(tmp_path):
    first = Run(tmp_path, "a", 1).arrive()
    second = Run(tmp_path, "b", 1, mode="shared").arrive()
    second.view.states[0].busy_threads = 2
    second.tick(1)
    assert second.cores == [1]
    assert stated(tmp_path)["b"].jobs[0].cores == (1,)
    assert not first.sharing.take([Start(0, Share(cores=(1,)))], 2), "its view is outdated"
    assert first.view.free_cores == set()
    assert first.sharing.take([Reshare(0, (0,), "")], 2)


# --- whose turn it is ----------------------------------------------------------------------------


def test_a_run_gives_way_until_the_other_has_its_part(tmp_path):
    first = Run(tmp_path, "a", 9).arrive()
    second = Run(tmp_path, "b", 9).arrive()
    first.end(0, 1)
    assert first.cores == [1]
    second.tick(2)
    assert second.cores == [0]
    first.end(1, 3)
    assert first.cores == [1], "one each: nobody gives way"
    second.end(0, 4)
    assert second.cores == [0]


def test_a_wide_job_of_another_run_gets_its_cores(tmp_path):
    first = Run(tmp_path, "a", 9).arrive(t=1)
    wide = Run(tmp_path, "b", 2, cores=2).arrive()
    first.end(0, 2)
    first.end(1, 2)
    assert first.cores == []
    assert first.reason.startswith("gives way to run b in /x, which waits for 2 free cores")
    wide.tick(3)
    assert wide.cores == [0, 1]
    wide.end(0, 4)
    first.tick(5)
    assert first.cores == [0, 1], "now it is the first one's turn, and it uses all of it"


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=2, max_size=4),
    modes=st.lists(st.sampled_from(["partitioned", "shared", "serial"]), min_size=4, max_size=4),
    cores=st.integers(1, 3),
    order=st.randoms(use_true_random=False),
)
def test_runs_never_hold_more_than_there_is_and_all_of_them_end(
    tmp_path_factory, lengths, modes, cores, order
):
    folder = tmp_path_factory.mktemp("runtime")
    machine = fake_machine(cores=cores)
    runs = [
        Run(folder, f"run-{number}", len(jobs), mode=mode, machine=machine)
        for number, (jobs, mode) in enumerate(zip(lengths, modes, strict=False))
    ]
    for run in runs:
        run.arrive()
    # Each handover takes a tick at most, and no core is idle in all ticks of a job's length.
    for t in range(1, 4 * sum(map(sum, lengths)) + 10):
        for run, jobs in order.sample(list(zip(runs, lengths, strict=True)), len(runs)):
            for index, state in list(run.view.running.items()):
                if t - state.started_ns >= jobs[index]:
                    run.end(index, t)
            run.tick(t)
            pinned = [core for one in runs for core in one.cores]
            assert len(set(pinned)) == len(pinned), f"a core twice: {pinned}"
            held = sum(hold.slots for entry in stated(folder).values() for hold in entry.jobs)
            assert held <= cores
    assert all(run.view.unsettled == 0 for run in runs)
    assert stated(folder) == {}


# --- what can go wrong ---------------------------------------------------------------------------


def test_a_lock_that_hangs_stops_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(reservations.time, "sleep", lambda _: None)
    run = Run(tmp_path, "a", 3)
    descriptor = os.open(tmp_path / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    run.arrive()
    assert run.cores == [0, 1]
    (note,) = run.sharing.notes
    assert note == "somebody keeps the reservation file locked, so not all starts are in it"
    os.close(descriptor)
    run.tick(1)
    assert len(stated(tmp_path)["a"].jobs) == 2, "it is stated as soon as it can be"


def test_a_full_disk_stops_nobody(tmp_path, monkeypatch):
    run = Run(tmp_path, "a", 2)

    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        run.arrive()
    assert run.cores == [0, 1]
    assert list(run.sharing.notes) == ["sharing with other runs is off (No space left on device)"]
    run.tick(1)
    assert len(stated(tmp_path)["a"].jobs) == 2


def test_what_was_known_before_the_file_was_damaged_is_known_still(tmp_path):
    first = Run(tmp_path, "a", 1).arrive()
    second = Run(tmp_path, "b", 2)
    path = ReservationFile(tmp_path).path
    path.write_bytes(b"\0" * 64)
    second.arrive()
    assert second.cores == [1]
    assert set(stated(tmp_path)) == {"a", "b"}
    assert "set aside as" in second.sharing.notes[0]
    assert Path(f"{path}.damaged").read_bytes() == b"\0" * 64
    path.unlink()
    first.sharing.refresh()
    second.sharing.refresh()
    assert set(stated(tmp_path)) == {"a", "b"}, "what somebody removed is stated again"


def test_nobody_is_waited_for_on_the_word_of_a_file_that_cannot_be_read_any_more(tmp_path):
    Run(tmp_path, "a", 2).arrive()
    second = Run(tmp_path, "b", 1).arrive()
    assert second.cores == []
    tmp_path.chmod(0o777)
    second.tick(1)
    assert second.cores == [0]
    assert "sharing with other runs is off" in second.sharing.notes[0]
    tmp_path.chmod(0o700)
    second.tick(2)
    assert set(stated(tmp_path)) == {"a", "b"}


def test_a_link_in_the_file_s_place_is_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("mine")
    place = tmp_path / "runtime"
    place.mkdir(mode=0o700)
    ReservationFile(place).path.symlink_to(target)
    run = Run(place, "a", 1).arrive()
    assert run.cores == [0]
    assert target.read_text() == "mine"
    assert not ReservationFile(place).path.is_symlink()
