"""Grids: every combination a job, every value one word, every mistake a sentence."""

import re
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.core import jobfile, joborder
from headway.core.errors import BadJobFile
from headway.core.job import Job
from headway.core.jobgrid import Template


def jobs_of(text: str) -> tuple[Job, ...]:
    return jobfile.parse(text.encode(), source="jobs.toml", folder="/here").jobs


def refusal(text: str) -> str:
    with pytest.raises(BadJobFile) as caught:
        jobs_of(text)
    return str(caught.value).removesuffix(" Nothing was started.")


def job(grid: str, command: str = "python t.py {a}", **more: str) -> str:
    lines = [f"{key} = {value}" for key, value in more.items()]
    return "\n".join(["[[job]]", f"command = '''{command}'''", f"grid = {grid}", *lines, ""])


# ---- combinations and names ---------------------------------------------------------------------


def test_every_combination_in_the_order_of_the_file_the_last_key_fastest():
    jobs = jobs_of(
        job("{ lr = [0.1, 0.01], width = [64, 128] }", "python train.py --lr {lr} --width {width}")
    )
    assert [(job.name, job.command) for job in jobs] == [
        ("train-lr0.1-width64", "python train.py --lr 0.1 --width 64"),
        ("train-lr0.1-width128", "python train.py --lr 0.1 --width 128"),
        ("train-lr0.01-width64", "python train.py --lr 0.01 --width 64"),
        ("train-lr0.01-width128", "python train.py --lr 0.01 --width 128"),
    ]
    assert {job.line for job in jobs} == {1}


def test_a_grid_may_be_a_table_of_its_own():
    (one, two) = jobs_of('[[job]]\ncommand = "x {a}"\n[job.grid]\na = [1, 2]\n')
    assert (one.command, two.command) == ("x 1", "x 2")


def test_jobs_without_a_grid_keep_their_braces():
    command = "awk '{print $1}' ${HOME}/{a,b} {lr}"
    assert jobs_of(f'[[job]]\ncommand = """{command}"""')[0].command == command


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ('"run"', ["run-a1-b2", "run-a1-b3"]),
        ('"{a} of {b}"', ["1 of 2", "1 of 3"]),
        ('"run-{b}"', ["run-2-a1", "run-3-a1"]),
        ('"{{{b}}}"', ["{2}-a1", "{3}-a1"]),
    ],
)
def test_a_name_may_hold_values_and_gets_those_that_it_does_not_hold(name, names):
    jobs = jobs_of(job("{ a = [1], b = [2, 3] }", "x {a} {b}", name=name))
    assert [job.name for job in jobs] == names


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ("[true, false]", ["t-atrue", "t-afalse"]),
        ("[1e-3, 3.0, -1, inf]", ["t-a0.001", "t-a3.0", "t-a-1", "t-ainf"]),
        ('["a b", "c/d.yaml", "$(x)"]', ["t-aa_b", "t-ac_d.yaml", "t-a_x_"]),
        ('["a b", "a_b", "a/b"]', ["t-aa_b", "t-aa_b-2", "t-aa_b-3"]),
        ('["", "損失", "\\u202e"]', ["t-a", "t-a損失", "t-a_u202e"]),
    ],
)
def test_names_are_readable_and_unique(values, names):
    assert [job.name for job in jobs_of(job(f"{{ a = {values} }}"))] == names


def test_long_values_make_names_that_are_not_too_long():
    values = ", ".join(f'"{letter * 300}"' for letter in "ab")
    grid = "{ " + ", ".join(f"{key} = [{values}]" for key in "vwxyz") + " }"
    names = [job.name for job in jobs_of(job(grid, "t {v} {w} {x} {y} {z}"))]
    assert len(set(names)) == 32
    assert max(map(len, names)) <= 200


def test_generated_names_make_way_for_stated_ones():
    text = job("{ a = [1] }") + '[[job]]\nname = "t-a1"\ncommand = "x"\n'
    assert [job.name for job in jobs_of(text)] == ["t-a1-2", "t-a1"]


def test_every_text_of_the_job_is_a_template():
    (one,) = jobs_of(
        '[defaults]\nenv = { LR = "{a}" }\n'
        + job(
            '{ a = ["1G"] }',
            "x",
            memory='"{a}"',
            folder='"out/{a}"',
            group='"g-{a}"',
            env='{ NOTE = "{{{a}}}" }',
            threads="2",
        )
    )
    assert (one.memory_bytes, one.folder, one.group, one.threads) == (
        2**30,
        "/here/out/1G",
        "g-1G",
        2,
    )
    assert one.env == (("LR", "1G"), ("NOTE", "{1G}"))


# ---- after and group ----------------------------------------------------------------------------


def test_after_names_single_jobs_and_whole_grids():
    jobs = jobs_of(
        job("{ a = [1, 2] }", name='"train"', after='["prep"]', group='"g"')
        + job("{ a = [1, 2] }", "eval {a}", name='"eval-{a}"', after='["train-a{a}"]')
        + '[[job]]\nname = "prep"\ncommand = "x"\n'
        + '[[job]]\nname = "report"\ncommand = "x"\nafter = ["prep", "train", "eval-1"]\n'
    )
    assert {job.name: job.after for job in jobs} == {
        "train-a1": ("prep",),
        "train-a2": ("prep",),
        "eval-1": ("train-a1",),
        "eval-2": ("train-a2",),
        "prep": (),
        "report": ("prep", "train-a1", "train-a2", "eval-1"),
    }
    assert [job.group for job in jobs[:2]] == ["g", "g"]


def test_a_grid_after_itself_or_in_a_circle_is_refused():
    own = job("{ a = [1] }", name='"train"', after='["train"]')
    assert refusal(own).endswith('after: "train-a1" is the job itself.')
    two = job("{ a = [1] }", name='"x"', after='["y"]') + job(
        "{ a = [1] }", name='"y"', after='["x"]'
    )
    assert "after goes round in a circle" in refusal(two)


def test_grids_after_grids_have_a_limit(monkeypatch):
    monkeypatch.setattr(joborder, "_MOST_WAITS", 8)
    values = "{ a = [1, 2, 3] }"
    text = job(values, name='"x"') + job(values, "y {a}", name='"y"', after='["x"]')
    assert "wait for each other's jobs more than 8 times" in refusal(text)


def test_a_grid_takes_the_name_that_its_table_states():
    text = job("{ a = [1, 2] }", name='"x"') + '[[job]]\nname = "x"\ncommand = "y"\n'
    assert refusal(text).startswith('jobs.toml:5: job 2 "x": the name "x" is taken by job 1 "x"')
    twice = job("{ a = [1], b = [11] }", "x", name='"{a}{b}"') + job(
        "{ a = [11], b = [1] }", "x", name='"{a}{b}"'
    )
    assert 'the name "111" is taken by' in refusal(twice)


# ---- a value in a command -----------------------------------------------------------------------

ODD_VALUES = [
    "a b",
    ";touch x",
    "$(touch x)",
    "`touch x`",
    "'",
    '"',
    "\\",
    "",
    "*",
    "~",
    "\n",
    "#",
    "&&",
]


@pytest.mark.parametrize("value", ODD_VALUES)
@pytest.mark.parametrize(
    "template",
    [
        "printf %s {a}",
        "A='x y' \"${{HOME}}\" ; printf %s {a}",
        "printf %s $(printf %s {a})x",
        "printf '%s' \\\n {a} # {{}}",
        "[ -n '' ] || printf \"%s\" {a}",
        "printf %s \\'{a}",
    ],
)
@pytest.mark.slow
def test_a_value_is_one_word_and_never_code(template, value, tmp_path):
    command = Template.of(template, {"a": [value]}, shell=True).filled({"a": value})
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert not (tmp_path / "x").exists()
    if "$(" not in template:
        assert done.stdout == ("'" if "\\'" in template else "") + value


@pytest.mark.parametrize(
    ("template", "where"),
    [
        ("echo '{a}'", "inside quotes"),
        ('echo "{a}"', "inside quotes"),
        ('echo "$(echo "{a}")"', "behind $("),
        ('echo "${{A:-"{a}"}}"', "behind ${"),
        ("echo `echo {a}`", "behind `"),
        ("echo $(( {a} ))", "behind (("),
        ("(( {a} ))", "behind (("),
        ("echo $[ {a} ]", "behind $["),
        ("echo $'x' {a}", "behind $'"),
        ("cat <<E\n{a}\nE", "behind <<"),
        ("true # {a}", "behind #"),
        ("true;# it's\necho {a}", "behind #"),
        ("echo \\{a}", "behind \\"),
        ('echo "\\{a}"', "behind \\"),
    ],
)
def test_where_a_value_cannot_be_quoted_only_plain_ones_may_stand(template, where):
    with pytest.raises(ValueError, match=re.escape(f"{{a}} stands {where}, where its value")):
        Template.of(template, {"a": ["1", "a b"]}, shell=True)
    plain = Template.of(template, {"a": ["0.1-x_y/z"]}, shell=True)
    assert "0.1-x_y/z" in plain.filled({"a": "0.1-x_y/z"})
    assert "'0.1" not in plain.filled({"a": "0.1-x_y/z"}).replace("echo '0.1", "")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["'", '"', "\\", "`", "$", "(", ")", "#", "<<", " ", "\n", "x", "{a}", "{a}", "${{x}}"]
        ),
        max_size=12,
    ),
    st.sampled_from(ODD_VALUES),
)
@example(['"', "$", "(", '"', "{a}", '"', ")", '"'], "$(touch x)")
def test_no_value_is_ever_code(tmp_path_factory, parts, value):
    """Whatever stands around it: a value that would run something runs nothing."""
    try:
        template = Template.of("true " + "".join(parts), {"a": [value]}, shell=True)
    except ValueError:
        return
    folder = tmp_path_factory.mktemp("grid")
    command = template.filled({"a": value})
    subprocess.run(
        ["sh", "-c", command], cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, timeout=20
    )
    # `touch x` may come from a text without quotes around it only as words of `true`.
    assert not (folder / "x").exists()


# ---- what is refused ----------------------------------------------------------------------------

REFUSED = [
    ("1", "x", "grid: 1 is not a table; write grid = { lr = [0.1, 0.01] }."),
    ("{}", "x", "grid: has no keys; write grid = { lr = [0.1, 0.01] }."),
    ("{ a = 0.1 }", "x", "grid: a: 0.1 is not a list; write a = [0.1]."),
    (
        "{ a = [] }",
        "x {a}",
        "grid: a: the list is empty, which makes no job; give it a value, or take the key out.",
    ),
    (
        "{ a = [[1]] }",
        "x {a}",
        "grid: a: [1] is not a text, a number, true or false; put it in quotes.",
    ),
    (
        "{ a = [1979-05-27] }",
        "x {a}",
        "grid: a: datetime.date(1979, 5, 27) is not a text, a number, true or false; put it in "
        "quotes.",
    ),
    ('{ a = ["1", 1] }', "x {a}", 'grid: a: "1" is there twice; take one of them out.'),
    (
        '{ a = ["\\u0000"] }',
        "x {a}",
        "grid: a: holds a NUL character, which no command can be given.",
    ),
    (
        '{ "1a" = [1] }',
        "x",
        'grid: "1a" cannot be a key; use letters, digits, _ and -, with a letter first.',
    ),
    (
        "{ width = [1], lr = [1] }",
        "x {lr} {with}",
        'command: {with} is no key of its grid, which has: width lr; near: "width"; for a brace '
        "itself write {{ or }}.",
    ),
    (
        "{ a = [1] }",
        "awk '{print $1}' {a}",
        'command: "{print $1}\' {a}" is no place for a value; for a brace itself write {{ or }}.',
    ),
    (
        "{ a = [1], b = [1] }",
        "x {a}",
        "grid: b is used nowhere; write {b} in the command, in a value of env or in the name, or "
        "take it out.",
    ),
    (
        "{ a = [1] }",
        "x ${a}",
        'command: "${a}" would be another variable of the shell; write {a} for the value of the '
        "grid, ${{a}} for the variable.",
    ),
    (
        "{ a = [1] }",
        "x $OUT{a}",
        'command: "$OUT{a}" would be another variable of the shell; write ${{OUT}}{a}.',
    ),
]


@pytest.mark.parametrize(("grid", "command", "message"), REFUSED)
def test_bad_grids(grid, command, message):
    assert refusal(job(grid, command)) == f"jobs.toml:1: job 1: {message}"


def test_a_value_that_a_key_refuses_is_named_with_its_combination():
    text = job('{ a = ["1G", "lots"], b = [1] }', "x {b}", memory='"{a}"', name='"n"')
    assert refusal(text).startswith('jobs.toml:1: job 1 "n" (a=lots b=1): memory: "lots" is not a')
    text = job('{ a = ["-x"] }', name='"{a}"')
    assert 'name: "-x" begins with "-"' in refusal(text)


def test_a_grid_is_no_default_and_no_key_of_a_line():
    text = "[defaults]\ngrid = { a = [1] }\n[[job]]\ncommand = 'x'"
    assert "[defaults]: grid cannot be a default" in refusal(text)
    with pytest.raises(BadJobFile, match='unknown key "grid"'):
        jobfile.parse(b"[grid=a] x", source="jobs.txt", folder="/")


def test_too_many_jobs_are_refused_before_any_is_made(monkeypatch):
    values = str(list(range(400)))
    text = '[[job]]\ncommand = "x"\n' + job(
        f"{{ a = {values}, b = {values} }}", "x {a} {b}", name='"n"'
    )
    monkeypatch.setattr(jobfile, "spread", None)
    assert refusal(text) == (
        'jobs.toml:3: job 2 "n": grid: a (400 values) x b (400 values) makes 160,001 jobs in all, '
        "more than 100,000; take values out, or split the list."
    )


@pytest.mark.parametrize("where", ["the command", "a value"])
def test_too_much_text_is_refused_before_any_is_made(where, monkeypatch):
    values = str(list(range(300)))
    command, text = ("y" * 10_000, "t") if where == "the command" else ("y", "t" * 10_000)
    text = job(
        f'{{ a = {values}, b = {values}, c = ["{text}"] }}', f"x {{a}} {{b}} {{c}} {command}"
    )
    monkeypatch.setattr(jobfile, "spread", None)
    assert "at most 256 MB are allowed in all" in refusal(text)
