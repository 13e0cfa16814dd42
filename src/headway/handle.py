"""A run on disk and the verbs that work on it.

Planners, engines and the agent meet here: policy and engine are loaded from their tables by the
names in the plan, and both are handed to `sim.drive`.
"""

import contextlib
import difflib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from headway.core import tables
from headway.core.errors import BadFile, NoSpace, RunIsLive, UnknownName, UsageError
from headway.core.machine import Machine
from headway.core.policy import Engine, LiveWorld, Policy
from headway.core.run import PAGE, JobResult, Result, Run
from headway.core.view import View
from headway.core.words import Event

if TYPE_CHECKING:
    from headway.board.server import Served
    from headway.core.workload import Workload
    from headway.forecast.expected import Expected

EXPECTED = "expected.json"
Watch = Callable[[Event, View], None]


class RunHandle:
    """A run on disk, with the verbs that work on it."""

    def __init__(self, run: Run) -> None:
        self.folder = run

    def close(self) -> None:
        """Give the folder's descriptor back."""
        self.folder.folder.close()

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @property
    def name(self) -> str:
        """What the run is called: its folder's name."""
        return self.folder.name

    @property
    def begun(self) -> bool:
        """Whether it was ever supervised: what happened then is in its journal."""
        return self.folder.folder.exists("journal.jsonl")

    def supervisor(self) -> int | None:
        """Process that supervises the run now, or None."""
        from headway.engines.local.control import supervisor_of

        return supervisor_of(self.folder)

    def status(self) -> Result:
        """How the run stands: of a live one as its journal tells, of an ended one as it ended."""
        from headway.reports.standing import Onlooker

        return Onlooker(self.folder).look().result

    def wait(
        self,
        jobs: Collection[str] = (),
        *,
        timeout_s: float | None = None,
        poll_s: float = 0.2,
    ) -> Result:
        """Until the named jobs (all by default) have ended, or nobody supervises the run any more.

        Raises:
            TimeoutError: `timeout_s` passed first.
        """
        self.indices(jobs)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            began = time.monotonic()
            live = self.supervisor() is not None
            over = deadline is not None and began > deadline
            # While all are waited for, the supervisor's end says it; replaying the journal of a
            # long list at every look would cost a core.
            if jobs or over or not live:
                result = self.status()
                chosen = [job for job in result.jobs if not jobs or job.name in jobs]
                open_jobs = [job for job in chosen if job.status in ("waiting", "running")]
                if not live or (jobs and not open_jobs):
                    return result
                if over:
                    raise TimeoutError(f"{len(open_jobs)} jobs of {self.name} have not ended yet")
            time.sleep(max(poll_s, 10 * (time.monotonic() - began)))

    def cancel(self, jobs: Collection[str] = (), *, timeout_s: float = 30.0) -> list[JobResult]:
        """Cancel jobs (all by default), whatever state they are in; returns when they are gone.

        Where no supervisor lives, the trees are ended from here.

        Raises:
            UnknownName: A job is not in this run.
            TimeoutError: The supervisor did not get it done in time.
        """
        indices = self.indices(jobs)
        names = [self.folder.jobs.jobs[index].name for index in indices]
        asked: int | None = None
        deadline = time.monotonic() + timeout_s
        while True:
            results = self.status().jobs
            chosen = [results[index] for index in indices]
            if all(job.status not in ("waiting", "running") for job in chosen):
                return chosen
            supervisor = self.supervisor()
            if supervisor is None:
                with contextlib.suppress(RunIsLive):
                    return self._cancel_here(indices, names)
            elif supervisor != asked:  # one that came after a dead one may not know of it
                self.folder.request("cancel", names)
                asked = supervisor
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all jobs of {self.name} ended within {timeout_s:.0f} s")
            time.sleep(0.1)

    def retry(
        self,
        jobs: Collection[str] = (),
        *,
        failed: bool = False,
        lost: bool = False,
        watch: Watch | None = None,
    ) -> Result:
        """Run ended jobs again, and whatever else of the run has not ended, in the foreground.

        Args:
            jobs: By name; these in whatever way they ended.
            failed: All that ended failed, oom, timeout or stalled.
            lost: All that were lost.
            watch: As in `run`.

        Raises:
            UsageError: Nothing is to be run again.
            RunIsLive: The run is being supervised.
        """
        chosen = self.to_retry(jobs, failed=failed, lost=lost)
        return self.supervise(watch=watch, again=chosen)

    def to_retry(
        self, jobs: Collection[str] = (), *, failed: bool = False, lost: bool = False
    ) -> list[int]:
        """Indices of the jobs that `retry` would run again, with those cancelled because of them.

        Raises:
            UsageError: There are none.
        """
        wanted = {"failed", "oom", "timeout", "stalled"} if failed else set()
        wanted |= {"lost"} if lost else set()
        if not wanted and not jobs:
            wanted = {"failed", "oom", "timeout", "stalled", "lost", "cancelled"}
        results = self.status().jobs
        named = set(self.indices(jobs)) if jobs else set()
        chosen = {
            index
            for index, result in enumerate(results)
            if (index in named and result.status not in ("waiting", "running"))
            or result.status in wanted
        }
        # Whoever was cancelled because a predecessor did not end ok gets its chance with it.
        by_name = {job.name: index for index, job in enumerate(self.folder.jobs.jobs)}
        grown = True
        while grown:
            grown = False
            for index, job in enumerate(self.folder.jobs.jobs):
                follows = any(by_name[name] in chosen for name in job.after)
                if index not in chosen and follows and results[index].status == "cancelled":
                    chosen.add(index)
                    grown = True
        if not chosen:
            words = ", ".join(sorted(wanted)) or "ended"
            raise UsageError(f"nothing to retry in {self.name}: no job of it is {words}")
        return sorted(chosen)

    def supervise(
        self,
        *,
        watch: Watch | None = None,
        again: Collection[int] = (),
        on_world: Callable[[LiveWorld], None] | None = None,
    ) -> Result:
        """Drive the run from here until it has ended; the foreground of run, --resume and retry.

        Args:
            watch: Called after each event.
            again: Jobs that have ended and shall run again.
            on_world: Gets the engine's world before the first event, so that signal handlers can
                interrupt it.

        Raises:
            RunIsLive: Somebody else supervises it.
            NoSpace: The disk is full.
        """
        from headway.probes.device_use import DeviceWatch
        from headway.probes.devices import load_nvml
        from headway.probes.machine import look_at_devices

        if not again and self.supervisor() is None:
            result = self.folder.result()
            if result is not None and result.outcome != "interrupted":
                return result
        machine = self._machine_now()
        nvml = load_nvml() if machine.devices else None
        with (
            self._divided(machine, nvml) as (machine, give_back),
            self._open_world(machine) as world,
            DeviceWatch(nvml, machine.devices) as devices,
        ):
            if again:
                world.again(again)
                # Whoever is killed from here on leaves a run that has not ended as that file says.
                self.folder.folder.remove("result.json")
            # What it says of a run that was interrupted is true no longer.
            self.folder.folder.remove(PAGE)
            if machine.devices:
                world.see_devices_with(look_at_devices)
                world.watch_use_with(devices.read)
            if on_world is not None:
                on_world(world)
            learnt, trouble = self._drive(world, machine, watch)
            trouble = [*trouble, *give_back()]
            return self._write_result(
                world, learnt=learnt, notes=[*self.folder.jobs.notes, *self.differences(), *trouble]
            )

    def expect(self, expected: "Expected") -> None:
        """Keep what is expected of the run, to set what happens beside it; a hint like any other.

        Nothing is said where the disk is full: the run will say so.
        """
        with contextlib.suppress(OSError):
            self.folder.folder.replace(EXPECTED, expected.to_json().encode())

    @property
    def expected(self) -> "Expected | None":
        """What was expected of the run when it began; None where nobody can tell any more."""
        from headway.forecast.expected import Expected

        try:
            found = Expected.from_json(self.folder.read_text(EXPECTED), source=EXPECTED)
        except BadFile:
            return None
        jobs = [job.name for job in self.folder.jobs.jobs]
        return found if [job.name for job in found.jobs] == jobs else None

    def differences(self) -> list[str]:
        """What differs between the environment the run was made in and this one, in words."""
        environment = self.folder.jobs.environment
        if environment is None:
            return []
        words = environment.differences(os.environ)
        shown = ", ".join(words[:8]) + (f" and {len(words) - 8} more" if len(words) > 8 else "")
        return [f"resumed in another environment: {shown}"] if words else []

    def indices(self, jobs: Collection[str]) -> list[int]:
        """Indices of jobs by name; all of them where none is named.

        Raises:
            UnknownName: A name is not in this run; near ones are listed.
        """
        listed = self.folder.jobs.jobs
        by_name = {job.name: index for index, job in enumerate(listed)}
        for name in jobs:
            if name not in by_name:
                near = difflib.get_close_matches(name, by_name, n=3) or list(by_name)[:8]
                raise UnknownName(
                    f'no job "{name}" in run {self.name}; there are: {", ".join(near)}'
                )
        return sorted(by_name[name] for name in jobs) if jobs else list(range(len(listed)))

    def log_path(self, job: str, *, stream: str = "stdout", attempt: int | None = None) -> Path:
        """File with a job's output; of its last attempt by default.

        Raises:
            UnknownName: No such job, or it has not been started.
        """
        index = self.indices([job])[0]
        folder = self.path / "jobs" / str(index + 1)
        attempts = sorted(int(p.name) for p in folder.glob("[0-9]*")) if folder.is_dir() else []
        if not attempts or (attempt is not None and attempt not in attempts):
            raise UnknownName(f'job "{job}" of {self.name} has no output yet: it was not started')
        return folder / str(attempt or attempts[-1]) / stream

    def logs(self, job: str, *, stream: str = "stdout", attempt: int | None = None) -> str:
        """A job's output so far, as text; bytes that are not UTF-8 are replaced.

        Raises:
            UnknownName: No such job, it has not been started, or its output cannot be read.
        """
        with open_log(self.log_path(job, stream=stream, attempt=attempt)) as file:
            return file.read().decode(errors="replace")

    def explain(self) -> Result:
        """What happened, job by job with causes and notes: the data of the report."""
        return self.status()

    @property
    def page(self) -> Path | None:
        """The report as a page, report.html in the run folder; None where there is none."""
        return self.path / PAGE if self.folder.folder.exists(PAGE) else None

    def serve(self, *, port: int | None = None) -> "Served":
        """A live page of the run, for this computer alone; its `serve` answers until Ctrl-C.

        Args:
            port: On 127.0.0.1; the first free one from 8642 on where it is None.

        Raises:
            UsageError: The port is taken, or may not be used.
        """
        from headway.board.server import prepared

        return prepared(self.folder, self.expected, port=port)

    def write_page(self, result: Result) -> str:
        """Write the page of a result; gives what hindered that, in words, "" for nothing."""
        from headway.reports.pagefile import write_page

        try:
            write_page(self.folder, result, expected=self.expected)
        except Exception as error:  # whatever it is: a report must not cost the result of a run
            return f"{PAGE} was not written: {error}"
        return ""

    # --- inside ----------------------------------------------------------------------------------

    def _machine_now(self) -> Machine:
        """The machine as it is now: a resumed run may find fewer cores or less memory."""
        return machine_now() if self.begun else self.folder.machine

    @contextlib.contextmanager
    def _divided(
        self, machine: Machine, nvml: Any | None
    ) -> "Iterator[tuple[Machine, Callable[[], list[str]]]]":
        """The machine with its GPUs divided as the plan says, and what makes them whole again.

        Raises:
            UsageError: A GPU cannot be divided so.
        """
        division = self.folder.plan.division
        if not division.layouts:
            yield machine, list
            return
        from headway.engines.mig import MigDivision
        from headway.planners.gpu_sharing import divided, divisible

        made = MigDivision(self.folder, nvml)
        # Of a run that goes on the GPUs may be divided already: as it was planned they were whole.
        whole = machine.model_copy(update={"devices": self.folder.machine.devices})
        placed = made.divide(division.layouts)
        try:
            yield divided(whole, division, divisible(whole), placed=placed), made.undo
        finally:
            # What a job still uses stays; whoever goes on with the run finds it in its folder.
            made.undo()

    def _policy(self) -> Policy:
        choice = self.folder.plan.policy
        return tables.load("headway.planners", choice.name, Policy).model_validate(choice.knobs)

    def _drive(
        self, world: LiveWorld, machine: Machine, watch: Watch | None
    ) -> "tuple[Sequence[Workload], Sequence[str]]":
        """Drive the world to its end, and learn on the way.

        Gives what is known of the jobs by then, and what hindered the learning.
        """
        from headway.core.index import state_folder
        from headway.forecast.neighbours import Neighbours
        from headway.planning import MOST_PLANNED, replanner
        from headway.probes.profiles import ProfileStore
        from headway.sim.drive import drive

        jobs = self.folder.jobs.jobs
        expected = self.expected
        with ProfileStore.open(state_folder()) as store:
            neighbours = Neighbours(
                jobs,
                machine,
                before=expected.workloads if expected else (),
                keep=store.learn_pairs,
            )
            with store.learner(
                machine, environment=os.environ, stretch_of=neighbours.stretch_of
            ) as learner:

                def seen(event: Event, view: View) -> None:
                    neighbours.watch(event, view)
                    learner.watch(event, view)
                    if watch is not None:
                        watch(event, view)

                def learn() -> None:
                    learner.flush()
                    neighbours.learn(now_ns=world.view.t)

                replan = replanner(
                    jobs,
                    machine,
                    store=store,
                    keep_threads=self.folder.plan.keep_threads,
                    environment=os.environ,
                    learn=learn,
                )
                drive(self._policy(), world, watch=seen, replan=replan)
                learn()
            learnt: Sequence[Workload] = ()
            if len(jobs) <= MOST_PLANNED:
                learnt = store.recall(jobs, machine, environment=os.environ).workloads
            return learnt, store.notes

    def _open_world(self, machine: Machine) -> AbstractContextManager[LiveWorld]:
        from headway.agent import recorder_folder

        plan = self.folder.plan
        engine = tables.load("headway.engines", plan.engine, Engine)()
        return engine.open(
            self.folder,
            plan,
            self.folder.jobs.jobs,
            machine,
            recorder=recorder_folder(),
            environment=os.environ,
        )

    def _cancel_here(self, indices: list[int], names: list[str]) -> list[JobResult]:
        from headway.sim.drive import drive

        with self._open_world(self._machine_now()) as world:
            world.only(indices)
            world.cancel(names)
            drive(self._policy(), world)
            result = self._write_result(world)
        return [result.jobs[index] for index in indices]

    def _write_result(
        self, world: LiveWorld, *, learnt: "Sequence[Workload]" = (), notes: Sequence[str] = ()
    ) -> Result:
        from headway.probes.progress import passages_of
        from headway.reports.comparison import Known, compared
        from headway.reports.summary import result_of

        result = result_of(
            world.view,
            self.folder.plan,
            began_ns=world.began_ns,
            # On the journal's clock: the computer's may have been set meanwhile.
            ended_ns=max(world.began_ns, world.view.t),
            notes=[*world.notes, *notes],
        )
        passages = passages_of(self.folder.folder)
        known = Known(expected=self.expected, learnt=learnt, passages=passages)
        result = compared(result, world.view, known)
        # First what counts: on a disk that is almost full the page could take its room.
        self.folder.write_result(result)
        hindrance = self.write_page(result)
        if hindrance:
            result = result.model_copy(update={"notes": (*result.notes, hindrance)})
            with contextlib.suppress(NoSpace, UsageError):
                self.folder.write_result(result)
        return result


def machine_now() -> Machine:
    """This machine, with what the runs of this user hold of it."""
    from headway.engines.local.reservations import held_now
    from headway.probes.machine import measure_machine

    return measure_machine(elsewhere=held_now())


def open_log(path: Path) -> BinaryIO:
    """A job's output for reading; a job can put a link or a pipe in its place, so both are refused.

    Raises:
        UnknownName: It is not there, or not a plain file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnknownName(f"{path}: cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnknownName(f"{path}: not a plain file")
    return os.fdopen(descriptor, "rb")
