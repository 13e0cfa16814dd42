"""A run in the foreground: its folder first, progress on stderr, signals, then the result."""

import contextlib
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from headway.cli import objects
from headway.cli.progress import EventLog, Progress
from headway.cli.screens import report, shown_path, wrapped
from headway.cli.signals import Interrupts, words_for
from headway.cli.terminal import NobodyReads, Screen, give, say
from headway.core.run import Result
from headway.core.view import View
from headway.core.words import Event
from headway.handle import RunHandle


@dataclass(frozen=True, slots=True)
class Manner:
    """How much is shown, and in which form."""

    json: bool = False
    quiet: bool = False
    progress: bool = True


def supervise(handle: RunHandle, manner: Manner, *, again: Collection[int] = ()) -> int:
    """Drive a run to its end, show how it ended, and give its exit code."""
    screen = Screen.of(sys.stderr)
    say(f"run folder: {screen.clean(shown_path(handle.path))}")
    # Only where the run begins: one that goes on was told, or is refused.
    told_plan = manner.progress and not manner.quiet and not handle.begun
    with Interrupts() as interrupts, _progress(handle, screen, manner) as progress:
        told = 0
        if told_plan:
            plan = handle.folder.plan
            reason = screen.clean(plan.reason)
            progress.say("\n".join(wrapped(reason, screen, lead=f"plan: {plan.mode}: ")))

        def watch(event: Event, view: View) -> None:
            nonlocal told
            if interrupts.level > told:
                told = interrupts.level
                progress.say(words_for(told, len(view.running)))
            progress.see(event, view)

        result = handle.supervise(watch=watch, again=again, on_world=interrupts.attach)
        if interrupts.level > told:
            progress.say(words_for(interrupts.level, 0))
    show_result(handle, result, manner)
    return result.exit_code


def show_result(handle: RunHandle, result: Result, manner: Manner) -> None:
    """How a run ended, on stdout; its folder last."""
    if manner.json:
        text = objects.show(objects.result_object(result, path=handle.path))
    else:
        screen = Screen.of(sys.stdout)
        lines = report(
            result,
            screen,
            run=handle.name,
            path=handle.path,
            page=handle.page,
            quiet=manner.quiet,
        )
        text = "\n".join([*lines, f"run folder: {screen.clean(shown_path(handle.path))}"])
    # The run has ended well or not whether or not anybody still reads: its code is what counts.
    with contextlib.suppress(NobodyReads):
        give(text)


@contextlib.contextmanager
def _progress(handle: RunHandle, screen: Screen, manner: Manner) -> Iterator[Progress]:
    progress: Progress
    if manner.quiet or not manner.progress:
        progress = Progress(screen, sys.stderr)
    elif screen.redraws:
        from headway.cli.live import LiveTable

        title = f"{handle.folder.plan.mode}  run {screen.clean(handle.name)}"
        progress = LiveTable(screen, sys.stderr, title=title)
    else:
        progress = EventLog(screen, sys.stderr)
    try:
        yield progress
    finally:
        progress.close()
