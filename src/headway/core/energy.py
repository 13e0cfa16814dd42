"""The energy of a device, divided among the jobs that shared it.

A device counts its energy as a whole; no driver says which job it went to. So it is divided by a
rule, and the rule is shown wherever the figures are.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from headway.core.noun import Noun

RULE = (
    "the energy of the whole device, divided among those that used it in proportion to share of "
    "the device x time on it; nobody's is what was used while nobody was on it"
)

Energy = Annotated[int, Field(ge=0)]


class DeviceUse(Noun):
    """Who was on a device: `share` of it (a part of its time, SMs or slices) for `seconds`."""

    name: str
    share: Annotated[float, Field(ge=0, le=1)]
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class EnergySplit(Noun):
    """Energy in mJ by name, and what belongs to nobody; together they are the counter's figure."""

    parts: tuple[tuple[str, Energy], ...]
    unattributed_mj: Energy
    rule: str = RULE

    def of(self, name: str) -> int:
        """The energy of one, in mJ; 0 for somebody who was not on the device."""
        return dict(self.parts).get(name, 0)


def split_energy(total_mj: int, uses: Iterable[DeviceUse]) -> EnergySplit:
    """Divide what a device used over an interval by `RULE`; not a mJ is lost or made.

    An interval is best ended where somebody comes or goes: within it, time alone on the device and
    time beside others weigh the same. Foreign processes are one more use, or jobs pay for them.

    Args:
        total_mj: What the device's counter grew by.
        uses: Who was on it; several uses of one name are added up.

    >>> pair = [
    ...     DeviceUse(name=name, share=share, seconds=60)
    ...     for name, share in (("a", 0.75), ("b", 0.25))
    ... ]
    >>> split = split_energy(1001, pair)
    >>> split.parts, split.unattributed_mj
    ((('a', 751), ('b', 250)), 0)
    """
    # Fractions: sums of floats depend on their order, and a part rounded up would make a mJ.
    weights: dict[str, Fraction] = {}
    for use in uses:
        weight = Fraction(use.share) * Fraction(use.seconds)
        weights[use.name] = weights.get(use.name, Fraction(0)) + weight
    whole = sum(weights.values())
    if not whole:
        return EnergySplit(parts=tuple((name, 0) for name in weights), unattributed_mj=total_mj)
    exact = {name: total_mj * weight / whole for name, weight in weights.items()}
    given = {name: int(part) for name, part in exact.items()}
    # What rounding down left goes to the largest remainders, among equals in the order of names.
    left = total_mj - sum(given.values())
    for name in sorted(exact, key=lambda name: (given[name] - exact[name], name))[:left]:
        given[name] += 1
    return EnergySplit(parts=tuple(given.items()), unattributed_mj=0)
