"""When the guard of the machine's memory asks for action."""

import pytest

from headway.engines.local import guard as guards
from headway.engines.local.guard import Guard
from headway.system.memory import Headroom

GIB = 2**30


class Gauge:
    """Free memory as a list of readings."""

    def __init__(self, *free_gib: float, limit_gib: float = 2) -> None:
        self.rooms = [
            Headroom(int(limit_gib * GIB), int((limit_gib - free) * GIB), int(free * GIB), "test")
            for free in free_gib
        ]

    def headroom(self) -> Headroom:
        return self.rooms.pop(0)


def looks(monkeypatch: pytest.MonkeyPatch, gauge: Gauge, *, covered: bool) -> list[bool]:
    """Whether the guard asks for action at each reading, a tenth of a second apart."""
    clock = iter(0.1 * tick for tick in range(10, 100))
    monkeypatch.setattr(guards.time, "monotonic", lambda: next(clock))
    guard = Guard()
    guard._gauge = gauge  # type: ignore[assignment]
    asked = []
    while gauge.rooms:
        guard.look_s, guard.covered = 0.1, covered
        guard.look()
        asked.append(guard.tight)
    guard.close()
    return asked


def test_a_steep_fall_asks_before_the_limit_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, Gauge(0.6, 0.25), covered=False) == [False, True]


def test_a_job_that_fills_its_reservation_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, Gauge(0.6, 0.4, 0.3, 0.3), covered=True) == [False] * 4


def test_the_mark_asks_whatever_was_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, Gauge(0.2, 0.12), covered=True) == [False, True]


def test_a_large_machine_keeps_a_part_and_a_tiny_one_a_tenth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = Gauge(5, 3.9, limit_gib=100)
    assert looks(monkeypatch, large, covered=True) == [False, True]
    tiny = Gauge(0.06, 0.049, limit_gib=0.5)
    assert looks(monkeypatch, tiny, covered=True) == [False, True]
