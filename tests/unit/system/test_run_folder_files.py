"""Files of a run folder: real folders, links and pipes laid as traps."""

import os
from pathlib import Path

import pytest

from headway.system.files import FileTooLarge, Folder, UnsafeFolder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def folder(place: Path):
    with Folder.open(place) as folder:
        yield folder


def test_write_read_replace(folder: Folder, place: Path) -> None:
    folder.write_new("plan.json", b"one", durable=True)
    assert folder.read_bytes("plan.json", 3) == b"one"
    folder.replace("plan.json", b"two", durable=True)
    folder.replace("other.json", b"three", durable=False)
    assert (place / "plan.json").read_bytes() == b"two"
    assert (place / "plan.json").stat().st_mode & 0o777 == 0o600
    assert folder.listdir() == ["other.json", "plan.json"]
    with pytest.raises(FileExistsError):
        folder.write_new("plan.json", b"again")


def test_an_interrupted_replace_is_not_listed_and_does_no_harm(folder: Folder, place: Path) -> None:
    (place / f".plan.json.{os.getpid()}.0.tmp").write_bytes(b"half")
    folder.replace("plan.json", b"whole", durable=False)
    assert folder.listdir() == ["plan.json"]
    assert folder.read_bytes("plan.json", 100) == b"whole"


def test_a_replace_that_fails_leaves_the_old_file_and_nothing_else(
    folder: Folder, place: Path
) -> None:
    (place / "plan.json").mkdir()
    with pytest.raises(IsADirectoryError):
        folder.replace("plan.json", b"new", durable=False)
    assert os.listdir(place) == ["plan.json"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"])
def test_only_plain_names_are_taken(folder: Folder, name: str) -> None:
    for act in (folder.sub, folder.mkdir, folder.exists, folder.unlink, folder.open_append):
        with pytest.raises(ValueError, match="plain file name"):
            act(name)
    with pytest.raises(ValueError, match="plain file name"):
        folder.read_bytes(name, 1)
    with pytest.raises(ValueError, match="plain file name"):
        folder.replace(name, b"", durable=False)


def test_links_are_never_followed(folder: Folder, place: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (place / "link").symlink_to(secret)
    (place / "elsewhere").symlink_to(tmp_path)
    with pytest.raises(OSError, match="link"):
        folder.read_bytes("link", 100)
    with pytest.raises(OSError, match="link"):
        folder.open_append("link")
    with pytest.raises(NotADirectoryError):
        folder.sub("elsewhere")
    with pytest.raises(FileExistsError):
        folder.write_new("link", b"x")
    folder.replace("link", b"mine", durable=False)
    assert secret.read_bytes() == b"secret"
    assert not (place / "link").is_symlink()


def test_a_link_in_place_of_the_folder_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place)
    with pytest.raises(NotADirectoryError):
        Folder.open(tmp_path / "link")


def test_the_folder_stays_the_same_when_its_path_is_turned_elsewhere(
    folder: Folder, place: Path, tmp_path: Path
) -> None:
    place.rename(tmp_path / "moved")
    place.mkdir()
    folder.write_new("x", b"1")
    assert (tmp_path / "moved/x").exists()
    assert not (place / "x").exists()


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_may_write_to_is_refused(place: Path, mode: int) -> None:
    place.chmod(mode)
    with pytest.raises(UnsafeFolder, match="chmod go-w"):
        Folder.open(place)


@pytest.mark.root
def test_a_folder_of_another_user_is_refused(place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(place, 65534, 65534)
    with pytest.raises(UnsafeFolder, match="belongs to user 65534"):
        Folder.open(place)


def test_new_folders_are_closed_to_others(folder: Folder, place: Path) -> None:
    with folder.mkdir("jobs") as jobs:
        jobs.write_new("1", b"")
    assert (place / "jobs").stat().st_mode & 0o777 == 0o700
    with folder.mkdir("jobs", exist_ok=True) as again:
        assert again.listdir() == ["1"]
    with pytest.raises(FileExistsError):
        folder.mkdir("jobs")


def test_a_file_that_is_too_large_is_refused(folder: Folder) -> None:
    folder.write_new("big", b"12345")
    assert folder.read_bytes("big", 5) == b"12345"
    with pytest.raises(FileTooLarge, match="more than 4 bytes"):
        folder.read_bytes("big", 4)


def test_a_pipe_is_refused_without_waiting_for_its_writer(folder: Folder, place: Path) -> None:
    os.mkfifo(place / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        folder.read_bytes("pipe", 10)
    with pytest.raises(OSError, match="pipe"):
        folder.open_append("pipe")


def test_appending(folder: Folder, place: Path) -> None:
    for text in (b"a\n", b"b\n"):
        descriptor = folder.open_append("journal.jsonl")
        os.write(descriptor, text)
        os.close(descriptor)
    assert (place / "journal.jsonl").read_bytes() == b"a\nb\n"


def test_a_link_is_made_once(folder: Folder) -> None:
    folder.write_new("mine", b"me")
    folder.link("mine", "claim")
    folder.write_new("theirs", b"them")
    with pytest.raises(FileExistsError):
        folder.link("theirs", "claim")
    assert folder.read_bytes("claim", 10) == b"me"
    folder.unlink("mine")
    folder.unlink("mine")
    assert not folder.exists("mine")
    assert folder.exists("claim")


def test_no_descriptor_is_inherited_or_leaks(place: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with Folder.open(place) as folder, folder.mkdir("a") as sub:
        sub.write_new("x", b"1")
        assert not os.get_inheritable(sub.descriptor)
        descriptor = sub.open_append("y")
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)
    place.chmod(0o777)
    with pytest.raises(UnsafeFolder):
        Folder.open(place)
    assert set(os.listdir("/proc/self/fd")) == before
