"""The store's file: one sqlite database, opened with care, small, and expendable.

[Note: no write-ahead log]
Homes lie on network file systems, and several hosts may open the file at once. A write-ahead log
needs memory shared by all who have it open, so the file keeps sqlite's rollback journal.
"""

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from pydantic import ValidationError

from headway.core.folder import Folder
from headway.probes.profiles.attempts import PastAttempt

FILE = "profiles.sqlite"
DAMAGED = "profiles.damaged.sqlite"
JOURNAL = f"{FILE}-journal"
SCHEMA = 3
APPLICATION = 0x48647779  # "Hdwy"

KEPT_OF_A_JOB = 50
KEPT = 20_000

_COLUMNS = tuple(PastAttempt.model_fields)
_PAIRS = (
    "CREATE TABLE pairs (first, second, machine, ratio, measured_ns)",
    "CREATE INDEX pairs_of_two ON pairs (first, second, machine, measured_ns)",
    "CREATE INDEX pairs_by_age ON pairs (measured_ns)",
)
_TABLES = (
    f"CREATE TABLE attempts ({', '.join(_COLUMNS)})",
    "CREATE INDEX attempts_of_a_job ON attempts (key, ended_ns)",
    "CREATE INDEX attempts_of_a_script ON attempts (script, ended_ns)",
    "CREATE INDEX attempts_by_age ON attempts (ended_ns)",
    f"PRAGMA application_id = {APPLICATION}",
    *_PAIRS,
    f"PRAGMA user_version = {SCHEMA}",
)
_UPGRADES = {
    # There were pairs of jobs, whatever the machine, and nothing ever wrote one.
    1: ("DROP TABLE pairs", *_PAIRS, "PRAGMA user_version = 2"),
    2: (
        "ALTER TABLE attempts ADD COLUMN device_bytes",
        "ALTER TABLE attempts ADD COLUMN device_busy",
        "ALTER TABLE attempts ADD COLUMN device_part",
        "PRAGMA user_version = 3",
    ),
}
_AT_ONCE = 500  # sqlite takes 999 values in one statement, or more


Row = tuple[Any, ...]


class PairRatio(NamedTuple):
    """How fast `first` went beside `second`, measured / predicted; both are kinds of jobs.

    `machine` is the digest of where that was.
    """

    first: str
    second: str
    machine: str
    ratio: float
    measured_ns: int


class NotUsable(Exception):
    """There is a file, and it is not for this Headway; why, in words."""


class Database:
    """The open file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, folder: Path, *, wait_s: float) -> Self:
        """Open the file that `prepare` looked at; an empty one becomes a store.

        Raises:
            NotUsable: It is somebody else's, or a newer Headway made it.
            sqlite3.Error: The file is damaged, or busy for longer than `wait_s`.
        """
        # Nobody else can write to the folder, so this is still that file.
        where = f"file:{quote(os.fsencode(folder.absolute() / FILE))}?mode=rw"
        connection = sqlite3.connect(where, uri=True, timeout=wait_s, isolation_level=None)
        try:
            # A damaged file may hold anything, also what is not UTF-8.
            connection.text_factory = lambda text: text.decode(errors="replace")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")
            database = cls(connection)
            database._make_or_check()
        except BaseException:
            connection.close()
            raise
        return database

    def close(self) -> None:
        """Give the file back; harmless when done twice."""
        self._connection.close()

    def attempts_of_scripts(self, scripts: Iterable[str]) -> Iterator[PastAttempt]:
        """Attempts of these scripts, newest first; rows that hold nonsense are passed over."""
        columns = ", ".join(_COLUMNS)
        found = self._select(f"SELECT {columns} FROM attempts WHERE script IN", scripts)
        for row in _by_age(found, _COLUMNS.index("ended_ns"), newest_first=True):
            with suppress(ValidationError):
                yield PastAttempt.model_validate(dict(zip(_COLUMNS, row, strict=True)))

    def add_attempts(self, attempts: Sequence[PastAttempt], *, wait_s: float) -> bool:
        """Append rows in one transaction, and drop the oldest beyond what is kept."""
        places = ", ".join("?" * len(_COLUMNS))
        rows = [tuple(getattr(attempt, name) for name in _COLUMNS) for attempt in attempts]
        with self._writing(wait_s):
            self._connection.executemany(f"INSERT INTO attempts VALUES ({places})", rows)
            for key in {attempt.key for attempt in attempts}:
                self._drop("attempts", "ended_ns", KEPT_OF_A_JOB, {"key": key})
            self._drop("attempts", "ended_ns", KEPT)
        return True

    def pairs_of(self, kinds: Iterable[str]) -> Iterator[PairRatio]:
        """The ratios whose first job is of one of these kinds, oldest first."""
        columns = ", ".join(PairRatio._fields)
        found = self._select(f"SELECT {columns} FROM pairs WHERE first IN", kinds)
        for row in _by_age(found, PairRatio._fields.index("measured_ns")):
            pair = PairRatio(*row)
            if isinstance(pair.ratio, float) and 0 < pair.ratio < 1e6:
                yield pair

    def add_pairs(self, pairs: Sequence[PairRatio], *, wait_s: float) -> bool:
        """Append ratios in one transaction, and drop the oldest beyond what is kept."""
        with self._writing(wait_s):
            self._connection.executemany("INSERT INTO pairs VALUES (?, ?, ?, ?, ?)", pairs)
            for first, second, machine in {pair[:3] for pair in pairs}:
                of_two = {"first": first, "second": second, "machine": machine}
                self._drop("pairs", "measured_ns", KEPT_OF_A_JOB, of_two)
            self._drop("pairs", "measured_ns", KEPT)
        return True

    def forget(self, *, name: str | None, digest: str | None, wait_s: float) -> int:
        """Delete the attempts of a script by its name or its path's digest, or all; says how many.

        Ratios in which the script took part go with it.
        """
        which = "" if name is None else " WHERE script_name = ? OR script = ?"
        values = () if name is None else (name, digest)
        with self._writing(wait_s):
            kinds = f"(SELECT script FROM attempts{which})"
            some = "" if name is None else f" WHERE first IN {kinds} OR second IN {kinds}"
            self._connection.execute(f"DELETE FROM pairs{some}", values * 2)
            cursor = self._connection.execute(f"DELETE FROM attempts{which}", values)
        # Only for the file's size: what was deleted is overwritten already.
        with suppress(sqlite3.OperationalError):
            self._connection.execute("VACUUM")
        return cursor.rowcount

    # --- inside ----------------------------------------------------------------------------------

    def _make_or_check(self) -> None:
        if self._marks() == (0, 0):
            with self._writing():
                if self._marks() == (0, 0) and self._empty():
                    for statement in _TABLES:
                        self._connection.execute(statement)
        for schema, statements in _UPGRADES.items():
            if self._marks() == (APPLICATION, schema):
                with self._writing():
                    if self._marks() == (APPLICATION, schema):
                        for statement in statements:
                            self._connection.execute(statement)
        application, schema = self._marks()
        if application != APPLICATION or schema < 1:
            raise NotUsable("is not a profile store; move it away to let a new one be made")
        if schema > SCHEMA:
            raise NotUsable(
                f"has schema {schema}, written by a newer Headway; this one reads up to {SCHEMA}. "
                "Update Headway to use it"
            )

    def _marks(self) -> tuple[int, int]:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (schema,) = self._connection.execute("PRAGMA user_version").fetchone()
        return application, schema

    def _empty(self) -> bool:
        return self._connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None

    @contextmanager
    def _writing(self, wait_s: float | None = None) -> Iterator[None]:
        """One transaction, all or nothing; the lock for writing is taken at its start."""
        if wait_s is not None:
            self._connection.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def _select(self, query: str, values: Iterable[str]) -> Iterator[Row]:
        distinct = sorted(set(values))
        for start in range(0, len(distinct), _AT_ONCE):
            some = distinct[start : start + _AT_ONCE]
            yield from self._connection.execute(f"{query} ({', '.join('?' * len(some))})", some)

    def _drop(self, table: str, age: str, kept: int, of: dict[str, str] | None = None) -> None:
        """Delete all but the newest `kept` rows of a table, or of those that match."""
        of = of or {}
        where = " AND ".join(f"{name} = ?" for name in of) or "1"
        beyond = f"SELECT rowid FROM {table} WHERE {where} ORDER BY {age} DESC LIMIT -1 OFFSET ?"
        delete = f"DELETE FROM {table} WHERE rowid IN ({beyond})"
        self._connection.execute(delete, (*of.values(), kept))


def prepare(folder: Path) -> int:
    """Make folder and file where they are missing, and see that they are this user's alone.

    Returns:
        The file's inode.

    Raises:
        NotUsable: The file belongs to somebody else, or is no plain file.
        OSError: The folder cannot be made or opened, or others may write in it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Folder.open(folder) as held:
        with suppress(FileExistsError):
            os.close(held.open_file(FILE, os.O_CREAT | os.O_EXCL | os.O_RDWR))
        # The file is looked at, never opened and closed: closing any descriptor of it would drop
        # the locks that this process may hold through another connection.
        facts = os.stat(FILE, dir_fd=held.descriptor, follow_symlinks=False)
        if not stat.S_ISREG(facts.st_mode):
            raise NotUsable("is not a plain file; move it away to let a new one be made")
        if facts.st_uid != os.geteuid():
            raise NotUsable("belongs to another user; move it away to let a new one be made")
        if facts.st_mode & 0o077:
            os.chmod(folder / FILE, 0o600)
    return facts.st_ino


def set_aside(folder: Path, inode: int) -> None:
    """Take a damaged file out of the way, in the place of an earlier one.

    Where another Headway has done it already, the file there is a new one and stays.

    Raises:
        OSError: It cannot be done.
    """
    with Folder.open(folder) as held:
        there = os.stat(FILE, dir_fd=held.descriptor, follow_symlinks=False)
        if there.st_ino == inode:
            os.replace(FILE, DAMAGED, src_dir_fd=held.descriptor, dst_dir_fd=held.descriptor)
            # Left behind, it would be played back into the new file.
            held.remove(JOURNAL)


def remove_damaged(folder: Path) -> None:
    """Delete what was set aside.

    Raises:
        OSError: It cannot be done.
    """
    with Folder.open(folder) as held:
        held.remove(DAMAGED)


def _by_age(rows: Iterable[Row], column: int, *, newest_first: bool = False) -> list[Row]:
    """Rows in the order of a time; what is no time is as old as can be."""

    def age(row: Row) -> int:
        value = row[column]
        return value if isinstance(value, int) else 0

    return sorted(rows, key=age, reverse=newest_first)
