"""The levers of MIG on the fake driver: a layout exists whole or not at all."""

from collections import deque
from itertools import permutations

import pynvml
import pytest

from headway.core import catalogue
from headway.core.mig import MigPlacement, Refusal
from headway.system.mig_layout import MigRefused, open_mig
from headway.testing.nvml import FakeNvml, fake_gpu
from headway.testing.nvml_division import Division

CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
COMPUTE = "nvmlGpuInstanceCreateComputeInstance"
DESTROY_COMPUTE = "nvmlComputeInstanceDestroy"
DESTROY = "nvmlGpuInstanceDestroy"
A100 = catalogue.device("a100-40gb").mig
MIXED = ["3g.20gb", "2g.10gb", "1g.5gb"]


def divided(name="a100-40gb", *, others=(), root=True, **more):
    """A driver with one GPU in MIG mode, and instances of others on it."""
    nvml = FakeNvml([fake_gpu(name, "GPU-a", **{"mig_on": True, **more})], root=root)
    for profile, start in others:
        nvml.division.add("GPU-a", profile, start)
    return nvml


def there(nvml):
    """The instances that exist, by place."""
    instances = nvml.division.states["GPU-a"].instances.values()
    return sorted((one.start, one.profile.name, len(one.computes)) for one in instances)


def calls(nvml):
    """What was asked to change, and what failed."""
    return [(change.function, *change.asked[:2], change.code) for change in nvml.changes]


def test_a_layout_is_created_the_largest_first_and_each_with_a_device():
    nvml = divided()
    with open_mig(nvml, "GPU-a") as gpu:
        made = gpu.create(A100.layout(["1g.5gb", "2g.10gb", "3g.20gb"]))
        assert gpu.facts().instances == tuple(sorted(made, key=lambda one: one.start))
    assert nvml.open == 0
    assert [(one.profile, one.start, one.id) for one in made] == [
        ("3g.20gb", 4, 2),
        ("2g.10gb", 2, 4),
        ("1g.5gb", 1, 8),
    ]
    assert all(uuid.startswith("MIG-") for one in made for uuid in one.uuids)
    assert len({one.uuids for one in made}) == 3
    # Profile id and start of each GPU instance; instance and profile of each compute instance.
    assert calls(nvml) == [
        (CREATE, 9, 4, 0),
        (COMPUTE, 2, 2, 0),
        (CREATE, 14, 2, 0),
        (COMPUTE, 4, 1, 0),
        (CREATE, 19, 1, 0),
        (COMPUTE, 8, 0, 0),
    ]


def every_maximal_set():
    names = {7: "7g.40gb", 4: "4g.20gb", 3: "3g.20gb", 2: "2g.10gb", 1: "1g.5gb"}
    sets = [
        (7,), (4, 3), (4, 2, 1), (4, 1, 1, 1), (3, 3), (3, 2, 2), (3, 2, 1, 1), (3, 1, 1, 1, 1),
        (2, 2, 2, 1), (2, 2, 1, 1, 1), (2, 1, 1, 1, 1, 1), (1,) * 7,
    ]  # fmt: skip
    return [[names[count] for count in one] for one in sets]


@pytest.mark.parametrize("names", every_maximal_set(), ids=" ".join)
def test_each_of_the_12_sets_exists_and_nothing_fits_beside_it(names):
    nvml = divided()
    with open_mig(nvml, "GPU-a") as gpu:
        made = gpu.create(A100.layout(names))
        table, instances = gpu.facts().table, gpu.facts().instances
        beside = [one.placement for one in instances]
        for profile in ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"):
            number = table.profile(profile).id
            assert nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu.handle, number) == 0
            assert isinstance(table.layout([profile], beside=beside), Refusal)
            with pytest.raises(pynvml.NVMLError_InsufficientResources):
                nvml.nvmlDeviceCreateGpuInstance(gpu.handle, number)
        gpu.destroy(made)
    assert there(nvml) == []


def test_the_19_layouts_can_be_created_in_any_order():
    names = ["7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.5gb"]
    places = [
        MigPlacement(profile=name, start=start, size=A100.profile(name).size)
        for name in names
        for start in A100.profile(name).starts
    ]

    def maximal(chosen, taken, rest):
        if not any(not one.bits & taken for one in places):
            yield chosen
        for index, place in enumerate(rest):
            if not place.bits & taken:
                yield from maximal([*chosen, place], taken | place.bits, rest[index + 1 :])

    layouts = list(maximal([], 0, places))
    assert len(layouts) == 19
    for layout in layouts:
        for order in list(permutations(layout))[:6]:
            nvml = divided()
            with open_mig(nvml, "GPU-a") as gpu:
                made = gpu.create(order)
            assert {one.placement for one in made} == set(layout)


@pytest.mark.parametrize("slices", [(4, 2, 2), (4, 2, 1, 1), (4, 2, 1, 1, 1), (3, 3, 1), (4, 4)])
def test_what_is_impossible_the_driver_refuses_in_any_order(slices):
    number = {4: 5, 3: 9, 2: 14, 1: 19}
    for order in set(permutations(slices)):
        nvml = divided()
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        ids = [number[one] for one in order]
        with pytest.raises(pynvml.NVMLError_InsufficientResources):
            deque(nvml.nvmlDeviceCreateGpuInstance(handle, one) for one in ids)


def test_a_driver_may_refuse_a_3g_after_smaller_ones_unless_its_place_is_given():
    nvml = divided()
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for number in (19, 14):
        nvml.nvmlDeviceCreateGpuInstance(handle, number)
    assert there(nvml) == [(4, "2g.10gb", 0), (6, "1g.5gb", 0)]
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        nvml.nvmlDeviceCreateGpuInstance(handle, 9)
    with open_mig(nvml, "GPU-a") as gpu:
        gpu.create([MigPlacement(profile="3g.20gb", start=0, size=4)])
    assert there(nvml)[0] == (0, "3g.20gb", 1)


def test_a_lone_3g_leaves_four_compute_slices():
    nvml = divided()
    with open_mig(nvml, "GPU-a") as gpu:
        gpu.create(A100.layout(["3g.20gb"]))
        gpu.create(
            A100.layout(["4g.20gb"], beside=[one.placement for one in gpu.facts().instances])
        )
    assert there(nvml) == [(0, "4g.20gb", 1), (4, "3g.20gb", 1)]


def test_the_whole_compute_instance_of_a_1g_with_double_memory_has_26_sms():
    nvml = divided("h100-80gb")
    with open_mig(nvml, "GPU-a") as gpu:
        gpu.create(catalogue.device("h100-80gb").mig.layout(["1g.20gb", "3g.40gb"]))
    parts = nvml.division.states["GPU-a"].parts()
    assert {instance.profile.name: compute.sms for instance, compute in parts} == {
        "1g.20gb": 26,
        "3g.40gb": 60,
    }


# ---- all or nothing -----------------------------------------------------------------------------

ON_THE_WAY = [
    (CREATE, 1), (CREATE, 2), (CREATE, 3),
    (COMPUTE, 1), (COMPUTE, 2), (COMPUTE, 3),
    ("nvmlGpuInstanceGetInfo", 1), ("nvmlGpuInstanceGetInfo", 3),
    ("nvmlComputeInstanceGetInfo_v2", 1), ("nvmlComputeInstanceGetInfo_v2", 2),
    ("nvmlGpuInstanceGetComputeInstanceProfileInfo", 1),
]  # fmt: skip


@pytest.mark.parametrize(("function", "call"), ON_THE_WAY)
@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES, pynvml.NVML_ERROR_UNKNOWN]
)
def test_what_fails_on_the_way_is_taken_back_whole(function, call, code):
    nvml = divided()
    nvml.fail(function, code, call=call)
    with open_mig(nvml, "GPU-a") as gpu, pytest.raises(MigRefused) as refused:
        gpu.create(A100.layout(MIXED))
    assert there(nvml) == []
    assert refused.value.left == ()
    assert str(refused.value).startswith("GPU-a cannot be divided so: ")


def test_others_stay_when_a_layout_is_taken_back():
    nvml = divided(others=[("1g.5gb", 0)])
    nvml.fail(COMPUTE, pynvml.NVML_ERROR_UNKNOWN, call=2)
    with open_mig(nvml, "GPU-a") as gpu, pytest.raises(MigRefused):
        gpu.create(A100.layout(["3g.20gb", "2g.10gb"]))
    assert there(nvml) == [(0, "1g.5gb", 1)]
    assert [change[0] for change in calls(nvml)][-3:] == [DESTROY, DESTROY_COMPUTE, DESTROY]


def test_what_cannot_be_taken_back_is_told():
    nvml = divided()
    nvml.fail(CREATE, pynvml.NVML_ERROR_UNKNOWN, call=3)
    nvml.fail(DESTROY, pynvml.NVML_ERROR_IN_USE, call=1)
    with open_mig(nvml, "GPU-a") as gpu:
        with pytest.raises(MigRefused, match=r"left behind: GPU instance 4 \(2g.10gb\)") as refused:
            gpu.create(A100.layout(MIXED))
        assert there(nvml) == [(2, "2g.10gb", 0)]
        gpu.destroy(refused.value.left)
    assert there(nvml) == []


def test_a_listener_that_fails_takes_all_back():
    told = []

    def listen(instance):
        told.append(instance)
        if len(told) == 4:
            raise KeyboardInterrupt

    nvml = divided()
    with open_mig(nvml, "GPU-a") as gpu, pytest.raises(KeyboardInterrupt):
        gpu.create(A100.layout(MIXED), made=listen)
    assert there(nvml) == []
    assert [(one.profile, len(one.compute)) for one in told] == [
        ("3g.20gb", 0), ("3g.20gb", 1), ("2g.10gb", 0), ("2g.10gb", 1),
    ]  # fmt: skip


def test_after_a_crash_what_the_listener_was_told_is_enough_to_clean_up():
    told = {}
    nvml = divided(others=[("1g.5gb", 0)])
    with open_mig(nvml, "GPU-a") as gpu:
        gpu.create(A100.layout(["3g.20gb"]), made=lambda one: told.update({one.id: one}))
    with open_mig(nvml, "GPU-a") as later:
        later.destroy(told.values())
        later.destroy(told.values())  # again: they are gone, and that is no error
    assert there(nvml) == [(0, "1g.5gb", 1)]


def test_an_instance_that_is_not_listed_is_no_success():
    nvml = divided()
    nvml.fail("nvmlDeviceGetMigDeviceHandleByIndex", pynvml.NVML_ERROR_NOT_FOUND, call=8)
    with open_mig(nvml, "GPU-a") as gpu, pytest.raises(MigRefused, match="does not list it so"):
        gpu.create(A100.layout(["7g.40gb"]))
    assert there(nvml) == []


# ---- what is not ours ---------------------------------------------------------------------------


def test_an_instance_of_others_in_the_way_is_named_and_nothing_is_tried():
    nvml = divided(others=[("2g.10gb", 4)])
    with open_mig(nvml, "GPU-a") as gpu, pytest.raises(MigRefused) as refused:
        gpu.create([MigPlacement(profile="3g.20gb", start=4, size=4)])
    assert str(refused.value) == (
        "GPU-a cannot be divided so: 3g.20gb at 4 overlaps GPU instance 5 (2g.10gb at 4), which "
        "was there before"
    )
    assert nvml.changes == []


def test_an_instance_that_took_the_place_of_ours_is_left_alone():
    nvml = divided()
    with open_mig(nvml, "GPU-a") as gpu:
        (ours,) = gpu.create(A100.layout(["1g.5gb+me"]))
        gpu.destroy([ours])
        nvml.division.add("GPU-a", "1g.5gb", ours.start)  # it gets the same id
        nvml.changes.clear()
        with pytest.raises(MigRefused, match="left alone") as refused:
            gpu.destroy([ours])
    assert refused.value.left == (ours,)
    assert nvml.changes == []
    assert there(nvml) == [(ours.start, "1g.5gb", 1)]


def test_an_instance_of_ours_with_devices_of_others_in_it_is_left_alone():
    nvml = divided()
    with open_mig(nvml, "GPU-a") as gpu:
        (ours,) = gpu.create(A100.layout(["2g.10gb"]))
        handle = nvml.nvmlDeviceGetGpuInstanceById(gpu.handle, ours.id)
        nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(handle, 0))
        for _ in range(2):  # somebody cuts it in two
            nvml.nvmlGpuInstanceCreateComputeInstance(handle, 0)
        with pytest.raises(MigRefused, match="left alone"):
            gpu.destroy([ours])
    assert there(nvml) == [(ours.start, "2g.10gb", 2)]


def test_what_is_in_use_stays_and_the_rest_goes():
    nvml = divided()
    with open_mig(nvml, "GPU-a") as gpu:
        made = gpu.create(A100.layout(MIXED))
        busy = made[1]
        nvml.occupy(busy.uuids[0], 4711)
        with pytest.raises(MigRefused, match="in use by another client") as refused:
            gpu.destroy(made)
        assert refused.value.left == (busy,)
        assert there(nvml) == [(busy.start, busy.profile, 1)]
        nvml.vacate(busy.uuids[0])
        gpu.destroy(refused.value.left)
    assert there(nvml) == []


# ---- refusals in words --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        (
            MigPlacement(profile="3g.20gb", start=2, size=4),
            "3g.20gb takes 4 memory slices from one of 0, 4, not 4 from 2",
        ),
        (
            MigPlacement(profile="9g.90gb\x1b[0m", start=0, size=1),
            "no MIG profile 9g.90gb here; there are: 1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb "
            "4g.20gb 7g.40gb",
        ),
    ],
)
def test_a_place_that_the_card_does_not_have_is_refused_before_anything_is_done(placement, reason):
    nvml = divided()
    with open_mig(nvml, "GPU-a") as gpu, pytest.raises(MigRefused) as refused:
        gpu.create([placement])
    assert str(refused.value) == f"GPU-a cannot be divided so: {reason}"
    assert nvml.changes == []


def refusal(nvml, act):
    with open_mig(nvml, "GPU-a") as gpu, pytest.raises(MigRefused) as refused:
        act(gpu)
    return str(refused.value)


def test_without_rights_it_says_what_is_needed():
    nvml = divided(root=False)
    said = refusal(nvml, lambda gpu: gpu.create(A100.layout(["7g.40gb"])))
    assert "GPU instances can be listed only with more rights" in said
    assert nvml.changes == []
    off = divided("h100-80gb", root=False, mig_on=False)
    said = refusal(off, lambda gpu: gpu.set_mode(on=True))
    assert "it needs root, or read access to /proc/driver/nvidia/capabilities/mig/config" in said


def test_a_gpu_with_mig_off_or_without_mig_says_so():
    off = divided(mig_on=False)
    said = refusal(off, lambda gpu: gpu.create(A100.layout(["7g.40gb"])))
    assert said == "MIG is off on GPU-a: nothing can be created"
    never = FakeNvml([fake_gpu("t4-16gb", "GPU-a", refuses={"nvmlDeviceGetMigMode": 3})])
    assert "MIG is off, or this GPU cannot be divided" in refusal(never, lambda gpu: gpu.facts())


def test_a_driver_or_gpu_that_is_not_there_says_so():
    with (
        pytest.raises(MigRefused, match="Driver Not Loaded"),
        open_mig(FakeNvml(init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED), "GPU-a"),
    ):
        pass
    nvml = FakeNvml()
    with pytest.raises(MigRefused, match="there is none"), open_mig(nvml, "GPU-a"):
        pass
    assert nvml.open == 0


# ---- the mode -----------------------------------------------------------------------------------


def mode(nvml):
    state = nvml.division.states["GPU-a"]
    return state.on, state.pending


def test_hopper_turns_mig_on_and_off_at_once():
    nvml = divided("h100-80gb", mig_on=False)
    with open_mig(nvml, "GPU-a") as gpu:
        gpu.set_mode(on=True)
        gpu.set_mode(on=True)  # it is already
        assert mode(nvml) == (True, True)
        gpu.set_mode(on=False)
    assert mode(nvml) == (False, False)
    assert len(nvml.changes) == 2


@pytest.mark.parametrize("needs_reset", ["says so", "says nothing"])
def test_ampere_needs_a_reset_which_is_the_users(needs_reset):
    nvml = divided(mig_on=False, needs_reset=needs_reset)
    said = refusal(nvml, lambda gpu: gpu.set_mode(on=True))
    assert "nvidia-smi -i GPU-a -mig 1, then nvidia-smi -i GPU-a --gpu-reset" in said
    assert mode(nvml) == (False, False), "no mode is left to come with the next reset"


def test_a_gpu_in_use_keeps_its_mode_although_the_call_succeeds():
    nvml = divided("h100-80gb", mig_on=False)
    nvml.occupy("GPU-a", 4711)
    said = refusal(nvml, lambda gpu: gpu.set_mode(on=True))
    assert "in use by another client" in said
    assert mode(nvml) == (False, False)
    assert [change.code for change in nvml.changes] == [0, 0]


def test_mig_is_not_turned_off_under_instances():
    nvml = divided("h100-80gb", others=[("1g.10gb", 0)])
    said = refusal(nvml, lambda gpu: gpu.set_mode(on=False))
    assert said == "MIG cannot be turned off on GPU-a: it has GPU instances"
    assert nvml.changes == []


# ---- any error anywhere -------------------------------------------------------------------------

FUNCTIONS = sorted(
    name
    for part in (FakeNvml, Division)
    for name in vars(part)
    if name.startswith("nvml") and name not in ("nvmlInit", "nvmlShutdown")
)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("call", [1, 2, 5])
@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_NOT_FOUND])
def test_no_error_of_the_driver_gets_through_and_no_instance_is_lost(function, call, code):
    nvml = divided(others=[("1g.5gb", 0)])
    nvml.fail(function, code, call=call)
    left = ()
    try:
        with open_mig(nvml, "GPU-a") as gpu:
            gpu.destroy(gpu.create(A100.layout(MIXED)))
    except MigRefused as refused:
        left = refused.left
    assert nvml.open == 0
    now = {one.id for one in nvml.division.states["GPU-a"].instances.values()}
    assert 7 in now, "what others made is there"
    assert now - {7} <= {one.id for one in left}
