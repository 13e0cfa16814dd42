"""What the terminal can do, and writing to one that may be gone."""

import contextlib
import errno
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from headway.core.text import ascii_only, mask, plain

# Wide enough that no column of ours is cut in a file or a CI log.
PIPE_COLUMNS = 160
LEAST_COLUMNS = 30
_COLOURS = {
    "ok": "32",
    "running": "36",
    "waiting": "2",
    "cancelled": "33",
    "infeasible": "33",
    "failed": "31",
    "oom": "31",
    "timeout": "31",
    "stalled": "31",
    "lost": "31",
}


@dataclass(frozen=True, slots=True)
class Screen:
    """Where text goes: its width in columns, and whether it is a terminal, has colour, has only
    ASCII, and can redraw.
    """  # noqa: D205

    width: int = PIPE_COLUMNS
    terminal: bool = False
    colour: bool = False
    ascii: bool = False
    redraws: bool = False

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str] | None = None) -> "Screen":
        """The screen behind a stream, as the environment describes it."""
        environment = os.environ if environment is None else environment
        terminal = _is_terminal(stream)
        dumb = environment.get("TERM", "") in ("dumb", "unknown", "")
        utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
        return cls(
            width=_columns(stream, environment) if terminal else PIPE_COLUMNS,
            terminal=terminal,
            colour=terminal and not dumb and not environment.get("NO_COLOR"),
            ascii=not (utf8 and _locale_has_utf8(environment)),
            redraws=terminal and not dumb,
        )

    def clean(self, text: str) -> str:
        """Somebody else's text as one harmless line: controls spelt out, secrets masked."""
        text = mask(plain(text))
        return ascii_only(text) if self.ascii else text

    def paint(self, text: str, status: str) -> str:
        """The text in the colour of a status word, where there is colour."""
        code = _COLOURS.get(status)
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text

    @property
    def ending(self) -> str:
        """What marks a cut text."""
        return ".." if self.ascii else "\u2026"


def say(line: str) -> None:
    """One line on stderr; a terminal that is gone is no error."""
    with contextlib.suppress(OSError, ValueError):
        print(_writable(line, sys.stderr), file=sys.stderr, flush=True)


class NobodyReads(Exception):
    """What reads our stdout has ended (`headway status | head -1`), or its terminal is gone.

    Not an OSError: typer would take it for a failure of ours.
    """


def give(text: str) -> None:
    """A result on stdout.

    Raises:
        NobodyReads: Its reader is gone.
    """
    give_bytes((text + "\n").encode(sys.stdout.encoding or "ascii", "backslashreplace"))


def give_bytes(content: bytes) -> None:
    """A result on stdout, as it is.

    Raises:
        NobodyReads: Its reader is gone.
    """
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        raise NobodyReads from None


class Enduring:
    """A text stream that swallows what a closed terminal answers.

    Closing the terminal does not stop a run: from then on every write to it fails with EIO (or
    EPIPE), which must not reach the loop that supervises.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        """Write, or not."""
        with contextlib.suppress(OSError, ValueError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or not."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        """Whether it was a terminal."""
        return _is_terminal(self._stream)

    def fileno(self) -> int:
        """The descriptor below."""
        return self._stream.fileno()


def _writable(text: str, stream: TextIO) -> str:
    """The text in characters that the stream's encoding has."""
    encoding = stream.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _is_terminal(stream: TextIO) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return stream.isatty()
    return False


def _columns(stream: TextIO, environment: Mapping[str, str]) -> int:
    given = environment.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return max(LEAST_COLUMNS, int(given))
    with contextlib.suppress(OSError, ValueError):
        # A terminal that does not know its size says 0.
        return max(LEAST_COLUMNS, os.get_terminal_size(stream.fileno()).columns or 80)
    return 80


def _locale_has_utf8(environment: Mapping[str, str]) -> bool:
    """Whether the user's locale says UTF-8; Python itself claims so in the C locale too."""
    language = environment.get("LANG", "")
    kind = environment.get("LC_CTYPE", "")
    # Python sets LC_CTYPE=C.UTF-8 for itself where the locale is C (PEP 538).
    if kind == "C.UTF-8" and language in ("", "C", "POSIX"):
        kind = ""
    name = environment.get("LC_ALL") or kind or language
    return "utf" in name.lower()
