"""Who is who in the store: digests of jobs, scripts and machines, never their words.

[Note: what a digest gives away]
Nothing can be read back from a digest, but whoever can read the store can test a guess. So what
looks like a secret (`core.text.mask`) is taken out before anything is digested; a job whose token
was renewed is also still the same job.
"""

import hashlib
import json
import os
import posixpath
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import log2

from headway.core.environment import THREAD_VARIABLES
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.text import mask, secret_name

# What decides which interpreter, packages and devices a command gets.
RELEVANT_VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "CUDA_VISIBLE_DEVICES")
NO_FILE = ""
"""The content of a script that is no file: whether it changes cannot be seen."""
UNKNOWN_CONTENT = "unknown"
"""The content of a script that was written to after its job had started: equals no other."""

_CONTENT_BYTES = 4 * 2**20
# A script's name is kept in the clear; what looks like anything else is not.
_PLAIN_NAME = re.compile(r"(-m )?[\w.+-]{1,100}")


@dataclass(frozen=True, slots=True)
class Identity:
    """A job as the store knows it: digests of itself and of its script, and the script's name.

    `script_name` is "" where the name may be more than a name. `path` is where the script lies,
    "" where the command names no file.
    """

    key: str
    script: str
    script_name: str
    path: str

    @classmethod
    def of(cls, job: Job, environment: Mapping[str, str]) -> "Identity":
        """Who a job is, started with these variables around it."""
        return cls(
            key=key_of(job, environment),
            script=kind_digest(job),
            script_name=_plain_name(job.script),
            path=path_of(job),
        )


def key_of(job: Job, environment: Mapping[str, str]) -> str:
    """The digest of what a job runs, where, and with which interpreter and packages.

    Thread counts are no part of it: how a job goes with one count and another is what is learnt.

    >>> one = Job(name="a", command="python train.py --lr 1", folder="/x")
    >>> again = one.model_copy(update={"name": "b", "env": (("OMP_NUM_THREADS", "2"),)})
    >>> key_of(one, {}) == key_of(again, {"OMP_NUM_THREADS": "8"})
    True
    >>> key_of(one, {}) == key_of(one, {"VIRTUAL_ENV": "/x/venv"})
    False
    """
    stated = {
        name: mask(value)
        for name, value in job.env
        if name not in THREAD_VARIABLES and not secret_name(name)
    }
    seen = {**environment, **dict(job.env)}
    return _digest(
        "job",
        mask(job.command),
        job.folder,
        sorted(stated.items()),
        [mask(seen.get(name, "")) for name in RELEVANT_VARIABLES],
        _interpreters(seen.get("PATH", os.defpath)),
    )


def script_digest(script: str, folder: str) -> str:
    """The digest of a script's path; a module or a program found on PATH belongs to its folder."""
    return _digest("script", mask(script), "" if posixpath.isabs(script) else folder)


def kind_digest(job: Job) -> str:
    """The digest of what a job is like as a neighbour: of its script, whatever the arguments."""
    return script_digest(job.script, job.folder)


def machine_digest(machine: Machine) -> str:
    """The digest of what decides how fast a job goes here: processor, cores, memory, GPUs.

    Not the host's name: equal nodes of a cluster, or a container made anew each day, shall know
    what was learnt on the others. Memory is rounded to a power of two, since what the kernel
    leaves of it differs from version to version, and it bounds what fits, not how fast it goes.
    """
    host = machine.host
    gpus = sorted({device.name for device in machine.devices})
    return _digest(
        "machine", host.model, machine.usable_cores, round(log2(host.memory_bytes)), gpus
    )


def path_of(job: Job) -> str:
    """Where the file lies that a job's command runs; "" where it names a program on PATH.

    >>> path_of(Job(name="a", command="python train.py --lr 1", folder="/x"))
    '/x/train.py'
    """
    script = job.script
    if script.startswith("-m "):
        stem = posixpath.join(job.folder, *script[3:].split("."))
        found = (path for path in (f"{stem}.py", f"{stem}/__main__.py") if os.path.isfile(path))
        return next(found, "")
    return posixpath.normpath(posixpath.join(job.folder, script)) if "/" in script else ""


class Contents:
    """Digests of what script files hold now; a file is read again only where it changed."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[tuple[int, int, int], str]] = {}

    def of(self, path: str, *, since_ns: int | None = None) -> str:
        """The digest of a file's first 4 MiB, or NO_FILE.

        Args:
            path: The file; "" for none.
            since_ns: When a job began to run it: UNKNOWN_CONTENT where it was written to later.
        """
        try:
            facts = os.stat(path)
            if not stat.S_ISREG(facts.st_mode):
                return NO_FILE
            if since_ns is not None and facts.st_mtime_ns > since_ns:
                return UNKNOWN_CONTENT
            mark = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
            known = self._read.get(path)
            if known is None or known[0] != mark:
                known = self._read[path] = (mark, _content(path))
        except OSError:
            return NO_FILE
        return known[1]


def _content(path: str) -> str:
    # Not blocking: between the look and here a pipe may have taken the file's place.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return hashlib.blake2b(file.read(_CONTENT_BYTES), digest_size=16).hexdigest()


def _plain_name(script: str) -> str:
    name = script if script.startswith("-m ") else posixpath.basename(script)
    return name if _PLAIN_NAME.fullmatch(name) and mask(name) == name else ""


@lru_cache(maxsize=16)
def _interpreters(path: str) -> tuple[str, ...]:
    """What `python` and `python3` mean on this PATH."""
    return tuple(shutil.which(name, path=path) or "" for name in ("python", "python3"))


def _digest(*parts: object) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
