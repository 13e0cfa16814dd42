"""Watches the memory of the machine, and what the kernel killed for it."""

import os
import time
from collections.abc import Sequence

from headway.engines.local.outcomes import Victim
from headway.system.kernel_log import KernelLog
from headway.system.memory import Headroom, MemoryGauge
from headway.system.procfs import in_first_pid_namespace

# Below this much free, the newest job gives way: a part of the limit, on a small one as much as a
# job fills between two looks and the kill, but never more than a tenth.
MARK_PART = 0.04
MARK_BYTES = 128 * 2**20
MARK_MOST = 0.1
# A job that allocates as fast as it did since the last look must not reach the limit before the
# kill has acted. More than this, and a job that fills a large buffer at once looks like a runaway.
REACTION_S = 0.15
NEAR_PART = 0.3
LOOK_S = 0.25
LOOK_NEAR_S = 0.1
# With so much free that all cores could not fill it in that time, a look a second is enough: a
# core clears and writes fresh pages at 1 to 3 GB/s.
LOOK_FAR_S = 1.0
FILL_BYTES_PER_S = 4 * 2**30


class Guard:
    """Free memory with its trend. `tight` asks for action, `look_s` says when to look again.

    Set `covered` where reservations fit and every job keeps to its own: a steep fall is then a job
    that fills what it was given, and no reason to stop another.
    """

    def __init__(self) -> None:
        self._gauge = MemoryGauge()
        # The log names pids of the machine: in another pid namespace they are not ours.
        self._log = KernelLog.open()[0] if in_first_pid_namespace() else None
        self._looked_s = 0.0
        self._free: int | None = None
        self.tight = False
        self.covered = False
        self.look_s = LOOK_S
        self.free_bytes: int | None = None
        self.host_bytes: int | None = None
        self.victims: Sequence[Victim] | None = None if self._log is None else []

    def look(self) -> Headroom | None:
        """The room left, or None where the last look was only just now."""
        now_s = time.monotonic()
        passed_s = now_s - self._looked_s
        if passed_s < 0.8 * self.look_s:
            return None
        room = self._gauge.headroom()
        falling = max(0.0, ((self._free or room.free_bytes) - room.free_bytes) / passed_s)
        mark = max(MARK_PART * room.limit_bytes, min(MARK_BYTES, MARK_MOST * room.limit_bytes))
        if not self.covered:
            mark = max(mark, falling * REACTION_S)
        self.tight = room.free_bytes < mark and room.free_bytes < NEAR_PART * room.limit_bytes
        self.look_s = until_next_s(room, mark, cores=os.cpu_count() or 1)
        self._looked_s, self._free = now_s, room.free_bytes
        self.free_bytes, self.host_bytes = room.free_bytes, room.limit_bytes
        return room

    def look_at_kernel(self) -> None:
        """Read which processes the kernel killed for memory since the last time."""
        if self._log is not None and self.victims is not None:
            found = self._log.oom_kills_since()
            self.victims = [*self.victims, *map(Victim.of, found)]

    def close(self) -> None:
        """Give the descriptors back."""
        if self._log is not None:
            self._log.close()


def until_next_s(room: Headroom, mark_bytes: float, *, cores: int) -> float:
    """Seconds after which to look again: the sooner, the less is free.

    Args:
        room: What is free now.
        mark_bytes: Where the newest job would have to give way.
        cores: That could fill memory, all at once.

    >>> room = Headroom(64 * 2**30, 0, 40 * 2**30, "memory of the machine")
    >>> [until_next_s(room, 2**30, cores=cores) for cores in (8, 16)]
    [1.0, 0.25]
    """
    if room.free_bytes < NEAR_PART * room.limit_bytes:
        return LOOK_NEAR_S
    far = room.free_bytes - mark_bytes > LOOK_FAR_S * FILL_BYTES_PER_S * cores
    return LOOK_FAR_S if far else LOOK_S
