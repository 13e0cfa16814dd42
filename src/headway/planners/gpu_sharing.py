"""The ways of running a list on GPUs, as plans: whole ones, taken in turns, side by side, divided.

exclusive    a GPU is one job's alone (the plain way; always a candidate)
time-slices  up to `most` jobs on each, none that would need what memory is left, none on a GPU that
             is kept busy all the time
mps          the same, their kernels side by side; with an equal part of the multiprocessors for
             each job, or as many as its kernels fill
mig          each GPU divided into instances, each one job's alone

Memory is a hard bound in all of them: a job whose need is not known gets a whole device. In which
order jobs start is the same in all: the longest first.

[Note: which layouts] An instance that could be made besides the others costs nothing, and a job can
use it: so only layouts are looked at to which nothing can be added (12 of the GPUs with seven
slices, and those with the double-memory 1g). GPUs of one kind are divided alike at first; then one
GPU after another gets the layout that ends the list earliest, as long as anything is gained.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from headway.core import catalogue
from headway.core.machine import Device, Machine
from headway.core.mig import MigTable, Refusal
from headway.core.plan import Division, Layout, Plan, PolicyChoice, Way
from headway.core.workload import Workload
from headway.costs.device_sharing import Load
from headway.planners.admission.expectations import expecting

# MPS serves more clients, but what so many cost each other is not in the model.
MOST_ON_ONE = 7
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Divisible:
    """How a GPU can be divided by MIG, and how many multiprocessors it has while it is not."""

    table: MigTable
    sms: int


def divisible(machine: Machine) -> Mapping[str, Divisible]:
    """The GPUs of a machine that can be divided by MIG, by UUID, as the catalogue knows them.

    >>> sorted(divisible(catalogue.machine("a100-40gb", count=2)))
    ['a100-40gb/0', 'a100-40gb/1']
    """
    found = {}
    for device in machine.devices:
        known = _known(device)
        if known is not None and known.mig is not None and not device.is_part:
            found[device.uuid] = Divisible(known.mig, int(known.sms.value))
    return found


def _known(device: Device) -> catalogue.KnownDevice | None:
    if device.name in catalogue.names():
        return catalogue.device(device.name)
    return catalogue.like(device.name, device.memory_bytes or 0)


def divided(
    machine: Machine,
    division: Division,
    how: Mapping[str, Divisible],
    *,
    placed: Mapping[tuple[str, int], str] | None = None,
) -> Machine:
    """The machine with its GPUs divided as a plan says; its devices are numbered anew.

    Args:
        machine: With whole GPUs.
        division: The layouts.
        how: How its GPUs can be divided.
        placed: The UUID of the MIG device at each start on each GPU, once they are made; without
            it they have names that no driver knows.

    Raises:
        ValueError: A layout is of no GPU of this machine, or cannot be made.

    >>> machine = catalogue.machine("a100-40gb")
    >>> layout = Layout(gpu="a100-40gb/0", profiles=("3g.20gb", "4g.20gb"))
    >>> parts = divided(machine, Division(way="mig", layouts=(layout,)), divisible(machine)).devices
    >>> [(part.index, part.name, part.sms, part.whole_sms) for part in parts]
    [(0, 'a100-40gb 4g.20gb', 56, 108), (1, 'a100-40gb 3g.20gb', 42, 108)]
    """
    layouts = {layout.gpu: layout.profiles for layout in division.layouts}
    unknown = layouts.keys() - {device.uuid for device in machine.devices}
    if unknown:
        raise ValueError(f"a layout is of {min(unknown)}, which is not here")
    devices: list[Device] = []
    for device in machine.devices:
        profiles = layouts.get(device.uuid)
        if profiles is None:
            devices.append(device)
        else:
            devices += _parts(device, how[device.uuid], profiles, placed or {})
    numbered = (one.model_copy(update={"index": n}) for n, one in enumerate(devices))
    return machine.model_copy(update={"devices": tuple(numbered)})


def _parts(
    device: Device,
    how: Divisible,
    profiles: Sequence[str],
    uuids: Mapping[tuple[str, int], str],
) -> Iterator[Device]:
    placed = how.table.layout(profiles)
    if isinstance(placed, Refusal):
        raise ValueError(f"{device.name}: {placed.reason}")
    for placement in placed:
        profile = how.table.profile(placement.profile)
        assert profile is not None
        yield Device(
            index=device.index,
            name=f"{device.name} {profile.name}",
            uuid=uuids.get((device.uuid, placement.start), f"MIG-{device.uuid}/{placement.start}"),
            memory_bytes=profile.memory_bytes,
            used_bytes=0,
            sms=profile.sms,
            whole_sms=how.sms,
            parent=device.uuid,
        )


@cache
def maximal_layouts(table: MigTable) -> tuple[tuple[str, ...], ...]:
    """The layouts to which nothing can be added, the largest instances first, without media.

    >>> table = catalogue.device("a100-40gb").mig
    >>> plain = [one for one in maximal_layouts(table) if "1g.10gb" not in one]
    >>> len(plain), plain[0], plain[-1] == ("1g.5gb",) * 7
    (12, ('7g.40gb',), True)
    """
    profiles = sorted(
        (one for one in table.profiles if "+" not in one.name and "-" not in one.name),
        key=lambda one: (-one.compute, -one.size),
    )
    names = [one.name for one in profiles]

    def fits(layout: tuple[str, ...]) -> bool:
        return not isinstance(table.layout(layout), Refusal)

    found: list[tuple[str, ...]] = []
    todo: list[tuple[tuple[str, ...], int]] = [((), 0)]
    while todo:
        layout, first = todo.pop()
        if not any(fits((*layout, name)) for name in names):
            found.append(layout)
        # Each layout once: in the order of the profiles.
        todo += [
            ((*layout, names[n]), n)
            for n in reversed(range(first, len(names)))
            if fits((*layout, names[n]))
        ]
    return tuple(sorted(found, key=lambda layout: [names.index(name) for name in layout]))


def sharing_plans(plain: Plan, workloads: Sequence[Workload]) -> list[Plan]:
    """The plan with GPUs that are one job's alone, and those in which several are on one.

    Args:
        plain: With cores and threads for each job; its policy gives way.
        workloads: What is known of the jobs, one each.
    """
    ordered = _longest_first(plain, workloads)
    plans = [_exclusive(ordered, workloads)]
    for most in range(2, MOST_ON_ONE + 1):
        plans.append(_beside(ordered, workloads, "time-slices", most))
        plans.append(_beside(ordered, workloads, "mps", most))
    plans.append(_beside(ordered, workloads, "mps", None))
    return plans


def mig_plan(plain: Plan, workloads: Sequence[Workload], layouts: Sequence[Layout]) -> Plan:
    """The plan with GPUs divided so, each instance one job's alone."""
    sizes = [" + ".join(layout.profiles) for layout in layouts]
    alike = f"each GPU divided into {sizes[0]}" if len(set(sizes)) == 1 else "; ".join(sizes)
    return _exclusive(_longest_first(plain, workloads), workloads).model_copy(
        update={
            "division": Division(way="mig", layouts=tuple(layouts)),
            "reason": f"{alike}, a job on each part",
        }
    )


def best_layouts(
    machine: Machine, how: Mapping[str, Divisible], ends: Callable[[Sequence[Layout]], float]
) -> tuple[Layout, ...] | None:
    """The layouts of all GPUs that can be divided with which a list ends earliest; None for none.

    Args:
        machine: Its GPUs.
        how: How they can be divided.
        ends: When the list would end, with these layouts; infinity where it never would.
    """
    gpus = [device for device in machine.devices if device.uuid in how]
    if not gpus:
        return None
    choices = {gpu.uuid: maximal_layouts(how[gpu.uuid].table) for gpu in gpus}

    def told(chosen: Mapping[str, tuple[str, ...]]) -> float:
        return ends([Layout(gpu=gpu.uuid, profiles=chosen[gpu.uuid]) for gpu in gpus])

    # Alike: the n-th layout of the first GPU, and of the others the same or, of another kind, the
    # first that they have.
    alike = [
        {
            gpu.uuid: profiles if profiles in choices[gpu.uuid] else choices[gpu.uuid][0]
            for gpu in gpus
        }
        for profiles in dict.fromkeys(one for gpu in gpus for one in choices[gpu.uuid])
    ]
    best = min(alike, key=told)
    end = told(best)
    for _ in range(_ROUNDS if len(gpus) > 1 else 0):
        before = end
        for gpu in gpus:
            for profiles in choices[gpu.uuid]:
                trial = {**best, gpu.uuid: profiles}
                if (found := told(trial)) < end:
                    best, end = trial, found
        if end == before:
            break
    return tuple(Layout(gpu=gpu.uuid, profiles=best[gpu.uuid]) for gpu in gpus)


def _longest_first(plain: Plan, workloads: Sequence[Workload]) -> Plan:
    order = sorted(range(len(workloads)), key=lambda n: -workloads[n].duration.value)
    ranks = {index: rank for rank, index in enumerate(order, start=1)}
    placements = tuple(
        placement.model_copy(update={"rank": ranks[index]})
        for index, placement in enumerate(plain.placements)
    )
    return plain.model_copy(update={"placements": placements})


def _exclusive(plain: Plan, workloads: Sequence[Workload]) -> Plan:
    plan = _packed(plain, workloads, {"rule": "single"})
    return plan.model_copy(update={"reason": "each GPU one job's alone"})


def _packed(plain: Plan, workloads: Sequence[Workload], knobs: Mapping[str, object]) -> Plan:
    policy = PolicyChoice(name="guided_packing", knobs=dict(knobs))
    return expecting(plain, workloads).model_copy(update={"policy": policy})


def _beside(plain: Plan, workloads: Sequence[Workload], way: Way, most: int | None) -> Plan:
    """Up to `most` on each GPU; None: as many as have room, each with what its kernels fill."""
    plan = _packed(plain, workloads, {"rule": "guided", "most": most or MOST_ON_ONE})
    placements = []
    for placement, workload in zip(plan.placements, workloads, strict=True):
        load = Load.of(workload)
        placements.append(
            placement.model_copy(
                update={
                    "expected_device_part": load.busy if way == "time-slices" else load.part,
                    "most_device_part": None if way == "time-slices" else _most(load, most),
                }
            )
        )
    how = "taking turns"
    if way == "mps":
        how = "side by side under MPS, "
        how += "with an equal part each" if most else "each with as much as its kernels fill"
    return plan.model_copy(
        update={
            "division": Division(way=way),
            "placements": tuple(placements),
            "reason": f"up to {most or MOST_ON_ONE} jobs on a GPU, {how}",
        }
    )


def _most(load: Load, most: int | None) -> float:
    # A percentage is what the driver is told: a part below 1% of a GPU cannot be given.
    return 1 / most if most else max(0.01, min(1.0, load.filled))
