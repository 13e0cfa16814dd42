"""What the user gave: one command and what it asks for."""

import posixpath
import re
import shlex
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from headway.core.environment import Environment
from headway.core.noun import Noun

Name = Annotated[str, Field(min_length=1, max_length=200)]
Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]

MIG_PROFILE = re.compile(r"[1-9]g\.[1-9]\d{0,2}gb(?:[+-](?:me|gfx|me\.all))?")

_RUNNER = re.compile(r"^(python|pypy)[\d.]*$")
# Of torchrun, torch.distributed.run and accelerate; "auto" and "gpu" mean one a GPU.
_PROCESSES = re.compile(
    r"--(?:nproc[-_]per[-_]node|num[-_]processes)[= ](\d{1,4}|auto|gpu)(?![\w.])"
)
_SCRIPT = re.compile(r"\.(py|sh|R|jl)$")


class Job(Noun):
    """A shell command with its folder and the resources it asks for; None means not said.

    Jobs of a higher `priority` leave the queue earlier, equal ones in the order of the file.
    `threads` is a count the user pinned; `cores` defaults to it. `env` holds only values that the
    job file itself states. `group` members start together, `after` names jobs that must end ok
    first. `devices` are those the user named, by index, and `collocation` how the job is to share
    them with the others on them: "mps", the MIG profile of a slice of its own, or "" where nothing
    was said. `line` is the line of the job file, 0 where there is none.
    """

    name: Name
    command: Annotated[str, Field(min_length=1)]
    folder: str
    memory_bytes: Bytes | None = None
    gpu_memory_bytes: Bytes | None = None
    cores: Annotated[int, Field(ge=1)] | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None
    threads: Annotated[int, Field(ge=1)] | None = None
    timeout_s: Seconds | None = None
    stall_timeout_s: Seconds | None = None
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    env: tuple[tuple[str, str], ...] = ()
    after: tuple[Name, ...] = ()
    group: Name | None = None
    devices: tuple[Annotated[int, Field(ge=0)], ...] = ()
    collocation: str = ""
    mode: Literal["alone", "shared"] = "shared"
    priority: Annotated[int, Field(ge=-100_000, le=100_000)] = 0
    line: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _threads_fit_cores(self) -> Self:
        if self.threads and self.cores and self.threads < self.cores:
            raise ValueError(f"cores={self.cores} is more than threads={self.threads}")
        return self

    @model_validator(mode="after")
    def _shares_named_devices(self) -> Self:
        way = self.collocation
        if way not in ("", "mps") and not MIG_PROFILE.fullmatch(way):
            raise ValueError(f"collocation={way!r} is neither mps nor a MIG profile")
        if way and not self.devices:
            raise ValueError(f"collocation={way} without the devices that it is meant for")
        return self

    @property
    def mig_profile(self) -> str:
        """The MIG profile of the slice that the job is to have; "" where it is to have none."""
        return "" if self.collocation == "mps" else self.collocation

    @property
    def processes(self) -> int:
        """How many processes of it compute at once, as far as its command tells.

        >>> [
        ...     Job(name="a", command=command, folder="/x").processes
        ...     for command in ("python train.py", "torchrun --nproc-per-node=2 train.py")
        ... ]
        [1, 2]
        """
        found = _PROCESSES.search(self.command)
        if found is None:
            return 1
        return int(found[1]) if found[1].isdecimal() else max(1, self.gpus or 1)

    @cached_property
    def script(self) -> str:
        """What the command runs, without its arguments: the key under which peaks are learnt.

        >>> Job(name="a", command="OMP_NUM_THREADS=1 python -u train.py --lr 1", folder="/x").script
        '/x/train.py'
        """
        return script_of(self.command, self.folder)


class Jobs(Noun):
    """The list as it stands in jobs.json, in the order of the file.

    `environment` is the fingerprint of the caller's variables when the run was made; `notes` say
    what the reader left out.
    """

    source: str
    environment: Environment | None = None
    jobs: tuple[Job, ...]
    notes: tuple[str, ...] = ()


def script_of(command: str, folder: str) -> str:
    """The script or module or program that a shell command runs, as far as its words tell."""
    try:
        words = shlex.split(command.replace("\\\n", ""), comments=True)
    except ValueError:
        return command
    while words and re.match(r"^[A-Za-z_]\w*=", words[0]):
        words.pop(0)
    for index, word in enumerate(words):
        if word == "-m" and index + 1 < len(words):
            return "-m " + words[index + 1]
        if _SCRIPT.search(word):
            return posixpath.normpath(posixpath.join(folder, word))
        if index == 0 and not _RUNNER.match(posixpath.basename(word)):
            runner = word
            if runner in {"cd", "sh", "bash", "env", "nice", "time", "timeout", "torchrun"}:
                continue
            return runner
    return command
