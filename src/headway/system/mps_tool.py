"""The programs of MPS: where they are, how one is run to its end, and what errors come of it.

    MpsError                     never raised itself
    ├── MpsMissing               the tool is not installed, or cannot be started
    ├── MpsGone                  no daemon answers in this folder
    ├── MpsSilent                no answer within the time given
    ├── MpsRefused               no: another user's daemon, no such server, a value not in force
    │   └── MpsNotOffered        the daemon does not know the command
    ├── MpsForeign               a daemon that is not ours stands where ours would
    ├── MpsNotStarted            a daemon or a server did not come up
    └── MpsOtherProtocol         it answers, but not in the language spoken here

Each says what was asked, what was answered, and what to do.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headway.core.errors import HeadwayError
from headway.core.text import plain, shorten

CONTROL_NAME = "nvidia-cuda-mps-control"
SERVER_NAME = "nvidia-cuda-mps-server"
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
LOG_VARIABLE = "CUDA_MPS_LOG_DIRECTORY"

_MOST_QUOTED = 200


class MpsError(HeadwayError):
    """Something was asked of MPS and did not come about.

    Args:
        asked: What was asked, as it was put.
        answered: What came back, in words.
        advice: What to do now.
    """

    def __init__(self, asked: str, answered: str, advice: str) -> None:
        super().__init__(f"MPS: {asked}: {answered}; {advice}")
        self.asked = asked
        self.answered = answered
        self.advice = advice


class MpsMissing(MpsError):
    """The tool is not installed here, or cannot be started."""


class MpsGone(MpsError):
    """No daemon answers in this folder."""


class MpsSilent(MpsError):
    """No answer came within the time given; whether it was done is not known."""


class MpsRefused(MpsError):
    """The daemon answered, and did not do it."""


class MpsNotOffered(MpsRefused):
    """The daemon does not know the command; older drivers know fewer."""


class MpsForeign(MpsError):
    """A daemon that Headway did not start stands where its own would."""


class MpsNotStarted(MpsError):
    """A daemon or a server did not come up."""


class MpsOtherProtocol(MpsError):
    """What answers does not speak the language spoken here (protocol 2)."""


class Executables(NamedTuple):
    """Where the two programs of MPS are."""

    control: Path
    server: Path | None
    """None where it is not on the path; the daemon looks for it itself."""


class ToolAnswer(NamedTuple):
    """What a program printed, and its exit status, which proves nothing here."""

    out: str
    err: str
    status: int


def find_executables(path: str | None = None) -> Executables:
    """The programs of MPS on the path.

    Args:
        path: Folders to look in, as in $PATH, which is the default.

    Raises:
        MpsMissing: The control program is not there.
    """
    control = shutil.which(CONTROL_NAME, path=path)
    if control is None:
        raise MpsMissing(
            CONTROL_NAME,
            "not on the path",
            "install it (it comes with the NVIDIA driver), or share the GPU in time slices",
        )
    server = shutil.which(SERVER_NAME, path=path)
    return Executables(Path(control), None if server is None else Path(server))


def run_tool(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    given: str = "",
    timeout_s: float,
) -> ToolAnswer | None:
    """Run a program to its end; None where it took too long and was killed.

    Raises:
        MpsMissing: It cannot be started.
    """
    # Files in memory and no pipes: a daemon that keeps its output open would hold up whoever reads
    # a pipe to its end, and a tool that reads nothing whoever writes to one.
    with (
        os.fdopen(os.memfd_create("given"), "w+b") as stdin,
        os.fdopen(os.memfd_create("out"), "w+b") as out,
        os.fdopen(os.memfd_create("err"), "w+b") as err,
    ):
        stdin.write(given.encode())
        stdin.seek(0)
        try:
            # A session of its own: Ctrl-C in the user's terminal is not meant for the daemon.
            process = subprocess.Popen(
                arguments, stdin=stdin, stdout=out, stderr=err, env=environment,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise MpsMissing(
                arguments[0],
                f"it cannot be started ({error.strerror})",
                "install it again, or share the GPU in time slices",
            ) from None
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None
        out.seek(0)
        err.seek(0)
        return ToolAnswer(
            out.read().decode(errors="replace").strip(),
            err.read().decode(errors="replace").strip(),
            status,
        )


def quoted(reply: str) -> str:
    r"""An answer as a part of a sentence.

    >>> quoted("Server 7 not found\n1"), quoted("")
    ('answered "Server 7 not found 1"', 'answered nothing')
    """
    if not reply:
        return "answered nothing"
    return f'answered "{shorten(plain(" ".join(reply.split())), _MOST_QUOTED)}"'
