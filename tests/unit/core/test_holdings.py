"""What an entry of the reservation file means: alive, dead, adopted, nested; pure."""

import pytest

from headway.core.holdings import (
    Elsewhere,
    Hold,
    Reservation,
    Reservations,
    counts_for,
    slots_held,
    standing,
)
from headway.core.plan import Placement
from headway.core.units import GIB
from headway.core.words import Share
from headway.testing.conformance import check_noun

SUPERVISOR, KEEPER, OTHER_KEEPER = (10, 1000), (11, 1001), (12, 1002)


def hold(core, keeper=KEEPER, **more):
    given = {"cores": (core,), "slots": 1, **more}
    return Hold(job=core + 1, attempt=1, keeper=keeper, **given)


def run(*jobs, name="a", **more):
    given = {"supervisor": SUPERVISOR, "cores": (0, 1), **more}
    return Reservation(run=f"/x/{name}", jobs=jobs, **given)


def stood(entry, *living, letters=None, left=None):
    """The entry where only these processes live."""
    states = dict.fromkeys(living, "S") | (letters or {})
    lives = left or (lambda _, one: one if one.keeper in living else None)
    return standing(entry, state=lambda process: states.get(process, ""), left=lives)


def test_the_nouns_keep_to_the_rules():
    check_noun(hold(0, devices=("GPU-1",)))
    check_noun(run(hold(0), inside=KEEPER))
    check_noun(Reservations(runs=(run(hold(0)),)))


# --- who still stands ----------------------------------------------------------------------------


def test_what_a_living_supervisor_states_stands_as_it_is():
    entry = run(hold(0), hold(1, keeper=None), wants=2)
    assert stood(entry, SUPERVISOR) == entry


def test_of_a_dead_supervisor_the_living_jobs_stand_and_wait_for_nothing():
    entry = run(hold(0), hold(1, keeper=OTHER_KEEPER), wants=2)
    assert stood(entry, OTHER_KEEPER) == run(hold(1, keeper=OTHER_KEEPER))


def test_nothing_stands_once_the_last_job_has_ended():
    assert stood(run(hold(0), wants=1)) is None


def test_a_job_whose_keeper_was_not_written_down_stands_as_it_is_found():
    entry = run(hold(0, keeper=None))
    assert stood(entry, left=lambda _, one: one.model_copy(update={"keeper": KEEPER})) == run(
        hold(0)
    )


@pytest.mark.parametrize("letter", ["T", "t"])
def test_a_stopped_supervisor_holds_but_waits_for_nothing(letter):
    entry = run(hold(0), wants=1)
    assert stood(entry, letters={SUPERVISOR: letter}) == run(hold(0))


# --- for whom it counts --------------------------------------------------------------------------


def test_a_run_does_not_wait_for_the_job_that_it_is_a_part_of():
    outer = run(hold(0), hold(1, keeper=OTHER_KEEPER))
    assert counts_for(outer, above=[KEEPER]) == run(hold(1, keeper=OTHER_KEEPER))


def test_what_runs_within_a_job_counts_only_beside_it():
    inner = run(hold(0), name="inner", inside=OTHER_KEEPER)
    assert counts_for(inner, above=[]) is None
    assert counts_for(inner, above=[OTHER_KEEPER]) == inner


def test_jobs_that_were_adopted_from_a_moved_folder_are_ours():
    assert counts_for(run(hold(0)), above=[], ours=[KEEPER]) is None


def test_a_run_that_only_waits_counts_for_its_turn():
    waiting = run(wants=1)
    assert counts_for(waiting, above=[]) == waiting
    assert counts_for(run(), above=[]) is None


# --- how much it is ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "placement", "slots"),
    [
        (Share(cores=(1, 2)), Placement(job="a", cores=2), 2),
        (Share(), Placement(job="a", cores=3), 3),
        (Share(), Placement(job="a", cores=9), 4),
        (Share(), Placement(job="a"), 4),
        (Share(cores=(1,), alone=True), Placement(job="a", cores=1, alone=True), 4),
    ],
)
def test_how_many_cores_a_job_holds(share, placement, slots):
    assert slots_held(share, placement, usable_cores=4) == slots


def test_named_and_unnamed_cores_memory_and_devices_add_up():
    pinned = hold(1, reserved_bytes=GIB, devices=("GPU-1",))
    moving = hold(0, cores=(), slots=2, reserved_bytes=GIB)
    seen = Elsewhere.of([run(pinned, name="a"), run(moving, name="b")], cores=range(4))
    assert (seen.cores, seen.slots, seen.jobs) == ({1}, 3, 2)
    assert (seen.reserved_bytes, seen.devices) == (2 * GIB, {"GPU-1"})
    assert seen.words == (
        "run a in /x holds core 1, 1.0 GiB, 1 GPU; run b in /x holds 2 unnamed cores, 1.0 GiB"
    )


def test_cores_that_we_may_not_use_are_no_loss():
    entry = run(hold(3), hold(2, cores=(), slots=2), cores=(2, 3))
    assert Elsewhere.of([entry], cores=[0, 1]).slots == 0
    assert Elsewhere.of([entry], cores=[1, 2]).slots == 1


def test_of_many_runs_two_are_named():
    runs = [run(hold(core), name=name) for core, name in enumerate("abcd")]
    assert Elsewhere.of(runs, cores=range(4)).words == (
        "run a in /x holds core 0; run b in /x holds core 1; 2 more runs hold the rest"
    )
    wide = run(hold(0, cores=tuple(range(9)), slots=9))
    assert wide.what == "cores 0, 1, 2, 3 and 5 more"


def test_the_line_has_who_holds_least_and_was_served_longest_ago_first():
    late = run(name="late", wants=1, served_ns=9)
    early = run(name="early", wants=1, served_ns=3)
    rich = run(hold(0), name="rich", wants=1)
    content = run(name="content")
    elsewhere = run(name="elsewhere", wants=1, cores=(7,))
    line = Elsewhere.of([rich, late, content, elsewhere, early], cores=[0, 1]).line([0, 1])
    assert [entry.run for entry in line] == ["/x/early", "/x/late", "/x/rich"]
