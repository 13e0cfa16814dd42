"""Which devices a job can be given, and why not, in words."""

from collections.abc import Sequence

from headway.core.job import Job
from headway.core.machine import Device
from headway.core.units import show_bytes
from headway.core.view import JobState, View


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
