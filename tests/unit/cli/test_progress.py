import io
from collections import deque

import pytest

from headway.cli.live import LiveTable, draw
from headway.cli.progress import EventLog, Left
from headway.cli.terminal import Screen
from headway.core.job import Job
from headway.core.machine import Host, Machine
from headway.core.plan import Placement
from headway.core.text import cells
from headway.core.view import View
from headway.core.words import (
    Arrived,
    Cancelled,
    Event,
    Exited,
    Outcome,
    Reshare,
    Retry,
    Settle,
    Share,
    Start,
    Started,
    Stop,
    Tick,
    Wait,
)

NS = 1_000_000_000
MACHINE = Machine(
    hosts=(
        Host(
            name="h",
            boot_id="b",
            cores=(0, 1),
            quota_cores=None,
            memory_bytes=2**34,
            memory_source="memory of the machine",
        ),
    )
)


def view_of(*jobs: Job) -> View:
    view = View.of(jobs, [Placement(job=job.name) for job in jobs], MACHINE)
    for state in view.states:
        if not state.missing:
            view.apply(Arrived(0, state.index), 0)
    return view


def job(name: str, **more) -> Job:
    return Job(name=name, command=f"python {name}.py", folder="/w", **more)


class Log:
    """An EventLog with a clock of its own; `lines` is what it has written."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.stream = io.StringIO()
        self.now_s = 0.0
        self.log = EventLog(Screen(), self.stream, clock=lambda: self.now_s)

    def see(self, event: Event, *actions) -> None:
        self.view.apply(event, event.t)
        for action in actions:
            self.view.apply(action, event.t)
        self.log.see(event, self.view)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def test_a_job_starts_and_ends():
    log = Log(view_of(job("a")))
    log.view.apply(Start(0, Share(cores=(0,), threads=1, cap_bytes=700 * 2**20)), 0)
    log.see(Started(0, 0, 1))
    log.now_s = 31.0
    outcome = Outcome("ok", steps=3000, step_ns=1_200_000, peak_bytes=190 * 2**20)
    log.see(Exited(31 * NS, 0, outcome), Settle(0, "ok", ""))
    assert log.lines == [
        "   0:00  started    a  core 0, 1 thread, memory up to 700 MiB",
        "   0:31  ok         a  in 0:31, 3,000 steps, 1.2 ms each, 190 MiB",
    ]


def test_a_cause_and_those_cancelled_with_it_are_told():
    log = Log(view_of(job("a"), job("b", after=("a",)), job("c", after=("b",))))
    log.view.apply(Start(0, Share()), 0)
    log.see(Started(0, 0, 1))
    log.see(
        Exited(1, 0, Outcome("failed")),
        Settle(0, "failed", "exit 1"),
        Settle(1, "cancelled", "needs a, which ended failed"),
        Settle(2, "cancelled", "needs b, which ended cancelled"),
    )
    assert [line.split(None, 1)[1] for line in log.lines[1:]] == [
        "failed     a  exit 1",
        "cancelled  b  needs a, which ended failed",
        "cancelled  c  needs b, which ended cancelled",
    ]


@pytest.mark.parametrize(
    ("stopped", "reason", "line"),
    [
        ("memory", "gave way; waits for 2.0 GiB", "gave way   a  gave way; waits for 2.0 GiB"),
        ("interrupt", "stopped with the run", "stopped    a  goes back to waiting"),
        (None, "exit 1; retries (1 of 2)", "again      a  exit 1; retries (1 of 2)"),
    ],
)
def test_going_back_to_waiting_is_told(stopped: str | None, reason: str, line: str):
    log = Log(view_of(job("a")))
    log.view.apply(Start(0, Share()), 0)
    log.see(Exited(1, 0, Outcome("failed", stopped=stopped)), Retry(0, None, reason, "none"))
    assert log.lines[0].split(None, 1)[1] == line


def test_what_cannot_be_placed_and_what_is_cancelled_while_waiting():
    log = Log(view_of(job("a"), job("b")))
    log.see(Arrived(0, 0), Settle(0, "infeasible", "needs 31 GiB"))
    log.view.apply(Settle(1, "cancelled", "cancelled by the user"), 1)
    log.see(Cancelled(1, 1))
    assert [line.split(None, 1)[1] for line in log.lines] == [
        "infeasible a  needs 31 GiB",
        "cancelled  b  cancelled by the user",
    ]


def test_a_wait_is_told_once_and_only_if_it_is_not_its_turn_anyway():
    log = Log(view_of(job("a")))
    log.see(Tick(1), Wait(0, "waits for a free core"))
    assert log.lines == []
    log.see(Tick(1), Wait(0, "waits for a free core; run a in /x holds core 1"))
    log.see(Tick(1), Wait(0, "waits for a free core; run a in /x holds core 0"))
    log.see(Tick(2), Wait(0, "waits for 2.0 GiB of memory: 1.3 GiB free"))
    log.see(Tick(3), Wait(0, "waits for 2.0 GiB of memory: 1.1 GiB free"))
    assert [line.split(None, 1)[1] for line in log.lines] == [
        "waits      a  waits for a free core; run a in /x holds core 1",
        "waits      a  waits for 2.0 GiB of memory: 1.3 GiB free",
    ]


def test_confined_and_stopped_jobs_are_named_once():
    log = Log(view_of(job("a")))
    log.view.apply(Start(0, Share(cores=(0,), threads=1)), 0)
    log.see(Tick(1), Reshare(0, (0,), "computes with 8 threads, its share is 1"))
    log.see(Tick(1))
    log.see(Tick(2))
    log.see(Tick(3), Stop(0, "timeout", "timeout=0:10 is over"))
    log.see(Tick(4))
    assert [line.split(None, 2)[1] for line in log.lines] == ["confined", "stops"]


def test_a_quiet_minute_gives_a_sign_of_life():
    log = Log(view_of(job("a"), job("b")))
    log.view.apply(Start(0, Share()), 0)
    log.see(Started(0, 0, 1))
    for second in range(1, 130):
        log.now_s = float(second)
        log.see(Tick(second * NS))
    assert log.lines[1:] == [
        "   1:00  1 running, 0 done, 1 waiting",
        "   2:00  1 running, 0 done, 1 waiting",
    ]


def test_names_in_the_log_are_harmless():
    log = Log(view_of(job("\x1b[31m\u202ea")))
    log.view.apply(Start(0, Share()), 0)
    log.see(Started(0, 0, 1))
    assert log.lines[0].isprintable()


def test_the_time_left_is_not_computed_all_the_time():
    now = iter([0.0, 0.1, 1.0, 5.2, 5.3])
    left = Left(clock=lambda: next(now))
    view = view_of(job("a"))
    assert [left.words(view) for _ in range(3)] == ["", "", ""]  # 5 clock readings: 2 + 1 + 2
    with pytest.raises(StopIteration):
        next(now)


def table_of(view: View, *, width: int = 80, height: int = 24, ended=(), **screen) -> list[str]:
    look = Screen(width=width, terminal=True, **screen)
    return list(draw(view, look, ended=deque(ended), width=width, height=height))


def running_view() -> View:
    view = view_of(job("done"), job("lstm-reviews"), job("cnn"), job("mlp-2048"))
    view.step_counts["/w/lstm-reviews.py"] = [2900]
    view.apply(Start(0, Share(cores=(1,))), 0)
    view.apply(Exited(31 * NS, 0, Outcome("ok", steps=3000, step_ns=1_200_000)), 31 * NS)
    view.apply(Settle(0, "ok", ""), 31 * NS)
    view.apply(Start(1, Share(cores=(0,), cap_bytes=700 * 2**20)), 0)
    state = view.states[1]
    state.steps, state.step_ns, state.resident_bytes = 1240, 34_100_000, 612 * 2**20
    view.apply(Start(2, Share(cores=(1,))), 0)
    view.apply(Wait(3, "waits for both cores"), 0)
    return view


def test_the_live_table():
    assert table_of(running_view(), ended=[0]) == [
        " job           where          steps     step          memory  state",
        " done          -              3,000   1.2 ms               -  ok in 0:31, 3,000…",
        " lstm-reviews  core 0  1,240/~2,900  34.1 ms  612 of 700 MiB  running, ~0:57",
        " cnn           core 1             -        -               -  running",
        " mlp-2048      -                  -        -               -  waits for both co…",
        "stop: Ctrl-C (once: let running jobs finish, twice: stop them; nothing is lost)",
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 120])
def test_the_live_table_fits(width: int):
    lines = table_of(running_view(), width=width, ended=[0], ascii=True)
    assert all(cells(line) <= width for line in lines)
    assert "".join(lines).isascii()


@pytest.mark.parametrize("height", [8, 12, 24])
def test_the_live_table_is_not_higher_than_the_screen(height: int):
    view = view_of(*(job(f"j{n}") for n in range(500)))
    for index in range(50):
        view.apply(Start(index, Share()), 0)
    lines = table_of(view, height=height)
    assert len(lines) < height
    assert any(line.startswith(" and ") for line in lines)


def test_events_of_short_jobs_cost_little_because_nothing_looks_at_all_jobs():
    """Counted, not timed: the view's list of all jobs is indexed, never walked."""

    class Counting(list):
        walks = 0

        def __iter__(self):
            type(self).walks += 1
            return super().__iter__()

    view = view_of(*(job(f"j{n}") for n in range(1000)))
    log = Log(view)
    view.states = Counting(view.states)
    for index in range(200):
        view.apply(Start(index, Share()), 0)
        log.see(Started(0, index, 1))
        log.see(Exited(1, index, Outcome("ok")), Settle(index, "ok", ""))
        log.see(Tick(2))
    assert Counting.walks == 0
    assert len(log.lines) == 400


def test_a_burst_of_failing_jobs_draws_twice_a_second_and_loses_no_line():
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    now_s = 0.0
    stream = Terminal()
    view = view_of(*(job(f"j{n}") for n in range(300)))
    look = Screen(width=80, terminal=True, redraws=True)
    live = LiveTable(look, stream, title="x", clock=lambda: now_s)
    for index in range(300):
        now_s = index / 100  # three seconds of them
        view.apply(Start(index, Share()), 0)
        view.apply(Exited(1, index, Outcome("failed")), 1)
        view.apply(Settle(index, "failed", f"exit 1 of j{index}."), 1)
        live.see(Exited(1, index, Outcome("failed")), view)
    live.close()
    shown = stream.getvalue()
    assert all(f"exit 1 of j{index}." in shown for index in range(300))
    # Each drawing, and each line said above it, begins with the header.
    assert shown.count("elapsed 0:") <= 2 * 7 + 2
