"""Whether jobs computed with more threads at once than there were cores, in words."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headway.core.units import NS_PER_S, show_seconds
from headway.core.view import View

# Less is a start that overlapped an end.
LEAST_S = 1.0
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Stay:
    """An attempt on cores that were not its own, and the threads that it computed with."""

    name: str
    began_ns: int
    ended_ns: int
    threads: int


def oversubscribed(view: View) -> str:
    """Who computed side by side with too many threads, for how long; "" where nobody did.

    Only threads that were seen to compute count, of the last attempt of each job.
    """
    cores = view.machine.usable_cores
    stays = list(_stays(view))
    crowded_ns = 0
    worst: list[_Stay] = []
    for begin_ns, end_ns, present in _together(stays):
        if len(present) > 1 and sum(stay.threads for stay in present) > cores:
            crowded_ns += end_ns - begin_ns
            if sum(stay.threads for stay in present) > sum(stay.threads for stay in worst):
                worst = present
    if crowded_ns < LEAST_S * NS_PER_S:
        return ""
    named = [f"{stay.name} ({stay.threads})" for stay in worst[:_MOST_NAMED]]
    more = f" and {len(worst) - _MOST_NAMED} more" if len(worst) > _MOST_NAMED else ""
    threads = sum(stay.threads for stay in worst)
    return (
        f"oversubscribed threads: up to {threads} on {cores} cores, for "
        f"{show_seconds(crowded_ns / NS_PER_S)}: {', '.join(named)}{more} side by side. Threads of "
        "a job wait for each other, so each that waits for a core holds up all of them; the modes "
        "partitioned and shared divide the cores"
    )


def _stays(view: View) -> Iterator[_Stay]:
    for state in view.states:
        share = state.share or state.last_share
        if share is None or state.started_ns is None or not state.busy_threads:
            continue
        own = share.cores is not None and len(share.cores) >= state.busy_threads
        if not own and state.busy_threads > 1:
            ended_ns = view.t if state.ended_ns is None else state.ended_ns
            began_ns = state.first_step_ns or state.started_ns
            yield _Stay(state.job.name, began_ns, ended_ns, state.busy_threads)


def _together(stays: Sequence[_Stay]) -> Iterator[tuple[int, int, list[_Stay]]]:
    """Times between which the same attempts were there, and which."""
    moments = sorted({t for stay in stays for t in (stay.began_ns, stay.ended_ns)})
    waiting = deque(sorted(stays, key=lambda stay: stay.began_ns))
    present: list[_Stay] = []
    for begin_ns, end_ns in pairwise(moments):
        present = [stay for stay in present if stay.ended_ns > begin_ns]
        while waiting and waiting[0].began_ns <= begin_ns:
            present.append(waiting.popleft())
        yield begin_ns, end_ns, list(present)
