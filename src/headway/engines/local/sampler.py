"""Readings of what runs: one scan of /proc a tick for all jobs, and the recorder's counters.

Writes into the view's job states. Never decides.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headway.core.holdings import Hold, Process
from headway.core.recording import count_and_last, read_folder, summary
from headway.core.view import JobState, View
from headway.engines.local.attempt import Attempt
from headway.system.cores import cores_busy
from headway.system.procfs import (
    CLOCK_TICKS,
    CpuTimes,
    ProcessEntry,
    cpu_times,
    descendants,
    entry,
    scan,
)

# A process that uses less than this part of a core for a tick counts as idle.
IDLE_CORES = 0.02
# No step for this long, and ten times the usual step, and no CPU time: marked as stalled.
STALL_S = 60.0
STEADY_S = 5.0
STEADY_PART = 0.05
# When to look at the threads of a job once, in seconds after its first step or its start.
THREADS_AFTER_S = 5.0
# A thread that ran at least this part of the busiest one's time computes beside it.
BUSY_PART = 0.25
# How often others' processes are read. Their number is the machine's, not ours: on a login node a
# pass over all of them costs as much as everything else here for a minute.
OTHERS_NS = 5_000_000_000
# Smoothing of others' use, for a second: about 20 s, so that a passing compile holds no job back.
FOREIGN_KEEP = 0.95


@dataclass(slots=True)
class _Past:
    """What a job looked like at earlier ticks."""

    cpu_ticks: int = 0
    t: int = 0
    steps: int = 0
    last_step_ns: int = 0
    steady_bytes: int = 0
    steady_since_ns: int = 0
    threads_seen: bool = False
    refined_ns: int = 0


@dataclass(slots=True)
class Sampler:
    """Takes readings of live attempts; `changed` tells which jobs left their start-up."""

    view: View
    clock_offset_ns: int
    _past: dict[int, _Past] = field(default_factory=dict)
    _cpu: Mapping[int, CpuTimes] = field(default_factory=cpu_times)
    _others: Mapping[int, ProcessEntry] = field(default_factory=dict)
    _others_t: int | None = None
    _held_bytes: dict[Process, int] = field(default_factory=dict)

    def forget(self, index: int) -> None:
        """An attempt ended: its past is nobody's."""
        self._past.pop(index, None)

    def held_bytes(self) -> int:
        """What jobs of other runs use of the memory they hold: not foreign, it counts as held.

        A job that was not read yet counts as using nothing, so as foreign too for some seconds.
        """
        return sum(
            min(self._held_bytes.get(keeper, 0), hold.reserved_bytes)
            for keeper, hold in _held(self.view)
        )

    def take(self, attempts: Iterable[Attempt], t: int) -> list[tuple[int, str]]:
        """Read what is ours once; gives the jobs that left start-up now, and how it was seen."""
        attempts = [attempt for attempt in attempts if attempt.keeper_pid]
        others_due = self._others_t is None or t - self._others_t >= OTHERS_NS
        entries = scan(known=None if others_due else self._others)
        me = os.getpid()
        trees = descendants(entries, [me, *(attempt.keeper_pid for attempt in attempts)])
        changed = []
        for attempt in attempts:
            state = self.view.states[attempt.index]
            tree = trees[attempt.keeper_pid]
            past = self._past.setdefault(attempt.index, _Past(t=t))
            self._read(attempt, state, tree, past, t)
            phase = self._phase(state, past, t)
            if phase:
                changed.append((attempt.index, phase))
        if others_due:
            self._read_others(entries, trees, t)
        return changed

    def _read(
        self,
        attempt: Attempt,
        state: JobState,
        tree: list[ProcessEntry],
        past: _Past,
        t: int,
    ) -> None:
        attempt.tree_pids.update(process.pid for process in tree)
        state.processes = len(tree)
        resident = attempt.cgroup.memory_bytes() if attempt.cgroup is not None else None
        if resident is None:
            resident = sum(_private_bytes(process) for process in tree)
        state.resident_bytes = resident
        state.peak_bytes = max(state.peak_bytes, resident)
        ticks = sum(process.cpu_ticks + process.reaped_cpu_ticks for process in tree)
        passed_s = (t - past.t) / 1e9
        if past.cpu_ticks and passed_s > 0:
            state.cores_used = max(0, ticks - past.cpu_ticks) / CLOCK_TICKS / passed_s
        past.cpu_ticks, past.t = ticks, t
        self._read_steps(attempt, state, past, t)
        self._read_quiet(state, past, t)
        self._read_threads(state, tree, past, t)

    def _read_steps(self, attempt: Attempt, state: JobState, past: _Past, t: int) -> None:
        steps, last_ns = 0, 0
        try:
            names = os.listdir(attempt.folder.steps)
        except OSError:
            names = []
        for name in names:
            if name.endswith(".steps"):
                count, last = count_and_last(attempt.folder.steps / name)
                if count > steps:
                    steps, last_ns = count, last
        if not steps:
            return
        state.steps = steps
        state.last_step_ns = last_ns + self.clock_offset_ns
        # The exact median needs the whole ring: every few seconds is enough for a screen.
        if state.step_ns is None or t - past.refined_ns > 5e9:
            whole = summary(read_folder(attempt.folder.steps))
            if whole is not None:
                state.step_ns = whole.median_step_ns
                state.first_step_ns = whole.first_ns + self.clock_offset_ns
                past.refined_ns = t
        past.steps, past.last_step_ns = steps, state.last_step_ns

    def _read_quiet(self, state: JobState, past: _Past, t: int) -> None:
        if state.cores_used > IDLE_CORES or state.quiet_since_ns is None:
            state.quiet_since_ns = t
        if state.last_step_ns is not None:
            state.quiet_since_ns = max(state.quiet_since_ns, min(t, state.last_step_ns))
        limit_s = max(10 * (state.step_ns or 0) / 1e9, STALL_S)
        state.stalled_mark = (t - state.quiet_since_ns) / 1e9 > limit_s

    def _read_threads(self, state: JobState, tree: list[ProcessEntry], past: _Past, t: int) -> None:
        """Count the computing threads of the busiest process, once, after its start-up."""
        since = state.first_step_ns or state.started_ns or t
        if past.threads_seen or (t - since) / 1e9 < THREADS_AFTER_S or not tree:
            return
        past.threads_seen = state.first_step_ns is not None or (t - since) / 1e9 > 30
        busiest = max(tree, key=lambda process: process.cpu_ticks)
        if busiest.cpu_ticks > CLOCK_TICKS:
            state.busy_threads = _busy_threads(busiest.pid)

    def _phase(self, state: JobState, past: _Past, t: int) -> str:
        if state.phase != "start-up":
            return ""
        if (state.steps or 0) >= 3:
            return "steps"
        if abs(state.resident_bytes - past.steady_bytes) > STEADY_PART * past.steady_bytes:
            past.steady_bytes, past.steady_since_ns = state.resident_bytes, t
        started_ns = state.started_ns or t
        steady = (t - max(past.steady_since_ns, started_ns)) / 1e9 >= STEADY_S
        return "steady" if steady and state.resident_bytes else ""

    def _read_others(
        self,
        entries: Mapping[int, ProcessEntry],
        trees: Mapping[int, list[ProcessEntry]],
        t: int,
    ) -> None:
        """Cores that others use, smoothed: what their processes took of our cores since last time.

        A process that started and ended between two readings is not seen: only lasting work counts.
        What jobs of other runs use of the cores they hold does not, see core/holdings.py.
        """
        now = cpu_times()
        ours = {process.pid for tree in trees.values() for process in tree} | trees.keys()
        others = {pid: process for pid, process in entries.items() if pid not in ours}
        holds = _held(self.view)
        held = descendants(others, [pid for (pid, _), _ in holds])
        self._held_bytes = {
            keeper: sum(_private_bytes(process) for process in held[keeper[0]])
            for keeper, _ in holds
        }
        if self._others_t is not None:
            passed_s = (t - self._others_t) / 1e9
            busy = cores_busy(self._cpu, now, self.view.machine.host.cores)
            cores = self._ticks(others.values()) / CLOCK_TICKS / passed_s
            for (pid, _), hold in holds:
                cores -= min(self._ticks(held[pid]) / CLOCK_TICKS / passed_s, hold.slots)
            used = max(0.0, min(busy, cores))
            keep = FOREIGN_KEEP**passed_s
            self.view.foreign_cores = keep * self.view.foreign_cores + (1 - keep) * used
        self._cpu, self._others, self._others_t = now, others, t

    def _ticks(self, processes: Iterable[ProcessEntry]) -> int:
        """Clock ticks that processes took since others were read last."""
        ticks = 0
        for process in processes:
            before = self._others.get(process.pid)
            if before is not None and before.start_ticks == process.start_ticks:
                ticks += process.cpu_ticks - before.cpu_ticks
        return ticks


def _held(view: View) -> list[tuple[Process, Hold]]:
    """What jobs of other runs hold, by their keepers."""
    jobs = (hold for run in view.elsewhere.runs for hold in run.jobs)
    return [(hold.keeper, hold) for hold in jobs if hold.keeper is not None]


def _private_bytes(process: ProcessEntry) -> int:
    """Resident memory less shared file pages (libraries), which are nobody's alone."""
    try:
        with open(f"/proc/{process.pid}/statm", "rb") as file:
            fields = file.read().split()
    except OSError:
        return 0
    page = os.sysconf("SC_PAGE_SIZE")
    return (int(fields[1]) - int(fields[2])) * page


def _busy_threads(pid: int) -> int | None:
    """Threads of a process that ran at least a quarter of the busiest one's time."""
    times = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found = entry(int(thread), Path(f"/proc/{pid}/task"))
            if found is not None:
                times.append(found.cpu_ticks)
    except OSError:
        return None
    busiest = max(times, default=0)
    return sum(time >= BUSY_PART * busiest for time in times) if busiest > CLOCK_TICKS else None
