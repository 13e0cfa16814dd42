from hypothesis import given
from hypothesis import strategies as st

from headway.core.environment import Environment

NAMES = st.text("ABCDEFG", min_size=1, max_size=3)


def test_no_value_is_kept():
    environment = Environment.of({"API_TOKEN": "hunter2hunter2"}, salt="s")
    assert "hunter2" not in environment.to_json()
    assert len(environment.digests["API_TOKEN"]) == 4


def test_what_differs_is_named():
    then = Environment.of({"A": "1", "B": "2", "PATH": "/bin"}, salt="s")
    now = {"A": "1", "C": "", "PATH": "/usr/bin"}
    assert then.differences(now) == ("B removed", "C added", "PATH changed")


def test_another_terminal_is_no_difference():
    then = Environment.of({"A": "1"}, salt="s")
    assert not then.differences(
        {"A": "1", "TERM": "xterm", "SSH_TTY": "x", "HEADWAY_X": "1", "_": "y"}
    )


def test_another_salt_gives_another_digest():
    digests = {Environment.of({"A": "1"}, salt=str(n)).digests["A"] for n in range(20)}
    assert len(digests) > 15


def test_values_that_are_not_utf8_have_a_digest():
    assert Environment.of({"A": "\udcff"}, salt="s").differences({"A": "\udcff"}) == ()


@given(st.dictionaries(NAMES, st.text()))
def test_the_same_variables_never_differ(variables):
    assert Environment.of(variables, salt="s").differences(variables) == ()
