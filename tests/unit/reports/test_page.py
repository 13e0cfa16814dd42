"""The page shows what is known, says what is not, and gives strangers' texts no power."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from headway.core.run import CommonWindow
from headway.core.units import GIB
from headway.reports.curves import Curves
from headway.reports.happened import Tail
from headway.reports.page import MOST_NOTES, MOST_ROWS, page
from headway.reports.pagefile import TAIL_BYTES
from results import (
    Texts,
    about,
    everything,
    happened,
    job,
    ran,
    readings,
    result,
    slowdown,
    timeline,
)


class Reader(HTMLParser):
    """What a browser would make of a page: its elements in order, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.values: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.comments: list[str] = []
        self.inside: list[str] = []
        self.by_tag: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.values += [(name, value or "") for name, value in attrs]
        self.inside.append(tag)

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        self.by_tag.setdefault(self.inside[-1] if self.inside else "", []).append(data)
        if not self.inside or self.inside[-1] not in ("style", "script"):
            self.words.append(data)

    def handle_comment(self, data):
        self.comments.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def read(whole=None, shown=None, *, name="sweep-1") -> Reader:
    if whole is None or shown is None:
        whole, shown = everything()
    return Reader(page(whole, shown, name=name))


HOSTILE = {
    "script": "<script>alert(1)</script>",
    "closing style": "</style></script></title></pre><img src=x onerror=alert(1)>",
    "quotes": "\"' onload=alert(1) style='x' <a href=\"javascript:alert(1)\">",
    "template": "{{ 7*7 }}{% raw %}${7*7}<!-- --><![CDATA[ ]]>&lt;script&gt;&#60;b&#62;",
    "terminal": "\x1b[2J\x1b]0;title\x07\x9b31mred\x00\x08\x7f",
    "bidi": "\u202egnp.exe\u2066\u2069\u200b\ufeff\u2028",
    "long": "A" * 1_000_000,
}


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
def test_strangers_texts_add_nothing_to_the_page(words):
    texts = Texts(name=words[:180], text=words, log=words[:TAIL_BYTES].encode() + b"\n")
    whole, shown = everything(texts)
    text = page(whole, shown, name=words[:100])
    hostile, tame = Reader(text), read()
    assert hostile.elements == tame.elements
    assert not hostile.comments
    assert all(character in "\n\t" or character.isprintable() for character in text)
    assert len(text) < 200_000
    text.encode()


def test_bytes_that_are_no_text_are_shown_all_the_same():
    whole, shown = everything(Texts(log=b"\xff\xfe\x00loss \xc3\x28\n"))
    assert "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\\x00loss" in read(whole, shown).text


def test_secrets_are_masked_wherever_they_stand():
    secret = "hf_abcdefabcdefabcdefab"
    whole, shown = everything(Texts(text=f"HF_TOKEN={secret}", log=f"key {secret}\n".encode()))
    text = page(whole, shown, name="sweep-1")
    assert secret not in text
    assert "HF_TOKEN=***" in text


def test_the_first_line_of_a_cut_log_is_left_out():
    whole, _ = everything()
    cut = happened(tails={0: [Tail("stdout", b"ret-half\nwhole line\n", cut=True)]})
    words = read(whole, cut).text
    assert "ret-half" not in words
    assert "the end of stdout whole line" in words


def test_the_page_needs_nothing_but_itself():
    whole, shown = everything()
    text = page(whole, shown, name="sweep-1")
    reader = Reader(text)
    loads = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "style"}
    assert not {name for name, _ in reader.values} & loads
    assert not any(name.startswith("on") for name, _ in reader.values)
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    assert set(re.findall(r"url\([^)]*\)", text)) == {"url(#hatch)"}


def test_the_policy_allows_the_pages_own_style_and_script_alone():
    reader = read()
    policy = next(value for _, value in reader.values if value.startswith("default-src"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules.keys() == {"default-src", "base-uri", "form-action", "style-src", "script-src"}
    for tag in ("style", "script"):
        content = "".join(reader.by_tag[tag])
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"


def test_the_figures_of_a_run_with_bounds_and_origins():
    words = read().text
    for expected in (
        "2 of 3 ok, 1 failed. 1 min 58 s; one after another would have taken 3 min 44 s "
        "(3 min 30 s to 4 min 00 s, reckoned): 1.9 times faster.",
        "Makespan 1 min 58 s predicted 1 min 50 s (1 min 40 s to 2 min 00 s): inside modelled:",
        "One after another 3 min 44 s 3 min 30 s to 4 min 00 s side by side it was 1.9 times "
        "faster; assumed:",
        "Weighted speed-up (STP) 1.90 1.78 to 2.03",
        "Mean slowdown (ANTT) 1.20 1.09 to 1.33",
        "Limited by the end exit 1: ValueError",
        "Memory peak 2.5 GiB of 7.6 GiB for jobs",
        "largest alone took 2.0 GiB",
        "1 of 2 inside their bounds 1 took longer, 0 less long",
    ):
        assert expected in words


def test_the_row_of_a_job_and_what_opens_below_it():
    words = read().text
    assert (
        "1 lstm-a ok 1:00 0:58 0:50 to 1:06 inside 1.05 0.96 to 1.17, measured "
        "1.20 1.09 to 1.33, measured 1,240 34.1 ms 1 0 1.0 GiB command python exit 1: ValueError "
        "first step ended 4.0 s in predicted 58 s (50 s to 1 min 06 s), modelled:"
    ) in words
    assert "as placed 1.05 times as long as alone: 57 s (51 s to 1 min 03 s), measured:" in words
    assert "by default 1.20 times as long as alone: 50 s (45 s to 55 s), measured:" in words
    assert "3 lstm-c ok 0:58 0:40 0:35 to 0:45 above not known not known not seen" in words
    assert "stderr step 1 step 2 stdout step 1 step 2" in words


def test_the_cause_stands_below_the_name_of_a_job_that_is_not_ok():
    assert "2 lstm-b exit 1: ValueError failed" in read().text


def test_who_was_beside_whom():
    words = read().text
    assert "1 lstm-a 0.93 0.90 to 0.96, measured 3 lstm-c 0.88 0.80 to 0.95, measured" in words
    assert "31 s 1.81 1.70 to 1.91, measured" in words


def test_notes_of_the_run_and_of_jobs():
    words = read().text
    assert words.split(" Notes ")[1].strip() == "exit 1: ValueError lstm-a: exit 1: ValueError"


def test_of_a_run_that_nobody_knows_anything_about_everything_is_said_in_words():
    whole = result(job("a", threads=None, cores=None))
    words = read(whole, happened()).text
    for expected in (
        "Makespan 1 min 58 s it was not predicted",
        "One after another not known",
        "Weighted speed-up (STP) not known",
        "Mean slowdown (ANTT) not known",
        "Limited by nothing that could be told",
        "Memory peak not measured",
        "No attempt of this run was written down in its timeline.",
        "Nothing was predicted of a job that ended ok",
        "No jobs were seen to make steps beside each other",
        "Not known of any job: predicted, bounds, slowdown as placed, slowdown by default, steps, "
        "step, threads, cores, memory.",
        "It wrote nothing that could be read.",
    ):
        assert expected in words


@pytest.mark.parametrize(
    "estimate",
    [
        about(float("inf"), 0.0, float("inf")),
        about(0.0, 0.0, 5e9, unit="ratio"),
        about(4e9, 0.0, 5e9, unit="ratio"),
    ],
    ids=["of infinite time", "as much as nothing", "more than can be"],
)
def test_estimates_that_tell_nothing_are_not_known(estimate):
    whole = result(
        job("a", predicted=estimate, by_default=slowdown(60.0, 50.0)),
        predicted=estimate,
        serial=estimate,
        weighted_speed_up=estimate,
        mean_slowdown=estimate,
        windows=(
            CommonWindow(
                jobs=("a",), seconds=9.0, progress=(estimate,), weighted_speed_up=estimate
            ),
        ),
    )
    words = read(whole, happened()).text
    assert "Mean slowdown (ANTT) not known" in words
    assert "1 a not known" in words
    assert not re.search(r"\b(nan|inf|infinity|0\.00)\b", words)


def test_open_bounds_are_said_to_be_open():
    whole = result(job("a"), mean_slowdown=about(1.1, 0.9, 6e10, unit="ratio"))
    assert "Mean slowdown (ANTT) 1.10 0.90 or more" in read(whole, happened()).text


def test_a_run_of_no_jobs_has_a_page():
    assert "0 of 0 ok" in read(result(), happened()).text


def test_an_interrupted_run_is_not_held_against_its_prediction():
    whole = result(
        job("a"), job("b", status="waiting"), outcome="interrupted", predicted=about(9.0, 8.0, 10.0)
    )
    words = read(whole, happened()).text
    assert "predicted 9.0 s (8.0 s to 10 s) " in words
    assert "above" not in words


def test_a_job_has_the_same_colour_everywhere():
    whole, shown = everything()
    text = page(whole, shown, name="x")
    for number, name in ((1, "lstm-a"), (3, "lstm-c")):
        swatches = re.findall(rf'class="swatch (c\d+)"></span><b>{number}</b> <bdi>{name}', text)
        bars = re.findall(rf'class="bar (c\d+)"[^>]*><title>{number} {name}', text)
        lines = re.findall(rf'class="line (c\d+)"[^>]*><title>{number} {name}', text)
        assert {*swatches, *bars, *lines} == {f"c{number - 1}"}
        assert len(swatches) == 3  # the table, the dots, the windows
        assert bars
        assert lines


def many(count, *, log=b"x" * 300 + b"\n", **more):
    """A long list of jobs on two cores, in turn."""
    jobs = [
        job(
            f"job-{n}",
            30.0 * n,
            30.0 * n + 55.0 + n % 7,
            cores=(n % 2,),
            steps=100,
            step_s=0.5,
            predicted=about(58.0, 50.0, 66.0),
            by_default=slowdown(60.0, 50.0),
            as_placed=slowdown(60.0, 55.0),
            notes=(f"note {n}",),
            **more,
        )
        for n in range(count)
    ]
    spans = [
        span
        for n in range(count)
        for span in ran(n, 30.0 * n, 30.0 * n + 55.0, core=n % 2, first_s=30.0 * n + 3)
    ]
    shown = happened(
        timeline=timeline(*spans),
        tails={n: [Tail("stderr", log), Tail("stdout", log)] for n in range(count)},
    )
    return result(*jobs, seconds=30.0 * count), shown


@pytest.mark.slow
def test_a_thousand_jobs_fit_in_three_megabytes():
    whole, shown = many(1000, log=b'"<>&\x00' * 60)
    text = page(whole, shown, name="long")
    assert len(text.encode()) < 3_000_000
    assert text.count("<tbody id=") == 1000
    words = Reader(text).text
    assert "the 1,200 longest of 2,000 bars are drawn" in words
    assert f"and {1000 - MOST_NOTES} more: headway explain has all" in words
    assert "Shown are the 40 of 1,000 jobs that were predicted worst." in words


@pytest.mark.slow
def test_of_more_jobs_the_slowest_and_those_not_ok_are_listed():
    whole, shown = many(3000, log=b"x\n")
    jobs = list(whole.jobs)
    jobs[7] = jobs[7].model_copy(update={"status": "oom", "cause": "killed at 2.0 GiB"})
    jobs[8] = jobs[8].model_copy(update={"end": jobs[8].start + 999.0})
    words = read(whole.model_copy(update={"jobs": tuple(jobs)}), shown).text
    assert f"Of 3,000 jobs {MOST_ROWS // 2 + 1} are listed" in words
    assert "8 job-7 killed at 2.0 GiB" in words
    assert "9 job-8 ok 16:39" in words


def test_readings_of_one_look_are_added_up():
    whole, shown = everything()
    assert "Memory peak 2.5 GiB" in read(whole, shown).text
    apart = [r.model_copy(update={"t": r.t + n}) for n, r in enumerate(readings())]
    assert "Memory peak 2.0 GiB" in read(whole, happened(curves=Curves.of(apart))).text


def test_a_row_opens_its_curves():
    whole, shown = everything()
    capped = whole.jobs[0].model_copy(update={"cap_bytes": 2 * GIB})
    whole = whole.model_copy(update={"jobs": (capped, *whole.jobs[1:])})
    reader = read(whole, shown)
    told = reader.by_tag["figcaption"]
    assert told == [
        "steps a second: 20.0 at the end, 20.0 to 20.0",
        "memory: 1.0 GiB at the end, 1.0 GiB at most of 2.0 GiB that it may hold",
        "memory: 1.5 GiB at the end, 1.5 GiB at most",
    ]
    assert [name for name, _ in reader.elements].count("polyline") == 3
    assert ("class", "cap") in reader.values


def test_a_run_that_goes_on_says_what_is_left():
    going = job("a", 0.0, status="running", end=None, peak_bytes=GIB, cap_bytes=2 * GIB)
    waits = job("b", status="waiting", start=None, end=None, attempts=0)
    whole = result(going, waits, seconds=30.0, outcome="interrupted")
    left = about(20.0, 15.0, 30.0)
    shown = happened(live=True, left=left, left_of={0: left})
    text = page(whole, shown, name="sweep-1")
    assert "<title>sweep-1: running</title>" in text
    words = Reader(text).text
    assert "1 running, 0 of 2 ok, 1 waiting. 30 s so far, about 20 s left (15 s to 30 s)." in words
    assert "Started 2023-11-14 22:13 UTC." in words
    assert "running about 20 s left" in words
    assert "0:30 so far" in words
    assert "1.0 GiB of 2.0 GiB" in words
    assert "STP" not in words
