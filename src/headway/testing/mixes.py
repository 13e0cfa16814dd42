"""Random mixes of jobs that could share devices, with what was predicted of each and what is true.

After the mixes of the CASE paper (see planners/guided_packing.py): many small jobs and some large
ones on equal GPUs. Durations are told to nobody but the simulated world.
"""

import random
from dataclasses import dataclass

from headway.core.plan import Plan
from headway.core.units import GIB, MIB, NS_PER_S
from headway.core.workload import Workload
from headway.planners.guided_packing import GuidedPacking, packed_plan
from headway.sim.drive import drive
from headway.sim.world import SimulatedWorld
from headway.testing.machines import fake_device, fake_machine
from headway.testing.queues import FakeQueue, fake_job

# A prediction holds where the peak is within 10% of it, and at most 3% above.
LOW, HIGH = 0.90, 1.03


@dataclass(frozen=True, slots=True)
class Mix:
    """Jobs on a machine: `queue` has their true workloads, `predicted` what a planner is told."""

    queue: FakeQueue
    predicted: tuple[Workload, ...]

    def plan(self, policy: GuidedPacking) -> Plan:
        """How a planner that knows the predictions would run it."""
        return packed_plan(self.queue.plan("shared"), self.predicted, policy)

    def run(self, policy: GuidedPacking) -> SimulatedWorld:
        """The mix under a policy, to its end."""
        plan = self.plan(policy)
        world = self.queue.world(plan, tick_ns=600 * NS_PER_S)
        drive(policy, world)
        return world

    @property
    def durations_ns(self) -> list[int]:
        """How long each job takes on a device of its own."""
        durations = (self.queue.workloads[job.name].duration for job in self.queue.jobs)
        return [round(duration.value * NS_PER_S) for duration in durations]


def device_mix(
    seed: int,
    *,
    jobs: int = 64,
    devices: int = 4,
    device_bytes: int = 16 * GIB,
    parts: tuple[float, float] = (0.1, 0.6),
    large: float = 0.2,
) -> Mix:
    """A mix drawn with a seed.

    Args:
        seed: The same one gives the same mix.
        jobs: How many, each on one device.
        devices: How many, all alike.
        device_bytes: Memory of each.
        parts: Jobs keep a part of a device busy that lies between these two.
        large: The part of the jobs that need 4 to 10 GiB; the others need 0.5 to 3.

    >>> mix = device_mix(1)
    >>> len(mix.queue.jobs), len(mix.queue.machine.devices)
    (64, 4)
    """
    source = random.Random(seed)
    true, predicted = {}, []
    for number in range(1, jobs + 1):
        name = f"job-{number}"
        gib = source.uniform(4, 10) if source.random() < large else source.uniform(0.5, 3)
        told = int(gib * GIB)
        part = source.uniform(*parts)
        work_ns = round(source.uniform(60, 600) * NS_PER_S)
        true[name] = Workload.opaque(
            name,
            work_ns=work_ns,
            start_up_ns=5 * NS_PER_S,
            peak_bytes=500 * MIB,
            device_bytes=int(told * source.uniform(LOW, HIGH)),
            device_part=part,
        )
        predicted.append(Workload.opaque(name, work_ns=0, device_bytes=told, device_part=part))
    machine = fake_machine(
        cores=jobs,
        memory_bytes=4 * jobs * GIB,
        devices=[fake_device(index, memory_bytes=device_bytes) for index in range(devices)],
    )
    asked = [fake_job(name, gpus=1) for name in true]
    return Mix(FakeQueue(jobs=asked, machine=machine, workloads=true), tuple(predicted))
