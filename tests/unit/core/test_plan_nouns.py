"""Every noun goes to JSON and comes back; what does not fit is refused by name."""

import pytest

from headway.core import catalogue
from headway.core.environment import Environment
from headway.core.errors import BadFile
from headway.core.estimate import unknown
from headway.core.job import Job, Jobs, script_of
from headway.core.machine import Device, Machine, SharingWay
from headway.core.noun import Noun
from headway.core.plan import MODES, Placement, Plan, PolicyChoice
from headway.core.run import JobResult, Marker, Result
from headway.core.timeline import Header, Span, Timeline
from headway.core.workload import Op, Workload
from headway.planners.queue import Queue
from headway.testing.conformance import check_noun
from headway.testing.machines import fake_device, fake_machine
from headway.testing.queues import FakeQueue, fake_job

JOB = fake_job(
    "größe \u2028 \x07",
    memory_bytes=5,
    cores=2,
    timeout_s=1.5,
    env=(("A", "1"),),
    after=("b",),
    group="g",
    devices=(0, 1),
    collocation="mps",
    mode="alone",
)
NOUNS: list[Noun] = [
    JOB,
    Jobs(source="jobs.txt", environment=Environment.of({"A": "1"}, salt="s"), jobs=(JOB,)),
    fake_machine(devices=[fake_device(0), fake_device(1, used_bytes=None, users=("x",))]),
    SharingWay(name="mps", usable=False, reason="no GPU"),
    *(FakeQueue(jobs=[JOB]).plan(mode) for mode in MODES),
    Placement(job="a", cores=1, threads=2, devices=3, alone=True, cap_memory=True),
    Queue(slots=3, pin=True, patience=0),
    Workload.opaque("a", work_ns=5, steps=3),
    Workload(
        job="a",
        ops=(Op(id="x", work_ns=1),),
        start_up=unknown("s"),
        duration=unknown("s"),
        peak_bytes=unknown("bytes"),
    ),
    Op(id="x", work_ns=1, cores=0.5),
    Timeline(
        header=Header(source="simulated"), spans=(Span(t=0, d=1, lane="a", kind="host", name="n"),)
    ),
    Marker(run="r", created_ns=1, source="s", folder="/"),
    Result(
        outcome="ok", mode="serial", start=1.0, end=2.5, jobs=(JobResult(name="a", status="ok"),)
    ),
    JobResult(name="a", status="ok", cores=(0, 1)),
    unknown("ratio"),
    catalogue.device("a100-40gb"),
]


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: type(noun).__name__)
def test_round_trip(noun):
    check_noun(noun)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not readable as JSON"),
        ("[]", "expected an object, found list"),
        ("{}", 'field "schema" is None, expected a number from 1'),
        ('{"schema": 0}', 'field "schema" is 0'),
        ('{"schema": "1"}', "field \"schema\" is '1'"),
        ('{"schema": 2, "later": 1}', "Placement schema 2 was written by a newer Headway"),
        ('{"schema": 1, "job": "a", "corse": 2}', 'unknown field "corse"; known fields: job cores'),
        ('{"schema": 1, "job": "a", "cores": 0}', 'field "cores": Input should be greater than'),
        ('{"schema": 1, "job": "a", "cores": "2"}', "(given '2')"),
        ('{"schema": 1}', 'field "job": Field required'),
    ],
)
def test_what_does_not_fit_is_named(text, words):
    with pytest.raises(BadFile) as caught:
        Placement.from_json(text, source="plan.json")
    assert str(caught.value).startswith("plan.json: ")
    assert words in str(caught.value)


def test_a_field_far_inside_is_named_by_its_path():
    plan = FakeQueue(jobs=[JOB]).plan("serial").to_json()
    with pytest.raises(BadFile, match=r'field "placements\.0\.devices"'):
        Plan.from_json(plan.replace('"devices": 0', '"devices": -1'), source="x")
    words = r'unknown field "placements\.0\.device"; known fields: job cores threads most_cores'
    with pytest.raises(BadFile, match=words):
        Plan.from_json(plan.replace('"devices": 0', '"device": 1'), source="x")


def test_long_values_are_shortened_in_errors():
    with pytest.raises(BadFile) as caught:
        PolicyChoice.from_json('{"schema": 1, "name": %s}' % ([1] * 900), source="x")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("kind", [Machine, Device, Job, Plan, Result])
def test_nothing_is_made_of_nothing(kind):
    with pytest.raises(BadFile):
        kind.from_json('{"schema": 1}', source="x")


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --lr 1", "/work/train.py"),
        ("A=1 B=2 python3.11 -u sub/../train.py", "/work/train.py"),
        ("python -m pkg.train --x", "-m pkg.train"),
        ("torchrun --nproc 2 train.py", "/work/train.py"),
        ("./a.out 1", "./a.out"),
        ("cd x && python train.py", "/work/train.py"),
        ("bash run.sh", "/work/run.sh"),
        ("echo 'unclosed", "echo 'unclosed"),
    ],
)
def test_the_script_of_a_command(command, script):
    assert script_of(command, "/work") == script
    assert Job(name="a", command=command, folder="/work").script == script


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"devices": (0,), "collocation": "MIG"}, "neither mps nor a MIG profile"),
        ({"collocation": "mps"}, "without the devices that it is meant for"),
    ],
)
def test_a_way_of_sharing_that_says_too_little_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        fake_job("a", **fields)


def test_the_mig_profile_of_a_job():
    profiles = [
        fake_job("a", devices=(0,), collocation=way).mig_profile for way in ("", "mps", "1g.5gb+me")
    ]
    assert profiles == ["", "", "1g.5gb+me"]


def test_threads_below_cores_are_refused():
    with pytest.raises(ValueError, match="cores=4 is more than threads=2"):
        fake_job("a", cores=4, threads=2)


@pytest.mark.parametrize(
    ("cores", "quota", "usable"), [(4, None, 4), (4, 2.5, 2), (4, 0.5, 1), (2, 8.0, 2)]
)
def test_usable_cores_are_whole_and_within_the_quota(cores, quota, usable):
    assert fake_machine(cores=cores, quota_cores=quota).usable_cores == usable
