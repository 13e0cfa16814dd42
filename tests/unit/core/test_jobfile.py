import os
import re
import threading
from pathlib import Path

import pytest

from headway.core import jobfile
from headway.core.errors import BadJobFile
from headway.core.job import Job, Jobs
from headway.core.jobfields import KEYS, MAX_ARGUMENT_BYTES
from headway.core.jobfile import MAX_BYTES, MAX_JOBS, parse, read
from headway.core.joborder import default_name
from headway.core.units import GIB, MIB

DOCS = Path(__file__).parents[3] / "docs" / "job-files.md"
KNOWN = " ".join(KEYS)
KNOWN_IN_TABLES = "command folder grid " + KNOWN


def jobs_of(text: str, source: str = "jobs.txt") -> tuple[Job, ...]:
    return parse(text.encode(), source=source, folder="/here").jobs


def only(text: str, source: str = "jobs.txt") -> Job:
    (job,) = jobs_of(text, source)
    return job


def refusal(text: str | bytes, source: str = "jobs.txt") -> str:
    with pytest.raises(BadJobFile) as caught:
        parse(text if isinstance(text, bytes) else text.encode(), source=source, folder="/here")
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert message.endswith(" Nothing was started.")
    return message.removesuffix(" Nothing was started.")


# ---- one command a line -------------------------------------------------------------------------


def test_every_key_of_a_prefix():
    job = only(
        "[name=big memory=2G gpu_memory=1.5GiB cores=2 gpus=1 threads=4 timeout=1h30m "
        "stall_timeout=90 retries=3 env=SEED=1 env=WORDS='a b' group=g mode=alone priority=-7] "
        "python x.py"
    )
    assert job == Job(
        name="big",
        command="python x.py",
        folder="/here",
        memory_bytes=2 * GIB,
        gpu_memory_bytes=1536 * MIB,
        cores=2,
        gpus=1,
        threads=4,
        timeout_s=5400.0,
        stall_timeout_s=90.0,
        retries=3,
        env=(("SEED", "1"), ("WORDS", "a b")),
        group="g",
        mode="alone",
        priority=-7,
        line=1,
    )


def test_a_plain_line_asks_for_nothing():
    assert only("python x.py") == Job(name="x", command="python x.py", folder="/here", line=1)


@pytest.mark.parametrize(
    "command",
    [
        "[ -f x ] && python x.py",
        "[[ $A == b ]] && python x.py",
        "[ a=b ] || true",
        "[A=b] python x.py",
        "[]",
        "  python x.py --name 'a  b' \\ ",
        "python x.py # a comment of the shell",
        "echo \t\u2028\x0b\x0c\x85 end",
        "echo 'größer 損失'",
        "a \\\\",
        "echo $((1<<2)) | tee a; false",
    ],
)
def test_the_text_of_a_command_is_kept_byte_for_byte(command):
    assert only(command).command == command
    assert only(f"[name=n] {command.lstrip()}").command == command.lstrip()


def test_blank_lines_and_comments_are_skipped_and_lines_counted():
    jobs = jobs_of("# sweep\n\n \t\npython a.py\n  # b \\\npython b.py\n")
    assert [(job.name, job.line) for job in jobs] == [("a", 4), ("b", 6)]


def test_a_backslash_joins_lines_as_the_shell_does():
    jobs = jobs_of("[name=a \\\n memory=2G] python a.py \\\n  --lr 1\npython b.py\\\\\ntrue")
    assert [(job.name, job.command, job.line) for job in jobs] == [
        ("a", "python a.py \\\n  --lr 1", 1),
        ("b", "python b.py\\\\", 4),
        ("true", "true", 5),
    ]
    assert jobs[0].memory_bytes == 2 * GIB


def test_windows_line_ends_and_byte_order_mark():
    jobs = jobs_of("\ufeffpython a.py\r\npython b.py \\\r\n  -x\r\n\r\n[name=c] true\r\n")
    assert [job.command for job in jobs] == ["python a.py", "python b.py \\\n  -x", "true"]


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ('name="a b]"', "a b]"),
        ("name='say \"x\"'", 'say "x"'),
        (r'name="say \"x\" \\ \n"', r'say "x" \ \n'),
        ("name=lr=0.1,bs=32", "lr=0.1,bs=32"),
        ("name=a/b", "a/b"),
        ("name=pre'fix ed'", "prefix ed"),
        ("name=損失", "損失"),
        ("name=a ", "a"),
    ],
)
def test_values_in_quotes(prefix, name):
    job = only(f"[{prefix}]true")
    assert (job.name, job.command) == (name, "true")


def test_after_takes_several_names_in_any_order_of_the_file():
    jobs = jobs_of("[name=last after=a,b,a] x\n[name=a] x\n[name=b after=a] x")
    assert [job.after for job in jobs] == [("a", "b"), (), ("a",)]


# ---- lists of other tools -----------------------------------------------------------------------


def test_a_list_of_gpusched_is_read_unchanged():
    jobs = jobs_of(
        "# sweep\n[vram=18000] python train.py --config a.yaml\n[vram=22G]bash eval.sh\n"
        "  [vram=30GiB gpus=2] torchrun --nproc_per_node=2 big.py\n"
        "[vram=8G retries=2] python s.py\n"
        "[timeout=2H GPUS=1] python flaky.py\n[vram=1500mib cancel] python doomed.py\n"
        "[cancel] python doomed.py\npython preprocess.py\n"
    )
    assert [(job.name, job.gpu_memory_bytes, job.gpus, job.retries) for job in jobs] == [
        ("train", 18000 * MIB, None, 0),
        ("eval", 22 * GIB, None, 0),
        ("big", 30 * GIB, 2, 0),
        ("s", 8 * GIB, None, 2),
        ("flaky", None, 1, 0),
        ("preprocess", None, None, 0),
    ]
    assert jobs[4].timeout_s == 7200.0
    assert jobs[1].command == "bash eval.sh"


def test_a_list_of_simple_gpu_scheduler_is_read_unchanged():
    lines = [f"python train.py --seed {seed} --out 'r {seed}'" for seed in range(3)]
    assert [job.command for job in jobs_of("\n".join(lines))] == lines


# ---- TOML ---------------------------------------------------------------------------------------

TOML = """\
# a sweep
[defaults]
memory = "2G"
timeout = 600
env = { OMP_NUM_THREADS = 1, MODE = "fast" }
folder = "code"

[[job]]
name = "wide"
command = "python train.py --width 512"
memory = 734003200
env = { MODE = "slow" }

[[job]]
command = '''
cd sub
python train.py
'''
after = ["wide"]
timeout = "2h"
folder = "/else/../other"
"""


@pytest.mark.parametrize("source", ["sweep.toml", "-", "jobs.txt"])
def test_tables_with_defaults(source):
    wide, train = jobs_of(TOML, source)
    assert wide == Job(
        name="wide",
        command="python train.py --width 512",
        folder="/here/code",
        memory_bytes=700 * MIB,
        timeout_s=600.0,
        env=(("OMP_NUM_THREADS", "1"), ("MODE", "slow")),
        line=8,
    )
    assert train == Job(
        name="train",
        command="cd sub\npython train.py\n",
        folder="/other",
        memory_bytes=2 * GIB,
        timeout_s=7200.0,
        env=(("OMP_NUM_THREADS", "1"), ("MODE", "fast")),
        after=("wide",),
        line=14,
    )


def test_tables_may_be_called_jobs_and_lines_are_given_only_where_known():
    assert only('[[jobs]]\ncommand = "x"\nafter = []', "j.toml").line == 1
    assert only('job = [{ command = "x" }]', "j.toml").line == 0
    text = '[[job]]\ncommand = """\n[[job]]\n"""\n'
    assert only(text, "j.toml").line == 0


def test_a_job_may_undo_a_default_under_its_other_name():
    job = only('[defaults]\ngpu_memory = "2G"\n[[job]]\ncommand = "x"\nvram = 1000', "j.toml")
    assert job.gpu_memory_bytes == 1000 * MIB


def test_home_in_a_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert only('[[job]]\ncommand = "x"\nfolder = "~/a"', "j.toml").folder == "/home/me/a"


# ---- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --config a.sh", "train"),
        ("OMP_NUM_THREADS=1 python -u src/train.py", "train"),
        ("cd x && python 'my runs/train.py'", "train"),
        ("python -m package.tool --x", "tool"),
        ("torchrun --nproc_per_node=2 big.py", "big"),
        ("./bin/fit -x", "fit"),
        ("A=1 B=2 /usr/bin/sleep 5", "sleep"),
        ("python -c 'print(1)'", "python"),
        ('"$PYTHON" -x', "PYTHON"),
        ("python \\\ntrain.py", "train"),
        ("python train.pyc", "python"),
        ("[ -f x ]", "f"),
        ("((", "job"),
        ("python ---.py", "job"),
        ("x" * 100_000, "x" * 60),
    ],
)
def test_default_names(command, name):
    assert default_name(command) == name
    assert only(command).name == name


def test_names_are_made_unique_around_those_that_are_stated():
    jobs = jobs_of("python a.py\npython a.py\n[name=a-2] x\n[name=b] x\npython b.py\npython a.py")
    assert [job.name for job in jobs] == ["a", "a-3", "a-2", "b", "b-2", "a-4"]


def test_many_equal_commands_are_named_in_linear_time():
    stated = "".join(f"[name=a-{number}] x\n" for number in range(2, 1000))
    names = [job.name for job in jobs_of(stated + "python a.py\n" * 1000)]
    assert len(set(names)) == len(names)
    assert names[-1] == "a-1998"


# ---- what is refused ----------------------------------------------------------------------------

BAD_LINES = [
    ("", ": no jobs in it; write one shell command a line."),
    ("# none\n\n", ": no jobs in it; write one shell command a line."),
    ("[vram=1G cancel] x", ": no jobs in it; write one shell command a line."),
    (
        "\n\n\n\n\n\n[name=x colour=red] python a.py",
        f':7: unknown key "colour" in [name=x colour=red]; known keys: {KNOWN}.',
    ),
    (
        "[name=x gpu-memory=1G] x",
        f':1: unknown key "gpu-memory" in [name=x gpu-memory=1G]; known keys: {KNOWN}.',
    ),
    (
        "[name=x folder=/y] x",
        f':1: unknown key "folder" in [name=x folder=/y]; known keys: {KNOWN}.',
    ),
    (
        "[memory=lots] x",
        ':1: memory: "lots" is not a size; write a number with K, M, G or T, as in 700M or 2G.',
    ),
    ("[memory=2\u212a] x", ':1: memory: "2\u212a" is not written in ASCII letters and digits.'),
    ("[cores=\u0663] x", ':1: cores: "\u0663" is not written in ASCII letters and digits.'),
    (
        "[memory=2000] x",
        ':1: memory: "2000" would be 2000 bytes; write a unit, as in 700M or 2G.',
    ),
    ("[cores=0] x", ':1: cores: "0" is not a whole number from 1 to 100000.'),
    ("[gpus=-1] x", ':1: gpus: "-1" is not a whole number from 0 to 100000.'),
    ("[priority=high] x", ':1: priority: "high" is not a whole number from -100000 to 100000.'),
    ("[priority=100001] x", ':1: priority: "100001" is not a whole number from -100000 to 100000.'),
    ("[retries=101] x", ':1: retries: "101" is not a whole number from 0 to 100.'),
    ("[threads=1.5] x", ':1: threads: "1.5" is not a whole number from 1 to 100000.'),
    ("[cores=4 threads=2] x", ":1: cores=4 is more than threads=2."),
    (
        "[timeout=soon] x",
        ':1: timeout: "soon" is not a duration; write seconds or use s, m, h, d, as in 1h30m.',
    ),
    ("[mode=solo] x", ':1: mode: "solo" is not a mode of a job; allowed: alone shared.'),
    ("[env=1X=2] x", ':1: env: "1X" is not the name of a variable; write env=NAME=VALUE.'),
    ("[env=A] x", ":1: env: A has no value; write env=A=VALUE."),
    ("[env=A=1 env=A=2] x", ":1: A is given twice in [env=A=1 env=A=2]."),
    ("[name=a name=b] x", ":1: name is given twice in [name=a name=b]."),
    ("[vram=1G gpu_memory=1G] x", ":1: vram and gpu_memory are the same; give one of them."),
    ("[name=] x", ":1: name in [name=] has no value; write name=..."),
    ("[name=x memory] x", ":1: memory in [name=x memory] has no value; write memory=..."),
    ("[name=a,memory=1G] x", ':1: ",memory=" in [name=a,memory=1G]: keys are separated by blanks.'),
    ("[name=x", ":1: the prefix has no end; write [key=value ...] command."),
    ("[name=x ?] a", ':1: the prefix goes wrong at "?] a"; write [key=value ...] command.'),
    ("[name=x] ", ":1: no command after [name=x]."),
    ('[name="x] a', ":1: name= has a quote in the prefix that is not closed."),
    ("[name=[1]] a", ':1: the prefix ends at its first "]"; quote a value that holds one.'),
    ("[name=-x] a", ':1: name: "-x" begins with "-" and would be taken for an option.'),
    ('[name="  "] a', ':1: name: "  " is blank, or begins or ends with a blank.'),
    ("[name=\x1b[31mx] a", ':1: name: "x" holds a control or invisible character.'),
    ("[name=a\u202eb] a", ':1: name: "a\\u202eb" holds a control or invisible character.'),
    ("[name=a\u200bb] a", ':1: name: "a\\u200bb" holds a control or invisible character.'),
    (
        f"[name={'n' * 201}] a",
        f':1: name: "{"n" * 59}…" has 201 characters; at most 200 are allowed.',
    ),
    ("[name=a] x\n\n[name=a] y", ':3: the name "a" is taken by line 1; give each job its own.'),
    (
        "python train.py\n[after=trian] y",
        ':2: after: there is no job "trian" in this list; near: "train".',
    ),
    ("[after=zzz] y", ':1: after: there is no job "zzz" in this list.'),
    ("[name=a after=a] x", ':1: after: "a" is the job itself.'),
    (
        "[name=d] x\n[name=t after=a] x\n[name=a after=b,d] x\n[name=b after=a] y",
        ':3: after goes round in a circle: "a" after "b", "b" after "a"; take one of them out.',
    ),
    (
        "[name=a group=g] x\n[name=b group=g after=a] y",
        ':2: after: "a" is in the same group "g", and a group starts together; '
        "take it out of one of the two.",
    ),
    (
        "[name=a group=g after=c] x\n[name=b group=g] y\n[name=c after=b] z",
        ':1: after goes round in a circle: "a" after "c", "c" after "b" '
        "(members of a group start together); take one of them out.",
    ),
    (
        "[name=a group=g mode=alone] x\n[name=b group=g] y",
        ':2: mode: "b" is shared, but "a" of its group "g" is alone; give all of a group one mode.',
    ),
    ("a\nb\0c", ":2: holds a NUL byte; a job file is text."),
    (
        "python a.py".encode("utf-16"),
        ":1: holds a NUL byte; a job file is text. It may be UTF-16; save it as UTF-8.",
    ),
    (b"a\nb \xff c", ":2: byte 0xff at column 3 is not UTF-8; save the file as UTF-8."),
    (
        "b\na \\\n  b \\",
        ":2: ends with a backslash, but no line follows to be joined to it.",
    ),
    (
        "echo " + "x" * MAX_ARGUMENT_BYTES,
        ":1: command: 131,076 bytes long, but Linux takes at most 131,071 in one argument; "
        "put it into a script.",
    ),
    ("x" * (MIB + 1), ":1: 1,048,577 characters long; at most 1,048,576 are allowed."),
    (
        f"[env=A={'x' * MAX_ARGUMENT_BYTES}] x",
        ":1: env: A is longer than the 131,071 bytes that Linux takes.",
    ),
    ("[hf_token=abc] x", f':1: unknown key "hf_token" in [hf_token=***]; known keys: {KNOWN}.'),
]


@pytest.mark.parametrize(("text", "message"), BAD_LINES)
def test_bad_lists(text, message):
    assert refusal(text) == "jobs.txt" + message


BAD_TABLES = [
    ("", ": no jobs in it; write a [[job]] table for each job."),
    ("[defaults]\ncores = 1", ": no jobs in it; write a [[job]] table for each job."),
    (
        "python a.py",
        ":1: not readable as TOML: Expected '=' after a key in a key/value pair at column 8. "
        "A list of shell commands needs another name than .toml.",
    ),
    ("a = " + "[" * 20_000, ": not readable as TOML: nested too deep."),
    ("b = 1\na = 1", ': unknown table "a"; known: [defaults] and one [[job]] for each job.'),
    ("[job]\ncommand = 'x'", ": job is not a list of tables; write [[job]] with two brackets."),
    ("job = [1]", ": job is not a list of tables; write [[job]] with two brackets."),
    ("[[job]]\n[[jobs]]", ": has both [[job]] and [[jobs]]; use one of them."),
    ("defaults = 1", ": [defaults]: is not a table; write [defaults] on a line of its own."),
    (
        "[defaults]\nname = 'a'",
        ": [defaults]: name cannot be a default, since each job has its own.",
    ),
    (
        "[defaults]\ncolour = 1",
        f': [defaults]: unknown key "colour"; known keys: {KNOWN_IN_TABLES}.',
    ),
    (
        "[defaults]\nmode = 1",
        ': [defaults]: mode: "1" is not a mode of a job; allowed: alone shared.',
    ),
    ("[[job]]\nname = 'x'", ':1: job 1 "x": has no command; write command = "python train.py".'),
    (
        "[[job]]\ncommand = 'x'\n[[job]]\ncommand = 'x'\ncolour = 'red'",
        f':3: job 2: unknown key "colour"; known keys: {KNOWN_IN_TABLES}.',
    ),
    ("[[job]]\ncommand = 3", ":1: job 1: command: 3 is not a text; put it in quotes."),
    ("[[job]]\ncommand = ' '", ":1: job 1: command: is empty; write a shell command."),
    (
        '[[job]]\ncommand = "x\\u0000"',
        ":1: job 1: command: holds a NUL character, which no command can be given.",
    ),
    ("[[job]]\ncommand = 'x'\nname = 3", ":1: job 1: name: 3 is not a text; put it in quotes."),
    (
        "[[job]]\nname = 'mlp'\ncommand = 'x'\nmemory = true",
        ':1: job 1 "mlp": memory: "True" is not a size; write a number with K, M, G or T, '
        "as in 700M or 2G.",
    ),
    (
        "[[job]]\ncommand = 'x'\ncores = 'two'",
        ':1: job 1: cores: "two" is not a whole number from 1 to 100000.',
    ),
    (
        "[[job]]\ncommand = 'x'\ntimeout = nan",
        ':1: job 1: timeout: "nan" is not a duration; write seconds or use s, m, h, d, '
        "as in 1h30m.",
    ),
    (
        "[[job]]\ncommand = 'x'\nenv = ['A=1']",
        ':1: job 1: env is not a table; write env = { NAME = "value" }.',
    ),
    (
        "[[job]]\ncommand = 'x'\nenv = { A = 1.5 }",
        ":1: job 1: env: A is not a text; put its value in quotes.",
    ),
    ("[[job]]\ncommand = 'x'\nafter = [1]", ":1: job 1: after: 1 is not a text; put it in quotes."),
    (
        "[[job]]\nname = 'a'\ncommand = 'x'\n[[job]]\nname = 'a'\ncommand = 'y'",
        ':4: job 2 "a": the name "a" is taken by job 1 "a"; give each job its own.',
    ),
    (
        b"[[job]]\ncommand = 'x' \xff",
        ":2: byte 0xff at column 15 is not UTF-8; save the file as UTF-8.",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD_TABLES)
def test_bad_tables(text, message):
    assert refusal(text, "jobs.toml") == "jobs.toml" + message


def test_a_long_circle_is_named_in_part():
    text = "\n".join(f"[name=j{i} after=j{(i + 1) % 500}] x" for i in range(500))
    assert refusal(text).startswith('jobs.txt:1: after goes round in a circle: "j0" after "j1", ')
    assert " and 494 more; " in refusal(text)


def test_the_name_of_the_file_in_an_error_is_harmless():
    assert refusal("", "a\x1b[2Jb\n.txt").startswith("ab\\n.txt: no jobs")


# ---- limits and reading -------------------------------------------------------------------------


@pytest.mark.slow
def test_too_many_jobs():
    text = "\n" + "true\n" * (MAX_JOBS + 1)
    assert refusal(text) == "jobs.txt:100002: more than 100,000 jobs; split the list."


def test_the_most_jobs_and_one_more(monkeypatch):
    monkeypatch.setattr(jobfile, "MAX_JOBS", 3)
    assert len(jobs_of("true\n" * 3)) == 3
    assert refusal("true\n" * 4) == "jobs.txt:4: more than 3 jobs; split the list."
    table = "[[job]]\ncommand = 'x'\n"
    assert len(jobs_of(table * 3, "j.toml")) == 3
    assert refusal(table * 4, "j.toml") == "j.toml: more than 3 jobs (4); split the list."


@pytest.mark.slow
def test_too_large(tmp_path):
    path = tmp_path / "jobs.txt"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(BadJobFile, match=r"jobs\.txt: is larger than 64 MB; split the list\."):
        read(path)


def test_read_takes_the_current_folder(tmp_path, monkeypatch):
    path = tmp_path / "jobs.txt"
    path.write_text("true\n")
    monkeypatch.chdir("/")
    assert read(path) == Jobs(
        source=str(path), jobs=(Job(name="true", command="true", folder="/", line=1),)
    )
    assert read(path, folder="/x").jobs[0].folder == "/x"


def test_read_takes_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("python a.py\n",))
    writer.start()
    assert [job.name for job in read(path).jobs] == ["a"]
    writer.join()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "jobs: cannot be read (No such file or directory)."),
        (Path.mkdir, "jobs: is a folder; name a job file in it."),
        (
            lambda path: path.write_bytes(b"\x7fELF\x02\0"),
            "jobs:1: holds a NUL byte; a job file is",
        ),
    ],
)
def test_what_cannot_be_read(tmp_path, make, message):
    make(tmp_path / "jobs")
    with pytest.raises(BadJobFile, match=re.escape(message)):
        read(tmp_path / "jobs")


# ---- the page for users -------------------------------------------------------------------------


def blocks() -> list[tuple[str, str]]:
    return re.findall(r"^```(jobs|toml|csv)\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)


def test_the_page_has_all_formats():
    kinds = [kind for kind, _ in blocks()]
    assert kinds.count("jobs") >= 3
    assert kinds.count("toml") >= 1
    assert kinds.count("csv") >= 1


@pytest.mark.parametrize(("kind", "text"), blocks())
def test_the_examples_of_the_page_are_read(kind, text):
    jobs = jobs_of(text, "jobs.txt" if kind == "jobs" else f"jobs.{kind}")
    assert len(jobs) > 1


def test_the_page_names_every_key_and_limit():
    page = DOCS.read_text()
    for key in (*KEYS, "vram", "command", "folder", "grid"):
        assert f"| `{key}` |" in page
    for limit in (f"{MAX_BYTES >> 20} MB", f"{MAX_JOBS:,}", f"{MAX_ARGUMENT_BYTES:,} bytes"):
        assert limit in page


def test_the_errors_on_the_page_are_real():
    page = DOCS.read_text()
    errors = re.findall(r"^jobs\.(?:txt|toml):.* Nothing was started\.$", page, re.MULTILINE)
    real = {"jobs.txt" + message + " Nothing was started." for _, message in BAD_LINES}
    assert errors
    assert set(errors) <= real
