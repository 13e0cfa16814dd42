"""What runs inside a job's process: the recorder (standard library only)."""

from pathlib import Path

from headway.core.errors import UsageError


def recorder_folder() -> Path:
    """Give the folder to put first on a job's PYTHONPATH; it holds nothing but the recorder.

    Raises:
        UsageError: Its path holds a colon, at which PYTHONPATH is split.

    >>> [file.name for file in recorder_folder().glob("*.py")]
    ['sitecustomize.py']
    """
    folder = Path(__file__).resolve().parent / "recorder"
    if ":" in str(folder):
        raise UsageError(
            f"Headway is installed in {folder.parent}, whose path holds a colon, which PYTHONPATH "
            "cannot express; install it elsewhere"
        )
    return folder
