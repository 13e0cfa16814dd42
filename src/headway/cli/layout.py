"""Tables that fit a width: columns go, least wanted first, then what is left gets narrower."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.core.text import cells, shorten

_GAP = 2
ALWAYS = 100


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, how narrow and wide it may get, and how long it is kept.

    Where not everything fits, the column with the smallest `keep` goes first; one with ALWAYS
    stays. A column that has nothing to say ("" or "-" in every row) is left out.
    """

    title: str
    keep: int = ALWAYS
    right: bool = False
    least: int | None = None
    most: int | None = None


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    ending: str = "..",
    paint: Callable[[int, str, Sequence[str]], str] | None = None,
) -> list[str]:
    """The lines of a table, a title line first, none longer than `width` columns.

    Args:
        columns: What the columns are.
        rows: Cells of each row, as many as there are columns.
        width: Columns of the screen.
        ending: Marks a cut cell.
        paint: Gives a padded cell its colour: column's number, cell, row.

    >>> table([Column("job"), Column("steps", right=True)], [["a", "12"], ["long", "3"]], width=40)
    [' job   steps', ' a        12', ' long      3']
    """
    natural = [_natural(column, index, rows) for index, column in enumerate(columns)]
    shown = [
        index
        for index, column in enumerate(columns)
        if column.keep == ALWAYS or any(row[index] not in ("", "-") for row in rows)
    ]
    least = [
        min(wide, column.least) if column.least else wide
        for wide, column in zip(natural, columns, strict=True)
    ]
    while _total([least[i] for i in shown]) > width:
        optional = [index for index in shown if columns[index].keep != ALWAYS]
        if not optional:
            break
        shown.remove(min(optional, key=lambda index: columns[index].keep))
    widths = _widths(shown, least, natural, width)

    def line(row: Sequence[str], colour: bool) -> str:
        parts = []
        for index in shown:
            wide = widths[index]
            cell = shorten(row[index], wide, ending=ending)
            blank = " " * (wide - cells(cell))
            padded = blank + cell if columns[index].right else cell + blank
            parts.append(paint(index, padded, row) if paint and colour else padded)
        return (" " + (" " * _GAP).join(parts)).rstrip()

    titles = [column.title for column in columns]
    return [line(titles, False), *(line(row, True) for row in rows)]


def _natural(column: Column, index: int, rows: Sequence[Sequence[str]]) -> int:
    wide = max([cells(column.title), *(cells(row[index]) for row in rows)])
    return min(wide, column.most) if column.most else wide


def _total(widths: Sequence[int]) -> int:
    return 1 + sum(widths) + _GAP * (len(widths) - 1)


def _widths(
    shown: Sequence[int], least: Sequence[int], natural: Sequence[int], width: int
) -> dict[int, int]:
    """Widths of the shown columns: what is left over goes to them from the left."""
    widths = {index: least[index] for index in shown}
    spare = width - _total(list(widths.values()))
    for index in shown:
        more = max(0, min(spare, natural[index] - widths[index]))
        widths[index] += more
        spare -= more
    # Even the least is too much: the widest give, one cell at a time.
    while spare < 0:
        widest = max(widths, key=lambda index: widths[index])
        if widths[widest] <= 1:
            break
        widths[widest] -= 1
        spare += 1
    return widths


def paragraph(text: str, *, width: int, lead: str = "", hang: int = 2) -> list[str]:
    """A text wrapped to the width, with `lead` before its first line.

    >>> paragraph("exit 1 after 3.2 s", width=18, lead="failed  a  ", hang=4)
    ['failed  a  exit 1', '    after 3.2 s']
    """
    # A break inside a word only where the word alone is too long; never at a hyphen of an option.
    return textwrap.wrap(
        lead + text,
        width=max(width, 10),
        subsequent_indent=" " * hang,
        break_on_hyphens=False,
    ) or [lead.rstrip()]
