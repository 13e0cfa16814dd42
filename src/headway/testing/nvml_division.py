# ruff: noqa: N802  the names are NVML's
"""The MIG part of the fake NVML: GPU instances that come and go, by the catalogue's tables.

It is strange where a driver is: profiles have numbers that are not their ids, only root may divide
a GPU, a mode may wait for a reset although the call succeeded, a 3g is refused beside smaller
instances unless its place is given, and nothing in use is destroyed. Handles are pointers that lead
nowhere, and are dead with their instance.
"""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from headway.core.mig import MigPlacement, MigProfile, MigTable
from headway.core.units import MIB
from headway.testing.nvml_devices import FakeGpu, FakeMig

# NVML's numbers of the profiles (nvml.h), and those of a compute instance with so many slices.
_PROFILES = {"1g": 0, "2g": 1, "3g": 2, "4g": 3, "7g": 4, "1g+me": 7, "2g+me": 8, "1g double": 9}
_PROFILE_COUNT = 18
_COMPUTE_SLICES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}
# A second one with one slice (nvml.h). Which cards list it is not known; here it is the whole of a
# 1g that has more SMs than others, so that a reader which takes the first of its size is found out.
_COMPUTE_REVISED = 7
_COMPUTE_COUNT = 9


@dataclass(slots=True)
class Compute:
    """A compute instance; `index` is that of its MIG device on the GPU."""

    id: int
    number: int
    slices: int
    sms: int
    index: int
    uuid: str
    address: int


@dataclass(slots=True)
class Instance:
    """A GPU instance."""

    gpu: FakeGpu
    id: int
    profile: MigProfile
    start: int
    address: int
    computes: dict[int, Compute] = field(default_factory=dict)

    @property
    def placement(self) -> MigPlacement:
        """Where it is."""
        return MigPlacement(profile=self.profile.name, start=self.start, size=self.profile.size)


@dataclass(slots=True)
class State:
    """How one GPU is divided now."""

    gpu: FakeGpu
    table: MigTable
    on: bool
    pending: bool
    instances: dict[int, Instance] = field(default_factory=dict)

    def parts(self) -> Iterator[tuple[Instance, Compute]]:
        """Every compute instance, with the GPU instance that it is in."""
        for instance in self.instances.values():
            for compute in instance.computes.values():
                yield instance, compute

    def room(self, profile: MigProfile) -> list[int]:
        """Starts at which one more of this profile can be."""
        taken = sum(instance.placement.bits for instance in self.instances.values())
        slices = sum(instance.profile.compute for instance in self.instances.values())
        same = sum(instance.profile == profile for instance in self.instances.values())
        media = profile.media and any(one.profile.media for one in self.instances.values())
        if media or same >= profile.most or slices + profile.compute > self.table.compute:
            return []
        return [
            start
            for start in profile.starts
            if not taken & MigPlacement(profile=profile.name, start=start, size=profile.size).bits
        ]

    def instance_id(self, profile: MigProfile, start: int) -> int:
        """Ids count the places of all sizes, from the largest: 0; 1, 2; 3 to 6; 7 to 14."""
        return self.table.memory // profile.size - 1 + start // profile.size


class Division:
    """All divided GPUs of a fake NVML, and NVML's functions about them.

    Args:
        real: The module pynvml.
        gpus: Those whose `table` is set are divided.
        root: Whether we may divide them.
        check: Raises what the caller is to be answered with by force.
        change: Notes a call that changes something.
        in_use: Whether a process is on the device with this UUID.

    """

    def __init__(
        self,
        real: Any,
        gpus: tuple[FakeGpu, ...],
        *,
        root: bool,
        check: Callable[[str, FakeGpu], None],
        change: Callable[..., Any],
        in_use: Callable[[str], bool],
    ) -> None:
        self.states = {
            gpu.uuid: State(gpu, gpu.table, gpu.mig_on, gpu.mig_on) for gpu in gpus if gpu.table
        }
        self._real = real
        self._root = root
        self._check = check
        self._change = change
        self._in_use = in_use
        self._addresses = count(0x1000, 0x10)

    # ---- the tests' own levers -------------------------------------------------------------------

    def add(self, uuid: str, profile: str, start: int) -> Instance:
        """Somebody else makes an instance, with one compute instance that takes all of it."""
        state = self.states[uuid]
        kind = state.table.profile(profile)
        if kind is None or start not in state.room(kind):
            raise ValueError(f"no room for {profile} at {start} on {uuid}")
        instance = self._make(state, kind, start)
        self._make_compute(state, instance, max(self._computes(instance)))
        return instance

    def reset(self, uuid: str) -> None:
        """The GPU is reset: the pending mode is in force, and no instance is left."""
        state = self.states[uuid]
        state.on = state.pending
        state.instances.clear()

    def mig_device(self, uuid: str) -> FakeMig | None:
        """The MIG device with this UUID, as it is now."""
        for state in self.states.values():
            for instance, compute in state.parts():
                if compute.uuid == uuid:
                    return _device(instance, compute)
        return None

    # ---- NVML's functions ------------------------------------------------------------------------

    def nvmlDeviceSetMigMode(self, handle: FakeGpu, mode: int) -> int:
        """Turn MIG on or off; the answer is how far that is in force."""
        with self._change("nvmlDeviceSetMigMode", handle, mode):
            self._check("nvmlDeviceSetMigMode", handle)
            state = self._state(handle)
            self._need_root()
            state.pending = bool(mode)
            if state.pending == state.on:
                return int(self._real.NVML_SUCCESS)
            if self._in_use(handle.uuid) or state.instances:
                return int(self._real.NVML_ERROR_IN_USE)
            if handle.needs_reset:
                says = handle.needs_reset == "says so"
                return int(self._real.NVML_ERROR_RESET_REQUIRED if says else 0)
            state.on = state.pending
            return int(self._real.NVML_SUCCESS)

    def nvmlDeviceGetGpuInstanceProfileInfo(
        self, handle: FakeGpu, profile: int, version: int = 2
    ) -> Any:
        """What NVML's profile of this number is on the card; also with MIG off."""
        self._check("nvmlDeviceGetGpuInstanceProfileInfo", handle)
        if not 0 <= profile < _PROFILE_COUNT:
            raise self._error("INVALID_ARGUMENT")
        kind = _numbered(self._state(handle).table).get(profile)
        if kind is None:
            raise self._error("NOT_SUPPORTED")
        info = self._real.c_nvmlGpuInstanceProfileInfo_v2_t()
        info.id, info.sliceCount, info.instanceCount = kind.id, kind.compute, kind.most
        info.multiprocessorCount = kind.sms
        info.copyEngineCount = kind.copy_engines or 0
        info.memorySizeMB = kind.memory_bytes // MIB
        info.name = f"MIG {kind.name}".encode()
        return info

    def nvmlDeviceGetGpuInstancePossiblePlacements(
        self, handle: FakeGpu, profile: int, placements: Any, number: Any
    ) -> int:
        """All places of a profile, free or not; their count where no array is given."""
        self._check("nvmlDeviceGetGpuInstancePossiblePlacements", handle)
        kind = self._kind(handle, profile)
        self._need_root()
        for place, start in zip(placements or (), kind.starts, strict=False):
            place.start, place.size = start, kind.size
        number._obj.value = len(kind.starts)
        return 0

    def nvmlDeviceGetGpuInstanceRemainingCapacity(self, handle: FakeGpu, profile: int) -> int:
        """How many more of a profile there can be."""
        self._check("nvmlDeviceGetGpuInstanceRemainingCapacity", handle)
        state, kind = self._on(handle), self._kind(handle, profile)
        trial = State(state.gpu, state.table, True, True, dict(state.instances))
        number = 0
        while room := trial.room(kind):
            trial.instances[-1 - number] = Instance(handle, 0, kind, room[0], 0)
            number += 1
        return number

    def nvmlDeviceCreateGpuInstance(self, handle: FakeGpu, profile: int) -> Any:
        """Make an instance at the driver's own choice: the highest place."""
        with self._change("nvmlDeviceCreateGpuInstance", handle, profile):
            self._check("nvmlDeviceCreateGpuInstance", handle)
            state, kind = self._on(handle), self._kind(handle, profile)
            self._need_root()
            smaller = any(one.profile.size < kind.size for one in state.instances.values())
            # A known fault of drivers, which the MIG user guide tells to go round.
            room = [] if kind.compute == 3 and smaller else state.room(kind)
            if not room:
                raise self._error("INSUFFICIENT_RESOURCES")
            return self._pointer("GpuInstance", self._make(state, kind, max(room)).address)

    def nvmlDeviceCreateGpuInstanceWithPlacement(
        self, handle: FakeGpu, profile: int, placement: Any
    ) -> Any:
        """Make an instance at this place."""
        place = placement._obj
        name = "nvmlDeviceCreateGpuInstanceWithPlacement"
        with self._change(name, handle, profile, place.start, place.size):
            self._check(name, handle)
            state, kind = self._on(handle), self._kind(handle, profile)
            self._need_root()
            if place.start not in kind.starts or place.size != kind.size:
                raise self._error("INVALID_ARGUMENT")
            if place.start not in state.room(kind):
                raise self._error("INSUFFICIENT_RESOURCES")
            return self._pointer("GpuInstance", self._make(state, kind, place.start).address)

    def nvmlDeviceGetGpuInstances(
        self, handle: FakeGpu, profile: int, handles: Any, number: Any
    ) -> int:
        """The instances of one profile."""
        self._check("nvmlDeviceGetGpuInstances", handle)
        state, kind = self._on(handle), self._kind(handle, profile)
        self._need_root()
        found = [one for one in state.instances.values() if one.profile == kind]
        for index, instance in enumerate(found):
            handles[index] = self._pointer("GpuInstance", instance.address)
        number._obj.value = len(found)
        return 0

    def nvmlDeviceGetGpuInstanceById(self, handle: FakeGpu, number: int) -> Any:
        """The instance of this id."""
        self._check("nvmlDeviceGetGpuInstanceById", handle)
        state = self._on(handle)
        self._need_root()
        if number not in state.instances:
            raise self._error("NOT_FOUND")
        return self._pointer("GpuInstance", state.instances[number].address)

    def nvmlGpuInstanceGetInfo(self, handle: Any) -> Any:
        """Id, profile and place of an instance."""
        instance = self._instance(handle)
        self._check("nvmlGpuInstanceGetInfo", instance.gpu)
        info = self._real.c_nvmlGpuInstanceInfo_t()
        info.id, info.profileId = instance.id, instance.profile.id
        info.placement.start, info.placement.size = instance.start, instance.profile.size
        return info

    def nvmlGpuInstanceDestroy(self, handle: Any) -> int:
        """Destroy an instance that has no compute instances."""
        instance = self._instance(handle)
        with self._change("nvmlGpuInstanceDestroy", instance.gpu, instance.id):
            self._check("nvmlGpuInstanceDestroy", instance.gpu)
            self._need_root()
            if instance.computes:
                raise self._error("IN_USE")
            del self.states[instance.gpu.uuid].instances[instance.id]
        return 0

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(
        self, handle: Any, profile: int, engines: int, version: int = 2
    ) -> Any:
        """What NVML's compute profile of this number is in the instance."""
        instance = self._instance(handle)
        self._check("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance.gpu)
        if not 0 <= profile < _COMPUTE_COUNT or engines:
            raise self._error("INVALID_ARGUMENT")
        if (kind := self._computes(instance).get(profile)) is None:
            raise self._error("NOT_SUPPORTED")
        info = self._real.c_nvmlComputeInstanceProfileInfo_v2_t()
        info.id, (info.sliceCount, info.multiprocessorCount) = profile, kind
        info.instanceCount = instance.profile.compute // info.sliceCount
        return info

    def nvmlGpuInstanceCreateComputeInstance(self, handle: Any, profile: int) -> Any:
        """Make a compute instance."""
        instance = self._instance(handle)
        name = "nvmlGpuInstanceCreateComputeInstance"
        with self._change(name, instance.gpu, instance.id, profile):
            self._check(name, instance.gpu)
            self._need_root()
            if profile not in (kinds := self._computes(instance)):
                raise self._error("INVALID_ARGUMENT")
            used = sum(compute.slices for compute in instance.computes.values())
            if used + kinds[profile][0] > instance.profile.compute:
                raise self._error("INSUFFICIENT_RESOURCES")
            made = self._make_compute(self.states[instance.gpu.uuid], instance, profile)
            return self._pointer("ComputeInstance", made.address)

    def nvmlGpuInstanceGetComputeInstanceById(self, handle: Any, number: int) -> Any:
        """The compute instance of this id."""
        instance = self._instance(handle)
        self._check("nvmlGpuInstanceGetComputeInstanceById", instance.gpu)
        if number not in instance.computes:
            raise self._error("NOT_FOUND")
        return self._pointer("ComputeInstance", instance.computes[number].address)

    def nvmlComputeInstanceGetInfo_v2(self, handle: Any) -> Any:
        """Id and profile of a compute instance."""
        instance, compute = self._compute(handle)
        self._check("nvmlComputeInstanceGetInfo_v2", instance.gpu)
        info = self._real.c_nvmlComputeInstanceInfo_t()
        info.id, info.profileId = compute.id, compute.number
        return info

    def nvmlComputeInstanceDestroy(self, handle: Any) -> int:
        """Destroy a compute instance that nobody uses."""
        instance, compute = self._compute(handle)
        with self._change("nvmlComputeInstanceDestroy", instance.gpu, instance.id, compute.id):
            self._check("nvmlComputeInstanceDestroy", instance.gpu)
            self._need_root()
            if self._in_use(compute.uuid):
                raise self._error("IN_USE")
            del instance.computes[compute.id]
        return 0

    def nvmlDeviceGetAttributes_v2(self, handle: Any) -> Any:
        """What a MIG device has; of whole GPUs, nothing is told."""
        found = [
            (state, instance, compute)
            for state in self.states.values()
            for instance, compute in state.parts()
            if compute.uuid == handle.uuid
        ]
        if not found:
            raise self._error("NOT_SUPPORTED")
        state, instance, compute = found[0]
        self._check("nvmlDeviceGetAttributes_v2", state.gpu)
        attributes = self._real.c_nvmlDeviceAttributes()
        attributes.multiprocessorCount = compute.sms
        attributes.gpuInstanceSliceCount = instance.profile.compute
        attributes.computeInstanceSliceCount = compute.slices
        attributes.memorySizeMB = instance.profile.memory_bytes // MIB
        return attributes

    # ---- inside ----------------------------------------------------------------------------------

    def _make(self, state: State, kind: MigProfile, start: int) -> Instance:
        number = state.instance_id(kind, start)
        made = Instance(state.gpu, number, kind, start, next(self._addresses))
        state.instances[number] = made
        return made

    def _make_compute(self, state: State, instance: Instance, number: int) -> Compute:
        """A compute instance; its MIG device gets the first free index, so that holes come up."""
        own = next(free for free in count() if free not in instance.computes)
        used = {compute.index for _, compute in state.parts()}
        slices, sms = self._computes(instance)[number]
        made = Compute(
            id=own,
            number=number,
            slices=slices,
            sms=sms,
            index=next(free for free in count() if free not in used),
            uuid=f"MIG-{uuid5(NAMESPACE_OID, f'{instance.gpu.uuid}/{instance.id}/{own}')}",
            address=next(self._addresses),
        )
        instance.computes[own] = made
        return made

    def _computes(self, instance: Instance) -> dict[int, tuple[int, int]]:
        """Slices and SMs of the compute instances that can be, by NVML's numbers and ids."""
        table, whole = self.states[instance.gpu.uuid].table, instance.profile
        least = min(profile.sms for profile in table.profiles)
        kinds = {
            number: (slices, slices * least if slices < whole.compute else whole.sms)
            for number, slices in _COMPUTE_SLICES.items()
            if slices <= whole.compute
        }
        if whole.compute == 1 and whole.sms > least:
            kinds |= {0: (1, least), _COMPUTE_REVISED: (1, whole.sms)}
        return kinds

    def _state(self, handle: FakeGpu) -> State:
        if handle.uuid not in self.states:
            raise self._error("NOT_SUPPORTED")
        return self.states[handle.uuid]

    def _on(self, handle: FakeGpu) -> State:
        state = self._state(handle)
        if not state.on:
            raise self._error("NOT_SUPPORTED")
        return state

    def _kind(self, handle: FakeGpu, profile: int) -> MigProfile:
        """The profile of this id, which is not NVML's number of it."""
        for kind in self._state(handle).table.profiles:
            if kind.id == profile:
                return kind
        raise self._error("INVALID_ARGUMENT")

    def _instance(self, handle: Any) -> Instance:
        address = ctypes.cast(handle, ctypes.c_void_p).value
        for state in self.states.values():
            for instance in state.instances.values():
                if instance.address == address:
                    return instance
        raise self._error("INVALID_ARGUMENT")

    def _compute(self, handle: Any) -> tuple[Instance, Compute]:
        address = ctypes.cast(handle, ctypes.c_void_p).value
        for state in self.states.values():
            for instance, compute in state.parts():
                if compute.address == address:
                    return instance, compute
        raise self._error("INVALID_ARGUMENT")

    def _pointer(self, kind: str, address: int) -> Any:
        return ctypes.cast(address, getattr(self._real, f"c_nvml{kind}_t"))

    def _need_root(self) -> None:
        if not self._root:
            raise self._error("NO_PERMISSION")

    def _error(self, name: str) -> Exception:
        error: Exception = self._real.NVMLError(getattr(self._real, f"NVML_ERROR_{name}"))
        return error


def _numbered(table: MigTable) -> dict[int, MigProfile]:
    """The profiles of a card by NVML's numbers."""
    least = min(profile.size for profile in table.profiles)
    numbered = {}
    for profile in table.profiles:
        kind = f"{profile.compute}g{'+me' if profile.media else ''}"
        double = profile.compute == 1 and profile.size > least
        numbered[_PROFILES["1g double" if double else kind]] = profile
    return numbered


def _device(instance: Instance, compute: Compute) -> FakeMig:
    return FakeMig(
        name=f"{instance.gpu.name} MIG {instance.profile.name}",
        uuid=compute.uuid,
        memory_bytes=instance.profile.memory_bytes,
        used_bytes=instance.gpu.idle_part_bytes,
        instance=instance.id,
        compute=compute.id,
    )
