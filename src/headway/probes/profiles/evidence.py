"""Past attempts that are all equally far from a job, and the figures that they give.

Nearest are attempts of the very same job, of the same script and on the same machine: only they
measure. The script's other jobs, an older script and another machine are hints, with bounds that
say so.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from headway.core.estimate import Estimate
from headway.core.units import NS_PER_S, Unit
from headway.core.workload import Pace
from headway.probes.profiles.attempts import PastAttempt
from headway.probes.profiles.bounds import (
    MEMORY,
    MEMORY_QUANTILE,
    START_UP,
    STEPS,
    TIME,
    TIME_QUANTILE,
    Spreads,
    next_value,
)
from headway.probes.profiles.identity import NO_FILE

_NEWEST = 20  # attempts of one job; older ones tell of an older state of the machine
_OTHER_JOBS = 100
_LEAST_PART = 0.1  # of its time, that an attempt in company is thought to take alone
_UNITS = (("day", 86400), ("h", 3600), ("min", 60))

Figure = Callable[[PastAttempt], float | None]


@dataclass(frozen=True)
class Evidence:
    """Attempts of one script, newest first, one or more.

    `own`: of the very same job, else of its script with other arguments. `same_script` and
    `same_machine`: as they are now. `content` is the script's now, `script_name` what it is called
    in words. Every figure is None where no attempt has it.
    """

    rows: Sequence[PastAttempt]
    script_name: str
    content: str
    now_ns: int
    own: bool
    same_script: bool
    same_machine: bool

    @property
    def exact(self) -> bool:
        """Whether what it says may be called measured."""
        return self.own and self.same_script and self.same_machine

    @cached_property
    def timed(self) -> tuple[PastAttempt, ...]:
        """The attempts that tell how long the job takes."""
        return tuple(row for row in self.rows if row.tells_pace)

    @cached_property
    def source(self) -> str:
        """Where its figures come from, in words: who, what has changed since, and when."""
        rows = self.timed or self.rows
        name, ago = self.script_name, show_ago(rows, self.now_ns)
        where = "" if self.same_machine else " on another machine"
        hint = "" if self.same_script and self.same_machine else ": a hint only"
        if not self.own:
            jobs = count_of(len({row.key for row in rows}), "job")
            before = "" if self.same_script else " before it changed"
            return f"{jobs} of {name} with other arguments{before}, measured{where} {ago}{hint}"
        if not self.same_script:
            return f"{name} has changed since it was measured{where} {ago}{hint}"
        unseen = "; changes of what it runs cannot be seen"
        return f"measured{where} {ago}{hint}" + (unseen if self.content == NO_FILE else "")

    @cached_property
    def paces(self) -> tuple[Pace, ...]:
        """How the job goes alone, by threads.

        Of other jobs only the count that most of them had: what another count is worth cannot be
        told from times of different jobs. A count that was only seen beside others on the same
        cores is left out where another was seen undisturbed: crowded threads make a job up to a
        hundred times slower, so what the other count is worth at most says more.
        """
        by_threads: dict[int, list[PastAttempt]] = defaultdict(list)
        undisturbed = [row for row in self.timed if row.undisturbed]
        for row in undisturbed or self.timed:
            by_threads[row.threads].append(row)
        if not self.own and by_threads:
            jobs = {threads: len({r.key for r in rows}) for threads, rows in by_threads.items()}
            usual = min(by_threads, key=lambda threads: (-jobs[threads], threads))
            by_threads = defaultdict(list, {usual: by_threads[usual]})
        return tuple(self._pace(threads, by_threads[threads]) for threads in sorted(by_threads))

    @cached_property
    def start_up(self) -> Estimate | None:
        """Seconds before the first step; 0 for a job whose steps cannot be seen."""
        seen = self._estimate(self.timed or self.rows, lambda row: row.start_up_s, "s", START_UP)
        if seen is not None or not self.timed:
            return seen
        return Estimate(
            value=0.0,
            low=0.0,
            high=0.0,
            unit="s",
            origin="measured" if self.exact else "extrapolated",
            source="steps not visible: counted with the work",
            samples=len(self.timed),
        )

    @cached_property
    def steps(self) -> Estimate | None:
        """How many steps the job makes."""
        steps = self._estimate(self.timed, lambda row: row.steps or None, "steps", STEPS)
        counts = [row.steps for row in self.timed[:_NEWEST]]
        if steps is not None and self.own and len(counts) > 1 and len(set(counts)) == 1:
            # The same number twice is no coincidence.
            return steps.model_copy(update={"low": steps.value, "high": steps.value})
        return steps

    @cached_property
    def peak(self) -> Estimate | None:
        """Bytes held at most by attempts that ended ok; the bound is never below what was seen."""
        ended = [row for row in self.rows if row.status == "ok"]
        peak = self._estimate(
            ended,
            lambda row: row.peak_bytes,
            "bytes",
            MEMORY,
            quantile=MEMORY_QUANTILE,
            robust=False,
        )
        if peak is None:
            return None
        highest = max(row.peak_bytes or 0 for row in ended)
        return peak.model_copy(
            update={"high": max(peak.high, float(highest)), "coverage": MEMORY_QUANTILE}
        )

    @cached_property
    def device_bytes(self) -> Estimate | None:
        """Bytes held of its only device at most, context not counted; like `peak`."""
        ended = [row for row in self.rows if row.status == "ok"]
        return self._estimate(
            ended,
            lambda row: row.device_bytes,
            "bytes",
            MEMORY,
            quantile=MEMORY_QUANTILE,
            robust=False,
        )

    @cached_property
    def device_busy(self) -> Estimate | None:
        """Part of the time in which a kernel of it runs on a whole device of its own."""
        return self._part(lambda row: row.device_busy)

    @cached_property
    def device_part(self) -> Estimate | None:
        """Part of a whole device of its own that it keeps busy."""
        return self._part(lambda row: row.device_part)

    def _part(self, figure: Figure) -> Estimate | None:
        part = self._estimate(self.timed, figure, "ratio", TIME)
        if part is None:
            return None
        bounds = {name: min(1.0, getattr(part, name)) for name in ("low", "value", "high")}
        return part.model_copy(update=bounds)

    def _pace(self, threads: int, rows: Sequence[PastAttempt]) -> Pace:
        """How it goes with so many threads: by undisturbed attempts, where there are any.

        An attempt that shared its cores took longer than it would alone. How much longer is bounded
        by the processor time that it got: alone it has at most a core for each thread.
        """
        rows = [row for row in rows if row.work_s is not None] or rows
        clean = [row for row in rows if row.undisturbed]
        rows = clean or rows
        work = self._estimate(rows, lambda row: row.work_alone_s, "s", TIME)
        assert work is not None  # every attempt has one
        step = self._estimate(rows, lambda row: row.step_alone_s, "s", TIME)
        cores = [row.work_cores for row in rows if row.work_cores is not None]
        if not clean:
            parts = [min(1.0, max(_LEAST_PART, busy / threads)) for busy in cores] or [_LEAST_PART]
            part = median(parts)
            work = work.model_copy(
                update={
                    "low": work.low * part,
                    "value": work.value * part**0.5,
                    "origin": "extrapolated",
                    "source": f"{work.source}; beside others on the same cores",
                }
            )
            step = None  # of a job that shared its cores nobody knows how it steps alone
        return Pace(
            threads=threads,
            work=work,
            step=step,
            cores=median(cores) if cores else float(threads),
        )

    def _estimate(
        self,
        rows: Iterable[PastAttempt],
        figure: Figure,
        unit: Unit,
        spreads: Spreads,
        *,
        quantile: float = TIME_QUANTILE,
        robust: bool = True,
    ) -> Estimate | None:
        by_key: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            value = figure(row)
            if value is not None:
                by_key[row.key].append(max(1e-9, value))
        if not by_key:
            return None
        groups = [values[:_NEWEST] for values in by_key.values()]
        values = groups[0] if self.own else [median(group) for group in groups]
        changes = (not self.same_script) + (not self.same_machine)
        low, middle, high = next_value(
            values,
            spread=spreads.again if self.own else spreads.arguments,
            shift=spreads.shift * changes**0.5,
            quantile=quantile,
            # Jobs with other arguments are no wild ones: each of them may be like this one.
            robust=robust and self.own,
        )
        return Estimate(
            low=low,
            value=middle,
            high=high,
            unit=unit,
            origin="measured" if self.exact else "extrapolated",
            source=self.source,
            samples=len(values),
        )


class Shelf:
    """All attempts of one script, for jobs of the script as it is now.

    Args:
        rows: Newest first.
        script_name: What the script is called in words.
        content: What it holds now.
        machine: Digest of the machine that the jobs would run on.
        now_ns: Since the epoch; for ages.
    """

    def __init__(
        self,
        rows: Iterable[PastAttempt],
        *,
        script_name: str,
        content: str,
        machine: str,
        now_ns: int,
    ) -> None:
        self._by_key: dict[str, list[PastAttempt]] = defaultdict(list)
        for row in rows:
            self._by_key[row.key].append(row)
        self._script_name = script_name
        self._content = content
        self._machine = machine
        self._now_ns = now_ns

    def of(self, key: str) -> list[Evidence]:
        """Everything on one job, nearest first; what its own attempts tell, others' never change.

        Another machine is nearer than an older script.
        """
        return [*self._evidence(self._by_key.get(key, ()), own=True), *self._others]

    @cached_property
    def _others(self) -> list[Evidence]:
        """The same for every job: where its own attempts have a figure, this is not asked."""
        newest = [rows[:_NEWEST] for rows in list(self._by_key.values())[:_OTHER_JOBS]]
        return self._evidence((row for rows in newest for row in rows), own=False)

    def _evidence(self, rows: Iterable[PastAttempt], *, own: bool) -> list[Evidence]:
        groups: dict[tuple[bool, bool], list[PastAttempt]] = defaultdict(list)
        for row in rows:
            groups[row.content != self._content, row.machine != self._machine].append(row)
        return [
            Evidence(
                sorted(found, key=lambda row: row.ended_ns, reverse=True),
                self._script_name,
                self._content,
                self._now_ns,
                own=own,
                same_script=not changed,
                same_machine=not moved,
            )
            for (changed, moved), found in sorted(groups.items())
        ]


def count_of(number: int, noun: str) -> str:
    """A number of things in words.

    >>> count_of(1, "job"), count_of(3, "job")
    ('1 job', '3 jobs')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def show_ago(rows: Sequence[PastAttempt], now_ns: int) -> str:
    """When attempts ended, in words; newest first."""
    newest, oldest = (show_age(max(0, now_ns - row.ended_ns)) for row in (rows[0], rows[-1]))
    return f"{newest} ago" if newest == oldest else f"{newest} to {oldest} ago"


def show_age(age_ns: int) -> str:
    """An age for people, in its largest unit.

    >>> show_age(7_300 * 10**9), show_age(3 * 86_400 * 10**9), show_age(0)
    ('2 h', '3 days', '0 s')
    """
    seconds = age_ns // NS_PER_S
    for unit, size in _UNITS:
        if seconds >= size:
            number = seconds // size
            return count_of(number, unit) if unit == "day" else f"{number} {unit}"
    return f"{seconds} s"
