"""Which jobs of a list shall run, by patterns of their names."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import islice

from headway.core.errors import UsageError
from headway.core.job import Job
from headway.core.jobfields import show

_SHOWN = 8


def kept(jobs: Sequence[Job], patterns: Sequence[str]) -> Sequence[Job]:
    """The jobs that patterns of the shell choose, in the order of the list.

    A job is kept if any pattern matches its whole name, and none of those that begin with ``!``
    does; where all begin with ``!``, the others are kept.

    Args:
        jobs: The whole list.
        patterns: As in `fnmatch`; without any, all jobs are kept.

    Raises:
        UsageError: A pattern matches no job, none is kept, or one is kept without a job that it
            runs after or starts together with.

    >>> jobs = [Job(name=name, command="x", folder="/") for name in ("cnn", "lstm-1", "lstm-2")]
    >>> [job.name for job in kept(jobs, ["lstm-*", "!*-2"])]
    ['lstm-1']
    """
    if not patterns:
        return jobs
    chosen, wanted = [True] * len(jobs), [p for p in patterns if not p.startswith("!")]
    if wanted:
        matches = [_matches(jobs, pattern, pattern) for pattern in wanted]
        chosen = [any(of_job) for of_job in zip(*matches, strict=True)]
    for pattern in patterns:
        if pattern.startswith("!"):
            left_out = _matches(jobs, pattern[1:], pattern)
            chosen = [keep and not out for keep, out in zip(chosen, left_out, strict=True)]
    found = [job for job, keep in zip(jobs, chosen, strict=True) if keep]
    if not found:
        given = " ".join(f"'{show(pattern)}'" for pattern in patterns)
        raise UsageError(f"--filter {given} keeps none of {len(jobs)} jobs; nothing was started")
    _check_company(jobs, found)
    return found


def _matches(jobs: Sequence[Job], pattern: str, given: str) -> list[bool]:
    found = [fnmatchcase(job.name, pattern) for job in jobs]
    if not any(found):
        names = ", ".join(show(job.name) for job in islice(jobs, _SHOWN))
        more = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
        raise UsageError(
            f"--filter '{show(given)}' matches the name of no job; there are: {names}{more}"
        )
    return found


def _check_company(jobs: Sequence[Job], found: Sequence[Job]) -> None:
    """Refuse to leave out what a kept job needs: it would start too early, or never.

    Raises:
        UsageError: Both jobs are named.
    """
    names = {job.name for job in found}
    groups: dict[str | None, str] = {job.group: job.name for job in found}
    for job in found:
        for name in job.after:
            if name not in names:
                raise _torn(job.name, f"runs after {_quoted(name)}", name)
    for job in jobs:
        if job.group is not None and job.group in groups and job.name not in names:
            other = groups[job.group]
            raise _torn(other, f"starts together with {_quoted(job.name)}", job.name)


def _torn(kept_name: str, needs: str, left_out: str) -> UsageError:
    return UsageError(
        f"--filter keeps {_quoted(kept_name)}, which {needs}, but leaves that one out; add "
        f"--filter '{show(left_out)}', or leave both out"
    )


def _quoted(name: str) -> str:
    return f'"{show(name)}"'
