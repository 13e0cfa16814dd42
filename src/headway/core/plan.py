"""Who goes where and when, as pure data: no commands, editable by hand."""

import hashlib
from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from headway.core.job import Job, Name
from headway.core.noun import Noun

Mode = Literal["serial", "naive", "shared", "partitioned", "mixed"]
MODES: tuple[Mode, ...] = ("serial", "naive", "shared", "partitioned")
"""The fixed ones, which can be asked for; "mixed" is what a planner makes of them."""


Way = Literal["exclusive", "time-slices", "mps", "mig"]


class Layout(Noun):
    """The MIG instances that a GPU is to be divided into, by the names of their profiles."""

    gpu: str
    profiles: Annotated[tuple[str, ...], Field(min_length=1)]


class Division(Noun):
    """How jobs share GPUs.

    exclusive    a GPU is one job's alone
    time-slices  several on one, whose kernels take turns
    mps          several on one, whose kernels run at the same time
    mig          a part of a GPU is one job's alone: `layouts` has those of GPUs that are divided
    """

    way: Way = "exclusive"
    layouts: tuple[Layout, ...] = ()

    @model_validator(mode="after")
    def _layouts_are_of_mig(self) -> Self:
        if bool(self.layouts) != (self.way == "mig"):
            raise ValueError(
                f"way={self.way} and {len(self.layouts)} MIG layouts do not go together"
            )
        return self


class PolicyChoice(Noun):
    """A queue policy by the name of its file, with its knobs."""

    name: str
    knobs: dict[str, Any] = {}


class Placement(Noun):
    """What one job is to be given.

    `cores` counts cores of its own (None: as many as it takes); `threads` is the count written to
    its environment (None: the environment is left as it is); `most_cores` is up to how many it may
    take, with as many threads, where nothing else could use them; `expected_bytes` is the memory it
    was measured to need (None: not known); `expected_device_bytes` and `expected_device_part` are
    the same for the memory of each device that it is given, and for the part of each that it keeps
    busy, and `most_device_part` is the most of each one's multiprocessors that it may use beside
    others (None: no limit); `cap_memory` makes the reserved memory a limit where a cgroup can hold
    it. Jobs are tried in the order of `rank`, and of the file where that is equal.
    """

    job: Name
    cores: Annotated[int, Field(ge=1)] | None = None
    threads: Annotated[int, Field(ge=1)] | None = None
    most_cores: Annotated[int, Field(ge=1)] | None = None
    devices: Annotated[int, Field(ge=0)] = 0
    alone: bool = False
    expected_bytes: Annotated[int, Field(ge=0)] | None = None
    expected_device_bytes: Annotated[int, Field(ge=0)] | None = None
    expected_device_part: Annotated[float, Field(gt=0, le=1)] | None = None
    most_device_part: Annotated[float, Field(gt=0, le=1)] | None = None
    cap_memory: bool = False
    rank: int = 0


class Plan(Noun):
    """Engine, mode, placements (one a job, in the jobs' order), queue policy, division of GPUs."""

    engine: str = "local"
    mode: Mode
    policy: PolicyChoice
    division: Division = Division()
    placements: tuple[Placement, ...]
    keep_threads: bool = False
    jobs_digest: str = ""
    reason: str = ""

    @property
    def title(self) -> str:
        """What people call it: its mode, and how GPUs are shared where they are.

        >>> policy = PolicyChoice(name="queue")
        >>> plan = Plan(mode="partitioned", policy=policy, placements=())
        >>> plan.title, plan.model_copy(update={"division": Division(way="mps")}).title
        ('partitioned', 'partitioned, mps')
        """
        way = self.division.way
        return self.mode if way == "exclusive" else f"{self.mode}, {way}"

    def why_not_for(self, jobs: Sequence[Job]) -> str:
        """Why this plan cannot be carried out with these jobs; "" where it can."""
        names = [placement.job for placement in self.placements]
        for number, (name, job) in enumerate(zip_longest(names, jobs), start=1):
            if job is None or name is None or name != job.name:
                have = "no such job" if job is None else f'"{job.name}"'
                wants = "nothing" if name is None else f'"{name}"'
                return f"it places {wants} as job {number}, the list has {have} there"
        if self.jobs_digest not in ("", digest_of(jobs)):
            return "a command of the list has changed since the plan was made"
        return ""


def digest_of(jobs: Sequence[Job]) -> str:
    """A digest of what a list runs, by which a plan knows its jobs: it carries no commands."""
    text = "\n".join(f"{job.name}\0{job.command}\0{job.folder}" for job in jobs)
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()
