"""A reader who is sent what changed has the newest page, whatever it had before."""

from hypothesis import given
from hypothesis import strategies as st

from headway.board.versions import Versions
from headway.reports.page import Pieces, Table

WORDS = st.sampled_from(["a", "b"])
PAGES = st.builds(
    lambda head, figures, frame, rows: Pieces(
        "sweep", head, {"figures": figures}, Table(f"<table {frame}>", "</table>", rows)
    ),
    WORDS,
    WORDS,
    WORDS,
    st.dictionaries(st.sampled_from(["job-1", "job-2", "job-3"]), WORDS),
)


class Reader:
    """A page in a browser."""

    def __init__(self, pieces: Pieces, version: str) -> None:
        self.shown = {"head": pieces.head, **pieces.sections}
        self.table = pieces.jobs.whole
        self.rows = dict(pieces.jobs.rows)
        self.frame = pieces.jobs.before, pieces.jobs.after
        self.version = version

    def told(self, versions: Versions) -> None:
        change = versions.since(self.version)
        for name, html in change.pieces.items():
            if name == "jobs":
                self.frame = self.rows = None
                self.table = html
            elif name.startswith("job-"):
                assert name in self.rows, "a row without a place"
                self.rows[name] = html
                self.table = "".join([self.frame[0], *self.rows.values(), self.frame[1]])
            else:
                self.shown[name] = html
        self.version = change.version


@given(pages=st.lists(PAGES, min_size=2, max_size=6), since=st.integers(0, 4))
def test_what_changed_makes_any_older_page_the_newest(pages, since):
    versions = Versions()
    readers = []
    for page in pages:
        versions.take(page)
        readers.append(Reader(versions.pieces, versions.version))
    reader = readers[min(since, len(pages) - 2)]
    reader.told(versions)
    last = pages[-1]
    assert reader.shown == {"head": last.head, **last.sections}
    assert reader.table == last.jobs.whole
    assert reader.version == versions.version
    assert versions.since(versions.version).pieces == {}


def test_versions_of_an_earlier_server_are_not_taken_for_ours():
    earlier, now = Versions(), Versions()
    page = Pieces("sweep", "a", {"figures": "a"}, Table("<table>", "</table>", {"job-1": "a"}))
    for versions in (earlier, now):
        versions.take(page)
    assert set(now.since(earlier.version).pieces) == {"head", "figures", "jobs"}
    assert (
        set(now.since("").pieces) == set(now.since("x-y-9").pieces) == {"head", "figures", "jobs"}
    )
