"""The base of all nouns, and how a noun becomes a file and comes back.

Every file carries a ``schema`` number: an older one is read, a newer one is refused by name.
"""

import json
from collections.abc import Iterable
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from headway.core.errors import BadFile


class Noun(BaseModel):
    """A frozen, strict record. Change makes a new one: ``noun.model_copy(update=...)``."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=True)
    schema_number: ClassVar[int] = 1

    def to_json(self, *, indent: int | None = None) -> str:
        """This noun as JSON text with its ``schema`` number first."""
        data = {"schema": self.schema_number, **self.model_dump(mode="json")}
        return json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str) -> Self:
        """The noun written by `to_json`.

        Args:
            text: The file's content.
            source: The file's name, for the error.

        Raises:
            BadFile: Not JSON, a newer schema, or a field that does not fit; the field's path, what
                was given and what is known are named.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise BadFile(f"{source}: not readable as JSON ({error}).") from None
        if not isinstance(data, dict):
            raise BadFile(f"{source}: expected an object, found {type(data).__name__}.")
        schema = data.pop("schema", None)
        if not isinstance(schema, int) or schema < 1:
            raise BadFile(f'{source}: field "schema" is {schema!r}, expected a number from 1.')
        if schema > cls.schema_number:
            raise BadFile(
                f"{source}: {cls.__name__} schema {schema} was written by a newer Headway; "
                f"this one reads up to {cls.schema_number}. Update Headway to read it."
            )
        try:
            return cls.model_validate_json(json.dumps(data))
        except ValidationError as error:
            path = error.errors(include_url=False)[0]["loc"][:-1]
            raise BadFile(f"{source}: {explain(error, known=_fields_at(cls, path))}") from None


def _fields_at(kind: type[BaseModel], path: Iterable[int | str]) -> tuple[str, ...]:
    """Names of the fields of the noun that stands at a path inside a noun of this kind."""
    for part in path:
        if isinstance(part, str) and part in kind.model_fields:
            kind = _noun_in(kind.model_fields[part].annotation) or kind
    return tuple(kind.model_fields)


def _noun_in(annotation: Any) -> type[BaseModel] | None:
    """The noun that an annotation such as ``tuple[Span, ...]`` or ``Host | None`` holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _noun_in(part))), None)


def explain(error: ValidationError, *, known: tuple[str, ...] = ()) -> str:
    """The first problem of a validation as one sentence: path, what was given, what is allowed."""
    first: Any = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"]) or "(whole)"
    if first["type"] == "extra_forbidden":
        return f'unknown field "{path}"; known fields: {" ".join(known)}.'
    given = repr(first.get("input"))
    given = given if len(given) <= 80 else given[:77] + "..."
    return f'field "{path}": {first["msg"]} (given {given}).'
