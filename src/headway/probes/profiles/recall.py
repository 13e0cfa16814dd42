"""What the store knows of a list of jobs: a Workload each, and a few words about all of them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from headway.core.estimate import Estimate, total, unknown
from headway.core.job import Job
from headway.core.units import NS_PER_S, show_bytes
from headway.core.workload import Op, Workload
from headway.probes.profiles.attempts import PastAttempt
from headway.probes.profiles.evidence import Evidence, Shelf, count_of, show_ago
from headway.probes.profiles.identity import Identity

NOMINAL_WORK_NS = 10 * NS_PER_S
"""What the op of a job of which nothing is known stands for; its `duration` is unknown."""
OOM_FACTOR = 1.15
"""Of what an attempt held that ran out of memory: it needs more, nobody knows how much."""

# Not infinite, so that the nominal job can be simulated.
_ANY_START_UP = unknown("s").model_copy(update={"value": 0.0})
_MOST_WORDS = 5


@dataclass(frozen=True, slots=True)
class Subject:
    """A job as it is now: who it is, what its script holds, the threads it takes by itself."""

    job: Job
    identity: Identity
    content: str
    threads: int


@dataclass(frozen=True, slots=True)
class Recall:
    """One Workload a job, in the jobs' order, and what there is to say about them in words."""

    workloads: tuple[Workload, ...]
    words: tuple[str, ...]

    @property
    def known(self) -> int:
        """Of how many jobs it can be said how long they take."""
        return sum(workload.known for workload in self.workloads)


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
    shelves: dict[str, Shelf] = {}
    workloads: list[Workload] = []
    nearest: list[Evidence] = []
    for subject in subjects:
        script = subject.identity.script
        if script not in shelves:
            shelves[script] = Shelf(
                rows.get(script, ()),
                script_name=subject.identity.script_name or "its script",
                content=subject.content,
                machine=machine,
                now_ns=now_ns,
            )
        evidence = shelves[script].of(subject.identity.key)
        near = next((found for found in evidence if found.timed), None)
        if near is not None:
            nearest.append(near)
        workloads.append(_workload(subject, evidence, near))
    return Recall(tuple(workloads), tuple(_words(len(subjects), nearest, now_ns)))


def _workload(subject: Subject, evidence: Sequence[Evidence], near: Evidence | None) -> Workload:
    """What is known of a job: times by the nearest evidence that has any, memory likewise."""
    job, peak = subject.job.name, _peak(evidence)
    held_bytes = round(peak.value if peak.value < inf else peak.low)
    op = Op(id=job, work_ns=NOMINAL_WORK_NS, memory_bytes=held_bytes)
    if near is None:
        return Workload(
            job=job,
            ops=(op,),
            start_up=_first(evidence, lambda found: found.start_up) or _ANY_START_UP,
            duration=unknown("s"),
            peak_bytes=peak,
            own_threads=subject.threads,
            remark=peak.source,
        )
    start_up = near.start_up
    assert start_up is not None  # whoever was timed has one
    measured = Workload(
        job=job,
        ops=(op,),
        start_up=start_up,
        duration=unknown("s"),
        peak_bytes=peak,
        steps=near.steps,
        paces=near.paces,
        own_threads=subject.threads,
        device_bytes=_first(evidence, lambda found: found.device_bytes),
        device_busy=_first(evidence, lambda found: found.device_busy),
        device_part=_first(evidence, lambda found: found.device_part),
        remark=near.source,
    )
    pace = measured.pace(subject.threads)
    op = op.model_copy(update={"work_ns": round(pace.work.value * NS_PER_S), "cores": pace.cores})
    return measured.model_copy(update={"ops": (op,), "duration": total([pace.work, start_up])})


def _peak(evidence: Sequence[Evidence]) -> Estimate:
    """The job's peak; whatever its own attempts held, however they ended, is a floor to the bound.

    The bound is for the reservation only: whatever it is, the memory guard watches.
    """
    peak = _first(evidence, lambda found: found.peak)
    own = [row for found in evidence if found.own and found.same_script for row in found.rows]
    held = max((row.peak_bytes or 0 for row in own), default=0)
    ran_out = max((row.peak_bytes or 0 for row in own if row.status == "oom"), default=0)
    if peak is not None:
        floor = max(float(held), ran_out * OOM_FACTOR)
        update = {"value": max(peak.value, float(ran_out)), "high": max(peak.high, floor)}
        return peak.model_copy(update=update)
    if not held:
        return unknown("bytes")
    how = "ran out of memory" if ran_out == held else "was ended"
    source = f"{how} at {show_bytes(held)}, never seen to its end"
    return unknown("bytes", source=source).model_copy(update={"low": float(held)})


def _first(
    evidence: Sequence[Evidence], figure: Callable[[Evidence], Estimate | None]
) -> Estimate | None:
    return next((value for found in evidence if (value := figure(found)) is not None), None)


def _words(jobs: int, nearest: Sequence[Evidence], now_ns: int) -> Iterator[str]:
    """How many jobs are known and how well, then what the guesses rest on."""
    sure = [found for found in nearest if found.exact]
    guesses = [found for found in nearest if not found.exact]
    parts = []
    if sure:
        rows = sorted((row for e in sure for row in e.timed), key=lambda row: -row.ended_ns)
        parts.append(f"{len(sure)} measured {show_ago(rows, now_ns)}")
    if guesses:
        parts.append(f"{len(guesses)} guessed")
    if parts:
        known = count_of(jobs, "job")
        yield f"{len(nearest)} of {known} known from earlier runs: {', '.join(parts)}"
    grounds = Counter(found.source for found in guesses).most_common()
    for source, count in grounds[:_MOST_WORDS]:
        yield f"{count_of(count, 'job')}: {source}"
    rest = sum(count for _, count in grounds[_MOST_WORDS:])
    if rest:
        yield f"{count_of(rest, 'more job')} guessed likewise"
