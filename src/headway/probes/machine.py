"""The machine as this process may use it: the inventory behind `headway detect` and every plan.

What was handed to us is the inventory: affinity and cpusets, time quotas, memory limits of control
groups, CUDA_VISIBLE_DEVICES. More than that is not ours; what cannot be read is not free.
"""

import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.core import catalogue
from headway.core.holdings import Reservation
from headway.core.machine import Device, ForeignUse, Host, Machine, SharingWay
from headway.core.text import plain
from headway.probes.devices import Inventory, load_nvml, read_devices
from headway.probes.foreign import foreign_use, own_tree, take_moment
from headway.probes.visible import VARIABLE
from headway.system.cgroups import Cgroups
from headway.system.cores import allowed_cores, quota_cores
from headway.system.hierarchies import ROOT, Hierarchy, discover_hierarchies
from headway.system.memory import MemoryGauge
from headway.system.mig import rights
from headway.system.mps_places import inherited_pipe_folder, resident_daemon
from headway.system.mps_tool import CONTROL_NAME
from headway.system.procfs import PROC, boot_id, read_or_none

_VOLTA = (7, 0)


def measure_machine(
    *,
    window_s: float = 0.2,
    environment: Mapping[str, str] | None = None,
    own_pids: Collection[int] = (),
    elsewhere: Sequence[Reservation] = (),
    pid: int | None = None,
    affinity: Collection[int] | None = None,
    nvml: Any | None = None,
    proc: Path = PROC,
    root: Path = ROOT,
    sleep: Callable[[float], None] = time.sleep,
) -> Machine:
    """Look at this machine for `window_s` seconds: what is there, what is ours, who else uses it.

    Args:
        window_s: For how long others are observed; 0 observes memory and devices only.
        environment: The caller's variables; this process's own by default.
        own_pids: Roots of more process trees that are ours, such as keepers of running jobs.
        elsewhere: What other runs of this user hold: their jobs' use is not foreign as well.
        pid: This process, where `proc` is not the real one.
        affinity: The cores we are bound to, instead of asking the kernel.
        nvml: A module like pynvml; the real one is loaded by default.
        proc: Where procfs is mounted.
        root: Put before mount points, so that a recorded tree can stand for the machine.
        sleep: Waits between the two looks.

    """
    environment = os.environ if environment is None else environment
    pid = os.getpid() if pid is None else pid
    hierarchies = discover_hierarchies(proc, root=root, pid=pid)
    gauge = MemoryGauge(proc, hierarchies=hierarchies)
    cores = allowed_cores(proc, hierarchies=hierarchies, affinity=affinity)
    before = take_moment(proc)
    sleep(window_s)
    after = take_moment(proc)
    ours = own_tree(after, {pid, *own_pids})
    known = ours | own_tree(after, _keepers(elsewhere))
    foreign = foreign_use(before, after, gauge, cores=cores, own_pids=known, proc=proc)
    inventory = read_devices(
        load_nvml() if nvml is None else nvml,
        environment.get(VARIABLE),
        own_pids=ours,
        device_order=environment.get("CUDA_DEVICE_ORDER"),
        proc=proc,
    )
    host = _host(cores, hierarchies, gauge, proc)
    cgroups = Cgroups.discover(proc, root=root, pid=pid, hierarchies=hierarchies)
    return Machine(
        hosts=(host,),
        devices=inventory.devices,
        ways=_ways(cgroups, inventory, environment, proc),
        foreign=foreign,
        elsewhere=tuple(elsewhere),
        notes=(*inventory.notes, *_load_notes(host, foreign, proc)),
    )


def look_at_devices() -> tuple[Device, ...]:
    """The visible devices and who uses them now: what `measure_machine` says of them."""
    order = os.environ.get("CUDA_DEVICE_ORDER")
    return read_devices(load_nvml(), os.environ.get(VARIABLE), device_order=order).devices


def _keepers(elsewhere: Sequence[Reservation]) -> set[int]:
    """Keepers of jobs that hold cores: what a job uses that holds none is foreign."""
    holds = [hold for run in elsewhere for hold in run.jobs]
    return {hold.keeper[0] for hold in holds if hold.keeper is not None and hold.slots}


def _host(
    cores: tuple[int, ...], hierarchies: list[Hierarchy], gauge: MemoryGauge, proc: Path
) -> Host:
    limit = gauge.limit()
    return Host(
        name=plain(os.uname().nodename),
        boot_id=boot_id(proc),
        cores=cores,
        quota_cores=quota_cores(proc, hierarchies=hierarchies),
        memory_bytes=limit.limit_bytes,
        memory_source=limit.source,
        model=_processor(proc),
    )


def _processor(proc: Path) -> str:
    """The processor's name, "" where the kernel gives none (as on many ARM machines)."""
    for line in (read_or_none(proc / "cpuinfo") or b"").decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return plain(" ".join(value.split()))
    return ""


def _load_notes(host: Host, foreign: ForeignUse, proc: Path) -> list[str]:
    """What a busy machine does to everything that is measured on it."""
    notes = []
    if foreign.cores >= 0.5:
        notes.append(
            f"others keep {foreign.cores:.1f} of {len(host.cores)} cores busy: runs take longer, "
            "and times measured now swing"
        )
    words = (read_or_none(proc / "loadavg") or b"").split()
    if words and float(words[0]) > len(host.cores):
        load = ", ".join(word.decode() for word in words[:3])
        notes.append(f"load average {load}: more is waiting to run than there are cores")
    return notes


def _ways(
    cgroups: Cgroups, inventory: Inventory, environment: Mapping[str, str], proc: Path
) -> tuple[SharingWay, ...]:
    """Each way of sharing this machine: usable, or why not."""
    no_cap = cgroups.usable["memory"]
    no_cpuset = cgroups.usable["cpuset"]
    confined = "by affinity" if no_cpuset else "by cpuset"
    cap = (
        f"control groups: {no_cap}" if no_cap else f"cores {confined}, memory capped by the kernel"
    )
    watched = "cores by affinity; memory is watched, and the newest job stops before it runs out"
    no_gpu = "" if inventory.devices else "no NVIDIA device here"
    if inventory.any_gpu and not inventory.devices:
        no_gpu = f"{VARIABLE} leaves none to us"
    no_mps = _why_not_mps(inventory, environment, proc)
    no_mig = _why_not_mig(inventory, proc)
    return (
        SharingWay(name="serial", usable=True, reason="one job after another"),
        SharingWay(name="naive", usable=True, reason="everything at once, nothing divided"),
        SharingWay(name="shared", usable=True, reason="several at once, threads divided"),
        SharingWay(name="partitioned by cgroup", usable=not no_cap, reason=cap),
        SharingWay(name="partitioned by affinity and watching", usable=True, reason=watched),
        SharingWay(
            name="time-slices",
            usable=not no_gpu,
            reason=no_gpu or "several on a GPU, their kernels take turns",
        ),
        SharingWay(
            name="mps",
            usable=not (no_gpu or no_mps),
            reason=no_gpu or no_mps or "several on a GPU, their kernels side by side",
        ),
        SharingWay(
            name="mig",
            usable=not (no_gpu or no_mig),
            reason=no_gpu or no_mig or "GPUs divided, a job on each part; only where you allow it",
        ),
    )


def _why_not_mps(inventory: Inventory, environment: Mapping[str, str], proc: Path) -> str:
    """Why no MPS daemon of our own can serve jobs here; "" where one can."""
    if shutil.which(CONTROL_NAME, path=environment.get("PATH")) is None:
        return f"{CONTROL_NAME} is not on the path"
    if any(device.is_part for device in inventory.devices):
        return "MIG devices want a daemon each, which is not in this version"
    old = [one for one in inventory.devices if one.capability and one.capability < _VOLTA]
    if old:
        return f"device {old[0].index} ({old[0].name}) is older than Volta"
    # Two daemons on a GPU take turns; and where nothing else is said, a job joins the other one.
    place = inherited_pipe_folder(environment)
    other = resident_daemon(place, proc)
    if other is not None:
        return f"a daemon that is not ours (process {other.pid}) answers in {place}: jobs join it"
    return ""


def _why_not_mig(inventory: Inventory, proc: Path) -> str:
    """Why no GPU can be divided by us; "" where one can."""
    if any(device.is_part for device in inventory.devices):
        return "a GPU is divided already; its parts are used as they are"
    known = (catalogue.like(one.name, one.memory_bytes or 0) for one in inventory.devices)
    if not any(one is not None and one.mig is not None for one in known):
        return "no GPU here is known to be divisible"
    return rights(proc)
