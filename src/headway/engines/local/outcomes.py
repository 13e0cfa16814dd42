"""How an attempt ended, told from the evidence it left: one pure function.

[Note: what proves that memory ran out]
Proof is the kernel's counter of kills in the attempt's own cgroup; or the counter around it (of the
cgroup Headway was given, of the whole host) together with a sign that the victim was ours; or an
allocator's own words at the very end of stderr behind an exit code that is not 0. No proof, though
each looks like one: exit code 137 (a shell says it of any signal 9, and a script may say it of
itself), a foreign SIGKILL, a peak equal to the limit and a high failcnt (both grow by file cache).
The counter also convicts behind exit 0: a parent may not notice that its child was killed.
"""

import re
import shlex
import signal as signals
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from headway.core.text import plain, shorten
from headway.core.units import GIB, show_bytes
from headway.core.words import NO_DEVICE, Outcome, Status, StopHow
from headway.engines.local.attempts import CgroupMemory, ExitRecord
from headway.engines.local.last_words import AllocatorText, LastWords, read_last_words
from headway.engines.local.refusals import refused_by_kernel, refused_by_shell
from headway.system.kernel_log import OomKill

MOST_QUOTED = 200
"""Columns of a job's own words that a cause quotes."""

_AT_THE_CAP = 0.95  # a group whose peak came this near to its limit was killed by that limit
ENDED_BY_US: dict[StopHow, Status] = {
    "timeout": "timeout",
    "stall": "stalled",
    "cancel": "cancelled",
    "memory": "cancelled",
    "interrupt": "cancelled",
}
_FOREIGN_ENDS = frozenset({signals.SIGKILL, signals.SIGTERM, signals.SIGINT, signals.SIGHUP})
_ASKED_OF_DEVICE = re.compile(r"[Tt]ried to allocate ([\d.]+ \w+)")
_DEVICE_FREE = re.compile(
    r"GPU (\d+) has a total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free"
)
_DEVICE_USER = re.compile(r"Process (\d+) has ([\d.]+ \w+) memory in use")


_NEEDS_LESS = (
    "What needs less: a smaller batch in more steps (gradient accumulation), bf16 instead of "
    "fp32, activation checkpointing"
)


class Victim(NamedTuple):
    """A process that the kernel's log says was killed for memory."""

    pid: int
    name: str
    cgroup: str
    limit_of: str | None = None
    """The cgroup whose limit was met, "" for the machine itself, None where the log doesn't say."""

    @classmethod
    def of(cls, kill: OomKill) -> "Victim":
        """The victim that the log speaks of; its short line knows no cgroups."""
        return cls(kill.pid, kill.name, kill.cgroup, kill.limit_of if kill.cgroup else None)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of an ended attempt.

    Attributes:
        record: Its exit record.
        stop: How Headway itself stopped it, or None; `stop_reason` says why, in words.
        stderr_tail: The end of its stderr, at most `last_words.TAIL_BYTES`.
        cwd: The folder it was to run in, which tells a missing folder from a missing program.
        victims: Whom the kernel's log names since the attempt's start; None where the log cannot be
            read, or where its pids are not ours (another pid namespace).
        tree_pids: Pids seen in the attempt's tree.
        cgroup_path: Its own memory cgroup as the kernel's log writes it, or "".
        siblings: Other attempts alive in the meantime, any of which may have been the victim.
        peak_bytes: The largest sum of resident memory sampled, file cache not counted.
        cap_bytes: The cap Headway gave it, or None.
        free_bytes: Free memory of the host when it ended, or None.
        host_bytes: Memory of the host, or None.
        devices: The GPUs it was given, by index, in the order in which it sees them.
    """

    record: ExitRecord
    stop: StopHow | None = None
    stop_reason: str = ""
    stderr_tail: bytes = b""
    cwd: str = ""
    victims: Sequence[Victim] | None = None
    tree_pids: frozenset[int] = frozenset()
    cgroup_path: str = ""
    siblings: int = 0
    peak_bytes: int | None = None
    cap_bytes: int | None = None
    free_bytes: int | None = None
    host_bytes: int | None = None
    devices: Sequence[int] = ()


def classify(evidence: Evidence) -> Outcome:
    """The outcome of an ended attempt: "ok" only for exit 0 without a kill for memory in its tree.

    Pure: the same evidence gives the same outcome. See [Note: what proves that memory ran out].
    """
    record = evidence.record
    peak_bytes = max(evidence.peak_bytes or 0, record.largest_process_bytes)
    bare = Outcome(
        "failed", exit_code=record.exit_code, signal=record.signal, peak_bytes=peak_bytes or None
    )
    # It had ended well before the kill that was to free its memory: nothing is run twice.
    ended_first = evidence.stop == "memory" and record.exit_code == 0
    if evidence.stop is not None and not ended_first:
        return _stopped(evidence, evidence.stop, bare)
    if record.spawn_error is not None:
        return replace(bare, cause=refused_by_kernel(record.spawn_error, evidence.cwd))
    if record.cgroup is not None and record.cgroup.oom_kills > 0:
        return _killed_inside(evidence, record.cgroup, bare)
    words = read_last_words(evidence.stderr_tail)
    killed, doubt = _killed_outside(evidence, words)
    if killed:
        # Without samples only the largest process is known: a lower bound.
        at = show_peak(peak_bytes) + ("" if evidence.peak_bytes else " or more")
        return _out_of_memory(bare, at=at, where=doubt, victim=killed)
    if words.allocator and _allocator_counts(record, words.allocator):
        return _refused_memory(evidence, words.allocator, bare)
    if record.exit_code == 0:
        return replace(bare, status="ok")
    return replace(bare, cause=_failure(evidence, words, doubt))


def lost_outcome(
    how: Literal["killed", "reboot", "keeper"],
    *,
    run: str,
    job: str,
    last_seen_ns: int | None = None,
    keeper_pid: int | None = None,
) -> Outcome:
    """The outcome of an attempt with a claim but neither keeper nor exit record.

    Args:
        how: "killed" where Headway itself had been killed, "reboot" where the claim is of an
            earlier boot, "keeper" where only the keeper was killed.
        run: The run's name or folder, for the command to give next.
        job: The job's name.
        last_seen_ns: When the run was last known to be alive, in ns since the epoch.
        keeper_pid: The process that has gone.

    >>> lost_outcome("reboot", run="sweep-1", job="job 3").cause
    "was running when the machine was restarted; no exit record was left. Run again: headway retry \
sweep-1 'job 3'"
    """
    at = ""
    if last_seen_ns is not None:
        at = time.strftime(" at %Y-%m-%d %H:%M:%S", time.localtime(last_seen_ns // 10**9))
    keeper = "its keeper" if keeper_pid is None else f"its keeper (process {keeper_pid})"
    words = {
        "killed": f"was running when Headway was killed{at}; {keeper} is gone and left no exit "
        "record",
        "reboot": "was running when the machine was restarted"
        + (f" (last seen{at})" if at else "")
        + "; no exit record was left",
        "keeper": f"{keeper} was killed and left no exit record, so how it ended is unknown",
    }
    again = f"headway retry {shlex.quote(run)} {shlex.quote(job)}"
    return Outcome("lost", cause=f"{words[how]}. Run again: {again}")


def show_peak(size_bytes: float) -> str:
    """A size near a limit: with two decimals, where `show_bytes` would show both alike.

    >>> show_peak(1.98 * 2**30), show_peak(400 * 2**20)
    ('1.98 GiB', '400 MiB')
    """
    return f"{size_bytes / GIB:.2f} GiB" if size_bytes >= GIB else show_bytes(size_bytes)


def _stopped(evidence: Evidence, stop: StopHow, bare: Outcome) -> Outcome:
    """Headway's own stop has the last word; a kill for memory before it is mentioned."""
    cause = evidence.stop_reason or f"stopped by Headway ({stop})"
    cgroup = evidence.record.cgroup
    if cgroup is not None and cgroup.oom_kills > 0:
        cause += f"; the kernel had killed {_own_victim(evidence)} for memory"
    return replace(bare, status=ENDED_BY_US[stop], cause=cause, stopped=stop)


def _killed_inside(evidence: Evidence, cgroup: CgroupMemory, bare: Outcome) -> Outcome:
    """The attempt's own cgroup counted a kill: by its own cap, or by a limit above it."""
    limit_bytes = cgroup.limit_bytes or evidence.cap_bytes
    held_bytes = max(bare.peak_bytes or 0, cgroup.peak_bytes or 0)
    if limit_bytes is not None and _cap_was_met(evidence, held_bytes, limit_bytes):
        held_bytes = min(held_bytes, limit_bytes) if held_bytes else limit_bytes
        at = f"{show_peak(held_bytes)} of its {show_bytes(limit_bytes)} cap"
        where = "the job itself grew"
    else:
        at = show_peak(held_bytes)
        where = "memory around it was full (the machine's, or that of the cgroup Headway is in)"
    bare = replace(bare, peak_bytes=max(held_bytes, bare.peak_bytes or 0))
    return _out_of_memory(bare, at=at, where=where, victim=_own_victim(evidence))


def _cap_was_met(evidence: Evidence, held_bytes: int, limit_bytes: int) -> bool:
    """Whether the attempt's own cap called for the kill, and not a limit above it."""
    victim = _named_victim(evidence)
    if victim is not None and victim.limit_of is not None:
        return victim.limit_of in {evidence.cgroup_path, victim.cgroup} - {""}
    cgroup = evidence.record.cgroup
    peak_known = cgroup is not None and cgroup.peak_bytes is not None
    return not peak_known or held_bytes >= _AT_THE_CAP * limit_bytes


def _out_of_memory(bare: Outcome, *, at: str, where: str, victim: str) -> Outcome:
    """The kernel killed a process of the attempt's tree."""
    if bare.exit_code == 0:
        cause = f"finished with exit 0 but the kernel killed {victim} for memory, at {at}; {where}"
    else:
        cause = f"killed at {at}; {where}; victim: {victim}"
    return replace(bare, status="oom", cause=cause)


def _named_victim(evidence: Evidence) -> Victim | None:
    """The first process of the attempt that the kernel's log names."""
    for victim in evidence.victims or ():
        inside = evidence.cgroup_path and victim.cgroup == evidence.cgroup_path
        if victim.pid in evidence.tree_pids or inside:
            return victim
    return None


def _lone_victim(evidence: Evidence) -> Victim | None:
    """The log's only victim, where nothing else ran here and no other group is named.

    It gives a kill that is proven otherwise a name: a process that was too short-lived to be
    sampled, in a group that it shared with Headway or that the log's short line leaves out.
    """
    victims = evidence.victims or ()
    if evidence.siblings or len(victims) != 1 or (evidence.cgroup_path and victims[0].cgroup):
        return None
    return victims[0]


def _own_victim(evidence: Evidence) -> str:
    """Who was killed in the attempt's tree, in words."""
    if (named := _named_victim(evidence) or _lone_victim(evidence)) is not None:
        return f"its process {named.pid} ({plain(named.name)})"
    killed = [pid for pid, number in evidence.record.killed_children if number == signals.SIGKILL]
    if evidence.record.signal == signals.SIGKILL:
        return "the command itself"
    return f"its process {killed[0]}" if killed else "one of its processes"


def _killed_outside(evidence: Evidence, words: LastWords) -> tuple[str, str]:
    """The victim in words, "" where none of ours is proven; then where, or what speaks against."""
    record = evidence.record
    around, host = _rise(record.inherited_oom_kills), _rise(record.host_oom_kills)
    named = _named_victim(evidence)
    if around is None and host is None:
        if named is not None:
            return _own_victim(evidence), "the machine's memory was full"
        return "", "whether for memory cannot be told here (the kernel does not count it)"
    if not (around or host):
        return "", "no memory kill was counted"
    by_log = None if named is None else named.limit_of
    in_cgroup = around if by_log is None else by_log
    whose = "memory of the cgroup Headway is in" if in_cgroup else "machine's memory"
    where = f"the {whose} was full"
    if named is not None:
        return _own_victim(evidence), where
    risen = host or around or 0
    # A kill inside the very cgroup that our jobs are in is not somebody else's only because the
    # victim was too short-lived to be sampled by its pid.
    if not around and evidence.victims is not None and len(evidence.victims) >= risen:
        return "", "the kernel's log names other victims of memory, not this job"
    victim = _sign_of_kill(record, words)
    if victim and not evidence.siblings:
        return _own_victim(evidence) if _lone_victim(evidence) else victim, where
    kills = "kill" if risen == 1 else "kills"
    others = "1 other job" if evidence.siblings == 1 else f"{evidence.siblings} other jobs"
    return "", f"perhaps for memory: {risen} memory {kills} counted while {others} ran beside it"


def _rise(kills: tuple[int | None, int | None]) -> int | None:
    """By how much a counter rose, or None where it could not be read."""
    before, after = kills
    return None if before is None or after is None else max(0, after - before)


def _sign_of_kill(record: ExitRecord, words: LastWords) -> str:
    """Who of the tree died by a signal 9 that Headway did not send, in words; "" for nobody."""
    if record.signal == signals.SIGKILL:
        return "the command itself"
    for pid, number in record.killed_children:
        if number == signals.SIGKILL:
            return f"its process {pid}"
    if record.exit_code and words.dead_workers:
        return f"its process {words.dead_workers[0]}"
    return "one of its processes" if record.exit_code == 128 + signals.SIGKILL else ""


def _allocator_counts(record: ExitRecord, allocator: AllocatorText) -> bool:
    """Whether an allocator's last words can be what ended the job."""
    if record.exit_code == 0:
        return False
    if allocator.memory == "address space" and record.address_space_limit_bytes is None:
        return False
    # Who was killed from outside did not die of what it last complained of.
    return _ending_signal(record) not in _FOREIGN_ENDS


def _ending_signal(record: ExitRecord) -> int | None:
    """The signal that ended the command, also where only a shell speaks of it."""
    if record.signal is not None:
        return record.signal
    code = record.exit_code or 0
    return code - 128 if 128 < code <= 128 + 64 else None


def _refused_memory(evidence: Evidence, allocator: AllocatorText, bare: Outcome) -> Outcome:
    """An allocator said no, and the job ended by it."""
    bare = replace(bare, status="oom")
    if allocator.memory == "device":
        return _device_full(allocator.text, evidence, bare)
    quoted = shorten(allocator.text, MOST_QUOTED)
    cause = f"{_ended(evidence.record)}: memory ran out: {quoted}"
    limit_bytes = evidence.record.address_space_limit_bytes
    if limit_bytes is not None and allocator.memory != "either":
        cause += f"; it ran under an address space limit of {show_bytes(limit_bytes)} (ulimit -v)"
        return replace(bare, cause=cause, retry_helps=False)
    asked_bytes, host_bytes = allocator.asked_bytes, evidence.host_bytes
    if asked_bytes is not None and host_bytes is not None and asked_bytes > host_bytes:
        cause += f"; this machine has {show_bytes(host_bytes)} in all"
        return replace(bare, cause=cause, retry_helps=False)
    return replace(bare, cause=cause)


def _device_full(text: str, evidence: Evidence, bare: Outcome) -> Outcome:
    """A GPU's memory ran out; trying again helps only where somebody else held a part of it."""
    # A process that is told its own pid by another name (in a container) is not known for its own.
    users = [(pid, held) for pid, held in _DEVICE_USER.findall(text) if not _own(pid, evidence)]
    asked, free = _ASKED_OF_DEVICE.search(text), _DEVICE_FREE.search(text)
    device = _device_of(free[1], evidence) if free else NO_DEVICE
    parts = [f"tried to allocate {asked[1]}"] if asked else [shorten(text, MOST_QUOTED)]
    if free:
        number = free[1] if device == NO_DEVICE else device
        parts.append(f"device {number} had {free[3]} of {free[2]} free")
    parts += [f"process {pid} held {held}" for pid, held in users[:3]]
    cause = f"GPU memory ran out: {', '.join(parts)}"
    if not users:
        cause += f". {_NEEDS_LESS}"
    return replace(bare, cause=cause, retry_helps=bool(users), device=device)


def _own(pid: str, evidence: Evidence) -> bool:
    return int(pid) in evidence.tree_pids


def _device_of(ordinal: str, evidence: Evidence) -> int:
    """The index of a device that a job counts from 0 among those that it sees, where known."""
    place = int(ordinal)
    return evidence.devices[place] if place < len(evidence.devices) else NO_DEVICE


def _failure(evidence: Evidence, words: LastWords, doubt: str) -> str:
    """Why a job failed, in words; `doubt` is what is known of kills for memory."""
    record = evidence.record
    ended = _ended(record)
    if record.signal == signals.SIGKILL:
        free = evidence.free_bytes
        room = "" if free is None else f"; host had {show_bytes(free)} free"
        return f"{ended}, not by Headway; {doubt}{room}"
    if record.exit_code == 128 + signals.SIGKILL:
        return f"{ended}; {doubt}"
    refused = refused_by_shell(record.exit_code, words.last_line)
    if refused:
        return refused
    # An exception far above the end was caught and logged: the job went on and failed of another.
    if words.raised is not None and words.raised_at_end:
        return f"{ended}: {shorten(words.raised.headline, MOST_QUOTED)}"
    if record.signal is not None:
        return ended
    if not words.last_line:
        return f"{ended}; nothing on stderr"
    return f"{ended}; last line: {shorten(words.last_line, MOST_QUOTED)}"


def _ended(record: ExitRecord) -> str:
    """Exit code or signal in words."""
    number = _ending_signal(record)
    if number is None:
        return f"exit {record.exit_code}"
    try:
        name = signals.Signals(number).name
    except ValueError:
        name = "a real-time signal"
    if record.signal is not None:
        return f"killed by signal {number} ({name})"
    return f"exit {record.exit_code} (a shell's word for signal {number}, {name})"
