"""What a command is started with: its changes to the caller's environment."""

from collections.abc import Mapping
from pathlib import Path

from headway.core.environment import THREAD_VARIABLES
from headway.core.job import Job
from headway.core.machine import Machine
from headway.core.recording import FOLDER_VARIABLE, python_path
from headway.core.words import Share


def environment_changes(
    job: Job,
    share: Share,
    machine: Machine,
    *,
    environment: Mapping[str, str],
    recorder: Path | None,
    steps_folder: Path,
) -> dict[str, str]:
    """Variables to set for one attempt on top of the caller's.

    A thread count that the user set (in the job file, the command or the caller's environment) is
    never overridden, except that `threads=` of the job file beats the caller's environment.
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
    changes.update(own)
    if recorder is not None:
        inherited = own.get("PYTHONPATH", environment.get("PYTHONPATH"))
        changes["PYTHONPATH"] = python_path(str(recorder), inherited)
    # Without a recorder of ours, a job must not write into the folder of whoever started us.
    changes[FOLDER_VARIABLE] = str(steps_folder) if recorder is not None else ""
    return changes
