"""Who goes where and when, as pure data: no commands, editable by hand."""

from typing import Annotated, Any, Literal

from pydantic import Field

from headway.core.job import Name
from headway.core.noun import Noun

Mode = Literal["serial", "naive", "shared", "partitioned", "mixed"]
MODES: tuple[Mode, ...] = ("serial", "naive", "shared", "partitioned")
"""The fixed ones, which can be asked for; "mixed" is what a planner makes of them."""


class PolicyChoice(Noun):
    """A queue policy by the name of its file, with its knobs."""

    name: str
    knobs: dict[str, Any] = {}


class Placement(Noun):
    """What one job is to be given.

    `cores` counts cores of its own (None: as many as it takes); `threads` is the count written to
    its environment (None: the environment is left as it is); `most_cores` is up to how many it may
    take, with as many threads, where nothing else could use them; `expected_bytes` is the memory it
    was measured to need (None: not known); `cap_memory` makes the reserved memory a limit where a
    cgroup can hold it. Jobs are tried in the order of `rank`, and of the
    file where that is equal.
    """

    job: Name
    cores: Annotated[int, Field(ge=1)] | None = None
    threads: Annotated[int, Field(ge=1)] | None = None
    most_cores: Annotated[int, Field(ge=1)] | None = None
    devices: Annotated[int, Field(ge=0)] = 0
    alone: bool = False
    expected_bytes: Annotated[int, Field(ge=0)] | None = None
    cap_memory: bool = False
    rank: Annotated[int, Field(ge=0)] = 0


class Plan(Noun):
    """Engine, mode, placements (one a job, in the jobs' order) and the policy of the queue."""

    engine: str = "local"
    mode: Mode
    policy: PolicyChoice
    placements: tuple[Placement, ...]
    reason: str = ""
