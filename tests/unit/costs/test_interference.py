import pytest

from headway.costs.interference import Member, crowding, fluid, rates
from headway.costs.pair_coefficients import PairCoefficients

NOTHING_KNOWN = PairCoefficients()


def two_threads(**fields):
    return Member("two", 2, 2.0, **fields)


def one_thread(cores_alone=1.0, **fields):
    return Member("one", 1, cores_alone, **fields)


@pytest.mark.parametrize(
    ("running", "cores", "expected"),
    [
        pytest.param([two_threads()], 2, [1.0], id="alone"),
        pytest.param([two_threads(), one_thread()], 2, [0.16, 1.0], id="beside a busy one"),
        pytest.param([two_threads(), one_thread(0.5)], 2, [1.0, 1.0], id="beside an idler"),
        pytest.param([two_threads(), one_thread()], 3, [1.0, 1.0], id="a core for each"),
        pytest.param([two_threads()] * 2, 2, [0.6, 0.6], id="two of them"),
        pytest.param([two_threads()] * 3, 2, [0.4] * 3, id="three of them"),
        pytest.param([two_threads()] * 2 + [one_thread()], 2, [0.16, 0.16, 1], id="two and one"),
        pytest.param(
            [two_threads(start_up=True), one_thread()], 2, [1.0, 1.0], id="importing has one thread"
        ),
        pytest.param(
            [two_threads(), one_thread(start_up=True)], 2, [0.16, 1.0], id="beside an import"
        ),
        pytest.param(
            [two_threads(pinned=(0, 1)), one_thread(pinned=(2,))], 3, [1, 1], id="cores of its own"
        ),
        pytest.param(
            [two_threads(pinned=(0,)), one_thread(pinned=(1,))], 2, [1, 1], id="its own doing"
        ),
        pytest.param(
            [two_threads(pinned=(0, 1)), one_thread(pinned=(1,))], 3, [0.16, 1], id="one core meets"
        ),
        pytest.param(
            [Member("loader", 2, 1.2), one_thread(0.7)],
            2,
            [0.16, 1.0],
            id="threads count even where cores would do",
        ),
    ],
)
def test_crowding(running, cores, expected):
    assert crowding(running, range(cores)) == pytest.approx(expected)


def test_a_job_bound_to_one_core_leaves_the_other_to_who_may_use_both():
    assert fluid([one_thread(pinned=(0,)), two_threads()], range(2)) == (1.0, 0.5)


def test_a_crowded_core_does_not_hold_back_who_can_go_elsewhere():
    crowd = [one_thread(pinned=(0,))] * 3
    assert fluid([*crowd, one_thread()], range(2)) == pytest.approx([1 / 3] * 3 + [1.0])


def test_who_wants_nothing_has_all_of_it():
    assert fluid([one_thread(0.0), two_threads()], range(2)) == (1.0, 1.0)


def test_coefficients_of_several_neighbours_multiply():
    known = PairCoefficients(noise=1e-4).observed(["one", "mem"], [0.8, 1.0])
    running = [one_thread(), Member("mem", 1, 1.0), Member("mem", 1, 1.0)]
    assert rates(running, range(3), known)[0] == pytest.approx(0.64, rel=1e-3)


def test_a_job_that_starts_up_takes_no_part_in_coefficients():
    known = PairCoefficients().observed(["one", "mem"], [0.8, 0.8])
    running = [one_thread(), Member("mem", 1, 1.0, start_up=True)]
    assert rates(running, range(2), known) == (1.0, 1.0)


def test_nobody_runs():
    assert rates([], range(2), NOTHING_KNOWN) == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"threads": 0}, "threads is 0"),
        ({"cores_alone": -1.0}, "cores_alone is -1.0"),
        ({"cores_alone": float("nan")}, "cores_alone is nan"),
        ({"pinned": ()}, "pinned to no core"),
    ],
)
def test_members_out_of_range_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Member(**{"kind": "a", "threads": 1, "cores_alone": 1.0} | fields)


def test_a_pin_outside_of_the_machine_is_refused():
    with pytest.raises(ValueError, match=r"one: may use cores \(7,\), and there are cores \(0, 1"):
        fluid([one_thread(pinned=(7,))], range(2))
