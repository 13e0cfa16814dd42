r"""Grids of a TOML job file: every combination of some values becomes a job.

    [[job]]
    command = "python train.py --lr {lr} --width {width}"
    grid = { lr = [0.1, 0.01], width = [64, 128] }

Every text of such a table is a template: ``{lr}`` stands for a value, ``{{`` and ``}}`` for braces.

[Note: a value in a command] It has to be one word and never code, whatever it holds. Outside quotes
it is quoted. Inside the user's own quotes, a here-document, a comment or arithmetic there is no
quoting that is right in every shell, so only values that need none may stand there; others are
refused. `_context` follows the shell's quotes no further than it takes to be sure: what it cannot
tell counts as such a place.
"""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from math import prod
from typing import Any

from headway.core.jobfields import Draft, show
from headway.core.text import plain
from headway.core.units import MIB

# jobs.json has to hold what a grid makes of one table's texts.
_MOST_BYTES = 256 * MIB
_NAME_LENGTH = 180  # leaves room for a number within the 200 of a name
_VALUE_LENGTH = 40

_KEY = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_BRACE = re.compile(rf"\{{\{{|\}}\}}|\{{({_KEY.pattern})\}}|[{{}}]", re.ASCII)
_BARE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)  # no shell takes it for anything but itself
_UNREADABLE = re.compile(r"[^\w.+,=@%-]+")
_PLAIN = ""
# What may change how the shell reads on, by the quotes around; first what only looks like it: a
# character behind a backslash, a variable's name in braces.
_SAME = r"(?P<same>\\.|\$\{\w+\})"
_TURNS = {
    _PLAIN: re.compile(rf"{_SAME}|[\\'\"`]|\$[\[{{']|\(\(|<<|(?<![^\s;&|()])#", re.DOTALL),
    "'": re.compile(r"'"),
    '"': re.compile(rf"{_SAME}|[\\\"`]|\$[({{\[]", re.DOTALL),
}
_VARIABLE = re.compile(r"\$(\w*)\Z")

Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Template:
    """A text with places for values.

    `literals` stand before, between and after the `keys`; where `quoted` says so a value is written
    as a word of the shell.
    """

    literals: tuple[str, ...]
    keys: tuple[str, ...] = ()
    quoted: tuple[bool, ...] = ()

    @classmethod
    def of(cls, text: str, grid: Mapping[str, Collection[str]], *, shell: bool) -> "Template":
        """The template that a text is.

        Args:
            text: What the user wrote.
            grid: The values of each key.
            shell: It is a command.

        Raises:
            ValueError: A brace that is no place for a key of the grid, or a value that cannot stand
                where its place is.

        >>> t = Template.of("echo {a} '{b}' {{c}}", {"a": ["x;y"], "b": ["1"]}, shell=True)
        >>> t.filled({"a": "x;y", "b": "1"})
        "echo 'x;y' '1' {c}"
        """
        literals, keys, quoted = [""], list[str](), list[bool]()
        position, context = 0, _PLAIN
        for brace in _BRACE.finditer(text):
            literals[-1] += text[position : brace.start()]
            position = brace.end()
            if (key := brace[1]) is None:
                if len(brace[0]) == 1:
                    raise ValueError(_lone_brace(text[brace.start() :]))
                literals[-1] += brace[0][0]
                continue
            if key not in grid:
                raise ValueError(_unknown(key, grid))
            if shell:
                context = _context(context, literals[-1])
                _check_place(key, grid[key], context, literals[-1])
            keys.append(key)
            quoted.append(shell and context == _PLAIN)
            literals.append("")
        literals[-1] += text[position:]
        return cls(tuple(literals), tuple(keys), tuple(quoted))

    def filled(self, values: Values) -> str:
        """The text with the values of one combination."""
        parts = [self.literals[0]]
        for key, quoted, literal in zip(self.keys, self.quoted, self.literals[1:], strict=True):
            parts += (shlex.quote(values[key]) if quoted else values[key], literal)
        return "".join(parts)


def _lone_brace(rest: str) -> str:
    return f'"{show(rest, 20)}" is no place for a value; for a brace itself write {{{{ or }}}}'


def _unknown(key: str, grid: Collection[str]) -> str:
    near = get_close_matches(key, grid, n=1)
    hint = f'; near: "{near[0]}"' if near else ""
    return (
        f"{{{show(key)}}} is no key of its grid, which has: {show(' '.join(grid))}{hint}; for a "
        f"brace itself write {{{{ or }}}}"
    )


def _context(context: str, text: str) -> str:
    """The quotes that are open after a text of the shell: none, one, or what makes it unsure."""
    position = 0
    while turns := _TURNS.get(context):
        turn = turns.search(text, position)
        if turn is None:
            break
        position = turn.end()
        if turn.lastgroup != "same":
            context = _PLAIN if turn[0] == context else turn[0]
    return context


def _check_place(key: str, values: Collection[str], context: str, before: str) -> None:
    if context != "'" and (variable := _VARIABLE.search(before)):
        remedy = (
            f"write ${{{{{variable[1]}}}}}{{{key}}}"
            if variable[1]
            else f"write {{{key}}} for the value of the grid, ${{{{{key}}}}} for the variable"
        )
        raise ValueError(
            f'"{variable[0]}{{{key}}}" would be another variable of the shell; {remedy}'
        )
    odd = None if context == _PLAIN else next((v for v in values if not _BARE.fullmatch(v)), None)
    if odd is not None:
        where = "inside quotes" if context in "'\"" else f"behind {context}"
        raise ValueError(
            f'{{{key}}} stands {where}, where its value "{show(odd)}" cannot be quoted safely; '
            "let it stand by itself: it is quoted as one word"
        )


# ---- from one table to many ---------------------------------------------------------------------


def combinations(table: Mapping[str, Any], draft: Draft) -> int:
    """How many jobs a table makes.

    Raises:
        BadJobFile: Its grid is not as docs/job-files.md says, or makes more text than is allowed.
    """
    if "grid" not in table:
        return 1
    grid = _values(table["grid"], draft)
    count = prod(map(len, grid.values()))
    texts = repr({key: given for key, given in table.items() if key != "grid"})
    size = len(texts)
    for key, values in grid.items():
        size += texts.count(f"{{{key}}}") * max(map(len, values))
    if count * size > _MOST_BYTES:
        raise draft.bad(
            f"grid: {count:,} jobs with up to {size:,} characters each; at most "
            f"{_MOST_BYTES >> 20} MB are allowed in all. Put the command into a script, or take "
            "values out."
        )
    return count


def shape(table: Mapping[str, Any]) -> str:
    """The size of a grid whose values were checked, in words.

    >>> shape({"grid": {"lr": [0.1, 0.01], "width": [64, 128]}})
    'lr (2 values) x width (2 values)'
    """
    return " x ".join(f"{key} ({len(values):,} values)" for key, values in table["grid"].items())


def spread(table: Mapping[str, Any], draft: Draft) -> Iterator[tuple[dict[str, Any], Draft, str]]:
    """The table of each job, its draft, and what its name has to add; the last key changes fastest.

    Args:
        table: A job's table with its grid, checked by `combinations`.
        draft: Its own draft; becomes the parent of the others.

    Raises:
        BadJobFile: A text is no template of this grid, or a key of it is not used.
    """
    grid = _values(table["grid"], draft)
    used: set[str] = set()
    templates = {}
    for key, given in table.items():
        if key != "grid":
            try:
                templates[key] = _template(given, grid, used, shell=key == "command")
            except ValueError as error:
                raise draft.bad(f"{key}: {error}.") from None
    for key in grid:
        if key not in used:
            raise draft.bad(
                f"grid: {show(key)} is used nowhere; write {{{show(key)}}} in the command, in a "
                "value of env or in the name, or take it out."
            )
    name = templates.get("name")
    in_name = name.keys if isinstance(name, Template) else ()
    if isinstance(name, Template) and not in_name:
        draft.fields["name"] = name.literals[0]
    readable = {key: {value: _readable(value) for value in grid[key]} for key in grid}
    shown = {key: {value: show(value, 20) for value in grid[key]} for key in grid}
    for combination in product(*grid.values()):
        values = dict(zip(grid, combination, strict=True))
        told = " ".join(f"{key}={shown[key][value]}" for key, value in values.items())
        label = f"{draft.label.removesuffix(': ')} ({told}): "
        suffix = "".join(
            f"-{key}{readable[key][value]}" for key, value in values.items() if key not in in_name
        )
        filled = {key: _filled(template, values) for key, template in templates.items()}
        yield filled, Draft(draft.source, draft.line, label, parent=draft), suffix


def grid_name(stated: str, suffix: str) -> str:
    """What a job of a grid is called, unless that is taken.

    >>> grid_name("train", "-lr0.1-width64")
    'train-lr0.1-width64'
    """
    return (stated + suffix)[:_NAME_LENGTH].rstrip()


def _values(given: Any, draft: Draft) -> dict[str, tuple[str, ...]]:
    """The texts of a grid's values, by key."""
    example = "write grid = { lr = [0.1, 0.01] }"
    if not isinstance(given, dict):
        raise draft.bad(f"grid: {show(given)} is not a table; {example}.")
    if not given:
        raise draft.bad(f"grid: has no keys; {example}.")
    grid = {}
    for key, values in given.items():
        if not _KEY.fullmatch(key):
            raise draft.bad(
                f'grid: "{show(key)}" cannot be a key; use letters, digits, _ and -, with a letter '
                "first."
            )
        if not isinstance(values, list):
            remedy = f"write {key} = [{show(values, 30)}]"
            raise draft.bad(f"grid: {show(key)}: {show(values)} is not a list; {remedy}.")
        if not values:
            raise draft.bad(
                f"grid: {show(key)}: the list is empty, which makes no job; give it a value, or "
                "take the key out."
            )
        try:
            grid[key] = _texts(values)
        except ValueError as error:
            raise draft.bad(f"grid: {show(key)}: {error}.") from None
    return grid


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    texts: dict[str, None] = {}
    for value in values:
        text = _text(value)
        if text in texts:
            raise ValueError(f'"{show(text)}" is there twice; take one of them out')
        texts[text] = None
    return tuple(texts)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as TOML writes it
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is not a text, a number, true or false; put it in quotes")
    if "\0" in value:
        raise ValueError("holds a NUL character, which no command can be given")
    return value


def _readable(value: str) -> str:
    """A value within a name: no blanks and nothing that a shell would want quoted."""
    return _UNREADABLE.sub("_", plain(value[:200]))[:_VALUE_LENGTH]


def _template(given: Any, grid: Mapping[str, Sequence[str]], used: set[str], *, shell: bool) -> Any:
    """The same value with a template in each text's place; notes the keys that it uses."""
    match given:
        case str():
            template = Template.of(given, grid, shell=shell)
            used.update(template.keys)
            return template
        case list():
            return [_template(one, grid, used, shell=shell) for one in given]
        case dict():
            return {key: _template(one, grid, used, shell=shell) for key, one in given.items()}
    return given


def _filled(template: Any, values: Values) -> Any:
    match template:
        case Template():
            return template.filled(values)
        case list():
            return [_filled(one, values) for one in template]
        case dict():
            return {key: _filled(one, values) for key, one in template.items()}
    return template
