"""GPUs divided for a run, with a fake driver: whole afterwards, or it is said."""

import pynvml
import pytest

from headway.core.errors import UsageError
from headway.core.job import Jobs
from headway.core.plan import Layout
from headway.core.run import Run
from headway.engines.mig import DIVIDED, MigDivision
from headway.handle import RunHandle
from headway.planners.gpu_sharing import mig_plan
from headway.probes.devices import read_devices
from headway.system.mig_layout import open_mig
from headway.testing.machines import fake_machine
from headway.testing.nvml import FakeNvml, fake_gpu
from headway.testing.queues import FakeQueue, fake_job

LAYOUT = (Layout(gpu="GPU-a", profiles=("3g.40gb", "1g.10gb", "1g.10gb")),)


@pytest.fixture
def run(tmp_path):
    queue = FakeQueue(jobs=[fake_job("a", gpus=1)])
    listed = Jobs(source="jobs.txt", jobs=tuple(queue.jobs))
    made = Run.create(
        tmp_path / "sweep-1", plan=queue.plan("serial"), machine=queue.machine, jobs=listed
    )
    yield made
    made.folder.close()


def driver(**more):
    return FakeNvml([fake_gpu("h100-80gb", "GPU-a", **more)])


def instances(nvml):
    with open_mig(nvml, "GPU-a") as gpu:
        facts = gpu.facts()
        return facts.on, sorted(one.profile for one in facts.instances or ())


def test_a_gpu_is_divided_and_whole_again(run):
    nvml = driver()
    division = MigDivision(run, nvml)
    placed = division.divide(LAYOUT)
    assert instances(nvml) == (True, ["1g.10gb", "1g.10gb", "3g.40gb"])
    uuids = {device.uuid for device in read_devices(nvml, None).devices}
    assert set(placed.values()) == uuids
    assert division.undo() == []
    assert instances(nvml) == (False, [])
    assert division.undo() == []


def test_mig_that_was_on_stays_on_and_what_is_there_stays(run):
    nvml = driver(mig_on=True)
    nvml.division.add("GPU-a", "1g.10gb", 0)
    division = MigDivision(run, nvml)
    division.divide((Layout(gpu="GPU-a", profiles=("3g.40gb",)),))
    assert division.undo() == []
    assert instances(nvml) == (True, ["1g.10gb"])


def test_a_later_life_finds_what_an_earlier_one_made(run):
    nvml = driver()
    placed = MigDivision(run, nvml).divide(LAYOUT)
    changes = len(nvml.changes)
    later = MigDivision(run, nvml)
    assert later.divide(LAYOUT) == placed
    assert len(nvml.changes) == changes, "nothing is made twice"
    assert later.undo() == []
    assert instances(nvml) == (False, [])


def test_after_a_reboot_it_is_made_again(run):
    MigDivision(run, driver()).divide(LAYOUT)
    rebooted = driver()
    later = MigDivision(run, rebooted)
    later.divide(LAYOUT)
    assert instances(rebooted) == (True, ["1g.10gb", "1g.10gb", "3g.40gb"])
    assert later.undo() == []
    assert instances(rebooted) == (False, [])


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (None, "there is no NVIDIA driver"),
        (FakeNvml([fake_gpu("a100-80gb", "GPU-a")]), "must be reset"),
        (FakeNvml([fake_gpu("l40s-48gb", "GPU-a")]), "cannot be turned on"),
    ],
    ids=["no driver", "a GPU that must be reset first", "a GPU that cannot be divided"],
)
def test_where_it_cannot_be_divided_nothing_is_started_and_nothing_stays(run, nvml, words):
    with pytest.raises(UsageError, match=words) as caught:
        MigDivision(run, nvml).divide(LAYOUT)
    assert "Nothing was started" in str(caught.value)


def test_what_fails_on_the_second_gpu_is_taken_back_on_the_first(run):
    nvml = FakeNvml([fake_gpu("h100-80gb", "GPU-a"), fake_gpu("h100-80gb", "GPU-b")])
    nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", pynvml.NVML_ERROR_UNKNOWN, call=3)
    layouts = (
        Layout(gpu="GPU-a", profiles=("3g.40gb", "3g.40gb")),
        Layout(gpu="GPU-b", profiles=("7g.80gb",)),
    )
    with pytest.raises(UsageError, match="GPU-b cannot be divided so"):
        MigDivision(run, nvml).divide(layouts)
    assert instances(nvml) == (False, [])


def test_an_instance_that_is_in_use_is_said_to_stay(run):
    nvml = driver()
    division = MigDivision(run, nvml)
    placed = division.divide((Layout(gpu="GPU-a", profiles=("7g.80gb",)),))
    nvml.occupy(next(iter(placed.values())), 4711)
    (words,) = division.undo()
    assert "it stays divided" in words
    assert run.folder.exists(DIVIDED)


def test_a_run_places_its_jobs_on_the_parts(tmp_path, monkeypatch):
    """As `supervise` sees it: the machine is the divided one, with the driver's own names."""
    nvml = driver()
    monkeypatch.setattr("headway.probes.devices.load_nvml", lambda: nvml)
    whole = fake_machine(4, devices=read_devices(nvml, None).devices)
    jobs = [fake_job(f"j{n}", gpus=1, command="echo $CUDA_VISIBLE_DEVICES") for n in range(2)]
    jobs = [job.model_copy(update={"folder": str(tmp_path)}) for job in jobs]
    queue = FakeQueue(jobs=jobs, machine=whole)
    workloads = [queue.world(queue.plan("serial"))._workloads[n] for n in range(2)]
    plan = mig_plan(queue.plan("partitioned"), workloads, LAYOUT)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("headway.probes.machine.look_at_devices", tuple)
    made = Run.create(
        tmp_path / "run", plan=plan, machine=whole, jobs=Jobs(source="x", jobs=tuple(jobs))
    )
    handle = RunHandle(made)
    result = handle.supervise()
    assert [job.status for job in result.jobs] == ["ok", "ok"]
    assert all(handle.logs(job.name).startswith("MIG-") for job in result.jobs)
    assert instances(nvml) == (False, [])
    assert not [note for note in result.notes if "divided" in note]
    handle.close()
