"""The profile store's file: what is in it, what is not, and what is wrong with it sometimes."""

import os
import sqlite3
import stat

import pytest

from headway.probes import profiles
from headway.probes.profiles import PairRatio, ProfileStore, database, key_of, kind_digest
from headway.probes.profiles.identity import Identity, machine_digest
from headway.testing.machines import fake_device, fake_machine
from headway.testing.profiles import past_attempt
from headway.testing.queues import fake_job

MACHINE = fake_machine(cores=1)
JOB = fake_job("a", command="python train.py --lr 1")
ROOT = os.geteuid() == 0


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state" / "headway"


@pytest.fixture
def store(folder):
    with ProfileStore.open(folder) as opened:
        yield opened


@pytest.fixture
def impatient(monkeypatch):
    """Nobody waits for a locked file."""
    monkeypatch.setattr(profiles, "_WAIT_S", 0.0)


def attempt(job=JOB, **changes):
    return past_attempt(job, MACHINE, **changes)


def ratio(first, second, value, *, at=1):
    return PairRatio(first, second, machine_digest(MACHINE), value, at)


def duration_of(store, job=JOB, **changes):
    return store.recall([job], MACHINE, environment={}, **changes).workloads[0].duration


def rows_in(folder):
    with sqlite3.connect(folder / database.FILE) as connection:
        (count,) = connection.execute("SELECT count(*) FROM attempts").fetchone()
    connection.close()
    return count


def test_the_file_and_its_folder_are_the_users_alone(store, folder):
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(folder / database.FILE).st_mode) == 0o600
    assert store.notes == ()


def test_a_file_that_others_could_read_is_closed_to_them(folder):
    ProfileStore.open(folder).close()
    os.chmod(folder / database.FILE, 0o644)
    ProfileStore.open(folder).close()
    assert stat.S_IMODE(os.stat(folder / database.FILE).st_mode) == 0o600


def test_what_was_learnt_is_there_in_the_next_run(folder):
    with ProfileStore.open(folder) as store:
        store.learn([attempt(total_s=10.0, work_s=8.0, start_up_s=2.0)])
    with ProfileStore.open(folder) as store:
        assert duration_of(store).value == pytest.approx(10.0)


def test_neither_commands_nor_values_nor_secrets_are_in_the_file(store, folder):
    job = fake_job(
        "a",
        command="HF_TOKEN=hf_sesamesesamesesame python train.py --data /home/me/private",
        env=(("SETTING", "sesame"), ("API_KEY", "sesame")),
    )
    inline = fake_job("b", command="""python -c "key='sesame'; open('x.py')" '; sesame.py'""")
    store.learn([attempt(job), attempt(inline)])
    content = (folder / database.FILE).read_bytes()
    assert b"train.py" in content
    for word in (b"sesame", b"private", b"--data", b"SETTING"):
        assert word not in content


def test_a_renewed_secret_makes_no_other_job():
    jobs = [fake_job("a", command=f"python train.py --api-key {key}") for key in ("one", "two")]
    assert key_of(jobs[0], {}) == key_of(jobs[1], {})


@pytest.mark.parametrize(
    ("change", "environment"),
    [
        ({"command": "python train.py --lr 2"}, {}),
        ({"folder": "/elsewhere"}, {}),
        ({"env": (("MODE", "fast"),)}, {}),
        ({}, {"CUDA_VISIBLE_DEVICES": "1"}),
        ({}, {"CONDA_PREFIX": "/opt/conda"}),
        ({}, {"PYTHONPATH": "/lib"}),
    ],
)
def test_what_makes_another_job(change, environment):
    assert key_of(JOB.model_copy(update=change), environment) != key_of(JOB, {})


def test_the_interpreter_on_path_is_part_of_a_job(tmp_path):
    paths = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python").touch(mode=0o755)
        paths.append({"PATH": str(tmp_path / name)})
    assert key_of(JOB, paths[0]) != key_of(JOB, paths[1])


@pytest.mark.parametrize(
    "change", [{"name": "b"}, {"memory_bytes": 2**30}, {"env": (("OMP_NUM_THREADS", "2"),)}]
)
def test_what_makes_no_other_job(change):
    noise = {"PWD": "/x", "OMP_NUM_THREADS": "1", "HOME": "/root"}
    assert key_of(JOB.model_copy(update=change), noise) == key_of(JOB, {})


def test_a_machine_is_known_by_its_parts_and_not_by_its_name():
    machine = fake_machine(cores=2)
    host = machine.host.model_copy(update={"name": "other", "boot_id": "2", "cores": (4, 5)})
    assert machine_digest(machine.model_copy(update={"hosts": (host,)})) == machine_digest(machine)
    for other in (
        fake_machine(cores=4),
        fake_machine(memory_bytes=2 * machine.host.memory_bytes),
        fake_machine(quota_cores=1.0),
        fake_machine(devices=[fake_device(0)]),
    ):
        assert machine_digest(other) != machine_digest(machine)


def test_the_newest_of_a_job_are_kept(store, folder, monkeypatch):
    monkeypatch.setattr(database, "KEPT_OF_A_JOB", 3)
    other = fake_job("b", command="python train.py --lr 2")
    store.learn([attempt(other, ended_ns=1)])
    for second in range(1, 8):
        store.learn([attempt(total_s=float(second), ended_ns=second * 10**9)])
    assert rows_in(folder) == 4
    assert duration_of(store).value == pytest.approx(6.0)  # of 5, 6 and 7


def test_the_file_never_holds_more_than_so_many_attempts(store, folder, monkeypatch):
    monkeypatch.setattr(database, "KEPT", 5)
    jobs = [fake_job("a", command=f"python train.py {seed}") for seed in range(9)]
    store.learn([attempt(job, ended_ns=seed) for seed, job in enumerate(jobs)])
    assert rows_in(folder) == 5
    assert duration_of(store, jobs[8]).origin == "measured"
    assert duration_of(store, jobs[3]).origin == "extrapolated"


def test_what_is_dropped_is_overwritten(store, folder, monkeypatch):
    monkeypatch.setattr(database, "KEPT", 1)
    jobs = [fake_job("a", command=f"python train.py {seed}") for seed in range(2)]
    for seed, job in enumerate(jobs):
        store.learn([attempt(job, ended_ns=seed)])
    content = (folder / database.FILE).read_bytes()
    assert [key_of(job, {}).encode() in content for job in jobs] == [False, True]


@pytest.mark.parametrize("script", ["train.py", "/work/train.py"])
def test_a_script_can_be_forgotten(store, folder, script):
    other = fake_job("b", command="python other.py")
    kinds = [kind_digest(job) for job in (JOB, other)]
    store.learn([attempt(), attempt(), attempt(other)])
    store.learn_pairs([ratio(kinds[0], kinds[1], 0.9), ratio(kinds[1], kinds[1], 0.8)])
    assert store.forget(script) == 2
    assert not duration_of(store).known
    assert duration_of(store, other).known
    assert [pair.ratio for pair in store.pair_ratios(kinds, MACHINE)] == [0.8]
    assert Identity.of(JOB, {}).key.encode() not in (folder / database.FILE).read_bytes()


def test_everything_can_be_forgotten(store, folder):
    store.learn([attempt()])
    store.learn_pairs([ratio("a", "b", 0.9)])
    (folder / database.DAMAGED).write_text("old")
    assert store.forget() == 1
    assert (store.pair_ratios("ab", MACHINE), duration_of(store).known) == ((), False)
    assert sorted(path.name for path in folder.iterdir()) == [database.FILE]


def test_pair_ratios_come_back_oldest_first_as_plain_numbers(store, monkeypatch):
    monkeypatch.setattr(database, "KEPT_OF_A_JOB", 2)
    store.learn_pairs([ratio("a", "b", 0.7, at=30), ratio("b", "a", 1.1, at=5)])
    store.learn_pairs([ratio("a", "b", 0.9, at=20), ratio("a", "b", 0.5, at=10)])
    found = store.pair_ratios("ab", MACHINE)
    assert [(*pair[:2], pair.ratio, pair.measured_ns) for pair in found] == [
        ("b", "a", 1.1, 5),
        ("a", "b", 0.9, 20),
        ("a", "b", 0.7, 30),
    ]
    assert store.pair_ratios("a", MACHINE) == ()
    assert store.pair_ratios("ab", fake_machine(cores=64)) == ()


def test_a_file_of_schema_1_keeps_its_attempts_and_can_hold_pairs(folder):
    with ProfileStore.open(folder) as store:
        store.learn([attempt()])
    with sqlite3.connect(folder / database.FILE) as connection:
        connection.execute("DROP TABLE pairs")
        connection.execute("CREATE TABLE pairs (first, second, ratio, measured_ns)")
        for column in ("device_bytes", "device_busy", "device_part"):
            connection.execute(f"ALTER TABLE attempts DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    for _ in range(2):
        with ProfileStore.open(folder) as store:
            assert duration_of(store).known
            assert store.learn_pairs([ratio("a", "b", 0.9)])
    with ProfileStore.open(folder) as store:
        assert len(store.pair_ratios("ab", MACHINE)) == 2
        assert store.notes == ()


# --- what is wrong with the file ------------------------------------------------------------------


def check_off(store, *, words):
    """Nothing is known, nothing is kept, nothing is raised, and the note says why."""
    assert store.learn([attempt()])  # nothing that could be tried again
    assert store.learn_pairs([ratio("a", "b", 0.9)])
    assert not duration_of(store).known
    assert store.pair_ratios("ab", MACHINE) == ()
    assert store.forget("train.py") == 0
    (note,) = store.notes
    assert words in note


@pytest.mark.parametrize("damage", ["all", "header", "inside"])
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(folder, damage):
    file = folder / database.FILE
    with ProfileStore.open(folder) as store:
        store.learn([attempt(fake_job("a", command=f"./x {seed}")) for seed in range(200)])
    content = bytearray(file.read_bytes())
    if damage == "all":
        content[:] = b"not a database" * 100
    elif damage == "header":
        content[:16] = bytes(16)
    else:
        content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)
    with ProfileStore.open(folder) as store:
        assert not duration_of(store).known
        assert store.learn([attempt()])
        assert duration_of(store).known
        (note,) = store.notes
    assert "was damaged; it is now profiles.damaged.sqlite" in note
    assert (folder / database.DAMAGED).read_bytes() == content


def test_a_file_that_is_damaged_while_it_is_open_is_set_aside(store, folder):
    store.learn([attempt()])
    size = os.stat(folder / database.FILE).st_size
    with open(folder / database.FILE, "r+b") as file:
        file.write(b"\xff" * size)
    store.learn([attempt(total_s=20.0)])
    assert duration_of(store).value == pytest.approx(20.0)
    assert "was damaged" in store.notes[0]


def test_what_is_not_a_row_is_passed_over(store, folder):
    store.learn([attempt(total_s=5.0), attempt(total_s=5.0), attempt(total_s=5.0)])
    with sqlite3.connect(folder / database.FILE) as connection:
        connection.execute("UPDATE attempts SET work_s = x'ff', ended_ns = 'then' WHERE rowid = 1")
        connection.execute("UPDATE attempts SET total_s = -5.0 WHERE rowid = 2")
    connection.close()
    assert duration_of(store).samples == 1


def test_a_newer_file_is_refused_by_its_number_and_stays(folder):
    ProfileStore.open(folder).close()
    with sqlite3.connect(folder / database.FILE) as connection:
        connection.execute(f"PRAGMA user_version = {database.SCHEMA + 1}")
    connection.close()
    before = (folder / database.FILE).read_bytes()
    with ProfileStore.open(folder) as store:
        check_off(store, words=f"schema {database.SCHEMA + 1}, written by a newer Headway")
    assert (folder / database.FILE).read_bytes() == before


def test_a_database_of_somebody_else_is_not_touched(folder):
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / database.FILE) as connection:
        connection.execute("CREATE TABLE bookmarks (address)")
    connection.close()
    before = (folder / database.FILE).read_bytes()
    with ProfileStore.open(folder) as store:
        check_off(store, words="is not a profile store; move it away")
    assert (folder / database.FILE).read_bytes() == before


def test_a_link_is_not_followed(folder, tmp_path):
    folder.mkdir(parents=True)
    target = tmp_path / "target"
    target.touch()
    (folder / database.FILE).symlink_to(target)
    with ProfileStore.open(folder) as store:
        check_off(store, words="is not a plain file")
    assert target.read_bytes() == b""


def test_a_folder_behind_a_link_is_refused(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    folder.parent.mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with ProfileStore.open(folder) as store:
        check_off(store, words="cannot be used")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_that_others_may_write_to_is_refused(folder):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with ProfileStore.open(folder) as store:
        check_off(store, words="others may write")


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="root: only root can give a file away")
def test_a_file_of_another_user_is_refused(folder):
    ProfileStore.open(folder).close()
    os.chown(folder / database.FILE, 65534, -1)
    with ProfileStore.open(folder) as store:
        check_off(store, words="belongs to another user")


def test_a_state_folder_that_is_a_file_turns_the_store_off(folder):
    folder.parent.mkdir()
    folder.touch()
    with ProfileStore.open(folder) as store:
        check_off(store, words="cannot be used (File exists)")


def test_a_file_that_cannot_be_written_any_more_turns_the_store_off(store, folder):
    store.learn([attempt()])
    store._database._connection.execute("PRAGMA query_only = 1")
    assert duration_of(store).known
    store.learn([attempt()])
    check_off(store, words="is not used any more (attempt to write a readonly database)")
    assert rows_in(folder) == 1


@pytest.mark.usefixtures("impatient")
def test_what_a_busy_file_does_not_take_can_be_tried_again(store, folder):
    other = sqlite3.connect(folder / database.FILE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert not store.learn([attempt()], wait_s=0.0)
    other.execute("ROLLBACK")
    other.close()
    assert store.learn([attempt()], wait_s=0.0)
    (note,) = store.notes
    assert "was busy for long" in note
    assert rows_in(folder) == 1


@pytest.mark.usefixtures("impatient")
def test_what_could_not_be_committed_is_taken_back_whole(store, folder):
    reader = sqlite3.connect(folder / database.FILE, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM attempts").fetchall()
    assert not store.learn([attempt()], wait_s=0.0)
    reader.execute("ROLLBACK")
    reader.close()
    assert store.learn([attempt()], wait_s=0.0)
    assert rows_in(folder) == 1


@pytest.mark.usefixtures("impatient")
def test_a_file_that_is_busy_from_the_start_turns_the_store_off(folder):
    ProfileStore.open(folder).close()
    other = sqlite3.connect(folder / database.FILE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with ProfileStore.open(folder) as store:
        check_off(store, words="cannot be used (database is locked)")
    other.close()


def test_a_file_that_was_moved_while_it_was_open_is_made_anew(store, folder):
    store.learn([attempt()])
    os.rename(folder / database.FILE, folder / "moved")
    assert store.learn([attempt(total_s=20.0)])
    assert rows_in(folder) == 1
    assert duration_of(store).value == pytest.approx(20.0)
    assert store.notes == ()


def test_a_journal_is_not_left_to_be_played_back_into_the_next_file(folder):
    ProfileStore.open(folder).close()
    (folder / database.JOURNAL).write_bytes(b"of the damaged file")
    database.set_aside(folder, os.stat(folder / database.FILE).st_ino)
    assert [path.name for path in folder.iterdir()] == [database.DAMAGED]


def test_the_new_file_of_another_headway_is_not_set_aside(folder):
    ProfileStore.open(folder).close()
    database.set_aside(folder, os.stat(folder / database.FILE).st_ino + 1)
    assert not (folder / database.DAMAGED).exists()
