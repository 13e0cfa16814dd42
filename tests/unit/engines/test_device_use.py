"""Whose a device's readings are: only those of a job that has it to itself, while it steps."""

import pytest

from headway.core.readings import DeviceUse
from headway.core.view import View
from headway.core.words import Outcome, Phase, Share, Start
from headway.engines.local.device_use import UseOfDevices
from headway.testing.machines import fake_device, fake_machine
from headway.testing.queues import FakeQueue, fake_job

READINGS = {0: DeviceUse(0.5, 0.2), 1: DeviceUse(0.7, None)}


def view_of(*shares, part=False):
    devices = [fake_device(0), fake_device(1)]
    if part:
        devices[0] = devices[0].model_copy(update={"uuid": "MIG-a"})
    queue = FakeQueue(
        jobs=[fake_job(f"j{n}", gpus=1) for n in range(len(shares))],
        machine=fake_machine(4, devices=devices),
    )
    view = View.of(queue.jobs, queue.plan("naive").placements, queue.machine)
    for index, share in enumerate(shares):
        view.arrive(index)
        view.apply(Start(index, share), 0)
    return view


def told(view, *, looks=2, steps=True):
    use = UseOfDevices()
    for index in view.running if steps else ():
        view.apply(Phase(1, index, "steps"), 1)
    for _ in range(looks):
        use.take(view, READINGS)
    outcome = use.told(0, Outcome("ok"))
    assert use.told(0, Outcome("ok")).device_busy is None, "it is forgotten"
    return outcome.device_busy, outcome.device_part


def test_a_job_with_a_device_of_its_own():
    assert told(view_of(Share(devices=(0,)))) == (pytest.approx(0.5), pytest.approx(0.2))
    assert told(view_of(Share(devices=(1,)))) == (pytest.approx(0.7), None)


@pytest.mark.parametrize(
    "view",
    [
        view_of(Share(devices=(0,), device_bytes=1), Share(devices=(0,), device_bytes=1)),
        view_of(Share(devices=(0, 1))),
        view_of(Share(devices=(0,)), part=True),
        view_of(Share()),
    ],
    ids=["beside another", "on two", "on a part of one", "on none"],
)
def test_where_nobody_can_say_whose_it_was(view):
    assert told(view) == (None, None)


def test_before_its_first_step_nothing_counts():
    assert told(view_of(Share(devices=(0,))), steps=False) == (None, None)
    assert told(view_of(Share(devices=(0,))), looks=0) == (None, None)
