import io
import os
import pty

import pytest

from headway.cli import terminal
from headway.cli.terminal import Enduring, Screen


class Stream(io.TextIOWrapper):
    def __init__(self, *, tty: bool, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


UTF8 = {"LANG": "en_US.UTF-8", "TERM": "xterm"}


def test_a_terminal_has_colour_and_redraws():
    screen = Screen.of(Stream(tty=True), UTF8 | {"COLUMNS": "70"})
    assert screen == Screen(width=70, terminal=True, colour=True, ascii=False, redraws=True)


def test_a_pipe_has_neither():
    screen = Screen.of(Stream(tty=False), UTF8 | {"COLUMNS": "70"})
    assert screen == Screen(width=terminal.PIPE_COLUMNS)


def test_no_color_takes_the_colour_alone():
    screen = Screen.of(Stream(tty=True), UTF8 | {"NO_COLOR": "1"})
    assert (screen.colour, screen.redraws) == (False, True)
    assert screen.paint("ok", "ok") == "ok"


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_gets_plain_lines(term: str):
    screen = Screen.of(Stream(tty=True), UTF8 | {"TERM": term})
    assert (screen.colour, screen.redraws) == (False, False)


@pytest.mark.parametrize(
    ("environment", "is_ascii"),
    [
        ({"LANG": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),  # as Python itself sets it
        ({}, True),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "POSIX"}, True),
        ({"LANG": "C.UTF-8"}, False),
        ({"LANG": "C", "LC_ALL": "en_US.utf8"}, False),
        ({"LANG": "de_DE.UTF-8", "LC_CTYPE": "C.UTF-8"}, False),
    ],
)
def test_the_locale_says_whether_there_is_more_than_ascii(environment: dict, is_ascii: bool):
    assert Screen.of(Stream(tty=True), environment).ascii is is_ascii


def test_an_encoding_without_unicode_beats_the_locale():
    assert Screen.of(Stream(tty=True, encoding="latin-1"), UTF8).ascii


def test_other_peoples_text_is_harmless():
    screen = Screen(ascii=True)
    hostile = "\x1b]0;owned\x07\x1b[2Jjob\u202e\n--api-key=abcdef0123"
    clean = screen.clean(hostile)
    assert clean.isascii()
    assert clean.isprintable()
    assert "abcdef0123" not in clean


def test_a_terminal_that_is_gone_is_no_error():
    master, slave = pty.openpty()
    stream = Enduring(open(slave, "w"))  # noqa: SIM115 - closed below, when the terminal is gone
    os.close(master)
    stream.write("lost\n")
    stream.flush()
    assert stream._stream.closed is False
    with pytest.raises(OSError, match="Input/output"):
        os.write(stream.fileno(), b"x")
    # What is left in its buffer cannot be written either.
    with pytest.raises(OSError, match="Input/output"):
        stream._stream.close()
