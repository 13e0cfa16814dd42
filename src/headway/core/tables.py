"""A room's table: its leaves are found by listing its modules, and loaded on first use.

No decorator and no list to edit: a leaf's name is its file name, and its class is the one final
class of the asked kind that the file defines. Only names found in the table are ever imported.
"""

import importlib
import pkgutil
from functools import cache
from typing import TypeVar

from headway.core.errors import UnknownName

Leaf = TypeVar("Leaf")


@cache
def names(room: str) -> tuple[str, ...]:
    """Names of the leaves in a room such as ``"headway.planners"``, sorted."""
    package = importlib.import_module(room)
    return tuple(sorted(m.name for m in pkgutil.iter_modules(package.__path__)))


def load(room: str, name: str, kind: type[Leaf]) -> type[Leaf]:
    """The class of `kind` that the leaf `name` of a room defines.

    Raises:
        UnknownName: No such leaf, or the leaf is of another kind; those there are listed.
    """
    if name in names(room):
        module = importlib.import_module(f"{room}.{name}")
        for candidate in vars(module).values():
            if (
                isinstance(candidate, type)
                and issubclass(candidate, kind)
                and candidate.__module__.startswith(f"{room}.{name}")
            ):
                return candidate
    raise UnknownName(
        f'no {kind.__name__.lower()} named "{name}" in {room}; there are: {" ".join(names(room))}'
    )
