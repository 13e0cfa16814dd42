"""Machines that are not there."""

from collections.abc import Sequence

from headway.core.machine import Device, ForeignUse, Host, Machine
from headway.core.units import GIB


def fake_machine(
    cores: int = 2,
    *,
    memory_bytes: int = 8 * GIB,
    devices: Sequence[Device] = (),
    foreign_bytes: int = 0,
    quota_cores: float | None = None,
) -> Machine:
    """A host with so many cores, numbered from 0, and these devices.

    >>> fake_machine(cores=4, devices=[fake_device(0)]).usable_cores
    4
    """
    host = Host(
        name="fake",
        boot_id="00000000-0000-0000-0000-000000000000",
        cores=tuple(range(cores)),
        quota_cores=quota_cores,
        memory_bytes=memory_bytes,
        memory_source="RAM",
    )
    foreign = ForeignUse(cores=0.0, memory_bytes=foreign_bytes, window_s=0.0)
    return Machine(hosts=(host,), devices=tuple(devices), foreign=foreign)


def fake_device(
    index: int,
    *,
    used_bytes: int | None = 0,
    users: Sequence[str] = (),
    memory_bytes: int = 80 * GIB,
) -> Device:
    """A GPU: empty, or used by others, or (`used_bytes` None) of unknown use."""
    return Device(
        index=index,
        name="fake GPU",
        uuid=f"GPU-{index:08d}",
        memory_bytes=memory_bytes,
        used_bytes=used_bytes,
        users=tuple(users),
    )
