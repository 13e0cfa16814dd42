"""What a process takes of a GPU's memory before it has stored anything: its CUDA context.

Two jobs of 5 GiB each do not fit into 10 GiB: each brings a context, which holds the code of its
kernels and grows as more of them load. These are figures to plan with until a job was measured;
what a driver says of a process counts its context already.
"""

from headway.core.estimate import Estimate
from headway.core.units import MIB

# MiB, with kernels loaded as they are needed (CUDA 11.7 and later, PyTorch 1.13 and later). Volta
# and the two of Ada were seen by users (pytorch #20532, unsloth-zoo PR 1053), others are recalled.
_CONTEXT_MIB = {
    "Turing": (250, 250, 400),
    "Volta": (300, 350, 400),
    "Ampere": (300, 430, 450),
    "Ada": (250, 400, 430),
    "Hopper": (500, 550, 600),
}
_ANY_MIB = (250, 430, 700)


def context_memory(architecture: str | None) -> Estimate:
    """Bytes of one process's context on a device of this architecture; plan with `high`.

    Args:
        architecture: As `Device.architecture` has it; None where it is not known.

    >>> context_memory("Hopper").high / MIB, context_memory(None).origin
    (600.0, 'assumed')
    """
    low, value, high = _CONTEXT_MIB.get(architecture or "", _ANY_MIB)
    return Estimate(
        value=value * MIB,
        low=low * MIB,
        high=high * MIB,
        unit="bytes",
        origin="assumed",
        source=f"contexts seen on {architecture or 'GPUs'}",
    )
