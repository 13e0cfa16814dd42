"""The control groups of a run's attempts, where this machine lets us have them.

Without them a run works as well: memory is then watched instead of capped, and a memory kill is
told from the counters above us and the kernel's log.
"""

import contextlib
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from headway.system.cgroups import PREFIX, Cgroups, RunGroup, reopen
from headway.system.group import Branch, Cgroup, remove_branches, version_of
from headway.system.hierarchies import discover_hierarchies

NEEDED = ("freezer", "memory")
# Affinity holds a job to its cores too, but a job can change its own; a cpuset it cannot.
WELCOME = ("cpuset",)

# Entering a group waits up to 20 ms for all cores to pass a safe point of the kernel: much for a
# command of some milliseconds, and what is that short and small needs no watching. A script whose
# last TRIVIAL_COUNT attempts were below both marks is started without, unless it has a cap.
TRIVIAL_COUNT = 8
TRIVIAL_NS = 250_000_000
TRIVIAL_BYTES = 64 * 2**20


class Groups:
    """Makes, reopens and removes the groups of one run; `note` says why there are none."""

    def __init__(
        self,
        run: RunGroup | None,
        note: str,
        inherited_memory: Path | None,
        earlier: Collection[str],
    ) -> None:
        self._run = run
        self.note = note
        self.inherited_memory = inherited_memory
        self._earlier = earlier
        self._gone: list[Cgroup] = []
        self._trivial: dict[str, int] = {}

    @classmethod
    def discover(cls, run_path: Path, *, earlier: Collection[str]) -> "Groups":
        """Look where we stand and make the run's folder there, if that is allowed.

        Args:
            run_path: Names the folder.
            earlier: What earlier lives of the run made, perhaps from where they stood elsewhere.
        """
        hierarchies = discover_hierarchies()
        cgroups = Cgroups.discover(hierarchies=hierarchies)
        inherited = next((h.own for h in hierarchies if "memory" in h.controllers), None)
        reasons = [cgroups.usable[name] for name in NEEDED if cgroups.usable[name]]
        if reasons:
            return cls(None, f"no control group per job ({reasons[0]})", inherited, earlier)
        run_id = _run_id(run_path)
        controllers = NEEDED + tuple(name for name in WELCOME if not cgroups.usable[name])
        if not earlier and (stale := cgroups.open_run(run_id, controllers)) is not None:
            # Of a run that was killed here, and whose folder somebody then removed.
            with contextlib.suppress(OSError):
                stale.remove()
        try:
            return cls(cgroups.create_run(run_id, controllers), "", inherited, earlier)
        except OSError as error:
            words = f"no control group per job ({error.strerror or error})"
            return cls(None, words, inherited, earlier)

    def create(
        self, name: str, *, script: str, cap_bytes: int | None, cores: Sequence[int] | None
    ) -> Cgroup | None:
        """A new group for an attempt of a script, or None where there can be or need be none."""
        trivial = cap_bytes is None and self._trivial.get(script, 0) >= TRIVIAL_COUNT
        if self._run is None or trivial:
            return None
        try:
            cpus = cores if "cpuset" in self.folders else None
            return self._run.create(name, memory_limit_bytes=cap_bytes, cpus=cpus)
        except OSError as error:
            self.note = f"no control group for attempt {name} ({error.strerror or error})"
            return None

    def learn(self, script: str, *, took_ns: int, peak_bytes: int) -> None:
        """An attempt of a script ended: was it too short and small to be worth a group?"""
        trivial = took_ns < TRIVIAL_NS and peak_bytes < TRIVIAL_BYTES
        self._trivial[script] = self._trivial.get(script, 0) + 1 if trivial else 0

    @property
    def folders(self) -> dict[str, str]:
        """The run's folder of each controller, for the journal: a later life finds them by it."""
        branches = self._run.branches if self._run is not None else ()
        return {name: str(one.folder) for one in branches for name in sorted(one.controllers)}

    def reopen(self, folders: Mapping[str, str], name: str) -> Cgroup | None:
        """An attempt's group that an earlier life made, from the folders it journalled."""
        try:
            return reopen({controller: f"{path}/{name}" for controller, path in folders.items()})
        except ValueError:
            return None

    def discard(self, cgroup: Cgroup | None) -> None:
        """An attempt ended: its group goes as soon as the kernel lets go of it."""
        if cgroup is not None:
            self._gone.append(cgroup)
            self.sweep()

    def sweep(self) -> None:
        """Remove what can be removed now; the rest at the next call (EBUSY lasts some ms)."""
        left = []
        for cgroup in self._gone:
            try:
                cgroup.remove(sleep=_refuse_to_wait)
            except (OSError, _BusyError):
                left.append(cgroup)
        self._gone = left

    def close(self, *, keep: bool) -> None:
        """Remove everything, unless attempts still run in there; harmless when done twice."""
        for cgroup in self._gone:
            with contextlib.suppress(OSError):
                cgroup.remove()
        if keep:
            return
        if self._run is not None:
            with contextlib.suppress(OSError):
                self._run.remove()
        for place in self._earlier:
            path = Path(place)
            if path.name.startswith(PREFIX) and ".." not in path.parts:
                with contextlib.suppress(OSError):
                    remove_branches([Branch(version_of(path), frozenset(), path)])


class _BusyError(Exception):
    """The kernel still holds the group."""


def _refuse_to_wait(_seconds: float) -> None:
    raise _BusyError


def _run_id(path: Path) -> str:
    """A name for the kernel: readable, and different for runs of one name in different places."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", path.name)[:80].lstrip(".-") or "run"
    return f"{readable}-{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"
