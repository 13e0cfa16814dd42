"""What kept a run from ending sooner: its cores, its last jobs, or what others waited for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.core.units import NS_PER_S
from headway.core.view import JobState, View

# Less than this part of all the cores' time is nothing to point at.
WORTH_TELLING = 0.15


@dataclass(frozen=True, slots=True)
class _Stay:
    """A job's last attempt: when, on how many cores, and how busy it kept them."""

    name: str
    began_ns: int
    ended_ns: int
    width: int
    cpu_s: float | None


def limited_by(view: View) -> str:
    """The largest part of the cores' time that was not given to jobs, in words; "" for no run.

    Told of the last attempt of each job.
    """
    cores = view.machine.usable_cores
    stays = list(_stays(view.states, cores))
    if not stays:
        return ""
    began_ns = min(stay.began_ns for stay in stays)
    ended_ns = max(stay.ended_ns for stay in stays)
    whole_s = (ended_ns - began_ns) / NS_PER_S
    if whole_s <= 0:
        return ""
    last_start_ns = max(stay.began_ns for stay in stays)
    waiting_s = _idle_s(stays, cores, began_ns, last_start_ns)
    ending_s = _idle_s(stays, cores, last_start_ns, ended_ns)
    idle, at_end = waiting_s / whole_s / cores, ending_s / whole_s / cores
    if max(idle, at_end) < WORTH_TELLING:
        return _busy_words(stays, cores, whole_s)
    if at_end >= idle:
        last = max(stays, key=lambda stay: stay.ended_ns)
        return (
            f"the end: while {last.name} went on, nobody was left for {at_end:.0%} of the cores' "
            "time"
        )
    return f"room: {idle:.0%} of the cores' time was free while jobs waited"


def _busy_words(stays: Sequence[_Stay], cores: int, whole_s: float) -> str:
    used = [stay.cpu_s for stay in stays if stay.cpu_s is not None]
    if len(used) < len(stays):
        return "the cores: there was always somebody on each of them"
    return f"the cores: the jobs kept them {min(1.0, sum(used) / whole_s / cores):.0%} busy"


def _stays(states: Sequence[JobState], cores: int) -> Iterator[_Stay]:
    for state in states:
        if state.started_ns is None or state.ended_ns is None or state.outcome is None:
            continue
        share = state.last_share
        pinned = len(share.cores) if share is not None and share.cores is not None else None
        width = min(cores, pinned or state.placement.cores or state.threads or cores)
        yield _Stay(state.job.name, state.started_ns, state.ended_ns, width, state.outcome.cpu_s)


def _idle_s(stays: Sequence[_Stay], cores: int, began_ns: int, ended_ns: int) -> float:
    """Seconds of cores that nobody had between two moments."""
    changes: list[tuple[int, int]] = []
    for stay in stays:
        begin_ns, end_ns = max(stay.began_ns, began_ns), min(stay.ended_ns, ended_ns)
        if begin_ns < end_ns:
            changes += [(begin_ns, stay.width), (end_ns, -stay.width)]
    idle_ns, held, reached_ns = 0, 0, began_ns
    for t_ns, width in [*sorted(changes), (ended_ns, 0)]:
        idle_ns += max(0, cores - held) * (t_ns - reached_ns)
        held, reached_ns = held + width, t_ns
    return idle_ns / NS_PER_S
