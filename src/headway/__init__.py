"""Headway: more training from the hardware you already have.

    import headway
    handle = headway.run("jobs.txt")        # or a list of commands
    print(handle.status().outcome)

Verbs and nouns are loaded when they are first used: importing this package loads nothing heavy.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    # verbs
    "clean",
    "detect",
    "open_run",
    "plan",
    "run",
    # nouns
    "Estimate",
    "HeadwayError",
    "Job",
    "Machine",
    "Plan",
    "Result",
    "RunHandle",
    "Timeline",
    "__version__",
]

_HOMES = {
    "clean": "headway.front",
    "detect": "headway.front",
    "open_run": "headway.front",
    "plan": "headway.front",
    "run": "headway.front",
    "RunHandle": "headway.handle",
    "Estimate": "headway.core.estimate",
    "HeadwayError": "headway.core.errors",
    "Job": "headway.core.job",
    "Machine": "headway.core.machine",
    "Plan": "headway.core.plan",
    "Result": "headway.core.run",
    "Timeline": "headway.core.timeline",
}

if TYPE_CHECKING:
    from headway.core.errors import HeadwayError
    from headway.core.estimate import Estimate
    from headway.core.job import Job
    from headway.core.machine import Machine
    from headway.core.plan import Plan
    from headway.core.run import Result
    from headway.core.timeline import Timeline
    from headway.front import clean, detect, open_run, plan, run
    from headway.handle import RunHandle


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
