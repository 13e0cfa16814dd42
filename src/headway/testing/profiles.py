"""Past attempts that nobody made."""

from collections.abc import Mapping
from typing import Any

from headway.core.job import Job
from headway.core.machine import Machine
from headway.probes.profiles import PastAttempt
from headway.probes.profiles.identity import Contents, Identity, machine_digest


def past_attempt(
    job: Job,
    machine: Machine,
    *,
    environment: Mapping[str, str] | None = None,
    **changes: Any,
) -> PastAttempt:
    """An attempt of a job that ended ok after ten seconds, alone, with one thread; see `changes`.

    >>> from headway.testing.machines import fake_machine
    >>> from headway.testing.queues import fake_job
    >>> past_attempt(fake_job("a"), fake_machine(), threads=2).threads
    2
    """
    identity = Identity.of(job, environment or {})
    return PastAttempt.model_validate(
        {
            "key": identity.key,
            "script": identity.script,
            "script_name": identity.script_name,
            "content": Contents().of(identity.path),
            "machine": machine_digest(machine),
            "ended_ns": 0,
            "status": "ok",
            "threads": 1,
            "total_s": 10.0,
            **changes,
        }
    )
