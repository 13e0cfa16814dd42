"""How fast jobs go on one GPU: limits that must hold whatever the jobs do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.machine import Device
from headway.core.words import Share
from headway.core.workload import Workload
from headway.costs.device_sharing import DeviceSharing, Load
from headway.sim.devices import WHOLE
from headway.testing.machines import fake_device

PARTS = st.floats(0.01, 1.0)
LOADS = st.builds(lambda busy, filled: Load(busy, busy * filled), PARTS, PARTS)


@given(load=LOADS, part=PARTS)
def test_fewer_multiprocessors_never_make_a_job_faster(load, part):
    assert load.stretch(1.0) == 1.0
    assert load.stretch(part) >= load.stretch(min(1.0, 2 * part)) >= 1.0
    # All of its work on a part of the device takes at most as many times as long as that is less.
    assert load.stretch(part) <= max(1.0, 1 / part) + 1e-9


@given(load=LOADS, part=PARTS)
def test_what_its_kernels_do_not_fill_is_not_missed(load, part):
    if part >= load.filled:
        assert load.stretch(part) == 1.0


def job(load: Load) -> Workload:
    return Workload.opaque("a", work_ns=1, device_busy=load.busy, device_part=load.part)


def mig_device(sms: int, whole: int) -> Device:
    return fake_device(0).model_copy(update={"uuid": "MIG-a", "sms": sms, "whole_sms": whole})


@given(load=LOADS, sms=st.integers(1, 108))
def test_a_job_alone_on_an_instance_is_slowed_by_nothing_but_its_size(load, sms):
    usage = DeviceSharing("mig").usage(job(load), Share(devices=(0,)), mig_device(sms, 108))
    assert usage.stretch == pytest.approx(load.stretch(sms / 108))
    assert usage.milli <= WHOLE


@given(loads=st.lists(LOADS, min_size=2, max_size=7))
def test_no_more_is_done_in_time_slices_than_one_at_a_time_could(loads):
    usages = [
        DeviceSharing("time-slices").usage(job(one), Share(), fake_device(0)) for one in loads
    ]
    rates = DeviceSharing("time-slices").pool.rates(
        sorted(one.milli for one in usages), [1] * len(usages)
    )
    used = sum(
        rate / 2**20 * milli
        for rate, milli in zip(rates, sorted(one.milli for one in usages), strict=True)
    )
    assert used <= WHOLE + 1e-6


def rates(way, loads):
    """The speed of each of these jobs on one device, as a part of its speed alone."""
    usages = [DeviceSharing(way).usage(job(one), Share(), fake_device(0)) for one in loads]
    order = sorted(range(len(usages)), key=lambda n: usages[n].milli)
    told = DeviceSharing(way).pool.rates([usages[n].milli for n in order], [1] * len(order))
    return [rate / 2**20 for _, rate in sorted(zip(order, told, strict=True))]


@given(loads=st.lists(LOADS, min_size=2, max_size=7))
def test_side_by_side_no_less_of_the_device_is_used_than_in_turns(loads):
    def used(way):
        told = zip(rates(way, loads), loads, strict=True)
        return sum(rate * load.part for rate, load in told)

    assert used("mps") >= used("time-slices") - 0.01 * len(loads)


@given(load=LOADS, copies=st.integers(2, 7))
def test_copies_side_by_side_are_no_slower_than_in_turns(load, copies):
    """By this MPS is expected to be no worse in any cell; to be seen on a real device."""
    assert rates("mps", [load] * copies)[0] >= rates("time-slices", [load] * copies)[0] - 0.01


def test_a_share_of_the_multiprocessors_holds_a_job_back():
    half = Share(devices=(0,), device_part=0.5)
    usage = DeviceSharing("mps").usage(job(Load(1.0, 1.0)), half, fake_device(0))
    assert (usage.stretch, usage.milli) == (2.0, 500)


def test_what_is_not_known_is_taken_for_all_of_the_device():
    assert Load.of(Workload.opaque("a", work_ns=1)) == Load(1.0, 1.0)
    assert Load.of(Workload.opaque("a", work_ns=1, device_part=0.3)) == Load(0.3, 0.3)
    with pytest.raises(ValueError, match=r"part 0\.5"):
        Load(busy=0.4, part=0.5)
