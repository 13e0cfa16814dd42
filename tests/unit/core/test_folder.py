import os

import pytest

from headway.core.folder import Folder

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "ours"
    path.mkdir(mode=0o700)
    with Folder.open(path) as opened:
        yield opened


def test_write_and_read(folder):
    folder.replace("a", b"one", durable=True)
    folder.replace("a", b"two")
    assert folder.read_bytes("a", limit=3) == b"two"
    assert folder.names() == ["a"]
    assert folder.exists("a")
    assert not folder.exists("b")
    assert (folder.path / "a").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ValueError, match="larger than 2 bytes"):
        folder.read_bytes("a", limit=2)


def test_remove_is_harmless_twice(folder):
    folder.replace("a", b"")
    folder.remove("a")
    folder.remove("a")
    assert folder.names() == []


def test_a_folder_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        Folder.open(tmp_path / "link")


def test_a_file_that_is_a_link_is_neither_read_nor_written(folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"kept")
    (folder.path / "a").symlink_to(secret)
    assert not folder.exists("a")
    with pytest.raises(OSError, match="Too many levels"):
        folder.read_bytes("a", limit=99)
    with pytest.raises(OSError, match="Too many levels"):
        folder.open_file("a", os.O_WRONLY | os.O_CREAT)
    folder.replace("a", b"new")
    assert secret.read_bytes() == b"kept", "the link is replaced, not followed"
    assert folder.read_bytes("a", limit=9) == b"new"


def test_a_sub_folder_that_is_a_link_is_refused(folder, tmp_path):
    (folder.path / "sub").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        folder.sub("sub")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        folder.mkdir("sub")


def test_pipes_are_refused_without_waiting_for_a_writer(folder):
    os.mkfifo(folder.path / "pipe")
    with pytest.raises(OSError, match="not a plain file"):
        folder.read_bytes("pipe", limit=9)
    assert not folder.exists("pipe")


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o720])
def test_a_folder_in_which_others_may_write_is_refused(tmp_path, mode):
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(PermissionError, match="refused: others may write"):
        Folder.open(path)


@as_root
def test_a_folder_of_somebody_else_is_refused(tmp_path):
    path = tmp_path / "theirs"
    path.mkdir(mode=0o700)
    os.chown(path, 12345, 12345)
    with pytest.raises(PermissionError, match="refused: belongs to another user"):
        Folder.open(path)


def test_a_refused_folder_leaves_no_descriptor_open(tmp_path):
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(0o777)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(PermissionError):
        Folder.open(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\0b"])
def test_names_with_a_path_are_refused(folder, name):
    for act in (folder.sub, folder.mkdir, folder.exists, folder.remove):
        with pytest.raises(ValueError, match="not a plain file name"):
            act(name)
    with pytest.raises(ValueError, match="not a plain file name"):
        folder.replace(name, b"")
    assert folder.names() == []


def test_what_cannot_be_put_in_place_leaves_the_old_one_and_nothing_else(folder):
    folder.replace("a", b"old")
    folder.mkdir("taken")
    with pytest.raises(OSError, match="directory"):
        folder.replace("taken", b"new")
    assert folder.names() == ["a", "taken"]


def test_sub_folders_are_private_and_made_once(folder):
    folder.mkdir("sub")
    folder.mkdir("sub")
    with folder.sub("sub") as sub:
        sub.replace("b", b"x")
        assert sub.path == folder.path / "sub"
    assert (folder.path / "sub").stat().st_mode & 0o777 == 0o700


def test_closing_twice_is_harmless(tmp_path):
    tmp_path.chmod(0o700)
    opened = Folder.open(tmp_path)
    opened.close()
    opened.close()
    assert opened.descriptor == -1
