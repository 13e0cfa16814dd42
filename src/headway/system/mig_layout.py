"""The levers of MIG: turn it on, create a layout, destroy what was created. They decide nothing.

[Note: all or nothing] A layout is created whole or not at all: what fails on the way is taken back,
compute instances first, and the driver is asked again in the end, since its answers alone are no
proof. What somebody else made is never touched: an instance is destroyed only if its id, profile,
place and all its MIG devices are still those that were created here.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import byref
from dataclasses import dataclass, field
from typing import Any

from headway.core.mig import MigInstance, MigPlacement, MigProfile, MigTable
from headway.core.text import plain
from headway.system.mig import MigFacts, mig_devices, read_mig

# NVML numbers 9 profiles of compute instances today.
_MOST_COMPUTE_PROFILES = 64


class MigRefused(Exception):
    """A lever did not move, in words; `left` are instances of ours that could not be taken back."""

    def __init__(self, reason: str, *, left: Sequence[MigInstance] = ()) -> None:
        names = ", ".join(f"GPU instance {one.id} ({one.profile})" for one in left)
        super().__init__(f"{reason}; left behind: {names}" if left else reason)
        self.left = tuple(left)


@contextmanager
def open_mig(nvml: Any, uuid: str) -> Iterator["MigGpu"]:
    """The levers of one GPU.

    Args:
        nvml: A module like pynvml.
        uuid: The GPU's.

    Raises:
        MigRefused: There is no such GPU, or no driver that answers.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise MigRefused(f"the NVIDIA driver cannot be asked ({error})") from None
    try:
        with _in_words(nvml, plain(uuid)):
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        yield MigGpu(nvml, uuid, handle)
    finally:
        with suppress(nvml.NVMLError):  # the driver may have gone away meanwhile
            nvml.nvmlShutdown()


@dataclass(frozen=True, slots=True)
class MigGpu:
    """One GPU whose division can be read and changed; made by `open_mig`."""

    nvml: Any
    uuid: str
    handle: Any

    def facts(self) -> MigFacts:
        """What the driver says now.

        Raises:
            MigRefused: The GPU cannot be divided, or does not answer.
        """
        with _in_words(self.nvml, f"{self.uuid} does not tell how it is divided"):
            return read_mig(self.nvml, self.handle)

    def set_mode(self, *, on: bool) -> None:
        """Turn MIG on or off, at once or not at all; a mode that would wait for a reset is undone.

        Raises:
            MigRefused: It is not in force, and why: rights, something that uses the GPU, instances
                that are there, or a GPU that must be reset first (A100, A30).
        """
        nvml = self.nvml
        what = f"MIG cannot be turned {'on' if on else 'off'} on {self.uuid}"
        facts = self.facts()
        if facts.on == on:
            return
        if facts.instances != ():
            raise MigRefused(f"{what}: it has GPU instances")
        with _in_words(nvml, what):
            # The call succeeds even where the mode only waits: its status says so, and so does the
            # mode itself.
            status = nvml.nvmlDeviceSetMigMode(self.handle, int(on))
            now, _ = nvml.nvmlDeviceGetMigMode(self.handle)
            if status == nvml.NVML_SUCCESS and bool(now) == on:
                return
            nvml.nvmlDeviceSetMigMode(self.handle, int(not on))
        if status in (nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_SUCCESS):
            raise MigRefused(
                f"{what} at once: this GPU must be reset; by hand: nvidia-smi -i {self.uuid} -mig "
                f"{int(on)}, then nvidia-smi -i {self.uuid} --gpu-reset, with nothing using it"
            )
        raise MigRefused(f"{what}: {_reason(nvml, nvml.NVMLError(status))}")

    def create(
        self,
        placements: Sequence[MigPlacement],
        *,
        made: Callable[[MigInstance], None] = lambda instance: None,
    ) -> tuple[MigInstance, ...]:
        """Create these instances beside those that are there, each with one compute instance.

        Args:
            placements: As `MigTable.layout` gives them, with ``beside`` for what is there.
            made: Told of each instance as soon as it exists, and again with its compute instance,
                so that it can be destroyed after a crash; where it raises, all is taken back.

        Returns:
            What was created, in the order of creation: larger ones first.

        Raises:
            MigRefused: Nothing was created, and why; or what could not be taken back is `left`.
        """
        before = self.facts()
        profiles = self._checked(before, placements)
        work = _Creation(self.nvml, self.uuid, self.handle, made)
        try:
            # A driver may refuse a 3g beside smaller instances that would leave it room.
            for placement in sorted(placements, key=lambda one: -one.size):
                work.add(profiles[placement.profile], placement)
            self._verify(work.instances)
        except BaseException as error:
            left = self._left(work.undo(), work.instances, before)
            if isinstance(error, self.nvml.NVMLError):
                what = f"{self.uuid} cannot be divided so: {work.doing}"
                reason = f"{what}: {_reason(self.nvml, error)}"
                raise MigRefused(reason, left=left) from None
            if isinstance(error, MigRefused):
                raise MigRefused(str(error), left=left) from None
            if left:
                error.add_note(str(MigRefused(f"{self.uuid} was to be divided", left=left)))
            raise
        return tuple(work.instances)

    def destroy(self, instances: Iterable[MigInstance]) -> None:
        """Destroy instances that were created here; those that are gone already are no error.

        Args:
            instances: What `create` returned, or told of.

        Raises:
            MigRefused: Some are `left`: a process uses them, or they are not those any more.
        """
        reasons = []
        left = []
        for instance in reversed(tuple(instances)):
            try:
                reason = self._destroy(instance)
            except self.nvml.NVMLError as error:
                reason = _reason(self.nvml, error)
            if reason:
                reasons.append(f"GPU instance {instance.id} ({instance.profile}): {reason}")
                left.append(instance)
        if reasons:
            raise MigRefused(f"{self.uuid}: {'; '.join(reasons)}", left=left)

    def _destroy(self, instance: MigInstance) -> str:
        """Why this one stays; "" where it is gone."""
        nvml = self.nvml
        now = self._present(instance)
        if now is None:
            return ""
        ours = dict(zip(instance.compute, instance.uuids, strict=True))
        there = dict(zip(now.compute, now.uuids, strict=True))
        if now.placement != instance.placement or not there.items() <= ours.items():
            return "it is not the one that was created here any more, and is left alone"
        handle = nvml.nvmlDeviceGetGpuInstanceById(self.handle, instance.id)
        for compute in now.compute:
            nvml.nvmlComputeInstanceDestroy(
                nvml.nvmlGpuInstanceGetComputeInstanceById(handle, compute)
            )
        nvml.nvmlGpuInstanceDestroy(handle)
        return "" if self._present(instance) is None else "the driver still lists it"

    def _present(self, instance: MigInstance) -> MigInstance | None:
        """The instance that has this id now."""
        found = read_mig(self.nvml, self.handle).instances
        if found is None:
            raise self.nvml.NVMLError(self.nvml.NVML_ERROR_NO_PERMISSION)
        return next((one for one in found if one.id == instance.id), None)

    def _checked(
        self, facts: MigFacts, placements: Sequence[MigPlacement]
    ) -> dict[str, MigProfile]:
        """The profiles of these placements, by name.

        Raises:
            MigRefused: They cannot be created here.
        """
        if not facts.on:
            wait = " until the next reset" if facts.pending else ""
            raise MigRefused(f"MIG is off on {self.uuid}{wait}: nothing can be created")
        if facts.table is None or facts.instances is None:
            raise MigRefused(f"{self.uuid} cannot be divided: {'; '.join(facts.notes)}")
        taken = list(facts.instances)
        for placement in placements:
            if reason := _no_place(facts.table, placement):
                raise MigRefused(f"{self.uuid} cannot be divided so: {reason}")
            for other in taken:
                if placement.bits & other.placement.bits:
                    raise MigRefused(
                        f"{self.uuid} cannot be divided so: {placement.profile} at "
                        f"{placement.start} overlaps GPU instance {other.id} ({other.profile} at "
                        f"{other.start}), which was there before"
                    )
        return {profile.name: profile for profile in facts.table.profiles}

    def _verify(self, made: Sequence[MigInstance]) -> None:
        """Ask again whether all is there, as it was made.

        Raises:
            MigRefused: Something is not.
        """
        there = self.facts().instances or ()
        for instance in made:
            if instance not in there or not all(instance.uuids):
                raise MigRefused(
                    f"{self.uuid}: the driver created GPU instance {instance.id} "
                    f"({instance.profile} at {instance.start}), but does not list it so"
                )

    def _left(
        self, kept: Sequence[MigPlacement], made: Sequence[MigInstance], before: MigFacts
    ) -> list[MigInstance]:
        """The instances of ours that are still there, of those that could not be taken back.

        Args:
            kept: Where the driver did not let go of one.
            made: All that were made; the answer where the driver does not tell any more.
            before: What was there before.
        """
        if not kept:
            return []
        try:
            there: Sequence[MigInstance] = self.facts().instances or ()
        except MigRefused:
            there = made
        known = {instance.id for instance in before.instances or ()}
        return [one for one in there if one.id not in known and one.placement in kept]


@dataclass(slots=True)
class _Creation:
    """Instances under creation, and the handles to take them back by."""

    nvml: Any
    uuid: str
    gpu: Any
    made: Callable[[MigInstance], None]
    instances: list[MigInstance] = field(default_factory=list)
    handles: list[tuple[MigPlacement, Any, list[Any]]] = field(default_factory=list)
    """Of each GPU instance: where, its handle, and those of its compute instances."""
    doing: str = ""
    """What was tried last, in words."""

    def add(self, profile: MigProfile, placement: MigPlacement) -> None:
        nvml = self.nvml
        self.doing = f"{profile.name} at {placement.start}"
        place = nvml.c_nvmlGpuInstancePlacement_t(placement.start, placement.size)
        handle = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(self.gpu, profile.id, byref(place))
        computes: list[Any] = []
        self.handles.append((placement, handle, computes))
        about = nvml.nvmlGpuInstanceGetInfo(handle)
        instance = MigInstance(
            gpu=self.uuid,
            id=about.id,
            profile=profile.name,
            start=about.placement.start,
            size=about.placement.size,
        )
        self.instances.append(instance)
        self.made(instance)
        self.doing = f"the compute instance of {profile.name} at {placement.start}"
        whole = self._whole(handle, profile)
        computes.append(nvml.nvmlGpuInstanceCreateComputeInstance(handle, whole))
        number = nvml.nvmlComputeInstanceGetInfo_v2(computes[0]).id
        update = {"compute": (number,), "uuids": (self._uuid(about.id, number),)}
        self.instances[-1] = instance.model_copy(update=update)
        self.made(self.instances[-1])

    def undo(self) -> list[MigPlacement]:
        """Destroy all in reverse; where the driver did not let go of one is returned."""
        kept = []
        for placement, handle, computes in reversed(self.handles):
            try:
                for compute in computes:
                    self.nvml.nvmlComputeInstanceDestroy(compute)
                self.nvml.nvmlGpuInstanceDestroy(handle)
            except self.nvml.NVMLError:
                kept.append(placement)
        return kept

    def _uuid(self, instance: int, compute: int) -> str:
        """The UUID of a MIG device, "" where it is not there."""
        devices, _ = mig_devices(self.nvml, self.gpu)
        return next(
            (one.uuid for one in devices if (one.instance, one.compute) == (instance, compute)), ""
        )

    def _whole(self, handle: Any, profile: MigProfile) -> int:
        """Id of the compute instance that takes all of a GPU instance.

        Of several with all its slices, the one with the most SMs.
        """
        found = []
        for number in range(_MOST_COMPUTE_PROFILES):
            try:
                found.append(
                    self.nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                        handle, number, self.nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
                    )
                )
            except self.nvml.NVMLError_NotSupported:
                continue
            except self.nvml.NVMLError_InvalidArgument:
                break
        whole = [info for info in found if info.sliceCount == profile.compute]
        if not whole:
            raise self.nvml.NVMLError(self.nvml.NVML_ERROR_NOT_SUPPORTED)
        return int(max(whole, key=lambda info: info.multiprocessorCount).id)


def _no_place(table: MigTable, placement: MigPlacement) -> str:
    """Why the card has no such place at all; "" where it has."""
    profile = table.profile(placement.profile)
    if profile is None:
        known = " ".join(kind.name for kind in table.profiles)
        return f"no MIG profile {plain(placement.profile)} here; there are: {known}"
    if placement.start not in profile.starts or placement.size != profile.size:
        starts = ", ".join(map(str, profile.starts))
        return (
            f"{profile.name} takes {profile.size} memory slices from one of {starts}, not "
            f"{placement.size} from {placement.start}"
        )
    return ""


@contextmanager
def _in_words(nvml: Any, what: str) -> Iterator[None]:
    """An error of the driver as a sentence."""
    try:
        yield
    except nvml.NVMLError as error:
        raise MigRefused(f"{what}: {_reason(nvml, error)}") from None


def _reason(nvml: Any, error: Any) -> str:
    """What an error of the driver means here."""
    words = {
        nvml.NVML_ERROR_NO_PERMISSION: "it needs root, or read access to "
        "/proc/driver/nvidia/capabilities/mig/config",
        nvml.NVML_ERROR_IN_USE: "it is in use by another client, a process still works there",
        nvml.NVML_ERROR_INSUFFICIENT_RESOURCES: "the driver has no room for it",
        nvml.NVML_ERROR_NOT_SUPPORTED: "not supported: MIG is off, or this GPU cannot be divided",
        nvml.NVML_ERROR_INVALID_ARGUMENT: "the driver does not know such an instance or place",
        nvml.NVML_ERROR_NOT_FOUND: "there is none",
    }
    return words.get(error.value, str(error))
