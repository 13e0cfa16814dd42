"""report.html of real runs: written at their ends, rewritten where missing, and in a browser."""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from terminals import Place

import headway
from headway.core.folder import Folder

pytestmark = pytest.mark.slow


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_run_ends_with_its_page(here: Place):
    here.write("[name=fine] echo loss 0.25", "[name=bad] sh -c 'echo boom >&2; exit 3'")
    done = here.do("run", "jobs.txt", "--out", "sweep-1")
    page = here.folder / "sweep-1" / "report.html"
    assert done.out.splitlines()[-2:] == ["report: sweep-1/report.html", "run folder: sweep-1"]
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text(encoding="utf-8")
    assert "1 of 2 ok, 1 failed." in text
    assert "loss 0.25" in text
    assert "boom" in text
    data = json.loads((here.folder / "sweep-1" / "result.json").read_text())
    assert not any("report.html" in note for note in data["notes"])


def test_explain_writes_the_page_again_where_it_is_missing(here: Place):
    here.write("echo loss 0.25", "true")
    here.do("run", "jobs.txt", "--out", "sweep-1")
    page = here.folder / "sweep-1" / "report.html"
    before = page.read_bytes()
    page.unlink()
    assert here.do("explain", "sweep-1").out.splitlines()[-1] == "report: sweep-1/report.html"
    assert page.read_bytes() == before


def test_a_disk_that_has_room_for_the_result_alone_costs_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    replace = Folder.replace

    def without_room(folder: Folder, name: str, content: bytes, *, durable: bool = False) -> None:
        if name == "report.html":
            assert folder.exists("result.json")  # what counts was written before
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(folder, name, content, durable=durable)

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(Folder, "replace", without_room)
    handle = headway.run(["true"], out=tmp_path / "sweep-1")
    result = handle.status()
    assert (result.outcome, handle.page) == ("ok", None)
    assert result.notes[-1].startswith("report.html was not written: [Errno 28]")
    handle.close()


def test_an_old_page_does_not_outlive_a_retry(here: Place):
    here.write("[name=a] test -e go")
    here.do("run", "jobs.txt", "--out", "sweep-1")
    page = here.folder / "sweep-1" / "report.html"
    assert "0 of 1 ok, 1 failed." in page.read_text(encoding="utf-8")
    (here.folder / "go").touch()
    assert here.do("retry", "sweep-1").code == 0
    text = page.read_text(encoding="utf-8")
    assert "1 of 1 ok." in text
    assert "attempt 2: ok" in text


# --- In a browser --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page_of_a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run with hostile names and logs."""
    here = Place(tmp_path_factory.mktemp("browser"))
    evil = here.folder / "evil.py"
    evil.write_text(
        "print('</pre></style></script><script>document.title=1</script>')\n"
        "print('<img src=x onerror=document.title=2>\\x1b[31m\\x00\\u202e')\n"
    )
    here.write(
        "[name='<script>document.title=3</script>'] python3 evil.py",
        "[name=slow] sleep 1",
        "[name=bad] sh -c 'exit 3'",
    )
    here.do("run", "jobs.txt", "--out", "sweep-1", environment={"PYTHONIOENCODING": "utf-8"})
    return here.folder / "sweep-1" / "report.html"


@contextlib.contextmanager
def opened(browser: Any, path: Path, **more: Any) -> Iterator[Any]:
    """The page in a browser that heard no complaint and asked for nothing else."""
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context(**more)
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert said == []
    assert asked == [path.as_uri()]


def names(page: Any) -> list[str]:
    return page.locator("#jobs summary bdi").all_inner_texts()


@pytest.mark.browser
def test_nothing_of_strangers_runs(browser: Any, page_of_a_run: Path):
    with opened(browser, page_of_a_run) as page:
        assert page.title() == "sweep-1: failed"
        assert names(page)[0] == "<script>document.title=3</script>"
        page.locator("#jobs summary").first.click()
        log = page.locator("#jobs pre").first.inner_text()
        assert "<script>document.title=1</script>" in log
        assert "\\x00\\u202e" in log
        assert page.evaluate("document.images.length + document.scripts.length") == 1


@pytest.mark.browser
def test_what_slipped_through_would_still_not_run(browser: Any, page_of_a_run: Path):
    """As if a text had not been escaped: the page's policy is the second wall."""
    evil = page_of_a_run.with_name("evil.html")
    evil.write_text(
        page_of_a_run.read_text(encoding="utf-8").replace(
            "</main>",
            "</main><script>document.title = 1</script><style>body { display: none }</style>"
            "<img src='report.html' onerror='document.title = 2'>",
        ),
        encoding="utf-8",
    )
    refused: list[str] = []
    asked: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: refused.append(message.text))
    page.on("requestfinished", lambda request: asked.append(request.url))
    page.goto(evil.as_uri())
    assert page.title() == "sweep-1: failed"
    assert page.locator("body").is_visible()
    assert asked == [evil.as_uri()]
    assert sum("Content Security Policy" in words for words in refused) >= 3
    page.close()


@pytest.mark.browser
def test_the_keyboard_opens_rows_and_sorts(browser: Any, page_of_a_run: Path):
    with opened(browser, page_of_a_run) as page:
        first = page.locator("#jobs tbody").first
        assert not first.locator(".more").is_visible()
        first.locator("summary").focus()
        page.keyboard.press("Enter")
        assert first.locator(".more").is_visible()
        before = names(page)
        page.get_by_role("button", name="status").focus()
        page.keyboard.press("Enter")
        assert names(page)[0] == "bad"
        assert page.locator("th[aria-sort=ascending]").inner_text() == "status"
        page.keyboard.press("Enter")
        assert names(page)[-1] == "bad"
        page.get_by_role("button", name="job").press("Enter")
        assert names(page) == before


@pytest.mark.browser
def test_all_can_be_read_without_scripts(browser: Any, page_of_a_run: Path):
    with opened(browser, page_of_a_run, java_script_enabled=False) as page:
        first = page.locator("#jobs tbody").first
        first.locator("summary").click()
        assert first.locator(".more").is_visible()
        assert page.locator("#jobs th button").count() == 0


@pytest.mark.browser
def test_light_dark_and_narrow(browser: Any, page_of_a_run: Path):
    grounds = []
    for scheme in ("light", "dark"):
        with opened(browser, page_of_a_run, color_scheme=scheme) as page:
            grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(set(grounds)) == 2
    with opened(browser, page_of_a_run, viewport={"width": 360, "height": 700}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        tops = page.locator("#figures dl > div")
        lefts = {tops.nth(n).bounding_box()["x"] for n in range(tops.count())}
        assert len(lefts) == 1
