"""What the runs of one user hold of a machine, as each states it for the others.

[Note: nothing counts twice] What a job of another run uses of what it holds is not others' load as
well: foreign use is what is left of the measured use after `min(used, held)` of each hold is taken
off. What it uses beyond that is foreign, like anybody's.

[Note: named and unnamed cores] A job that is pinned holds its cores by name: nobody else is given
them. One that is free to move holds as many unnamed cores: they lower how many jobs fit beside it,
wherever the kernel lets it run. Only cores that both runs may use count for either.

[Note: whose turn it is] Of the runs that want cores, the one goes first that holds the fewest, and
among equals the one that was served longest ago. In its turn a run may start one job of any size,
and more up to what the next in line would hold. So cores are divided evenly among the runs that
want them, three runs on two cores take turns, and a job that needs many at once gets them.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from headway.core.folder import RUNS_FOLDER
from headway.core.noun import Noun
from headway.core.plan import Placement
from headway.core.units import show_bytes
from headway.core.words import Share

Process = tuple[int, int]
"""A process for as long as the machine is up: its pid, its start time in clock ticks after boot."""

Count = Annotated[int, Field(ge=0)]
_MOST_NAMED = 4


class Hold(Noun):
    """What one running job holds; `job` and `attempt` count from 1, as its folder does.

    `keeper` is the process whose end is the job's end (None until it is known), `cores` are those
    it is pinned to, `slots` how many cores it holds in all, `devices` are named by their UUID.
    """

    job: int
    attempt: int
    keeper: Process | None = None
    cores: tuple[int, ...] = ()
    slots: Count = 0
    reserved_bytes: Count = 0
    devices: tuple[str, ...] = ()


class Reservation(Noun):
    """What one run holds, and what it waits for.

    `supervisor` states it; `cores` are those the run may use at all; `wants` is how many it would
    take at once if other runs held none; `served_ns` is when its last job was started, in ns since
    the epoch; `inside` is the keeper of the job that the whole run is a part of, if it is one.
    """

    run: str
    supervisor: Process
    cores: tuple[int, ...]
    jobs: tuple[Hold, ...] = ()
    wants: Count = 0
    served_ns: Count = 0
    inside: Process | None = None

    @property
    def slots(self) -> int:
        """How many cores it holds, named or not."""
        return sum(hold.slots for hold in self.jobs)

    @property
    def turn(self) -> tuple[int, int]:
        """Its place among the runs that want cores, the smallest first."""
        return self.slots, self.served_ns

    @property
    def who(self) -> str:
        """The run as its user knows it.

        >>> Reservation(run="/data/x/headway-runs/sweep-2", supervisor=(7, 99), cores=(0, 1)).who
        'run sweep-2 in /data/x'
        """
        path = Path(self.run)
        folder = path.parent.parent if path.parent.name == RUNS_FOLDER else path.parent
        return f"run {path.name} in {folder}"

    @property
    def what(self) -> str:
        """What it holds, in words; "" for nothing.

        >>> hold = Hold(job=1, attempt=1, cores=(1,), slots=1, reserved_bytes=2**30)
        >>> Reservation(run="/x/a", supervisor=(7, 99), cores=(0, 1), jobs=(hold,)).what
        'core 1, 1.0 GiB'
        """
        named = sorted({core for hold in self.jobs for core in hold.cores})
        unnamed = sum(max(0, hold.slots - len(hold.cores)) for hold in self.jobs)
        reserved_bytes = sum(hold.reserved_bytes for hold in self.jobs)
        devices = sum(len(hold.devices) for hold in self.jobs)
        words = [_core_words(named)] if named else []
        if unnamed:
            words.append(f"{unnamed} unnamed core" + ("" if unnamed == 1 else "s"))
        if reserved_bytes:
            words.append(show_bytes(reserved_bytes))
        if devices:
            words.append(f"{devices} GPU" + ("" if devices == 1 else "s"))
        return ", ".join(words)


class Reservations(Noun):
    """The content of the reservation file."""

    runs: tuple[Reservation, ...] = ()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What other runs hold of the cores, memory and devices that one run may use.

    `cores` are held by name; `slots` counts these and the unnamed ones; `devices` are UUIDs; `jobs`
    is how many jobs hold any core.
    """

    runs: tuple[Reservation, ...] = ()
    cores: frozenset[int] = frozenset()
    slots: int = 0
    reserved_bytes: int = 0
    devices: frozenset[str] = frozenset()
    jobs: int = 0

    @classmethod
    def of(cls, runs: Sequence[Reservation], *, cores: Collection[int]) -> "Elsewhere":
        """What these runs hold, seen by one that may use `cores`.

        >>> pinned = Hold(job=1, attempt=1, cores=(1,), slots=1)
        >>> moving = Hold(job=2, attempt=1, slots=2)
        >>> run = Reservation(run="/x/a", supervisor=(7, 99), cores=(0, 1), jobs=(pinned, moving))
        >>> [Elsewhere.of([run], cores=ours).slots for ours in ([0, 1, 2, 3], [1, 2], [2, 3])]
        [3, 2, 0]
        """
        ours = frozenset(cores)
        holds = [(run, hold) for run in runs for hold in run.jobs]
        return cls(
            runs=tuple(runs),
            cores=frozenset(core for _, hold in holds for core in hold.cores) & ours,
            slots=sum(_slots_within(hold, run, ours) for run, hold in holds),
            reserved_bytes=sum(hold.reserved_bytes for _, hold in holds),
            devices=frozenset(uuid for _, hold in holds for uuid in hold.devices),
            jobs=sum(hold.slots > 0 for _, hold in holds),
        )

    @property
    def words(self) -> str:
        """Who holds what, in words; "" where nobody holds anything."""
        holders = [run for run in self.runs if run.what]
        words = [f"{run.who} holds {run.what}" for run in holders[:2]]
        if len(holders) > 2:
            words.append(f"{len(holders) - 2} more runs hold the rest")
        return "; ".join(words)

    def line(self, cores: Collection[int]) -> list[Reservation]:
        """The runs that wait for cores and could use one of these, whose turn is first, first."""
        waiting = [run for run in self.runs if run.wants and not set(cores).isdisjoint(run.cores)]
        return sorted(waiting, key=lambda run: run.turn)


def slots_held(share: Share, placement: Placement, *, usable_cores: int) -> int:
    """How many cores a job holds: its pinned ones, else those it takes, else all of them.

    >>> slots_held(Share(cores=(1,)), Placement(job="a", cores=1), usable_cores=4)
    1
    >>> slots_held(Share(), Placement(job="a"), usable_cores=4)
    4
    """
    if share.alone or (share.cores is None and placement.cores is None):
        return usable_cores
    if share.cores is not None:
        return len(share.cores)
    return min(placement.cores or usable_cores, usable_cores)


def standing(
    entry: Reservation,
    *,
    state: Callable[[Process], str],
    left: Callable[[Reservation, Hold], Hold | None],
) -> Reservation | None:
    """An entry as it stands now; None where nothing of it does.

    Jobs outlive a supervisor that was killed: what those that still run hold, stays held. One that
    was stopped (Ctrl-Z) waits for nothing, or everybody would give way to it.

    Args:
        entry: As its supervisor wrote it.
        state: The kernel's letter for this very process; "" where it has ended.
        left: A hold whose supervisor is gone, as it is now; None where its job has ended.
    """
    letter = state(entry.supervisor)
    if letter:
        stopped = letter in "Tt" and entry.wants
        return entry.model_copy(update={"wants": 0}) if stopped else entry
    jobs = tuple(hold for one in entry.jobs if (hold := left(entry, one)) is not None)
    return entry.model_copy(update={"jobs": jobs, "wants": 0}) if jobs else None


def counts_for(
    entry: Reservation, *, above: Collection[Process], ours: Collection[Process] = ()
) -> Reservation | None:
    """What of an entry a run has to keep off; None for nothing.

    A run that is started by a job of another run lives on what that job holds: it does not wait for
    the job it is a part of, and nobody outside counts what the job holds a second time.

    Args:
        entry: Another run's, as it stands.
        above: Keepers that the run which asks is below.
        ours: Keepers of its own jobs: of a run whose folder was moved, both entries name them.
    """
    if entry.inside is not None and entry.inside not in above:
        return None
    without = {*above, *ours}
    jobs = tuple(hold for hold in entry.jobs if hold.keeper is None or hold.keeper not in without)
    return entry.model_copy(update={"jobs": jobs}) if jobs or entry.wants else None


def _slots_within(hold: Hold, run: Reservation, cores: frozenset[int]) -> int:
    named = len(cores.intersection(hold.cores))
    if hold.slots <= len(hold.cores):
        return named
    return max(named, min(hold.slots, len(cores.intersection(run.cores))))


def _core_words(cores: Sequence[int]) -> str:
    names = ", ".join(map(str, cores[:_MOST_NAMED]))
    if len(cores) > _MOST_NAMED:
        names += f" and {len(cores) - _MOST_NAMED} more"
    return f"core {names}" if len(cores) == 1 else f"cores {names}"
