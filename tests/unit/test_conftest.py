"""The summary of markers is honest: it runs here on a small suite of its own, in a process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SETTINGS = """
[pytest]
addopts = --strict-markers
markers =
    gpu: needs a real GPU
    torch: needs torch
    cgroup: needs a writable cgroup hierarchy
    slow: takes long
"""
SUITE = """
import pytest

@pytest.mark.torch
@pytest.mark.slow
def test_runs(): pass

@pytest.mark.torch
@pytest.mark.xfail(reason="known")
def test_expected_failure(): assert False

@pytest.mark.gpu
@pytest.mark.parametrize("number", range(3))
def test_skips(number): pytest.skip("no NVIDIA device")
"""


def run_suite(folder: Path, suite: str = SUITE, *, must_run: str = "") -> tuple[int, list[str]]:
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "test_suite.py").write_text(suite)
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder / "conftest.py")
    summary = folder / "markers.txt"
    environment = os.environ | {
        "HEADWAY_MUST_RUN": must_run,
        "HEADWAY_MARKERS_FILE": str(summary),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the plugins take most of the time of a start
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    code = subprocess.run(command, env=environment, cwd=folder, capture_output=True).returncode
    return code, summary.read_text().splitlines() if summary.exists() else []


def test_counts_runs_and_gives_the_reasons_of_skips(tmp_path):
    code, lines = run_suite(tmp_path)
    assert code == 0
    assert lines == [
        "gpu: 0 ran, 3 skipped: no NVIDIA device (3)",
        "torch: 2 ran",
        "cgroup: no tests",
    ]


def test_a_skip_of_a_marker_that_must_run_fails_the_session(tmp_path):
    code, lines = run_suite(tmp_path, must_run="torch gpu")
    assert code == 1
    assert lines[-1] == "gpu: must not skip here (HEADWAY_MUST_RUN)"


def test_markers_that_must_run_and_did_change_nothing(tmp_path):
    assert run_suite(tmp_path, must_run="torch cgroup")[0] == 0


def test_a_module_that_skips_itself_counts_by_its_reason(tmp_path):
    suite = "import pytest\npytest.skip('no torch here', allow_module_level=True)\n"
    code, lines = run_suite(tmp_path, suite, must_run="torch")
    assert code == 1
    assert lines[1] == "torch: 0 ran, 1 skipped: no torch here (test_suite.py, whole) (1)"


def test_an_unknown_marker_is_refused(tmp_path):
    assert run_suite(tmp_path, must_run="warp") == (4, [])
