import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.units import (
    GIB,
    KIB,
    MIB,
    TIB,
    parse_bytes,
    parse_seconds,
    show_bytes,
    show_seconds,
    show_step,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("512M", 512 * MIB),
        ("512 mb", 512 * MIB),
        ("2GiB", 2 * GIB),
        (" 1.5G ", 3 * GIB // 2),
        ("3k", 3 * KIB),
        ("1T", TIB),
        ("7B", 7),
    ],
)
def test_sizes_as_people_write_them(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1G", "1e9", "G", "1P", "1 2", "1iB2", "nan", "0.1B", "\u0663G", "9999999T", "1,5G"],
)
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="as in 700M or 2G"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("5m", 300),
        ("5min", 300),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1.5h", 5400),
    ],
)
def test_durations_as_people_write_them(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5", "1x", "h", "1h 30", "1e3", "inf", "99999999999"])
def test_what_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="as in 1h30m"):
        parse_seconds(text)


@given(st.text(max_size=12))
def test_any_text_is_a_positive_quantity_or_a_value_error(text):
    for parse in (parse_bytes, parse_seconds):
        with contextlib.suppress(ValueError):
            assert parse(text) > 0


@given(st.integers(1, 2**59), st.sampled_from(["", "K", "M", "G"]))
def test_whole_sizes_are_exact(number, suffix):
    factor = {"": 1, "K": KIB, "M": MIB, "G": GIB}[suffix]
    if number >= 2**50 or number * factor >= 2**60 or number >= 10**15:
        return
    assert parse_bytes(f"{number}{suffix}") == number * factor


@given(st.integers(0, 2**60))
def test_shown_sizes_read_back_within_their_last_digit(size):
    shown = show_bytes(size)
    number, unit = shown.split()
    factor = {"KiB": KIB, "MiB": MIB, "GiB": GIB}[unit]
    places = 0.05 if unit == "GiB" else 0.5
    assert abs(float(number) * factor - size) <= places * factor * 1.001


@given(st.integers(10, 10**7))
def test_shown_durations_read_back(seconds):
    parts = [int(part) for part in show_seconds(seconds).split(":")]
    assert all(part < 60 for part in parts[1:])
    total = 0
    for part in parts:
        total = total * 60 + part
    assert total == seconds


def test_a_duration_is_never_shown_with_sixty_seconds():
    assert show_seconds(59.7) == "1:00"
    assert show_seconds(9.97) == "10.0 s"


@given(st.floats(1, 1e12))
def test_shown_steps_have_a_unit(step_ns):
    assert show_step(step_ns).split()[1] in ("s", "ms")
