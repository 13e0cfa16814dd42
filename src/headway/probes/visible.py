"""Which GPUs an inherited CUDA_VISIBLE_DEVICES leaves to us, read as CUDA reads it.

What a site or a scheduler hid is not ours to use, and the order it gave is the order that jobs see.
CUDA's rules are stranger than a list of numbers: the first entry decides whether indexes or UUIDs
are meant, an entry that names nothing hides all that follow it, a repeated one hides everything.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.system.mig import MigDevice

VARIABLE = "CUDA_VISIBLE_DEVICES"

_INDEX = re.compile(r"\s*([+-]?\d+)")  # CUDA takes the leading number and ignores what follows


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as the driver lists it; `parts` is None where MIG is off."""

    number: int
    handle: Any
    uuid: str
    name: str
    parts: tuple[MigDevice, ...] | None = None


Target = Gpu | MigDevice


def visible_targets(gpus: Sequence[Gpu], visible: str | None) -> tuple[list[Target], list[str]]:
    """What of these GPUs may be used, in order, and notes on what was hidden and why.

    Args:
        gpus: All that the driver lists.
        visible: The value of CUDA_VISIBLE_DEVICES, or None where it is not set.

    >>> two = [Gpu(0, None, "GPU-aa", "x"), Gpu(1, None, "GPU-ab", "x")]
    >>> [gpu.number for gpu in visible_targets(two, "1,0")[0]]
    [1, 0]
    >>> visible_targets(two, "0,7,1")[1]
    ['CUDA_VISIBLE_DEVICES: "7" names no GPU here; it hides what follows it']
    """
    if visible is None:
        return _everything(gpus)
    if not visible.strip():
        return [], [f"{VARIABLE} is empty: no GPU is to be used from here"]
    targets: list[Target] = []
    notes: list[str] = []
    by_uuid: bool | None = None
    for entry in visible.split(","):
        is_uuid = entry.strip().startswith(("GPU-", "MIG-"))
        by_uuid = is_uuid if by_uuid is None else by_uuid
        target = None
        if is_uuid == by_uuid:
            target = _by_uuid(gpus, entry.strip()) if is_uuid else _by_index(gpus, entry)
        if target is None:
            notes += _cut(entry.strip(), mixed=is_uuid != by_uuid)
            break
        targets.append(target)
    if len({target.uuid for target in targets}) < len(targets):
        return [], [f'{VARIABLE}="{visible}" names a GPU twice: CUDA then shows none']
    return _hide_behind_mig(targets, notes)


def _everything(gpus: Sequence[Gpu]) -> tuple[list[Target], list[str]]:
    targets: list[Target] = []
    notes = []
    for gpu in gpus:
        targets += [gpu] if gpu.parts is None else gpu.parts
        if gpu.parts == ():
            notes.append(f"GPU {gpu.number} is in MIG mode but has no MIG device: nothing to use")
    return targets, notes


def _cut(entry: str, *, mixed: bool) -> list[str]:
    """Why the list ends before this entry; -1 is the agreed way of ending it."""
    number = _INDEX.match(entry)
    if not mixed and number and int(number[1]) < 0:
        return []
    reason = "is of another kind than the first entry" if mixed else "names no GPU here"
    return [f'{VARIABLE}: "{entry}" {reason}; it hides what follows it']


def _by_index(gpus: Sequence[Gpu], entry: str) -> Target | None:
    number = _INDEX.match(entry)
    return next((gpu for gpu in gpus if number and gpu.number == int(number[1])), None)


def _by_uuid(gpus: Sequence[Gpu], entry: str) -> Target | None:
    """The one GPU or MIG device whose UUID begins so; an ambiguous beginning names nothing."""
    if entry.startswith("GPU-"):
        found: list[Target] = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
    else:
        parts = [part for gpu in gpus for part in gpu.parts or ()]
        found = [part for part in parts if part.uuid.startswith(entry) or part.old_name == entry]
    return found[0] if len(found) == 1 else None


def _hide_behind_mig(targets: Sequence[Target], notes: list[str]) -> tuple[list[Target], list[str]]:
    """Where a GPU in MIG mode is named as a whole, CUDA shows its first MIG device and no GPU."""
    split = [gpu for gpu in targets if isinstance(gpu, Gpu) and gpu.parts is not None]
    if not split:
        return list(targets), notes
    shown = [target for target in targets if isinstance(target, MigDevice)]
    shown += [part for gpu in split for part in (gpu.parts or ())[:1]]
    numbers = ", ".join(str(gpu.number) for gpu in split)
    note = (
        f"{VARIABLE} names GPU {numbers}, which is in MIG mode: CUDA shows its first MIG device "
        "only, and no whole GPU beside it; name MIG devices by their UUIDs to use more"
    )
    return list(shown), [*notes, note]
