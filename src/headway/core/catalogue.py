"""Devices that are known without being here, so that a plan can be made for them anywhere.

The figures and where each was read are in catalogue.toml beside this file; it is read once, when
the first device is asked for. What the driver of a device at hand says wins over it.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from headway.core.errors import BadFile, UnknownName
from headway.core.machine import Device, Host, Machine
from headway.core.mig import Count, MigPlacement, MigProfile, MigTable, Positive, Refusal
from headway.core.noun import Noun
from headway.core.text import plain
from headway.core.units import GIB, MIB, show_bytes

Dtype = Literal["fp64", "fp64_matrix", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
Trust = Literal["confirmed", "third party", "from memory"]

MAX_MACHINE_BYTES = 16 * MIB
_NEAR_MEMORY = 0.1
_LEAST_SURE_FIRST: tuple[Trust, ...] = ("from memory", "third party", "confirmed")


class Source(Noun):
    """Where figures were read, and how far that is to be trusted."""

    what: str
    trust: Trust


class Figure(Noun):
    """One figure of a device; `source` is one or more tags of `sources`, with blanks between."""

    value: Annotated[float, Field(gt=0)]
    source: str

    @property
    def trust(self) -> Trust:
        """How far the figure is to be trusted: as far as the least sure of its sources."""
        return trust(self.source)

    def times(self, factor: float) -> "Figure":
        """The figure in another unit."""
        return Figure(value=self.value * factor, source=self.source)


class KnownDevice(Noun):
    """What is known of one kind of device; None is a figure that nobody has looked up yet.

    `memory` is in bytes and never more than the device has, `bandwidth` in bytes a second, `peaks`
    in dense operations a second. `mig` is how it can be divided, None where it cannot, and
    `mig_source` where its placements and profile ids were read.
    """

    name: str
    title: str
    memory: Figure
    bandwidth: Figure | None = None
    sms: Figure
    peaks: tuple[tuple[Dtype, Figure], ...] = ()
    mig: MigTable | None = None
    mig_source: str = ""

    @property
    def memory_bytes(self) -> int:
        """The memory that can be planned with."""
        return int(self.memory.value)

    def peak(self, dtype: Dtype) -> Figure | None:
        """Dense operations a second in this dtype; None where the device has none, or no figure.

        >>> device("v100-16gb").peak("fp16").value, device("v100-16gb").peak("bf16")
        (125000000000000.0, None)
        """
        return dict(self.peaks).get(dtype)


def names() -> tuple[str, ...]:
    """Names of the known devices, in the order of the catalogue."""
    return tuple(_catalogue())


def device(name: str) -> KnownDevice:
    """A known device.

    Args:
        name: ``<device>-<GB>gb``.

    Raises:
        UnknownName: There is none of this name; near ones are listed.

    >>> device("a100-40gb").mig.profile("7g.40gb").sms, device("a100-40gb").sms.value
    (98, 108.0)
    """
    known = _catalogue()
    if name not in known:
        near = get_close_matches(name.lower(), known, n=3, cutoff=0.5)
        hint = f"near: {' '.join(near)}" if near else f"known: {' '.join(known)}"
        raise UnknownName(f'no known device named "{plain(name[:60])}"; {hint}')
    return known[name]


def like(name: str, memory_bytes: int) -> KnownDevice | None:
    """The known device that a driver means by this name, or None.

    A driver writes "NVIDIA A100-SXM4-80GB" where the catalogue has ``a100-80gb``: every word of the
    catalogue's name but the last stands in the driver's, and of several such devices the one is
    meant whose name says more, then the one whose memory is nearest.

    Args:
        name: As the driver gives it.
        memory_bytes: About what the device has; none that is 10% away is meant.

    >>> [like(name, 80 * GIB).name for name in ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe")]
    ['a100-80gb', 'h100-pcie-80gb']
    >>> like("NVIDIA GeForce RTX 4090", 24 * GIB).name, like("NVIDIA A100-SXM4-80GB", 24 * GIB)
    ('rtx4090-24gb', None)
    """
    words = re.findall(r"[a-z0-9]+", re.sub(r"\b(rtx|gtx) ", r"\1", name.lower()))

    def distance(known: KnownDevice) -> float:
        return abs(known.memory_bytes - memory_bytes) / known.memory_bytes

    meant = [
        known
        for known in _catalogue().values()
        if set(known.name.split("-")[:-1]) <= set(words) and distance(known) < _NEAR_MEMORY
    ]
    best_first = sorted(meant, key=lambda known: (-known.name.count("-"), distance(known)))
    return best_first[0] if best_first else None


def sources() -> Mapping[str, Source]:
    """Where the figures were read, by tag."""
    return _file().sources


def trust(source: str) -> Trust:
    """How far a figure is to be trusted: as far as the least sure of its sources.

    Args:
        source: One or more tags, with blanks between.

    >>> trust("mig lgip"), trust("mig recalled")
    ('confirmed', 'from memory')
    """
    words = [sources()[tag].trust for tag in source.split()]
    return min(words, key=_LEAST_SURE_FIRST.index)


def layout(known: KnownDevice, profiles: Iterable[str]) -> tuple[MigPlacement, ...] | Refusal:
    """Where MIG instances of these profiles go on one such device, or why they cannot all exist.

    >>> layout(device("a100-40gb"), ["2g.10gb", "4g.20gb", "2g.10gb"]).reason
    '4g.20gb + 2 x 2g.10gb needs 8 of 7 compute slices'
    >>> [placement.start for placement in layout(device("a100-40gb"), ["3g.20gb"])]
    [4]
    """
    if known.mig is None:
        return Refusal(reason=f"{known.name} cannot be divided by MIG")
    return known.mig.layout(profiles)


# ---- machines that are not here -----------------------------------------------------------------


def machine(
    name: str, *, count: int = 1, cores_each: int = 8, host_bytes_each: int = 64 * GIB
) -> Machine:
    """A machine with known devices of one kind, all of them free.

    What host they stand in is not known: the defaults are an assumption, and a note says so.

    Args:
        name: A device of the catalogue.
        count: How many of them, 1 or more.
        cores_each: Cores of the host for each device.
        host_bytes_each: Memory of the host for each device.

    Raises:
        UnknownName: The device is not in the catalogue.

    >>> pair = machine("t4-16gb", count=2)
    >>> [(device.index, device.name) for device in pair.devices], pair.usable_cores
    ([(0, 't4-16gb'), (1, 't4-16gb')], 16)
    """
    known = device(name)
    host = Host(
        name=f"{count} x {name}",
        boot_id="",
        cores=tuple(range(count * cores_each)),
        quota_cores=None,
        memory_bytes=count * host_bytes_each,
        memory_source="an assumption",
    )
    notes = [
        f"not here: {count} x {known.title} ({show_bytes(known.memory_bytes)}) of the catalogue",
        f"its host is assumed: {cores_each} cores and {show_bytes(host_bytes_each)} a device",
    ]
    if known.memory.trust != "confirmed":
        notes.append(f"the memory of {name} is not confirmed ({known.memory.trust})")
    devices = tuple(
        Device(
            index=index,
            name=name,
            uuid=f"{name}/{index}",
            memory_bytes=known.memory_bytes,
            used_bytes=0,
        )
        for index in range(count)
    )
    return Machine(hosts=(host,), devices=devices, notes=tuple(notes))


def read_machine(path: Path) -> Machine:
    """The machine in a file: machine.json of a run, or what ``headway detect --json`` printed.

    Raises:
        BadFile: It cannot be read, or is no machine; the field, what was given and what is known
            are named.
    """
    source = plain(str(path))
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_MACHINE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadFile(
            f"{source}: cannot be read ({reason}). Such a file is made on the machine itself: "
            "headway detect --json > machine.json"
        ) from None
    if len(text) > MAX_MACHINE_BYTES:
        raise BadFile(f"{source}: larger than {MAX_MACHINE_BYTES >> 20} MB, so no machine.json.")
    return Machine.from_json(text, source=source)


def machine_of(word: str) -> Machine:
    """The machine that a user names: a device of the catalogue, or a file that ends in ``.json``.

    Raises:
        UnknownName: No such device; near ones are listed.
        BadFile: The file cannot be read, or is no machine.
    """
    return read_machine(Path(word)) if word.endswith(".json") else machine(word)


# ---- catalogue.toml -----------------------------------------------------------------------------


class _Memory(Figure):
    unit: Literal["GB", "MiB", "GiB"]

    @property
    def in_bytes(self) -> Figure:
        return self.times({"GB": 1e9, "MiB": MIB, "GiB": GIB}[self.unit])


class _Kind(Noun):
    """What the profiles of one shape have in common, whatever device they are on."""

    id: Count
    compute: Positive
    size: Positive
    starts: tuple[Count, ...]
    most: Positive


class _Slices(Noun):
    compute: Positive
    memory: Positive
    kinds: dict[str, _Kind]


class _Profile(Noun):
    kind: str
    name: str
    gib: float
    sms: Positive
    copy_engines: Positive | None = None
    source: str


class _Mig(Noun):
    slices: str
    source: str
    profiles: tuple[_Profile, ...]


class _Device(Noun):
    title: str
    memory: _Memory
    gb_per_s: Figure | None = None
    sms: Figure
    peaks: dict[str, dict[Dtype, float]] = {}
    mig: _Mig | None = None


class _File(Noun):
    sources: dict[str, Source]
    slices: dict[str, _Slices]
    device: dict[str, _Device]


@cache
def _file() -> _File:
    text = files("headway.core").joinpath("catalogue.toml").read_text(encoding="utf-8")
    # By way of JSON, where a strict noun takes a list for a tuple.
    return _File.model_validate_json(json.dumps(tomllib.loads(text)))


@cache
def _catalogue() -> Mapping[str, KnownDevice]:
    file = _file()
    return {name: _known(name, entry, file.slices) for name, entry in file.device.items()}


def _known(name: str, entry: _Device, slices: Mapping[str, _Slices]) -> KnownDevice:
    return KnownDevice(
        name=name,
        title=entry.title,
        memory=entry.memory.in_bytes,
        bandwidth=entry.gb_per_s.times(1e9) if entry.gb_per_s else None,
        sms=entry.sms,
        peaks=tuple(
            (dtype, Figure(value=tera, source=source).times(1e12))
            for source, group in entry.peaks.items()
            for dtype, tera in group.items()
        ),
        mig=_table(entry.mig, slices[entry.mig.slices]) if entry.mig else None,
        mig_source=entry.mig.source if entry.mig else "",
    )


def _table(mig: _Mig, slices: _Slices) -> MigTable:
    profiles = tuple(
        MigProfile(
            name=profile.name,
            memory_bytes=int(profile.gib * GIB),
            sms=profile.sms,
            copy_engines=profile.copy_engines,
            source=profile.source,
            **slices.kinds[profile.kind].model_dump(),
        )
        for profile in mig.profiles
    )
    return MigTable(compute=slices.compute, memory=slices.memory, profiles=profiles)
