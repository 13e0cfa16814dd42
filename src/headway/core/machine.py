"""Everything the user owns: hosts, devices, and the ways a device can be shared."""

from typing import Annotated, Literal

from pydantic import Field

from headway.core.holdings import Reservation
from headway.core.noun import Noun
from headway.core.units import show_bytes

Count = Annotated[int, Field(ge=0)]

UNKNOWN_USER = "unknown"
"""Stands among a device's users where the driver does not tell who they are."""

# Memory that an idle GPU holds for itself: the driver keeps 0.3 to 1 GiB, more on larger cards.
IDLE_BYTES = 2**30
IDLE_PART = 0.05


class Device(Noun):
    """One accelerator, or a part of one, that jobs can be given whole.

    `memory_bytes` is None where the driver does not say: unknown is never taken for free.
    Of it the driver keeps `reserved_bytes` for itself, within `used_bytes`. `shares_host_memory`
    is true where it has none of its own. `capability` is CUDA's compute capability, and `sms` how
    many multiprocessors a MIG device has, of the `whole_sms` of its GPU. A MIG device is compute
    instance `instance[1]` of GPU instance `instance[0]` on the GPU `parent`.
    """

    index: Count
    kind: Literal["gpu"] = "gpu"
    name: str
    uuid: str
    memory_bytes: int | None
    used_bytes: int | None
    users: tuple[str, ...] = ()
    reserved_bytes: int | None = None
    shares_host_memory: bool = False
    architecture: str | None = None
    capability: tuple[Count, Count] | None = None
    sms: Count | None = None
    whole_sms: Count | None = None
    parent: str | None = None
    instance: tuple[Count, Count] | None = None

    @property
    def is_part(self) -> bool:
        """True for a MIG device: one process can use one such part, never two."""
        return self.uuid.startswith("MIG-")

    @property
    def part(self) -> float | None:
        """What part of a whole GPU's multiprocessors it has; None where that is not known."""
        if not self.is_part:
            return 1.0
        return self.sms / self.whole_sms if self.sms and self.whole_sms else None

    @property
    def unknown(self) -> str:
        """What hides whether it is in use, in words; "" where that can be told."""
        if self.memory_bytes is None or self.used_bytes is None:
            return "its memory is unknown"
        return "who uses it is unknown" if UNKNOWN_USER in self.users else ""

    @property
    def taken(self) -> str:
        """Who holds it, in words; "" for a device known to be free.

        A container may hide the processes of others, but not the memory that they hold.
        """
        if self.unknown or self.memory_bytes is None or self.used_bytes is None:
            return self.unknown
        if self.users:
            return f"used by {self.users[0]}"
        if self.used_bytes > max(IDLE_BYTES, IDLE_PART * self.memory_bytes):
            return f"{show_bytes(self.used_bytes)} of its memory are in use, nobody says by whom"
        return ""


class SharingWay(Noun):
    """A way of sharing this machine: usable, or the reason why not, in words."""

    name: str
    usable: bool
    reason: str


class ForeignUse(Noun):
    """What others take of this machine: average busy cores over `window_s`, and memory."""

    cores: Annotated[float, Field(ge=0)]
    memory_bytes: Count
    window_s: Annotated[float, Field(ge=0)]
    busiest: tuple[str, ...] = ()


class Host(Noun):
    """One computer as this process may use it.

    `cores` are the ids we may run on (affinity and cpusets); `quota_cores` is a time quota of a
    cgroup where one is set; `memory_bytes` is the smaller of the RAM and every cgroup limit above
    us, and `memory_source` says which it was.
    """

    name: str
    boot_id: str
    cores: Annotated[tuple[int, ...], Field(min_length=1)]
    quota_cores: float | None
    memory_bytes: Annotated[int, Field(gt=0)]
    memory_source: str
    model: str = ""


# Kernel, page tables and the guard's reaction time; below it Linux starts to reclaim file pages of
# running jobs, which shows as slow steps long before anything is killed.
JOBS_PART = 0.95


class Machine(Noun):
    """The hosts and devices jobs can be placed on, with what others use of them.

    `elsewhere` is what runs of this user held when it was looked at; `foreign` leaves that out.
    """

    hosts: Annotated[tuple[Host, ...], Field(min_length=1)]
    devices: tuple[Device, ...] = ()
    ways: tuple[SharingWay, ...] = ()
    foreign: ForeignUse = ForeignUse(cores=0.0, memory_bytes=0, window_s=0.0)
    elsewhere: tuple[Reservation, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def host(self) -> Host:
        """The computer Headway runs on."""
        return self.hosts[0]

    @property
    def capacity_bytes(self) -> int:
        """Memory that all jobs together may use: the limit, less 5% for the system."""
        return int(self.host.memory_bytes * JOBS_PART)

    @property
    def usable_cores(self) -> int:
        """Whole cores that jobs can be placed on: the allowed ones, within the quota, 1 or more."""
        quota = self.host.quota_cores
        allowed = len(self.host.cores)
        return allowed if quota is None else max(1, min(allowed, int(quota)))
