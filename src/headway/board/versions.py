"""Which pieces of a page have changed: what a reader is sent who has an earlier version of it."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.reports.page import Pieces


@dataclass(frozen=True, slots=True)
class Change:
    """What makes an older page the newest: pieces of HTML by the id of their element."""

    version: str
    title: str
    pieces: Mapping[str, str]


@dataclass(slots=True)
class Versions:
    """The newest pieces of a page, each with the version in which it changed last.

    >>> from headway.reports.page import Pieces, Table
    >>> def pieces(figures, **rows):
    ...     table = Table("<table>", "</table>", rows)
    ...     return Pieces("sweep", "<header>", {"figures": figures}, table)
    >>> versions = Versions(name="a")
    >>> versions.take(pieces("1 s", one="<tr>running"))
    True
    >>> versions.take(pieces("2 s", one="<tr>ok")), versions.take(pieces("2 s", one="<tr>ok"))
    (True, False)
    >>> dict(versions.since("a-1").pieces)
    {'figures': '2 s', 'one': '<tr>ok'}
    >>> versions.take(pieces("2 s", one="<tr>ok", two="<tr>waiting"))
    True
    >>> dict(versions.since("a-2").pieces)
    {'jobs': '<table><tr>ok<tr>waiting</table>'}
    >>> sorted(versions.since("of another server").pieces)
    ['figures', 'head', 'jobs']
    """

    name: str = field(default_factory=lambda: secrets.token_hex(4))
    """Tells this server's versions from those of an earlier one."""
    pieces: Pieces | None = None
    _number: int = 0
    _changed: dict[str, int] = field(default_factory=dict)
    _table: int = 0

    @property
    def version(self) -> str:
        """The newest one."""
        return f"{self.name}-{self._number}"

    def take(self, pieces: Pieces) -> bool:
        """A newer page; gives whether anything of it differs."""
        before = self.pieces
        now, rows = _by_id(pieces), pieces.jobs.rows
        if before is None:
            changed = [*now, *rows]
            whole = True
        else:
            old, old_rows = _by_id(before), before.jobs.rows
            changed = [name for name, html in now.items() if old.get(name) != html]
            changed += [name for name, html in rows.items() if old_rows.get(name) != html]
            # Other rows or other columns: rows that fit the old table do not fit this one.
            whole = _frame(before) != _frame(pieces)
        if not (changed or whole):
            return False
        self._number += 1
        self._changed.update(dict.fromkeys(changed, self._number))
        if whole:
            self._table = self._number
        self.pieces = pieces
        return True

    def since(self, version: str) -> Change:
        """What a reader needs who has this version; everything where it is not one of ours."""
        assert self.pieces is not None, "nothing was taken yet"
        name, _, number = version.rpartition("-")
        have = int(number) if name == self.name and number.isdecimal() else 0
        found = {
            name: html for name, html in _by_id(self.pieces).items() if self._changed[name] > have
        }
        if self._table > have:
            found["jobs"] = self.pieces.jobs.whole
        else:
            rows = self.pieces.jobs.rows.items()
            found |= {name: html for name, html in rows if self._changed[name] > have}
        return Change(self.version, self.pieces.title, found)


def _by_id(pieces: Pieces) -> dict[str, str]:
    return {"head": pieces.head, **pieces.sections}


def _frame(pieces: Pieces) -> tuple[str, str, tuple[str, ...]]:
    return pieces.jobs.before, pieces.jobs.after, tuple(pieces.jobs.rows)
