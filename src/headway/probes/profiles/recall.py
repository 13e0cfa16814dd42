"""What past attempts say of a job: its Workload, with where each figure comes from, in words."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from statistics import median

from headway.core.estimate import Estimate, unknown
from headway.core.job import Job
from headway.core.units import NS_PER_S, Unit, show_bytes
from headway.core.workload import Op, Pace, Workload
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
from headway.probes.profiles.identity import NO_FILE, Identity

NOMINAL_WORK_NS = 10 * NS_PER_S
"""What the op of a job of which nothing is known stands for; its `duration` is unknown."""
# Of what an attempt held that ran out of memory: it needs more than that, nobody knows how much.
OOM_FACTOR = 1.15

# Not infinite, so that the nominal job can be simulated.
_ANY_START_UP = unknown("s").model_copy(update={"value": 0.0})

_MOST_WORDS = 5
_NEWEST = 20  # attempts of one job; older ones tell of an older state of the machine
_OTHER_JOBS = 100
_LEAST_PART = 0.1  # of its time, that a crowded attempt is thought to take alone

Figure = Callable[[PastAttempt], float | None]


@dataclass(frozen=True, slots=True)
class Subject:
    """A job as it is now: who it is, what its script holds, the threads it takes by itself."""

    job: Job
    identity: Identity
    content: str
    threads: int

    @property
    def script_name(self) -> str:
        """What its script is called in words."""
        return self.identity.script_name or "its script"


@dataclass(frozen=True, slots=True)
class Recall:
    """One Workload a job, in the jobs' order, and what there is to say about them in words."""

    workloads: tuple[Workload, ...]
    words: tuple[str, ...]

    @property
    def known(self) -> int:
        """Of how many jobs it can be said how long they take."""
        return sum(workload.known for workload in self.workloads)


@dataclass(frozen=True)
class Evidence:
    """Past attempts that are all equally far from a job; newest first, one or more.

    `own`: of the very same job, else of its script with other arguments. `same_script`, and
    `same_machine`: as they are now.
    """

    rows: Sequence[PastAttempt]
    subject: Subject
    now_ns: int
    own: bool
    same_script: bool
    same_machine: bool

    @property
    def exact(self) -> bool:
        """Whether it may be called measured."""
        return self.own and self.same_script and self.same_machine

    @cached_property
    def source(self) -> str:
        """Where a figure made of it comes from, in words: who, what changed since, and when."""
        name, ago = self.subject.script_name, _ago(self.rows, self.now_ns)
        where = "" if self.same_machine else " on another machine"
        hint = "" if self.same_script and self.same_machine else ": a hint only"
        if not self.own:
            jobs = _count(len({row.key for row in self.rows}), "job")
            before = "" if self.same_script else " before it changed"
            return f"{jobs} of {name} with other arguments{before}, measured{where} {ago}{hint}"
        if not self.same_script:
            return f"{name} has changed since it was measured{where} {ago}{hint}"
        unseen = "; changes of what it runs cannot be seen"
        return f"measured{where} {ago}{hint}" + (unseen if self.subject.content == NO_FILE else "")

    def with_rows(self, rows: Sequence[PastAttempt]) -> "Evidence":
        """The same with some of its rows only."""
        return Evidence(
            rows, self.subject, self.now_ns, self.own, self.same_script, self.same_machine
        )

    def estimate(
        self,
        figure: Figure,
        unit: Unit,
        spreads: Spreads,
        *,
        quantile: float = TIME_QUANTILE,
        robust: bool = True,
    ) -> Estimate | None:
        """A figure of the job with its bounds; None where no row has it."""
        by_key: dict[str, list[float]] = defaultdict(list)
        for row in self.rows:
            value = figure(row)
            if value is not None and len(by_key[row.key]) < _NEWEST:
                by_key[row.key].append(max(1e-9, value))
        groups = [values for values in by_key.values() if values][:_OTHER_JOBS]
        if not groups:
            return None
        values = groups[0] if self.own else [median(group) for group in groups]
        changes = (not self.same_script) + (not self.same_machine)
        low, middle, high = next_value(
            values,
            spread=spreads.again if self.own else spreads.arguments,
            shift=spreads.shift * changes**0.5,
            quantile=quantile,
            robust=robust and self.own,
        )
        return Estimate(
            low=low,
            value=middle,
            high=high,
            unit=unit,
            coverage=0.98 if unit == "bytes" else 0.80,
            origin="measured" if self.exact else "extrapolated",
            source=self.source,
            samples=len(values),
        )


def evidence_of(
    subject: Subject, rows: Sequence[PastAttempt], *, machine: str, now_ns: int
) -> list[Evidence]:
    """Everything the store has on a job, nearest first: another machine is nearer than an edit.

    Args:
        subject: The job.
        rows: Attempts of its script, newest first.
        machine: Digest of the machine it would run on.
        now_ns: Since the epoch; for ages.
    """
    groups: dict[tuple[bool, bool, bool], list[PastAttempt]] = defaultdict(list)
    for row in rows:
        own = row.key == subject.identity.key
        place = (not own, row.content != subject.content, row.machine != machine)
        groups[place].append(row)
    return [
        Evidence(groups[place], subject, now_ns, *(not far for far in place))
        for place in sorted(groups)
    ]


def workload_of(subject: Subject, evidence: Sequence[Evidence]) -> Workload:
    """What is known of a job, each figure from the nearest evidence that has it."""
    job = subject.job.name
    peak = _peak(evidence)
    near = _nearest(evidence)
    if near is None:
        start_up = _first(evidence, lambda e: e.estimate(_start_up, "s", START_UP))
        return Workload(
            job=job,
            ops=(Op(id=job, work_ns=NOMINAL_WORK_NS, memory_bytes=_finite(peak)),),
            start_up=start_up or _ANY_START_UP,
            duration=unknown("s"),
            peak_bytes=peak,
            own_threads=subject.threads,
            remark=peak.source if peak.low else "never measured",
        )
    paces = _paces(near)
    ended = near.with_rows([row for row in near.rows if row.status == "ok"])
    start_up = near.estimate(_start_up, "s", START_UP) or _nothing(near)
    measured = Workload(
        job=job,
        ops=(Op(id=job, work_ns=NOMINAL_WORK_NS),),
        start_up=start_up,
        duration=unknown("s"),
        peak_bytes=peak,
        steps=_steps(ended),
        paces=paces,
        own_threads=subject.threads,
        remark=near.source,
    )
    pace = measured.pace(subject.threads)
    work_ns = round(pace.work.value * NS_PER_S)
    op = Op(id=job, work_ns=work_ns, cores=pace.cores, memory_bytes=_finite(peak))
    return measured.model_copy(update={"ops": (op,), "duration": _sum(start_up, pace.work)})


def recall(
    subjects: Sequence[Subject],
    rows: Mapping[str, Sequence[PastAttempt]],
    *,
    machine: str,
    now_ns: int,
) -> Recall:
    """What the store knows of these jobs.

    Args:
        subjects: The jobs.
        rows: Attempts by the digest of their script, newest first.
        machine: Digest of the machine that the jobs would run on.
        now_ns: Since the epoch; for ages.
    """
    workloads: list[Workload] = []
    sure: list[Evidence] = []
    guesses: list[Evidence] = []
    for subject in subjects:
        found = rows.get(subject.identity.script, ())
        evidence = evidence_of(subject, found, machine=machine, now_ns=now_ns)
        workloads.append(workload_of(subject, evidence))
        near = _nearest(evidence)
        if near is not None:
            (sure if near.exact else guesses).append(near)
    return Recall(tuple(workloads), tuple(_words(len(subjects), sure, guesses, now_ns)))


def _words(
    jobs: int, sure: Sequence[Evidence], guesses: Sequence[Evidence], now_ns: int
) -> Iterator[str]:
    """How many jobs are known and how well, then what the guesses rest on."""
    parts = []
    if sure:
        rows = sorted((row for e in sure for row in e.rows), key=lambda row: -row.ended_ns)
        parts.append(f"{len(sure)} measured {_ago(rows, now_ns)}")
    if guesses:
        parts.append(f"{len(guesses)} guessed")
    if parts:
        known = len(sure) + len(guesses)
        yield f"{known} of {_count(jobs, 'job')} known from earlier runs: {', '.join(parts)}"
    grounds = Counter(e.source for e in guesses).most_common()
    for source, count in grounds[:_MOST_WORDS]:
        yield f"{_count(count, 'job')}: {source}"
    rest = sum(count for _, count in grounds[_MOST_WORDS:])
    if rest:
        yield f"{_count(rest, 'more job')} guessed likewise"


def _nearest(evidence: Sequence[Evidence]) -> Evidence | None:
    """What a job's time is taken from."""
    return next((e for e in evidence if any(row.tells_pace for row in e.rows)), None)


def _paces(near: Evidence) -> tuple[Pace, ...]:
    by_threads: dict[int, list[PastAttempt]] = defaultdict(list)
    for row in near.rows:
        if row.tells_pace:
            by_threads[row.threads].append(row)
    return tuple(_pace(threads, by_threads[threads], near) for threads in sorted(by_threads))


def _pace(threads: int, rows: Sequence[PastAttempt], near: Evidence) -> Pace:
    """How a job goes with so many threads: of the clean rows, where there are any.

    An attempt that shared its cores took longer than it would alone. How much longer is bounded by
    the processor time that it got: alone it has at most a core for each thread.
    """
    rows = [row for row in rows if row.work_s is not None] or rows
    clean = [row for row in rows if row.undisturbed]
    rows = clean or rows
    work = near.with_rows(rows).estimate(lambda row: row.work_alone_s, "s", TIME)
    assert work is not None  # every row has one
    if not clean:
        part = median(min(1.0, max(_LEAST_PART, (row.work_cores or 0) / threads)) for row in rows)
        work = work.model_copy(
            update={
                "low": work.low * part,
                "value": work.value * part**0.5,
                "origin": "extrapolated",
                "source": f"{work.source}; beside others on the same cores",
            }
        )
    cores = [row.work_cores for row in rows if row.work_cores is not None]
    return Pace(threads=threads, work=work, cores=median(cores) if cores else float(threads))


def _peak(evidence: Sequence[Evidence]) -> Estimate:
    """The job's peak: of attempts that ended ok; what any of its own held is a floor to the bound.

    One that ran out of memory needs more than it held. The bound is for the reservation only:
    whatever it is, the memory guard watches.
    """
    peak = _first(evidence, _peak_of)
    own = [row for e in evidence if e.own and e.same_script for row in e.rows[:_NEWEST]]
    held = max((row.peak_bytes or 0 for row in own), default=0)
    ran_out = max((row.peak_bytes or 0 for row in own if row.status == "oom"), default=0)
    if peak is None:
        if not held:
            return unknown("bytes")
        how = "ran out of memory" if ran_out == held else "was ended"
        source = f"{how} at {show_bytes(held)}, never seen to its end"
        return unknown("bytes", source=source).model_copy(update={"low": float(held)})
    floor = max(float(held), ran_out * OOM_FACTOR)
    return peak.model_copy(
        update={"value": max(peak.value, float(ran_out)), "high": max(peak.high, floor)}
    )


def _peak_of(evidence: Evidence) -> Estimate | None:
    ended = evidence.with_rows([row for row in evidence.rows if row.status == "ok"])
    peak = ended.estimate(
        lambda row: row.peak_bytes, "bytes", MEMORY, quantile=MEMORY_QUANTILE, robust=False
    )
    if peak is None:
        return None
    highest = max(row.peak_bytes or 0 for row in ended.rows)
    return peak.model_copy(update={"high": max(peak.high, float(highest))})


def _steps(near: Evidence) -> Estimate | None:
    steps = near.estimate(lambda row: row.steps or None, "steps", STEPS)
    seen = {row.steps for row in near.rows[:_NEWEST]}
    if steps is not None and near.own and len(near.rows) > 1 and len(seen) == 1:
        # The same number twice is no coincidence.
        return steps.model_copy(update={"low": steps.value, "high": steps.value})
    return steps


def _nothing(near: Evidence) -> Estimate:
    """The start-up of a job whose steps cannot be seen: it is in the work."""
    return Estimate(
        value=0.0,
        low=0.0,
        high=0.0,
        unit="s",
        origin="measured" if near.exact else "extrapolated",
        source="steps not visible: counted with the work",
    )


def _sum(start_up: Estimate, work: Estimate) -> Estimate:
    """Both together; added bound by bound, as if what slows one slowed the other."""
    return work.model_copy(
        update={
            "value": start_up.value + work.value,
            "low": start_up.low + work.low,
            "high": start_up.high + work.high,
        }
    )


def _start_up(row: PastAttempt) -> float | None:
    return row.start_up_s


def _first(
    evidence: Sequence[Evidence], ask: Callable[[Evidence], Estimate | None]
) -> Estimate | None:
    return next((found for e in evidence if (found := ask(e)) is not None), None)


def _finite(estimate: Estimate) -> int:
    return round(estimate.value if estimate.value < inf else estimate.low)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_UNITS: Mapping[str, int] = {"day": 86400, "h": 3600, "min": 60, "s": 1}


def _ago(rows: Sequence[PastAttempt], now_ns: int) -> str:
    newest, oldest = (show_age(max(0, now_ns - row.ended_ns)) for row in (rows[0], rows[-1]))
    return f"{newest} ago" if newest == oldest else f"{newest} to {oldest} ago"


def show_age(age_ns: int) -> str:
    """An age for people, in its largest unit.

    >>> show_age(7_300 * 10**9), show_age(3 * 86_400 * 10**9), show_age(0)
    ('2 h', '3 days', '0 s')
    """
    seconds = age_ns // NS_PER_S
    unit, size = next(((unit, size) for unit, size in _UNITS.items() if seconds >= size), ("s", 1))
    number = seconds // size
    return _count(number, unit) if unit == "day" else f"{number} {unit}"
