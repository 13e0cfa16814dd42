"""Who was killed for memory, from the kernel's log: names the victim, is never the verdict.

The log needs rights, may be overwritten before it is read, and speaks of pids as the machine's
first namespace counts them. The verdict comes from the counter of a control group; see
`headway.system.group`.
"""

import errno
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

_RECORD_BYTES = 8192
_CONSTRAINT = re.compile(
    r"oom-kill:constraint=(?P<constraint>\w+)"
    r"(?:.*?,oom_memcg=(?P<limit>[^,]*))?"
    r"(?:.*?,task_memcg=(?P<cgroup>[^,]*))?"
    r".*?,task=(?P<name>.*),pid=(?P<pid>\d+),uid=\d+$"
)
_KILLED = re.compile(r"Killed process (?P<pid>\d+) \((?P<name>.*)\)[, ]")


@dataclass(frozen=True, slots=True)
class OomKill:
    """One process that the kernel killed for memory."""

    pid: int
    """As the machine's first pid namespace counts it."""
    name: str
    """The kernel's name for the process, at most 15 characters."""
    cgroup: str
    """The memory control group it was in; "" where the log doesn't say."""
    limit_of: str
    """The control group whose limit was reached; "" where the whole machine was out of memory."""
    t_us: int
    """Microseconds of the kernel's clock since boot."""


class KernelLog:
    """Reads new out-of-memory kills from a position in the kernel's log, without waiting."""

    def __init__(self, descriptor: int) -> None:
        """Take over a non-blocking descriptor that gives one record a read, as /dev/kmsg does."""
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path = Path("/dev/kmsg")) -> "tuple[KernelLog | None, str]":
        """The log from its present end on, or None and the reason in words."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return None, f"the kernel's log can't be read: {error.strerror} ({path})"
        try:
            os.lseek(descriptor, 0, os.SEEK_END)
        except OSError as error:
            os.close(descriptor)
            return None, f"the kernel's log has no position to read from: {error.strerror} ({path})"
        return cls(descriptor), ""

    def __enter__(self) -> "KernelLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def oom_kills_since(self) -> list[OomKill]:
        """The kills logged since the last call (or since opening), in order, one a process."""
        kills: dict[int, OomKill] = {}
        while (record := self._next()) is not None:
            kill = parse_record(record)
            if kill is None:
                continue
            known = kills.get(kill.pid)
            # Two lines speak of one kill: the first knows the groups, the second is always there.
            kills[kill.pid] = kill if known is None else replace(known, name=kill.name)
        return list(kills.values())

    def _next(self) -> bytes | None:
        while True:
            try:
                return os.read(self._descriptor, _RECORD_BYTES) or None
            except BlockingIOError:
                return None
            except OSError as error:
                # EPIPE: records were overwritten before we read them; the next read goes on.
                if error.errno != errno.EPIPE:
                    raise


def parse_record(record: bytes) -> OomKill | None:
    """The kill that a record of /dev/kmsg speaks of, or None.

    >>> parse_record(b"6,1,42,-;Memory cgroup out of memory: Killed process 7 (a b) total-vm:1kB")
    OomKill(pid=7, name='a b', cgroup='', limit_of='', t_us=42)
    """
    head, separator, text = record.partition(b";")
    fields = head.split(b",")
    if not separator or len(fields) < 3 or not (fields[0].isdigit() and fields[2].isdigit()):
        return None
    # The number above the three bits of the level is the sender: 0 is the kernel itself. Programs
    # may write to the log too, and could claim anything.
    if int(fields[0]) >> 3 != 0:
        return None
    line = text.split(b"\n", 1)[0].decode(errors="replace")
    t_us = int(fields[2])
    if match := _CONSTRAINT.search(line):
        found = match.groupdict(default="")
        # "global_oom" stands where oom_memcg would: the machine itself ran out.
        return OomKill(int(found["pid"]), found["name"], found["cgroup"], found["limit"], t_us)
    if match := _KILLED.search(line):
        return OomKill(int(match["pid"]), match["name"], "", "", t_us)
    return None
