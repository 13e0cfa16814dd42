"""The inventory of GPUs: what CUDA would show, who uses it, and nothing unknown taken for free."""

import pynvml
import pytest

from headway.core.units import GIB
from headway.probes.devices import load_nvml, read_devices
from headway.testing.nvml import FakeGpu, FakeMig, FakeNvml, FakeUse

CARD = "NVIDIA A100-SXM4-80GB"
UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-bb33", "GPU-cc44", "GPU-dd55", "GPU-ee66", "GPU-ff77"]
SEVEN = FakeNvml([FakeGpu(CARD, uuid, 80 * GIB, GIB) for uuid in UUIDS])
SPLIT = FakeGpu(
    CARD,
    "GPU-mm00",
    80 * GIB,
    migs=(
        FakeMig(f"{CARD} MIG 3g.40gb", "MIG-p1", 40 * GIB, GIB, (FakeUse(7, GIB),), 1, 0),
        None,
        FakeMig(f"{CARD} MIG 3g.40gb", "MIG-p2", 40 * GIB, 0, (), 2, 0),
    ),
)
BESIDE_SPLIT = FakeNvml([FakeGpu(CARD, "GPU-aa11", 80 * GIB, GIB), SPLIT])


@pytest.fixture
def host_proc(tmp_path):
    return make_proc(tmp_path, namespace="pid:[4026531836]")


def make_proc(folder, *, namespace):
    """A /proc with one process of another user, in this or another pid namespace."""
    proc = folder / "proc"
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to(namespace)
    (proc / "4711").mkdir()
    fields = "S 1 4711 4711 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 1000 50 0"
    (proc / "4711/stat").write_text(f"4711 (python3) {fields}\n")
    (proc / "4711/status").write_text("Name:\tpython3\nUid:\t0\t0\t0\t0\n")
    (proc / "4711/cmdline").write_bytes(b"python3\0train.py\0--api-key\0hunter2\0--size=\x1b[2J9\0")
    return proc


def uuids(nvml, visible):
    return [device.uuid for device in read_devices(nvml, visible).devices]


@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        (None, UUIDS),
        ("", []),
        (" ", []),
        ("-1", []),
        ("2,1", ["GPU-bb33", "GPU-aa22"]),
        ("0,2,-1,1", ["GPU-aa11", "GPU-bb33"]),
        ("0,9,1", ["GPU-aa11"]),
        ("NoDevFiles", []),
        ("1abc, +2", ["GPU-aa22", "GPU-bb33"]),
        ("0,0", []),
        ("GPU-bb33,GPU-aa11", ["GPU-bb33", "GPU-aa11"]),
        ("GPU-b,GPU-aa2", ["GPU-bb33", "GPU-aa22"]),
        ("GPU-aa", []),
        ("GPU-bb33,GPU-b", []),
        ("GPU-bb33,0", ["GPU-bb33"]),
        ("0,GPU-bb33", ["GPU-aa11"]),
        ("4,5,6", ["GPU-dd55", "GPU-ee66", "GPU-ff77"]),
    ],
)
def test_the_inherited_list_is_the_inventory_read_as_cuda_reads_it(visible, shown):
    assert uuids(SEVEN, visible) == shown
    assert SEVEN.open == 0


@pytest.mark.parametrize(
    ("visible", "note"),
    [
        ("", "CUDA_VISIBLE_DEVICES is empty: no GPU is to be used from here"),
        ("0,9,1", 'CUDA_VISIBLE_DEVICES: "9" names no GPU here; it hides what follows it'),
        ("0,GPU-bb33", '"GPU-bb33" is of another kind than the first entry'),
        ("0,0", "names a GPU twice: CUDA then shows none"),
        ("4,5,6", "devices 0, 1, 2 are the machine's GPUs 4, 5, 6 (CUDA_VISIBLE_DEVICES)"),
    ],
)
def test_what_was_hidden_is_said(visible, note):
    assert any(note in said for said in read_devices(SEVEN, visible).notes)


@pytest.mark.parametrize("visible", [None, "-1", "0,1"])
def test_nothing_is_said_where_nothing_surprises(visible):
    assert read_devices(SEVEN, visible).notes == ()


def test_an_index_on_a_mixed_machine_may_mean_another_gpu_to_cuda():
    mixed = FakeNvml([FakeGpu("T4", "GPU-a", GIB), FakeGpu("H100", "GPU-b", GIB)])

    def warned(visible, order=None):
        notes = read_devices(mixed, visible, device_order=order).notes
        return any("CUDA_DEVICE_ORDER=PCI_BUS_ID" in note for note in notes)

    assert warned("0")
    assert not warned("0", "PCI_BUS_ID")
    assert not warned("GPU-a")
    assert not warned(None)


@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        (None, ["GPU-aa11", "MIG-p1", "MIG-p2"]),
        ("MIG-p2", ["MIG-p2"]),
        ("MIG-p1,MIG-p2", ["MIG-p1", "MIG-p2"]),
        ("MIG-GPU-mm00/2/0", ["MIG-p2"]),
        ("1", ["MIG-p1"]),
        ("0,1", ["MIG-p1"]),
        ("GPU-mm00", ["MIG-p1"]),
        ("0", ["GPU-aa11"]),
    ],
)
def test_mig_devices_are_devices_of_their_own(visible, shown):
    inventory = read_devices(BESIDE_SPLIT, visible)
    assert [device.uuid for device in inventory.devices] == shown
    assert [device.index for device in inventory.devices] == list(range(len(shown)))
    for device in inventory.devices:
        is_part = device.uuid.startswith("MIG-")
        assert device.memory_bytes == (40 * GIB if is_part else 80 * GIB)
        said = any(f"device {device.index} is a MIG device" in note for note in inventory.notes)
        assert said == is_part


def test_a_gpu_in_mig_mode_without_parts_offers_nothing():
    empty = FakeNvml([FakeGpu(CARD, "GPU-a", 80 * GIB, migs=())])
    inventory = read_devices(empty, None)
    assert inventory.devices == ()
    assert inventory.notes == ("GPU 0 is in MIG mode but has no MIG device: nothing to use",)


def test_foreign_processes_are_named_with_masked_commands_and_our_own_are_not(host_proc):
    uses = (FakeUse(4711, 21 * GIB), FakeUse(4712, None), FakeUse(50, GIB))
    nvml = FakeNvml([FakeGpu(CARD, "GPU-a", 80 * GIB, 22 * GIB, uses, clients=(FakeUse(60, GIB),))])
    (device,) = read_devices(nvml, None, own_pids={50}, proc=host_proc).devices
    assert device.used_bytes == 22 * GIB
    assert device.users == (
        "process 60 of the host, 1.0 GiB",
        "root: python3 train.py --api-key *** --size=9 (process 4711), 21.0 GiB",
        "process 4712 of the host, memory unknown",
    )


def test_in_a_container_pids_of_the_driver_are_not_taken_for_ours(tmp_path):
    proc = make_proc(tmp_path, namespace="pid:[4026532999]")
    nvml = FakeNvml([FakeGpu(CARD, "GPU-a", 80 * GIB, GIB, (FakeUse(4711, GIB),))])
    inventory = read_devices(nvml, None, own_pids={4711}, proc=proc)
    assert inventory.devices[0].users == ("process 4711 of the host, 1.0 GiB",)
    assert inventory.notes == (
        "device 0: the driver gives the host's pids, so its users have no names here",
    )


def test_unknown_memory_is_none_and_unknown_users_are_users():
    refusing = FakeGpu(
        CARD,
        "GPU-b",
        80 * GIB,
        refuses={
            "nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED,
            "nvmlDeviceGetComputeRunningProcesses": pynvml.NVML_ERROR_NO_PERMISSION,
        },
    )
    inventory = read_devices(FakeNvml([FakeGpu("NVIDIA GB10", "GPU-a", 0), refusing]), None)
    unified, unknown = inventory.devices
    assert (unified.memory_bytes, unified.used_bytes, unified.users) == (None, None, ())
    assert (unknown.memory_bytes, unknown.used_bytes, unknown.users) == (None, None, ("unknown",))
    assert inventory.notes == (
        "device 0: memory unknown (it shares the host's)",
        "device 1: memory unknown (Not Supported)",
        "device 1: who uses it cannot be read (Insufficient Permissions); it is not taken for free",
    )


@pytest.mark.parametrize(
    ("code", "note"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver here, so no GPUs"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "installed but not loaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "updated while in use"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "cannot be asked (Insufficient Permissions)"),
        (pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES, "cannot be asked (NVML Error with code 23)"),
    ],
)
def test_a_driver_that_does_not_start_is_no_gpu_and_a_reason(code, note):
    inventory = read_devices(FakeNvml(init_error=code), None)
    assert (inventory.devices, inventory.any_gpu) == ((), False)
    assert note in inventory.notes[0]


FUNCTIONS = [name for name in vars(FakeNvml) if name.startswith("nvmlDevice")]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN])
@pytest.mark.parametrize("migs", [None, SPLIT.migs])
def test_no_error_of_the_driver_gets_through_or_frees_a_device(function, code, migs):
    lost = FakeGpu(CARD, "GPU-a", 80 * GIB, migs=migs, refuses={function: code})
    fine = FakeGpu(CARD, "GPU-b", 80 * GIB)
    devices = read_devices(FakeNvml([lost, fine]), None).devices
    assert devices[-1].uuid == "GPU-b"
    whole = [device for device in devices if device.uuid == "GPU-a" and not device.users]
    assert not (migs and whole)


def test_a_lost_gpu_keeps_its_number():
    refuses = {"nvmlDeviceGetHandleByIndex": pynvml.NVML_ERROR_GPU_IS_LOST}
    lost = FakeGpu(CARD, "GPU-a", 80 * GIB, refuses=refuses)
    nvml = FakeNvml([lost, FakeGpu(CARD, "GPU-b", 80 * GIB)])
    assert uuids(nvml, "1") == ["GPU-b"]
    assert uuids(nvml, "0,1") == []
    assert "GPU 0 does not answer (GPU is lost) and is left out" in read_devices(nvml, None).notes


def test_without_the_binding_there_is_a_note():
    assert load_nvml() is pynvml
    assert "not installed" in read_devices(None, None).notes[0]
