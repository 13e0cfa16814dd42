"""Whether the devices that jobs name can hold them side by side, and why not, in words. Pure.

Judged is what a list states by itself: which devices, shared in which way, with how much memory.
Jobs that only say how many devices they need, or none, are judged by the queue's policy.
"""

from collections.abc import Mapping, Sequence

from headway.core import catalogue
from headway.core.job import Job
from headway.core.machine import Device, Machine
from headway.core.mig import MigTable, Refusal
from headway.core.units import show_bytes


def why_not(jobs: Sequence[Job], machine: Machine) -> tuple[str, ...]:
    """Why each job can never be placed on the devices that it names; "" where it can.

    Members of a group start together, so all of them get the reason of the group. What counts of an
    index is who else names it: one that the machine does not have stands for a device of it that
    nobody in the group names, so that a list written for one machine can be judged on another.

    Args:
        jobs: In the order of the file.
        machine: One with devices of the catalogue; how others can be divided by MIG is not known.

    >>> slices = ("4g.20gb", "2g.10gb", "2g.10gb")
    >>> jobs = [
    ...     Job(name=f"{i}", command="x", folder="/", group="g", devices=(2,), collocation=profile)
    ...     for i, profile in enumerate(slices)
    ... ]
    >>> why_not(jobs, catalogue.machine("a100-40gb"))[0]
    '4g.20gb + 2 x 2g.10gb needs 8 of 7 compute slices'
    >>> why_not(jobs[:2], catalogue.machine("a100-40gb"))
    ('', '')
    """
    units: dict[str | int, list[Job]] = {}
    for index, job in enumerate(jobs):
        units.setdefault(_unit(index, job), []).append(job)
    reasons = {unit: _too_much(members, machine.devices) for unit, members in units.items()}
    return tuple(reasons[_unit(index, job)] for index, job in enumerate(jobs))


def _unit(index: int, job: Job) -> str | int:
    return index if job.group is None else job.group


def _too_much(members: Sequence[Job], devices: Sequence[Device]) -> str:
    """Why jobs that start together cannot be on the devices that they name at once."""
    named = tuple(dict.fromkeys(index for job in members for index in job.devices))
    if len(named) > len(devices):
        indexes = ", ".join(map(str, named))
        return f"names {len(named)} devices ({indexes}), this machine has {len(devices)}"
    for job in members:
        if job.mig_profile and len(job.devices) > 1:
            return (
                f"{job.name} is to have a {job.mig_profile} on each of {len(job.devices)} devices, "
                "but a process can use one MIG device only"
            )
    for index, device in _stand_ins(named, devices).items():
        sharers = [job for job in members if index in job.devices]
        if reason := _too_much_for(device, sharers):
            return reason if len(named) == 1 else f"device {index}: {reason}"
    return ""


def _stand_ins(named: Sequence[int], devices: Sequence[Device]) -> Mapping[int, Device]:
    """The device of each index; there are as many devices as indexes, or more."""
    own = {device.index: device for device in devices if device.index in named}
    others = (device for device in devices if device.index not in own)
    return {index: own[index] if index in own else next(others) for index in named}


def _too_much_for(device: Device, sharers: Sequence[Job]) -> str:
    """Why these jobs cannot be on one device at once."""
    divided = [job for job in sharers if job.mig_profile]
    if not divided:
        needed = sum(job.gpu_memory_bytes or 0 for job in sharers)
        if device.memory_bytes is not None and needed > device.memory_bytes:
            has = show_bytes(device.memory_bytes)
            return f"needs {show_bytes(needed)} of GPU memory, {device.name} has {has}"
        return ""
    if len(divided) < len(sharers):
        whole = next(job for job in sharers if not job.mig_profile)
        return f"{whole.name} is to use a whole device that {divided[0].name} divides by MIG"
    if device.name not in catalogue.names():
        return f"how {device.name} can be divided by MIG is not known"
    known = catalogue.device(device.name)
    placed = catalogue.layout(known, [job.mig_profile for job in divided])
    if isinstance(placed, Refusal):
        return placed.reason
    return _too_large(divided, known.mig) if known.mig else ""


def _too_large(jobs: Sequence[Job], table: MigTable) -> str:
    """Which job needs more memory than its instance has."""
    for job in jobs:
        profile = table.profile(job.mig_profile)
        if profile and (job.gpu_memory_bytes or 0) > profile.memory_bytes:
            needed, has = show_bytes(job.gpu_memory_bytes), show_bytes(profile.memory_bytes)
            return f"{job.name} needs {needed} of GPU memory, {profile.name} has {has}"
    return ""
