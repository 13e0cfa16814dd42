from collections import Counter
from itertools import combinations_with_replacement

import pytest
from pydantic import ValidationError

from headway.core import catalogue
from headway.core.mig import MigPlacement, MigProfile, MigTable, Refusal, differences

A100 = catalogue.device("a100-40gb").mig
NAMES = {
    1: "1g.5gb",
    2: "2g.10gb",
    3: "3g.20gb",
    4: "4g.20gb",
    7: "7g.40gb",
}


def named(slices):
    return [NAMES[count] for count in slices]


def profile(name, *, compute=1, size=1, starts=(0,), most=1):
    return MigProfile(
        name=name, id=0, compute=compute, size=size, starts=starts, most=most,
        memory_bytes=1, sms=1, source="mig",
    )  # fmt: skip


def starts(table, names):
    return [(placement.profile, placement.start) for placement in table.layout(names)]


def every_maximal_layout(table, names):
    """Placements to which none of these profiles can be added, by trying every start."""
    slots = [
        (name, frozenset(range(start, start + table.profile(name).size)))
        for name in names
        for start in table.profile(name).starts
    ]
    found = []

    def extend(placed, taken, rest):
        free = [slot for slot in slots if not slot[1] & taken]
        if not free:
            found.append(placed)
        for index, (name, slices) in enumerate(rest):
            if not slices & taken:
                extend([*placed, name], taken | slices, rest[index + 1 :])

    extend([], frozenset(), slots)
    return found


# The MIG user guide draws these for the A100: 19 layouts. Two of them (3+2+1, 3+1+1+1) waste what
# another placement of the same instances leaves free, so 12 sets cannot grow.
MAXIMAL = [
    (7,), (4, 3), (4, 2, 1), (4, 1, 1, 1), (3, 3), (3, 2, 2), (3, 2, 1, 1), (3, 1, 1, 1, 1),
    (2, 2, 2, 1), (2, 2, 1, 1, 1), (2, 1, 1, 1, 1, 1), (1,) * 7,
]  # fmt: skip


def test_the_a100_has_19_layouts():
    assert len(every_maximal_layout(A100, NAMES.values())) == 19


def test_the_12_sets_that_cannot_grow():
    feasible = {
        slices
        for count in range(1, 8)
        for slices in combinations_with_replacement((7, 4, 3, 2, 1), count)
        if not isinstance(A100.layout(named(slices)), Refusal)
    }
    grown = {tuple(sorted((*slices, one), reverse=True)) for slices in feasible for one in NAMES}
    smaller = {
        slices
        for slices in feasible
        if any(
            not Counter(slices) - Counter(larger) and len(larger) == len(slices) + 1
            for larger in grown & feasible
        )
    }
    assert sorted(feasible - smaller) == sorted(MAXIMAL)


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ((4, 2, 2), "4g.20gb + 2 x 2g.10gb needs 8 of 7 compute slices"),
        ((4, 2, 1, 1), "4g.20gb + 2g.10gb + 2 x 1g.5gb needs 8 of 7 compute slices"),
        ((4, 2, 1, 1, 1), "4g.20gb + 2g.10gb + 3 x 1g.5gb needs 9 of 7 compute slices"),
        ((3, 3, 1), "2 x 3g.20gb + 1g.5gb needs 9 of 8 memory slices"),
        ((4, 4), "2 x 4g.20gb needs 8 of 7 compute slices"),
    ],
)
def test_impossible_sets_say_why(slices, reason):
    assert A100.layout(named(slices)) == Refusal(reason=reason)


def test_a_lone_3g_goes_where_it_leaves_four_slices():
    assert starts(A100, ["3g.20gb"]) == [("3g.20gb", 4)]


def test_large_instances_are_created_before_small_ones():
    # A driver that places 2g and 1g first may leave no room for 3g.
    assert starts(A100, ["1g.5gb", "2g.10gb", "3g.20gb"]) == [
        ("3g.20gb", 4),
        ("2g.10gb", 2),
        ("1g.5gb", 1),
    ]


def test_the_same_starts_as_the_driver_chooses():
    # The MIG user guide shows -cgi 19,14,5.
    assert starts(A100, named((1, 2, 4))) == [("4g.20gb", 0), ("2g.10gb", 4), ("1g.5gb", 6)]


def test_the_last_memory_slice_is_reached_by_double_memory():
    names = ["1g.10gb", *named((1,) * 6)]
    assert starts(A100, names) == [
        ("1g.10gb", 6),
        *(("1g.5gb", start) for start in range(5, -1, -1)),
    ]


def test_an_unknown_profile_names_the_known_ones():
    refused = A100.layout(["1g.5gb", "3g.40gb\x1b[31m"])
    assert refused.reason == (
        "no MIG profile 3g.40gb here; there are: 1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb "
        "7g.40gb"
    )


def test_one_instance_has_the_media_extensions():
    assert A100.layout(["1g.5gb+me", "2g.10gb"])[1].profile == "1g.5gb+me"
    a30 = catalogue.device("a30-24gb").mig
    for pair in (["1g.6gb+me", "1g.6gb+me"], ["1g.6gb+me", "2g.12gb+me"]):
        assert "needs the media extensions 2 times" in a30.layout(pair).reason


def test_sums_that_fit_are_not_enough():
    # Made up: two halves that may both start in the middle only.
    table = MigTable(
        compute=4, memory=4, profiles=(profile("2g.2gb", size=2, starts=(1,), most=2),)
    )
    assert table.layout(["2g.2gb"] * 2).reason == (
        "2 x 2g.2gb cannot be kept apart: memory slices overlap wherever they start (2g.2gb at 1)"
    )


def test_the_drivers_own_limit_counts():
    table = MigTable(compute=4, memory=4, profiles=(profile("1g.1gb", starts=(0, 1), most=1),))
    assert table.layout(["1g.1gb"] * 2).reason == ("2 x 1g.1gb needs 2 of 1 instances of 1g.1gb")


def test_ten_thousand_instances_are_refused_at_once():
    assert A100.layout(["1g.5gb"] * 10_000).reason == (
        "10000 x 1g.5gb needs 10000 of 7 compute slices"
    )


def test_no_instances_have_an_empty_layout():
    assert A100.layout([]) == ()


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ((profile("4g.4gb", size=4, starts=(1,)),), "4g.4gb ends beyond 4 memory slices"),
        ((profile("1g.1gb"), profile("1g.1gb")), "two profiles have one name"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(profiles, message):
    with pytest.raises(ValidationError, match=message):
        MigTable(compute=4, memory=4, profiles=profiles)


# ---- beside what is there -----------------------------------------------------------------------


def there(profile_name, start):
    return MigPlacement(profile=profile_name, start=start, size=A100.profile(profile_name).size)


def test_a_layout_goes_beside_what_is_there():
    placed = A100.layout(["4g.20gb", "1g.5gb"], beside=[there("2g.10gb", 4)])
    assert [(one.profile, one.start) for one in placed] == [("4g.20gb", 0), ("1g.5gb", 6)]


@pytest.mark.parametrize(
    ("beside", "reason"),
    [
        (
            [there("2g.10gb", 2)],
            "4g.20gb beside 2g.10gb cannot be kept apart: memory slices overlap wherever they "
            "start (4g.20gb at 0)",
        ),
        ([there("4g.20gb", 0)], "4g.20gb beside 4g.20gb needs 8 of 7 compute slices"),
        (
            [there("1g.5gb", 4), there("1g.5gb", 5), there("1g.5gb", 6), there("1g.5gb", 0)],
            "4g.20gb beside 4 x 1g.5gb needs 8 of 7 compute slices",
        ),
        (
            [MigPlacement(profile="1g.6gb", start=0, size=1)],
            "no MIG profile 1g.6gb here; there are: 1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb "
            "4g.20gb 7g.40gb",
        ),
    ],
)
def test_what_does_not_fit_beside_it_says_why(beside, reason):
    assert A100.layout(["4g.20gb"], beside=beside) == Refusal(reason=reason)


def test_two_tables_differ_profile_by_profile():
    one = profile("1g.1gb")
    found = MigTable(compute=4, memory=4, profiles=(one, profile("2g.2gb", size=2, starts=(0, 2))))
    known = MigTable(
        compute=4,
        memory=4,
        profiles=(
            profile("2g.2gb", size=2, most=2).model_copy(update={"memory_bytes": 2**30, "id": 3}),
            profile("4g.4gb"),
        ),
    )
    assert differences(found, known) == (
        "1g.1gb: listed by the driver, not by the catalogue",
        "2g.2gb: id 0 by the driver, 3 by the catalogue",
        "2g.2gb: starts 0 or 2 by the driver, 0 by the catalogue",
        "2g.2gb: instances at most 1 by the driver, 2 by the catalogue",
        "2g.2gb: memory 0 KiB by the driver, 1.0 GiB by the catalogue",
        "4g.4gb: listed by the catalogue, not by the driver",
    )
