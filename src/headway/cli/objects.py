"""`--json`: one object on stdout, whatever the verb; other people's text in it is made harmless."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from headway.core.run import JobResult, Result
from headway.core.text import mask, plain

SCHEMA = 1


def clean(value: Any) -> Any:
    """The same data with every text masked and without control characters."""
    if isinstance(value, str):
        return mask(plain(value))
    if isinstance(value, dict):
        return {key: clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def result_object(
    result: Result,
    *,
    path: Path,
    jobs: Collection[str] = (),
    supervisor: int | None = None,
) -> dict[str, Any]:
    """A result as an object; `jobs` chooses some of its jobs by name."""
    data = result.model_dump(mode="json")
    if jobs:
        data["jobs"] = [job for job in data["jobs"] if job["name"] in jobs]
    return {"run": str(path), "supervisor": supervisor, **data}


def jobs_object(jobs: Collection[JobResult], *, path: Path) -> dict[str, Any]:
    """Some jobs of a run as an object."""
    return {"run": str(path), "jobs": [job.model_dump(mode="json") for job in jobs]}


def show(data: dict[str, Any], **cleaned: Any) -> str:
    """The object as text, `schema` first; `cleaned` is added as it is."""
    return json.dumps({"schema": SCHEMA, **clean(data), **cleaned}, allow_nan=False)
