"""Any bytes end in the right jobs or in one sentence; never in another exception."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.core.errors import BadJobFile
from headway.core.job import Job, Jobs
from headway.core.jobfile import parse

GOOD = {
    "name": ("a", "'b c'"), "memory": ("2G", "700M"), "gpu_memory": ("1.5GiB",), "vram": ("8000",),
    "cores": ("1", "2"), "gpus": ("0", "1"), "threads": ("2", "8"), "timeout": ("90", "1h30m"),
    "stall_timeout": ("5m",), "retries": ("3",), "env": ("A=1", "B='b c'"), "after": ("a", "train"),
    "group": ("g",), "mode": ("alone", "shared"), "priority": ("0", "-3", "10"),
}  # fmt: skip
ODD = (
    "2G", "1e3", "0", "-1", "1h30m", "solo", "A=b c", "a,b", '"a b"', "'x'", '"', "'", "]", "[", "",
    "\\", "\x1b[31m", "\u202e", "損", "\xff", "\u212a", "\u0663", "9" * 5000, "true", "nan", "inf",
    "[]", "{}", "1979-05-27", "\ufeff",
)  # fmt: skip
COMMANDS = (
    "python train.py --lr 0.1", "python -m tool.sub", "[ -f x ] && true", "[[ a = b ]]", "A=1 ./go",
    "echo 'a # b'", "true # end", "a \\\\", "cd x; python 'my run.py'", "echo $((1<<2)) | tee log",
)  # fmt: skip


def value_for(key: str, rng: Random) -> str:
    return rng.choice(GOOD[key] if key in GOOD and rng.random() < 0.95 else ODD)


def line_file(rng: Random) -> str:
    def line() -> str:
        keys = rng.sample(list(GOOD), rng.randrange(3))
        keys += rng.choices(("colour", "cancel", "env"), k=rng.random() < 0.05)
        entries = " ".join(f"{key}={value_for(key, rng)}" for key in keys)
        return (f"[{entries}] " if entries else "") + rng.choice(COMMANDS)

    ends = ("\n", "\n", "\n", "\r\n", "\n\n", "\n# note\n", " \\\n")
    return "".join(line() + rng.choice(ends) for _ in range(rng.randrange(1, 8)))


def toml_file(rng: Random) -> str:
    def value(key: str) -> str:
        text = value_for(key, rng).strip("'")
        if key == "env":
            return f'{{ A = "{text}" }}'
        if key == "grid":
            return f'{{ k = [1, "{text}"], l = ["{rng.choice(ODD)}"] }}'
        return rng.choice((text, f'["{text}"]')) if rng.random() < 0.05 else f'"{text}"'

    def table() -> str:
        keys = rng.sample(list(GOOD), rng.randrange(3))
        keys += rng.choices(("colour", "folder"), k=rng.random() < 0.05)
        keys += rng.choices(("grid",), k=rng.random() < 0.3)
        lines = [f"{key} = {value(key)}" for key in keys]
        command = rng.choice(COMMANDS)
        command += rng.choice((" {k} {l}", " {k}{{}} '{l}'", " {l}")) if "grid" in keys else ""
        return "\n".join([f'command = """{command}"""'.replace("\\\\", ""), *lines, ""])

    defaults = f"[defaults]\nmemory = {value('memory')}\n" if rng.random() < 0.3 else ""
    return defaults + "".join(f"[[job]]\n{table()}\n" for _ in range(rng.randrange(1, 6)))


def mutated(text: str, rng: Random) -> bytes:
    """The file after up to four accidents: bytes flipped, cut out, doubled or put in."""
    data = bytearray(text.encode(errors="surrogatepass"))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        accident = rng.randrange(4)
        if accident == 0:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif accident == 1:
            del data[at : at + rng.randrange(1, 20)]
        elif accident == 2:
            data[at:at] = data[at : at + rng.randrange(1, 40)]
        else:
            data[at:at] = rng.choice((b"[", b"]", b'"', b"'", b"\\", b"\n", b"\0", b"\xff", b"="))
    return bytes(data)


def holds(text: bytes, source: str) -> bool:
    """Check the law on one file; whether it was read."""
    try:
        jobs = parse(text, source=source, folder="/here")
    except BadJobFile as error:
        sentence = str(error)
        assert sentence.startswith(source)
        assert sentence.endswith(" Nothing was started.")
        assert sentence.isprintable(), sentence
        assert len(sentence) < 1000
        return False
    assert Jobs.from_json(jobs.to_json(), source="jobs.json") == jobs
    names = [job.name for job in jobs.jobs]
    assert names
    assert len(set(names)) == len(names)
    written = text.replace(b"\r\n", b"\n").decode()
    for job in jobs.jobs:
        assert set(job.after) < set(names)
        assert job.name.isprintable()
        if not source.endswith(".toml"):
            from_its_line_on = written.split("\n", job.line - 1)[-1]
            assert job.command.rstrip("\r") in from_its_line_on
    return True


@pytest.mark.slow
def test_500_damaged_files():
    rng = Random(2)
    read = 0
    for number in range(500):
        if number % 2:
            read += holds(mutated(line_file(rng), rng), "jobs.txt")
        else:
            read += holds(mutated(toml_file(rng), rng), "jobs.toml")
    assert 50 < read < 450, "the generator should make good files and bad ones"


@pytest.mark.slow
@given(st.binary() | st.text().map(lambda text: text.encode(errors="replace")))
@example(b"[name=x")
@example(b"[env==1] x")
@example(b'[name="\\')
@example("[memory=2\u212a] x".encode())
@example(b"a \\\n")
@example(b"[[job]]")
@example(b"\xef\xbb\xbf")
def test_any_bytes(data):
    holds(data, "jobs.txt")
    holds(data, "jobs.toml")


_LINES = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), min_size=1)


def _is_a_plain_command(line: str) -> bool:
    return bool(line.strip()) and line.lstrip(" \t")[0] not in "#[\ufeff" and line[-1] != "\\"


@pytest.mark.slow
@given(st.lists(_LINES.filter(_is_a_plain_command), min_size=1))
def test_plain_commands_come_back_byte_for_byte(commands):
    jobs = parse("\n".join(commands).encode(), source="-", folder="/here").jobs
    assert [job.command for job in jobs] == commands
    assert [job.line for job in jobs] == list(range(1, len(commands) + 1))


_WORDS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)


@st.composite
def stated_jobs(draw):
    """Jobs as a user could state them, each with a name of its own."""
    names = draw(st.lists(_WORDS, min_size=1, max_size=6, unique=True))
    count = st.none() | st.integers(1, 64)
    return tuple(
        Job(
            name=name,
            command=draw(_LINES.filter(_is_a_plain_command)).lstrip(),
            folder="/here",
            memory_bytes=draw(st.none() | st.integers(2**20, 2**49)),
            gpus=draw(count),
            threads=draw(count),
            priority=draw(st.integers(-100_000, 100_000)),
            timeout_s=draw(st.none() | st.integers(1, 10**6).map(float)),
            env=draw(st.dictionaries(st.sampled_from("ABC"), _WORDS, max_size=3).map(as_pairs)),
            after=tuple(draw(st.sets(st.sampled_from(names[:index])))) if index else (),
            line=index + 1,
        )
        for index, name in enumerate(names)
    )


def as_pairs(table: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(table.items())


def as_line(job: Job) -> str:
    entries = [f"name='{job.name}'"]
    values = {"memory": job.memory_bytes, "gpus": job.gpus, "threads": job.threads}
    values["priority"] = job.priority
    entries += [f"{key}={value}" for key, value in values.items() if value is not None]
    entries += [f"timeout={job.timeout_s:.0f}s"] if job.timeout_s else []
    entries += [f'env={name}="{value}"' for name, value in job.env]
    entries += [f"after={','.join(job.after)}"] if job.after else []
    return f"[{' '.join(entries)}] {job.command}"


@pytest.mark.slow
@settings(max_examples=60)
@given(stated_jobs())
def test_jobs_written_as_lines_are_read_back(jobs):
    text = "\n".join(map(as_line, jobs))
    assert parse(text.encode(), source="-", folder="/here") == Jobs(source="-", jobs=jobs)
