"""The inventory of a host, from recorded /proc text."""

import os

import pytest

from headway.core.holdings import Hold, Reservation
from headway.core.machine import Machine
from headway.core.units import GIB, MIB
from headway.probes.machine import measure_machine
from headway.system.procfs import CLOCK_TICKS, PAGE_BYTES
from headway.testing.nvml import FakeGpu, FakeMig, FakeNvml, fake_gpu

NO_DRIVER = FakeNvml(init_error=12)
ME, CHILD, ALICE, IDLE = 100, 101, 200, 201


class Recorded:
    """A machine of four cores and 8 GiB as /proc shows it, and a second of its life."""

    def __init__(self, folder):
        self.root = folder
        self.proc = folder / "proc"
        self.write("sys/kernel/random/boot_id", "b-1\n")
        self.write("cpuinfo", "processor\t: 0\nmodel name\t: Some   CPU @ 3 GHz\n")
        self.write("loadavg", "0.50 0.40 0.30 1/99 4711\n")
        self.write(
            "meminfo", "MemTotal: 8388608 kB\nMemFree: 1048576 kB\nMemAvailable: 5242880 kB\n"
        )
        self.write("self/cgroup", "0::/job\n")
        self.write("self/mountinfo", "30 1 0:26 / /cg rw,relatime - cgroup2 cgroup2 rw\n")
        self.group("cgroup.procs", f"{ME}\n")
        self.group("cgroup.controllers", "cpu cpuset memory\n")
        self.group("cgroup.subtree_control", "\n")
        self.group("cgroup.events", "populated 1\n")
        self.cores(busy=[0, 0, 0, 0], passed=0)
        self.process(ME, ppid=1, cpu_s=0, rss_bytes=64 * MIB)
        self.process(CHILD, ppid=ME, cpu_s=0, rss_bytes=64 * MIB)
        self.process(ALICE, ppid=1, cpu_s=5, rss_bytes=GIB, words=b"train\0--password=x\0")
        self.process(IDLE, ppid=1, cpu_s=9, rss_bytes=GIB)

    def write(self, path, text):
        file = self.proc / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def group(self, name, text):
        (self.root / "cg/job").mkdir(parents=True, exist_ok=True)
        (self.root / "cg/job" / name).write_text(text)

    def process(self, pid, *, ppid, cpu_s, rss_bytes, words=b"worker\0"):
        ticks = int(cpu_s * CLOCK_TICKS)
        fields = f"S {ppid} {pid} {pid} 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {pid} 9 "
        self.write(f"{pid}/stat", f"{pid} (p{pid}) {fields}{rss_bytes // PAGE_BYTES} 0\n")
        self.write(f"{pid}/status", "Uid:\t0\t0\t0\t0\n")
        self.write(f"{pid}/cmdline", words)

    def cores(self, *, busy, passed):
        lines = []
        for core, busy_s in enumerate(busy):
            user, idle = int(busy_s * CLOCK_TICKS), int((passed - busy_s) * CLOCK_TICKS)
            lines.append(f"cpu{core} {user} 0 0 {1000 + idle} 0 0 0 0 0 0\n")
        self.write("stat", "cpu 0 0 0 0 0 0 0 0 0 0\n" + "".join(lines) + "ctxt 5\n")

    def a_second(self, _window_s):
        """Our child takes half a core, Alice one and a half; somebody unseen half of core 3."""
        self.cores(busy=[1, 1, 0, 0.5], passed=1)
        self.process(CHILD, ppid=ME, cpu_s=0.5, rss_bytes=64 * MIB)
        self.process(ALICE, ppid=1, cpu_s=6.5, rss_bytes=GIB, words=b"train\0--password=x\0")

    def measure(self, **more):
        given = {
            "window_s": 1.0,
            "environment": {},
            "pid": ME,
            "affinity": {0, 1, 2, 3},
            "nvml": NO_DRIVER,
            "sleep": self.a_second,
        }
        return measure_machine(**{**given, **more}, proc=self.proc, root=self.root)


@pytest.fixture
def recorded(tmp_path):
    return Recorded(tmp_path)


def test_the_host_is_what_was_handed_to_us(recorded):
    host = recorded.measure().host
    assert host.name == os.uname().nodename
    assert (host.boot_id, host.model, host.cores) == ("b-1", "Some CPU @ 3 GHz", (0, 1, 2, 3))
    assert (host.memory_bytes, host.memory_source) == (8 * GIB, "memory of the machine")
    assert host.quota_cores is None


def test_affinity_cpusets_quotas_and_limits_bound_it(recorded):
    recorded.group("cpuset.cpus.effective", "0-2\n")
    recorded.group("cpu.max", "150000 100000\n")
    recorded.group("memory.max", f"{2 * GIB}\n")
    recorded.group("memory.stat", f"anon {GIB}\nshmem 0\nfile {GIB}\n")
    machine = recorded.measure(affinity={1, 2, 3})
    assert (machine.host.cores, machine.host.quota_cores) == ((1, 2), 1.5)
    assert machine.usable_cores == 1
    assert machine.host.memory_bytes == 2 * GIB
    assert machine.host.memory_source == "limit of the control group /job"
    assert machine.foreign.memory_bytes == GIB - 128 * MIB


def test_others_are_counted_and_our_own_tree_is_not(recorded):
    foreign = recorded.measure().foreign
    assert (foreign.cores, foreign.window_s) == (2.0, 1.0)
    assert foreign.memory_bytes == 3 * GIB - 128 * MIB
    assert foreign.busiest == (f"root: train --password=*** (process {ALICE}), 1.5 cores",)


def test_jobs_of_a_run_that_is_taken_up_again_are_ours(recorded):
    foreign = recorded.measure(own_pids={ALICE}).foreign
    assert foreign.cores == 0.5
    assert foreign.memory_bytes == 2 * GIB - 128 * MIB
    assert foreign.busiest == ()


@pytest.mark.parametrize(("slots", "cores"), [(1, 0.5), (0, 2.0)])
def test_what_holds_cores_in_another_run_is_not_foreign_too(recorded, slots, cores):
    hold = Hold(job=1, attempt=1, keeper=(ALICE, 1), slots=slots)
    run = Reservation(run="/x/a", supervisor=(1, 1), cores=(0, 1), jobs=(hold,))
    machine = recorded.measure(elsewhere=[run])
    assert machine.foreign.cores == cores
    assert machine.elsewhere == (run,)


def test_only_the_cores_that_are_ours_count(recorded):
    assert recorded.measure(affinity={2, 3}).foreign.cores == 0.0
    assert recorded.measure(affinity={2, 3}, own_pids={ALICE}).foreign.cores == 0.0


def test_a_busy_machine_is_said_to_be_one(recorded):
    recorded.write("loadavg", "9.50 7.00 3.00 4/99 4711\n")
    assert recorded.measure().notes == (
        "no NVIDIA driver here, so no GPUs",
        "others keep 2.0 of 4 cores busy: runs take longer, and times measured now swing",
        "load average 9.50, 7.00, 3.00: more is waiting to run than there are cores",
    )
    quiet = recorded.measure(sleep=lambda _: recorded.cores(busy=[0, 0, 0, 0], passed=1))
    assert not any("others keep" in note for note in quiet.notes)


def test_no_window_observes_no_cores(recorded):
    foreign = recorded.measure(window_s=0.0, sleep=lambda _: None).foreign
    assert (foreign.cores, foreign.window_s, foreign.busiest) == (0.0, 0.0, ())


def ways(machine):
    return {way.name: way for way in machine.ways}


def test_each_way_of_sharing_is_usable_or_says_why_not(recorded):
    found = ways(recorded.measure())
    assert list(found) == [
        "serial",
        "naive",
        "shared",
        "partitioned by cgroup",
        "partitioned by affinity and watching",
        "time-slices",
        "mps",
        "mig",
    ]
    assert all(way.reason for way in found.values())
    assert [name for name, way in found.items() if way.usable] == [
        "serial",
        "naive",
        "shared",
        "partitioned by cgroup",
        "partitioned by affinity and watching",
    ]
    assert found["mps"].reason == found["mig"].reason == "no NVIDIA device here"


def test_a_group_shared_with_others_cannot_be_divided(recorded):
    recorded.group("cgroup.procs", f"{ME}\n{ALICE}\n")
    found = ways(recorded.measure())
    assert not found["partitioned by cgroup"].usable
    assert "our group holds other processes" in found["partitioned by cgroup"].reason


def test_without_control_groups_cores_are_shared_by_affinity(recorded):
    recorded.write("self/mountinfo", "")
    found = ways(recorded.measure())
    assert not found["partitioned by cgroup"].usable
    assert found["partitioned by cgroup"].reason == (
        "control groups: no control groups are mounted"
    )
    assert found["partitioned by affinity and watching"].usable


def test_gpu_ways_are_refused_in_words_where_there_is_a_gpu(recorded):
    part = FakeMig("H100 MIG 1g.10gb", "MIG-a", 10 * GIB)
    nvml = FakeNvml([FakeGpu("H100", "GPU-a", 80 * GIB, migs=(part,))])
    whole = FakeNvml([FakeGpu("H100", "GPU-a", 80 * GIB)])
    nothing = {"PATH": "/nowhere"}
    found = ways(recorded.measure(nvml=whole, environment=nothing))
    assert found["time-slices"].usable
    assert found["mps"].reason == "nvidia-cuda-mps-control is not on the path"
    assert ways(recorded.measure(nvml=nvml))["mig"].reason == (
        "a GPU is divided already; its parts are used as they are"
    )
    hidden = recorded.measure(nvml=whole, environment={"CUDA_VISIBLE_DEVICES": ""})
    assert hidden.devices == ()
    assert ways(hidden)["mps"].reason == "CUDA_VISIBLE_DEVICES leaves none to us"
    assert not ways(hidden)["time-slices"].usable


def test_mps_is_usable_where_a_daemon_of_our_own_can_serve(recorded, tmp_path):
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    environment = {"PATH": str(tmp_path), "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "pipe")}

    def mps_with(*gpus):
        return ways(recorded.measure(nvml=FakeNvml(gpus), environment=environment))["mps"]

    assert mps_with(fake_gpu("v100-16gb", "GPU-a")).usable
    assert not mps_with(fake_gpu("p100-16gb", "GPU-a")).usable
    assert "is older than Volta" in mps_with(fake_gpu("p100-16gb", "GPU-a")).reason
    divided = FakeGpu("H100", "GPU-a", 80 * GIB, migs=(FakeMig("H100 MIG", "MIG-a", 10 * GIB),))
    assert "MIG devices want a daemon each" in mps_with(divided).reason


def test_a_machine_is_a_file_and_comes_back(recorded):
    machine = recorded.measure(nvml=FakeNvml([FakeGpu("H100", "GPU-a", 80 * GIB)]))
    assert Machine.from_json(machine.to_json(), source="machine.json") == machine
