"""Keeps the tests apart from what else runs, and says what ran.

Says at the end of a session what ran of the tests that need a real thing, and what did not.

A marker whose description begins with "needs" (pyproject.toml) stands for a real thing: torch, a
writable cgroup, a GPU. For each the summary gives how many tests ran and why the others were
skipped. Where the variable HEADWAY_MUST_RUN lists markers, one skipped test of theirs fails the
session: a suite that skips what it should test must not look green. HEADWAY_MARKERS_FILE names a
file for a copy of the summary.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def apart_from_other_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the user runs meanwhile is not seen by runs of the tests, nor they by it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield


class MarkerTally:
    """Counts, for each marker, the tests that ran and the reasons of those that were skipped."""

    def __init__(self, markers: list[str], must_run: list[str]) -> None:
        self.markers = markers
        self.must_run = must_run
        self.markers_of: dict[str, list[str]] = {}
        self.ran: Counter[str] = Counter()
        self.skipped: dict[str, Counter[str]] = {marker: Counter() for marker in markers}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            own = {marker.name for marker in item.iter_markers()}
            self.markers_of[item.nodeid] = [marker for marker in self.markers if marker in own]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that skips itself never shows its marks: its reason must name the marker."""
        if report.skipped:
            reason = skip_reason(report)
            for marker in self.markers:
                if re.search(rf"\b{marker}\b", reason):
                    self.skipped[marker][f"{reason} ({report.nodeid}, whole)"] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for marker in self.markers_of.get(report.nodeid, ()):
            if report.skipped and not hasattr(report, "wasxfail"):
                self.skipped[marker][skip_reason(report)] += 1
            elif report.when == "call" or (report.when == "setup" and report.failed):
                self.ran[marker] += 1

    def lines(self) -> list[str]:
        """One line a marker: how many ran, and how many were skipped for which reason."""
        return [self._line(marker) for marker in self.markers]

    def _line(self, marker: str) -> str:
        reasons = self.skipped[marker]
        if not self.ran[marker] and not reasons:
            return f"{marker}: no tests"
        line = f"{marker}: {self.ran[marker]} ran"
        if reasons:
            line += f", {reasons.total()} skipped: "
            line += "; ".join(f"{reason} ({count})" for reason, count in reasons.items())
        return line

    def broken(self) -> list[str]:
        """The markers that must not skip and did."""
        return [marker for marker in self.must_run if self.skipped[marker]]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.broken() and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = self.lines()
        lines += [f"{marker}: must not skip here (HEADWAY_MUST_RUN)" for marker in self.broken()]
        terminalreporter.section("markers")
        for line in lines:
            terminalreporter.write_line(line)
        if path := os.environ.get("HEADWAY_MARKERS_FILE"):
            Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def skip_reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    """The words given for a skip."""
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return words.removeprefix("Skipped: ")


def pytest_configure(config: pytest.Config) -> None:
    described = (line.partition(":") for line in config.getini("markers"))
    markers = [name.strip() for name, _, words in described if words.strip().startswith("needs ")]
    must_run = os.environ.get("HEADWAY_MUST_RUN", "").split()
    if unknown := [name for name in must_run if name not in markers]:
        raise pytest.UsageError(
            f"HEADWAY_MUST_RUN names {unknown[0]!r}; known markers: {' '.join(markers)}"
        )
    config.pluginmanager.register(MarkerTally(markers, must_run), "headway-markers")
