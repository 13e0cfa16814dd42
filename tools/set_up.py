"""Make the virtual environment ready: create it where missing, and install the project into it.

Run by `make setup` from the root of the project, with the Python that the environment is to have;
standard library only. A torch of 2.4 or later that the environment or this Python already has is
kept: torch is large, and the one that is there may be built for the machine's GPU.
"""

import re
import subprocess
import sys
import venv
from pathlib import Path

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 4)
VENV = Path(".venv")
VENV_PYTHON = VENV / "bin" / "python"

# Prints the version of torch and the folder that holds it, without importing it (which takes
# seconds), then the names of the packages it requires, one a line; prints nothing without torch.
FIND_TORCH = """
import importlib.metadata, sys
try:
    torch = importlib.metadata.distribution("torch")
except importlib.metadata.PackageNotFoundError:
    sys.exit()
print(torch.version)
print(torch.locate_file(""))
for requirement in torch.requires or ():
    print(requirement)
"""


def say(words: str) -> None:
    """Write a line to standard error, where progress belongs."""
    sys.stderr.write(f"{words}\n")


def answer_of(python: Path | str, program: str) -> str | None:
    """What a program prints under an interpreter; None where the interpreter does not run."""
    try:
        run = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout


def normal(name: str) -> str:
    """The normal form of a package's name, cut off before any version or marker.

    >>> normal("typing_extensions>=4.10.0")
    'typing-extensions'
    """
    match = re.match(r"[A-Za-z0-9._-]+", name)
    return re.sub(r"[-_.]+", "-", match.group().lower()) if match else ""


def kept_torch(python: Path | str) -> list[str]:
    """Version, folder and requirements of the torch an interpreter sees, if it is new enough."""
    lines = (answer_of(python, FIND_TORCH) or "").splitlines()
    if not lines:
        return []
    numbers = tuple(int(number) for number in re.findall(r"\d+", lines[0])[:2])
    return lines if numbers >= OLDEST_TORCH else []


def venv_version() -> tuple[int, ...]:
    """Major and minor version of the environment's Python; empty where it does not run."""
    words = answer_of(VENV_PYTHON, "import sys; print(*sys.version_info[:2])") or ""
    return tuple(int(word) for word in words.split())


def open_venv() -> None:
    """Create the environment, or make sure that the one that is there can be used."""
    if not VENV_PYTHON.is_symlink() and not VENV_PYTHON.exists():
        # An environment shares the packages of the base alone, even where another one makes it.
        in_base = sys.prefix == sys.base_prefix
        shared = in_base and bool(kept_torch(sys.executable))
        say(f"creating {VENV} with {sys.executable}")
        try:
            venv.create(VENV, symlinks=True, with_pip=True, system_site_packages=shared)
        except subprocess.CalledProcessError:
            # Debian and Ubuntu split ensurepip off; the environment exists, but without pip.
            sys.exit(
                f"{sys.executable} cannot create a virtual environment with pip; "
                "on Debian or Ubuntu install python3-venv, then run make again"
            )
    version = venv_version()
    if not version:
        sys.exit(f"{VENV_PYTHON} does not run; remove the folder with `make clean-venv`")
    if version < OLDEST_PYTHON:
        found = ".".join(map(str, version))
        sys.exit(f"{VENV} has Python {found}, needed is 3.11; remove it with `make clean-venv`")
    if answer_of(VENV_PYTHON, "import pip") is None:
        subprocess.run([VENV_PYTHON, "-m", "ensurepip"], check=True, stdout=subprocess.DEVNULL)


def share_torch() -> list[str]:
    """Let the environment see a torch that only this Python sees; return what it sees."""
    seen = kept_torch(VENV_PYTHON)
    outside = kept_torch(sys.executable)
    if seen or not outside:
        return seen
    if venv_version() != sys.version_info[:2]:
        return seen  # compiled for another Python
    # The torch of an active environment: a new one can only share the packages of the base.
    target = answer_of(VENV_PYTHON, "import sysconfig; print(sysconfig.get_path('purelib'))")
    Path((target or "").strip(), "shared_torch.pth").write_text(f"{outside[1]}\n")
    return kept_torch(VENV_PYTHON)


def write_constraints(torch: list[str]) -> Path:
    """Write the constraints to install by: without torch, and what it requires, where it is kept.

    A kept torch may require other versions than those pinned (torch 2.6 wants an exact sympy).
    """
    free = {"torch", *(normal(requirement) for requirement in torch[2:])} if torch else set()
    lines = Path("constraints.txt").read_text().splitlines()
    target = VENV / "constraints.txt"
    target.write_text("".join(f"{line}\n" for line in lines if normal(line) not in free))
    return target


def main() -> None:
    """Make the environment ready, or say in one line what stands in the way."""
    open_venv()
    torch = share_torch()
    if torch:
        say(f"torch {torch[0]} is already there and is kept; installing the rest into {VENV}")
    else:
        say(f"installing the project, torch and the tools into {VENV}: once, a minute or more")
    pip = [VENV_PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install = [*pip, "-e", ".[dev,examples]", "-c", write_constraints(torch)]
    if subprocess.run(install).returncode:
        sys.exit("the installation failed; pip said why above. Run make again to continue")


if __name__ == "__main__":
    main()
