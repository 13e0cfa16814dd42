"""MIG through NVML: what the driver says of a GPU's instances. Facts alone; see `mig_layout`.

[Note: the driver's table] A profile is found by NVML's own numbers, which run from 0 and grow with
each release: one that the card does not have is skipped, and the first that the library does not
know ends the list. Those numbers are not the ids that instances are made by. Where the catalogue
knows the card too and differs, the driver's answer is taken and the difference noted.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from ctypes import byref, c_uint
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.core import catalogue
from headway.core.mig import MigInstance, MigProfile, MigTable, differences
from headway.core.text import plain
from headway.core.units import MIB
from headway.system.procfs import PROC

RIGHTS_FILE = "driver/nvidia/capabilities/mig/config"

# NVML numbers 18 profiles today; a library that never said "unknown" would be asked for ever.
_MOST_PROFILES = 256


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A part of a GPU that one process can use as a GPU of its own.

    It is compute instance `compute` of GPU instance `instance` on the GPU with the UUID `gpu`.
    """

    handle: Any
    uuid: str
    name: str
    gpu: str
    instance: int
    compute: int

    @property
    def old_name(self) -> str:
        """Drivers before R470 named it by its GPU's UUID and two numbers."""
        return f"MIG-{self.gpu}/{self.instance}/{self.compute}"


@dataclass(frozen=True, slots=True)
class MigFacts:
    """What the driver says of one GPU that can be divided.

    `pending` is the mode after the next reset. `table` is None where the driver does not give it
    and the catalogue does not know the card; `instances` is None where they may not be listed.
    """

    on: bool
    pending: bool
    table: MigTable | None
    instances: tuple[MigInstance, ...] | None
    notes: tuple[str, ...] = ()


def rights(proc: Path = PROC, *, user: int | None = None) -> str:
    """Why this user may not divide a GPU, in words; "" where it may.

    Args:
        proc: Where procfs is mounted.
        user: The user's id; our own by default.
    """
    if (os.geteuid() if user is None else user) == 0:
        return ""
    path = proc / RIGHTS_FILE
    if os.access(path, os.R_OK):
        return ""
    why = "which this user may not read" if path.exists() else "which is not there"
    return f"dividing a GPU needs root, or read access to {path}, {why}"


def read_mig(nvml: Any, gpu: Any) -> MigFacts:
    """Profiles, placements and instances of a GPU, as its driver gives them.

    Args:
        nvml: A module like pynvml, after its nvmlInit.
        gpu: The GPU's handle.

    Raises:
        NVMLError: The GPU cannot be divided (NOT_SUPPORTED), or does not answer.
    """
    current, pending = nvml.nvmlDeviceGetMigMode(gpu)
    notes: list[str] = []
    infos = _profile_infos(nvml, gpu)
    table = _table(nvml, gpu, infos, notes)
    instances = _instances(nvml, gpu, infos, notes) if current else ()
    return MigFacts(bool(current), bool(pending), table, instances, tuple(notes))


def mig_devices(nvml: Any, gpu: Any) -> tuple[list[MigDevice], list[str]]:
    """The MIG devices of a GPU, and notes on those that do not answer; none where MIG is off.

    Raises:
        NVMLError: The driver does not say how many there can be.
    """
    found: list[MigDevice] = []
    notes: list[str] = []
    gpu_uuid = nvml.nvmlDeviceGetUUID(gpu)
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
            device = MigDevice(
                handle,
                nvml.nvmlDeviceGetUUID(handle),
                plain(nvml.nvmlDeviceGetName(handle)),
                gpu_uuid,
                nvml.nvmlDeviceGetGpuInstanceId(handle),
                nvml.nvmlDeviceGetComputeInstanceId(handle),
            )
        except nvml.NVMLError_NotFound:
            continue  # indexes of MIG devices have holes
        except nvml.NVMLError as error:
            notes.append(f"MIG device {number} of {gpu_uuid} does not answer ({error}); left out")
            continue
        found.append(device)
    return found, notes


def _profile_infos(nvml: Any, gpu: Any) -> list[Any]:
    """What the driver says of each profile of this card; see [Note: the driver's table]."""
    infos = []
    for number in range(_MOST_PROFILES):
        try:
            infos.append(nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, number, version=2))
        except nvml.NVMLError_NotSupported:
            continue
        except nvml.NVMLError_InvalidArgument:
            break
    return infos


def profile_name(info: Any) -> str:
    """A profile's name without the word MIG that drivers put before it."""
    name = info.name.decode(errors="replace") if isinstance(info.name, bytes) else info.name
    return plain(name).removeprefix("MIG ")


def _table(nvml: Any, gpu: Any, infos: Sequence[Any], notes: list[str]) -> MigTable | None:
    """The driver's table; with the catalogue's placements where only root may read them."""
    most = max((info.memorySizeMB for info in infos), default=0) * MIB
    card = catalogue.like(plain(nvml.nvmlDeviceGetName(gpu)), most)
    known = card.mig if card else None
    try:
        placed = {info.id: _placements(nvml, gpu, info.id) for info in infos}
    except nvml.NVMLError_NoPermission:
        if known is None:
            notes.append("its MIG placements can be read only with more rights")
            return None
        notes.append(
            "its MIG placements can be read only with more rights: those of the catalogue are taken"
        )
        placed = {kind.id: [(start, kind.size) for start in kind.starts] for kind in known.profiles}
    profiles: dict[str, MigProfile] = {}
    for info in infos:
        if (name := profile_name(info)) not in profiles and placed.get(info.id):
            profiles[name] = _profile(name, info, placed[info.id])
    if not profiles:
        return None
    table = MigTable(
        compute=max(profile.compute for profile in profiles.values()),
        memory=max(max(kind.starts) + kind.size for kind in profiles.values()),
        profiles=tuple(sorted(profiles.values(), key=lambda kind: (kind.size, kind.compute))),
    )
    if known is not None:
        notes += differences(table, known)
    return table


def _profile(name: str, info: Any, placements: Sequence[tuple[int, int]]) -> MigProfile:
    return MigProfile(
        name=name,
        id=info.id,
        compute=info.sliceCount,
        size=placements[0][1],
        starts=tuple(sorted(start for start, _ in placements)),
        most=info.instanceCount,
        memory_bytes=info.memorySizeMB * MIB,
        sms=info.multiprocessorCount,
        copy_engines=info.copyEngineCount or None,
        source="driver",
    )


def _placements(nvml: Any, gpu: Any, profile_id: int) -> list[tuple[int, int]]:
    """Starts and sizes in memory slices, free or not."""
    count = c_uint(0)
    ask = nvml.nvmlDeviceGetGpuInstancePossiblePlacements
    ask(gpu, profile_id, None, byref(count))
    placements = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    ask(gpu, profile_id, placements, byref(count))
    return [(one.start, one.size) for one in placements[: count.value]]


def _instances(
    nvml: Any, gpu: Any, infos: Sequence[Any], notes: list[str]
) -> tuple[MigInstance, ...] | None:
    uuid = nvml.nvmlDeviceGetUUID(gpu)
    devices, unread = mig_devices(nvml, gpu)
    notes += unread
    parts: dict[int, list[MigDevice]] = defaultdict(list)
    for device in devices:
        parts[device.instance].append(device)
    found = []
    for info in infos:
        try:
            handles = _gpu_instances(nvml, gpu, info)
        except nvml.NVMLError_NoPermission:
            notes.append("its GPU instances can be listed only with more rights")
            return None
        for handle in handles:
            about = nvml.nvmlGpuInstanceGetInfo(handle)
            own = sorted(parts[about.id], key=lambda device: device.compute)
            found.append(
                MigInstance(
                    gpu=uuid,
                    id=about.id,
                    profile=profile_name(info),
                    start=about.placement.start,
                    size=about.placement.size,
                    compute=tuple(device.compute for device in own),
                    uuids=tuple(device.uuid for device in own),
                )
            )
    return tuple(sorted(found, key=lambda instance: instance.start))


def _gpu_instances(nvml: Any, gpu: Any, info: Any) -> list[Any]:
    """Handles of the GPU instances of one profile."""
    count = c_uint(info.instanceCount)
    handles = (nvml.c_nvmlGpuInstance_t * info.instanceCount)()
    nvml.nvmlDeviceGetGpuInstances(gpu, info.id, handles, byref(count))
    return list(handles[: count.value])
