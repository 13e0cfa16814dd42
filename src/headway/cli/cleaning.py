"""`headway clean`: which runs go, which stay and why, and how to really do it."""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from headway import front
from headway.cli import objects
from headway.cli.foreground import Manner
from headway.cli.layout import Column, table
from headway.cli.screens import shown_path, spoken_seconds, wrapped
from headway.cli.terminal import Screen, give
from headway.core.removal import Cleaned, RunFate
from headway.core.units import show_bytes

_DAY_S = 86400.0
_COLUMNS = (
    Column("run", least=20),
    Column("ended", keep=80),
    Column("last change", keep=90, right=True),
    Column("size", right=True),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """The words and options of `headway clean`."""

    runs: tuple[str, ...]
    older_than_s: float | None
    keep: int
    unfinished: bool
    yes: bool


def clean(asked: Asked, manner: Manner) -> int:
    """Remove runs or list them; 1 where one that was to go, or was named, is still there."""
    cleaned = front.clean(
        asked.runs or None,
        older_than_s=asked.older_than_s,
        keep=asked.keep,
        unfinished=asked.unfinished,
        dry_run=not asked.yes,
    )
    if manner.json:
        data = cleaned.model_dump(mode="json")
        give(objects.show({**data, "freed_bytes": cleaned.freed_bytes}))
    else:
        give("\n".join(_lines(cleaned, asked, manner, Screen.of(sys.stdout))))
    verdicts = {fate.verdict for fate in cleaned.runs}
    missed = "failed" in verdicts or (asked.runs and asked.yes and "stays" in verdicts)
    return 1 if missed else 0


def _lines(cleaned: Cleaned, asked: Asked, manner: Manner, screen: Screen) -> list[str]:
    going = [fate for fate in cleaned.runs if fate.verdict in ("goes", "gone")]
    lines = []
    if going and not manner.quiet:
        rows = [_row(fate, screen) for fate in going]
        lines += table(_COLUMNS, rows, width=screen.width, ending=screen.ending)
    for fate in cleaned.runs:
        if fate.verdict == "failed":
            text = f"{_name(fate, screen)}  {screen.clean(fate.reason)}"
            lines += wrapped(text, screen, lead="failed     ", paint="failed")
    lines += _staying(cleaned, asked, screen)
    done = "would go" if cleaned.dry_run else "removed"
    runs = "1 run" if len(going) == 1 else f"{len(going)} runs"
    lines.append(f"{runs} {done}, {show_bytes(cleaned.freed_bytes)}")
    if cleaned.forgotten and not manner.quiet:
        what = "would be forgotten" if cleaned.dry_run else "forgotten"
        gone = "1 run that is" if cleaned.forgotten == 1 else f"{cleaned.forgotten} runs that are"
        lines.append(f"{gone} gone from the disk {what}")
    if cleaned.dry_run and (going or cleaned.forgotten):
        lines.append("nothing was removed: the same with --yes does it")
    return lines


def _staying(cleaned: Cleaned, asked: Asked, screen: Screen) -> list[str]:
    """Why runs stay: one by one where they were named, else how many for which reason."""
    staying = [fate for fate in cleaned.runs if fate.verdict == "stays"]
    if asked.runs or len(staying) == 1:
        told = [(_name(fate, screen), fate.reason) for fate in staying]
    else:
        counts = Counter(fate.reason for fate in staying)
        told = [(f"{count} of them", reason) for reason, count in counts.most_common()]
    lines = []
    for who, reason in told:
        lines += wrapped(f"{who}  {screen.clean(reason)}", screen, lead="stays      ")
    return lines


def _row(fate: RunFate, screen: Screen) -> list[str]:
    state = "removed in part" if fate.state == "removed" else fate.state
    return [_name(fate, screen), state, _spoken_age(fate.age_s), show_bytes(fate.size_bytes)]


def _name(fate: RunFate, screen: Screen) -> str:
    return screen.clean(shown_path(Path(fate.run)))


def _spoken_age(age_s: float) -> str:
    """How long ago, in the unit that one thinks in.

    >>> _spoken_age(300), _spoken_age(7.2 * 86400)
    ('5 min 00 s ago', '7 days ago')
    """
    days = int(age_s // _DAY_S)
    return f"{days} days ago" if days > 1 else f"{spoken_seconds(age_s)} ago"
