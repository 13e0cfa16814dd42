"""Which control groups are usable and why not, from a recorded v2 layout and made-up v1 trees.

The v2 tree is recorded as a layout (tests/data/cgroup2), not measured: `make_folder` plays the
kernel's part. What the kernel itself does is tested in tests/live/test_cgroups_v1.py.
"""

import os
from pathlib import Path

import pytest

from headway.system.cgroups import Cgroups, CgroupUnusable, reopen
from headway.system.hierarchies import Hierarchy


def discover(recorded) -> Cgroups:
    return Cgroups.discover(
        recorded.proc, root=recorded.root, pid=recorded.pid, make_folder=recorded.make_folder
    )


def test_v2_recorded_layout_a_scope_of_our_own_is_usable(recorded) -> None:
    found = discover(recorded)
    assert found.usable == {"freezer": "", "memory": "", "cpuset": ""}
    assert found.bases["memory"] == recorded.scope


def test_v2_recorded_layout_discovering_changes_nothing(recorded) -> None:
    before = {path: path.read_bytes() for path in recorded.root.rglob("*") if path.is_file()}
    discover(recorded)
    assert before == {
        path: path.read_bytes() for path in recorded.root.rglob("*") if path.is_file()
    }


def test_v2_recorded_layout_a_group_with_a_limit(recorded) -> None:
    run = discover(recorded).create_run("r1", ("freezer", "memory", "cpuset"))
    group = run.create("3-1", memory_limit_bytes=1 << 30, cpus=[0, 2, 3])
    folder = recorded.scope / "headway-r1/3-1"
    assert (folder / "memory.max").read_text() == str(1 << 30)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "cpuset.cpus").read_text() == "0,2-3"
    assert group.procs_files() == [str(folder / "cgroup.procs")]
    assert group.memory_folder == folder
    assert group.folders() == {name: str(folder) for name in ("cpuset", "freezer", "memory")}
    group.set_memory_limit(None)
    assert (folder / "memory.max").read_text() == "max"


def test_v2_recorded_layout_we_leave_our_group_before_it_hands_memory_on(recorded) -> None:
    """A group with processes of its own can't hand on: the kernel would answer EBUSY."""
    run = discover(recorded).create_run("r1", ("freezer", "memory"))
    leaf = recorded.scope / "headway-supervisor"
    assert (leaf / "cgroup.procs").read_text() == str(recorded.pid)
    assert (recorded.scope / "cgroup.subtree_control").read_text() == "+memory"
    assert (recorded.scope / "headway-r1/cgroup.subtree_control").read_text() == "+memory"
    assert run.names() == []


def test_v2_recorded_layout_killing_alone_moves_nobody(recorded) -> None:
    discover(recorded).create_run("r1", ("freezer",))
    assert not (recorded.scope / "headway-supervisor").exists()
    assert (recorded.scope / "cgroup.subtree_control").read_text() == "\n"


def test_v2_recorded_layout_found_again_from_the_leaf(recorded) -> None:
    run = discover(recorded).create_run("r1")
    run.create("3-1")
    (recorded.scope / "cgroup.procs").write_text("")
    own = recorded.proc / "self/cgroup"
    own.write_text(own.read_text().strip() + "/headway-supervisor\n")
    again = discover(recorded)
    assert again.bases["memory"] == recorded.scope
    opened = again.open_run("r1")
    assert opened is not None
    assert opened.names() == ["3-1"]
    assert opened.open("3-1") is not None
    assert opened.open("4-1") is None
    assert again.open_run("r2") is None


def test_v2_recorded_layout_counters(recorded) -> None:
    group = discover(recorded).create_run("r1").create("3-1")
    folder = group.memory_folder
    assert folder is not None
    assert group.oom_kills() == 0
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\n")
    assert group.oom_kills() == 2
    assert group.memory_bytes() == 52428800
    assert group.peak_with_cache_bytes() == 52428800 + 1048576 + 9633792


def test_v2_recorded_layout_not_delegated(recorded) -> None:
    (recorded.scope / "cgroup.controllers").write_text("pids\n")
    found = discover(recorded)
    assert found.usable["memory"] == "v2: the memory controller is not delegated to us"
    assert found.usable["freezer"] == ""
    with pytest.raises(CgroupUnusable, match="memory can't be used: v2: the memory controller"):
        found.create_run("r1", ("memory",))


def test_v2_recorded_layout_a_group_shared_with_other_processes(recorded) -> None:
    (recorded.scope / "cgroup.procs").write_text(f"4000\n{recorded.pid}\n")
    assert "systemd-run --user --scope -p Delegate=yes" in discover(recorded).usable["memory"]


def test_v2_recorded_layout_the_machines_root_group_is_not_changed(recorded) -> None:
    top = recorded.root / "sys/fs/cgroup"
    (recorded.proc / "self/cgroup").write_text("0::/\n")
    (top / "cgroup.procs").write_text(f"1\n{recorded.pid}\n")
    assert discover(recorded).usable["memory"] == ""  # handed on already
    (top / "cgroup.subtree_control").write_text("pids\n")
    assert "not Headway's to change" in discover(recorded).usable["memory"]


def test_v2_recorded_layout_mounted_read_only(recorded) -> None:
    mounts = recorded.proc / "self/mountinfo"
    mounts.write_text(mounts.read_text().replace("/sys/fs/cgroup rw", "/sys/fs/cgroup ro"))
    assert set(discover(recorded).usable.values()) == {"not writable: mounted read-only"}


def test_without_control_groups(tmp_path: Path) -> None:
    found = Cgroups.discover(tmp_path)
    assert set(found.usable.values()) == {"no control groups are mounted"}


def test_a_group_that_can_not_be_seen() -> None:
    hidden = Hierarchy(1, frozenset({"memory"}), Path("/x"), None, False)
    found = Cgroups.discover(hierarchies=[hidden])
    assert found.usable["memory"] == "the group of this process can't be seen from here"
    assert found.usable["cpuset"] == "no control groups are mounted"


def test_a_group_that_belongs_to_another_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    foreign = Hierarchy(1, frozenset({"memory"}), tmp_path, tmp_path, False)
    found = Cgroups.discover(hierarchies=[foreign])
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    assert "belongs to another user" in found.usable["memory"]


def test_a_failed_limit_leaves_no_group_behind(recorded) -> None:
    def make_without_limit(folder: Path) -> None:
        recorded.make_folder(folder)
        if folder.name == "3-1":
            (folder / "memory.max").unlink()

    def remove(folder: Path) -> None:
        removed.append(folder.name)

    removed: list[str] = []
    found = Cgroups.discover(
        recorded.proc,
        root=recorded.root,
        pid=recorded.pid,
        make_folder=make_without_limit,
        remove_folder=remove,
    )
    run = found.create_run("r1")
    with pytest.raises(FileNotFoundError):
        run.create("3-1", memory_limit_bytes=1 << 30)
    assert removed == ["3-1"]


def test_an_attempt_never_gets_an_old_group(recorded) -> None:
    run = discover(recorded).create_run("r1")
    run.create("3-1")
    with pytest.raises(FileExistsError):
        run.create("3-1")
    assert run.open("3-1") is not None


def test_limits_need_their_controller(recorded) -> None:
    run = discover(recorded).create_run("r1", ("freezer",))
    with pytest.raises(CgroupUnusable, match="made without memory"):
        run.create("3-1", memory_limit_bytes=1)
    group = run.create("3-1")
    assert group.memory_folder is None
    assert (group.oom_kills(), group.memory_bytes(), group.peak_with_cache_bytes()) == (None,) * 3
    with pytest.raises(OSError, match="no memory controller"):
        group.set_memory_limit(1)
    with pytest.raises(OSError, match="no cpuset controller"):
        group.set_cpus([0])


@pytest.mark.parametrize("name", ["", "..", ".x", "a/b", "-x", "a b", "x" * 201])
def test_names_that_could_lead_elsewhere(recorded, name: str) -> None:
    found = discover(recorded)
    with pytest.raises(ValueError, match="can't name a control group"):
        found.create_run(name)
    with pytest.raises(ValueError, match="can't name a control group"):
        found.create_run("r1").create(name)


def test_an_unknown_controller_is_named_with_the_known_ones(recorded) -> None:
    with pytest.raises(ValueError, match="'memroy' is known here; known are freezer, memory"):
        discover(recorded).create_run("r1", ("memroy",))


def test_reopen_takes_only_folders_below_one_of_ours(recorded) -> None:
    group = discover(recorded).create_run("r1").create("3-1")
    again = reopen(group.folders())
    assert again is not None
    assert again.folders() == group.folders()
    assert reopen({"memory": str(recorded.scope / "headway-r1/9-9")}) is None
    for folder in ("/sys/fs/cgroup", str(recorded.scope), f"{recorded.scope}/headway-r1/../.."):
        with pytest.raises(ValueError, match="no control group of Headway's"):
            reopen({"memory": folder})


@pytest.mark.parametrize(
    ("before", "limit", "order"),
    [
        ("100", 50, ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
        ("100", 200, ["memory.memsw.limit_in_bytes", "memory.limit_in_bytes"]),
        ("100", None, ["memory.memsw.limit_in_bytes", "memory.limit_in_bytes"]),
    ],
)
def test_v1_memory_and_swap_are_set_in_the_order_the_kernel_takes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    limit: int | None,
    order: list[str],
) -> None:
    """Made-up v1 tree: the sum of memory and swap must never be smaller than memory."""
    hierarchy = Hierarchy(1, frozenset({"memory"}), tmp_path, tmp_path, False)
    group = Cgroups.discover(hierarchies=[hierarchy]).create_run("r", ("memory",)).create("1")
    folder = group.memory_folder
    assert folder is not None
    written = []
    for name in order:
        (folder / name).write_text(before)
    monkeypatch.setattr(
        "headway.system.group.write_text", lambda path, text: written.append((path.name, text))
    )
    group.set_memory_limit(limit, swap_bytes=1 << 30)
    assert written == [(name, str(-1 if limit is None else limit)) for name in order]
    written.clear()
    group.set_memory_limit(limit, swap_bytes=0)
    assert [name for name, _ in written] == ["memory.limit_in_bytes"]


def test_processes_of_another_namespace_are_never_signalled(recorded) -> None:
    """The kernel lists them as 0, which as a target would mean our own process group."""
    group = discover(recorded).create_run("r1", ("freezer",)).create("1")
    Path(group.procs_files()[0]).write_text("0\n0\n")
    assert group.processes() == []
    assert group.signal(9) == []
