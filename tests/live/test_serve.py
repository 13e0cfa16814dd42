"""headway serve: who gets in, what goes on by itself, and what a browser makes of it."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from terminals import Place, until

from headway.core.job import Jobs
from headway.core.run import Run
from headway.core.units import MIB, NS_PER_S
from headway.core.workload import Workload
from headway.planners.queue import Queue
from headway.sim.drive import drive
from headway.testing.machines import fake_machine
from headway.testing.playback import play
from headway.testing.queues import FakeQueue, fake_jobs

pytestmark = pytest.mark.slow

# What an event may take until a reader sees it.
AT_ONCE_S = 2.0


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Reply(NamedTuple):
    """An answer of the server."""

    status: int
    headers: Message
    text: str


class Page:
    """A server that was started from the command line, and a reader of it."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.address, self.port = address, parts.port
        self.enter = f"/?{parts.query}"
        self.cookie = ""

    def ask(
        self, path: str, *, method: str = "GET", cookie: str | None = None, **headers: str
    ) -> "Reply":
        """What comes back, read to its end."""
        with self.asked(path, method=method, cookie=cookie, **headers) as answer:
            return Reply(answer.status, answer.headers, answer.read().decode())

    @contextlib.contextmanager
    def asked(
        self, path: str, *, method: str = "GET", cookie: str | None = None, **headers: str
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer that may have no end."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        cookie = self.cookie if cookie is None else cookie
        given = {
            "Host": f"127.0.0.1:{self.port}",
            **({"Cookie": cookie} if cookie else {}),
            **headers,
        }
        connection.putrequest(method, path, skip_host=True)
        for name, value in given.items():
            connection.putheader(name, value)
        connection.endheaders()
        with contextlib.closing(connection), connection.getresponse() as answer:
            yield answer

    def log_in(self) -> "Page":
        answer = self.ask(self.enter)
        assert answer.status == 200
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self


@contextlib.contextmanager
def served(here: Place, *words: str) -> Iterator[Page]:
    with here.start("serve", "--json", *words) as process:
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield Page(json.loads(line)["address"])
        finally:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, b"")


def ended_run(here: Place) -> None:
    here.write("[name=fine] echo loss 0.25", "[name=bad] sh -c 'echo boom >&2; exit 3'")
    here.do("run", "jobs.txt", "--out", "sweep-1", "-q")


def test_only_who_has_the_token_gets_in(here: Place):
    ended_run(here)
    with served(here, "sweep-1") as page:
        for path in (
            "/",
            "/events",
            "/page.css",
            "/favicon.ico",
            "/nothing",
            "/?token=",
            "/?token=x",
        ):
            assert page.ask(path).status == 403, path
        for cookie in (f"headway-{page.port}=x", f"headway-{page.port}="):
            assert page.ask("/", cookie=cookie).status == 403
        token = page.enter.partition("=")[2]
        assert page.ask(f"{page.enter}&token={token}").status == 403
        assert page.ask(f"/events?token={token}").status == 403

        answer = page.ask(page.enter)
        set_cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in set_cookie
        assert "samesite=strict" in set_cookie
        page.log_in()
        answer = page.ask("/")
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control")]
        text = answer.text
        assert "1 of 2 ok, 1 failed." in text
        assert token not in text


def test_other_names_other_verbs_and_paths_are_refused(here: Place):
    ended_run(here)
    with served(here, "sweep-1") as page:
        page.log_in()
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::1", ""):
            assert page.ask("/", Host=host).status == 403, host
            assert page.ask(page.enter, Host=host).status == 403, host
        for host in (f"localhost:{page.port}", "127.0.0.1:9999"):  # a tunnel has a port of its own
            assert page.ask("/", Host=host).status == 200, host
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert page.ask("/", method=method).status == 405, method
        for path in (
            "/../../etc/passwd",
            "/%2e%2e/result.json",
            "/result.json",
            "/jobs/1/1/stdout",
        ):
            assert page.ask(path).status == 404, path


@pytest.mark.root
def test_a_second_user_is_refused(here: Place):
    if os.geteuid() != 0:
        pytest.skip("root: only root can become a second user")
    ended_run(here)
    ask = (
        "import sys, urllib.request, urllib.error, pathlib\n"
        "try: print(urllib.request.urlopen(sys.argv[1]).status)\n"
        "except urllib.error.HTTPError as error: print(error.code, error.read().decode())\n"
        "for each in pathlib.Path('/proc').glob('[0-9]*/cmdline'):\n"
        "    try: print(each.read_bytes())\n"
        "    except OSError: pass\n"
    )
    with served(here, "sweep-1") as page:
        answer = subprocess.run(
            ["/usr/bin/env", "python3", "-c", ask, f"http://127.0.0.1:{page.port}/"],
            user=65534, group=65534, extra_groups=[], cwd="/",
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert answer.stdout.startswith("403 This page is for whoever started it")
        assert page.enter.partition("=")[2] not in answer.stdout


def test_a_port_that_is_taken_is_said_or_passed_over(here: Place):
    ended_run(here)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = here.do("serve", "sweep-1", "--port", str(port))
        assert (answer.code, answer.out) == (2, "")
        assert f"port {port} of 127.0.0.1: Address already in use" in answer.err
    with served(here, "sweep-1") as one, served(here, "sweep-1") as other:
        assert one.port != other.port


def test_words_of_the_command(here: Place):
    ended_run(here)
    answer = here.do("serve", "no-such-run")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    with here.start("serve", "sweep-1") as process:
        try:
            lines = [process.stdout.readline().decode() for _ in range(4)]
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20)
    assert re.fullmatch(r"sweep-1: http://127\.0\.0\.1:\d+/\?token=\S{32}\n", lines[0])
    assert "ssh -L" in lines[2]
    assert lines[3] == "stop: Ctrl-C (the run goes on)\n"


def events_of(page: Page, since: str = "") -> Iterator[dict[str, Any]]:
    """The messages of the server, as they come."""
    with page.asked(f"/events?since={since}") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def version_of(page: Page) -> str:
    return re.search(r'data-version="([^"]+)"', page.ask("/").text)[1]


def test_events_say_what_changed_and_no_more(here: Place):
    gate = here.folder / "go"
    wait = f"while ! test -e {gate}; do sleep 0.02; done"
    here.write(f"[name=waits] sh -c '{wait}'", "[name=fine] echo loss 0.25")
    here.do("run", "jobs.txt", "--out", "sweep-1", "--detach")
    until(lambda: '"ok"' in (here.folder / "sweep-1" / "journal.jsonl").read_text(), "fine's end")
    with served(here, "sweep-1") as page:
        page.log_in()
        events = events_of(page, version_of(page))
        first = next(events)
        assert first["live"]
        assert "job-2" not in first["pieces"], "it had ended before the page was shown"
        gate.touch()
        written_s = time.monotonic()
        while first["live"]:
            first = next(events)
        assert time.monotonic() - written_s < AT_ONCE_S
        assert first["title"] == "sweep-1: ok"
        assert "2 of 2 ok." in first["pieces"]["head"]
        events.close()


def test_a_folder_that_goes_is_told_and_the_server_stays(here: Place):
    ended_run(here)
    with served(here, "sweep-1") as page:
        page.log_in()
        events = events_of(page)
        assert "1 of 2 ok" in next(events)["pieces"]["head"]
        (here.folder / "sweep-1" / "result.json").write_text("{")
        told = next(events)
        assert told["trouble"].startswith("The run cannot be read: ")
        assert "result.json" in told["trouble"]
        events.close()
        assert page.ask("/").status == 200


# --- in a browser --------------------------------------------------------------------------------


def shows(tab: Any, expression: str) -> None:
    """Until an expression is true in the page; its policy lets no script of ours wait in it."""
    until(lambda: tab.evaluate(expression), expression)


@contextlib.contextmanager
def opened(browser: Any, page: Page, **more: Any) -> Iterator[Any]:
    """The page in a browser that heard no complaint and asked nobody else for anything."""
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context(**more)
    tab = context.new_page()
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(page.address)
    tab.wait_for_selector("#jobs")
    yield tab
    context.close()
    assert said == []
    assert {urlsplit(url).netloc for url in asked} == {f"127.0.0.1:{page.port}"}


@pytest.mark.browser
def test_the_page_goes_on_by_itself(browser: Any, here: Place):
    gate = here.folder / "go"
    script = here.folder / "wait.py"
    script.write_text(
        "import pathlib, time\n"
        "print('step 1', flush=True)\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.02)\n"
        "print('step 2', flush=True)\n"
    )
    here.write("[name=one] python3 wait.py", "[name=two] echo hello")
    here.do("run", "jobs.txt", "--out", "sweep-1", "--detach")
    with served(here, "sweep-1") as page, opened(browser, page) as tab:
        assert urlsplit(tab.url).query == "", "the token stays in nobody's history"
        shows(tab, "document.querySelector('#job-2 td:nth-child(2)').innerText == 'ok'")
        shows(tab, "document.getElementById('connection').innerText == 'Live.'")
        assert tab.title() == "sweep-1: running"
        # What a reader did stays: an opened row, a sorted column, the focus.
        tab.locator("#job-1 summary").click()
        tab.locator("#job-1 summary").focus()
        tab.locator("#jobs th button", has_text="status").click()
        tab.locator("#jobs th button", has_text="status").focus()
        order = "Array.from(document.querySelectorAll('#jobs tbody'), body => body.id)"
        assert tab.evaluate(order) == ["job-2", "job-1"]
        gate.touch()
        written_s = time.monotonic()
        shows(tab, "document.title == 'sweep-1: ok'")
        assert time.monotonic() - written_s < AT_ONCE_S
        assert "step 2" in tab.inner_text("#job-1 pre")
        assert tab.inner_text("#connection") == "It has ended."
        assert tab.evaluate("document.querySelector('#jobs th[aria-sort]').innerText") == "status"
        assert tab.evaluate(order) == ["job-2", "job-1"], "equals stay where they are"


@pytest.mark.browser
def test_a_lost_server_is_said(browser: Any, here: Place):
    ended_run(here)
    with contextlib.ExitStack() as stack:
        page = stack.enter_context(served(here, "sweep-1"))
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(page.address)
        tab.wait_for_selector("#jobs")
        shows(tab, "document.getElementById('connection').innerText == 'It has ended.'")
        stack.close()
        shows(tab, "document.getElementById('connection').className == 'lost'")
        context.close()


@pytest.mark.browser
def test_hostile_names_and_logs_are_inert(browser: Any, here: Place):
    gate = here.folder / "go"
    (here.folder / "evil.py").write_text(
        "import pathlib, time\n"
        "print('</pre></table></script><script>document.title=1</script>', flush=True)\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.02)\n"
        "print('<img src=x onerror=document.title=2>\\x1b[31m\\x00\\u202e', flush=True)\n"
    )
    here.write("[name='<img src=y onerror=document.title=3>'] python3 evil.py")
    here.do(
        "run", "jobs.txt", "--out", "s<b>1", "--detach", environment={"PYTHONIOENCODING": "utf-8"}
    )
    with served(here, "s<b>1") as page, opened(browser, page) as tab:
        tab.locator("#job-1 summary").click()
        assert "<script>document.title=1</script>" in tab.inner_text("#job-1 pre")
        gate.touch()
        shows(tab, "document.title == 's<b>1: ok'")
        assert "<img src=x onerror" in tab.inner_text("#job-1 pre")
        assert tab.evaluate("document.images.length") == 0
        assert tab.evaluate("document.scripts.length") == 2


@pytest.mark.browser
def test_two_hundred_jobs_on_eight_lanes_at_sixty_events_a_second(browser: Any, here: Place):
    """Played, since no machine of a test has eight cores: starts and ends as fast as said."""
    jobs = fake_jobs(200)
    works_ns = NS_PER_S * 8 // 30
    queue = FakeQueue(
        jobs=jobs,
        machine=fake_machine(8),
        workloads={
            job.name: Workload.opaque(job.name, work_ns=works_ns, peak_bytes=100 * MIB)
            for job in jobs
        },
    )
    plan = queue.plan("partitioned")
    world = queue.world(plan)
    drive(Queue(**plan.policy.knobs), world)
    listed = Jobs(source="jobs.txt", jobs=tuple(jobs))
    run = Run.create(here.folder / "sweep-1", plan=plan, machine=queue.machine, jobs=listed)
    events = sum(type(word).__name__ in ("Started", "Exited") for _, word in world.words)
    player = threading.Thread(target=lambda: list(play(run, world)))
    with served(here, str(run.path)) as page, opened(browser, page) as tab:
        # The longest that the page could not answer a reader, and how often it changed.
        tab.evaluate(
            """() => {
              window.longest = 0; let before = performance.now();
              setInterval(() => {
                const now = performance.now();
                window.longest = Math.max(window.longest, now - before); before = now;
              }, 10);
            }"""
        )
        began_s = time.monotonic()
        player.start()
        behind_s = []
        while player.is_alive():
            shown = tab.inner_text("#head .sentence")
            found = re.search(r"(\d+) of 200 ok", shown)
            now_s = time.monotonic() - began_s
            ended = sorted(t for t, word in world.words if type(word).__name__ == "Exited")
            seen = int(found[1]) if found else 0
            if seen < len(ended):
                behind_s.append(now_s - ended[seen] / NS_PER_S)
            time.sleep(0.1)
        took_s = time.monotonic() - began_s
        shows(tab, "document.querySelector('#head .sentence').innerText.includes('200 of 200 ok')")
        last_s = time.monotonic() - began_s - took_s
        assert events / took_s > 55
        assert len(tab.query_selector_all("#lanes .lane")) >= 8
        assert max([*behind_s, last_s]) < AT_ONCE_S
        assert tab.evaluate("window.longest") < 500
    player.join()


@pytest.mark.browser
def test_the_page_on_a_phone_by_keyboard(browser: Any, here: Place):
    ended_run(here)
    size = {"width": 380, "height": 800}
    with (
        served(here, "sweep-1") as page,
        opened(browser, page, viewport=size, color_scheme="dark") as tab,
    ):
        assert tab.evaluate("document.documentElement.scrollWidth") <= 380
        tab.locator("#job-2 summary").focus()
        tab.keyboard.press("Enter")
        assert "boom" in tab.inner_text("#job-2 pre")
