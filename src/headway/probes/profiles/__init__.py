"""The profile store: what was learnt of jobs in earlier runs, as Workloads.

One sqlite file of the user's, `<state folder>/profiles.sqlite` (docs/profiles.md). It gives hints:
what it says is never a reason to skip the memory guard, and whatever is wrong with it (damaged,
busy, read-only, somebody else's, newer) is a note, never an error: the run goes on without it.
"""

import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.threads import default_threads
from headway.probes.profiles.attempts import Learner, PastAttempt
from headway.probes.profiles.database import (
    DAMAGED,
    FILE,
    Database,
    NotUsable,
    PairRatio,
    prepare,
    remove_damaged,
    set_aside,
)
from headway.probes.profiles.identity import (
    Contents,
    Identity,
    key_of,
    kind_digest,
    machine_digest,
    script_digest,
)
from headway.probes.profiles.recall import Recall, Subject, recall

__all__ = [
    "Learner",
    "PairRatio",
    "PastAttempt",
    "ProfileStore",
    "Recall",
    "key_of",
    "kind_digest",
    "machine_digest",
]

Answer = TypeVar("Answer")

_WAIT_S = 5.0  # for other writers; each holds the file for some milliseconds
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class ProfileStore:
    """What is known of jobs, in a file. Use it in a `with`; `notes` has what is to be said of it.

    >>> import tempfile
    >>> from headway.planners.queue import Queue
    >>> from headway.sim.drive import drive
    >>> from headway.testing.queues import FakeQueue, fake_job
    >>> queue = FakeQueue([fake_job("a")])  # a second of start-up, then ten of work
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ProfileStore.open(Path(folder) / "headway") as store:
    ...         with store.learner(queue.machine, environment={}) as learner:
    ...             world = queue.world(queue.plan("serial"))
    ...             drive(Queue(slots=1, pin=False), world, watch=learner.watch)
    ...         told = store.recall(queue.jobs, queue.machine, environment={}, now_ns=2 * 10**10)
    >>> duration = told.workloads[0].duration
    >>> round(duration.low, 1), round(duration.value, 1), round(duration.high, 1), duration.origin
    (9.3, 11.0, 13.0, 'measured')
    >>> told.words
    ('1 of 1 job known from earlier runs: 1 measured 9 s ago',)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._database: Database | None = None
        self._inode = 0
        self._notes: list[str] = []

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The store in a folder, made where it is missing; off, with a note, where it cannot be.

        Args:
            folder: Headway's state folder, private to this user.
        """
        store = cls(folder)
        store._open()
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back; harmless when done twice."""
        if self._database is not None:
            self._database.close()
            self._database = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What went wrong with the store, in words; each thing once."""
        return tuple(dict.fromkeys(self._notes))

    def recall(
        self,
        jobs: Sequence[Job],
        machine: Machine,
        *,
        environment: Mapping[str, str],
        now_ns: int | None = None,
    ) -> Recall:
        """One Workload a job from what its earlier attempts, or those of its script, were like.

        Args:
            jobs: In the order of the file.
            machine: Where they would run.
            environment: The caller's variables.
            now_ns: Since the epoch, for ages; now by default.
        """
        contents = Contents()
        subjects = []
        for job in jobs:
            identity = Identity.of(job, environment)
            threads = default_threads(job, machine, environment)
            subjects.append(Subject(job, identity, contents.of(identity.path), threads))
        scripts = {subject.identity.script for subject in subjects}
        rows: dict[str, list[PastAttempt]] = defaultdict(list)
        for row in self._ask(lambda d: tuple(d.attempts_of_scripts(scripts))) or ():
            rows[row.script].append(row)
        now_ns = time.time_ns() if now_ns is None else now_ns
        return recall(subjects, rows, machine=machine_digest(machine), now_ns=now_ns)

    def learner(
        self,
        machine: Machine,
        *,
        environment: Mapping[str, str],
        stretch_of: Callable[[int], float | None] | None = None,
    ) -> Learner:
        """Something that watches a run (`learner.watch`) and keeps here what it tells.

        Args:
            machine: Where it runs.
            environment: The caller's variables.
            stretch_of: See `Learner`.
        """
        return Learner(self.learn, machine, environment=environment, stretch_of=stretch_of)

    def learn(self, attempts: Sequence[PastAttempt], *, wait_s: float = _WAIT_S) -> bool:
        """Keep attempts, in one transaction; False where the file is busy: worth another try."""
        kept = self._ask(lambda d: d.add_attempts(attempts, wait_s=wait_s))
        return kept is not None or self._database is None

    def pair_ratios(self, kinds: Collection[str], machine: Machine) -> tuple[PairRatio, ...]:
        """The ratios that were measured here of jobs that are all of these kinds, oldest first.

        Args:
            kinds: As `kind_digest` gives them.
            machine: Where the jobs would run.
        """
        here = machine_digest(machine)
        found = self._ask(lambda d: tuple(d.pairs_of(kinds))) or ()
        return tuple(pair for pair in found if pair.machine == here and pair.second in kinds)

    def learn_pairs(self, pairs: Sequence[PairRatio], *, wait_s: float = _WAIT_S) -> bool:
        """Keep ratios, in one transaction; False where the file is busy: worth another try."""
        kept = self._ask(lambda d: d.add_pairs(pairs, wait_s=wait_s))
        return kept is not None or self._database is None

    def forget(self, script: str | None = None) -> int:
        """Delete what is known of a script, or everything, a damaged file set aside too.

        Args:
            script: Its file name, or its absolute path; None for all.

        Returns:
            How many attempts were deleted.
        """
        if script is None:
            try:
                remove_damaged(self.folder)
            except FileNotFoundError:
                pass  # no folder, nothing in it
            except OSError as error:
                self._note(f"was emptied; {DAMAGED} could not be deleted ({error.strerror})")
        digest = None if script is None else script_digest(script, "")
        return self._ask(lambda d: d.forget(name=script, digest=digest, wait_s=_WAIT_S)) or 0

    # --- inside ----------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the file; a damaged one is set aside and a new one begun, once."""
        for _ in range(2):
            try:
                inode = prepare(self.folder)
                self._database, self._inode = Database.open(self.folder, wait_s=_WAIT_S), inode
            except NotUsable as reason:
                self._note(f"{reason}")
            except OSError as error:
                self._note(f"cannot be used ({error.strerror or error})")
            except sqlite3.Error as error:
                if _what(error) in _DAMAGED and self._set_aside(inode):
                    continue
                self._note(f"cannot be used ({error})")
            return

    def _ask(self, question: Callable[[Database], Answer]) -> Answer | None:
        """What the database answers; None where it cannot: the trouble is dealt with and noted."""
        for _ in range(2):
            if self._database is None:
                break
            try:
                return question(self._database)
            except sqlite3.ProgrammingError:
                raise  # nothing the file could have done
            except sqlite3.Error as error:
                if not self._recover(error):
                    break
        return None

    def _recover(self, error: sqlite3.Error) -> bool:
        """Deal with trouble; True where it is worth asking again."""
        if _what(error) in _BUSY:
            self._note("was busy for long: not everything was read or kept")
            return False
        self.close()
        if _what(error) in _DAMAGED:
            again = self._set_aside(self._inode)
        else:
            # Another Headway set the file aside, or the user moved it: a new one is there or made.
            again = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED
        if again:
            self._open()
        else:
            self._note(f"is not used any more ({error})")
        return again

    def _set_aside(self, inode: int) -> bool:
        try:
            set_aside(self.folder, inode)
        except OSError as error:
            self._note(f"is damaged and cannot be set aside ({error.strerror or error})")
            return False
        self._note(f"was damaged; it is now {DAMAGED}, and a new one was begun")
        return True

    def _note(self, words: str) -> None:
        self._notes.append(f"what earlier runs learnt: {self.folder / FILE} {words}")


def _what(error: sqlite3.Error) -> int:
    """The kind of trouble: sqlite's primary result code, 0 where Python itself raised."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
