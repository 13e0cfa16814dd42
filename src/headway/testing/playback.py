"""A simulated run played into a run folder as if it happened now: for whoever looks at runs.

Journal, timeline and counters are written with the engine's own writers, at the pace of the
simulation, and the folder is locked as a supervisor locks it. What stands in it was never measured.
"""

import time
from collections.abc import Iterator
from contextlib import closing

from headway.core.run import Run
from headway.core.timeline import (
    COUNTERS,
    TIMELINE,
    Header,
    Reading,
    counter_line,
    lane_of,
    span_line,
)
from headway.core.words import Exited
from headway.engines.local.control import Lock
from headway.engines.local.journal import Journal
from headway.sim.world import SimulatedWorld


def play(run: Run, world: SimulatedWorld, *, held_bytes: int = 2**30) -> Iterator[float]:
    """Play what a simulation came to, word by word.

    Args:
        run: A new run of the same jobs.
        world: After its simulation.
        held_bytes: What the counters say that each job holds.

    Yields:
        After each word that was written, the seconds since the run began.
    """
    spans = iter(sorted(world.timeline().spans, key=lambda span: span.t + span.d))
    ended: dict[int, list[str]] = {}
    for span in spans:
        assert span.job is not None
        ended.setdefault(span.job, []).append(span_line(span))
    began_ns, began_s = time.time_ns(), time.monotonic()
    timeline, counters = run.path / TIMELINE, run.path / COUNTERS
    timeline.write_text(Header(source="simulated", epoch_ns=began_ns).to_json() + "\n")
    counters.touch()
    with closing(Lock(run)), closing(Journal(run.folder)) as journal:
        looked_s = 0.0
        for t, word in world.words:
            now_s = time.monotonic() - began_s
            time.sleep(max(0.0, t / 1e9 - now_s))
            if isinstance(word, Exited):
                with timeline.open("a") as file:
                    file.writelines(line + "\n" for line in ended.pop(word.job, ()))
            journal.word(began_ns + t, word)
            journal.write()
            if now_s - looked_s >= 1.0:
                looked_s = now_s
                with counters.open("a") as file:
                    file.writelines(
                        counter_line(
                            Reading(t=t, lane=lane_of(job), name="resident_bytes", value=held_bytes)
                        )
                        + "\n"
                        for job in range(len(world.view.states))
                    )
            yield time.monotonic() - began_s
