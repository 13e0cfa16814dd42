"""Names and order of a job list: each name once, and no job that can never start."""

import re
from collections import deque
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import count

from headway.core.job import Job
from headway.core.jobfields import Draft, show
from headway.core.text import plain

_SCRIPT = re.compile(r"(?<![^\s/\"'=])([^\s/\"'=]+)\.(?:py|sh|R|jl)(?![\w.-])")
_MODULE = re.compile(r"\s-m\s+(?:\w+\.)*(\w+)")
_ASSIGNED = re.compile(r"\s*(?:[A-Za-z_]\w*=\S*\s+)*")
_PROGRAM = re.compile(r"[^\W_][\w.+-]*")

# What after grids may grow to: the view keeps each wait, about 100 bytes.
_MOST_WAITS = 1_000_000

# A job waits for another: the index of the one, the index of the other.
_Wait = tuple[int, int]


def give_names(drafts: Sequence[Draft]) -> None:
    """Give every draft without a name its base or its script's, with -2, -3 ... where it is taken.

    A grid takes the name that its table states, beside those of its jobs: `after` may give it.

    Raises:
        BadJobFile: Two jobs state the same name.
    """
    taken: dict[str, Draft] = {}
    for draft in drafts:
        stating = draft if "name" in draft.fields else draft.parent
        if stating is None or (name := stating.fields.get("name")) is None:
            continue
        first = taken.setdefault(name, stating)
        if first is not stating:
            where = first.label.removesuffix(": ") or f"line {first.line}"
            raise draft.bad(f'the name "{show(name)}" is taken by {where}; give each job its own.')
    numbers: dict[str, count[int]] = {}
    for draft in drafts:
        if "name" not in draft.fields:
            base = draft.base or default_name(draft.fields["command"])
            name, number = base, numbers.setdefault(base, count(2))
            while name in taken:
                name = f"{base}-{next(number)}"
            taken[name] = draft
            draft.fields["name"] = name


def default_name(command: str) -> str:
    """What a command is called where the user does not say: its script, module or program.

    >>> [default_name(command) for command in ("A=1 python -u src/train.py", "./bin/fit -x")]
    ['train', 'fit']
    """
    head = command[:4000].replace("\\\n", "")
    if found := _SCRIPT.search(head) or _MODULE.search(head):
        name = found[1]
    else:
        words = head[_match_end(_ASSIGNED, head) :].split()
        program = _PROGRAM.search(words[0].rpartition("/")[2]) if words else None
        program = program or _PROGRAM.search(head)
        name = program[0] if program else "job"
    return plain(name)[:60].strip().lstrip("-") or "job"


def _match_end(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.match(text)
    return match.end() if match else 0


def name_grids_jobs(drafts: Sequence[Draft]) -> None:
    """Put the jobs of a grid where `after` gives the grid's name.

    Raises:
        BadJobFile: Grids after grids make too many waits.
    """
    members: dict[str, list[str]] = {}
    for draft in drafts:
        if draft.parent is not None and "name" in draft.parent.fields:
            members.setdefault(draft.parent.fields["name"], []).append(draft.fields["name"])
    waits = 0
    for draft in drafts if members else ():
        after = draft.fields.get("after", ())
        if any(name in members for name in after):
            names = dict.fromkeys(one for name in after for one in members.get(name, [name]))
            waits += len(names)
            if waits > _MOST_WAITS:
                raise draft.bad(
                    f"after: grids wait for each other's jobs more than {_MOST_WAITS:,} times; "
                    "let one job stand between them."
                )
            draft.fields["after"] = tuple(names)


def check_after(jobs: Sequence[Job], drafts: Sequence[Draft]) -> None:
    """Refuse a list in which a job could never start.

    Args:
        jobs: The jobs, each with a name of its own.
        drafts: What each was built from, for the place of an error.

    Raises:
        BadJobFile: `after` names no job, a member of the same group, or goes round in a circle; or
            a group is part alone, part shared.
    """
    indices = {job.name: index for index, job in enumerate(jobs)}
    _check_groups(jobs, drafts)
    waits: list[_Wait] = []
    for index, job in enumerate(jobs):
        for name in job.after:
            if name not in indices:
                raise drafts[index].bad(_no_such_job(name, indices))
            other = jobs[indices[name]]
            if other is job:
                raise drafts[index].bad(f'after: "{show(name)}" is the job itself.')
            if job.group is not None and job.group == other.group:
                raise drafts[index].bad(
                    f'after: "{show(name)}" is in the same group "{show(job.group)}", and a group '
                    "starts together; take it out of one of the two."
                )
            waits.append((index, indices[name]))
    if waits and (circle := _circle(jobs, waits)):
        shown = ", ".join(
            f'"{show(jobs[one].name)}" after "{show(jobs[other].name)}"'
            for one, other in circle[:6]
        )
        more = f" and {len(circle) - 6} more" if len(circle) > 6 else ""
        groups = " (members of a group start together)" if _through_groups(circle) else ""
        raise drafts[circle[0][0]].bad(
            f"after goes round in a circle: {shown}{more}{groups}; take one of them out."
        )


def _no_such_job(name: str, known: dict[str, int]) -> str:
    near = get_close_matches(name, known, n=3)
    hint = "; near: " + " ".join(f'"{show(other)}"' for other in near) if near else ""
    return f'after: there is no job "{show(name)}" in this list{hint}.'


def _check_groups(jobs: Sequence[Job], drafts: Sequence[Draft]) -> None:
    first: dict[str, Job] = {}
    for job, draft in zip(jobs, drafts, strict=True):
        if job.group is None:
            continue
        other = first.setdefault(job.group, job)
        if other.mode != job.mode:
            raise draft.bad(
                f'mode: "{show(job.name)}" is {job.mode}, but "{show(other.name)}" of its group '
                f'"{show(job.group)}" is {other.mode}; give all of a group one mode.'
            )


def _circle(jobs: Sequence[Job], waits: list[_Wait]) -> list[_Wait]:
    """Waits that close a circle, or none. A group counts as one, since it starts as one."""
    units: dict[str, int] = {}
    unit_of = [
        index if job.group is None else units.setdefault(job.group, index)
        for index, job in enumerate(jobs)
    ]
    before: dict[int, list[_Wait]] = {}
    behind: dict[int, list[int]] = {}
    for one, other in waits:
        before.setdefault(unit_of[one], []).append((one, other))
        behind.setdefault(unit_of[other], []).append(unit_of[one])
    open_waits = {unit: len(edges) for unit, edges in before.items()}
    free = deque(unit for unit in behind if unit not in open_waits)
    while free:
        for unit in behind.get(free.popleft(), ()):
            open_waits[unit] -= 1
            if not open_waits[unit]:
                del open_waits[unit]
                free.append(unit)
    if not open_waits:
        return []
    # Every unit left waits for one that is left, so this walk must come back to where it was.
    unit, seen, path = min(open_waits), {}, list[_Wait]()
    while unit not in seen:
        seen[unit] = len(path)
        wait = next(edge for edge in before[unit] if unit_of[edge[1]] in open_waits)
        path.append(wait)
        unit = unit_of[wait[1]]
    return path[seen[unit] :]


def _through_groups(circle: list[_Wait]) -> bool:
    return any(
        wait[1] != following[0]
        for wait, following in zip(circle, circle[1:] + circle[:1], strict=True)
    )
