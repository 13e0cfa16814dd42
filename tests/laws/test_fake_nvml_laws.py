"""Laws that the fake driver keeps, whatever is asked of it, and in whatever order."""

from collections import Counter
from ctypes import byref

import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core import catalogue
from headway.core.mig import MigPlacement, Refusal
from headway.system.mig import mig_devices, read_mig
from headway.system.mig_layout import MigRefused, open_mig
from headway.testing.nvml import FakeNvml, fake_gpu

CARDS = [name for name in catalogue.names() if catalogue.device(name).mig]
# What is asked (a GPU instance by choice or place, a compute instance, the end of one, somebody
# comes or goes), and which of what is there or could be is meant.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["choose", "place", "compute", "uncompute", "destroy", "use", "leave"]),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
    ),
    min_size=10,
    max_size=40,
)
REFUSALS = {
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES,
    pynvml.NVML_ERROR_IN_USE,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
}


class Session:
    """One fake GPU in MIG mode, and steps on it through NVML's own functions."""

    def __init__(self, name):
        self.nvml = FakeNvml([fake_gpu(name, "GPU-a", mig_on=True)])
        self.nvml.nvmlInit()
        self.gpu = self.nvml.nvmlDeviceGetHandleByIndex(0)
        self.state = self.nvml.division.states["GPU-a"]
        self.used = set()

    def act(self, step, first, second):
        nvml, table = self.nvml, self.state.table
        kind = table.profiles[first % len(table.profiles)]
        instances = list(self.state.instances.values())
        parts = list(self.state.parts())
        if step == "choose":
            nvml.nvmlDeviceCreateGpuInstance(self.gpu, kind.id)
        elif step == "place":
            place = pynvml.c_nvmlGpuInstancePlacement_t(second % table.memory, kind.size)
            nvml.nvmlDeviceCreateGpuInstanceWithPlacement(self.gpu, kind.id, byref(place))
        elif step in ("compute", "destroy") and instances:
            instance = instances[first % len(instances)]
            handle = nvml.nvmlDeviceGetGpuInstanceById(self.gpu, instance.id)
            if step == "destroy":
                nvml.nvmlGpuInstanceDestroy(handle)
            else:
                nvml.nvmlGpuInstanceCreateComputeInstance(handle, second % 9)
        elif parts:
            instance, compute = parts[first % len(parts)]
            if step == "uncompute":
                handle = nvml.nvmlDeviceGetGpuInstanceById(self.gpu, instance.id)
                nvml.nvmlComputeInstanceDestroy(
                    nvml.nvmlGpuInstanceGetComputeInstanceById(handle, compute.id)
                )
            elif step == "use":
                nvml.occupy(compute.uuid, 4711)
                self.used.add(compute.uuid)
            elif step == "leave":
                nvml.vacate(compute.uuid)
                self.used.discard(compute.uuid)

    def refused(self, step):
        """The code that a step is answered with, 0 where it is done."""
        try:
            self.act(*step)
        except pynvml.NVMLError as error:
            return error.value
        return 0

    def snapshot(self):
        return sorted(
            (one.id, one.start, one.profile.name, tuple(sorted(one.computes)))
            for one in self.state.instances.values()
        )

    def check(self):
        table = self.state.table
        instances = list(self.state.instances.values())
        taken = [
            slot for one in instances for slot in range(one.start, one.start + one.profile.size)
        ]
        assert len(set(taken)) == len(taken), "no two instances overlap"
        assert all(one.start in one.profile.starts for one in instances)
        assert sum(one.profile.compute for one in instances) <= table.compute
        for profile, number in Counter(one.profile for one in instances).items():
            assert number <= profile.most
        # What exists is what the catalogue's own rule allows.
        assert not isinstance(table.layout([one.profile.name for one in instances]), Refusal)
        for one in instances:
            assert sum(part.slices for part in one.computes.values()) <= one.profile.compute
        found, unread = mig_devices(self.nvml, self.gpu)
        assert not unread
        assert {device.uuid for device in found} == {part.uuid for _, part in self.state.parts()}
        assert len({device.uuid for device in found}) == len(found)
        assert self.used <= {device.uuid for device in found}, "nothing in use goes away"


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.sampled_from(CARDS), STEPS)
def test_the_fake_keeps_its_laws_over_any_sequence(name, steps):
    session = Session(name)
    for step in steps:
        before, noted = session.snapshot(), len(session.nvml.changes)
        code = session.refused(step)
        if code:
            assert code in REFUSALS
            assert session.snapshot() == before, "what is refused changes nothing"
            assert session.nvml.changes[-1].code == code
        if session.snapshot() != before:
            assert len(session.nvml.changes) == noted + 1, "what changes is noted"
        session.check()


@st.composite
def wishes(draw):
    """A card, instances of others on it, and instances that are wished for."""
    name = draw(st.sampled_from(CARDS))
    names = st.sampled_from([profile.name for profile in catalogue.device(name).mig.profiles])
    return name, draw(st.lists(names, max_size=3)), draw(st.lists(names, min_size=1, max_size=6))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(wishes(), st.integers(0, 40))
def test_a_layout_beside_others_exists_whole_or_not_at_all(wish, fault):
    """One call in the middle may fail, wherever; others' instances are as they were."""
    name, others, names = wish
    nvml = FakeNvml([fake_gpu(name, "GPU-a", mig_on=True)])
    table = catalogue.device(name).mig
    theirs = table.layout(others)
    if isinstance(theirs, Refusal):
        return
    for one in theirs:
        nvml.division.add("GPU-a", one.profile, one.start)
    with open_mig(nvml, "GPU-a") as gpu:
        before = gpu.facts().instances
        placed = table.layout(names, beside=theirs)
        if isinstance(placed, Refusal):
            assert table.layout(names, beside=theirs).reason
            return
        functions = (
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            "nvmlGpuInstanceCreateComputeInstance",
            "nvmlComputeInstanceGetInfo_v2",
            "nvmlDeviceGetMigMode",
        )
        nvml.fail(functions[fault % 4], pynvml.NVML_ERROR_UNKNOWN, call=fault // 4 + 1)
        made, left = created(gpu, placed)
        assert left == ()
        assert sorted(one.profile for one in made) in ([], sorted(names))
    there = facts_at_last(nvml)
    assert {one.id for one in there} == {one.id for one in (*before, *made)}
    assert set(before) <= set(there), "what was there before is as it was"


def created(gpu, placements):
    """What was created, and what could not be taken back."""
    try:
        return gpu.create(placements), ()
    except MigRefused as refused:
        return (), refused.left


def facts_at_last(nvml):
    nvml.nvmlInit()
    for _ in range(2):  # a fault that was not met yet is met here
        try:
            return read_mig(nvml, nvml.nvmlDeviceGetHandleByIndex(0)).instances
        except pynvml.NVMLError:
            continue
    raise AssertionError("the driver does not answer")


@given(wishes())
def test_a_layout_beside_others_overlaps_none_of_them(wish):
    name, others, names = wish
    table = catalogue.device(name).mig
    theirs = table.layout(others)
    if isinstance(theirs, Refusal):
        return
    placed = table.layout(names, beside=theirs)
    if isinstance(placed, Refusal):
        assert placed.reason
        return
    bits = [one.bits for one in (*theirs, *placed)]
    assert sum(bits) == sum(set(bits))
    for one in bits:
        assert sum(other & one > 0 for other in bits) == 1
    assert not isinstance(table.layout([*others, *names]), Refusal)


def test_bits_are_the_slices_from_the_start_on():
    assert MigPlacement(profile="x", start=4, size=2).bits == 0b110000
