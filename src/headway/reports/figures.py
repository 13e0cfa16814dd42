"""The figures of a whole run in words: values, bounds, and where they come from."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.core.estimate import Estimate
from headway.core.run import JobResult, Result
from headway.core.units import show_bytes
from headway.reports.happened import Happened
from headway.reports.harmless import clean
from headway.reports.words import (
    NOT_KNOWN,
    bounds_words,
    faster_words,
    origin_words,
    spoken_bounds,
    spoken_seconds,
    tells,
    times,
    where_it_fell,
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the run: what it is, its value and its bounds in words, and where it is from."""

    label: str
    value: str
    bounds: str = ""
    about: str = ""


def how_words(result: Result, happened: Happened) -> str:
    """How the run was carried out, and on what."""
    machine = happened.machine
    words = f"Plan: {result.mode}"
    if happened.plan.reason:
        words += f": {clean(happened.plan.reason)}"
    cores = f"{machine.usable_cores} core" + ("s" if machine.usable_cores > 1 else "")
    return f"{words}. On {cores} with {show_bytes(machine.capacity_bytes)} for jobs."


def figures_of(result: Result, happened: Happened) -> list[Figure]:
    """The figures of a run whose texts are harmless; what is not known is said to be so."""
    if happened.live:
        return [
            _so_far(result),
            _figure(
                "Left",
                happened.left,
                spoken_seconds,
                otherwise="steps or their number are not known of every job yet",
            ),
            _memory(result, happened),
            _within(result.jobs),
        ]
    return [
        _time(result),
        _figure(
            "One after another",
            result.serial,
            spoken_seconds,
            about=_faster(result.weighted_speed_up),
            otherwise="what each job takes alone with its own threads is not known of all that "
            "ended ok",
        ),
        _figure(
            "Weighted speed-up (STP)",
            result.weighted_speed_up,
            times,
            about="the time one after another, by the time that it took",
            otherwise="it is reckoned from the time one after another",
        ),
        _figure(
            "Mean slowdown (ANTT)",
            result.mean_slowdown,
            times,
            about="a job's time by its time alone with its own threads, the mean of all that ended "
            "ok",
            otherwise="it is reckoned from each job's time alone",
        ),
        _limit(result.limited_by),
        _memory(result, happened),
        _within(result.jobs),
    ]


def _figure(
    label: str,
    estimate: Estimate | None,
    show: Callable[[float], str],
    *,
    about: str = "",
    otherwise: str,
) -> Figure:
    """An estimate as a figure; `otherwise` says why it is not known."""
    if estimate is None or not tells(estimate):
        return Figure(label, NOT_KNOWN, about=otherwise)
    origin = clean(origin_words(estimate))
    return Figure(
        label,
        show(estimate.value),
        bounds_words(estimate, show),
        f"{about}; {origin}" if about else origin,
    )


def _time(result: Result) -> Figure:
    predicted = result.predicted
    took = spoken_seconds(result.seconds)
    if predicted is None or not tells(predicted):
        return Figure("Makespan", took, about="it was not predicted")
    words = f"predicted {spoken_seconds(predicted.value)} ({spoken_bounds(predicted)})"
    if result.outcome != "interrupted":
        words += f": {where_it_fell(result.seconds, predicted)}"
    return Figure(
        "Makespan",
        took,
        words,
        clean(origin_words(predicted)),
    )


def _so_far(result: Result) -> Figure:
    predicted = result.predicted
    if predicted is None or not tells(predicted):
        return Figure("So far", spoken_seconds(result.seconds), about="it was not predicted")
    words = f"of {spoken_seconds(predicted.value)} predicted ({spoken_bounds(predicted)})"
    return Figure("So far", spoken_seconds(result.seconds), words, clean(origin_words(predicted)))


def _faster(speed_up: Estimate | None) -> str:
    if speed_up is None or not tells(speed_up):
        return ""
    return f"side by side it was {faster_words(speed_up.value)}"


def _limit(limited_by: str) -> Figure:
    what, _, how = limited_by.partition(": ")
    return Figure("Limited by", what or "nothing that could be told", how)


def _memory(result: Result, happened: Happened) -> Figure:
    """The most that all jobs held at one look; of one job its own peak, which misses nothing."""
    largest = max((job.peak_bytes or 0 for job in result.jobs), default=0)
    together = int(max(happened.curves.most_together, largest))
    if not together:
        return Figure("Memory peak", "not measured")
    return Figure(
        "Memory peak",
        show_bytes(together),
        f"of {show_bytes(happened.machine.capacity_bytes)} for jobs",
        f"of all jobs together, looked at now and then; the largest alone took "
        f"{show_bytes(largest or None)}",
    )


def _within(jobs: Sequence[JobResult]) -> Figure:
    fell = Counter(where_it_fell(job.seconds, job.predicted) for job in jobs if job.status == "ok")
    told = fell["inside"] + fell["above"] + fell["below"]
    if not told:
        return Figure("Jobs' times predicted", "none")
    return Figure(
        "Jobs' times predicted",
        f"{fell['inside']} of {told} inside their bounds",
        about=f"{fell['above']} took longer, {fell['below']} less long",
    )
