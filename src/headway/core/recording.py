"""What the recorder inside a job writes down, and how it is read from outside.

Each process that takes an optimizer step has one file, ``<pid>-<start time in ticks>.steps``: a
header of 16 words, then a ring of the times of its last 1,024 steps, all unsigned 64-bit in the
machine's own byte order. The writer takes no lock: it writes the slot, then the count. A reader
takes the count, the slots and the count again, and drops the slots that may have changed meanwhile.

Times are CLOCK_MONOTONIC in nanoseconds, so they compare with `time.monotonic_ns` of any process
of the same host and boot. The recorder is a file for itself that imports nothing of Headway and
therefore repeats these constants; a test compares them.
"""

import os
import re
import shlex
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

FOLDER_VARIABLE = "HEADWAY_RECORDER_DIR"

MAGIC = int.from_bytes(b"HRECORDS", "little")
VERSION = 1
RING_SLOTS = 1024
HEADER_WORDS = 16
HEADER_BYTES = 8 * HEADER_WORDS
FILE_BYTES = 8 * (HEADER_WORDS + RING_SLOTS)
STATUS_TORCH_TOO_OLD = 1

_HEADER = struct.Struct(f"={HEADER_WORDS}Q")
_RING = struct.Struct(f"={RING_SLOTS}Q")
_FILE_NAME = re.compile(r"\d{1,10}-\d{1,20}\.steps")
# A job can put anything in its folder: follow no link, and never wait on a pipe.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NOTES = {STATUS_TORCH_TOO_OLD: "torch too old: it does not report the steps of its optimizers"}


class Header(NamedTuple):
    """The words at the start of a file, in this order; the rest up to 16 is kept free."""

    magic: int
    version: int
    pid: int
    start_ticks: int
    generation: int
    steps: int
    first_ns: int
    last_ns: int
    status: int
    device_ns: int
    device_bytes: int
    device_peak_bytes: int
    started_ns: int


@dataclass(frozen=True, slots=True)
class Recording:
    """The steps of one process, as far as its file tells; times in ns of CLOCK_MONOTONIC."""

    pid: int
    start_ticks: int
    """Start time of the process in clock ticks after boot: field 22 of its stat."""
    generation: int
    """1, and one more for each program that took its place by execv and stepped too."""
    steps: int
    first_ns: int
    """When the first step ended; 0 where there was none yet."""
    last_ns: int
    times_ns: tuple[int, ...]
    """When each of the last steps ended, oldest first; at most 1,024."""
    started_ns: int
    """When its interpreter started, or when it was forked from one that had loaded torch."""
    device_bytes: int | None = None
    """What torch held of all devices, at most a second before the last step: its cache counts."""
    device_peak_bytes: int | None = None
    note: str | None = None
    """Why there are no steps, where the recorder could tell."""


@dataclass(frozen=True, slots=True)
class StepSummary:
    """The steps of a whole job. The leading process is the one with the most steps."""

    pid: int
    """The leading process."""
    steps: int
    """Steps of the leading process: one rank's count where ranks step together."""
    total_steps: int
    """Steps of all processes together."""
    processes: int
    """How many processes stepped: torchrun has one per rank."""
    first_ns: int
    last_ns: int
    started_ns: int
    median_step_ns: int | None
    """Median time between the last steps of the leading process; None before its second step."""
    mean_step_ns: int | None
    """Mean time of a step, from the end of its first to that of its last; None with one step."""
    device_peak_bytes: int | None
    """Peaks added up over the processes that stepped in the same span as the leading one."""


def read(path: str | os.PathLike[str]) -> Recording | None:
    """Read one file, also while its process writes it.

    Returns:
        The recording, or None where the file is missing, cut short or no recording.
    """
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != FILE_BYTES:
            return None
        content = os.pread(descriptor, FILE_BYTES, 0)
        after = _header(os.pread(descriptor, HEADER_BYTES, 0))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    header = _header(content)
    if header is None or after is None or len(content) != FILE_BYTES:
        return None
    return _recording(header, _RING.unpack_from(content, HEADER_BYTES), after.steps)


def count_and_last(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Number of steps, and when the last one ended in ns; (0, 0) where nothing can be read.

    Reads the header alone, for a sampler that asks about many processes each second.
    """
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except OSError:
        return 0, 0
    try:
        header = _header(os.pread(descriptor, HEADER_BYTES, 0))
    except OSError:
        return 0, 0
    finally:
        os.close(descriptor)
    return (header.steps, header.last_ns) if header and header.steps else (0, 0)


def read_folder(path: str | os.PathLike[str]) -> list[Recording]:
    """Read every recording of a folder, in order of file name; what is none is passed over."""
    try:
        names = sorted(name for name in os.listdir(path) if _FILE_NAME.fullmatch(name))
    except OSError:
        return []
    found = (read(Path(path, name)) for name in names)
    return [recording for recording in found if recording is not None]


def summary(recordings: Sequence[Recording]) -> StepSummary | None:
    """Describe a job by its processes' recordings; None where none of them stepped.

    A step is one call of ``optimizer.step()``: a job with two optimizers counts two a round. So
    counts are for comparing a job with itself.
    """
    stepped = [recording for recording in recordings if recording.steps]
    if not stepped:
        return None
    lead = max(stepped, key=lambda each: (each.steps, -each.first_ns, -each.pid))
    together = [
        each for each in stepped if each.first_ns <= lead.last_ns and lead.first_ns <= each.last_ns
    ]
    peaks = [each.device_peak_bytes for each in together if each.device_peak_bytes is not None]
    return StepSummary(
        pid=lead.pid,
        steps=lead.steps,
        total_steps=sum(each.steps for each in stepped),
        processes=len(stepped),
        first_ns=lead.first_ns,
        last_ns=lead.last_ns,
        started_ns=lead.started_ns,
        median_step_ns=_median_gap(lead.times_ns),
        mean_step_ns=(lead.last_ns - lead.first_ns) // (lead.steps - 1) if lead.steps > 1 else None,
        device_peak_bytes=sum(peaks) if peaks else None,
    )


def python_path(recorder: str, inherited: str | None) -> str:
    """PYTHONPATH of a job: the recorder's folder in front of what the user has.

    An empty inherited value adds nothing. As a trailing colon it would put the current folder on
    the path, and a stranger's sitecustomize there would run.

    Raises:
        ValueError: The folder's name holds a colon, which PYTHONPATH cannot express.

    >>> python_path("/opt/recorder", ""), python_path("/opt/recorder", "/home/me/lib")
    ('/opt/recorder', '/opt/recorder:/home/me/lib')
    """
    if not recorder or os.pathsep in recorder:
        raise ValueError(
            f'"{recorder}" cannot stand in PYTHONPATH, which is split at colons; '
            "install Headway in a folder without a colon in its path"
        )
    if not inherited:
        return recorder
    if inherited.split(os.pathsep)[0] == recorder:
        return inherited
    return recorder + os.pathsep + inherited


def why_unseen(argv_or_command: str, *, recordings: Sequence[Recording] = ()) -> str:
    """Say in words why no steps of a command are seen: a guess that claims no more than it knows.

    >>> why_unseen("python -Iu train.py")
    'steps not visible: started with -I'
    >>> why_unseen("sleep 5")
    'steps not visible: not a Python command'
    >>> why_unseen("bash train.sh")
    "steps not visible: no Python process of it used torch's optimizers"
    """
    notes = [recording.note for recording in recordings if recording.note]
    reason = notes[0] if notes else _guess(argv_or_command)
    return f"steps not visible: {reason or _NOT_USED}"


_NOT_USED = "no Python process of it used torch's optimizers"
_NOT_PYTHON = "not a Python command"
_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)*)?t?")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# Programs of the shell that start nothing else: of any other, a Python process may be inside.
_PLAIN = re.compile(
    "true|false|sleep|echo|printf|test|date|cat|cp|mv|rm|ls|mkdir|touch|tar|gzip|cd|pwd"
)
_PREFIXES = frozenset(["env", "exec", "nohup", "setsid", "time"])
_HIDING_FLAGS = {"I": "-I", "E": "-E", "S": "-S"}
_OPERATORS = frozenset(";&|()<>")


def _guess(command: str) -> str | None:
    """The one reason that holds for every part of the command, or None."""
    reasons = {_guess_simple(words) for words in _simple_commands(command)}
    if len(reasons) > 1:
        reasons.discard(_NOT_PYTHON)
    return reasons.pop() if len(reasons) == 1 else None


def _simple_commands(command: str) -> list[list[str]]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    parts: list[list[str]] = [[]]
    try:
        for word in lexer:
            if not word or not set(word) <= _OPERATORS:
                parts[-1].append(word)
            elif "<" in word or ">" in word:
                next(lexer, None)  # the file of a redirection
            else:
                parts.append([])
    except ValueError:  # an open quote: the shell will say so
        return []
    return [part for part in parts if part]


def _guess_simple(words: list[str]) -> str | None:
    """The reason for one command without operators, or None where there is none to name."""
    replaced = False
    while words and (assignment := _ASSIGNMENT.fullmatch(words[0])):
        replaced |= assignment[1] == "PYTHONPATH" and "PYTHONPATH" not in assignment[2]
        words = words[1:]
    if not words:
        return _NOT_PYTHON
    name, arguments = os.path.basename(words[0]), words[1:]
    if name == "env" and arguments[:1] in (["-i"], ["-"], ["--ignore-environment"]):
        return "started with an emptied environment (env -i)"
    if name in _PREFIXES:
        return _guess_simple(arguments)
    if _PLAIN.fullmatch(name):
        return _NOT_PYTHON
    if _PYTHON.fullmatch(name) is None:
        return None
    flag = _hiding_flag(arguments)
    if flag is not None:
        return f"started with {flag}"
    return "started with a PYTHONPATH of its own" if replaced else None


def _hiding_flag(arguments: list[str]) -> str | None:
    """The first of Python's own options that keeps it from loading the recorder."""
    options = iter(arguments)
    for option in options:
        if not option.startswith("-") or option in ("-", "--"):
            return None
        if option.startswith("--"):
            if option == "--check-hash-based-pycs":
                next(options, None)
            continue
        for letter_position, letter in enumerate(option[1:], start=2):
            if letter in _HIDING_FLAGS:
                return _HIDING_FLAGS[letter]
            if letter in "cm":  # what follows belongs to the program
                return None
            if letter in "WX":
                if letter_position == len(option):
                    next(options, None)
                break
    return None


def _header(content: bytes) -> Header | None:
    if len(content) < HEADER_BYTES:
        return None
    header = Header(*_HEADER.unpack_from(content)[: len(Header._fields)])
    sound = header.magic == MAGIC and header.version == VERSION
    return header if sound and header.first_ns <= header.last_ns else None


def _recording(header: Header, ring: tuple[int, ...], steps_after: int) -> Recording:
    # While count is n the writer may be at work on the slot of step n, which held step n - 1,024.
    oldest = max(0, steps_after - RING_SLOTS + 1)
    times_ns = tuple(ring[step % RING_SLOTS] for step in range(oldest, header.steps))
    last_ns = times_ns[-1] if times_ns else header.last_ns
    on_device = header.device_ns > 0
    return Recording(
        pid=header.pid,
        start_ticks=header.start_ticks,
        generation=header.generation,
        steps=header.steps,
        first_ns=header.first_ns if header.steps else 0,
        last_ns=last_ns if header.steps else 0,
        times_ns=times_ns,
        started_ns=header.started_ns,
        device_bytes=header.device_bytes if on_device else None,
        device_peak_bytes=header.device_peak_bytes if on_device else None,
        note=None if header.steps else _NOTES.get(header.status),
    )


def _median_gap(times_ns: tuple[int, ...]) -> int | None:
    gaps = sorted(after - before for before, after in pairwise(times_ns))
    if not gaps:
        return None
    half = len(gaps) // 2
    return gaps[half] if len(gaps) % 2 else (gaps[half - 1] + gaps[half]) // 2
