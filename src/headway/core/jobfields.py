"""What may stand in a job file: its keys, how each value is read, and the draft they end in.

Both formats hand their tables to `Draft.fill`; a value may be a word of a line or a value of TOML.
Each reader takes what was given and raises ValueError with a sentence that says what is allowed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import ValidationError

from headway.core.errors import BadJobFile
from headway.core.job import Job
from headway.core.text import mask, plain, shorten
from headway.core.units import MIB, parse_bytes, parse_seconds

# Linux takes no single argument of 128 KiB or more (MAX_ARG_STRLEN), the closing NUL included.
MAX_ARGUMENT_BYTES = 128 * 1024 - 1

KEYS = (
    "name", "memory", "gpu_memory", "cores", "gpus", "threads", "timeout", "stall_timeout",
    "retries", "env", "after", "group", "mode", "priority",
)  # fmt: skip
TABLE_KEYS = ("command", "folder", "grid", *KEYS)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def show(given: object, width: int = 60) -> str:
    """What the user gave, fit for an error: no controls, no secrets, not too long."""
    text = given if isinstance(given, str) else repr(given)
    return shorten(mask(plain(text[:2000])), width)


@dataclass(slots=True)
class Draft:
    """One job as far as it is read, and its place for errors.

    `line` is None where the format has none; `label` says which job it is in TOML; `fields` are
    those of Job. `base` is what the job is called where it states no name ("": after its script).
    Of a job that comes from a grid `parent` is the draft of the grid's table, which has its `name`
    where that is stated.
    """

    source: str
    line: int | None
    label: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    parent: "Draft | None" = None
    base: str = ""

    def bad(self, message: str) -> BadJobFile:
        """The error that refuses the file for this job."""
        return BadJobFile(self.source, self.line, self.label + message)

    def check_key(self, key: str, known: tuple[str, ...], where: str = "") -> None:
        """Refuse a key that is not known.

        Raises:
            BadJobFile: The known ones are listed.
        """
        if key not in known and key != "vram":
            raise self.bad(f'unknown key "{show(key)}"{where}; known keys: {" ".join(known)}.')

    def fill(self, table: Mapping[str, Any]) -> None:
        """Read every value of a table, whose keys are known, into the fields.

        Raises:
            BadJobFile: A value is not what its key allows.
        """
        if "vram" in table and "gpu_memory" in table:
            raise self.bad("vram and gpu_memory are the same; give one of them.")
        for key, given in table.items():
            target, reader = _READERS[key]
            try:
                self.fields[target] = reader(given)
            except ValueError as error:
                raise self.bad(f"{key}: {error}.") from None

    def build(self) -> Job:
        """The job, once it has a name.

        Raises:
            BadJobFile: Values that are fine alone contradict each other.
        """
        try:
            return Job(**self.fields, line=self.line or 0)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            target = first["loc"][0] if first["loc"] else None
            key = next((key for key, reader in _READERS.items() if reader[0] == target), "")
            message = first["msg"].removeprefix("Value error, ")
            raise self.bad(f"{key}: {message}." if key else f"{message}.") from None


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{show(given)} is not a text; put it in quotes")
    if "\0" in given:
        raise ValueError("holds a NUL character, which no command can be given")
    return given


def _name(given: object) -> str:
    name = _text(given)
    if not name.isprintable() or plain(name) != name:
        raise ValueError(f'"{show(name)}" holds a control or invisible character')
    if not name.strip() or name != name.strip():
        raise ValueError(f'"{show(name)}" is blank, or begins or ends with a blank')
    if name.startswith("-"):
        raise ValueError(f'"{show(name)}" begins with "-" and would be taken for an option')
    if len(name) > 200:
        raise ValueError(f'"{show(name)}" has {len(name)} characters; at most 200 are allowed')
    return name


def _word(given: object) -> str:
    """A number or a quantity, in a form that is fit for an error."""
    word = given if isinstance(given, str) and len(given) <= 60 else show(given)
    # Digits of other scripts are digits to Python too, and a Kelvin sign is a K.
    if not (word.isascii() and word.isprintable()):
        raise ValueError(f'"{show(word)}" is not written in ASCII letters and digits')
    return word


def _memory(given: object) -> int:
    size = parse_bytes(_word(given))
    if size < MIB:
        raise ValueError(f'"{show(given)}" would be {size} bytes; write a unit, as in 700M or 2G')
    return size


def _vram(given: object) -> int:
    # gpusched counts a number without a unit in MiB.
    word = _word(given)
    return _memory(word + "M" if re.fullmatch(r"[\d.]+", word) else word)


def _duration(given: object) -> float:
    return parse_seconds(_word(given).lower())


def _count(given: object, *, least: int, most: int) -> int:
    word = _word(given)
    if not re.fullmatch(r"-?\d{1,9}", word) or not least <= int(word) <= most:
        raise ValueError(f'"{word}" is not a whole number from {least} to {most}')
    return int(word)


def _mode(given: object) -> str:
    if given not in ("alone", "shared"):
        raise ValueError(f'"{show(given)}" is not a mode of a job; allowed: alone shared')
    return str(given)


def _after(given: object) -> tuple[str, ...]:
    names = given if isinstance(given, list) else [part.strip() for part in _text(given).split(",")]
    return tuple(dict.fromkeys(_name(name) for name in names))


def _environment(given: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple((_variable(name), _content(name, value)) for name, value in given.items())


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f'"{show(name)}" is not the name of a variable; write env=NAME=VALUE')
    return name


def _content(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None:
        raise ValueError(f"{name} has no value; write env={name}=VALUE")
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{name} is not a text; put its value in quotes")
    if len(f"{name}={value}".encode()) > MAX_ARGUMENT_BYTES:
        raise ValueError(f"{name} is longer than the {MAX_ARGUMENT_BYTES:,} bytes that Linux takes")
    return value


def _command(given: object) -> str:
    command = _text(given)
    if not command.strip():
        raise ValueError("is empty; write a shell command")
    size = len(command.encode())
    if size > MAX_ARGUMENT_BYTES:
        raise ValueError(
            f"{size:,} bytes long, but Linux takes at most {MAX_ARGUMENT_BYTES:,} in one argument; "
            "put it into a script"
        )
    return command


_some = partial(_count, least=1, most=100_000)

# What a file says, the field of Job it fills, and how it is read.
_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "command": ("command", _command),
    "folder": ("folder", _text),
    "name": ("name", _name),
    "memory": ("memory_bytes", _memory),
    "gpu_memory": ("gpu_memory_bytes", _memory),
    "vram": ("gpu_memory_bytes", _vram),
    "cores": ("cores", _some),
    "gpus": ("gpus", partial(_count, least=0, most=100_000)),
    "threads": ("threads", _some),
    "timeout": ("timeout_s", _duration),
    "stall_timeout": ("stall_timeout_s", _duration),
    "retries": ("retries", partial(_count, least=0, most=100)),
    "env": ("env", _environment),
    "after": ("after", _after),
    "group": ("group", _name),
    "mode": ("mode", _mode),
    "priority": ("priority", partial(_count, least=-100_000, most=100_000)),
}
