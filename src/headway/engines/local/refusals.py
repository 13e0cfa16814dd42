"""Commands that never ran: what the kernel, or the shell, had against them, in words."""

import errno
import re

from headway.core.text import plain, shorten
from headway.engines.local.attempts import SpawnError

_MOST_NAMED = 120
_NOT_FOUND = re.compile(r"([^:]+): (?:command )?not found$|command not found: (.+)$")
_NOT_ALLOWED = re.compile(r"([^:]+): Permission denied$")


def refused_by_kernel(failure: SpawnError, cwd: str) -> str:
    """Why a command could not be started.

    Args:
        failure: What the keeper was told.
        cwd: The folder the command was to run in.

    """
    what = shorten(plain(failure.what), _MOST_NAMED)
    if cwd and failure.what == cwd:
        reasons = {
            errno.ENOENT: f'no such folder "{what}"',
            errno.ENOTDIR: f'"{what}" is not a folder',
            errno.EACCES: f'no permission to enter the folder "{what}"',
        }
    elif failure.number == errno.ENOENT and "/" not in failure.what:
        return f"command not found: {what}"
    else:
        reasons = {
            errno.ENOENT: f'no such program "{what}" (or the interpreter its first line names)',
            errno.EACCES: f'"{what}" may not be executed; chmod +x it, or name its interpreter',
            errno.ENOEXEC: f'"{what}" is not a program; does its first line lack #! ?',
            errno.E2BIG: "arguments and environment together are too long for the kernel",
        }
    return f"could not start: {reasons.get(failure.number, f'{what}: {plain(failure.message)}')}"


def refused_by_shell(exit_code: int | None, last_line: str) -> str:
    """Why a shell could not start a program, or "" where it did not say so.

    >>> refused_by_shell(127, "sh: 1: trian.py: not found")
    'command not found: trian.py (exit 127)'
    """
    if exit_code == 127 and (match := _NOT_FOUND.search(last_line)):
        name = (match[1] or match[2]).strip()
        return f"command not found: {shorten(name, _MOST_NAMED)} (exit 127)"
    if exit_code == 126 and (match := _NOT_ALLOWED.search(last_line)):
        return f"not allowed to execute: {shorten(match[1].strip(), _MOST_NAMED)} (exit 126)"
    return ""
