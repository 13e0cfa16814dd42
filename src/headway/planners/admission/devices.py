"""Which devices a job can be given, and why not, in words."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headway.core.job import Job
from headway.core.machine import Device
from headway.core.units import show_bytes
from headway.core.view import JobState, View
from headway.planners.admission.room import Room


class Grant(NamedTuple):
    """What one job is given of devices.

    `bytes` is the memory that it is counted with on each of them, beside others; None: they are its
    alone. `part` is the most of each one's multiprocessors that it may use; None: no limit.
    """

    devices: tuple[int, ...] = ()
    bytes: int | None = None
    part: float | None = None


class DeviceRule(Protocol):
    """How jobs come to devices. Pure: the room is only read."""

    def grant(self, state: JobState, room: Room, view: View) -> tuple[Grant | None, str]:
        """What a job would be given now, or None and what it waits for, in words."""

    def never(self, state: JobState, view: View) -> str:
        """Why the devices of this machine can never serve a job; "" where they can."""

    def never_together(self, members: Sequence[JobState], view: View) -> str:
        """Why they can never serve the members of a group at once; "" where they can."""


class WholeDevices:
    """As many devices as a job asks for, each its alone."""

    def grant(self, state: JobState, room: Room, view: View) -> tuple[Grant | None, str]:
        """The first free ones that serve it."""
        devices = [i for i in room.devices if serves(view.machine.devices[i], state.job)]
        wanted = state.placement.devices
        if wanted > len(devices):
            return None, waits_for_free(wanted, view)
        return Grant(devices=tuple(devices[:wanted])), ""

    def never(self, state: JobState, view: View) -> str:
        """A part of a device is not to be had."""
        job = state.job
        if job.gpus:
            return too_few_devices(job, view.machine.devices)
        if job.gpu_memory_bytes is not None:
            return no_device_memory(job.gpu_memory_bytes, view.machine.devices)
        return ""

    def never_together(self, members: Sequence[JobState], view: View) -> str:
        """Each device serves one member."""
        devices = sum(state.placement.devices for state in members)
        usable = sum(not device.unknown for device in view.machine.devices)
        if devices > usable:
            return f"needs {gpus(devices)} at once, {usable} can be given here"
        return ""


def belongs(member: JobState) -> bool:
    """Whether the others of its group need a member: not one that ended well before a retry."""
    return not member.final or member.status == "infeasible"


def serves(device: Device, job: Job) -> bool:
    """Whether a job can be given this device: never a part of a GPU beside another device."""
    large_enough = (device.memory_bytes or 0) >= (job.gpu_memory_bytes or 0)
    return large_enough and not device.unknown and not (device.is_part and (job.gpus or 0) > 1)


def too_few_devices(job: Job, devices: Sequence[Device]) -> str:
    """Why the devices of this machine can never serve a job, or an empty string."""
    wanted = job.gpus or 0
    able = sum(serves(device, job) for device in devices)
    if wanted <= able:
        return ""
    if wanted > len(devices):
        return f"needs {gpus(wanted)}, {len(devices)} are visible here"
    unknown = [device for device in devices if device.unknown]
    if wanted > len(devices) - len(unknown):
        first = unknown[0]
        return (
            f"needs {gpus(wanted)}, but device {first.index} ({first.name}) is never taken for "
            f"free, since {first.unknown}; a job without gpus= sees it and is not kept from it"
        )
    large = sum((device.memory_bytes or 0) >= (job.gpu_memory_bytes or 0) for device in devices)
    if wanted > large:
        size = show_bytes(job.gpu_memory_bytes)
        return f"needs {gpus(wanted)} with {size} each, {large} of {len(devices)} have that much"
    return (
        f"needs {gpus(wanted)}, but there are MIG devices, of which a process can use one only, "
        f"and {able} whole ones; write gpus=1"
    )


def gpus(count: int, kind: str = "") -> str:
    """A number of GPUs in words."""
    return f"{count} {kind}GPU" + ("" if count == 1 else "s")


def waits_for_free(count: int, view: View) -> str:
    """That a job waits for whole devices, in words."""
    return f"waits for {gpus(count, 'free ')}{taken_by_others(view)}"


def taken_by_others(view: View) -> str:
    """Which device somebody else holds, in words."""
    for device in view.machine.devices:
        if device.taken:
            return f"; device {device.index}: {device.taken}"
    return ""


def no_device_memory(needed_bytes: int, devices: Sequence[Device]) -> str:
    """Why a job that asks for GPU memory alone cannot be placed."""
    largest = max((device.memory_bytes or 0 for device in devices), default=0)
    if needed_bytes <= largest:
        return "asks for a part of a GPU, which this version does not share; write gpus=1"
    have = f"the largest has {show_bytes(largest)}" if largest else "there is none here"
    return f"needs a GPU with {show_bytes(needed_bytes)}; {have}"
