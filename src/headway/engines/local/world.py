"""The real world of the queue: processes of this computer.

One thread, one loop turn = commit what must be durable, hand over starts, wait for whatever comes
first (an end, an answer of the zygote, a request, a tick), and turn it into events. Order of a
start: the intent is journalled and synced, then the keeper is asked for, then the keeper links its
claim, then the command runs; so whoever resumes knows which of these happened.
"""

import contextlib
import errno
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from headway.core.errors import NoSpace, UsageError
from headway.core.holdings import Process
from headway.core.job import Job
from headway.core.machine import Device, Machine
from headway.core.plan import Placement, Plan
from headway.core.readings import DeviceUse
from headway.core.run import Run
from headway.core.view import View
from headway.core.words import (
    Action,
    Arrived,
    Cancelled,
    Event,
    Exited,
    Memory,
    MemoryPressure,
    Outcome,
    Phase,
    Replanned,
    Reserve,
    Reshare,
    Retry,
    Settle,
    Start,
    Started,
    Stop,
    StopHow,
    Tick,
    Wait,
)
from headway.engines.local.attempt import (
    NO_SPACE,
    Attempt,
    lacked_space,
    orphan_of,
    outcome_of_attempt,
)
from headway.engines.local.attempts import AttemptFolder, AttemptState, keeper_alive, open_keeper
from headway.engines.local.child import start_request
from headway.engines.local.control import Lock, Requests
from headway.engines.local.device_use import UseOfDevices
from headway.engines.local.faults import Faults
from headway.engines.local.groups import Groups
from headway.engines.local.guard import Guard
from headway.engines.local.history import history
from headway.engines.local.journal import Journal
from headway.engines.local.mps_run import MpsRun
from headway.engines.local.outcomes import ENDED_BY_US
from headway.engines.local.records import Records
from headway.engines.local.sampler import Sampler
from headway.engines.local.sharing import Sharing
from headway.engines.local.stopping import (
    begin_stop,
    confine,
    go_on_stopping,
    hold_back,
    pids_of,
    send,
)
from headway.engines.local.zygote import StartRequest, Zygote, ZygoteDied
from headway.system.procfs import boot_id, open_pidfd

TICK_NS = 1_000_000_000
LOOK_S = 0.25  # requests and free memory
DEVICES_NS = 5_000_000_000  # who uses the devices, while a job waits for one


class LocalWorld:
    """A run under supervision; see `core.policy.LiveWorld` for the protocol.

    Entering takes the run's lock and takes over what the journal tells: attempts that still run are
    adopted, those that ended are collected, an intent without a claim is started once, and a claim
    without keeper and record is lost.

    Raises:
        RunIsLive: Another supervisor holds the run.
        NoSpace: The disk is full (also from `next`); what runs goes on under its keepers.
    """

    def __init__(
        self,
        run: Run,
        plan: Plan,
        jobs: Sequence[Job],
        machine: Machine,
        *,
        recorder: Path | None,
        environment: Mapping[str, str],
    ) -> None:
        self.run = run
        self.jobs = jobs
        self.machine = machine
        self._plan = plan
        self.lock = Lock(run)
        told = history(run, plan, jobs, machine)
        self.history = told
        self.view: View = told.view
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self._recorder = recorder
        self._environment = environment
        self._events: deque[Event] = deque()
        self._attempts: dict[int, Attempt] = {}
        self._to_start: list[int] = []
        self._until: frozenset[int] | None = None
        self._interrupts: list[int] = []
        self._too_early: list[str] = []
        self._disk_full = False
        self._faults = Faults()
        self._boot = boot_id()
        self._next_tick_ns = 0
        self._zygote: Zygote | None = None
        self._look_at_devices: Callable[[], Iterable[Device]] | None = None
        self._next_devices_ns = 0
        self._use = UseOfDevices()
        self._read_use: Callable[[], Mapping[int, DeviceUse]] | None = None
        self._mps: MpsRun | None = None

    # --- context ---------------------------------------------------------------------------------

    def __enter__(self) -> "LocalWorld":
        try:
            self._open()
        except OSError as error:
            self.close()
            raise _translated(error, self.run) from None
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._requests = Requests(self.run)
        self.journal = Journal(self.run.folder)
        self._groups = Groups.discover(self.run.path, earlier=self.history.places)
        self._guard = Guard()
        self._records = Records(self.run.folder, self.view, self._now())
        self._sampler = Sampler(self.view, self._offset_ns)
        self._sharing = Sharing(
            self.run.path,
            self.view,
            counted=self._plan.mode != "naive",
            keeper_of=self._keeper_of,
        )
        notes = [self._groups.note] if self._groups.note and not self.history.lives else []
        if self.history.began_ns is None:
            self.history.began_ns = self._now()
        life = {"boot": self._boot, "groups": self._groups.folders, "supervisor": os.getpid()}
        self.journal.note(self._now(), {"k": "open", **life, "notes": notes})
        if self._plan.division.way == "mps":
            self._mps = MpsRun(
                self.run.path,
                self.machine,
                self.view,
                environment=self._environment,
                kept=self.history.mps,
            )
            self._keep_mps()
        for index in list(self.view.running):
            self._adopt(index)
        self._sharing.refresh()
        self._events.extend(self._unanswered())
        self._events.extend(Arrived(self._now(), index) for index in self.view.arrivals())
        self._events.append(Tick(self._now()))
        self._forget_lost_followers()

    def _keep_mps(self) -> None:
        """Journal which MPS daemon is the run's, where it is another one than before."""
        kept = self._mps.host.kept if self._mps is not None else None
        if kept != self.history.mps:
            self.history.mps = kept
            self.journal.note(self._now(), {"k": "mps", "daemon": kept})

    def close(self) -> None:
        """Release everything but what still runs under its keepers."""
        if self._mps is not None:
            self._mps.host.close(keep=bool(self._attempts))
        if hasattr(self, "journal"):
            with contextlib.suppress(OSError):
                self.journal.commit()
            self.journal.close()
            self._requests.close()
        if hasattr(self, "_sharing"):
            self._sharing.close()
        if hasattr(self, "_records"):
            self._records.close()
            self._guard.close()
        if self._zygote is not None:
            self._zygote.close()
        for attempt in self._attempts.values():
            if attempt.pidfd >= 0:
                os.close(attempt.pidfd)
        if hasattr(self, "_groups"):
            self._groups.close(keep=bool(self._attempts))
        if hasattr(self, "_selector"):
            self._selector.close()
            self._woken.close()
            self._waker.close()
        self.lock.close()

    # --- the protocol of a world -----------------------------------------------------------------

    def recall(self) -> Memory | None:
        """The policy's memory as the journal has it."""
        return self.history.memory

    def remember(self, memory: Memory) -> None:
        """Keep the policy's memory in the journal."""
        self.journal.note(self._now(), {"k": "memory", "memory": dict(memory)})

    def replan(self, placements: Mapping[int, Placement], reason: str) -> None:
        """Give jobs that wait these placements, and keep them in the journal."""
        if placements:
            kept = {index: one.model_dump(mode="json") for index, one in placements.items()}
            self.journal.note(self._now(), {"k": "replan", "reason": reason, "placements": kept})
            self.view.replan(placements)
        self._events.append(Replanned(self._now()))

    def next(self) -> Event | None:
        """The next event, waiting for it if need be; None when all that is wanted is settled.

        Raises:
            NoSpace: The disk is full.
        """
        try:
            while True:
                while self._events:
                    event = self._events.popleft()
                    if self._valid(event):
                        return self._happened(event)
                if self._finished():
                    # Before the result is written: whoever resumes an ended run does nothing.
                    self._groups.close(keep=bool(self._attempts))
                    return None
                if self._disk_full:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._commit()
                self._wait()
        except OSError as error:
            raise _translated(error, self.run) from None

    def perform(self, *actions: Action) -> bool:
        """Journal it, let the view say so, do it; False where another run was faster."""
        takes = any(isinstance(action, Start | Reshare) for action in actions)
        if takes and not self._sharing.take(actions, self._now()):
            return False
        for action in actions:
            self._do(action)
        return True

    def _do(self, action: Action) -> None:
        todo: list[Action] = [action]
        while todo:
            action = todo.pop()
            t = self._now()
            self.journal.word(t, action)
            concerned = self.view.apply(action, t)
            match action:
                case Start(job):
                    self._to_start.append(job)
                case Stop(job, how, reason):
                    self._stop(job, how, reason)
                case Reshare(job, cores):
                    confine(self._attempts[job], cores)
                case Reserve() | Wait():
                    self._sharing.stale = True
                case Retry(job):
                    self._events.append(Tick(t))
                case Settle():
                    arrived, cancelled = self.view.follow(action, concerned)
                    self._events.extend(Arrived(t, index) for index in arrived)
                    self._events.extend([Tick(t)] if arrived else [])
                    todo.extend(cancelled)

    @property
    def began_ns(self) -> int:
        """When the run began, in ns since the epoch, in whichever of its lives."""
        return self.history.began_ns or self._now()

    @property
    def notes(self) -> Sequence[str]:
        """What the engine has to say about the run, in words."""
        return self.history.notes

    # --- what users ask for ----------------------------------------------------------------------

    def interrupt(self, level: int) -> None:
        """Safe in a signal handler. 1: start nothing new; 2: stop what runs; 3: kill it now."""
        self._interrupts.append(level)
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"!")

    def cancel(self, names: Collection[str]) -> None:
        """Cancel jobs in whatever state they are; what has ended stays as it ended."""
        for name in names:
            index = self.view.by_name.get(name)
            state = self.view.states[index] if index is not None else None
            if state is None or state.final:
                continue
            if state.index in self._attempts:
                if self._attempts[state.index].stop != "cancel":
                    self.perform(Stop(state.index, "cancel", "cancelled by the user"))
            elif state.status == "running":
                self._too_early.append(name)  # it has just ended: its exit comes first
            else:
                self.perform(Settle(state.index, "cancelled", "cancelled by the user"))
                self._events.append(Cancelled(self._now(), state.index))

    def again(self, indices: Collection[int]) -> None:
        """Settled jobs shall run again: `retry`."""
        wanted = [index for index in sorted(indices) if self.view.states[index].final]
        for index in wanted:
            self.journal.note(self._now(), {"k": "again", "job": index})
            self.view.reopen(index)
        # With those that waited already, so that all join the queue in its order.
        others = [event for event in self._events if not isinstance(event, Arrived)]
        arrivals = [Arrived(self._now(), index) for index in self.view.arrivals()]
        self._events = deque([*others, *arrivals, Tick(self._now())])
        self._forget_lost_followers()

    def see_devices_with(self, look: Callable[[], Iterable[Device]]) -> None:
        """How to read the machine's devices again: others come to them and leave them."""
        self._look_at_devices = look

    def watch_use_with(self, read: Callable[[], Mapping[int, DeviceUse]]) -> None:
        """How to read what the machine's devices do, by their indexes."""
        self._read_use = read

    def only(self, indices: Collection[int]) -> None:
        """Start nothing, and let `next` end as soon as these jobs are settled."""
        self.view.draining = True
        self._until = frozenset(indices)

    # --- events ----------------------------------------------------------------------------------

    def _now(self) -> int:
        return time.monotonic_ns() + self._offset_ns

    def _valid(self, event: Event) -> bool:
        """False for an arrival that something else has overtaken."""
        return not isinstance(event, Arrived) or self.view.ready(event.job)

    def _unanswered(self) -> list[Event]:
        """Ends that an earlier life journalled, and then was killed before the policy's answer."""
        return [
            Exited(self._now(), state.index, state.outcome)
            for state in self.view.states
            if state.status == "running" and state.index not in self.view.running and state.outcome
        ]

    def _happened(self, event: Event) -> Event:
        if isinstance(event, Exited) and event.job not in self.view.running:
            return event  # the journal and the view have it already
        if not isinstance(event, Replanned | Tick):
            self.journal.word(event.t, event)
        self.view.apply(event, event.t)
        if isinstance(event, Exited):
            state = self.view.states[event.job]
            if event.outcome.stopped is None:  # what was cut short says nothing of its script
                took_ns = event.t - (state.started_ns or event.t)
                peak_bytes = event.outcome.peak_bytes or 0
                self._groups.learn(state.job.script, took_ns=took_ns, peak_bytes=peak_bytes)
            self._records.attempt_ended(state, event.t)
            self._sharing.stale = True
        return event

    def _note(self, text: str) -> None:
        """Something that belongs into the report."""
        self.journal.note(self._now(), {"k": "note", "text": text})
        self.history.notes.append(text)

    def _finished(self) -> bool:
        if self._until is not None:
            return all(self.view.states[index].final for index in self._until)
        if self.view.draining:
            return not self._attempts and not self._to_start
        return self.view.unsettled == 0

    def _forget_lost_followers(self) -> None:
        """Settle jobs whose predecessor had its last word before they were reopened."""
        for settle in self.view.abandoned():
            self.perform(settle)

    # --- one loop turn ---------------------------------------------------------------------------

    def _commit(self) -> None:
        if self._sharing.stale:
            self._sharing.update()
        if self._to_start:
            self.journal.commit()
            self._faults.strike("after-intent")
            starting, self._to_start = self._to_start, []
            for index in starting:
                self._start(index)
        else:
            self.journal.write()

    def _wait(self) -> None:
        timeout_s = max(0.0, min((self._next_tick_ns - self._now()) / 1e9, self._look_s()))
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._woken:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(64)
            elif key.data is None:
                self._answers()
            else:
                self._ended(self._attempts[key.data])
        self._obey_interrupts()
        too_early, self._too_early = self._too_early, []
        self.cancel(too_early)
        for request in self._requests.take():
            if request.get("verb") == "cancel":
                self.cancel([str(name) for name in request["jobs"]])
        self._watch_memory()
        for attempt in self._attempts.values():
            go_on_stopping(attempt, now_ns=self._now())
        if self._now() >= self._next_tick_ns:
            self._tick()

    def _look_s(self) -> float:
        return min(LOOK_S, self._guard.look_s) if self._attempts else LOOK_S

    def _tick(self) -> None:
        t = self._now()
        self._next_tick_ns = t + TICK_NS
        for index, phase in self._sampler.take(self._attempts.values(), t):
            self._events.append(Phase(t, index, "steps" if phase == "steps" else "steady"))
        if self._read_use is not None and self._attempts:
            self._use.take(self.view, self._read_use())
        if self._attempts:
            self._records.sample(t)
            self.journal.commit()
        self._groups.sweep()
        self._watch_devices(t)
        if self._mps is not None:
            for words in self._mps.look(t, self._attempts.values()):
                self._note(words)
            self._keep_mps()
        self._sharing.refresh()
        while self._sharing.notes:
            self._note(self._sharing.notes.popleft())
        self._events.append(Tick(t))

    def _watch_devices(self, t: int) -> None:
        if self._look_at_devices is None or t < self._next_devices_ns:
            return
        if self._mps is not None and self._mps.faulty:
            return
        if any(self.view.states[index].placement.devices for index in self.view.waiting):
            self._next_devices_ns = t + DEVICES_NS
            self.view.see_devices(self._look_at_devices())

    def _watch_memory(self) -> None:
        running = self.view.running.values()
        ours = sum(state.resident_bytes for state in running)
        self._guard.covered = self.view.free_bytes >= 0 and all(
            state.share is not None and state.resident_bytes <= state.share.reserved_bytes
            for state in running
        )
        room = self._guard.look()
        used = self.view.capacity_bytes - room.free_bytes if room is not None else 0
        if room is not None:
            # What is gone of the capacity and is not our jobs' is others'.
            self.view.foreign_bytes = max(0, used - ours - self._sampler.held_bytes())
            if self._guard.tight and len(self._attempts) > 1:
                self._events.append(MemoryPressure(self._now(), room.free_bytes))

    def _obey_interrupts(self) -> None:
        while self._interrupts:
            level = self._interrupts.pop(0)
            self.view.draining = True
            self._events.append(Tick(self._now()))  # also tells whoever watches that it was heard
            if level < 2:
                continue
            for attempt in list(self._attempts.values()):
                if attempt.stop is None:
                    self.perform(
                        Stop(attempt.index, "interrupt", "stopped with the run (Ctrl-C or SIGTERM)")
                    )
                if level > 2:
                    attempt.kill_at_ns = self._now()

    # --- starting --------------------------------------------------------------------------------

    def _start(self, index: int) -> None:
        state = self.view.states[index]
        share = state.share
        assert share is not None
        folder = AttemptFolder.of(self.run.path, job=index + 1, attempt=state.attempt)
        folder.make()
        self._guard.look_at_kernel()
        attempt = Attempt(
            index,
            folder,
            boot=self._boot,
            siblings=len(self._attempts),
            victims_before=len(self._guard.victims or ()),
        )
        for other in self._attempts.values():
            other.siblings += 1
        attempt.cgroup = self._groups.create(
            _group_name(index, state.attempt),
            script=state.job.script,
            cap_bytes=share.cap_bytes,
            cores=share.cores,
        )
        self._attempts[index] = attempt
        mps = self._mps.variables(attempt, state) if self._mps is not None else {}
        request = start_request(
            attempt,
            state.job,
            share,
            self.machine,
            environment=self._environment,
            recorder=self._recorder,
            inherited_memory=self._groups.inherited_memory,
            fault=self._faults.for_keeper(),
            mps=mps,
        )
        self._submit(request)
        self._faults.strike("after-spawn")

    def _submit(self, request: StartRequest) -> None:
        for _ in range(3):
            if self._zygote is None or not self._zygote.alive:
                self._replace_zygote()
            assert self._zygote is not None
            try:
                self._zygote.submit(request)
            except ZygoteDied:
                continue
            return
        raise UsageError("the process that starts jobs keeps dying; see supervisor messages above")

    def _replace_zygote(self) -> None:
        """Start a zygote; what the dead one left unanswered is told by the claims."""
        dead, self._zygote = self._zygote, Zygote.start(self._environment)
        if dead is not None:
            self._selector.unregister(dead.fileno())
        self._selector.register(self._zygote.fileno(), selectors.EVENT_READ, None)
        if dead is None:
            return
        for index in dead.unanswered:
            if index in self._attempts and not self._attempts[index].keeper_pid:
                self._take_over(self._attempts[index])
        dead.close()

    def _answers(self) -> None:
        assert self._zygote is not None
        zygote = self._zygote
        for reply in zygote.replies():
            attempt = self._attempts.get(reply.identifier)
            if attempt is None:
                continue
            if reply.keeper_pid is None or reply.keeper_start_ticks is None:
                self._not_started(attempt, reply.error or "no keeper could be made")
                continue
            self._faults.strike("after-claim")
            state = self.view.states[attempt.index]
            self._events.append(Started(self._now(), attempt.index, state.attempt))
            self._keep(attempt, reply.keeper_pid, reply.keeper_start_ticks)
        if not zygote.alive:
            self._replace_zygote()

    def _keep(self, attempt: Attempt, pid: int, start_ticks: int) -> None:
        """Watch a keeper through its pidfd; one that is gone already has ended."""
        attempt.keeper_pid, attempt.keeper_start = pid, start_ticks
        descriptor = open_pidfd(pid, start_ticks)
        if descriptor is None:
            self._ended(attempt)
            return
        attempt.pidfd = descriptor
        self._selector.register(descriptor, selectors.EVENT_READ, attempt.index)

    def _not_started(self, attempt: Attempt, why: str) -> None:
        if attempt.folder.link_void_claim():
            if any(os.strerror(number) in why for number in NO_SPACE):
                self._disk_full = True
                self._never_started(attempt)
                return
            self._leave(attempt, Outcome("failed", cause=f"could not be started: {why}"))
        else:
            self._take_over(attempt)

    # --- taking over -----------------------------------------------------------------------------

    def _adopt(self, index: int) -> None:
        state = self.view.states[index]
        folder = AttemptFolder.of(self.run.path, job=index + 1, attempt=state.attempt)
        boot = self.history.boots.get(index, "")
        siblings = len(self.view.running) - 1
        attempt = Attempt(index, folder, boot=boot, siblings=siblings, adopted=True)
        name = _group_name(index, state.attempt)
        attempt.cgroup = self._groups.reopen(self.history.groups.get(index, {}), name)
        if index in self.history.stops:
            attempt.stop, attempt.stop_reason = self.history.stops[index]
            attempt.kill_at_ns = self._now()
        self._attempts[index] = attempt
        self._take_over(attempt)

    def _take_over(self, attempt: Attempt) -> None:
        """Find out what became of an attempt that an earlier life started, or meant to."""
        match attempt.folder.state():
            case AttemptState.UNCLAIMED if attempt.boot == self._boot:
                if attempt.folder.link_void_claim():
                    self._never_started(attempt)
                else:
                    self._take_over(attempt)
            case AttemptState.VOID:
                self._never_started(attempt)
            case AttemptState.RUNNING:
                claim = attempt.folder.read_claim()
                descriptor = open_keeper(claim) if claim is not None else None
                if claim is None or descriptor is None or claim.keeper_pid is None:
                    self._ended(attempt)
                    return
                os.close(descriptor)
                self._keep(attempt, claim.keeper_pid, claim.keeper_start_ticks or 0)
            case _:
                # Ended or lost. An intent of another boot without a claim is lost too: the claim
                # may not have reached the disk, and nothing runs twice.
                self._ended(attempt)

    def _never_started(self, attempt: Attempt) -> None:
        cause = "Headway ended before it was started"
        self._leave(attempt, Outcome("cancelled", cause=cause, stopped="interrupt"))

    # --- ending ----------------------------------------------------------------------------------

    def _ended(self, attempt: Attempt) -> None:
        """A keeper is gone, so its whole tree is: collect what it left."""
        claim = attempt.folder.read_claim()
        if claim is not None and keeper_alive(claim) and attempt.pidfd < 0:
            return  # it was taken for gone too early; its pidfd will tell
        record = attempt.folder.read_exit()
        if record is None and self._watch_orphan(attempt):
            return
        self._faults.strike("after-result")
        state = self.view.states[attempt.index]
        if record is not None and lacked_space(record):  # its log could not be made
            self._disk_full = self._disk_full or not attempt.adopted
            self._never_started(attempt)
            return
        self._guard.look_at_kernel()
        outcome = outcome_of_attempt(
            attempt, state, self.run, self._guard, clock_offset_ns=self._offset_ns
        )
        outcome = self._use.told(attempt.index, outcome)
        if self._mps is not None:
            outcome = self._mps.told(attempt, outcome)
        self._leave(attempt, outcome)

    def _watch_orphan(self, attempt: Attempt) -> bool:
        """A keeper alone was killed: the attempt is lost, but only once its command has ended.

        Until then it holds its share, so that no retry ever runs beside it.
        """
        orphan = orphan_of(attempt)
        if orphan is None:
            send(attempt, signal.SIGKILL)  # what its background still has in its group
            return False
        self._unwatch(attempt)
        attempt.orphaned = True
        self._keep(attempt, orphan.command_pid, orphan.command_start_ticks)
        return True

    def _keeper_of(self, index: int) -> Process | None:
        attempt = self._attempts.get(index)
        if attempt is None or not attempt.keeper_pid:
            return None
        return attempt.keeper_pid, attempt.keeper_start

    def _unwatch(self, attempt: Attempt) -> None:
        if attempt.pidfd >= 0:
            self._selector.unregister(attempt.pidfd)
            os.close(attempt.pidfd)
            attempt.pidfd = -1

    def _leave(self, attempt: Attempt, outcome: Outcome) -> None:
        self._unwatch(attempt)
        self._groups.discard(attempt.cgroup)
        self._sampler.forget(attempt.index)
        del self._attempts[attempt.index]
        self._events.append(Exited(self._now(), attempt.index, outcome))

    # --- stopping --------------------------------------------------------------------------------

    def _stop(self, job: int, how: StopHow, reason: str) -> None:
        if job in self._attempts:
            attempt = self._attempts[job]
            if self._mps is not None:
                hold_back(attempt, self._mps.host.release(pids_of(attempt)), now_ns=self._now())
            begin_stop(attempt, how, reason, now_ns=self._now())
        else:  # decided in this very turn: nobody was asked to start it yet
            self._to_start.remove(job)
            outcome = Outcome(ENDED_BY_US[how], cause=reason, stopped=how)
            self._events.append(Exited(self._now(), job, outcome))


def _group_name(index: int, attempt: int) -> str:
    return f"{index + 1}-{attempt}"


def _translated(error: OSError, run: Run) -> Exception:
    if error.errno in NO_SPACE:
        return NoSpace(
            f"no space left on the disk of {run.path}: nothing new is started, what runs goes on. "
            f"Free some space, then: headway run --resume {run.path}"
        )
    return error
