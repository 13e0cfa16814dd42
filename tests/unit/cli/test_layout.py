import pytest

from headway.cli.layout import ALWAYS, Column, paragraph, table
from headway.core.text import cells

COLUMNS = (
    Column("job", least=8, most=20),
    Column("status"),
    Column("steps", keep=20, right=True),
    Column("memory", keep=30, right=True),
)
ROWS = [
    ["lstm-reviews", "running", "1,240", "612 MiB"],
    ["a-name-that-is-much-too-long-for-this", "ok", "3", "190 MiB"],
    ["損失関数の学習", "failed", "-", "-"],
]


@pytest.mark.parametrize("width", range(12, 100, 4))
def test_no_line_is_wider_than_the_screen(width: int):
    assert max(cells(line) for line in table(COLUMNS, ROWS, width=width)) <= width


def test_a_narrow_screen_loses_the_least_wanted_column_first():
    assert table(COLUMNS, ROWS, width=30)[0].split() == ["job", "status", "memory"]
    assert table(COLUMNS, ROWS, width=22)[0].split() == ["job", "status"]


def test_a_column_that_says_nothing_is_left_out():
    rows = [["a", "ok", "-", "1 MiB"], ["b", "ok", "", "2 MiB"]]
    assert table(COLUMNS, rows, width=80)[0].split() == ["job", "status", "memory"]


def test_columns_stand_below_each_other_whatever_the_script():
    lines = table(COLUMNS, ROWS, width=80)
    words = ("running", "ok", "failed")
    starts = {cells(line[: line.index(word)]) for line, word in zip(lines[1:], words, strict=True)}
    assert len(starts) == 1


def test_a_cut_cell_says_so():
    assert "a-name-that-is-mu..." in table(COLUMNS, ROWS, width=80, ending="...")[2]


def test_colour_does_not_move_columns():
    def paint(index: int, cell: str, _row: object) -> str:
        return f"\x1b[1m{cell}\x1b[0m" if index == 1 else cell

    plain = table(COLUMNS, ROWS, width=60)
    painted = table(COLUMNS, ROWS, width=60, paint=paint)
    assert [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in painted] == plain


def test_always_is_the_default():
    assert Column("job").keep == ALWAYS


def test_a_paragraph_hangs():
    text = "--keep-threads leaves counts alone"
    assert paragraph(text, width=20, lead="note: ") == [
        "note: --keep-threads",
        "  leaves counts",
        "  alone",
    ]
