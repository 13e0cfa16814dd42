"""How a GPU is shared under MPS: what each process of each job may use; pure.

[Note: what the two limits mean]
Both hold for one client *process*, not for a job: a job of several processes divides its part among
them. The thread percentage is a cap and reserves nothing; the driver rounds it down to whole
multiprocessors, and so do we to whole percents, so that parts never add up to more than was given.
The memory limit counts what CUDA itself allocates too, so a part must hold the contexts as well. A
client may lower both through its environment and never raise them above the daemon's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.units import MIB

# Digits of a percentage that survive binary fractions: 0.29 of 100 is 28.999999999999996.
_EXACT_DIGITS = 9


@dataclass(frozen=True, slots=True)
class MpsShare:
    """What each process of one job may use of a device."""

    thread_percentage: int
    """Most of the device's threads, in whole percents from 1 to 100."""
    memory_limit_mib: int | None = None
    """Most memory in MiB, contexts included; None for no limit."""

    def environment(self, *, device: int = 0) -> dict[str, str]:
        """The variables that give a client this share; it reads them once, when it starts CUDA.

        Args:
            device: The device's place among those that the client sees.

        >>> MpsShare(25, 512).environment()["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]
        '0=512M'
        """
        variables = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(self.thread_percentage)}
        if self.memory_limit_mib is not None:
            limit = memory_limit_text(self.memory_limit_mib)
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"{device}={limit}"
        return variables


def memory_limit_text(limit_mib: int) -> str:
    """A memory limit in the one spelling that the tool reads right: whole MiB with an M.

    Others are taken for something else without a word: ``1.5G`` for 1 MiB, ``1T`` for 1 MiB, ``5``
    for 5 MiB; and a limit of nothing takes the limit away.

    Raises:
        ValueError: Less than 1 MiB.

    >>> memory_limit_text(1536)
    '1536M'
    """
    if limit_mib < 1:
        raise ValueError(f"a memory limit of {limit_mib} MiB would be read as none; give 1 or more")
    return f"{limit_mib}M"


def equal_shares(
    processes: Sequence[int], *, memory_bytes: int | None = None, overlap: float = 1.0
) -> tuple[MpsShare, ...]:
    """The same part of a device for each job, whatever its number of processes.

    Args:
        processes: How many client processes each job has.
        memory_bytes: The device's memory that the jobs divide; None sets no limit.
        overlap: How many times over the threads are given. 1 wastes the least memory but leaves
            threads idle where a job pauses; 2 lets jobs fill each other's pauses (both are in
            NVIDIA's MPS documentation, under choosing a percentage). No job gets more than all.

    Raises:
        ValueError: No job, a job without a process, or a part too small to be written.

    >>> [share.thread_percentage for share in equal_shares([1, 1, 1])]
    [33, 33, 33]
    >>> equal_shares([1, 2], memory_bytes=3 * 1024 * MIB)
    (MpsShare(thread_percentage=50, memory_limit_mib=1536), \
MpsShare(thread_percentage=25, memory_limit_mib=768))
    >>> equal_shares([1, 1], overlap=2.0)[0].thread_percentage
    100
    """
    if not processes:
        raise ValueError("no job to divide a device among")
    part = min(1.0, overlap / len(processes))
    memory = None if memory_bytes is None else memory_bytes // len(processes)
    return uneven_shares([part] * len(processes), processes, memory_bytes=[memory] * len(processes))


def uneven_shares(
    parts: Sequence[float],
    processes: Sequence[int],
    *,
    memory_bytes: Sequence[int | None] | None = None,
) -> tuple[MpsShare, ...]:
    """A part of a device for each job, as given.

    Args:
        parts: Of the device's threads, above 0 and up to 1 for each job; they may add up to more
            than 1, since a percentage reserves nothing.
        processes: How many client processes each job has.
        memory_bytes: Of each job in all; None for one without a limit, or for all.

    Raises:
        ValueError: Lists of different lengths, a part outside of its range, a job without a
            process, or a part that leaves a process less than 1% or 1 MiB.

    >>> uneven_shares([0.5, 0.29], [3, 1], memory_bytes=[1000 * MIB, None])
    (MpsShare(thread_percentage=16, memory_limit_mib=333), \
MpsShare(thread_percentage=29, memory_limit_mib=None))
    """
    memory = [None] * len(parts) if memory_bytes is None else memory_bytes
    return tuple(
        MpsShare(_percentage(part, count), _limit_mib(size, count))
        for part, count, size in zip(parts, processes, memory, strict=True)
    )


def _percentage(part: float, processes: int) -> int:
    if processes < 1:
        raise ValueError(f"a job with {processes} processes has no share")
    if not 0 < part <= 1:
        raise ValueError(f"{part:g} of a device's threads; a part is above 0 and at most 1")
    percentage = math.floor(round(100 * part / processes, _EXACT_DIGITS))
    if percentage < 1:
        raise ValueError(
            f"{part:.1%} of a device's threads among {processes} processes is less than 1% each; "
            "put fewer jobs on it"
        )
    return percentage


def _limit_mib(size_bytes: int | None, processes: int) -> int | None:
    if size_bytes is None:
        return None
    limit_mib = size_bytes // processes // MIB
    if limit_mib < 1:
        raise ValueError(
            f"{size_bytes} bytes among {processes} processes is less than 1 MiB each; "
            "give the job more memory"
        )
    return limit_mib
