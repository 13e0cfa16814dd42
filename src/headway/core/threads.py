"""How many threads a job computes with when nobody divides them."""

import re
import shlex
from collections.abc import Mapping

from headway.core.environment import THREAD_VARIABLES
from headway.core.job import Job
from headway.core.machine import Machine

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_BEFORE_ASSIGNMENTS = {"env", "export", ";", "&&", "\n"}


def default_threads(job: Job, machine: Machine, environment: Mapping[str, str]) -> int:
    """The count that a job takes by itself: what its user set for it, else a thread a core.

    >>> from headway.testing.machines import fake_machine
    >>> job = Job(name="a", command="OMP_NUM_THREADS=3 python train.py", folder="/x")
    >>> default_threads(job, fake_machine(cores=8), {})
    3
    """
    return job.threads or own_threads(job, environment) or machine.usable_cores


def own_threads(job: Job, environment: Mapping[str, str]) -> int | None:
    """The thread count that the user set for a job outside `threads=`: command, env, caller."""
    for name in THREAD_VARIABLES:
        for text in (
            _leading(job.command).get(name),
            dict(job.env).get(name),
            environment.get(name),
        ):
            # OMP_NUM_THREADS may be a list for nested levels; the first entry is the outer one.
            first = (text or "").split(",")[0].strip()
            if first.isdigit() and int(first) > 0:
                return int(first)
    return None


def _leading(command: str) -> dict[str, str]:
    """Assignments in front of a shell command: ``A=1 B=2 python ...``, also after env or export.

    >>> _leading("export A=1; B='2 3' env C=4 python train.py D=5")
    {'A': '1', 'B': '2 3', 'C': '4'}
    """
    try:
        # Shells end a word at these too; quotes are taken off.
        lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|\n")
        lexer.whitespace = " \t\r"
        words = list(lexer)
    except ValueError:
        return {}
    found: dict[str, str] = {}
    for word in words:
        assignment = _ASSIGNMENT.fullmatch(word)
        if assignment:
            found[assignment[1]] = assignment[2]
        elif word not in _BEFORE_ASSIGNMENTS:
            break
    return found
