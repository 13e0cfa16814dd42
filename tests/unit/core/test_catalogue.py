import json
import re

import pytest

from headway.core import catalogue
from headway.core.errors import BadFile, UnknownName
from headway.core.mig import Refusal
from headway.core.units import GIB, MIB

ALL = [catalogue.device(name) for name in catalogue.names()]
DIVISIBLE = [known for known in ALL if known.mig]


def figures(known):
    """Every figure of a device with a source of its own."""
    own = [known.memory, known.sms, *(figure for _, figure in known.peaks)]
    return own if known.bandwidth is None else [*own, known.bandwidth]


@pytest.mark.parametrize("known", ALL, ids=lambda known: known.name)
def test_each_device_is_named_after_its_memory(known):
    stated = re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*-(\d+)gb", known.name)
    assert stated
    assert 0.92 * int(stated[1]) < known.memory_bytes / GIB < 1.01 * int(stated[1])


@pytest.mark.parametrize("known", ALL, ids=lambda known: known.name)
def test_each_figure_names_its_sources(known):
    assert {figure.trust for figure in figures(known)} <= {
        "confirmed",
        "third party",
        "from memory",
    }
    if known.mig:
        assert catalogue.trust(known.mig_source)
        assert all(catalogue.trust(profile.source) for profile in known.mig.profiles)


@pytest.mark.parametrize("known", DIVISIBLE, ids=lambda known: known.name)
def test_no_instance_has_more_than_its_device(known):
    for profile in known.mig.profiles:
        assert profile.sms <= known.sms.value
        if "from memory" not in (catalogue.trust(profile.source), known.memory.trust):
            assert profile.memory_bytes <= known.memory_bytes


@pytest.mark.parametrize("known", DIVISIBLE, ids=lambda known: known.name)
def test_as_many_of_a_profile_as_the_driver_allows_have_a_layout(known):
    for profile in known.mig.profiles:
        assert not isinstance(catalogue.layout(known, [profile.name] * profile.most), Refusal)
        assert isinstance(catalogue.layout(known, [profile.name] * (profile.most + 1)), Refusal)


@pytest.mark.parametrize(
    ("name", "profile", "sms", "gib", "copy_engines", "number"),
    [
        ("a100-40gb", "7g.40gb", 98, 39.25, 7, 0),
        ("a100-40gb", "3g.20gb", 42, 19.5, 3, 9),
        ("a100-80gb", "1g.20gb", 14, 19.5, 1, 15),
        ("h100-80gb", "1g.20gb", 26, 19.62, 1, 15),
        ("h100-80gb", "3g.40gb", 60, 39.5, 3, 9),
        ("h100-80gb", "7g.80gb", 132, 79.25, 8, 0),
        ("h100-94gb", "3g.47gb", 60, 46.38, None, 9),
        ("h200-141gb", "4g.71gb", 64, 69.5, None, 5),
        ("b200-180gb", "2g.45gb", 36, 44.25, 4, 14),
        ("a30-24gb", "2g.12gb", 28, 11.4, 2, 5),
    ],
)
def test_profiles_as_the_driver_lists_them(name, profile, sms, gib, copy_engines, number):
    found = catalogue.device(name).mig.profile(profile)
    assert (found.sms, found.copy_engines, found.id) == (sms, copy_engines, number)
    assert found.memory_bytes == int(gib * GIB)


def test_a_few_figures_and_how_sure_they_are():
    a100 = catalogue.device("a100-40gb")
    assert a100.memory_bytes == 40536 * MIB
    assert a100.memory.trust == "third party"
    assert (a100.bandwidth.value, a100.bandwidth.trust) == (1555e9, "confirmed")
    assert a100.peak("bf16").value == 312e12
    assert a100.peak("fp8") is None
    h100 = catalogue.device("h100-pcie-80gb")
    assert (h100.peak("fp16").trust, h100.peak("fp64").trust) == ("confirmed", "from memory")
    assert catalogue.device("t4-16gb").memory_bytes == 16 * 10**9


def test_what_is_not_known_is_none():
    nvl = catalogue.device("h100-94gb")
    assert nvl.bandwidth is None
    assert nvl.peaks == ()


def test_a_device_without_mig_cannot_be_divided():
    refused = catalogue.layout(catalogue.device("t4-16gb"), ["1g.5gb"])
    assert refused == Refusal(reason="t4-16gb cannot be divided by MIG")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("a100", "near: a100-80gb a100-40gb"),
        ("A100-40GB", "near: a100-40gb "),
        ("h100-80gbb", "near: h100-80gb "),
        ("toaster\x1b[31m", "known: p100-16gb v100-16gb "),
    ],
)
def test_an_unknown_device_names_near_ones(given, hint):
    with pytest.raises(UnknownName) as caught:
        catalogue.device(given)
    assert hint in f"{caught.value} "
    assert str(caught.value).isprintable()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "gib", "meant"),
    [
        ("NVIDIA A100-SXM4-40GB", 39.6, "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", 80, "a100-80gb"),
        ("NVIDIA A30", 23.6, "a30-24gb"),
        ("NVIDIA A10", 22.5, "a10-24gb"),
        ("NVIDIA H100 80GB HBM3", 79.6, "h100-80gb"),
        ("NVIDIA H100 PCIe", 79.6, "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", 93.6, "h100-94gb"),
        ("NVIDIA H200", 140.4, "h200-141gb"),
        ("NVIDIA L40S", 45, "l40s-48gb"),
        ("Tesla T4", 15, "t4-16gb"),
        ("Tesla V100-SXM2-32GB", 32, "v100-32gb"),
        ("NVIDIA GeForce RTX 3090", 24, "rtx3090-24gb"),
    ],
)
def test_a_drivers_name_means_a_known_device(name, gib, meant):
    assert catalogue.like(name, int(gib * GIB)).name == meant


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16),
        ("NVIDIA A10G", 22.5),
        ("NVIDIA A100-SXM4-80GB", 60),
        ("", 80),
    ],
)
def test_another_device_means_none(name, gib):
    assert catalogue.like(name, int(gib * GIB)) is None


@pytest.mark.parametrize("known", ALL, ids=lambda known: known.name)
def test_each_title_means_its_device(known):
    assert catalogue.like(known.title, known.memory_bytes) == known


def test_the_file_is_read_once():
    assert catalogue.device("a100-40gb") is catalogue.device("a100-40gb")


# ---- machines -----------------------------------------------------------------------------------


def test_a_machine_of_known_devices():
    machine = catalogue.machine("a100-40gb", count=4, cores_each=16, host_bytes_each=128 * GIB)
    assert [(device.index, device.name) for device in machine.devices] == [
        (index, "a100-40gb") for index in range(4)
    ]
    assert len({device.uuid for device in machine.devices}) == 4
    assert not any(device.taken for device in machine.devices)
    assert machine.usable_cores == 64
    assert machine.host.memory_bytes == 512 * GIB


def test_what_is_assumed_of_a_machine_is_said():
    assert catalogue.machine("a100-80gb", count=2).notes == (
        "not here: 2 x NVIDIA A100 SXM4 (80.0 GiB) of the catalogue",
        "its host is assumed: 8 cores and 64.0 GiB a device",
        "the memory of a100-80gb is not confirmed (third party)",
    )
    assert len(catalogue.machine("t4-16gb").notes) == 2


def test_a_machine_comes_back_from_its_file(tmp_path):
    path = tmp_path / "machine.json"
    machine = catalogue.machine("t4-16gb")
    path.write_text(machine.to_json(indent=1))
    assert catalogue.read_machine(path) == machine
    assert catalogue.machine_of(str(path)) == machine
    assert catalogue.machine_of("t4-16gb") == machine


def refusal(path):
    with pytest.raises(BadFile) as caught:
        catalogue.machine_of(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


def test_a_file_that_is_not_there_says_how_to_make_it(tmp_path):
    assert refusal(tmp_path / "gone.json") == (
        "cannot be read (No such file or directory). Such a file is made on the machine itself: "
        "headway detect --json > machine.json"
    )
    folder = tmp_path / "folder.json"
    folder.mkdir()
    assert refusal(folder).startswith("cannot be read (Is a directory).")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, "Machine schema 99 was written by a newer Headway"),
        ({"hosts": []}, 'field "hosts": '),
        (
            {"gpus": 2},
            'unknown field "gpus"; known fields: hosts devices ways foreign elsewhere notes.',
        ),
        ({"devices": [{"index": "0"}]}, 'field "devices.0.index": '),
    ],
)
def test_a_wrong_file_names_the_field(tmp_path, change, message):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({**json.loads(catalogue.machine("t4-16gb").to_json()), **change}))
    assert refusal(path).startswith(message)


def test_a_file_that_is_no_json_or_too_large_is_refused(tmp_path):
    path = tmp_path / "machine.json"
    path.write_bytes(b"\xff\x00")
    assert refusal(path).startswith("not readable as JSON")
    path.write_bytes(b" " * (catalogue.MAX_MACHINE_BYTES + 1))
    assert refusal(path) == "larger than 16 MB, so no machine.json."
