"""What runs inside a job's process: the recorder (standard library only)."""

from pathlib import Path


def recorder_folder() -> Path:
    """Give the folder to put first on a job's PYTHONPATH; it holds nothing but the recorder.

    >>> [file.name for file in recorder_folder().glob("*.py")]
    ['sitecustomize.py']
    """
    return Path(__file__).resolve().parent / "recorder"
