"""What only a real GPU can tell; `pytest -m gpu` on a machine with one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from terminals import Place

from headway.core.index import state_folder
from headway.core.job import Job
from headway.front import detect
from headway.probes.devices import load_nvml, read_devices
from headway.probes.profiles import ProfileStore

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "bench" / "jobs" / "gpu_train.py"

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def gpu():
    devices = read_devices(load_nvml(), os.environ.get("CUDA_VISIBLE_DEVICES")).devices
    if not devices:
        pytest.skip("gpu: there is no NVIDIA GPU here")
    torch = pytest.importorskip("torch", reason="gpu: torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("gpu: torch cannot use CUDA")
    return devices[0]


def test_a_job_teaches_what_it_does_to_a_gpu(tmp_path, monkeypatch, gpu):
    here = Place(tmp_path)
    command = f"{sys.executable} {TRAIN} --size large --seconds 8 < /dev/null"
    here.write(f"[name=large gpus=1] {command}")
    assert here.do("run", "jobs.txt", "--out", "run", "-q").code == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    job = Job(name="large", command=command, folder=str(tmp_path), gpus=1)
    with ProfileStore.open(state_folder()) as store:
        (workload,) = store.recall([job], detect(), environment=os.environ).workloads
    assert workload.device_bytes is not None
    assert 100 * 2**20 < workload.device_bytes.value < (gpu.memory_bytes or 2**40)
    assert workload.device_busy is not None
    assert 0.3 < workload.device_busy.value <= 1.0


def test_out_of_memory_on_the_device_is_told_by_its_index(tmp_path, gpu):
    here = Place(tmp_path)
    here.write(
        "[name=huge gpus=1] "
        f"{sys.executable} -c 'import torch; torch.empty(2**42, device=\"cuda\")'"
    )
    assert here.do("run", "jobs.txt", "--out", "run", "-q").code == 1
    (job,) = json.loads((tmp_path / "run" / "result.json").read_text())["jobs"]
    assert job["status"] == "oom"
    assert "GPU memory ran out: tried to allocate" in job["cause"]


@pytest.mark.mps
def test_mps_is_no_slower_than_taking_turns():
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "mps.py"), "--quick"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
