"""How busy each job kept the device that it had to itself, gathered while it ran."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.core.readings import DeviceUse
from headway.core.view import View
from headway.core.words import Outcome


@dataclass(slots=True)
class UseOfDevices:
    """Readings of jobs that have one device for themselves, from their first steps on.

    Beside others nobody can say whose a reading is, a part of a GPU is not one, and before its
    first step a job loads its data.
    """

    _busy: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    _part: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def take(self, view: View, readings: Mapping[int, DeviceUse]) -> None:
        """One look at all devices, by their indexes."""
        for state in view.running.values():
            share = state.share
            if share is None or len(share.devices) != 1 or share.device_bytes is not None:
                continue
            reading = readings.get(share.devices[0])
            part_of_one = view.machine.devices[share.devices[0]].is_part
            if reading is None or part_of_one or state.phase == "start-up":
                continue
            if reading.busy is not None:
                self._busy[state.index].append(reading.busy)
            if reading.part is not None:
                self._part[state.index].append(reading.part)

    def told(self, job: int, outcome: Outcome) -> Outcome:
        """The outcome of an attempt with what was read meanwhile, which is forgotten."""
        return replace(
            outcome,
            device_busy=_mean(self._busy.pop(job, ())),
            device_part=_mean(self._part.pop(job, ())),
        )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
