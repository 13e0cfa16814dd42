"""What the end of a job's stderr says: its last exception, its last line, and allocators' texts.

Only the end counts. A job may report that memory ran out, go on with a smaller batch and fail of
something else an hour later: a text earlier in the log says nothing about how the job ended.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from headway.core.text import plain
from headway.core.units import GIB, KIB, MIB, TIB

TAIL_BYTES = 64 * 1024
"""How much of stderr's end is worth reading."""

END_LINES = 20
"""Lines with words that count as the end of a log."""

_LONGEST_LINE = 4000
_HEADER = "Traceback (most recent call last):"
_RANK = re.compile(r"\[rank\d+\]: ?")  # torch puts it before each line of a traceback
_NAMED = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::(?: (.*)|$)|$)")
_EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Interrupt))(?::(?: (.*)|$)|$)")
_FATAL = re.compile(r"(Fatal Python error): (.*)")
_THROWN = re.compile(r"terminate called after throwing an instance of '([^']+)'")
_WHAT = re.compile(r"\s*what\(\):\s*(.*)")
_AFTERMATH = ("wandb: ",)
"""Watchers of a script that print a summary after its traceback."""

_DEVICE = re.compile(
    r"OutOfMemoryError|(?:CUDA|HIP|XPU) out of memory|CUDA error: out of memory|"
    r"CUDA_ERROR_OUT_OF_MEMORY"
)
_HOST_NAME = re.compile(r"(?:^|\.)_?(?:Array)?MemoryError$|^std::bad_alloc$")
_HOST_TEXT = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)|"
    r"not enough memory: you tried to allocate|Cannot allocate memory|std::bad_alloc"
)
_EITHER = re.compile(r"RESOURCE_EXHAUSTED: .*[Oo]ut of memory|OOM when allocating tensor")
"""XLA says it of a device and of the host alike."""
_NOT_MAPPED = re.compile(r"failed to map segment from shared object")
_LIBRARY = re.compile(
    r"libgomp: Out of memory allocating|OpenBLAS error: Memory allocation still failed"
)
_WORKER = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is killed by|exited unexp)")

_UNITS = {"": 1, "Ki": KIB, "Mi": MIB, "Gi": GIB, "Ti": TIB, "Pi": 2**50, "Ei": 2**60}
_ASKED = re.compile(
    r"(?:[Uu]nable to allocate|[Tt]ried to allocate|Out of memory allocating)"
    r" (\d{1,19}(?:\.\d{1,9})?) ?(?:([KMGTPE]i)?B|bytes)"
)

Memory = Literal["host", "device", "either", "address space"]


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that a log shows, in Python's or C++'s way."""

    name: str
    message: str
    """Its first line: what follows cannot be told from the log's next words."""
    line: int
    cause: "Raised | None" = None
    """The exception that it was raised from, where the log says so."""

    @property
    def headline(self) -> str:
        """Name and message, as Python prints them."""
        if not self.message or self.message == self.name:
            return self.name
        return f"{self.name}: {self.message}"


@dataclass(frozen=True, slots=True)
class AllocatorText:
    """An allocator's own words that it got no memory, at the end of a log."""

    memory: Memory
    text: str
    asked_bytes: int | None


@dataclass(frozen=True, slots=True)
class LastWords:
    """The end of a job's stderr, safe to print."""

    raised: Raised | None
    """The last exception of all that was read."""
    raised_at_end: bool
    """Whether it is among the last lines, so that it can be what ended the job."""
    last_line: str
    allocator: AllocatorText | None
    dead_workers: tuple[int, ...]
    """Pids of data loader workers whose death the last exception reports."""


def read_last_words(tail: bytes) -> LastWords:
    r"""Read the end of a stderr file; `tail` may begin in the middle of a line.

    >>> words = read_last_words(b"Traceback (most recent call last):\n  ...\nKeyError: 'lr'\n")
    >>> words.raised.headline, words.allocator
    ("KeyError: 'lr'", None)
    """
    lines = _lines(tail)
    raised = _final(_exceptions(lines))
    end = _end_of(lines)
    last_line = lines[-1].strip() if lines else ""
    at_end = raised if raised is not None and raised.line >= end else None
    return LastWords(
        raised=raised,
        raised_at_end=at_end is not None,
        last_line=last_line,
        allocator=_allocator(at_end, lines[max(end, raised.line + 1 if raised else 0) :]),
        dead_workers=_dead_workers(at_end),
    )


def _lines(tail: bytes) -> list[str]:
    """Lines with words in them; of a line that a progress bar rewrote, what it showed last."""
    lines = []
    for raw in tail[-TAIL_BYTES:].decode("utf-8", "replace").split("\n"):
        shown = next((part for part in reversed(raw.split("\r")) if part.strip()), "")
        line = _RANK.sub("", plain(shown[:_LONGEST_LINE].replace("\t", " ")), count=1)
        if line.strip():
            lines.append(line)
    return lines


def _exceptions(lines: list[str]) -> list[Raised]:
    """The exceptions a log shows, in order; those that Python only noted and ignored left out."""
    found: list[Raised] = []
    inside = ignored = linked = False
    for number, line in enumerate(lines):
        if line.endswith(_HEADER):
            inside = True
        elif line.startswith("Exception ignored "):
            ignored = True
        elif line.startswith("The above exception was the direct cause of"):
            linked = True
        elif opening := _opening(line, inside=inside):
            if not ignored:
                cause = found[-1] if linked and found else None
                found.append(Raised(*opening, number, cause))
            inside = ignored = linked = False
        elif found and not found[-1].message and (what := _WHAT.match(line)):
            found[-1] = replace(found[-1], message=what[1].strip())
    return found


def _opening(line: str, *, inside: bool) -> tuple[str, str] | None:
    """Name and message where a line begins an exception: any name after a traceback's frames."""
    if thrown := _THROWN.match(line):
        return thrown[1], ""
    match = (_NAMED if inside else _EXCEPTION).match(line) or _FATAL.match(line)
    return (match[1], (match[2] or "").strip()) if match else None


def _final(found: list[Raised]) -> Raised | None:
    """The exception that ended the job; where torchrun only reports a worker's, the worker's."""
    if len(found) > 1 and found[-1].name.endswith("ChildFailedError"):
        return replace(found[-2], line=found[-1].line)
    return found[-1] if found else None


def _end_of(lines: list[str]) -> int:
    """Index of the line where a log's end begins."""
    seen = 0
    for number in range(len(lines) - 1, -1, -1):
        seen += not lines[number].startswith(_AFTERMATH)
        if seen == END_LINES:
            return number
    return 0


def _allocator(raised: Raised | None, after: list[str]) -> AllocatorText | None:
    """An allocator's words in the last exception (or what it was raised from), or after it."""
    link = raised
    while link is not None:
        if memory := _memory_of(link):
            return AllocatorText(memory, link.headline, _asked_bytes(link.message))
        link = link.cause
    for line in after:
        if _LIBRARY.search(line):
            return AllocatorText("host", line.strip(), _asked_bytes(line))
    if after and after[-1].rstrip(" .").endswith("Cannot allocate memory"):
        return AllocatorText("host", after[-1].strip(), None)
    return None


def _memory_of(raised: Raised) -> Memory | None:
    """Whose memory an exception says ran out."""
    whole = raised.headline
    if _DEVICE.search(whole):
        return "device"
    if _HOST_NAME.search(raised.name) or _HOST_TEXT.search(whole):
        return "host"
    if _EITHER.search(whole):
        return "either"
    return "address space" if _NOT_MAPPED.search(whole) else None


def _asked_bytes(text: str) -> int | None:
    """How much was asked for at once, where the text says so."""
    match = _ASKED.search(text)
    return int(float(match[1]) * _UNITS[match[2] or ""]) if match else None


def _dead_workers(raised: Raised | None) -> tuple[int, ...]:
    """Pids of the loader workers that an exception says were killed."""
    match = _WORKER.search(raised.message) if raised else None
    return tuple(int(pid) for pid in re.findall(r"\d+", match[1])) if match else ()
