"""The machine as text."""

from headway.cli.layout import Column, table
from headway.cli.screens import core_list, wrapped
from headway.cli.terminal import Screen
from headway.core.holdings import Reservation
from headway.core.machine import Device, Machine
from headway.core.text import shorten
from headway.core.units import show_bytes


def two_lines(machine: Machine, screen: Screen) -> list[str]:
    """What there is and what others use, a line each."""
    host = machine.host
    free = max(0, host.memory_bytes - machine.foreign.memory_bytes)
    devices = ", ".join(screen.clean(device.name) for device in machine.devices) or "no GPU"
    lines = [
        f"{screen.clean(host.name)}: {_cores(machine)}, {show_bytes(free)} of "
        f"{show_bytes(host.memory_bytes)} memory free, {devices}",
        _others(machine, screen),
    ]
    # Two lines also on a narrow terminal; names of processes are long.
    return [shorten(line, screen.width, ending=screen.ending) for line in lines]


def _cores(machine: Machine) -> str:
    count = len(machine.host.cores)
    words = "1 core" if count == 1 else f"{count} cores"
    quota = machine.host.quota_cores
    return words if quota is None else f"{words} (time for {quota:g} of them)"


def _others(machine: Machine, screen: Screen) -> str:
    foreign = machine.foreign
    who = ", ".join(screen.clean(name) for name in foreign.busiest[:2])
    who = f" (busiest: {who})" if who else ""
    memory = show_bytes(foreign.memory_bytes)
    return f"others use {foreign.cores:.1f} cores and {memory}{who}"


def machine_lines(machine: Machine, screen: Screen) -> list[str]:
    """The whole inventory: cores, memory, devices, others, and each way of sharing."""
    host = machine.host
    lines = two_lines(machine, screen)
    if host.model:
        lines.append(f"processor: {screen.clean(host.model)}")
    lines.append(f"cores: {core_list(host.cores)}")
    lines += wrapped(
        f"{show_bytes(host.memory_bytes)}, from {screen.clean(host.memory_source)}",
        screen,
        lead="memory: ",
    )
    for run in machine.elsewhere:
        lines += wrapped(screen.clean(_held(run)), screen)
    for device in machine.devices:
        lines += wrapped(_device(device, screen), screen, lead=f"GPU {device.index}: ")
    lines += ["", "ways of sharing:"]
    rows = [
        [screen.clean(way.name), "yes" if way.usable else "no", screen.clean(way.reason)]
        for way in machine.ways
    ]
    columns = (Column("way", least=12), Column("usable"), Column("why", least=10))
    lines += table(columns, rows, width=screen.width, ending=screen.ending)
    for note in machine.notes:
        lines += wrapped(screen.clean(note), screen, lead="note: ")
    return lines


def _held(run: Reservation) -> str:
    """What a run of this user holds, or that it waits."""
    waits = "waits for a free core" if run.wants == 1 else f"waits for {run.wants} free cores"
    words = [f"holds {run.what}"] if run.what else []
    return f"{run.who} {' and '.join([*words, *([waits] if run.wants else [])])}"


def _device(device: Device, screen: Screen) -> str:
    size = "memory unknown" if device.memory_bytes is None else show_bytes(device.memory_bytes)
    used = "use unknown" if device.used_bytes is None else f"{show_bytes(device.used_bytes)} used"
    users = ", ".join(screen.clean(user) for user in device.users)
    return f"{screen.clean(device.name)}, {size}, {used}" + (f" by {users}" if users else "")
