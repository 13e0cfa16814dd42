"""The page of threads and the tests that bear their names agree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "threads.md"
TEST = re.compile(r"`(test_\w+)`")


def rows():
    """The cells of each row below a heading row, reference first."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    table = [[cell.strip() for cell in ln.strip("|").split("|")] for ln in lines if ln[:1] == "|"]
    return [cells for cells in table if cells[0] not in ("Thread", "Tool") and "---" not in cells]


def written_tests():
    found = []
    for path in sorted((ROOT / "tests" / "live").glob("test_threads*.py")):
        found += re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found


def test_each_test_that_the_page_names_exists_and_each_that_exists_is_named():
    named = {name for cells in rows() for name in TEST.findall(cells[3])}
    written = written_tests()
    assert len(set(written)) == len(written)
    assert named == set(written)


def test_at_least_25_threads_have_a_test():
    assert sum(bool(TEST.search(cells[3])) for cells in rows()) >= 25
    assert len(written_tests()) >= 25


@pytest.mark.parametrize("cells", rows(), ids=lambda cells: f"{cells[0]}: {cells[1]}"[:60])
def test_each_row_is_whole(cells):
    """Reference, symptom, what Headway does, and a test or a sentence that says why not."""
    assert len(cells) == 4
    assert all(cells)
    assert cells[1].endswith(".")
    assert cells[2].endswith(".")
    assert TEST.search(cells[3]) or cells[3].endswith(".")


def test_a_thread_has_one_row():
    threads = [cells[0] for cells in rows() if "#" in cells[0]]
    assert len(set(threads)) == len(threads)
