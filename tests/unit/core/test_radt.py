import shlex

import pytest

from headway.core.errors import BadJobFile
from headway.core.job import Job
from headway.core.jobfile import MAX_JOBS, parse

HEADER = "Experiment,Workload,Status,Run,Devices,Collocation,File,Listeners,Params"


def read(*rows, header=HEADER, source="sweep.csv"):
    text = "\n".join((header, *rows)) + "\n"
    return parse(text.encode(), source=source, folder="/here")


def refusal(*rows, header=HEADER, source="sweep.csv"):
    with pytest.raises(BadJobFile) as caught:
        read(*rows, header=header, source=source)
    message = str(caught.value)
    assert message.startswith(source)
    assert message.endswith(" Nothing was started.")
    return message.removeprefix(source + ":").removesuffix(" Nothing was started.").strip()


def row(*, number="1,1", status="", devices="0", way="-", file="train.py", params="--lr 0.1"):
    return f"{number},{status},,{devices},{way},{file},smi+top,{params}"


def test_a_row_is_a_job():
    jobs = read("33,2,,,2,3g.20gb,timm/train.py,smi+top+dcgmi,--model resnet26 --epochs 5").jobs
    assert jobs == (
        Job(
            name="33/2",
            command="python train.py --model resnet26 --epochs 5",
            folder="/here/timm",
            group="33/2",
            gpus=1,
            devices=(2,),
            collocation="3g.20gb",
            line=2,
        ),
    )


def test_rows_of_one_workload_start_together_under_names_of_their_own():
    jobs = read(row(number="1,2"), row(number="1,2"), row(number="2,2"), row(number="1,2")).jobs
    assert [(job.name, job.group, job.line) for job in jobs] == [
        ("1/2", "1/2", 2),
        ("1/2-2", "1/2", 3),
        ("2/2", "2/2", 4),
        ("1/2-3", "1/2", 5),
    ]


def test_a_workload_called_like_the_second_row_of_another():
    jobs = read(row(number="1,2"), row(number="1,2-2"), row(number="1,2")).jobs
    assert [job.name for job in jobs] == ["1/2", "1/2-2", "1/2-3"]


def test_the_first_columns_tell_the_format():
    assert read(row(), source="-").jobs == read(row(), source="-.csv").jobs
    assert parse(b"Experiment --workload 1\n", source="-", folder="/").jobs[0].group is None


def test_columns_in_another_order_with_blanks_and_blank_lines():
    # So do the examples of radT look: values in columns, padded.
    header = "Experiment,Workload,Status,   Run, Devices,Collocation,    File, Params,Listeners"
    jobs = read("", "   1,  2,  ,   ,   0+1,  MPS, train.py,  --lr 1  ,smi+top", header=header).jobs
    assert (jobs[0].name, jobs[0].devices, jobs[0].gpus) == ("1/2", (0, 1), 2)
    assert (jobs[0].collocation, jobs[0].command) == ("mps", "python train.py --lr 1")
    assert jobs[0].line == 3


@pytest.mark.parametrize(
    ("given", "read_as"),
    [
        ("-", ""),
        ("", ""),
        ("nan", ""),  # what radT makes of an empty one when it writes the file back
        ("mps", "mps"),
        ("MPS", "mps"),
        ("7g.40gb", "7g.40gb"),
        ("1G.5GB+ME", "1g.5gb+me"),
    ],
)
def test_ways_of_sharing(given, read_as):
    assert read(row(way=given)).jobs[0].collocation == read_as


@pytest.mark.parametrize("given", ["MIG", "3g", "g", "0g.5gb", "3g.20gb;x", "mps+"])
def test_an_unknown_way_of_sharing_is_refused(given):
    assert refusal(row(way=given)) == (
        f'2: Collocation: "{given}" is no way of sharing; allowed: - for none, MPS, or a MIG '
        "profile such as 3g.20gb."
    )


# ---- the command --------------------------------------------------------------------------------


def words(**values):
    return shlex.split(read(row(**values)).jobs[0].command)


def test_a_path_is_one_word_whatever_is_in_it():
    assert words(file="my code/it's; rm.py") == ["python", "it's; rm.py", "--lr", "0.1"]
    job = read(row(file="../my code/run.py")).jobs[0]
    assert (job.folder, job.command) == ("/my code", "python run.py --lr 0.1")
    assert read(row(file="/abs/run.py")).jobs[0].folder == "/abs"


def test_params_are_words_of_a_shell_as_in_radt():
    job = read(row(params="--data $HOME/data --note 'a b'")).jobs[0]
    assert job.command == "python train.py --data $HOME/data --note 'a b'"


def test_a_value_with_commas_and_quotes_is_quoted_as_csv_wants():
    assert words(params='"--betas 0.9,0.99 --note ""a, b"""') == [
        "python", "train.py", "--betas", "0.9,0.99", "--note", "a, b",
    ]  # fmt: skip


def test_no_params_leave_no_blank():
    assert read(row(params="")).jobs[0].command == "python train.py"


# ---- what radT noted ----------------------------------------------------------------------------


def test_finished_workloads_are_left_out_and_counted():
    jobs = read(
        row(number="1,1", status="FINISHED shy-owl-12 (0_A)"),
        row(number="1,1", status="FINISHED old-cat-7 (0_B)"),
        row(number="1,2", status="FAILED red-fox-1 (0)"),
        row(number="1,3"),
    )
    assert [job.name for job in jobs.jobs] == ["1/2", "1/3"]
    assert jobs.notes == ("2 rows are FINISHED and were left out",)


def test_a_workload_that_is_finished_in_part_starts_again_whole():
    jobs = read(row(status="FINISHED shy-owl-12 (0_A)"), row(status="RUNNING"))
    assert [job.name for job in jobs.jobs] == ["1/1", "1/1-2"]
    assert jobs.notes == ()


def test_a_sweep_with_nothing_left_says_so():
    assert refusal(row(status="FINISHED a (0)"), row(status="FINISHED b (0)")) == (
        "all of its 2 rows are FINISHED; empty their Status to run them again."
    )


# ---- what is wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"devices": ""}, '2: Devices: "" is not an index, or several as in 0+1.'),
        ({"devices": "0;1"}, '2: Devices: "0;1" is not an index, or several as in 0+1.'),
        ({"devices": "1+01"}, '2: Devices: "1+01" names a device twice.'),
        ({"number": "1,"}, "2: Workload is empty; every row needs one."),
        ({"file": ""}, "2: File is empty; every row needs one."),
        ({"file": "timm/"}, '2: File: "timm/" is not the path of a script.'),
        ({"file": "-c.py"}, '2: File: "-c.py" is not the path of a script.'),
        ({"params": "--a 'b"}, "2: Params: --a 'b goes wrong in a shell (No closing quotation)."),
        ({"params": '"a\nb"'}, "2: Params holds a line break; write it on one line."),
        (
            {"params": "--betas 0.9,0.99"},
            "2: has 10 values for 9 columns; put a value that holds a comma in double quotes.",
        ),
        ({"number": "1,\x07"}, '2: group: "1/\\x07" holds a control or invisible character.'),
        (
            {"params": '"a'},
            "2: not readable as CSV: unexpected end of data; look at the row's quotes.",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_line_and_column(values, message):
    assert refusal(row(**values)) == message


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER.replace("Devices", "GPUs"), '1: unknown column "GPUs"; known columns: Experiment '),
        (HEADER.replace(",Params", ""), "1: has no column Params; needed: Experiment Workload "),
        (HEADER + ",File", "1: has the column File twice; leave one of them away."),
        ("python a.py", "1: does not begin with the columns of radT, Experiment Workload "),
        ("", "1: does not begin with the columns of radT, "),
    ],
)
def test_a_wrong_header_is_refused(header, message):
    assert refusal(header=header).startswith(message)


def test_a_header_alone_has_no_jobs():
    assert refusal() == "no jobs in it; write a row for each run below the names of the columns."


def test_a_byte_that_is_not_utf_8_is_named_with_its_line():
    text = f"{HEADER}\n{row()}\n".encode() + b"1,1,,,0,-,\xff.py,,"
    with pytest.raises(BadJobFile, match=r"sweep.csv:3: byte 0xff at column 11 is not UTF-8"):
        parse(text, source="sweep.csv", folder="/here")


@pytest.mark.slow
def test_too_many_rows():
    rows = [row(status="FINISHED")] * (MAX_JOBS + 1)
    assert refusal(*rows) == f"{MAX_JOBS + 2}: more than 100,000 rows; split the list."
