"""The inventory of the machine that the tests run on."""

import os
import subprocess
import sys

import pytest

from headway.core.machine import Machine
from headway.probes.machine import measure_machine


@pytest.mark.slow
def test_this_machine():
    machine = measure_machine()
    assert set(machine.host.cores) <= os.sched_getaffinity(0)
    physical_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < machine.host.memory_bytes <= physical_bytes
    assert 0 <= machine.foreign.memory_bytes < machine.host.memory_bytes
    assert 0 <= machine.foreign.cores <= len(machine.host.cores)
    assert machine.foreign.window_s > 0


SPIN = """
import os, sys
os.sched_setaffinity(0, [int(sys.argv[1])])
print(flush=True)
while True:
    pass
"""
# Others on this machine may be busier for a while, so it looks until it has seen the stranger.
LOOK = """
import os, sys, time
from headway.probes.machine import measure_machine
os.sched_setaffinity(0, [int(sys.argv[1])])
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    machine = measure_machine(window_s=0.5)
    if any(f"(process {sys.argv[2]})" in words for words in machine.foreign.busiest):
        break
print(machine.to_json())
"""


@pytest.mark.slow
def test_a_confined_process_sees_its_own_core_and_a_busy_stranger_on_it():
    core = str(min(os.sched_getaffinity(0)))
    path = os.pathsep.join(filter(None, sys.path))
    spin = [sys.executable, "-c", SPIN, core]
    with subprocess.Popen(spin, stdout=subprocess.PIPE) as stranger:
        try:
            stranger.stdout.readline()
            seen = subprocess.run(
                [sys.executable, "-c", LOOK, core, str(stranger.pid)],
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
                check=True,
            )
        finally:
            stranger.kill()
    machine = Machine.from_json(seen.stdout, source="detect")
    assert machine.host.cores == (int(core),)
    assert machine.foreign.cores > 0
    assert any(f"(process {stranger.pid})" in words for words in machine.foreign.busiest)
