"""The shape of the package: what it offers, and what importing it costs."""

import subprocess
import sys

import headway


def test_all_is_what_can_be_seen() -> None:
    assert sorted(headway.__all__) == dir(headway)
    for name in headway.__all__:
        assert getattr(headway, name) is not None


def test_unknown_names_are_attribute_errors() -> None:
    assert not hasattr(headway, "colour")


def loaded_by(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_headway_loads_nothing_heavy() -> None:
    loaded = loaded_by("import headway")
    heavy = {"torch", "numpy", "scipy", "pydantic", "rich", "typer", "click", "pynvml", "sklearn"}
    heavy |= {"jinja2", "markupsafe"}
    assert not loaded & heavy
    assert {name for name in loaded if name.startswith("headway.")} == set()


def test_the_help_loads_no_noun() -> None:
    loaded = loaded_by(
        "sys.argv = ['headway', '--help']\n"
        "from headway.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
    )
    assert not loaded & {"pydantic", "torch", "numpy", "pynvml", "jinja2", "headway.core.noun"}


def test_a_run_needs_no_torch() -> None:
    loaded = loaded_by("import headway\nheadway.run, headway.Job, headway.Machine")
    assert not loaded & {"torch", "numpy", "jinja2"}
