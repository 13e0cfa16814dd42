"""Several jobs on one device, guided by what each is known to need: memory and compute demand.

Chen, Porter, Pande, "CASE: A Compiler-Assisted SchEduling Framework for Multi-GPU Systems",
PPoPP 2022, pp. 17-31 (arXiv 2107.08538). There a compiler finds the need of each piece of work;
here it is what the job declares, or what was predicted of it and stands in its placement. Rules:

guided   the paper's policy for throughput: memory is hard, demand is soft. Of the devices whose
         memory fits, those that are kept least busy
precise  its other one: demand is hard as well, so nobody is slowed
ratio    a fixed number of jobs on each device, whatever they need: what packing without a guide is
single   one job on each device that is large enough for it

Memory. A job is counted with its need, a margin, and the context of a process, from its start to
its end: an allocator seldom gives back. One whose need is not known, that fits no device with its
margin, or that ran out of memory before gets its devices to itself.

[Note: a busy device takes no more] Under `guided` a device whose jobs ask for `full_load` of it or
more is given no further one: those on it could only be slowed by as much as the new one gains, and
a job that waits can still go to whichever device is free first, while one that was started cannot
move. The paper has no such limit (`full_load=None`); without it a list can end later than with one
job on each device.

[Note: the host is a device too] A job that asks for no GPU is on the host. Its cores share one
memory, so they are one device, not several. Memory and order are those of `planners.admission`, and
cores are hard under `guided` too: threads that wait for a core cost many times more than they gain
(costs/interference.py). Under `ratio` and `single` so many such jobs run at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Literal

from pydantic import Field

from headway.core.machine import Device
from headway.core.plan import Plan, PolicyChoice
from headway.core.policy import Policy
from headway.core.units import MIB, show_bytes
from headway.core.view import JobState, View
from headway.core.words import Action, Event, Memory, Share
from headway.core.workload import Workload
from headway.planners.admission import Admission
from headway.planners.admission.devices import (
    Grant,
    gpus,
    serves,
    taken_by_others,
    too_few_devices,
    waits_for_free,
)
from headway.planners.admission.expectations import expecting
from headway.planners.admission.room import HOST, MILLI, Room, Tenancy, milli_of

Rule = Literal["guided", "precise", "ratio", "single"]


class GuidedPacking(Policy):
    """Jobs beside each other on devices, by what each is known to need there.

    Knobs: `rule` is one of those above; `per_device` is how many jobs `ratio` puts on each, and
    `most` how many the others do at most (None: as many as have room);
    `margin` is what a job is counted with over its known need, and `context_bytes` what its process
    takes beside; `full_load` is the part of a device from which on `guided` gives it no further job
    (None: no limit); `patience` bounds how many may overtake the first that has to wait;
    `oom_retries` bounds how often an out-of-memory is tried again.
    """

    rule: Rule = "guided"
    per_device: Annotated[int, Field(ge=1)] = 4
    most: Annotated[int, Field(ge=1)] | None = None
    # Peaks may be predicted up to 3% too low; the rest is for what an allocator keeps in pieces.
    margin: Annotated[float, Field(ge=1)] = 1.1
    # 300 to 600 MiB were seen, by GPU and version.
    context_bytes: Annotated[int, Field(ge=0)] = 600 * MIB
    full_load: Annotated[float, Field(gt=0)] | None = 1.0
    patience: Annotated[int, Field(ge=0)] = 16
    oom_retries: Annotated[int, Field(ge=0)] = 2

    def start(self, view: View) -> Memory:
        """Nobody has been overtaken yet."""
        return self._admission(view).start()

    def decide(self, memory: Memory, event: Event, view: View) -> tuple[Memory, Sequence[Action]]:
        """Answer one event; see `planners.admission` for the rules but those of devices."""
        return self._admission(view).decide(memory, event, view)

    def _admission(self, view: View) -> Admission:
        counts_only = self.rule == "ratio"
        return Admission(
            devices=_Devices(self),
            slots=None if counts_only else view.machine.usable_cores,
            extra=0,
            pin=False,
            admit=not counts_only,
            patience=self.patience,
            oom_retries=self.oom_retries,
            learns=False,
        )


@dataclass(frozen=True, slots=True)
class _Devices:
    """The `DeviceRule` of guided packing."""

    knobs: GuidedPacking

    def grant(self, state: JobState, room: Room, view: View) -> tuple[Grant | None, str]:
        """The least busy devices that have room for a job; of equal ones those that fit it best."""
        wanted = _wanted(state)
        if not wanted:
            return self._on_host(room)
        able = self._able(state, view)
        counted = self._counted_bytes(state, able)
        on = {index: Tenancy() for index in room.devices} | room.tenants
        now = [
            (on[device.index].milli, *_fit(device, state), device.index)
            for device in able
            if device.index in on and self._has_room(device, on[device.index], state, counted)
        ]
        if len(now) < wanted:
            return None, self._waits(wanted, counted, view)
        chosen = tuple(place[-1] for place in sorted(now)[:wanted])
        part = None if counted is None else state.placement.most_device_part
        return Grant(chosen, counted, part), ""

    def never(self, state: JobState, view: View) -> str:
        """Too few devices, or none that holds what it is known to need."""
        wanted, devices = _wanted(state), view.machine.devices
        if not wanted:
            return ""
        reason = too_few_devices(state.job.model_copy(update={"gpus": wanted}), devices)
        if reason or len(self._able(state, view)) >= wanted:
            return reason
        needed = show_bytes(self._least_bytes(state))
        largest = show_bytes(max(_room_bytes(device) for device in devices))
        return (
            f"is predicted to need {gpus(wanted)} with {needed} each, its context included; the "
            f"largest here has {largest}; lower the batch"
        )

    def never_together(self, members: Sequence[JobState], view: View) -> str:
        """Whether the members would fit on devices that nobody else is on, in this order."""
        devices = [device.index for device in view.machine.devices if not device.unknown]
        room = Room(slots=None, cores=[], devices=devices, bytes=0)
        for state in members:
            grant, reason = self.grant(state, room, view)
            if grant is None:
                return f"cannot start at once: beside the others {state.job.name} {reason}"
            share = Share(devices=grant.devices, device_bytes=grant.bytes, device_part=grant.part)
            room.take(share, 0, 0)
            room.lodge(share, milli_of(state))
        return ""

    # --- what a job needs ------------------------------------------------------------------------

    def _counted_bytes(self, state: JobState, able: Sequence[Device]) -> int | None:
        """Bytes that a job is counted with on each device; None: it gets them to itself."""
        if self.knobs.rule == "ratio":
            return 0
        known = _known_bytes(state)
        if self.knobs.rule == "single" or known is None or state.oom_retries:
            return None
        counted = ceil(known * self.knobs.margin) + self.knobs.context_bytes
        fitting = sum(counted <= _room_bytes(device) for device in able)
        return counted if fitting >= _wanted(state) else None

    def _least_bytes(self, state: JobState) -> int:
        """Bytes below which a job is predicted not to run on a device."""
        if self.knobs.rule == "ratio":
            return 0
        predicted = state.placement.expected_device_bytes
        return 0 if predicted is None else predicted + self.knobs.context_bytes

    # --- where there is room ---------------------------------------------------------------------

    def _able(self, state: JobState, view: View) -> list[Device]:
        """The devices that could hold a job if nobody else were on them."""
        least_bytes = self._least_bytes(state)
        return [
            device
            for device in view.machine.devices
            if serves(device, state.job) and least_bytes <= _room_bytes(device)
        ]

    def _has_room(
        self, device: Device, tenancy: Tenancy, state: JobState, counted: int | None
    ) -> bool:
        """Whether a device has room for one more job beside those that are on it."""
        if tenancy.whole or counted is None:
            return not tenancy.jobs
        if self.knobs.rule == "ratio":
            return tenancy.jobs < self.knobs.per_device
        if tenancy.bytes + counted > _room_bytes(device):
            return False
        if self.knobs.most is not None and tenancy.jobs >= self.knobs.most:
            return False
        if self.knobs.rule == "precise":
            return tenancy.milli + milli_of(state) <= MILLI
        return self.knobs.full_load is None or tenancy.milli < self.knobs.full_load * MILLI

    def _on_host(self, room: Room) -> tuple[Grant | None, str]:
        """Jobs without devices: so many at once under the rules that count jobs."""
        most = {"single": 1, "ratio": self.knobs.per_device}.get(self.knobs.rule)
        if most is None or room.tenants.get(HOST, Tenancy()).jobs < most:
            return Grant(), ""
        return None, f"waits for a job on the host to end: {most} at once"

    def _waits(self, wanted: int, counted: int | None, view: View) -> str:
        if counted is None:
            return waits_for_free(wanted, view)
        if self.knobs.rule == "ratio":
            what = f"fewer than {self.knobs.per_device} jobs on it"
        else:
            what = f"{show_bytes(counted)} left"
            what += ", and not kept busy by others" if self.knobs.full_load is not None else ""
        return f"waits for {gpus(wanted)} with {what}{taken_by_others(view)}"


def packed_plan(plan: Plan, workloads: Sequence[Workload], policy: GuidedPacking) -> Plan:
    """A plan whose jobs share devices by what is known of them.

    Args:
        plan: Any; its policy gives way to this one.
        workloads: One a job. Memory is taken at its high bound, demand at its value.
        policy: With the knobs to carry it out.

    >>> from headway.testing.queues import FakeQueue, fake_job
    >>> workload = Workload.opaque("a", work_ns=1, device_bytes=2**30, device_part=0.25)
    >>> plan = FakeQueue(jobs=[fake_job("a", gpus=1)]).plan("shared")
    >>> placement = packed_plan(plan, [workload], GuidedPacking()).placements[0]
    >>> placement.expected_device_bytes, placement.expected_device_part
    (1073741824, 0.25)
    """
    choice = PolicyChoice(name="guided_packing", knobs=policy.model_dump())
    return expecting(plan, workloads).model_copy(update={"policy": choice})


def _fit(device: Device, state: JobState) -> tuple[bool, float]:
    """How well a part of a GPU fits a job: the smallest that is not too small, else the largest."""
    part = device.part or 1.0
    wanted = state.placement.most_device_part or state.placement.expected_device_part or 1.0
    too_small = part < wanted and device.is_part
    return too_small, -part if too_small else part


def _wanted(state: JobState) -> int:
    """How many devices a job is on; one that asks for memory of a GPU alone is on one."""
    return state.placement.devices or int(state.job.gpu_memory_bytes is not None)


def _known_bytes(state: JobState) -> int | None:
    """The larger of what a job declared and what was predicted; None where neither is known."""
    stated = (state.job.gpu_memory_bytes, state.placement.expected_device_bytes)
    return max((one for one in stated if one is not None), default=None)


def _room_bytes(device: Device) -> int:
    """Memory that jobs can have on a device that nobody is on."""
    return (device.memory_bytes or 0) - (device.used_bytes or 0)
