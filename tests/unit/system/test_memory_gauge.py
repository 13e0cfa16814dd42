"""Limits of memory and what is left; the v2 tree is recorded (layout), the v1 one made up."""

from pathlib import Path

import pytest

from headway.system.hierarchies import Hierarchy
from headway.system.memory import MemoryGauge, meminfo, unreclaimable_bytes

KIB, GIB = 1 << 10, 1 << 30
UNLIMITED = 9223372036854771712


def write_v1(folder: Path, *, limit: int, rss: int, shmem: int, cache: int, above: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.stat").write_text(
        f"rss 1\nshmem 1\nhierarchical_memory_limit {above}\n"
        f"total_cache {cache}\ntotal_rss {rss}\ntotal_shmem {shmem}\n"
    )


def gauge_v1(tmp_path: Path) -> MemoryGauge:
    (tmp_path / "meminfo").write_text(
        f"MemTotal: {32 * GIB // KIB} kB\nMemAvailable: {30 * GIB // KIB} kB\n"
    )
    own = tmp_path / "memory/slurm/job"
    hierarchy = Hierarchy(1, frozenset({"memory"}), tmp_path / "memory", own, False)
    return MemoryGauge(tmp_path, hierarchies=[hierarchy])


def test_v1_own_limit_counts_and_file_cache_does_not(tmp_path: Path) -> None:
    top = tmp_path / "memory"
    write_v1(top, limit=UNLIMITED, rss=9 * GIB, shmem=0, cache=0, above=UNLIMITED)
    write_v1(top / "slurm", limit=UNLIMITED, rss=0, shmem=0, cache=0, above=UNLIMITED)
    write_v1(top / "slurm/job", limit=4 * GIB, rss=GIB, shmem=GIB, cache=3 * GIB, above=4 * GIB)
    gauge = gauge_v1(tmp_path)
    assert gauge.limit().limit_bytes == 4 * GIB
    room = gauge.headroom()
    assert (room.limit_bytes, room.used_bytes, room.free_bytes) == (4 * GIB, 2 * GIB, 2 * GIB)
    assert room.source == "limit of the control group /slurm/job"


def test_v1_the_limit_of_a_group_above_is_measured_by_what_that_group_uses(tmp_path: Path) -> None:
    top = tmp_path / "memory"
    write_v1(top, limit=UNLIMITED, rss=0, shmem=0, cache=0, above=UNLIMITED)
    write_v1(top / "slurm", limit=8 * GIB, rss=7 * GIB, shmem=0, cache=0, above=8 * GIB)
    write_v1(top / "slurm/job", limit=4 * GIB, rss=GIB, shmem=0, cache=0, above=4 * GIB)
    gauge = gauge_v1(tmp_path)
    assert gauge.limit().source == "limit of the control group /slurm/job"
    # The neighbours in /slurm leave less than our own limit would.
    assert gauge.headroom().source == "limit of the control group /slurm"
    assert gauge.headroom().free_bytes == GIB


def test_v1_a_limit_above_what_a_container_can_see(tmp_path: Path) -> None:
    top = tmp_path / "memory"
    write_v1(top, limit=UNLIMITED, rss=0, shmem=0, cache=0, above=2 * GIB)
    write_v1(top / "slurm", limit=UNLIMITED, rss=0, shmem=0, cache=0, above=2 * GIB)
    write_v1(top / "slurm/job", limit=UNLIMITED, rss=GIB, shmem=0, cache=0, above=2 * GIB)
    room = gauge_v1(tmp_path).headroom()
    assert (room.limit_bytes, room.free_bytes) == (2 * GIB, GIB)
    assert "above the visible ones" in room.source


def test_a_group_that_used_more_than_its_limit_leaves_nothing(tmp_path: Path) -> None:
    top = tmp_path / "memory"
    for folder in (top, top / "slurm"):
        write_v1(folder, limit=UNLIMITED, rss=0, shmem=0, cache=0, above=UNLIMITED)
    write_v1(top / "slurm/job", limit=GIB, rss=2 * GIB, shmem=0, cache=0, above=GIB)
    assert gauge_v1(tmp_path).headroom().free_bytes == 0


def test_a_changed_limit_is_seen_at_the_next_reading(tmp_path: Path) -> None:
    top = tmp_path / "memory"
    for folder in (top, top / "slurm", top / "slurm/job"):
        write_v1(folder, limit=UNLIMITED, rss=0, shmem=0, cache=0, above=UNLIMITED)
    gauge = gauge_v1(tmp_path)
    assert gauge.limit().source == "memory of the machine"
    (top / "slurm/job/memory.limit_in_bytes").write_text(f"{GIB}\n")
    assert gauge.limit().limit_bytes == GIB


def test_v2_recorded_layout_the_smallest_limit_above_us(recorded) -> None:
    """Recorded tree: a slice two levels up has memory.max 16 GiB and memory.high 15 GiB."""
    gauge = MemoryGauge(recorded.proc, root=recorded.root, pid=recorded.pid)
    assert gauge.limit().limit_bytes == 15 * GIB
    assert gauge.limit().source == "limit of the control group /user.slice/user-1000.slice"
    room = gauge.headroom()
    assert room.used_bytes == 6 * GIB + 128 * (1 << 20)  # anon + shmem, no file cache
    assert room.free_bytes == 15 * GIB - room.used_bytes


def test_v2_recorded_layout_without_limits_the_machine_is_the_limit(recorded) -> None:
    for name in ("memory.max", "memory.high"):
        (recorded.scope.parents[2] / name).write_text("max\n")
    gauge = MemoryGauge(recorded.proc, root=recorded.root, pid=recorded.pid)
    assert gauge.limit().source == "memory of the machine"
    assert gauge.headroom().free_bytes == 49152000 * KIB


def test_without_control_groups_the_machine_is_the_limit() -> None:
    gauge = MemoryGauge(hierarchies=[])
    assert gauge.limit().limit_bytes == meminfo()["MemTotal"]
    room = gauge.headroom()
    assert room.used_bytes + room.free_bytes == room.limit_bytes


def test_an_old_kernel_without_memavailable(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemFree: 40 kB\nHugePages_Total: 3\n")
    assert MemoryGauge(tmp_path, hierarchies=[]).headroom().free_bytes == 40 * KIB
    assert "HugePages_Total" not in meminfo(tmp_path)


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_without_counters_uses_nothing(tmp_path: Path, version: int) -> None:
    assert unreclaimable_bytes(tmp_path, version) == 0
