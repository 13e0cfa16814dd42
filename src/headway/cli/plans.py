"""`headway plan`: the candidates, the choice and why, and the plan as a file."""

import os
import sys
from pathlib import Path
from typing import Any

from headway import front
from headway.cli import objects
from headway.cli.foreground import Manner
from headway.cli.layout import Column, table
from headway.cli.screens import quoted, shown_path, spoken_bounds, spoken_seconds, wrapped
from headway.cli.terminal import Screen, give
from headway.core.errors import BadFile, UsageError
from headway.core.plan import Plan
from headway.core.units import show_bytes
from headway.forecast.queue import Forecast, JobForecast
from headway.planning import Planned

PLAN_FILE = "plan.json"
INFEASIBLE = 8

_COLUMNS = (
    Column("mode"),
    Column("makespan, predicted", right=True),
    Column("", keep=90),
    Column("memory peak", keep=50, right=True),
    Column("how", keep=70, most=60),
    Column("", keep=95),
)


def plan(
    jobs: str,
    on: str | None,
    out: str | None,
    keep_threads: bool,
    manner: Manner,
    *,
    allow_mig: bool,
) -> int:
    """Choose, show, and write the plan; gives the exit code.

    Raises:
        DoesNotFit: No job can run.
        UsageError: The plan cannot be written there.
    """
    planned = front.plan(jobs, on=on, keep_threads=keep_threads, allow_mig=allow_mig)
    path = Path(out or PLAN_FILE)
    _write(planned.plan, path)
    if manner.json:
        give(objects.show(_data(planned, path)))
        return 0
    screen = Screen.of(sys.stdout)
    lines = [] if manner.quiet else _lines(planned, screen)
    again = f"headway run {quoted(jobs)} --plan {shown_path(path.absolute())}"
    lines.append(
        f"{screen.clean(shown_path(path.absolute()))} written."
        + ("" if on is not None else f" Run it: {screen.clean(again)}")
    )
    give("\n".join(lines))
    return 0


def _write(made: Plan, path: Path) -> None:
    """Write a plan; only a plan is ever overwritten."""
    try:
        Plan.from_json(path.read_bytes(), source=str(path))
    except FileNotFoundError:
        pass
    except (BadFile, OSError):
        raise UsageError(
            f"{path} exists and is not a plan; it is left alone. Choose another name: --out FILE"
        ) from None
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(made.to_json(indent=1) + "\n")
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); use --out FILE") from None


def _lines(planned: Planned, screen: Screen) -> list[str]:
    lines: list[str] = []
    for words in planned.recall.words:
        lines += wrapped(words, screen)
    lines.append("")
    lines += table(
        _COLUMNS,
        [_row(one, one is planned.choice.chosen) for one in planned.forecasts],
        width=screen.width,
        ending=screen.ending,
    )
    lines.append("")
    lines += wrapped(_verdict(planned), screen)
    lines += _infeasible(planned.choice.chosen, screen)
    for note in planned.notes:
        lines += wrapped(screen.clean(note), screen, lead="note: ")
    return lines


def _row(one: Forecast, chosen: bool) -> list[str]:
    known = one.makespan.known
    return [
        one.plan.title,
        spoken_seconds(one.makespan.value) if known else "not known",
        f"({spoken_bounds(one.makespan)})" if known else "",
        show_bytes(one.peak_bytes.value) if one.peak_bytes.known else "-",
        "does not fit in memory" if one.lost else one.plan.reason,
        "<- chosen" if chosen else "",
    ]


def _verdict(planned: Planned) -> str:
    choice = planned.choice
    words = [f"Chosen: {choice.chosen.plan.title}. {choice.reason[:1].upper()}{choice.reason[1:]}."]
    runner_up, chosen = choice.runner_up, choice.chosen
    if runner_up is not None and choice.margin is not None and choice.margin > 0:
        apart = runner_up.makespan.low > chosen.makespan.high
        overlap = "the intervals do not overlap" if apart else "the intervals overlap"
        words.append(f"Runner-up: {runner_up.plan.title}, {choice.margin:.0%} longer; {overlap}.")
    return " ".join(words)


def _infeasible(chosen: Forecast, screen: Screen) -> list[str]:
    """What can never be placed: a line a job, or a group that starts together."""
    never = [job for job in chosen.jobs if job.status == "infeasible"]
    told = list(dict.fromkeys((_unit(job), job.reason) for job in never))
    lines = []
    for unit, reason in told[:INFEASIBLE]:
        lines += wrapped(f"infeasible {screen.clean(unit)}: {screen.clean(reason)}", screen)
    if len(told) > INFEASIBLE:
        lines.append(f"and {len(told) - INFEASIBLE} more that cannot be placed; --json has all")
    return lines


def _unit(job: JobForecast) -> str:
    return job.name if job.group is None else f"group {job.group}"


def _data(planned: Planned, path: Path) -> dict[str, Any]:
    choice = planned.choice
    return {
        "chosen": choice.chosen.plan.mode,
        "reason": choice.reason,
        "runner_up": None if choice.runner_up is None else choice.runner_up.plan.mode,
        "margin": choice.margin,
        "plan": str(path),
        "known": list(planned.recall.words),
        "notes": list(planned.notes),
        "candidates": [
            {
                "mode": one.plan.mode,
                "way": one.plan.division.way,
                "makespan": one.makespan.model_dump(mode="json") if one.makespan.known else None,
                "peak_bytes": one.peak_bytes.model_dump(mode="json")
                if one.peak_bytes.known
                else None,
                "fits": not one.lost,
            }
            for one in planned.forecasts
        ],
        "jobs": [
            {
                "name": job.name,
                "group": job.group,
                "status": job.status,
                "reason": job.reason,
                "start_s": job.start_s,
                "end_s": job.end_s,
                "duration": None if job.duration is None else job.duration.model_dump(mode="json"),
            }
            for job in choice.chosen.jobs
        ],
    }
