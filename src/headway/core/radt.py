r"""The CSV of radT as a job file: a run a row, those of one (Experiment, Workload) start together.

Status and Run are radT's own notes of what has ended. They are read and never written: the file
stays the user's.

    Experiment,Workload,Status,Run,Devices,Collocation,File,Listeners,Params
    33,2,,,2,3g.20gb,timm/train.py,smi+top,--model resnet26 --batch-size 128
"""

import csv
import os
import re
import shlex
from collections.abc import Iterable, Iterator

from headway.core.errors import BadJobFile
from headway.core.job import MIG_PROFILE
from headway.core.jobfields import Draft, show

COLUMNS = (
    "Experiment", "Workload", "Status", "Run", "Devices", "Collocation", "File", "Listeners",
    "Params",
)  # fmt: skip

_DEVICES = re.compile(r"\d{1,4}(?:\s*\+\s*\d{1,4})*")
_UNSHARED = ("", "-", "nan")  # radT itself writes back an empty value as nan
# What radT writes begins with the status of the MLflow run: "FINISHED shy-owl-12 (0_A)".
_DONE = "FINISHED"


def is_header(line: str) -> bool:
    """Whether a file that begins with this line is a CSV of radT.

    >>> is_header("Experiment, Workload, Status"), is_header("Experiment --workload 3")
    (True, False)
    """
    return [name.strip() for name in line.split(",")[:2]] == list(COLUMNS[:2])


def read_rows(
    lines: Iterable[str], *, source: str, folder: str, most: int
) -> tuple[list[Draft], tuple[str, ...]]:
    """The rows of a CSV as drafts, in its order, and notes on what was left out.

    A workload is done when radT noted FINISHED in each of its rows; one that is done in part starts
    again whole, since its rows were to be measured beside each other.

    Args:
        lines: Every line of the file, without its line break.
        source: The file's name, for errors.
        folder: Where File paths begin, absolute.
        most: How many rows are allowed.

    Raises:
        BadJobFile: A column, a value or the quoting is not as docs/job-files.md says; or nothing is
            left to run.
    """
    drafts: list[Draft] = []
    unfinished: set[str] = set()
    rows = _rows(lines, source)
    columns = _columns(next(rows, (Draft(source, 1), [])))
    for draft, values in rows:
        if len(drafts) == most:
            raise draft.bad(f"more than {most:,} rows; split the list.")
        if len(values) != len(columns):
            raise draft.bad(
                f"has {len(values)} values for {len(columns)} columns; put a value that holds a "
                "comma in double quotes."
            )
        row = dict(zip(columns, values, strict=True))
        _fill(draft, row, folder)
        drafts.append(draft)
        if not row["Status"].startswith(_DONE):
            unfinished.add(draft.base)
    left = [draft for draft in drafts if draft.base in unfinished]
    done = len(drafts) - len(left)
    if done and not left:
        message = f"all of its {done} rows are {_DONE}; empty their Status to run them again."
        raise BadJobFile(source, None, message)
    return left, (f"{done} rows are {_DONE} and were left out",) if done else ()


def _rows(lines: Iterable[str], source: str) -> Iterator[tuple[Draft, list[str]]]:
    """Each row that is not blank, as the draft of its first line and its values."""
    ended = (line + "\n" for line in lines)  # a quote may be closed in a line further down
    reader = csv.reader(ended, skipinitialspace=True, strict=True)
    while True:
        draft = Draft(source, reader.line_num + 1)
        try:
            values = [value.strip() for value in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            wrong = show(str(error))
            raise draft.bad(f"not readable as CSV: {wrong}; look at the row's quotes.") from None
        if any(values):
            yield draft, values


def _columns(header: tuple[Draft, list[str]]) -> list[str]:
    draft, names = header
    known = " ".join(COLUMNS)
    if not set(COLUMNS[:2]) <= set(names):
        raise draft.bad(
            f"does not begin with the columns of radT, {known}; a list of shell commands needs "
            "another name than .csv."
        )
    if unknown := [name for name in names if name not in COLUMNS]:
        raise draft.bad(f'unknown column "{show(unknown[0])}"; known columns: {known}.')
    if missing := [name for name in COLUMNS if name not in names]:
        raise draft.bad(f"has no column {missing[0]}; needed: {known}.")
    if len(names) > len(COLUMNS):
        twice = next(name for name in names if names.count(name) > 1)
        raise draft.bad(f"has the column {twice} twice; leave one of them away.")
    return names


def _fill(draft: Draft, row: dict[str, str], folder: str) -> None:
    """Turn a row into the fields of its draft."""
    for column, value in row.items():
        if "\n" in value or "\r" in value:
            raise draft.bad(f"{column} holds a line break; write it on one line.")
    for column in ("Experiment", "Workload", "File"):
        if not row[column]:
            raise draft.bad(f"{column} is empty; every row needs one.")
    draft.base = f"{row['Experiment']}/{row['Workload']}"
    inside, script = os.path.split(row["File"])
    if not script or script.startswith("-"):
        raise draft.bad(f'File: "{show(row["File"])}" is not the path of a script.')
    devices = _devices(draft, row["Devices"])
    # radT starts a script in its own folder.
    draft.fill(
        {
            "command": _command(draft, script, row["Params"]),
            "folder": os.path.normpath(os.path.join(folder, os.path.expanduser(inside))),
            "group": draft.base,
            "gpus": str(len(devices)),
        }
    )
    draft.fields["devices"] = devices
    draft.fields["collocation"] = _collocation(draft, row["Collocation"])


def _command(draft: Draft, script: str, params: str) -> str:
    """The shell command of a row; Params are words of a shell already."""
    try:
        shlex.split(params)
    except ValueError as error:
        raise draft.bad(f"Params: {show(params)} goes wrong in a shell ({error}).") from None
    return f"python {shlex.quote(script)} {params}".rstrip()


def _devices(draft: Draft, given: str) -> tuple[int, ...]:
    if not _DEVICES.fullmatch(given):
        raise draft.bad(f'Devices: "{show(given)}" is not an index, or several as in 0+1.')
    indexes = tuple(int(index) for index in given.split("+"))
    if len(set(indexes)) < len(indexes):
        raise draft.bad(f'Devices: "{show(given)}" names a device twice.')
    return indexes


def _collocation(draft: Draft, given: str) -> str:
    way = given.lower()
    if way in _UNSHARED:
        return ""
    if way != "mps" and not MIG_PROFILE.fullmatch(way):
        raise draft.bad(
            f'Collocation: "{show(given)}" is no way of sharing; allowed: - for none, MPS, or a '
            "MIG profile such as 3g.20gb."
        )
    return way
