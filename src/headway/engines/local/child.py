"""What a command is started with: its changes to the caller's environment, and the request."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from headway.core.environment import THREAD_VARIABLES
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.recording import FOLDER_VARIABLE, python_path
from headway.core.words import Share
from headway.engines.local.attempt import Attempt
from headway.engines.local.zygote import StartRequest


def environment_changes(
    job: Job,
    share: Share,
    machine: Machine,
    *,
    environment: Mapping[str, str],
    recorder: Path | None,
    steps_folder: Path,
    mps: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Variables to set for one attempt on top of the caller's.

    A thread count that the user set (in the job file, the command or the caller's environment) is
    never overridden, except that `threads=` of the job file beats the caller's environment. `mps`
    has the variables that make it a client of the run's MPS daemon.
    """
    own = dict(job.env)
    changes: dict[str, str] = {}
    if share.threads is not None:
        for name in THREAD_VARIABLES:
            if name not in own and (job.threads is not None or not environment.get(name)):
                changes[name] = str(share.threads)
    if share.devices:
        chosen = [device.uuid for device in machine.devices if device.index in share.devices]
        changes["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)
    elif job.gpus == 0:
        changes["CUDA_VISIBLE_DEVICES"] = ""
    changes.update(mps)
    changes.update(own)
    if recorder is not None:
        inherited = own.get("PYTHONPATH", environment.get("PYTHONPATH"))
        changes["PYTHONPATH"] = python_path(str(recorder), inherited)
    # Without a recorder of ours, a job must not write into the folder of whoever started us.
    changes[FOLDER_VARIABLE] = str(steps_folder) if recorder is not None else ""
    return changes


def start_request(
    attempt: Attempt,
    job: Job,
    share: Share,
    machine: Machine,
    *,
    environment: Mapping[str, str],
    recorder: Path | None,
    inherited_memory: Path | None,
    fault: str | None,
    mps: Mapping[str, str],
) -> StartRequest:
    """What the zygote is asked for: the command as the user wrote it, given to /bin/sh."""
    group = attempt.cgroup
    return StartRequest(
        identifier=attempt.index,
        folder=attempt.folder.path,
        argv=("/bin/sh", "-c", job.command),
        cwd=Path(job.folder),
        environment_set=environment_changes(
            job,
            share,
            machine,
            environment=environment,
            recorder=recorder,
            steps_folder=attempt.folder.steps,
            mps=mps,
        ),
        cpus=share.cores,
        cgroup_procs=[Path(path) for path in group.procs_files()] if group is not None else [],
        cgroup_memory=group.memory_folder if group is not None else None,
        inherited_memory=inherited_memory,
        fault=fault,
    )
