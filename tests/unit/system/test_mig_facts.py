"""What a driver says of a GPU that can be divided; the driver is the fake one."""

from dataclasses import replace

import pynvml
import pytest

from headway.core import catalogue
from headway.core.mig import Refusal
from headway.system.mig import RIGHTS_FILE, mig_devices, read_mig, rights
from headway.testing.nvml import FakeNvml, fake_gpu

CARDS = [name for name in catalogue.names() if catalogue.device(name).mig]


def asked(gpu, **knobs):
    nvml = FakeNvml([gpu], **knobs)
    nvml.nvmlInit()
    return nvml, nvml.nvmlDeviceGetHandleByIndex(0)


def facts(gpu, **knobs):
    return read_mig(*asked(gpu, **knobs))


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("on", [False, True])
def test_the_drivers_table_is_read_whole_with_mig_on_or_off(name, on):
    known = catalogue.device(name).mig
    found = facts(fake_gpu(name, "GPU-a", mig_on=on))
    assert (found.on, found.pending, found.instances, found.notes) == (on, on, (), ())
    table = found.table
    assert (table.compute, table.memory) == (known.compute, known.memory)
    for profile in table.profiles:
        own = known.profile(profile.name)
        assert profile.source == "driver"
        assert abs(profile.memory_bytes - own.memory_bytes) < 2**20  # a driver counts MiB
        same = {"source": own.source, "memory_bytes": own.memory_bytes}
        assert profile.model_copy(update=same) == own
    assert {profile.name for profile in table.profiles} == {one.name for one in known.profiles}


def test_profiles_are_found_by_numbers_that_are_not_their_ids():
    nvml, gpu = asked(fake_gpu("h100-80gb", "GPU-a"))
    answers = {}
    for number in range(19):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, number)
        except pynvml.NVMLError as error:
            answers[number] = error.value
        else:
            answers[number] = (info.name, info.id, info.multiprocessorCount)
    assert answers[0] == ("MIG 1g.10gb", 19, 16)
    assert answers[2] == ("MIG 3g.40gb", 9, 60)
    assert answers[4] == ("MIG 7g.80gb", 0, 132)
    assert answers[7] == ("MIG 1g.10gb+me", 20, 16)
    assert answers[9] == ("MIG 1g.20gb", 15, 26)
    assert {answers[number] for number in (5, 6, 8, *range(10, 18))} == {
        pynvml.NVML_ERROR_NOT_SUPPORTED
    }
    assert answers[18] == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_a_7g_of_the_a100_has_98_sms_and_one_of_the_h100_all():
    assert facts(fake_gpu("a100-40gb", "GPU-a")).table.profile("7g.40gb").sms == 98
    assert catalogue.device("a100-40gb").sms.value == 108
    h100 = facts(fake_gpu("h100-80gb", "GPU-a")).table
    assert [h100.profile(name).sms for name in ("1g.20gb", "3g.40gb", "7g.80gb")] == [26, 60, 132]


def test_the_driver_wins_over_the_catalogue_and_the_difference_is_noted():
    known = catalogue.device("a100-40gb").mig
    changed = tuple(
        profile.model_copy(update={"sms": 40, "starts": (4,)})
        if profile.name == "3g.20gb"
        else profile
        for profile in known.profiles
    )
    gpu = fake_gpu("a100-40gb", "GPU-a")
    found = facts(replace(gpu, table=known.model_copy(update={"profiles": changed})))
    assert (found.table.profile("3g.20gb").sms, found.table.profile("3g.20gb").starts) == (40, (4,))
    assert isinstance(found.table.layout(["3g.20gb"] * 2), Refusal)
    assert found.notes == (
        "3g.20gb: starts 4 by the driver, 0 or 4 by the catalogue",
        "3g.20gb: SMs 40 by the driver, 42 by the catalogue",
    )


def test_without_rights_the_catalogue_gives_the_placements_and_instances_stay_unknown():
    found = facts(fake_gpu("h100-80gb", "GPU-a", mig_on=True), root=False)
    assert found.table.profile("3g.40gb").starts == (0, 4)
    assert found.table.profile("3g.40gb").source == "driver"
    assert found.instances is None
    assert found.notes == (
        "its MIG placements can be read only with more rights: those of the catalogue are taken",
        "its GPU instances can be listed only with more rights",
    )


def test_without_rights_an_unknown_card_has_no_table():
    unheard = replace(fake_gpu("h100-80gb", "GPU-a"), name="NVIDIA X900")
    found = facts(unheard, root=False)
    assert found.table is None
    assert found.notes == ("its MIG placements can be read only with more rights",)
    assert facts(unheard).table is not None
    assert facts(unheard).notes == ()


def test_instances_of_others_are_listed_with_their_devices():
    nvml, gpu = asked(fake_gpu("a100-40gb", "GPU-a", mig_on=True))
    nvml.division.add("GPU-a", "3g.20gb", 4)
    nvml.division.add("GPU-a", "1g.5gb", 2)
    found = read_mig(nvml, gpu).instances
    assert [(one.id, one.profile, one.start, one.size, one.compute) for one in found] == [
        (9, "1g.5gb", 2, 1, (0,)),
        (2, "3g.20gb", 4, 4, (0,)),
    ]
    devices, unread = mig_devices(nvml, gpu)
    assert {device.uuid for device in devices} == {uuid for one in found for uuid in one.uuids}
    assert unread == []


def test_a_hole_in_the_indexes_hides_nothing():
    nvml, gpu = asked(fake_gpu("a100-40gb", "GPU-a", mig_on=True))
    first = nvml.division.add("GPU-a", "1g.5gb", 6)
    nvml.division.add("GPU-a", "2g.10gb", 4)
    first.computes.clear()
    with pytest.raises(pynvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    assert [device.name for device in mig_devices(nvml, gpu)[0]] == ["NVIDIA A100 SXM4 MIG 2g.10gb"]


def test_a_handle_is_dead_with_its_instance():
    nvml, gpu = asked(fake_gpu("a100-40gb", "GPU-a", mig_on=True))
    instance = nvml.division.add("GPU-a", "1g.5gb", 6)
    (device,) = mig_devices(nvml, gpu)[0]
    assert nvml.nvmlDeviceGetAttributes_v2(device.handle).multiprocessorCount == 14
    instance.computes.clear()
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetMemoryInfo(device.handle)


@pytest.mark.parametrize(
    ("user", "there", "reason"),
    [
        (0, False, ""),
        (1000, True, ""),
        (1000, False, "dividing a GPU needs root, or read access to {path}, which is not there"),
    ],
)
def test_rights_are_root_or_a_file_that_can_be_read(tmp_path, user, there, reason):
    path = tmp_path / RIGHTS_FILE
    if there:
        path.parent.mkdir(parents=True)
        path.touch()
    assert rights(tmp_path, user=user) == reason.format(path=path)
