from pathlib import Path

import pytest

from headway.core.removal import Cleaned, Found, Rules, RunFate
from headway.testing.conformance import check_noun

DAY_S = 86400.0


def why(rules, state="ok", *, age_s=DAY_S, newer=0, obstacle=""):
    found = Found(Path("/r"), state, size_bytes=1, ended_s=0.0, obstacle=obstacle)
    return rules.why_stays(found, age_s=age_s, newer=newer)


@pytest.mark.parametrize("state", ["ok", "failed", "infeasible", "removed"])
def test_what_has_ended_goes(state):
    assert why(Rules(), state) == ""


@pytest.mark.parametrize("state", ["running", "damaged", "removed", "ok"])
def test_an_obstacle_beats_every_rule(state):
    assert why(Rules(unfinished=True), state, obstacle="it lives") == "it lives"


def test_what_can_be_resumed_goes_only_where_it_is_said():
    assert "unfinished" in why(Rules(), "interrupted")
    assert why(Rules(unfinished=True), "interrupted") == ""


def test_the_newest_and_the_young_stay():
    assert why(Rules(keep=1), newer=0) == "the newest"
    assert why(Rules(keep=1), newer=1) == ""
    assert why(Rules(older_than_s=2 * DAY_S)) == "not old enough"
    assert why(Rules(older_than_s=DAY_S)) == ""
    assert why(Rules(keep=3, older_than_s=1.0), newer=2) == "one of the 3 newest"


def test_a_removal_that_was_cut_short_is_ended_however_young():
    assert why(Rules(keep=9, older_than_s=9 * DAY_S), "removed", age_s=0) == ""


def test_what_is_freed_is_what_goes():
    fates = [
        RunFate(run=f"/{v}", state="ok", size_bytes=2**k, age_s=1.0, verdict=v)
        for k, v in enumerate(("goes", "gone", "stays", "failed"))
    ]
    cleaned = Cleaned(dry_run=True, runs=tuple(fates), forgotten=0)
    assert cleaned.freed_bytes == 3
    check_noun(cleaned)
