"""The front door's verbs as commands: the only room that prints.

    app.py         what can be typed: commands, options, help
    foreground.py  a run in the foreground: first line, progress, signals, result
    looks.py       verbs that look at a run or ask something of it
    logs.py        what jobs wrote
    cleaning.py    taking runs off the disk
    completion.py  what a shell offers to complete
    screens.py     a result as text          machine.py   the machine as text
    progress.py    a run while it runs       live.py      the same as a table that redraws
    layout.py      tables that fit a width   objects.py   --json
    signals.py     Ctrl-C and its relatives
    terminal.py    what the terminal can do, and writing to one that may be gone

Nothing but app.py and what it needs is loaded for `--help`.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

COMPLETE = "_HEADWAY_COMPLETE"  # set by a shell that asks what could be typed
INTERRUPTED = 130
BROKEN = 70  # EX_SOFTWARE of sysexits.h: a bug of ours


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Do what was typed and exit: the `headway` script.

    Args:
        arguments: Words after the program's name; those of this process by default.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    code = dispatch(words)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # Nobody reads any more (`headway status | head -1`, a closed terminal). Python would
            # flush again at its end, complain, and exit with 120.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def dispatch(words: list[str]) -> int:
    """Do what was typed; returns the exit code. Errors are one line on stderr."""
    from headway.cli.app import Typed, app, help_of

    if os.environ.get(COMPLETE):
        from headway.cli.completion import answer

        return answer(app)
    typed, words = Typed.split(words)
    try:
        command, path, words = help_of(words) or (app, "headway", words)
        code = command(words, standalone_mode=False, prog_name=path, obj=typed)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except Exception as error:
        return _error(error, typed)
    return code if isinstance(code, int) else 0


def _error(error: Exception, typed: Any) -> int:
    import typer

    from headway.cli.terminal import NobodyReads

    if isinstance(error, NobodyReads):
        return 0
    if isinstance(error, typer.Abort):  # what some versions of typer make of Ctrl-C
        return _complain("interrupted", INTERRUPTED)
    message = getattr(error, "format_message", None)
    if message is not None:  # typer's own: what was typed is off
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "headway"
        return _complain(f"{message()} See: {path} --help", 2)
    from headway.core.errors import HeadwayError

    if isinstance(error, HeadwayError):
        return _complain(str(error), error.exit_code)
    if isinstance(error, TimeoutError):
        return _complain(str(error), 1)
    if typed.verbose:
        import traceback

        traceback.print_exception(error)
    hint = "" if typed.verbose else " (-v shows where)"
    what = f"{type(error).__name__}: {error}"
    return _complain(f"this is a bug in Headway, please report it{hint}: {what}", BROKEN)


def _complain(message: str, code: int) -> int:
    from headway.cli.terminal import Screen, say

    say(f"headway: {' '.join(Screen.of(sys.stderr).clean(message).split())}")
    return code
