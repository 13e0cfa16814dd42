"""A supervisor's side of the reservation file: what it states, and what it sees of other runs.

[Note: how two runs never get the same core] The view that a decision was made from belongs to one
content of the file. A start is stated under the lock, and only where the file is still that
content; otherwise the view is made anew and the decision with it. Nothing is held while a policy
thinks, and the members of a group are stated at once or not at all.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from headway.core.errors import BadFile
from headway.core.holdings import Elsewhere, Hold, Process, Reservation, slots_held
from headway.core.view import View
from headway.core.words import Action, Reshare, Share, Start
from headway.engines.local.reservations import (
    LOCK_WAIT_S,
    LockedFile,
    LockHeld,
    ReservationFile,
    as_they_stand,
    counted,
)
from headway.system.procfs import ancestors, start_ticks

# The first job that could start is the one that waits for other runs; before it stand only those
# that can't for reasons of their own.
LOOKAHEAD = 16

_Shares = dict[int, tuple[int, Share]]  # of each running job: its attempt, and what it is given


class Sharing:
    """Keeps the run's entry and the view's `elsewhere` in step with the file.

    Set `stale` where something was given back or the run waits for something else: it is stated at
    the next `update`. `notes` says in words what went wrong, each thing once.

    Args:
        run: The run folder, by which others name the run.
        view: Whose running jobs are stated, and whose `elsewhere` is kept.
        counted: Whether the run's jobs hold cores (not in naive mode, where nothing is divided).
        keeper_of: The keeper of a running job, or None while it is not known.
        file: Another file than this user's.
    """

    def __init__(
        self,
        run: Path,
        view: View,
        *,
        counted: bool,
        keeper_of: Callable[[int], Process | None],
        file: ReservationFile | None = None,
    ) -> None:
        self.stale = False
        self.notes: deque[str] = deque()
        self._noted: set[str] = set()
        self._run = os.path.realpath(run)
        self._view = view
        self._counted = counted
        self._keeper_of = keeper_of
        self._file = ReservationFile() if file is None else file
        self._me = (os.getpid(), start_ticks(os.getpid()) or 0)
        self._above = ancestors(os.getpid())
        self._seen: bytes | None = None  # the content that the view's `elsewhere` was made from
        self._told: tuple[Reservation, ...] = ()  # entries of other runs as they were written
        self._others: tuple[Reservation, ...] = ()  # and as they stand
        self._stated: Reservation | None = None
        self._served_ns = view.served_ns
        self._lock_wait_s = LOCK_WAIT_S
        self._closing = False

    def take(self, actions: Sequence[Action], t: int) -> bool:
        """State what these actions take, before they are done; False where the view is outdated.

        True also where nothing can be stated: a run never ends for want of the file.

        Args:
            actions: All that were decided together.
            t: Now, in ns since the epoch.
        """
        served_ns = self._served_ns
        shares = self._shares()
        for action in actions:
            if isinstance(action, Start):
                attempt = self._view.states[action.job].attempt + 1
                shares[action.job] = attempt, action.share
                self._served_ns = t
            elif isinstance(action, Reshare):
                attempt, share = shares[action.job]
                shares[action.job] = attempt, replace(share, cores=action.cores)
        if self._state(shares, only_as_seen=True):
            self.stale = False
            return True
        self._served_ns = served_ns
        return False

    def update(self) -> None:
        """State what the run holds and waits for now, where that is another thing than before."""
        self.stale = False
        shares = self._shares()
        if self._entry(shares) != self._stated:
            self._state(shares, only_as_seen=False)

    def refresh(self) -> None:
        """See what other runs hold now, and say again what somebody may have removed."""
        try:
            content = self._file.read()
            runs = self._told if content == self._seen else self._file.parse(content)
        except BadFile:  # set aside at the next start, or read in the middle of a write
            self._see(self._told, self._seen)
        except OSError:  # nobody is waited for on the word of a file that is gone
            self._see((), None)
            self._stated = None
        else:
            if content != self._seen and self._stated not in runs:
                self._stated = None
            self._see(runs, content)
        self.update()

    def close(self) -> None:
        """Take the entry back, but for jobs that go on under their keepers."""
        self._closing = True
        self.update()

    # --- inside ----------------------------------------------------------------------------------

    def _shares(self) -> _Shares:
        running = self._view.running.values()
        return {s.index: (s.attempt, s.share) for s in running if s.share is not None}

    def _entry(self, shares: _Shares) -> Reservation | None:
        """What the run would state; None where it holds and wants nothing."""
        wants = 0 if self._closing or self._view.draining else self._wants(shares)
        if not shares and not wants:
            return None
        host = self._view.machine.host
        keepers = {hold.keeper for run in self._others for hold in run.jobs}
        return Reservation(
            run=self._run,
            supervisor=self._me,
            cores=host.cores,
            jobs=tuple(self._hold(index, *shares[index]) for index in sorted(shares)),
            wants=wants,
            served_ns=self._served_ns,
            inside=next((process for process in self._above if process in keepers), None),
        )

    def _wants(self, shares: _Shares) -> int:
        """How many cores the first job that waits for other runs would take."""
        if not self._others:
            return 0
        waiting = (self._view.states[index] for index in self._view.waiting[:LOOKAHEAD])
        return next((s.wants for s in waiting if s.wants and s.index not in shares), 0)

    def _hold(self, index: int, attempt: int, share: Share) -> Hold:
        state, machine = self._view.states[index], self._view.machine
        slots = slots_held(share, state.placement, usable_cores=machine.usable_cores)
        return Hold(
            job=index + 1,
            attempt=attempt,
            keeper=self._keeper_of(index),
            cores=share.cores or (),
            slots=slots if self._counted else 0,
            reserved_bytes=share.reserved_bytes,
            devices=tuple(d.uuid for d in machine.devices if d.index in share.devices),
        )

    def _state(self, shares: _Shares, *, only_as_seen: bool) -> bool:
        """Put the run's entry into the file.

        Args:
            shares: What it holds.
            only_as_seen: Leave the file alone, and return False, where others have changed it.
        """
        try:
            with self._file.locked(wait_s=self._lock_wait_s) as file:
                self._lock_wait_s = LOCK_WAIT_S
                if file.content != self._seen or file.note:
                    runs = file.runs()
                    # What was known before the file was damaged is known still.
                    self._see(self._told if file.note else runs, file.content)
                    if file.note:
                        self._note(f"the reservation file was {file.note}")
                    if only_as_seen and not file.note:
                        return False
                self._write(file, shares)
        except LockHeld:
            self._lock_wait_s = 0.0  # wait no more before it was free once
            self._note("somebody keeps the reservation file locked, so not all starts are in it")
        except OSError as error:
            self._note(f"sharing with other runs is off ({error.strerror or error})")
        return True

    def _write(self, file: LockedFile, shares: _Shares) -> None:
        entry = self._entry(shares)
        file.write([*self._others, *([] if entry is None else [entry])])
        self._seen, self._stated = file.content, entry

    def _see(self, runs: Sequence[Reservation], content: bytes | None) -> None:
        """Take notice of other runs, as they stand now."""
        self._seen = content
        self._told = tuple(run for run in runs if run.run != self._run)
        self._others = as_they_stand(self._told)
        ours = {keeper for index in self._view.running if (keeper := self._keeper_of(index))}
        seen = counted(self._others, above=self._above, ours=ours)
        if seen != self._view.elsewhere.runs:
            cores = self._view.machine.host.cores
            self._view.see_elsewhere(Elsewhere.of(seen, cores=cores))

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.notes.append(text)
