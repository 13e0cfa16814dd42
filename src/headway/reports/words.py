"""How a result is told: the words that the terminal and the page share.

Everything here is text as strangers wrote it or figures as people read them; whoever shows it makes
it harmless for the place where it is shown.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from headway.core.estimate import Estimate
from headway.core.run import JobResult, Result

NOT_KNOWN = "not known"
ABOUT_EQUAL = 1.05
# Bounds beyond this come of a time alone that may be nothing: they say nothing.
MOST_TIMES = 1000.0
_TOLD = frozenset({"running", "ok", "waiting"})


def spoken_seconds(seconds: float) -> str:
    """A duration within a sentence.

    >>> spoken_seconds(3.21), spoken_seconds(118.2), spoken_seconds(7384)
    ('3.2 s', '1 min 58 s', '2 h 03 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


def core_list(cores: Sequence[int] | None) -> str:
    """Core ids as people write them.

    >>> core_list((0, 1, 2, 5)), core_list((3,)), core_list(None)
    ('0-2,5', '3', '-')
    """
    if not cores:
        return "-"
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def times(ratio: float) -> str:
    """How many times as much, with digits that mean something.

    >>> times(1.063), times(0.4), times(23.44)
    ('1.06', '0.40', '23.4')
    """
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def tells(estimate: Estimate | None) -> bool:
    """Whether an estimate says anything: a value that is finite, and of a ratio not nothing."""
    if estimate is None or not math.isfinite(estimate.value):
        return False
    return estimate.unit != "ratio" or 0 < estimate.value < MOST_TIMES


def value_words(estimate: Estimate | None, show: Callable[[float], str]) -> str:
    """The value of an estimate, or that it is not known."""
    return show(estimate.value) if estimate is not None and tells(estimate) else NOT_KNOWN


def bounds_words(estimate: Estimate | None, show: Callable[[float], str]) -> str:
    """The bounds of an estimate; "" where nothing is known.

    >>> wide = Estimate(
    ...     value=2, low=1, high=float("inf"), unit="ratio", origin="assumed", source="a guess"
    ... )
    >>> bounds_words(wide, times), bounds_words(wide.model_copy(update={"high": 3.0}), times)
    ('1.00 or more', '1.00 to 3.00')
    """
    if estimate is None or not tells(estimate):
        return ""
    most = MOST_TIMES if estimate.unit == "ratio" else math.inf
    if estimate.high >= most:
        return f"{show(estimate.low)} or more"
    return f"{show(estimate.low)} to {show(estimate.high)}"


def spoken_bounds(estimate: Estimate) -> str:
    """The bounds of a time within a sentence."""
    return bounds_words(estimate, spoken_seconds)


def origin_words(estimate: Estimate) -> str:
    """Where an estimate comes from, and how often its bounds are meant to hold.

    >>> origin_words(Estimate(value=1, low=1, high=1, unit="s", origin="measured", source="a run"))
    'measured: a run; 80% bounds'
    """
    source = estimate.source
    if not source.startswith(estimate.origin):
        source = f"{estimate.origin}: {source}"
    return f"{source}; {estimate.coverage:.0%} bounds"


def where_it_fell(seconds: float | None, predicted: Estimate | None) -> str:
    """Whether what was measured lies within the bounds of what was predicted; "" for no telling.

    >>> told = Estimate(value=2, low=1, high=3, unit="s", origin="modelled", source="a plan")
    >>> [where_it_fell(seconds, told) for seconds in (0.5, 3.0, 3.1, None)]
    ['below', 'inside', 'above', '']
    """
    if seconds is None or predicted is None or not tells(predicted):
        return ""
    if seconds < predicted.low:
        return "below"
    return "inside" if seconds <= predicted.high else "above"


def sentence(result: Result) -> str:
    """What happened, in one sentence or two."""
    counts = Counter(job.status for job in result.jobs)
    words = [f"{counts['ok']} of {len(result.jobs)} ok"]
    words += [f"{n} {status}" for status, n in counts.most_common() if status != "ok"]
    begin = "Interrupted: " if result.outcome == "interrupted" else ""
    parts = [begin + ", ".join(words) + "."]
    elapsed_s = result.end - result.start
    own_s = sum(job.seconds or 0.0 for job in result.jobs)
    if own_s > 0 and elapsed_s > 0:
        parts.append(spoken_seconds(elapsed_s))
        if len(result.jobs) > 1:
            parts[-1] += f"; {_against_serial(result, own_s, elapsed_s)}"
        parts[-1] += "."
    return " ".join(parts)


def going_on(result: Result, left: Estimate | None) -> str:
    """How a run that goes on stands, in two sentences."""
    counts = Counter(job.status for job in result.jobs)
    words = [f"{counts['running']} running", f"{counts['ok']} of {len(result.jobs)} ok"]
    words += [f"{n} {status}" for status, n in counts.most_common() if status not in _TOLD]
    words.append(f"{counts['waiting']} waiting")
    time = f"{spoken_seconds(result.seconds)} so far"
    if left is not None and tells(left):
        time += f", about {spoken_seconds(left.value)} left ({spoken_bounds(left)})"
    return f"{', '.join(words)}. {time}."


def _against_serial(result: Result, own_s: float, elapsed_s: float) -> str:
    """How much faster than one after another, or, where nobody knows, how many ran at once."""
    serial, speed_up = result.serial, result.weighted_speed_up
    if serial is None or speed_up is None or not (tells(serial) and tells(speed_up)):
        return (
            f"the jobs' own times add up to {spoken_seconds(own_s)} "
            f"({own_s / elapsed_s:.2f} at once on average)"
        )
    reckoned = "" if serial.origin == "measured" else ", reckoned"
    return (
        f"one after another would have taken {spoken_seconds(serial.value)} "
        f"({spoken_bounds(serial)}{reckoned}): {faster_words(speed_up.value)}"
    )


def faster_words(speed_up: float) -> str:
    """How much faster something was, or slower.

    >>> faster_words(2.31), faster_words(1.02), faster_words(0.5)
    ('2.3 times faster', 'about as fast', '2.0 times slower')
    """
    if speed_up >= ABOUT_EQUAL:
        return f"{speed_up:.1f} times faster"
    return "about as fast" if speed_up > 1 / ABOUT_EQUAL else f"{1 / speed_up:.1f} times slower"


def noted(result: Result) -> list[tuple[tuple[str, ...], str]]:
    """What is worth knowing: for each note, the jobs that it is about (none: the run), once."""
    by_text: dict[str, list[str]] = {}
    for job in result.jobs:
        for note in job.notes:
            by_text.setdefault(note, []).append(job.name)
    return [
        *(((), note) for note in result.notes),
        *((tuple(names), note) for note, names in by_text.items()),
    ]


def telling(jobs: Sequence[JobResult], *, most_off: int, slowest: int) -> list[int]:
    """Which jobs to show of many: those that are not ok and the slowest, in the list's order."""
    off = [index for index, job in enumerate(jobs) if job.status not in ("ok", "waiting")]
    fine = [index for index, job in enumerate(jobs) if job.status == "ok"]
    fine.sort(key=lambda index: -(jobs[index].seconds or 0.0))
    return sorted([*off[:most_off], *fine[:slowest]])
