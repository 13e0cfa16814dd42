"""One attempt of a job in the simulated world: the tasks it is made of, and how far it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.core.machine import Machine
from headway.core.words import Share
from headway.core.workload import Workload
from headway.sim.task import Task

MILLI = 1000
"""The pool's unit: thousandths of a core."""
# Imports and the interpreter: held before the first step.
START_UP_PART = 0.1


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a job in the simulated world, beyond what its workload says.

    The first `fails` attempts fail, and the first `lost` end without a record, each at the part
    `ends_at` of the work; at `hangs_at` it stops for ever. It holds `needs_bytes` (None: the
    workload's peak) from the part `grown_at` of its work on. It computes with `threads` of its own
    choice (None: with as many as it is given).
    """

    fails: int = 0
    lost: int = 0
    ends_at: float = 0.5
    hangs_at: float | None = None
    needs_bytes: int | None = None
    grown_at: float = 0.05
    threads: int | None = None


class Beside(NamedTuple):
    """One of the attempts that run side by side, as far as it matters to the others."""

    kind: str
    threads: int
    cores: float
    """What it keeps busy alone."""
    pinned: tuple[int, ...] | None
    start_up: bool


Together = Callable[[Sequence[Beside]], Sequence[float]]
"""How fast each goes beside the others; 1.0 as it goes alone."""


class SimulatedAttempt:
    """The tasks of one attempt, one after another: start-up, then the ops up to where it ends.

    Work is counted in ns x thousandths of a core, so that another width changes nothing of it.
    `rate` is how fast it goes for its neighbours' sake, where the world's pool does not say. After
    its start-up its work takes `stretch` times as long as stated, for its devices' sake, and draws
    on their pools as `device_demands` says.
    """

    def __init__(
        self,
        index: int,
        number: int,
        workload: Workload,
        fate: Fate,
        share: Share,
        machine: Machine,
        *,
        stretch: float = 1.0,
        device_demands: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.index = index
        self.number = number
        self.workload = workload
        self.fate = fate
        self.share = share
        self.task: str | None = None
        self.started_up = False
        self.hung_since_ns: int | None = None
        self.rate = 1.0
        self.hangs = fate.hangs_at is not None
        self.until = 1.0
        if fate.hangs_at is not None:
            self.until = fate.hangs_at
        if number <= max(fate.fails, fate.lost):
            self.until, self.hangs = fate.ends_at, False
        self._machine = machine
        self._device_demands = device_demands
        self._tasks = 0
        own = len(share.cores) if share.cores else machine.usable_cores
        self.threads = fate.threads or share.threads or workload.own_threads or own
        ops = workload.ops_with(self.threads)
        self._widths = [round(op.cores * MILLI) for op in ops]
        self._works = [
            round(op.work_ns * stretch) * width for op, width in zip(ops, self._widths, strict=True)
        ]
        self._total = sum(self._works)
        # What is still to be done of each part, the one that is being done included.
        self._left = _cut(self._works, int(self._total * self.until))
        self._start_up_ns = round(workload.start_up.value * 1e9)

    @property
    def steps(self) -> float | None:
        """Steps of the whole job; None where they cannot be seen."""
        return None if self.workload.steps is None else self.workload.steps.value

    @property
    def width(self) -> int:
        """Thousandths of a core that it draws on now, where they are there."""
        if not self.started_up:
            return MILLI
        place = next((place for place, left in enumerate(self._left) if left), -1)
        limits = [self._widths[place], MILLI * self._machine.usable_cores]
        threads = self.fate.threads or self.share.threads
        # A measured pace says what these threads keep busy, with the processes beside them.
        if threads is not None and not self.workload.paces:
            limits.append(MILLI * threads)
        if self.share.cores is not None:
            limits.append(MILLI * len(self.share.cores))
        return max(1, min(limits))

    @property
    def busy_threads(self) -> int:
        """Threads it computes with, however few cores they run on."""
        if self.fate.threads is not None:
            return self.fate.threads
        return min(self.threads, -(-self.width // MILLI))

    def beside(self, kind: str) -> Beside:
        """What the others have beside them."""
        return Beside(kind, self.threads, self.width / MILLI, self.share.cores, not self.started_up)

    def next_task(self, *, pooled: bool = True) -> Task | None:
        """The task that goes on from here, drawing on the pool of cores; None for nothing left."""
        if not self.started_up:
            work_ns = self._start_up_ns
        else:
            left = next((left for left in self._left if left), 0)
            if not left:
                self.task = None
                return None
            work_ns = -(-left // self.width)
        self._tasks += 1
        self.task = f"{self.index}.{self.number}.{self._tasks}"
        on_devices = self._device_demands if self.started_up else ()
        if pooled:
            return Task(self.task, work_ns=work_ns, demands=(("cores", self.width), *on_devices))
        return Task(self.task, work_ns=round(work_ns / self.rate), demands=on_devices)

    def task_ended(self) -> bool:
        """Count what its task has done; True where that was the start-up."""
        self.task = None
        if not self.started_up:
            self.started_up = True
            return True
        self._left[next(place for place, left in enumerate(self._left) if left)] = 0
        return False

    def interrupted(self, left_ns: int) -> None:
        """Its task was cancelled with so much of it left."""
        self.task = None
        left_ns = round(left_ns * self.rate)
        if not self.started_up:
            self._start_up_ns = left_ns
            return
        place = next(place for place, left in enumerate(self._left) if left)
        self._left[place] = min(self._left[place], left_ns * self.width)

    def part_done(self, left_ns: int) -> float:
        """Part of the whole work done, where its task has so much left to do."""
        if not self.started_up:
            return 0.0
        if not self._total:
            return self.until
        left = sum(self._left)
        if self.task is not None:
            current = next(left for left in self._left if left)
            left -= max(0, current - round(left_ns * self.rate) * self.width)
        return max(0.0, self.until - left / self._total)

    def held_bytes(self, part: float) -> int:
        """Memory it holds once this part of its work is done."""
        needs_bytes = self.fate.needs_bytes
        if needs_bytes is None:
            needs_bytes = int(self.workload.peak_bytes.value)
        grown = part / self.fate.grown_at if self.fate.grown_at > 0 else 1.0
        return int(needs_bytes * min(1.0, max(START_UP_PART, grown)))


def _cut(works: list[int], most: int) -> list[int]:
    """The works up to a sum of `most`.

    >>> _cut([3, 4, 5], 5)
    [3, 2, 0]
    """
    kept = []
    for work in works:
        kept.append(min(work, most))
        most -= kept[-1]
    return kept
