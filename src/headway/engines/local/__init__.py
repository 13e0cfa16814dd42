"""The local engine: runs a plan's jobs as processes of this computer.

A supervisor (world.py) drives the queue; each attempt has a keeper process that outlives it
(keeper.py), so killing the supervisor loses nothing: the next one adopts what still runs and
collects what finished (see attempts.py for the protocol and journal.py for what is durable).
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.plan import Plan
from headway.core.policy import Engine
from headway.core.run import Run
from headway.engines.local.world import LocalWorld


class Local(Engine):
    """Processes of this computer, each attempt under a keeper of its own."""

    def open(
        self,
        run: Run,
        plan: Plan,
        jobs: Sequence[Job],
        machine: Machine,
        *,
        recorder: Path | None,
        environment: Mapping[str, str],
    ) -> AbstractContextManager[LocalWorld]:
        """Take the run's lock and stand ready; see `LocalWorld`.

        Raises:
            RunIsLive: Another supervisor holds the lock.
        """
        return LocalWorld(run, plan, jobs, machine, recorder=recorder, environment=environment)
