"""A machine recorded in tests/data/cgroup2: the layout of the interface, not measured."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

RECORDED = Path(__file__).parents[2] / "data" / "cgroup2"
SCOPE = "user.slice/user-1000.slice/user@1000.service/app.slice/run-r1f2.scope"
PID = 4242


@dataclass(frozen=True)
class RecordedMachine:
    root: Path
    pid: int = PID

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    @property
    def scope(self) -> Path:
        return self.root / "sys/fs/cgroup" / SCOPE

    def make_folder(self, folder: Path) -> None:
        """Do what the kernel does at mkdir: fill in the files of what the parent hands on."""
        folder.mkdir()
        handed_on = (folder.parent / "cgroup.subtree_control").read_text().replace("+", "").split()
        for source in self.scope.iterdir():
            kind = source.name.partition(".")[0]
            if source.is_file() and (kind == "cgroup" or kind in handed_on):
                shutil.copy(source, folder / source.name)
        (folder / "cgroup.controllers").write_text(" ".join(handed_on) + "\n")
        (folder / "cgroup.subtree_control").write_text("\n")
        (folder / "cgroup.procs").write_text("")


@pytest.fixture
def recorded(tmp_path: Path) -> RecordedMachine:
    shutil.copytree(RECORDED, tmp_path / "machine")
    return RecordedMachine(tmp_path / "machine")
