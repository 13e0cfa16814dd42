from pathlib import Path

import pytest

from headway.cli import screens
from headway.cli.screens import report
from headway.cli.terminal import Screen
from headway.core.estimate import Estimate
from headway.core.run import JobResult, Result
from headway.core.text import cells

T = 1_700_000_000.0


def result(*jobs: JobResult, outcome: str = "ok", seconds: float = 118.0, notes=()) -> Result:
    return Result(
        outcome=outcome, mode="partitioned", start=T, end=T + seconds, jobs=jobs, notes=notes
    )


def job(name: str, status: str = "ok", seconds: float | None = 60.0, **more) -> JobResult:
    end = None if seconds is None else T + seconds
    start = None if seconds is None else T
    return JobResult(name=name, status=status, start=start, end=end, attempts=1, **more)


MIXED = result(
    job("lstm-reviews", steps=2900, step_s=0.0341, threads=1, cores=(0,), peak_bytes=641728512),
    job("lr-0.1", "failed", 3.2, exit_code=1, threads=1, cores=(1,), cause="exit 1: ValueError: x"),
    job("job-3", "lost", None, cause="its process is gone and left no exit code"),
    outcome="failed",
    notes=("others use 1.0 cores of this machine",),
)
PATH = Path("/runs/sweep-1")


def shown(value: Result, screen: Screen, **more) -> list[str]:
    return report(value, screen, run="sweep-1", path=PATH, **more)


def test_the_whole_report_on_eighty_columns():
    assert (
        "\n".join(shown(MIXED, Screen(width=80, terminal=True)))
        == """\
1 of 3 ok, 1 failed, 1 lost. 1 min 58 s; the jobs' own times add up to 1 min 03
  s (0.54 at once on average).
 job           status   time  steps     step  threads  cores   memory
 lstm-reviews  ok       1:00  2,900  34.1 ms        1  0      612 MiB
 lr-0.1        failed  3.2 s      -        -        1  1            -
 job-3         lost        -      -        -        -  -            -
failed     lr-0.1  exit 1: ValueError: x  log: headway logs sweep-1 lr-0.1
lost       job-3  its process is gone and left no exit code
note: others use 1.0 cores of this machine
run lost jobs again: headway retry sweep-1 --lost
run failed jobs again: headway retry sweep-1 --failed
details: headway explain sweep-1"""
    )


def test_forty_columns_keep_what_matters():
    lines = shown(MIXED, Screen(width=40, terminal=True))
    table = [line for line in lines if line.startswith(" ") and "lstm" in line]
    assert table == [" lstm-reviews  ok       1:00  612 MiB"]
    commands = ("run ", "details: ")  # never broken, so that they can be copied
    assert all(cells(line) <= 40 for line in lines if not line.startswith(commands))


def test_a_pipe_gets_one_line_a_cause():
    long = result(job("a", "failed", cause="word " * 60), outcome="failed")
    assert sum("word word" in line for line in shown(long, Screen())) == 1


def test_ascii_terminals_get_ascii():
    hostile = result(job("größe…", "failed", cause="Datei → fehlt"), outcome="failed")
    assert "\n".join(shown(hostile, Screen(ascii=True, width=50, terminal=True))).isascii()


def test_colour_is_on_status_words_alone():
    lines = shown(MIXED, Screen(width=80, terminal=True, colour=True))
    assert any("\x1b[32mok" in line for line in lines)
    assert "\x1b" not in "\n".join(shown(MIXED, Screen(width=80, terminal=True)))


def test_names_and_causes_cannot_touch_the_terminal_nor_give_secrets_away():
    hostile = result(
        job("\x1b[2J\u202ename", "failed", cause="\x1b]0;t\x07 HF_TOKEN=hf_abcdefabcdefabcdef"),
        outcome="failed",
    )
    text = "\n".join(shown(hostile, Screen(width=80, terminal=True), full=True))
    assert all(line.isprintable() for line in text.split("\n"))
    assert "hf_abc" not in text


def test_many_jobs_show_the_bad_and_the_slow():
    jobs = [job(f"j{n}", seconds=float(n + 1)) for n in range(200)]
    jobs[7] = job("bad", "oom", cause="killed at 1.98 GiB of its 2.0 GiB cap")
    lines = shown(result(*jobs, outcome="failed"), Screen())
    rows = [line.split()[0] for line in lines if line.startswith(" ")]
    assert rows == ["job", "bad", "j195", "j196", "j197", "j198", "j199", "not"]
    assert " not shown: 194 ok. headway explain shows all." in lines
    everything = shown(result(*jobs, outcome="failed"), Screen(), full=True)
    assert sum(line.startswith(" ") for line in everything) == 201


def test_many_bad_jobs_do_not_fill_the_screen():
    jobs = [job(f"j{n}", "failed", cause="exit 1") for n in range(5000)]
    lines = shown(result(*jobs, outcome="failed"), Screen())
    assert len(lines) < 70
    assert "and 4980 more: headway explain sweep-1" in lines


def test_notes_of_many_jobs_are_said_once():
    jobs = [job(f"j{n}", notes=("steps not visible: started with -I",)) for n in range(9)]
    lines = shown(result(*jobs), Screen())
    assert "note: j0, j1, j2 and 6 more: steps not visible: started with -I" in lines


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    value = result(job("a"), job("b", "waiting", None), outcome="interrupted")
    path = tmp_path / "headway runs" / "r1"
    lines = report(value, Screen(), run="r1", path=path)
    assert lines[0].startswith("Interrupted: 1 of 2 ok, 1 waiting.")
    assert lines[-1] == "nothing is lost; go on with: headway run --resume 'headway runs/r1'"


def test_quiet_is_the_sentence_and_the_causes():
    lines = shown(MIXED, Screen(), quiet=True)
    assert lines[0].startswith("1 of 3 ok")
    assert lines[1].startswith("failed ")
    assert not any(line.startswith((" ", "note")) for line in lines)


def test_one_job_has_no_average():
    assert screens.sentence(result(job("a"))) == "1 of 1 ok. 1 min 58 s."


def test_the_page_is_named_last_unless_little_is_wanted():
    page = PATH / "report.html"
    assert shown(MIXED, Screen(), page=page)[-1] == "report: /runs/sweep-1/report.html"
    for lines in (shown(MIXED, Screen()), shown(MIXED, Screen(), page=page, quiet=True)):
        assert not any(line.startswith("report:") for line in lines)
    interrupted = MIXED.model_copy(update={"outcome": "interrupted"})
    assert shown(interrupted, Screen(), page=page)[-1].startswith("nothing is lost")


def test_a_time_one_after_another_that_tells_nothing_is_not_said():
    nothing = Estimate(
        value=float("inf"), low=0.0, high=float("inf"), unit="s", origin="assumed", source="x"
    )
    update = {"serial": nothing, "weighted_speed_up": nothing}
    told = screens.sentence(result(job("a"), job("b")).model_copy(update=update))
    assert told == (
        "2 of 2 ok. 1 min 58 s; the jobs' own times add up to 2 min 00 s (1.02 at once on average)."
    )


def test_how_a_run_stands():
    value = result(
        job("a"), job("b", "running", None), job("c", "waiting", None), outcome="interrupted"
    )
    assert screens.standing(value, 4711) == (
        "1 running, 1 waiting, 1 done; 1 min 58 s so far; supervised by process 4711"
    )
    assert screens.standing(value, None) == (
        "interrupted: nobody supervises it; 1 still runs under its keeper, 1 waits"
    )


def test_details_of_a_job_mask_its_command():
    text = "\n".join(
        screens.job_details(
            MIXED.jobs[1], Screen(), command="API_KEY=abcd python x.py", folder="/w", run="sweep-1"
        )
    )
    assert "command      API_KEY=*** python x.py" in text
    assert "exit         1" in text
    assert "log          headway logs sweep-1 lr-0.1" in text
