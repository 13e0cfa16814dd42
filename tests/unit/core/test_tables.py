import sys
from collections import OrderedDict

import pytest

from headway.core import tables
from headway.core.errors import UnknownName
from headway.core.policy import Engine, Policy


def test_a_leaf_is_found_by_its_file():
    assert "queue" in tables.names("headway.planners")
    assert tables.load("headway.planners", "queue", Policy).__name__ == "Queue"
    assert issubclass(tables.load("headway.engines", "local", Engine), Engine)


def test_only_names_of_the_table_are_imported():
    with pytest.raises(
        UnknownName, match=r'no policy named "os" in headway\.planners; there are: '
    ):
        tables.load("headway.planners", "os", Policy)
    with pytest.raises(UnknownName, match="queue"):
        tables.load("headway.planners", "../queue", Policy)


def test_a_leaf_of_another_kind_is_refused():
    with pytest.raises(UnknownName, match='no engine named "queue"'):
        tables.load("headway.planners", "queue", Engine)


def test_a_class_that_a_leaf_only_imports_is_not_its_own(tmp_path, monkeypatch):
    room = tmp_path / "room_of_tables"
    room.mkdir()
    (room / "__init__.py").write_text("")
    (room / "borrower.py").write_text("from collections import OrderedDict\n")
    (room / "owner.py").write_text(
        "from collections import OrderedDict\nclass Mine(OrderedDict): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert tables.names("room_of_tables") == ("borrower", "owner")
    assert tables.load("room_of_tables", "owner", OrderedDict).__name__ == "Mine"
    with pytest.raises(UnknownName):
        tables.load("room_of_tables", "borrower", OrderedDict)
    for name in [name for name in sys.modules if name.startswith("room_of_tables")]:
        del sys.modules[name]
