"""The picture of a run: cores down, time across, what ran where, who waited, what was planned.

Geometry alone: places are percents of the width and numbers of tracks, colours are for whoever
draws it. A picture of a long list is thinned, and says so.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.run import Result
from headway.core.timeline import Span, Timeline
from headway.core.units import NS_PER_S
from headway.forecast.expected import Expected
from headway.reports.axis import Axis, Tick, show_clock
from headway.reports.happened import Happened
from headway.reports.words import core_list

MOST_BARS = 1200  # about: of thinned lists a few more where lanes differ
MOST_LANES = 64
MOST_TRACKS = 80
MOST_WAITING = 150
# More lines of a plan than this below each other's bars are a tangle.
MOST_PLANNED_JOBS = 250
# A plan that took this many times as long would leave no room for what happened.
MOST_PLANNED = 1.5
# Percent of the width: room for a number, and for a few letters of a name.
_ROOM_FOR_NUMBER = 1.4
_ROOM_FOR_NAME = 6.0
_LEAST_WIDTH = 0.12
_PLAN_TRACKS = 3
# Pixels: of a track, of one with small letters, of the thinnest, and what many tracks share.
_PITCH = 22.0
_SMALL_PITCH = 11.0
_LEAST_PITCH = 6.0
_ALL_TRACKS = 660.0


@dataclass(frozen=True, slots=True)
class Bar:
    """An attempt's start-up, or the rest of it; `job` is the index, `x` and `width` percents."""

    job: int
    x: float
    width: float
    track: int
    start_up: bool
    ok: bool
    label: str
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """A job's waiting, or its place in the plan."""

    job: int
    x: float
    width: float
    track: int
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """What ran on a core, on several alike, or on no core of its own; tracks count from 0."""

    name: str
    bars: tuple[Bar, ...]
    tracks: int
    planned: tuple[Line, ...]
    planned_tracks: int

    @property
    def pitch(self) -> float:
        """Pixels from one track of bars to the next: less where there are many."""
        return round(min(_PITCH, max(_LEAST_PITCH, _ALL_TRACKS / self.tracks)), 2)

    @property
    def thickness(self) -> float:
        """Pixels of a bar."""
        return round(self.pitch - (3.0 if self.pitch == _PITCH else 1.5), 2)

    @property
    def labelled(self) -> bool:
        """Whether there is room for letters on a bar."""
        return self.pitch >= _SMALL_PITCH

    @property
    def letters(self) -> float:
        """Pixels of the letters on a bar."""
        return 12.0 if self.pitch == _PITCH else 8.5


@dataclass(frozen=True, slots=True)
class Lanes:
    """The whole picture; `remarks` tells what was left out of it, in words."""

    lanes: tuple[Lane, ...]
    waiting: tuple[Line, ...]
    ticks: tuple[Tick, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A span, with the cores its job had."""

    job: int
    attempt: int
    begin_s: float
    end_s: float
    start_up: bool
    status: str
    cores: tuple[int, ...]


def lanes_of(result: Result, happened: Happened) -> Lanes | None:
    """The picture of a run; None where no attempt was written down.

    Args:
        result: Names the jobs, and the cores of their last attempts.
        happened: Has spans of attempts, on the lane of their first core, and the plan's starts and
            ends, where there was a forecast.
    """
    pieces = _pieces(result, happened.timeline)
    if not pieces:
        return None
    now_s = result.seconds if happened.live else None
    last_s = max(now_s or 0.0, max(piece.end_s for piece in pieces))
    planned = _planned(happened.expected, len(result.jobs))
    if planned:
        last_s = max(last_s, min(MOST_PLANNED * last_s, max(end for _, end in planned.values())))
    axis = Axis.upto(last_s)
    remarks = []
    if len(planned) > MOST_PLANNED_JOBS:
        planned = {}
        remarks.append("the plan is left out")
    named = _alike(pieces)
    bars = sum(len(on_lane) for _, on_lane in named[:MOST_LANES])
    if bars > MOST_BARS:
        # A piece is drawn on each lane of its job: as many go as bars are too many.
        kept = len(pieces) * MOST_BARS // bars
        longest = sorted(pieces, key=lambda piece: piece.begin_s - piece.end_s)[:kept]
        named = _alike(longest)
        remarks.append(f"the {kept:,} longest of {len(pieces):,} bars are drawn")
    if len(named) > MOST_LANES:
        remarks.append(f"the first {MOST_LANES} of {len(named)} lanes are drawn")
    lanes = [_lane(name, on_lane, planned, result, axis) for name, on_lane in named[:MOST_LANES]]
    if any(lane.tracks == MOST_TRACKS for lane in lanes):
        remarks.append(f"what ran beside {MOST_TRACKS - 1} others may lie over another bar")
    waiting = _waiting(result, pieces, axis, now_s)
    if len(waiting) == MOST_WAITING:
        remarks.append(f"{MOST_WAITING} of the jobs that waited are drawn, evenly chosen")
    return Lanes(
        lanes=tuple(lanes),
        waiting=waiting,
        ticks=tuple(axis.ticks()),
        remarks=tuple(remarks),
    )


def _pieces(result: Result, timeline: Timeline | None) -> list[_Piece]:
    pieces = []
    for span in timeline.spans if timeline is not None else ():
        if span.job is None or not 0 <= span.job < len(result.jobs):
            continue
        job = result.jobs[span.job]
        attempt, status = span.args.get("attempt"), span.args.get("status")
        number = attempt if isinstance(attempt, int) else 1
        # Of an earlier attempt only the first core was written down.
        cores = job.cores if number == job.attempts and job.cores else _core_of(span)
        begin_s = max(0.0, span.t / NS_PER_S)
        pieces.append(
            _Piece(
                job=span.job,
                attempt=number,
                begin_s=begin_s,
                end_s=max(begin_s, (span.t + span.d) / NS_PER_S),
                start_up=span.name == "start-up",
                status=status if isinstance(status, str) else job.status,
                cores=cores,
            )
        )
    return pieces


def _core_of(span: Span) -> tuple[int, ...]:
    name = span.lane.rpartition("/")[2]
    number = name.removeprefix("core")
    return (int(number),) if name != number and number.isdecimal() else ()


def _planned(expected: Expected | None, jobs: int) -> dict[int, tuple[float, float]]:
    """When each job was to start and end, in seconds from the run's start."""
    if expected is None or len(expected.jobs) != jobs or not expected.makespan.known:
        return {}
    return {
        index: (job.start_s, job.end_s)
        for index, job in enumerate(expected.jobs)
        if job.start_s is not None and job.end_s is not None
    }


def _alike(pieces: Sequence[_Piece]) -> list[tuple[str, list[_Piece]]]:
    """Lanes with their names: cores with exactly the same on them share one."""
    by_core: dict[int | None, list[_Piece]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda piece: (piece.begin_s, piece.job)):
        for core in piece.cores or (None,):
            by_core[core].append(piece)
    shared: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for core in sorted(core for core in by_core if core is not None):
        shared[tuple(map(id, by_core[core]))].append(core)
    lanes = [
        (f"{'core' if len(cores) == 1 else 'cores'} {core_list(cores)}", by_core[cores[0]])
        for cores in shared.values()
    ]
    return [*lanes, ("any core", by_core[None])] if None in by_core else lanes


def _lane(
    name: str,
    pieces: Sequence[_Piece],
    planned: dict[int, tuple[float, float]],
    result: Result,
    axis: Axis,
) -> Lane:
    """One lane; what overlaps is put on tracks below each other."""
    tracks = _tracks(_stays(pieces), most=MOST_TRACKS)
    bars = tuple(_bar(piece, tracks[piece.job, piece.attempt], result, axis) for piece in pieces)
    jobs = sorted({piece.job for piece in pieces} & planned.keys(), key=lambda job: planned[job])
    lines = _tracks({(job, 1): planned[job] for job in jobs}, most=_PLAN_TRACKS)
    return Lane(
        name=name,
        bars=bars,
        tracks=1 + max(tracks.values()),
        planned=tuple(
            _line(job, planned[job], lines[job, 1], result, axis, "planned") for job in jobs
        ),
        planned_tracks=1 + max(lines.values(), default=-1),
    )


def _stays(pieces: Sequence[_Piece]) -> dict[tuple[int, int], tuple[float, float]]:
    """From where to where each attempt goes, its start-up and the rest together."""
    stays: dict[tuple[int, int], tuple[float, float]] = {}
    for piece in pieces:
        begin_s, end_s = stays.get((piece.job, piece.attempt), (piece.begin_s, piece.end_s))
        stays[piece.job, piece.attempt] = (min(begin_s, piece.begin_s), max(end_s, piece.end_s))
    return stays


def _tracks(
    stays: dict[tuple[int, int], tuple[float, float]], *, most: int
) -> dict[tuple[int, int], int]:
    """A track for each, the first that is free; beyond `most` they share the last."""
    free_s: list[float] = []
    tracks = {}
    for key, (begin_s, end_s) in sorted(stays.items(), key=lambda item: item[1]):
        track = next((n for n, until in enumerate(free_s) if until <= begin_s), len(free_s))
        if track == len(free_s) and len(free_s) < most:
            free_s.append(end_s)
        track = min(track, most - 1)
        free_s[track] = max(free_s[track], end_s)
        tracks[key] = track
    return tracks


def _bar(piece: _Piece, track: int, result: Result, axis: Axis) -> Bar:
    x = axis.x(piece.begin_s)
    width = max(_LEAST_WIDTH, axis.x(piece.end_s) - x)
    name = result.jobs[piece.job].name
    number = str(piece.job + 1)
    ok = piece.status in ("ok", "running")
    if piece.start_up or width < _ROOM_FOR_NUMBER:
        label = ""
    else:
        mark = "" if ok else "\u2717 "
        label = f"{mark}{number} {name}" if width >= _ROOM_FOR_NAME else f"{mark}{number}"
    what = "start-up" if piece.start_up else piece.status
    again = f", attempt {piece.attempt}" if piece.attempt > 1 else ""
    title = f"{number} {name}{again}: {what}, {_from_to(piece.begin_s, piece.end_s)}"
    return Bar(
        job=piece.job,
        x=x,
        width=round(width, 3),
        track=track,
        start_up=piece.start_up,
        ok=ok,
        label=label,
        title=title,
    )


def _line(
    job: int, stay: tuple[float, float], track: int, result: Result, axis: Axis, what: str
) -> Line:
    x = axis.x(stay[0])
    width = round(max(_LEAST_WIDTH, axis.x(stay[1]) - x), 3)
    title = f"{job + 1} {result.jobs[job].name}: {what}, {_from_to(*stay)}"
    return Line(job=job, x=x, width=width, track=track, title=title)


def _from_to(begin_s: float, end_s: float) -> str:
    return f"{show_clock(begin_s)} to {show_clock(end_s)}"


def _waiting(
    result: Result, pieces: Sequence[_Piece], axis: Axis, now_s: float | None
) -> tuple[Line, ...]:
    """Who waited from when to when: before its first attempt, between attempts, and until now."""
    waits = []
    reached: dict[int, float] = {}
    for (job, _), (begin_s, end_s) in sorted(_stays(pieces).items(), key=lambda item: item[1]):
        since_s = reached.get(job, 0.0)
        if axis.x(begin_s) - axis.x(since_s) > _LEAST_WIDTH:
            waits.append((job, (since_s, begin_s)))
        reached[job] = max(end_s, since_s)
    if now_s is not None:
        still = (index for index, job in enumerate(result.jobs) if job.status == "waiting")
        waits += [(job, (reached.get(job, 0.0), now_s)) for job in still]
    if len(waits) > MOST_WAITING:
        waits = [waits[n * len(waits) // MOST_WAITING] for n in range(MOST_WAITING)]
    return tuple(
        _line(job, stay, track, result, axis, "waited") for track, (job, stay) in enumerate(waits)
    )
