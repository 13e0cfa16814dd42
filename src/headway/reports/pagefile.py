"""A run's page on disk: gathers what there is to show from the run folder, and writes report.html.

Logs and records lie where jobs can reach them: links, pipes and files in the place of folders are
refused, and what cannot be read is left out of the page.
"""

import contextlib
import os
from collections.abc import Sequence

from headway.core.folder import Folder
from headway.core.run import PAGE, JobResult, Result, Run
from headway.core.timeline import CounterReader, timeline_of
from headway.forecast.expected import Expected
from headway.reports.curves import Curves
from headway.reports.happened import Happened, Tail
from headway.reports.page import page

STREAMS = ("stderr", "stdout")
# Of each stream; of all of them together, so that the page of a long list can still be opened.
TAIL_BYTES = 4096
ALL_TAILS_BYTES = 512 * 1024
_LEAST_TAIL = 256


def write_page(run: Run, result: Result, *, expected: Expected | None = None) -> None:
    """Write the report of a run into its folder.

    Args:
        run: The run.
        result: How it ended, or stands.
        expected: What was expected of it when it began.

    Raises:
        OSError: It cannot be written, as on a full disk.
    """
    curves = Curves.of(CounterReader(run.folder).read_on())
    happened = gathered(run, result, expected=expected, curves=curves)
    run.folder.replace(PAGE, page(result, happened, name=run.name).encode(errors="replace"))


def gathered(run: Run, result: Result, *, expected: Expected | None, curves: Curves) -> Happened:
    """What there is to show of a run beside its result; what cannot be read is left out."""
    return Happened(
        machine=run.machine,
        plan=run.plan,
        jobs=run.jobs.jobs,
        timeline=timeline_of(run.folder),
        curves=curves,
        expected=expected,
        tails=_tails(run.folder, result.jobs),
    )


def _tails(folder: Folder, jobs: Sequence[JobResult]) -> dict[int, list[Tail]]:
    """The end of what the last attempt of each job wrote."""
    tails = {}
    with contextlib.suppress(OSError), folder.sub("jobs") as every:
        for index, size in _sizes(jobs).items():
            # A job can have put anything in the place of its folder.
            with (
                contextlib.suppress(OSError),
                every.sub(str(index + 1)) as job,
                job.sub(str(jobs[index].attempts)) as attempt,
            ):
                found = [_tail(attempt, stream, size) for stream in STREAMS]
                tails[index] = [tail for tail in found if tail is not None]
    return tails


def _sizes(jobs: Sequence[JobResult]) -> dict[int, int]:
    """How many bytes of each stream are shown: half of all is for the jobs that are not ok."""
    started = [index for index, job in enumerate(jobs) if job.attempts]
    sizes = {}
    for ok in (True, False):
        chosen = [index for index in started if (jobs[index].status == "ok") is ok]
        each = ALL_TAILS_BYTES // 2 // len(STREAMS) // max(1, len(chosen))
        for index in chosen[: ALL_TAILS_BYTES // 2 // len(STREAMS) // _LEAST_TAIL]:
            sizes[index] = min(TAIL_BYTES, max(_LEAST_TAIL, each))
    return sizes


def _tail(folder: Folder, stream: str, size: int) -> Tail | None:
    """The last `size` bytes of a stream; None where there is nothing that can be read."""
    try:
        descriptor = folder.open_file(stream, os.O_RDONLY)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        length = os.fstat(file.fileno()).st_size
        file.seek(max(0, length - size))
        content = file.read(size)
    return Tail(stream, content, cut=length > size) if content else None
