"""Who is let in when: in the queue's order, as far as there is room. What policies share.

Memory. A job reserves the larger of what it declared and what it was measured to need before; where
that is not known, of what it declared, the 95th percentile of ended attempts of the same script,
and a fair share (an equal part of all memory, or of what is not reserved yet where that is less).
That holds until its first steps, or five seconds of steady memory where steps cannot be seen; from
then on the larger of declared and its own peak with a margin. When the host runs low the newest job
stops, waits for room with a corrected reservation, and runs again.

Order. By priority, then by rank in the plan, then by the file. The first job that does not fit
beside the others may be overtaken, but only by `patience` jobs: then nothing new starts before it
(packing with ageing, so that a wide job is never starved by small ones). A job that would not start
on a machine without our jobs either (its group is not complete, others hold the memory) holds
nobody back.

Cores. Those that would stay idle go to the jobs that start now, with as many threads, as far as
their placements allow: where nobody else waits, or none of those that wait has memory to start.

Devices. A `DeviceRule` says which ones a job is given, and whether others may be on them too. An
out-of-memory on a device says nothing of the host's memory: the next attempt reserves the same.

Other runs. What they hold is neither free nor foreign, and of the runs that want cores each has its
turn (core/holdings.py). The first job that waits says what it would take if they held nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headway.core.holdings import slots_held
from headway.core.units import NS_PER_S, show_bytes, show_seconds
from headway.core.view import JobState, View
from headway.core.words import (
    Action,
    Arrived,
    Event,
    Exited,
    Memory,
    MemoryPressure,
    Outcome,
    Phase,
    Replan,
    Reserve,
    Reshare,
    Retry,
    Settle,
    Share,
    Start,
    Started,
    Stop,
    Tick,
    Wait,
)
from headway.planners.admission.devices import DeviceRule, belongs
from headway.planners.admission.room import Room, milli_of, tenancies

# A peak of the first steps grows a little later (allocator, evaluation): measured MLP, LSTM and
# loader jobs stay within 8% of it; a reservation that is too small costs a stopped job.
PEAK_MARGIN = 1.15
# After an out-of-memory the true need is unknown, only that it was more than what was there.
OOM_FACTOR = 1.3
# Nothing known about a job and less than this part of an equal share left: starting it would only
# make the guard stop it during its imports.
SLIVER = 0.25
LOOKAHEAD = 256
# Shorter jobs teach nothing: their time is start-up and noise.
LEARNT_NS = NS_PER_S


@dataclass(frozen=True, slots=True)
class Admission:
    """First come, first served, with room for what fits beside.

    Args:
        devices: Which devices a job is given.
        slots: How many cores' worth of jobs run at once; None: no limit.
        extra: How many more, where jobs that are free to move leave cores idle.
        pin: Each job gets cores of its own.
        admit: Jobs are held back for memory of the host.
        patience: How many may overtake the first one that has to wait.
        oom_retries: How often an out-of-memory is tried again.
        learns: Another plan is asked for whenever a job has ended well.
    """

    devices: DeviceRule
    slots: int | None
    extra: int
    pin: bool
    admit: bool
    patience: int
    oom_retries: int
    learns: bool

    def start(self) -> Memory:
        """Nobody has been overtaken yet."""
        return {"blocked": None, "overtaken": 0}

    def decide(self, memory: Memory, event: Event, view: View) -> tuple[Memory, Sequence[Action]]:
        """Answer one event; see the module's text for the rules."""
        if isinstance(event, MemoryPressure):
            return memory, list(self._relieve(view, event.free_bytes))
        actions: list[Action] = []
        if isinstance(event, Exited):
            state = view.states[event.job]
            actions.append(self._after(state, event, view))
            lasted_ns = event.t - (event.t if state.started_ns is None else state.started_ns)
            ended_well = event.outcome.status == "ok" and lasted_ns >= LEARNT_NS
            if self.learns and ended_well and view.waiting:
                # What starts next is decided on the answer, a Replanned.
                return memory, [*actions, Replan(f"{state.job.name} ended")]
        elif isinstance(event, Arrived):
            reason = self._never_fits(view.states[event.job], view)
            if reason:
                return memory, [Settle(event.job, "infeasible", reason)]
        elif isinstance(event, Tick):
            spare = sorted(view.free_cores)
            for state in view.running.values():
                actions.extend(self._look_after(state, view, spare))
        # All that arrive at one instant are there before anyone starts: a Tick follows them. A
        # start or a first step gives nothing free: reservations are corrected at ticks.
        if not view.draining and not isinstance(event, Arrived | Started | Phase):
            memory, starts = self._fill(memory, view)
            actions.extend(starts)
        return memory, actions

    # --- who starts ------------------------------------------------------------------------------

    def _fill(self, memory: Memory, view: View) -> tuple[Memory, list[Action]]:
        actions: list[Action] = []
        room = self._room(view)
        blocked: int | None = None
        overtaken = 0
        tried: set[str] = set()
        for index in view.waiting[:LOOKAHEAD]:
            # The first one is always told what other runs keep from it.
            told = index == view.waiting[0] and view.elsewhere.runs
            if (room.full and not told) or (blocked is not None and overtaken >= self.patience):
                break
            state = view.states[index]
            group = state.job.group
            if group is not None and group in tried:
                continue
            if blocked is not None and (
                self._still_too_wide(state, room, view) or self._still_too_large(state, room, view)
            ):
                continue
            members = [state]
            if group is not None:
                tried.add(group)
                members = [
                    m for m in map(view.states.__getitem__, view.groups[group]) if not m.final
                ]
            shares, reason = self._shares(members, room, view)
            if shares:
                actions.extend(
                    Start(member.index, share)
                    for member, share in zip(members, shares, strict=True)
                )
                overtaken += len(shares) if blocked is not None else 0
                continue
            wants = 0
            if blocked is None and view.elsewhere.runs:
                wants, words = self._kept_by_others(members, room, view)
                reason += words
            actions.extend(
                Wait(m.index, reason, (wants or None) if m is state else None)
                for m in members
                if m.queued and (m.wait_reason, m.wants) != (reason, wants if m is state else 0)
            )
            if blocked is None and (
                wants or self._shares(members, self._room(view, empty=True), view)[0]
            ):
                blocked = index
                overtaken = memory["overtaken"] if memory["blocked"] == index else 0
        actions = self._widened(actions, room, view)
        new = {"blocked": blocked, "overtaken": overtaken}
        # Where nothing could be looked at, nothing new is known of who was overtaken.
        return (memory if new == memory or blocked is None else new), actions

    def _widened(self, actions: list[Action], room: Room, view: View) -> list[Action]:
        """The starts with the cores that stay idle otherwise: whoever waits cannot use them now."""
        able = [
            place
            for place, action in enumerate(actions)
            if isinstance(action, Start) and self._most_cores(action, view) > 0 and not room.line
        ]
        widened = list(actions)
        for count, place in zip(range(len(able), 0, -1), able, strict=True):
            start = actions[place]
            assert isinstance(start, Start)
            free = [len(room.cores), room.slots or 0]
            spare = min([*free, room.left] if room.left is not None else free) // count
            extra = tuple(room.cores[: min(spare, self._most_cores(start, view))])
            if extra:
                cores = tuple(sorted((*(start.share.cores or ()), *extra)))
                share = replace(start.share, cores=cores, threads=len(cores))
                widened[place] = replace(start, share=share)
                room.take(Share(cores=extra), len(extra), len(extra))
        return widened

    def _most_cores(self, start: Start, view: View) -> int:
        """How many cores more a job may be given than its share has."""
        state = view.states[start.job]
        share = start.share
        # A retry gets the same count of threads again, and a count of the user's is never changed.
        if state.attempt or share.cores is None or share.threads is None:
            return 0
        return max(0, (state.placement.most_cores or 0) - len(share.cores))

    def _still_too_wide(self, state: JobState, room: Room, view: View) -> bool:
        """Whether a job waits for more cores than are free, and was told so: nothing is new."""
        width = self._width(state, view)
        return (
            room.slots is not None
            and room.running > 0
            and width > room.slots
            and state.wait_reason == _waits_for(width)
        )

    def _still_too_large(self, state: JobState, room: Room, view: View) -> bool:
        """Whether a job waits for more memory than is left, and was told so: nothing is new."""
        needed = self._least_reservation(state, view)
        return (
            self.admit
            and room.beside > 0
            and needed > room.bytes
            and state.wait_reason.startswith(_waits_for_bytes(needed))
        )

    def _room(self, view: View, *, empty: bool = False) -> Room:
        """What is free to give; `empty`: what would be, without any job of ours."""
        slots = self._slots(view)
        if slots is not None and slots > 1:
            # Others' work counts once it lasts (the view's figure is smoothed over 20 s), and a
            # core that is mostly idle is still worth a job.
            slots = max(1, slots - int(view.foreign_cores + 0.1))
        left = self._left_by_others(view)
        running = list(view.running.values())
        shares = [state.share for state in running if state.share is not None]
        if empty:
            held = {device for share in shares for device in share.devices}
            return Room(
                slots=slots,
                cores=sorted(view.machine.host.cores),
                devices=sorted(view.free_devices | held),
                bytes=view.free_bytes + view.reserved_bytes,
                left=left,
                others=view.elsewhere.jobs,
            )
        used = sum(self._taken(state, view) for state in running)
        taken = sum(_held(state.share, state, view) for state in running if state.share)
        line = view.elsewhere.line(view.free_cores) if slots is not None else []
        ours = (taken, view.served_ns)
        return Room(
            slots=None if slots is None else max(0, slots - used),
            cores=sorted(view.free_cores),
            devices=sorted(view.free_devices),
            bytes=view.free_bytes,
            running=len(running),
            tenants=tenancies(running),
            exclusive=any(share.alone for share in shares),
            left=None if left is None else left - taken,
            held=taken,
            others=view.elsewhere.jobs,
            line=line,
            first=line[0] if line and line[0].turn < ours else None,
        )

    def _left_by_others(self, view: View) -> int | None:
        """Cores that other runs leave to all of our jobs; None where they hold none."""
        if self.slots is None or not view.elsewhere.slots:
            return None
        left = view.machine.usable_cores - view.elsewhere.slots
        # As with our own slots: foreign work makes it less, but never nothing.
        return max(1, left - int(view.foreign_cores + 0.1)) if left > 1 else left

    def _kept_by_others(self, members: list[JobState], room: Room, view: View) -> tuple[int, str]:
        """What other runs keep from these jobs: cores they would take at once, and the words."""
        others = view.elsewhere
        held = [d.index for d in view.machine.devices if d.uuid in others.devices]
        if not self._shares(members, room.without(others, held), view)[0]:
            return 0, ""
        words = f"; {others.words}" if others.words else ""
        trial = room.without(others)
        before = trial.held
        # Who waits for a device of theirs as well has no use for a core before that.
        if self.slots is None or not self._shares(members, trial, view)[0]:
            return 0, words
        return trial.held - before, words

    def _slots(self, view: View) -> int | None:
        """Cores' worth of jobs at once; a resumed run may find fewer cores than planned for."""
        if self.slots is None:
            return None
        return min(self.slots, view.machine.usable_cores) + self.extra

    def _width(self, state: JobState, view: View) -> int:
        """Slots that a job takes."""
        slots = self._slots(view)
        return min(
            state.placement.cores or 1, view.machine.usable_cores if slots is None else slots
        )

    def _taken(self, state: JobState, view: View) -> int:
        """Slots that a running job takes: it may have been given idle cores beside its own."""
        cores = state.share.cores if state.share is not None and not state.confined else None
        return max(len(cores or ()), self._width(state, view))

    def _shares(self, members: list[JobState], room: Room, view: View) -> tuple[list[Share], str]:
        """Shares for all members together, or none and the reason in words; takes the room."""
        if not all(state.queued for state in members):
            return [], f"waits until all of group {members[0].job.group} can start"
        trial = room.copy()
        trial.kept_bytes = sum(state.job.memory_bytes or 0 for state in members)
        trial.kept_slots = sum(self._width(state, view) for state in members)
        shares = []
        for state in members:
            share, reason = self._share(state, trial, view)
            if share is None:
                return [], reason
            shares.append(share)
        ahead = room.ahead(trial.held)
        if ahead is not None:
            return [], f"gives way to {ahead.who}, which waits for {_free_cores(ahead.wants)}"
        room.become(trial, shares)
        return shares, ""

    def _share(self, state: JobState, room: Room, view: View) -> tuple[Share | None, str]:
        width = self._width(state, view)
        if room.exclusive or (state.placement.alone and room.beside):
            return None, "waits to have the machine to itself"
        # With nothing beside it a job starts however few slots others' work leaves.
        if room.slots is not None and width > room.slots and room.running:
            return None, _waits_for(width)
        pinned = tuple(room.cores[:width]) if self.pin else None
        held = _held(Share(cores=pinned, alone=state.placement.alone), state, view)
        if room.left is not None and max(held, width) > room.left:
            return None, _waits_for(max(held, width))
        grant, reason = self.devices.grant(state, room, view)
        if grant is None:
            return None, reason
        if pinned is not None and len(pinned) < width:
            return None, f"waits for {width} cores of its own"
        declared = state.job.memory_bytes
        room.kept_bytes -= declared or 0
        reserved = self._reservation(state, room, view) if self.admit else 0
        if self.admit:
            reason = self._short_of_memory(state, reserved, room, view)
            if reason:
                return None, reason
        if not room.beside:
            # Alone it may try with less than a learnt or corrected figure.
            reserved = min(reserved, max(0, room.bytes - room.kept_bytes))
        share = Share(
            cores=pinned,
            threads=state.threads if state.attempt else state.placement.threads,
            reserved_bytes=reserved,
            # After an out-of-memory the corrected reservation is the cap: the old one killed it.
            cap_bytes=max(declared or 0, reserved) if state.placement.cap_memory else None,
            devices=grant.devices,
            device_bytes=grant.bytes,
            device_part=grant.part,
            alone=state.placement.alone,
        )
        room.take(share, width, held)
        room.lodge(share, milli_of(state))
        return share, ""

    def _short_of_memory(self, state: JobState, reserved: int, room: Room, view: View) -> str:
        """Why a job has to wait for memory, or an empty string."""
        free_bytes = room.bytes - room.kept_bytes
        free = show_bytes(max(0, free_bytes))
        declared = state.job.memory_bytes or 0
        if not room.beside:
            # Never with less than what the user said it needs.
            if declared <= free_bytes:
                return ""
            others = show_bytes(view.foreign_bytes)
            return f"{_waits_for_bytes(declared)}: {free} free, others use {others}"
        known = (
            state.reserved_bytes
            or declared
            or state.placement.expected_bytes
            or view.peak_of_script(state.job.script)
        )
        if reserved > free_bytes:
            return f"{_waits_for_bytes(reserved)}: {free} not reserved"
        if not known and reserved < SLIVER * view.capacity_bytes / (self._slots(view) or 1):
            return f"waits for memory: {free} not reserved, and its need is not known yet"
        return ""

    def _reservation(self, state: JobState, room: Room, view: View) -> int:
        """Bytes to reserve at the start."""
        least = self._least_reservation(state, view)
        sure = state.reserved_bytes is not None or state.placement.expected_bytes is not None
        if sure or (state.placement.cap_memory and state.job.memory_bytes is not None):
            return least
        return max(least, self._fair_share(state, room, view))

    def _least_reservation(self, state: JobState, view: View) -> int:
        """What is reserved however much is left; a declared cap is kept exactly as declared."""
        declared = state.job.memory_bytes
        if state.reserved_bytes is not None:
            return state.reserved_bytes
        if state.placement.cap_memory and declared is not None:
            return declared
        expected = state.placement.expected_bytes
        if expected is None:
            expected = int((view.peak_of_script(state.job.script) or 0) * PEAK_MARGIN)
        return max(declared or 0, expected)

    def _fair_share(self, state: JobState, room: Room, view: View) -> int:
        """An equal part of all memory for its width, or of what is left where that is less."""
        width = self._width(state, view)
        slots = max(room.slots or 1, room.kept_slots, width)
        left = (room.bytes - room.kept_bytes) * width // slots
        usable = view.free_bytes + view.reserved_bytes
        return max(0, min(left, usable * width // max(self._slots(view) or 1, width)))

    def _never_fits(self, state: JobState, view: View) -> str:
        """Why a job, or one of those it starts together with, can never be placed here."""
        reason = self._one_never_fits(state, view)
        for index in view.groups.get(state.job.group or "", ()):
            other = view.states[index]
            if not reason and other is not state and belongs(other):
                reason = self._one_never_fits(other, view)
                reason = reason and f"starts together with {other.job.name}, which {reason}"
        return reason

    def _one_never_fits(self, state: JobState, view: View) -> str:
        host, job = view.machine.host, state.job
        cores = view.machine.usable_cores
        if job.cores is not None and job.cores > cores:
            return f"needs {job.cores} cores, this machine has {cores}; lower cores="
        if job.memory_bytes is not None and job.memory_bytes > view.capacity_bytes:
            return (
                f"needs {show_bytes(job.memory_bytes)}, this machine has "
                f"{show_bytes(view.capacity_bytes)} for jobs ({host.memory_source}); lower memory="
            )
        reason = self.devices.never(state, view)
        if reason:
            return reason
        return self._group_never_fits(job.group, view) if job.group is not None else ""

    def _group_never_fits(self, group: str, view: View) -> str:
        """Why the members that still have to run can never all run at once."""
        members = [s for s in map(view.states.__getitem__, view.groups[group]) if belongs(s)]
        slots = self._slots(view)
        width = sum(self._width(state, view) for state in members)
        if slots is not None and width > slots:
            return f"group {group} needs {width} cores at once, {slots} run at once"
        reason = self.devices.never_together(members, view)
        if reason:
            return f"group {group} {reason}"
        memory_bytes = sum(state.job.memory_bytes or 0 for state in members)
        if self.admit and memory_bytes > view.capacity_bytes:
            return (
                f"group {group} needs {show_bytes(memory_bytes)} at once, this machine has "
                f"{show_bytes(view.capacity_bytes)} for jobs"
            )
        return ""

    # --- while it runs ---------------------------------------------------------------------------

    def _look_after(self, state: JobState, view: View, spare: list[int]) -> Iterator[Action]:
        """What a running job needs now; takes cores to confine it to from the `spare` ones."""
        share, job = state.share, state.job
        if share is None or state.stopping or state.started_ns is None:
            return
        ran_s = (view.t - state.started_ns) / 1e9
        if job.timeout_s is not None and ran_s > job.timeout_s:
            yield Stop(state.index, "timeout", f"timeout={show_seconds(job.timeout_s)} is over")
            return
        quiet_since_ns = view.t if state.quiet_since_ns is None else state.quiet_since_ns
        quiet_s = (view.t - quiet_since_ns) / 1e9
        if job.stall_timeout_s is not None and quiet_s > job.stall_timeout_s:
            limit = show_seconds(job.stall_timeout_s)
            yield Stop(state.index, "stall", f"no step and no CPU time for {limit}")
            return
        yield from self._correct_reservation(state, share, view)
        limit_threads = share.threads or len(share.cores or ()) or None
        divides = self.slots is not None and self.slots > 1
        busy = state.busy_threads or 0
        if divides and limit_threads and busy > limit_threads and not state.confined:
            cores = share.cores
            if cores is None:
                # Each on cores of its own: two on one core would be the worst of all.
                enough = len(spare) >= limit_threads
                host = [c for c in view.machine.host.cores if c not in view.elsewhere.cores]
                cores = tuple((spare if enough else host)[:limit_threads])
                del spare[: limit_threads if enough else 0]
            if not cores:
                return
            what = f"computes with {busy} threads, its share is {limit_threads}"
            yield Reshare(state.index, cores, f"{what}: confined to core {_list(cores)}")

    def _correct_reservation(self, state: JobState, share: Share, view: View) -> Iterator[Action]:
        if not self.admit or share.cap_bytes is not None:
            return
        expected = state.placement.expected_bytes or 0
        # What it was measured to need before holds until it needs more.
        peak = max(expected, state.peak_bytes)
        if peak > expected:
            peak = int(peak * PEAK_MARGIN)
        wanted = max(share.reserved_bytes, peak)
        if state.phase != "start-up":
            # From its first steps on its own figures count: a small job of a sweep must not hold
            # the memory of the largest. A correction says that they do not show all it needs.
            wanted = max(state.job.memory_bytes or 0, peak, state.reserved_bytes or 0)
        if abs(wanted - share.reserved_bytes) > 0.02 * share.reserved_bytes:
            yield Reserve(state.index, wanted)

    def _relieve(self, view: View, free_bytes: int) -> Iterator[Action]:
        """Stop the newest job, if another one keeps running and none is stopping already."""
        running = list(view.running.values())
        if len(running) < 2 or any(state.stopping for state in running):
            return
        newest = max(running, key=lambda state: (state.started_ns or 0, state.index))
        yield Stop(
            newest.index,
            "memory",
            f"only {show_bytes(free_bytes)} of memory were left on the machine; the newest job "
            f"gives way (it held {show_bytes(newest.resident_bytes)})",
        )

    # --- when it ended ---------------------------------------------------------------------------

    def _after(self, state: JobState, event: Exited, view: View) -> Action:
        outcome, job = event.outcome, state.job
        if outcome.stopped == "interrupt":
            return Retry(state.index, state.reserved_bytes, "stopped with the run", "none")
        if outcome.stopped == "memory":
            needed = self._corrected(state, view)
            return Retry(state.index, needed, f"gave way; waits for {show_bytes(needed)}", "none")
        if outcome.status == "oom" and outcome.device is not None:
            return self._after_full_device(state, outcome)
        if outcome.status == "oom" and outcome.retry_helps:
            needed = self._corrected(state, view)
            before = max(state.peak_bytes, state.reserved_bytes or 0)
            if state.oom_retries < self.oom_retries and needed > before:
                count = f"{state.oom_retries + 1} of {self.oom_retries}"
                reason = f"{outcome.cause}. Waits for {show_bytes(needed)}, then retries ({count})"
                return Retry(state.index, needed, reason, "oom")
            return self._given_up(state, outcome)
        if outcome.status == "failed" and state.retries < job.retries:
            count = f"{state.retries + 1} of {job.retries}"
            reason = f"{outcome.cause}; retries ({count})"
            return Retry(state.index, state.reserved_bytes, reason, "retry")
        return Settle(state.index, outcome.status, outcome.cause)

    def _after_full_device(self, state: JobState, outcome: Outcome) -> Action:
        if not outcome.retry_helps or state.oom_retries >= self.oom_retries:
            return self._given_up(state, outcome)
        reason = f"{outcome.cause}; retries ({state.oom_retries + 1} of {self.oom_retries})"
        return Retry(state.index, state.reserved_bytes, reason, "oom")

    def _given_up(self, state: JobState, outcome: Outcome) -> Settle:
        tries = state.oom_retries + 1
        gave_up = f"given up after {tries} attempt" + ("" if tries == 1 else "s")
        return Settle(state.index, "oom", f"{outcome.cause}; {gave_up}")

    def _corrected(self, state: JobState, view: View) -> int:
        """The reservation after it ran out of memory or gave way: more than it ever had."""
        held = max(state.peak_bytes, state.reserved_bytes or 0, state.job.memory_bytes or 0)
        # Each stop says that the last correction was too small: grow faster, end alone.
        factor = OOM_FACTOR ** (1 + state.oom_retries + state.stops)
        return min(int(held * factor) or view.capacity_bytes, view.capacity_bytes)


def _held(share: Share, state: JobState, view: View) -> int:
    """Cores that a job with this share holds against other runs."""
    return slots_held(share, state.placement, usable_cores=view.machine.usable_cores)


def _waits_for(width: int) -> str:
    return f"waits for {_free_cores(width)}"


def _waits_for_bytes(needed: int) -> str:
    return f"waits for {show_bytes(needed)} of memory"


def _free_cores(count: int) -> str:
    return "a free core" if count == 1 else f"{count} free cores"


def _list(cores: Sequence[int]) -> str:
    return ", ".join(map(str, cores))
