import os
from pathlib import Path

import pytest

from headway.core import catalogue, jobfile
from headway.core.job import Job
from headway.core.machine import Device
from headway.core.units import GIB
from headway.planners.feasible import why_not

A100 = catalogue.machine("a100-40gb")


def jobs(*wishes, group="g", **more):
    """Jobs of one group; a wish is the indexes of devices and the way of sharing them."""
    return [
        Job(
            name=f"j{number}", command="x", folder="/", group=group,
            devices=devices, collocation=way, **more,
        )
        for number, (devices, way) in enumerate(wishes)
    ]  # fmt: skip


@pytest.fixture
def radt_csv():
    folder = os.environ.get("HEADWAY_DATA")
    if not folder:
        pytest.skip("HEADWAY_DATA is not set")
    return Path(folder) / "traces/radt-a100/collocation_experiment.csv"


@pytest.mark.data
def test_three_mixes_of_the_published_sweep_can_only_fail(radt_csv):
    read = jobfile.read(radt_csv, folder="/here").jobs
    assert len(read) == 618
    assert len({job.group for job in read}) == 198
    reasons = {
        job.group: reason for job, reason in zip(read, why_not(read, A100), strict=True) if reason
    }
    assert reasons == {
        "37/332": "4g.20gb + 2 x 2g.10gb needs 8 of 7 compute slices",
        "37/342": "4g.20gb + 2g.10gb + 2 x 1g.5gb needs 8 of 7 compute slices",
        "37/352": "4g.20gb + 2g.10gb + 3 x 1g.5gb needs 9 of 7 compute slices",
    }


def test_every_member_of_a_group_gets_its_reason_and_no_other_job():
    list_of_jobs = [
        *jobs(((0,), "4g.20gb"), ((0,), "4g.20gb")),
        *jobs(((0,), "4g.20gb"), group="h"),
        *jobs(((0,), "4g.20gb"), group=None),
        *jobs(((0,), "4g.20gb"), group=None),
        *jobs(((), ""), group=None),
    ]
    reason = "2 x 4g.20gb needs 8 of 7 compute slices"
    assert why_not(list_of_jobs, A100) == (reason, reason, "", "", "", "")


def test_an_index_stands_for_a_device_nobody_else_names():
    assert why_not(jobs(((7,), ""), ((7,), "")), A100) == ("", "")
    pair = catalogue.machine("a100-40gb", count=2)
    apart = jobs(((1,), "4g.20gb"), ((5,), "4g.20gb"))
    assert why_not(apart, pair) == ("", "")
    assert why_not(apart, A100)[0] == "names 2 devices (1, 5), this machine has 1"


def test_the_reason_says_which_of_several_devices():
    pair = catalogue.machine("a100-40gb", count=2)
    wishes = jobs(((0,), ""), ((1,), "4g.20gb"), ((1,), "4g.20gb"))
    assert why_not(wishes, pair)[0] == "device 1: 2 x 4g.20gb needs 8 of 7 compute slices"


def test_an_index_that_is_there_means_that_device():
    t4, a100 = (catalogue.machine(name).devices[0] for name in ("t4-16gb", "a100-40gb"))
    both = A100.model_copy(update={"devices": (t4, a100.model_copy(update={"index": 1}))})
    assert why_not(jobs(((1,), "4g.20gb")), both) == ("",)
    assert why_not(jobs(((0,), "4g.20gb")), both) == ("t4-16gb cannot be divided by MIG",)
    assert why_not(jobs(((1,), "4g.20gb"), ((4,), "4g.20gb")), both)[0] == (
        "device 4: t4-16gb cannot be divided by MIG"
    )


def test_a_process_uses_one_mig_device():
    pair = catalogue.machine("a100-40gb", count=2)
    assert why_not(jobs(((0, 1), "3g.20gb")), pair) == (
        "j0 is to have a 3g.20gb on each of 2 devices, but a process can use one MIG device only",
    )
    assert why_not(jobs(((0, 1), "mps")), pair) == ("",)


def test_a_divided_device_has_no_room_for_a_whole_job():
    assert why_not(jobs(((0,), "1g.5gb"), ((0,), "mps")), A100)[1] == (
        "j1 is to use a whole device that j0 divides by MIG"
    )


def test_memory_is_a_bound():
    three = jobs(((0,), "mps"), ((0,), ""), ((0,), ""), gpu_memory_bytes=20 * GIB)
    assert why_not(three[:1], A100) == ("",)
    assert why_not(three, A100)[0] == "needs 60.0 GiB of GPU memory, a100-40gb has 39.6 GiB"
    slices = jobs(((0,), "4g.20gb"), ((0,), "3g.20gb"), gpu_memory_bytes=int(19.75 * GIB))
    assert why_not(slices, A100)[0] == "j0 needs 19.8 GiB of GPU memory, 4g.20gb has 19.5 GiB"


def test_a_device_outside_the_catalogue_is_not_judged_by_a_guess():
    device = Device(
        index=0, name="NVIDIA Unheard", uuid="GPU-1", memory_bytes=None, used_bytes=None
    )
    unknown = A100.model_copy(update={"devices": (device,)})
    assert why_not(jobs(((0,), ""), gpu_memory_bytes=GIB), unknown) == ("",)
    assert why_not(jobs(((0,), "1g.5gb")), unknown) == (
        "how NVIDIA Unheard can be divided by MIG is not known",
    )
