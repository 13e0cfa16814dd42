"""Other people's processes in words: who runs what, without giving away what they typed."""

import pwd
from dataclasses import dataclass
from pathlib import Path

from headway.core.text import mask, plain, shorten
from headway.system.procfs import PROC, cmdline, entry, uid_of

_COMMAND_COLUMNS = 60


@dataclass(frozen=True, slots=True)
class Who:
    """The user of a process and its command, masked and cut for a screen."""

    user: str
    name: str
    command: str


def owner_and_command(pid: int, *, proc: Path = PROC) -> Who | None:
    """Who runs this process, or None where there is no such process (any more)."""
    found, uid = entry(pid, proc), uid_of(pid, proc)
    if found is None or uid is None:
        return None
    name = plain(found.name)
    # Kernel threads, and processes of others on a machine that hides them, have no command line.
    command = shorten(plain(mask(" ".join(cmdline(pid, proc)))), _COMMAND_COLUMNS) or name
    return Who(user_name(uid), name, command)


def user_name(uid: int) -> str:
    """The name of a user, or the number where the machine knows no name for it."""
    try:
        return plain(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)
