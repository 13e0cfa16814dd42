import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from terminals import COMMAND, Place, environment_of, until

pytestmark = pytest.mark.slow

WAITS_FOR_GO = "sh -c 'touch started; until [ -e go ]; do sleep 0.05; done; echo went'"


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


def run_folder(here: Place) -> Path:
    return next((here.folder / "headway-runs").iterdir())


def started(here: Place, name: str = "started") -> bool:
    return (here.folder / name).exists()


# --- lists ---------------------------------------------------------------------------------------


def test_a_list_runs_and_says_what_happened(here: Place):
    here.write("[name=fine] true", "[name=bad] sh -c 'echo boom >&2; exit 3'")
    done = here.do("run", "jobs.txt")
    folder = f"headway-runs/{run_folder(here).name}"
    assert done.code == 1
    assert done.err.splitlines()[0] == f"run folder: {folder}"
    assert done.out.splitlines()[-1] == f"run folder: {folder}"
    assert done.out.startswith("1 of 2 ok, 1 failed. ")
    assert f"log: headway logs {run_folder(here).name} bad" in done.out
    assert "boom" in done.out
    for words in ("started    fine", "ok         fine", "failed     bad"):
        assert words in done.err
    assert "\x1b" not in done.out + done.err


def test_json_is_one_object(here: Place):
    here.write("[name=fine] true", "[name=bad] sh -c 'exit 3'", "[name=hit] kill -9 $$")
    done = here.do("run", "jobs.txt", "--json")
    data = json.loads(done.out)
    assert (done.code, data["schema"], data["outcome"]) == (1, 1, "failed")
    assert [(j["name"], j["status"], j["exit_code"], j["signal"]) for j in data["jobs"]] == [
        ("fine", "ok", 0, None),
        ("bad", "failed", 3, None),
        ("hit", "failed", None, 9),
    ]
    keys = {"name", "status", "exit_code", "signal", "cause", "attempts", "start", "end"}
    assert all(keys | {"peak_bytes"} <= job.keys() for job in data["jobs"])
    for verb in ("status", "explain", "wait"):
        again = json.loads(here.do(verb, "--json").out)
        assert again["jobs"] == data["jobs"]
        assert again["run"] == data["run"] == str(run_folder(here))
    logs = json.loads(here.do("logs", "--json", "fine").out)
    assert logs["jobs"] == [{"name": "fine", "attempt": 1, "stdout": "", "stderr": ""}]
    bare = json.loads(here.do("--json").out)
    assert bare["runs"][0]["outcome"] == "failed"


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["true", "true"], 0),
        (["true", "false"], 1),
        (["[colour=red] true"], 2),
        (["[memory=900000G] true"], 3),
    ],
)
def test_exit_codes_of_lists(here: Place, lines: list[str], code: int):
    here.write(*lines)
    done = here.do("run", "jobs.txt")
    assert done.code == code
    if code == 2:
        assert done.err.startswith("headway: jobs.txt:1: ")
        assert done.err.count("\n") == 1
        assert not (here.folder / "headway-runs").exists()


def test_jobs_from_stdin(here: Place):
    done = here.do("run", "-", "--out", "r", given=b"echo one\necho two\n")
    assert done.code == 0
    assert "2 of 2 ok" in done.out
    assert here.do("logs").out == "one\ntwo\n"


def test_without_progress_stderr_has_one_line(here: Place):
    here.write("true")
    done = here.do("run", "jobs.txt", "--no-progress")
    assert done.err == f"run folder: headway-runs/{run_folder(here).name}\n"


def test_quiet_leaves_the_table_away(here: Place):
    here.write("true", "false")
    done = here.do("run", "jobs.txt", "-q")
    assert [line.split()[0] for line in done.out.splitlines()] == ["1", "failed", "run"]


def test_a_finished_run_is_not_run_again(here: Place):
    here.write("sh -c 'echo x >> side; exit 4'")
    assert here.do("run", "jobs.txt", "--out", "r").code == 1
    assert here.do("run", "--resume", "r").code == 1
    assert (here.folder / "side").read_text() == "x\n"


def test_retry_says_what_it_runs_and_exits_as_run_does(here: Place):
    here.write("[name=a] true", "[name=b] sh -c 'test -e repaired'")
    assert here.do("run", "jobs.txt").code == 1
    (here.folder / "repaired").touch()
    done = here.do("retry", "--failed")
    assert done.code == 0, done
    assert done.err.splitlines()[0] == "runs again: b"
    assert "2 of 2 ok" in done.out
    assert here.do("retry").code == 2
    assert here.do("logs", "b", "--attempt", "2").code == 0
    assert here.do("logs", "b", "--attempt", "3").code == 2


def test_bare_shows_the_last_runs(here: Place):
    here.write("true")
    assert "last runs" not in here.do().out
    here.do("run", "jobs.txt", "--out", "sweep-1")
    lines = here.do().out.splitlines()
    assert lines[2] == "last runs here:"
    assert lines[3].startswith("  sweep-1  ok, ")
    assert len([line for line in lines if line.startswith("  headway ")]) == 3


def test_explain_tells_all_of_a_job(here: Place):
    here.write("[name=a] API_KEY=abc123def false")
    here.do("run", "jobs.txt")
    done = here.do("explain", "a")
    assert "a: failed" in done.out
    assert "command      API_KEY=*** false" in done.out
    assert "abc123def" not in done.out + here.do("explain").out


# --- runs of their own ---------------------------------------------------------------------------


def test_a_detached_run_can_be_watched_waited_for_and_read(here: Place):
    here.write(f"[name=a] {WAITS_FOR_GO}", "[name=b] true")
    detached = here.do("run", "jobs.txt", "--out", "r", "--detach")
    assert (detached.code, detached.out) == (0, "r\n")
    until(lambda: started(here), "the job")
    standing = here.do("status", "r")
    assert "supervised by process" in standing.out
    assert "running" in standing.out
    refused = here.do("run", "--resume", "r")
    assert (refused.code, refused.err.count("\n")) == (2, 2)  # the folder, then why not
    assert "is being supervised" in refused.err
    assert here.do("wait", "r", "a", "--timeout", "0.1").code == 1
    following = here.start("logs", "-f", "r", "a")
    (here.folder / "go").touch()
    assert following.communicate(timeout=60)[0] == b"went\n"
    waited = here.do("wait", "r")
    assert waited.code == 0
    assert "2 of 2 ok" in waited.out
    assert here.do("status", "r", "b").out.count("\n") == 3  # how it stands, titles, b


def test_cancel_ends_the_tree_for_good(here: Place):
    escaped = "sh -c '(setsid sh -c \"echo \\$\\$ > pid; exec sleep 300\" &); sleep 300'"
    here.write(f"[name=a] {escaped}", f"[name=b] {WAITS_FOR_GO}")
    assert here.do("run", "jobs.txt", "--detach", "--out", "r").code == 0
    until(lambda: started(here, "pid") and (here.folder / "pid").read_text().strip(), "a child")
    pid = int((here.folder / "pid").read_text())
    unsure = here.do("cancel", "r")
    assert unsure.code == 2
    assert "--yes" in unsure.err
    done = here.do("cancel", "r", "a")
    assert (done.code, done.out) == (0, "cancelled  a\n")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert here.do("cancel", "r", "--yes").out == "cancelled  b\n"
    assert here.do("wait", "r").code == 1
    assert here.do("cancel", "r", "a").out == "cancelled  a  had ended before\n"
    assert here.do("cancel", "r", "--yes").out.startswith("nothing to cancel")


def test_a_first_word_that_names_no_run_is_a_job(here: Place):
    here.write("[name=r1] echo first")
    here.do("run", "jobs.txt", "--out", "r1")
    here.do("run", "jobs.txt", "--out", "r2")
    assert here.do("logs", "r1").out == "first\n"  # the run, whose only job has that name
    assert here.do("logs", "r2", "r1").out == "first\n"
    unknown = here.do("logs", "r3")
    assert unknown.code == 2
    assert 'no job "r3"' in unknown.err
    assert "no run is called r3 either" in unknown.err


# --- hostile text --------------------------------------------------------------------------------


def test_output_of_jobs_cannot_touch_the_terminal(here: Place):
    hostile = b"\x1b]0;owned\x07\x1b[31mred\x1b[0m \xe2\x80\xaeevil\x9b2J \xff\tok\r\nlast"
    (here.folder / "bytes").write_bytes(hostile)
    here.write("[name=a] sh -c 'cat bytes; cat bytes >&2; exit 1'")
    run = here.do("run", "jobs.txt")
    for text in (run.out, run.err, here.do("logs").out, here.do("explain", "a").out):
        bad = [c for c in text if not c.isprintable() and c not in "\n\t"]
        assert bad == []
        assert "\u202e" not in text
    assert here.do("logs", "--raw", "--stdout").raw == hostile
    cleaned = here.do("logs", "--stdout").out
    assert cleaned.startswith("red ")
    assert "\tok\nlast" in cleaned


def test_a_link_in_a_logs_place_is_refused(here: Place):
    here.write("[name=a] true")
    here.do("run", "jobs.txt", "--out", "r")
    (here.folder / "private").write_text("private words")
    log = here.folder / "r" / "jobs" / "1" / "1" / "stdout"
    log.unlink()
    log.symlink_to(here.folder / "private")
    done = here.do("logs", "--stdout")
    assert done.code == 2
    assert "private words" not in done.out


def test_nobody_reading_is_no_error(here: Place):
    here.write(*(f"[name=j{n}] true" for n in range(20)))
    here.do("run", "jobs.txt")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "explain"],
        cwd=here.folder,
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment_of(here.folder),
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


# --- terminals -----------------------------------------------------------------------------------


def test_the_live_table_on_a_terminal(here: Place):
    here.write(f"[name=lstm-reviews] {WAITS_FOR_GO}", "[name=cnn] true")
    with here.terminal("run", "jobs.txt") as terminal:
        terminal.see("run folder: headway-runs/")
        terminal.see("lstm-reviews")
        terminal.see("stop: Ctrl-C")
        (here.folder / "go").touch()
        terminal.see("2 of 2 ok.")
        assert terminal.end() == 0
        assert "\x1b[32mok" in terminal.text
        assert "\x1b[?25h" in terminal.text  # the cursor is back


def test_no_color_dumb_and_narrow_terminals(here: Place):
    here.write("[name=a-job-with-a-rather-long-name] true", "[name=b] false")
    with here.terminal("run", "jobs.txt", columns=40, NO_COLOR="1", LC_ALL="C") as terminal:
        assert terminal.end() == 1
        assert terminal.text.isascii()
        assert "\x1b[3" not in terminal.text
        commands = ("run ", "details", "report: ", "  ", "headway")
        lines = terminal.words.replace("\r", "\n").split("\n")
        wide = [line for line in lines if len(line) > 40 and not line.startswith(commands)]
        assert wide == []
    with here.terminal("run", "jobs.txt", TERM="dumb") as terminal:
        assert terminal.end() == 1
        assert "\x1b" not in terminal.text
        assert "started " in terminal.text


def test_ctrl_c_once_lets_running_jobs_finish(here: Place):
    here.write(f"[name=a] {WAITS_FOR_GO}", "[name=b after=a] touch second")
    with here.terminal("run", "jobs.txt", "--mode", "serial") as terminal:
        until(lambda: started(here), "the job")
        terminal.press(b"\x03")
        terminal.see("starting nothing new; 1 job still runs; Ctrl-C again stops it")
        (here.folder / "go").touch()
        terminal.see("go on with: headway run --resume ")
        assert terminal.end() == 130
    assert not started(here, "second")
    done = here.do("run", "--resume", f"headway-runs/{run_folder(here).name}")
    assert done.code == 0
    assert started(here, "second")


def test_ctrl_c_twice_stops_and_loses_nothing(here: Place):
    here.write("[name=a] sh -c 'echo x >> tries; test -e go || exec sleep 300'")
    with here.terminal("run", "jobs.txt", "--out", "r") as terminal:
        until(lambda: started(here, "tries"), "the job")
        terminal.press(b"\x03")
        terminal.see("Ctrl-C again stops it")
        terminal.press(b"\x03")
        terminal.see("stopping 1 job: SIGTERM now")
        terminal.see("headway run --resume r")
        assert terminal.end() == 130
    (here.folder / "go").touch()
    assert here.do("run", "--resume", "r").code == 0
    assert (here.folder / "tries").read_text() == "x\nx\n"


def test_ctrl_c_three_times_kills_at_once(here: Place):
    here.write("[name=a] sh -c 'trap \"\" TERM; touch started; while :; do sleep 1; done'")
    with here.terminal("run", "jobs.txt", "--out", "r") as terminal:
        until(lambda: started(here), "the job")
        terminal.press(b"\x03")
        terminal.see("starting nothing new")
        terminal.press(b"\x03")
        terminal.see("SIGKILL in 10 s")
        terminal.press(b"\x03")
        terminal.see("killing 1 job now")
        assert terminal.end() == 130
    assert json.loads(here.do("status", "r", "--json").out)["jobs"][0]["status"] == "waiting"


def test_sigterm_equals_ctrl_c_twice(here: Place):
    here.write("[name=a] sh -c 'touch started; exec sleep 300'", "[name=b after=a] touch second")
    process = here.start("run", "jobs.txt", "--out", "r")
    until(lambda: started(here), "the job")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"stopping 1 job" in err
    assert out.decode().splitlines()[-1] == "run folder: r"
    assert b"headway run --resume r" in out
    assert not started(here, "second")


def test_closing_the_terminal_does_not_stop_a_run(here: Place):
    here.write(f"[name=a] {WAITS_FOR_GO}", "[name=b after=a] true")
    with here.terminal("run", "jobs.txt", "--out", "r") as terminal:
        until(lambda: started(here), "the job")
        terminal.see("stop: Ctrl-C")
        terminal.close()
        (here.folder / "go").touch()
        _, status = os.waitpid(terminal.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    assert json.loads(here.do("status", "r", "--json").out)["outcome"] == "ok"


def test_cancel_asks_on_a_terminal(here: Place):
    here.write(f"[name=a] {WAITS_FOR_GO}")
    here.do("run", "jobs.txt", "--detach", "--out", "r")
    with here.terminal("cancel") as terminal:
        terminal.see("cancel 1 jobs of r for good? [y/N]")
        terminal.press(b"n\n")
        assert terminal.end() == 2
    with here.terminal("cancel") as terminal:
        terminal.see("[y/N]")
        terminal.press(b"y\n")
        assert terminal.end() == 0


# --- one command ---------------------------------------------------------------------------------


def test_one_command_has_the_callers_streams(here: Place):
    script = 'cat; echo err >&2; printf "%s|" "$@"'
    done = here.do("run", "--", "sh", "-c", script, "sh", "-h", "--json", "--", given=b"in\n")
    assert (done.code, done.out) == (0, "in\n-h|--json|--|")
    assert done.err.startswith("err\nheadway: steps not visible")
    assert done.err.count("\n") == 2
    assert not (here.folder / "headway-runs").exists()


def test_one_command_keeps_more_descriptors_and_its_cores(here: Place):
    reader, writer = os.pipe()
    script = (
        f"import os; os.write({writer}, b'three'); print(len(os.sched_getaffinity(0)), "
        "os.environ.get('OMP_NUM_THREADS'))"
    )
    command = [sys.executable, "-c", script]
    with here.start("run", "-q", "--", *command, pass_fds=[writer]) as process:
        out, err = process.communicate(timeout=60)
    os.close(writer)
    with open(reader) as file:
        assert file.read() == "three"
    assert err == b""
    cores = len(os.sched_getaffinity(0))
    assert out.decode().split() == [str(cores), str(os.environ.get("OMP_NUM_THREADS"))]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["there-is-no-such-program"], 127),
        (["./text"], 126),
        (["/"], 126),
    ],
)
def test_exit_codes_of_one_command(here: Place, command: list[str], code: int):
    (here.folder / "text").write_text("true\n")
    (here.folder / "text").chmod(stat.S_IRUSR)
    done = here.do("run", "--", *command)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("headway: ")


def test_a_timeout_finds_what_the_command_abandoned(here: Place):
    abandoned = '(setsid sh -c "trap \\"\\" TERM; echo \\$\\$ > pid; sleep 300" &) ; sleep 300'
    process = here.start("run", "--timeout", "1", "--", "sh", "-c", abandoned)
    until(lambda: started(here, "pid") and (here.folder / "pid").read_text().strip(), "a child")
    pid = int((here.folder / "pid").read_text())
    _, err = process.communicate(timeout=60)
    assert process.returncode == 124
    assert b"ended after --timeout 1\n" in err
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, 5)]
)
def test_signals_are_passed_on(here: Place, number: int, code: int):
    script = "trap 'exit 5' USR1; touch started; while :; do sleep 0.05; done"
    process = here.start("run", "--", "sh", "-c", script)
    until(lambda: started(here), "the command")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code


def test_ctrl_c_belongs_to_the_command(here: Place):
    script = "trap 'echo saved; exit 5' INT; test -t 0 && echo ready; while :; do sleep 0.05; done"
    with here.terminal("run", "-q", "--", "sh", "-c", script) as terminal:
        terminal.see("ready")
        terminal.press(b"\x03")
        terminal.see("saved")
        assert terminal.end() == 5


@pytest.mark.torch
def test_steps_of_one_command_are_seen(here: Place):
    pytest.importorskip("torch")
    (here.folder / "train.py").write_text(
        "import torch\n"
        "p = torch.nn.Parameter(torch.zeros(3))\n"
        "o = torch.optim.SGD([p], lr=0.1)\n"
        "for _ in range(25):\n"
        "    p.sum().backward()\n"
        "    o.step()\n"
    )

    done = here.do("run", "--json", "--", sys.executable, "train.py")
    facts = json.loads(done.err)
    assert (facts["exit_code"], facts["steps"]) == (0, 25)
    assert facts["peak_bytes"] > 50 * 2**20
