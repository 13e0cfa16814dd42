"""Whose the memory of a device is."""

import pynvml
import pytest

from headway.core.units import GIB, MIB
from headway.probes.device_memory import (
    HOST_PIDS,
    DeviceMemory,
    ProcessMemory,
    attribute,
    device_memory,
    process_memory,
)
from headway.testing.nvml import FakeGpu, FakeNvml, FakeUse

MEMORY = DeviceMemory(total_bytes=80 * GIB, free_bytes=50 * GIB, reserved_bytes=GIB)


def asked(**more):
    nvml = FakeNvml([FakeGpu("H100", "GPU-a", 80 * GIB, 3 * GIB, **more)])
    nvml.nvmlInit()
    return nvml, nvml.nvmlDeviceGetHandleByIndex(0)


@pytest.mark.parametrize("reserved", [None, 600 * MIB])
def test_used_is_all_that_is_not_free_in_both_forms_of_the_answer(reserved):
    memory = device_memory(*asked(reserved_bytes=reserved))
    assert memory.used_bytes == 3 * GIB
    assert memory.reserved_bytes == reserved


def test_an_mps_client_is_one_process_even_if_it_is_listed_twice():
    nvml, gpu = asked(
        uses=(FakeUse(20, GIB), FakeUse(10, 60 * MIB)),
        clients=(FakeUse(20, GIB), FakeUse(30, None)),
    )
    assert process_memory(nvml, gpu) == (
        ProcessMemory(10, 60 * MIB),
        ProcessMemory(20, GIB, is_client=True),
        ProcessMemory(30, None, is_client=True),
    )


def test_cards_without_mps_list_their_processes():
    code = pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml, gpu = asked(
        uses=(FakeUse(20, GIB),), refuses={"nvmlDeviceGetMPSComputeRunningProcesses": code}
    )
    assert process_memory(nvml, gpu) == (ProcessMemory(20, GIB),)


def test_memory_is_the_jobs_the_others_and_nobodys():
    processes = [ProcessMemory(1, 10 * GIB), ProcessMemory(2, 4 * GIB), ProcessMemory(3, 5 * GIB)]
    jobs = {"a": {1, 2}, "b": {99}}
    found = attribute(MEMORY, processes, jobs, pids_are_ours=True)
    assert {job: reading.value for job, reading in found.jobs.items()} == {"a": 14 * GIB, "b": 0}
    assert found.foreign_bytes.value == 5 * GIB
    assert found.unattributed_bytes.value == 10 * GIB  # 30 in use, 1 of it reserved


def test_one_process_that_is_not_told_hides_only_its_own_job():
    processes = [ProcessMemory(1, None), ProcessMemory(2, 4 * GIB)]
    found = attribute(MEMORY, processes, {"a": {1}, "b": {2}}, pids_are_ours=True)
    assert found.jobs["a"].reason == "unattributed: the driver does not say what process 1 holds"
    assert found.jobs["b"].value == 4 * GIB
    assert found.foreign_bytes.value == 0
    assert found.unattributed_bytes.value == 25 * GIB


def test_the_hosts_pids_attribute_nothing():
    found = attribute(MEMORY, [ProcessMemory(1, GIB)], {"a": {1}}, pids_are_ours=False)
    assert found.jobs["a"].reason == found.foreign_bytes.reason == HOST_PIDS
    assert found.unattributed_bytes.value == 29 * GIB


def test_processes_that_began_after_the_memory_was_read_make_nothing_negative():
    found = attribute(MEMORY, [ProcessMemory(1, 70 * GIB)], {}, pids_are_ours=True)
    assert found.unattributed_bytes.value == 0
