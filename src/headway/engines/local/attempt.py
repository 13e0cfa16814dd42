"""One live attempt as its supervisor holds it, and what its end tells."""

import errno
import os
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from headway.core.recording import Recording, read_folder, summary, why_unseen
from headway.core.run import Run
from headway.core.view import JobState
from headway.core.words import Outcome, StopHow
from headway.engines.local.attempts import AttemptFolder, ExitRecord, Started
from headway.engines.local.last_words import TAIL_BYTES
from headway.engines.local.outcomes import Evidence, Victim, classify, lost_outcome
from headway.system.group import Cgroup
from headway.system.procfs import alive, boot_id

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class Attempt:
    """An attempt that was started or is about to be.

    `pidfd` is the keeper's, readable once the whole tree has ended; -1 before the zygote answered.
    Where the keeper alone was killed the command is an orphan: keeper and pidfd are then the
    command's own. `adopted` says that an earlier life of the run started it. `siblings`,
    `victims_before` (how many kills the kernel's log had told of at its start) and `tree_pids`
    serve the question whose process the kernel killed for memory. `asks` is true while a stop still
    has to send its SIGTERM. `mps` says that it is to be a client of MPS, until that was seen,
    `faults_before` how many errors of GPUs its daemon had told of when it was started;
    `release` is when its processes are off their MPS server, which a stop waits for until
    `release_until_ns`; `served` whether any of them is a client.
    """

    index: int
    folder: AttemptFolder
    keeper_pid: int = 0
    keeper_start: int = 0
    pidfd: int = -1
    cgroup: Cgroup | None = None
    stop: StopHow | None = None
    stop_reason: str = ""
    kill_at_ns: int | None = None
    asks: bool = False
    mps: bool = False
    faults_before: int = 0
    release: Future[str] | None = None
    release_until_ns: int = 0
    served: Future[bool | None] | None = None
    siblings: int = 0
    victims_before: int = 0
    tree_pids: set[int] = field(default_factory=set)
    boot: str = ""
    adopted: bool = False
    orphaned: bool = False


class Surroundings(Protocol):
    """What the world knows about the machine at an attempt's end."""

    victims: Sequence[Victim] | None
    free_bytes: int | None
    host_bytes: int | None


def outcome_of_attempt(
    attempt: Attempt, state: JobState, run: Run, around: Surroundings, *, clock_offset_ns: int
) -> Outcome:
    """How an attempt ended, from its exit record and everything that was seen meanwhile.

    Args:
        attempt: The attempt; its keeper has ended.
        state: The job's state, with the sampled peak.
        run: For the words of a lost attempt.
        around: Kernel's memory kills and free memory.
        clock_offset_ns: Wall clock minus CLOCK_MONOTONIC, to place steps in time.
    """
    record = attempt.folder.read_exit()
    recordings = read_folder(attempt.folder.steps)
    rebooted = attempt.boot != "" and attempt.boot != boot_id()
    # Times of another boot count from another zero.
    steps = _Steps(recordings, state.job.command, None if rebooted else clock_offset_ns)
    share = state.share
    if record is None:
        claim = attempt.folder.read_claim()
        outcome = lost_outcome(
            # A keeper that was watched here died here; otherwise it went with an earlier life.
            "reboot"
            if rebooted
            else "killed"
            if attempt.adopted and attempt.pidfd < 0
            else "keeper",
            run=run.name,
            job=state.job.name,
            keeper_pid=claim.keeper_pid if claim is not None else None,
        )
        return steps.added_to(outcome)
    evidence = Evidence(
        record=record,
        stop=attempt.stop,
        stop_reason=attempt.stop_reason,
        stderr_tail=_tail(attempt.folder),
        cwd=state.job.folder,
        victims=None if around.victims is None else around.victims[attempt.victims_before :],
        tree_pids=frozenset(attempt.tree_pids | _command_pid(attempt.folder)),
        cgroup_path=_kernel_path(attempt.cgroup),
        siblings=attempt.siblings,
        peak_bytes=state.peak_bytes or None,
        cap_bytes=share.cap_bytes if share is not None else None,
        free_bytes=around.free_bytes,
        host_bytes=around.host_bytes,
        devices=share.devices if share is not None else (),
    )
    outcome = classify(evidence)
    # Sampled figures leave out shared library pages, which belong to nobody alone; the kernel's
    # largest process has them, so it only stands in where a job was too short to be sampled.
    peak = state.peak_bytes or record.largest_process_bytes
    if outcome.status == "oom":
        peak = max(peak, outcome.peak_bytes or 0)
    outcome = replace(
        outcome,
        peak_bytes=peak,
        cpu_s=round(record.user_s + record.system_s, 3),
        notes=record.notes,
    )
    return steps.added_to(outcome)


@dataclass(frozen=True, slots=True)
class _Steps:
    """What the recorder saw of an attempt."""

    recordings: Sequence[Recording]
    command: str
    clock_offset_ns: int | None

    def added_to(self, outcome: Outcome) -> Outcome:
        seen = summary(self.recordings)
        if seen is None:
            unseen = why_unseen(self.command, recordings=self.recordings)
            return replace(outcome, unseen=unseen)
        offset_ns = self.clock_offset_ns
        return replace(
            outcome,
            steps=seen.steps,
            step_ns=seen.median_step_ns,
            mean_step_ns=seen.mean_step_ns,
            device_peak_bytes=seen.device_peak_bytes,
            first_step_ns=None if offset_ns is None else seen.first_ns + offset_ns,
        )


def orphan_of(attempt: Attempt) -> Started | None:
    """The command of an attempt whose keeper left no record, where it still runs and is news."""
    started = attempt.folder.read_started()
    if attempt.orphaned or started is None:
        return None
    runs = alive(started.command_pid, started.command_start_ticks, attempt.boot)
    return started if runs else None


def lacked_space(record: ExitRecord) -> bool:
    """Whether the command never ran because the disk had no room for its output files."""
    error = record.spawn_error
    return error is not None and error.number in NO_SPACE and error.what in ("stdout", "stderr")


def _command_pid(folder: AttemptFolder) -> set[int]:
    """The command's own pid: it may have ended before any sample was taken."""
    started = folder.read_started()
    return set() if started is None else {started.command_pid}


def _tail(folder: AttemptFolder) -> bytes:
    try:
        descriptor = os.open(folder.stderr, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL_BYTES))
        return file.read(TAIL_BYTES)


def _kernel_path(cgroup: Cgroup | None) -> str:
    """The tail of the group's path, as the kernel's log names it."""
    if cgroup is None or cgroup.memory_folder is None:
        return ""
    return "/".join(cgroup.memory_folder.parts[-2:])
