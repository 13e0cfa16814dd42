r"""Job files: a shell command a line, TOML with defaults, or a CSV of radT.

One bad word and nothing starts. All formats end in the same drafts, and the drafts in `Jobs`: names
made unique, `after` and groups checked. Every refusal is a `BadJobFile` that gives the line, the
field, what was given and what is allowed. Nothing here touches a disk but `read`.

    [name=big memory=2G] python train.py --width 512
    python train.py --width 64
"""

import io
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.core import radt
from headway.core.errors import BadJobFile
from headway.core.job import Jobs
from headway.core.jobfields import KEYS, TABLE_KEYS, Draft, show
from headway.core.jobgrid import combinations, grid_name, shape, spread
from headway.core.joborder import check_after, default_name, give_names, name_grids_jobs
from headway.core.text import plain
from headway.core.units import MIB

MAX_BYTES = 64 * MIB
MAX_JOBS = 100_000
_MAX_LINE = MIB  # characters; far above what a command may have, and a bound for the patterns below
# A shell test (`[ -f x ] && ...`, `[[ ... ]]`) is a command. `[cancel]` is how a list of gpusched
# takes a line out of the queue.
_PREFIX = re.compile(r"[ \t]*\[(?=[a-z_]+=|cancel[\s\]])")
_GAP = re.compile(r"(?:\s|\\\n)*+")
_PART = r"[^\s\]\"'\\]++|\\(?!\n)|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"|'[^']*+'"
# The value is not matched possessively as a whole: Python 3.11.2 then forgets where it began.
_ENTRY = re.compile(rf"{_GAP.pattern}(?:\]|([A-Za-z_][\w-]*+)(?:=((?:{_PART})*))?)", re.DOTALL)
_COMMA = re.compile(rf",\s*(?:{'|'.join(KEYS)})=")
_QUOTED = re.compile(r"\"([^\"\\]*(?:\\.[^\"\\]*)*)\"|'([^']*)'", re.DOTALL)
_TABLE_HEAD = re.compile(r"[ \t]*\[\[?[ \t]*(?:defaults|jobs?)[ \t]*\]\]?[ \t]*(?:#.*)?")
_JOB_HEAD = re.compile(rb"^[ \t]*\[\[[ \t]*jobs?[ \t]*\]\]", re.MULTILINE)


def read(path: Path, *, folder: str | None = None) -> Jobs:
    """The jobs of a file.

    Args:
        path: The job file; a pipe such as ``/dev/fd/63`` will do.
        folder: Where the commands run; the current folder if None.

    Raises:
        BadJobFile: The file is not there, not a file, too large, or `parse` refuses it.
    """
    source = plain(str(path))
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise BadJobFile(source, None, "is a folder; name a job file in it.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadJobFile(source, None, f"cannot be read ({reason}).") from None
    return parse(text, source=source, folder=folder or os.getcwd())


def parse(text: bytes, *, source: str, folder: str) -> Jobs:
    r"""The jobs that a job file states, in its order.

    A `source` that ends in ``.toml`` is TOML, and so is a text that begins with ``[[job]]`` or
    ``[defaults]``; one that ends in ``.csv``, or begins with radT's first columns, is a CSV of
    radT; everything else is a shell command a line.

    Args:
        text: The file's content: UTF-8, at most `MAX_BYTES` and `MAX_JOBS` jobs.
        source: The file's name as the user gave it, ``-`` for standard input.
        folder: Where the commands run, absolute.

    Raises:
        BadJobFile: Anything that is not as docs/job-files.md says; nothing of the file is used.

    >>> jobs = parse(b"python a.py\n[memory=2G after=a] python a.py", source="j", folder="/x").jobs
    >>> [(job.name, job.memory_bytes, job.after, job.line) for job in jobs]
    [('a', None, (), 1), ('a-2', 2147483648, ('a',), 2)]
    """
    source = plain(source)
    if len(text) > MAX_BYTES:
        raise BadJobFile(source, None, f"is larger than {MAX_BYTES >> 20} MB; split the list.")
    if b"\0" in text:
        utf_16 = text[:2] in {b"\xff\xfe", b"\xfe\xff"}
        hint = " It may be UTF-16; save it as UTF-8." if utf_16 else ""
        line = text.count(b"\n", 0, text.index(b"\0")) + 1
        raise BadJobFile(source, line, f"holds a NUL byte; a job file is text.{hint}")
    text = text.removeprefix(b"\xef\xbb\xbf")
    notes: tuple[str, ...] = ()
    if source.endswith(".toml") or _looks_like_toml(text):
        drafts = _toml_drafts(text, source, folder)
        what = "a [[job]] table for each job"
    elif source.endswith(".csv") or radt.is_header(_first_line(text)):
        lines = (line for _, line in _numbered(text, source))
        drafts, notes = radt.read_rows(lines, source=source, folder=folder, most=MAX_JOBS)
        what = "a row for each run below the names of the columns"
    else:
        drafts = list(_line_drafts(text, source, folder))
        what = "one shell command a line"
    if not drafts:
        raise BadJobFile(source, None, f"no jobs in it; write {what}.")
    give_names(drafts)
    name_grids_jobs(drafts)
    jobs = tuple(draft.build() for draft in drafts)
    check_after(jobs, drafts)
    return Jobs(source=source, jobs=jobs, notes=notes)


def _decoded(raw: bytes, source: str, number: int) -> str:
    try:
        return raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        given = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
        raise BadJobFile(source, number, f"{given} is not UTF-8; save the file as UTF-8.") from None


def _first_line(text: bytes) -> str:
    """The first line that says something; it may not be UTF-8."""
    for raw in io.BytesIO(text):
        line = raw.decode(errors="replace").strip()
        if line and not line.startswith("#"):
            return line
    return ""


def _numbered(text: bytes, source: str) -> Iterator[tuple[int, str]]:
    # Only \n ends a line: str.splitlines would also cut a command at a form feed or U+2028.
    for number, raw in enumerate(io.BytesIO(text), start=1):
        yield number, _decoded(raw, source, number)


# ---- one command a line -------------------------------------------------------------------------


def _lines(text: bytes, source: str) -> Iterator[tuple[int, str]]:
    """Commands with the number of their first line; a continued one keeps its line breaks."""
    numbered = _numbered(text, source)
    for number, line in numbered:
        if not line.strip() or line.lstrip(" \t").startswith("#"):
            continue
        parts = [line]
        while _continues(parts[-1]):
            following = next(numbered, None)
            if following is None:
                raise BadJobFile(
                    source, number, "ends with a backslash, but no line follows to be joined to it."
                )
            parts.append(following[1])
        yield number, "\n".join(parts)


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _line_drafts(text: bytes, source: str, folder: str) -> Iterator[Draft]:
    count = 0
    for number, line in _lines(text, source):
        draft = Draft(source, number)
        if len(line) > _MAX_LINE:
            raise draft.bad(f"{len(line):,} characters long; at most {_MAX_LINE:,} are allowed.")
        command, given = line, dict[str, Any]()
        if prefix := _PREFIX.match(line):
            entries, end = _entries(draft, line, prefix.end())
            command = _GAP.sub("", line[end:], count=1)
            if line.startswith("]", end):
                raise draft.bad('the prefix ends at its first "]"; quote a value that holds one.')
            text_of_prefix = line[prefix.end() - 1 : end]
            if ("cancel", None) in entries:
                continue
            given = _gathered(draft, entries, text_of_prefix)
            if not command.strip():
                raise draft.bad(f"no command after {show(text_of_prefix, 200)}.")
        count += 1
        if count > MAX_JOBS:
            raise draft.bad(f"more than {MAX_JOBS:,} jobs; split the list.")
        draft.fill({"command": command, "folder": folder, **given})
        yield draft


def _entries(draft: Draft, line: str, position: int) -> tuple[list[tuple[str, str | None]], int]:
    """The keys and values from `position` up to the closing bracket, and where that ends.

    A word without a value has None.
    """
    entries: list[tuple[str, str | None]] = []
    while found := _ENTRY.match(line, position):
        position = found.end()
        key, value = found.groups()
        if key is None:
            return entries, position
        if line.startswith(('"', "'"), position):
            raise draft.bad(f"{show(key)}= has a quote in the prefix that is not closed.")
        entries.append((key.lower(), _QUOTED.sub(_unquoted, value) if value else value))
    wrong = line[position:].strip("\\\n\t ")
    where = f'the prefix goes wrong at "{show(wrong, 20)}"' if wrong else "the prefix has no end"
    raise draft.bad(f"{where}; write [key=value ...] command.")


def _unquoted(quoted: re.Match[str]) -> str:
    if quoted[1] is None:
        return quoted[2]
    return re.sub(r'\\(["\\])', r"\1", quoted[1])


def _gathered(draft: Draft, entries: list[tuple[str, str | None]], prefix: str) -> dict[str, Any]:
    """The entries as a table, with those of env in a table of its own."""
    table: dict[str, Any] = {}
    for key, value in entries:
        if key not in KEYS and key != "vram":  # asked here too, since show is slow
            draft.check_key(key, KEYS, f" in {show(prefix, 200)}")
        if value and key != "env" and (comma := _COMMA.search(value)):
            raise draft.bad(f'"{comma[0]}" in {show(prefix, 200)}: keys are separated by blanks.')
        if not value:
            raise draft.bad(f"{key} in {show(prefix, 200)} has no value; write {key}=...")
        if key == "env":
            key, equals, content = value.partition("=")
            target, value = table.setdefault("env", {}), content if equals else None
        else:
            target = table
        if key in target:
            raise draft.bad(f"{show(key)} is given twice in {show(prefix, 200)}.")
        target[key] = value
    return table


# ---- TOML ---------------------------------------------------------------------------------------


def _looks_like_toml(text: bytes) -> bool:
    return _TABLE_HEAD.fullmatch(_first_line(text)) is not None


def _toml_drafts(text: bytes, source: str, folder: str) -> list[Draft]:
    data = _toml(text, source)
    whole = Draft(source, None)
    if unknown := data.keys() - {"defaults", "job", "jobs"}:
        given = show(min(unknown))
        raise whole.bad(f'unknown table "{given}"; known: [defaults] and one [[job]] for each job.')
    if "job" in data and "jobs" in data:
        raise whole.bad("has both [[job]] and [[jobs]]; use one of them.")
    tables = data.get("job", data.get("jobs", []))
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise whole.bad("job is not a list of tables; write [[job]] with two brackets.")
    if len(tables) > MAX_JOBS:
        raise whole.bad(f"more than {MAX_JOBS:,} jobs ({len(tables):,}); split the list.")
    defaults = _defaults(data.get("defaults", {}), source)
    lines = _head_lines(text, len(tables))
    stated = [
        (_merged(table, defaults, draft := Draft(source, line, f"job {number}: ")), draft)
        for number, (table, line) in enumerate(zip(tables, lines, strict=True), start=1)
    ]
    _check_number(stated)
    return [draft for table, first in stated for draft in _table_drafts(table, first, folder)]


def _check_number(stated: Sequence[tuple[Mapping[str, Any], Draft]]) -> None:
    """Refuse too many jobs before any of a grid is made."""
    total = 0
    for table, draft in stated:
        total += combinations(table, draft)
        if total > MAX_JOBS:
            raise draft.bad(
                f"grid: {shape(table)} makes {total:,} jobs in all, more than {MAX_JOBS:,}; take "
                "values out, or split the list."
                if "grid" in table
                else f"more than {MAX_JOBS:,} jobs; split the list."
            )


def _toml(text: bytes, source: str) -> dict[str, Any]:
    for _ in _numbered(text, source):
        pass  # so that a byte that is not UTF-8 is reported with its line
    try:
        return tomllib.loads(text.decode())
    except RecursionError:
        raise BadJobFile(source, None, "not readable as TOML: nested too deep.") from None
    except ValueError as error:
        reason, line = str(error), None
        if place := re.search(r" \(at line (\d+), column (\d+)\)$", reason):
            reason, line = f"{reason[: place.start()]} at column {place[2]}", int(place[1])
        commands = source.endswith(".toml") and not _JOB_HEAD.search(text)
        hint = " A list of shell commands needs another name than .toml." if commands else ""
        message = f"not readable as TOML: {show(reason, 200)}.{hint}"
        raise BadJobFile(source, line, message) from None


def _head_lines(text: bytes, count: int) -> list[int | None]:
    """The line of each [[job]]; all None where they cannot be told (an inline list, say)."""
    lines: list[int | None] = []
    line, seen = 1, 0
    for head in _JOB_HEAD.finditer(text):
        line += text.count(b"\n", seen, head.start())
        seen = head.start()
        lines.append(line)
    return lines if len(lines) == count else [None] * count


def _defaults(table: Any, source: str) -> dict[str, Any]:
    draft = Draft(source, None, "[defaults]: ")
    if not isinstance(table, dict):
        raise draft.bad("is not a table; write [defaults] on a line of its own.")
    if "name" in table:
        raise draft.bad("name cannot be a default, since each job has its own.")
    if "grid" in table:
        raise draft.bad("grid cannot be a default; write it in the [[job]] that it spreads.")
    _check_table(draft, table)
    draft.fill(table)  # so that a bad default is reported as one
    return table


def _check_table(draft: Draft, table: Mapping[str, Any]) -> None:
    for key in table:
        draft.check_key(key, TABLE_KEYS)
    if not isinstance(table.get("env", {}), dict):
        raise draft.bad('env is not a table; write env = { NAME = "value" }.')


def _merged(table: Mapping[str, Any], defaults: Mapping[str, Any], draft: Draft) -> dict[str, Any]:
    """A job's table with the defaults in it; the draft learns the job's name."""
    if isinstance(name := table.get("name"), str):
        draft.label = f'{draft.label[:-2]} "{show(name)}": '
    _check_table(draft, table)
    merged = {**defaults, **table}
    if "env" in merged:
        merged["env"] = {**defaults.get("env", {}), **table.get("env", {})}
    if "vram" in table and "gpu_memory" not in table:
        merged.pop("gpu_memory", None)
    if "command" not in merged:
        raise draft.bad('has no command; write command = "python train.py".')
    return merged


def _table_drafts(table: dict[str, Any], draft: Draft, folder: str) -> Iterator[Draft]:
    """The jobs of one table: one, or one for each combination of its grid."""
    if "grid" not in table:
        yield _filled(table, draft, folder)
        return
    for one, its_draft, suffix in spread(table, draft):
        filled = _filled(one, its_draft, folder)
        if suffix:
            name = filled.fields.pop("name", None) or default_name(filled.fields["command"])
            filled.base = grid_name(name, suffix)
        yield filled


def _filled(table: Mapping[str, Any], draft: Draft, folder: str) -> Draft:
    draft.fill(table)
    inside = os.path.expanduser(draft.fields.get("folder", ""))
    draft.fields["folder"] = os.path.normpath(os.path.join(folder, inside)) if inside else folder
    return draft
