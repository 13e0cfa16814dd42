"""What a fake NVML is built from: GPUs, MIG devices, and the processes on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headway.core import catalogue
from headway.core.mig import MigTable
from headway.core.units import MIB


@dataclass(frozen=True, slots=True)
class FakeUse:
    """A process on a fake device, with the memory it uses; None where the driver does not say."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class FakeMig:
    """A MIG device; `instance` and `compute` are the numbers of its two instances."""

    name: str
    uuid: str
    memory_bytes: int
    used_bytes: int = 0
    uses: tuple[FakeUse, ...] = ()
    instance: int = 1
    compute: int = 0


@dataclass(frozen=True, slots=True)
class FakeGpu:
    """A GPU; memory 0 means that it has none of its own, `migs` not None that MIG is on.

    `migs` may hold None: a hole in the indexes. `refuses` maps a function's name to the error code
    that it answers with for this GPU. `clients` are what an MPS server lists. What is None is not
    told by the driver.

    With a `table` the GPU can be divided in the test itself, and `migs` is not used: MIG is on from
    the start where `mig_on`, and where `needs_reset` another mode waits for one, which the driver's
    status says or not. `counters` are what GPM gives, by NVML's numbers.
    """

    name: str
    uuid: str
    memory_bytes: int
    used_bytes: int = 0
    uses: tuple[FakeUse, ...] = ()
    migs: tuple[FakeMig | None, ...] | None = None
    clients: tuple[FakeUse, ...] = ()
    refuses: Mapping[str, int] = field(default_factory=dict)
    reserved_bytes: int | None = None
    architecture: str | None = None
    capability: tuple[int, int] | None = None
    busy: tuple[int, int] | None = None
    """Percent of the time in which a kernel ran, and in which memory was used."""
    power_mw: int | None = None
    energy_mj: int | None = None
    counters: Mapping[int, float] | None = None
    table: MigTable | None = None
    mig_on: bool = False
    needs_reset: Literal["", "says so", "says nothing"] = ""
    idle_part_bytes: int = 44 * MIB
    """Memory that a MIG device shows as used when nothing runs on it."""


# Architecture and compute capability by the first word of the catalogue's name (recalled).
_GENERATIONS = {
    "p100": ("Pascal", (6, 0)),
    "v100": ("Volta", (7, 0)),
    "t4": ("Turing", (7, 5)),
    "a30": ("Ampere", (8, 0)),
    "a100": ("Ampere", (8, 0)),
    "a10": ("Ampere", (8, 6)),
    "a40": ("Ampere", (8, 6)),
    "rtx3090": ("Ampere", (8, 6)),
    "l4": ("Ada", (8, 9)),
    "l40s": ("Ada", (8, 9)),
    "rtx4090": ("Ada", (8, 9)),
    "h100": ("Hopper", (9, 0)),
    "h200": ("Hopper", (9, 0)),
    "b200": ("Blackwell", (10, 0)),
    "rtx5090": ("Blackwell", (12, 0)),
}
_BEFORE_GPM = {"Pascal", "Volta", "Turing", "Ampere", "Ada"}


def fake_gpu(name: str, uuid: str, **more: Any) -> FakeGpu:
    """A GPU of the catalogue, as its driver would show it.

    Ampere cards need a reset to turn MIG on, and have no counters of GPM; later ones have.

    Args:
        name: A device of the catalogue.
        uuid: As the driver gives it.
        more: Other fields of `FakeGpu`.

    >>> gpu = fake_gpu("h100-80gb", "GPU-a", mig_on=True)
    >>> gpu.architecture, gpu.table.profile("3g.40gb").sms, gpu.needs_reset
    ('Hopper', 60, '')
    """
    known = catalogue.device(name)
    architecture, capability = _GENERATIONS[name.split("-")[0]]
    ampere = architecture == "Ampere"
    fields: dict[str, Any] = {
        "memory_bytes": known.memory_bytes,
        "reserved_bytes": 600 * MIB if ampere else 1024 * MIB,
        "used_bytes": 600 * MIB if ampere else 1024 * MIB,
        "architecture": architecture,
        "capability": capability,
        "busy": (0, 0),
        "power_mw": 70_000,
        "energy_mj": 0,
        "counters": None if architecture in _BEFORE_GPM else {},
        "table": known.mig,
        "needs_reset": "says so" if ampere else "",
        "idle_part_bytes": 11 * MIB if ampere else 44 * MIB,
    }
    return FakeGpu(known.title, uuid, **{**fields, **more})
