"""What a shell offers to complete. Asked at every Tab: it is silent, starts nothing, and is fast.

Typer writes the shells' scripts and finds out what is being typed; here is what it cannot know.
Only light modules are loaded: no noun, and of a run only its list of jobs.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import typer

from headway.cli import COMPLETE
from headway.core.folder import Folder
from headway.core.index import RUNS_FOLDER, is_run_folder, recent_runs

_MOST_RUNS = 20
# Longer lists are not read: what is there must be there at once.
_LIST_BYTES = 4 * 2**20
# Names are strangers' words, and shells evaluate what they are offered: what a shell could take for
# more than a word is not offered. Bash parts words at = and : too, and would repeat what stands
# before.
_SAFE = re.compile(r"[\w@%+,./-][\w@%+=:,./-]*")
_SAFE_IN_BASH = re.compile(r"[\w@%+,./-]+")


def answer(command: Callable[..., object]) -> int:
    """Answer a shell that asks; whatever is wrong, it is told nothing."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        try:
            command([], standalone_mode=False, prog_name="headway")
        except Exception:
            return 1
    return 0


def runs(incomplete: str) -> list[str]:
    """Names of runs, newest first, and paths of those here where one is begun."""
    return _offered(_run_names(), incomplete)


def runs_and_jobs(context: typer.Context, incomplete: str) -> list[str]:
    """For ``[RUN] [JOB]...``: runs and jobs of the newest one here, then jobs of the run given."""
    given: list[str] = list(context.params.get("words") or ())
    if not given:
        return _offered([*_jobs_of(_newest()), *_run_names()], incomplete)
    run = _run_called(given[0])
    jobs = _jobs_of(run or _newest())
    return _offered((name for name in jobs if name not in given), incomplete)


def modes(incomplete: str) -> list[str]:
    """Modes of a run."""
    from headway.core.plan import MODES

    return _offered(("auto", *MODES), incomplete)


def _offered(names: Iterable[str], incomplete: str) -> list[str]:
    safe = _SAFE_IN_BASH if "bash" in os.environ.get(COMPLETE, "") else _SAFE
    begun = (name for name in dict.fromkeys(names) if name.startswith(incomplete))
    return [name for name in begun if safe.fullmatch(name)]


def _run_names() -> Iterator[str]:
    here = Path(RUNS_FOLDER).absolute()
    for path in recent_runs(limit=_MOST_RUNS):
        yield path.name
        if path.parent == here:
            yield f"{RUNS_FOLDER}/{path.name}"


def _newest() -> Path | None:
    return next(iter(recent_runs(here=True, limit=1)), None)


def _run_called(word: str) -> Path | None:
    """The run that a word names, as the front door's `open_run` finds it."""
    candidates = [Path(word)]
    if "/" not in word:
        candidates = [Path(RUNS_FOLDER) / word, *candidates, *recent_runs(limit=None)]
    name = Path(word).name
    return next((path for path in candidates if path.name == name and is_run_folder(path)), None)


def _jobs_of(run: Path | None) -> list[str]:
    if run is None:
        return []
    try:
        with Folder.open(run.absolute()) as folder:
            jobs = json.loads(folder.read_bytes("jobs.json", limit=_LIST_BYTES))["jobs"]
        return [str(job["name"]) for job in jobs]
    except (OSError, ValueError, LookupError, TypeError):
        return []
