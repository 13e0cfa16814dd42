"""GPUs divided for a run: instances made before its jobs start, and taken away when it has ended.

What was made is kept in the run's folder as soon as it exists, so that a run that goes on after its
supervisor was killed finds it, or makes it again where a reboot took it.
"""

from collections.abc import Mapping
from typing import Any

from headway.core.errors import BadFile, UsageError
from headway.core.mig import MigInstance, Refusal
from headway.core.noun import Noun
from headway.core.plan import Layout
from headway.core.run import Run
from headway.system.mig_layout import MigGpu, MigRefused, open_mig

DIVIDED = "mig.json"

Placed = Mapping[tuple[str, int], str]
"""The UUID of the MIG device at each start on each GPU."""


class DividedGpu(Noun):
    """What was done to one GPU; `turned_on` says that MIG was off on it before."""

    gpu: str
    turned_on: bool = False
    instances: tuple[MigInstance, ...] = ()


class DividedGpus(Noun):
    """What was done to GPUs for a run, as its folder keeps it."""

    gpus: tuple[DividedGpu, ...] = ()


class MigDivision:
    """The instances of one run.

    Args:
        run: Whose folder keeps what was made.
        nvml: A module like pynvml, or None where there is none.
    """

    def __init__(self, run: Run, nvml: Any | None) -> None:
        self._run = run
        self._nvml = nvml
        self._made = {one.gpu: one for one in self._kept().gpus}

    def divide(self, layouts: tuple[Layout, ...]) -> Placed:
        """Make what is not there yet; where one GPU cannot be divided, nothing stays divided.

        Raises:
            UsageError: A GPU cannot be divided so, and why.
        """
        placed: dict[tuple[str, int], str] = {}
        try:
            for layout in layouts:
                for instance in self._divide(layout):
                    placed[layout.gpu, instance.start] = instance.uuids[0]
        except MigRefused as error:
            left = self.undo()
            words = f"; {'; '.join(left)}" if left else ""
            raise UsageError(
                f"{error}{words}. Nothing was started; plan again without MIG, or divide the GPU "
                "by hand, and its parts are used"
            ) from None
        return placed

    def undo(self) -> list[str]:
        """Take away what was made here; gives what could not be, in words with what to do."""
        words = []
        for gpu, made in list(self._made.items()):
            try:
                with open_mig(self._nvml, gpu) as levers:
                    levers.destroy(made.instances)
                    if made.turned_on:
                        levers.set_mode(on=False)
            except MigRefused as error:
                words.append(
                    f"{error}; it stays divided: nvidia-smi mig -i {gpu} -dci, then -dgi, when "
                    "nothing uses it"
                )
                continue
            del self._made[gpu]
            self._keep()
        return words

    def _divide(self, layout: Layout) -> tuple[MigInstance, ...]:
        if self._nvml is None:
            raise MigRefused("there is no NVIDIA driver here")
        with open_mig(self._nvml, layout.gpu) as levers:
            facts = levers.facts()
            made = self._made.get(layout.gpu, DividedGpu(gpu=layout.gpu))
            there = facts.instances or ()
            wanted = sorted(layout.profiles)
            have = sorted(one.profile for one in made.instances)
            if have == wanted and all(one in there for one in made.instances):
                return made.instances
            made = made.model_copy(update={"instances": ()})
            if not facts.on:
                levers.set_mode(on=True)
                made = made.model_copy(update={"turned_on": True})
                self._note(made)
                facts = levers.facts()
            return self._create(levers, made, layout)

    def _create(self, levers: MigGpu, made: DividedGpu, layout: Layout) -> tuple[MigInstance, ...]:
        facts = levers.facts()
        if facts.table is None:
            raise MigRefused(f"{layout.gpu} cannot be divided: {'; '.join(facts.notes)}")
        there = [instance.placement for instance in facts.instances or ()]
        placements = facts.table.layout(layout.profiles, beside=there)
        if isinstance(placements, Refusal):
            raise MigRefused(f"{layout.gpu} cannot be divided so: {placements.reason}")
        found: dict[int, MigInstance] = {}

        def exists(instance: MigInstance) -> None:
            found[instance.id] = instance
            self._note(made.model_copy(update={"instances": tuple(found.values())}))

        instances = levers.create(placements, made=exists)
        self._note(made.model_copy(update={"instances": instances}))
        return instances

    def _note(self, made: DividedGpu) -> None:
        self._made[made.gpu] = made
        self._keep()

    def _keep(self) -> None:
        content = DividedGpus(gpus=tuple(self._made.values())).to_json(indent=1)
        self._run.folder.replace(DIVIDED, content.encode(), durable=True)

    def _kept(self) -> DividedGpus:
        if not self._run.folder.exists(DIVIDED):
            return DividedGpus()
        try:
            return DividedGpus.from_json(self._run.read_text(DIVIDED), source=DIVIDED)
        except BadFile as error:
            raise UsageError(
                f"{error} It says which MIG instances the run made: see nvidia-smi mig -lgi, "
                "remove them and this file, then resume"
            ) from None
