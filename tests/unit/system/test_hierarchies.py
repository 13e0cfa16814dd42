"""Finding our own control group: plain machines, containers, namespaces. All trees are made up."""

import os
from pathlib import Path

import pytest

from headway.system.hierarchies import Hierarchy, discover_hierarchies, read_limit, read_table

PID = 77
V1_LINE = "40 31 0:32 {root} /sys/fs/cgroup/{name} {options},relatime - cgroup cgroup rw,{name}\n"


def machine(
    root: Path,
    *,
    groups: str,
    mounts: str,
    member_of: str,
    folders: tuple[str, ...] = (),
) -> list[Hierarchy]:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    (root / "proc/self/mountinfo").write_text(mounts)
    for folder in (*folders, member_of):
        (root / "sys/fs/cgroup" / folder).mkdir(parents=True, exist_ok=True)
        (root / "sys/fs/cgroup" / folder / "cgroup.procs").write_text("1\n")
    (root / "sys/fs/cgroup" / member_of / "cgroup.procs").write_text(f"1\n{PID}\n")
    return discover_hierarchies(root / "proc", root=root, pid=PID)


def own(root: Path, hierarchy: Hierarchy) -> str:
    assert hierarchy.own is not None
    return str(hierarchy.own.relative_to(root / "sys/fs/cgroup"))


def test_a_plain_v1_machine(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        groups="4:memory:/a/b\n3:name=systemd:/\n",
        mounts=V1_LINE.format(root="/", name="memory", options="rw"),
        member_of="memory/a/b",
    )
    assert [(one.version, set(one.controllers)) for one in found] == [(1, {"memory"})]
    assert own(tmp_path, found[0]) == "memory/a/b"
    assert [level.name for level in found[0].levels()] == ["b", "a", "memory"]


def test_controllers_mounted_together(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        groups="4:cpu,cpuacct:/a\n",
        mounts=V1_LINE.format(root="/", name="cpu,cpuacct", options="rw"),
        member_of="cpu,cpuacct/a",
    )
    assert found[0].controllers == {"cpu", "cpuacct"}


def test_a_container_that_shows_a_part_of_the_tree(tmp_path: Path) -> None:
    """The mount's root is the container's group, and /proc/self/cgroup has the machine's path."""
    found = machine(
        tmp_path,
        groups="4:memory:/docker/abc/job\n",
        mounts=V1_LINE.format(root="/docker/abc", name="memory", options="ro"),
        member_of="memory/job",
    )
    assert own(tmp_path, found[0]) == "memory/job"
    assert found[0].read_only


def test_a_namespace_made_after_the_mount(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        groups="4:memory:/\n",
        mounts=V1_LINE.format(root="/docker/abc", name="memory", options="rw"),
        member_of="memory",
    )
    assert own(tmp_path, found[0]) == "memory"


def test_a_folder_that_does_not_list_us_is_not_ours(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        groups="4:memory:/a\n",
        mounts=V1_LINE.format(root="/", name="memory", options="rw"),
        member_of="elsewhere",
        folders=("memory/a",),
    )
    assert found[0].own is None
    assert found[0].levels() == []


def test_a_group_outside_of_our_namespace_is_not_guessed(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        groups="0::/../x\n",
        mounts="41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        member_of="",
    )
    assert found[0].own is None


def test_of_two_mounts_the_one_that_shows_our_group_wins(tmp_path: Path) -> None:
    line = "41 31 0:38 {root} /sys/fs/cgroup/{point} rw - cgroup2 cgroup2 rw\n"
    found = machine(
        tmp_path,
        groups="0::/a\n",
        mounts=line.format(root="/other", point="first") + line.format(root="/", point="second"),
        member_of="second/a",
        folders=("first",),
    )
    assert [own(tmp_path, one) for one in found] == ["second/a"]


def test_blanks_in_a_mount_point(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        groups="0::/\n",
        mounts="41 31 0:38 / /sys/fs/cgroup/a\\040b rw - cgroup2 cgroup2 rw\n",
        member_of="a b",
    )
    assert own(tmp_path, found[0]) == "a b"


def test_without_any_control_groups(tmp_path: Path) -> None:
    assert discover_hierarchies(tmp_path) == []


def test_this_machine_shows_us_where_we_are() -> None:
    found = [one for one in discover_hierarchies() if one.own is not None]
    for hierarchy in found:
        members = ((hierarchy.own or Path()) / "cgroup.procs").read_text().split()
        assert str(os.getpid()) in members
    if not found:
        pytest.skip("no control groups are mounted here")


@pytest.mark.parametrize(
    ("text", "limit"), [("4096\n", 4096), ("max\n", None), ("-1\n", None), ("", None)]
)
def test_limits(tmp_path: Path, text: str, limit: int | None) -> None:
    (tmp_path / "limit").write_text(text)
    assert read_limit(tmp_path / "limit") == limit
    assert read_limit(tmp_path / "missing") is None


def test_tables_pass_over_lines_of_another_form(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("oom 1\noom_kill 2\nN0 a b\nodd x\n")
    assert read_table(tmp_path / "table") == {"oom": 1, "oom_kill": 2}
