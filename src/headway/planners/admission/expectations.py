"""What is known of jobs, written into their placements for policies that ask for it."""

from collections.abc import Sequence
from math import ceil

from headway.core.plan import Placement, Plan
from headway.core.workload import Workload


def expecting(plan: Plan, workloads: Sequence[Workload]) -> Plan:
    """A plan whose placements say what of devices each job was measured to need.

    Args:
        plan: Any.
        workloads: One a job. Memory is taken at its high bound, demand at its value.
    """
    placements = tuple(
        _expecting(placement, workload)
        for placement, workload in zip(plan.placements, workloads, strict=True)
    )
    return plan.model_copy(update={"placements": placements})


def _expecting(placement: Placement, workload: Workload) -> Placement:
    memory, part = workload.device_bytes, workload.device_part
    known = memory is not None and memory.known
    return placement.model_copy(
        update={
            "expected_device_bytes": ceil(memory.high) if memory is not None and known else None,
            "expected_device_part": None if part is None else min(1.0, part.value),
        }
    )
