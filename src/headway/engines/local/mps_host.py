"""MPS for the jobs of a run: a control daemon of our own, asked without holding up the run.

Every question to a daemon may take seconds, and a run's one loop watches the memory of all jobs
meanwhile. So questions are asked in threads, and the world sees at its next turn what came of them.

[Note: what becomes of a run whose daemon fails] Nothing is lost: jobs that start without a daemon
share the GPU in time slices, which the memory that was counted for them allows as well. That is
said in words, once.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.mps import MpsShare, uneven_shares
from headway.core.words import Share
from headway.system.mps import ANSWER_S, Control, Health
from headway.system.mps_daemon import Daemon, start_daemon
from headway.system.mps_log import Fault, read_log, server_facts
from headway.system.mps_tool import MpsError, find_executables
from headway.system.procfs import boot_id

RELEASE_S = 5.0
"""How long a client may take to let its work on the GPU come to an end before it is killed."""
LOOK_NS = 5_000_000_000
_SLICES = "jobs that start from now on share GPUs in time slices"


class _Seen(NamedTuple):
    """What one look at the daemon gave; `daemon` is another one where it had gone."""

    health: Health
    daemon: Daemon | None = None
    words: tuple[str, ...] = ()


class MpsHost:
    """The daemon of one run. `notes` says in words what went wrong, each thing once.

    Args:
        run: The run's folder; pipes and logs lie in it where its path is short enough.
        devices: UUIDs of the GPUs that jobs share.
        environment: The caller's variables; the control program is looked for on its PATH.
        answer_s: How long an answer may take.
    """

    def __init__(
        self,
        run: Path,
        devices: Sequence[str],
        *,
        environment: Mapping[str, str],
        answer_s: float = ANSWER_S,
    ) -> None:
        self.notes: deque[str] = deque()
        self._folder = run / "mps"
        self._devices = tuple(devices)
        self._environment = environment
        self._answer_s = answer_s
        self._daemon: Daemon | None = None
        self._state = "absent"
        self._next_look_ns = 0
        self._closing = False
        self._looking: Future[_Seen] | None = None
        self._asks = ThreadPoolExecutor(1, thread_name_prefix="mps-look")
        self._releases = ThreadPoolExecutor(1, thread_name_prefix="mps-release")

    @property
    def ready(self) -> bool:
        """Whether a job that starts now is served by MPS."""
        return self._daemon is not None and self._state in ("ready", "refuses")

    @property
    def faulty(self) -> bool:
        """Whether no client is taken until those that an error of a GPU has hit have left."""
        return self._state == "fault"

    # --- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a daemon; where none can be had, say so: it goes on without."""
        self._daemon, words = self._started()
        self._state = "absent" if self._daemon is None else "ready"
        self.notes.extend(words)

    def _started(self) -> tuple[Daemon | None, tuple[str, ...]]:
        """A new daemon, or None, and what is to be said of it."""
        try:
            daemon = start_daemon(
                find_executables(self._environment.get("PATH")).control,
                self._folder,
                devices=self._devices,
                answer_s=self._answer_s,
                environment=self._environment,
            )
        except MpsError as error:
            return None, (_without(str(error)),)
        return daemon, daemon.notes

    def adopt(self, kept: Mapping[str, Any]) -> None:
        """Take over the daemon that an earlier life of this run has left, if it still runs."""
        daemon = Daemon(
            Control(Path(kept["program"]), Path(kept["pipe"]), self._answer_s, self._environment),
            Path(kept["log"]),
            kept["pid"],
            kept["start_ticks"],
            kept["boot"],
        )
        if daemon.boot == boot_id() and daemon.alive():
            self._daemon, self._state = daemon, "ready"
        else:
            self.start()

    @property
    def kept(self) -> dict[str, Any] | None:
        """What a later life needs to know of the daemon; None where there is none."""
        if self._daemon is None:
            return None
        return {
            "program": str(self._daemon.control.executable),
            "pipe": str(self._daemon.control.pipe_folder),
            "log": str(self._daemon.log_folder),
            "pid": self._daemon.pid,
            "start_ticks": self._daemon.start_ticks,
            "boot": self._daemon.boot,
        }

    def close(self, *, keep: bool) -> None:
        """End the daemon, unless jobs go on under it."""
        self._closing = True
        self._releases.shutdown(wait=False, cancel_futures=True)
        # A look that goes on would take our own end of the daemon for its loss, and replace it.
        self._asks.shutdown(wait=True, cancel_futures=True)
        if self._looking is not None and not self._looking.cancelled():
            self._judge(self._looking.result())
        if self._daemon is None or keep:
            return
        ending = self._daemon.end()
        if ending.how == "alive":
            self.notes.append(f"the MPS daemon {self._daemon.pid} did not end: {ending.words}")
        self._daemon = None

    # --- jobs ------------------------------------------------------------------------------------

    def environment(self, share: Share, *, processes: int) -> dict[str, str]:
        """The variables that make a job's processes clients with no more than its share.

        Args:
            share: Its devices, the memory it is counted with on each, and its part of each.
            processes: How many of its processes use a device: each gets so much less.
        """
        if self._daemon is None or not self.ready:
            return {}
        if not self._daemon.alive():
            # CUDA would say nothing, and go on without MPS and without the limits.
            self._state, self._next_look_ns = "missed", 0
            self.notes.append(_without("its daemon has gone"))
            return {}
        try:
            (each,) = uneven_shares(
                [share.device_part or 1.0], [processes], memory_bytes=[share.device_bytes]
            )
        except ValueError:
            each = MpsShare(100)  # a part too small to be written is no limit that could be given
        limit = each.environment().get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "").removeprefix("0=")
        variables = {**self._daemon.control.client_environment(), **each.environment()}
        if limit:
            # A client counts the devices that it sees from 0.
            limits = ",".join(f"{place}={limit}" for place in range(len(share.devices)))
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = limits
        return variables

    def release(self, pids: Collection[int]) -> Future[str]:
        """Take these processes off their servers, so that they may be killed.

        The future gives what hindered it, in words; "" where nothing did, or none is a client.
        """
        daemon = self._daemon
        if daemon is None or self._state == "gone":
            done: Future[str] = Future()
            done.set_result("")
            return done
        return self._releases.submit(_release, daemon.control, frozenset(pids))

    def served(self, pids: Collection[int]) -> Future[bool | None]:
        """Whether any of these processes is a client; None where nobody can tell."""
        daemon = self._daemon
        assert daemon is not None
        return self._asks.submit(_served, daemon.control, frozenset(pids))

    @property
    def faults(self) -> int:
        """How many errors of GPUs the log tells of so far."""
        return len(self._faults())

    def blame(self, pids: Collection[int], *, since: int) -> str:
        """What the log says of an error of a GPU that may have ended these processes; "" for none.

        Args:
            pids: Those that were seen of a job; short-lived ones may be missing.
            since: How many errors the log had told of when they were started.
        """
        faults = self._faults()[since:]
        if not faults:
            return ""
        hit = sorted({pid for fault in faults for pid in fault.victims} & set(pids))
        whom = f"its process {hit[0]} and all others" if hit else "all"
        return (
            f"an error of a GPU hit {whom} on that GPU under MPS, which does not tell who caused it"
        )

    # --- how it is -------------------------------------------------------------------------------

    def look(self, now_ns: int) -> None:
        """See what came of the last look at the daemon, and begin another when it is time."""
        if self._looking is not None and self._looking.done():
            seen = self._looking.result()
            self._looking = None
            self._judge(seen)
        if self._daemon is not None and self._looking is None and now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + LOOK_NS
            self._looking = self._asks.submit(self._look, self._daemon)

    def _look(self, daemon: Daemon) -> _Seen:
        """In a thread: how the daemon is; one that has gone is replaced."""
        health = daemon.control.health()
        if health.state != "gone" or self._closing:
            return _Seen(health, daemon)
        daemon.end()  # servers that it left behind
        fresh, words = self._started()
        return _Seen(health, fresh, words)

    def _faults(self) -> tuple[Fault, ...]:
        daemon = self._daemon
        return () if daemon is None else server_facts(read_log(daemon.server_log)[0]).faults

    def _judge(self, seen: _Seen) -> None:
        health, before = seen.health, self._state
        self._state = health.state
        if health.state == before:
            return
        if health.state == "ready":
            self.notes.append("MPS takes clients again")
        elif health.state == "fault":
            self.notes.append(f"MPS: {health.words}; jobs wait for that")
        elif health.state == "gone":
            again = "" if seen.daemon is None else "; another one was started"
            self.notes.append(f"the MPS daemon has gone{again}: {health.words}")
            self.notes.extend(seen.words)
            self._daemon = seen.daemon
            self._state = "absent" if seen.daemon is None else "ready"
        else:
            self.notes.append(_without(health.words))


def _without(why: str) -> str:
    return f"without MPS: {why}; {_SLICES}"


def _release(control: Control, pids: frozenset[int]) -> str:
    try:
        clients = {one.pid: one.server for one in control.processes() if one.pid in pids}
        for pid, server in clients.items():
            control.terminate_client(server, pid, timeout_s=RELEASE_S)
    except MpsError as error:
        return str(error)
    return ""


def _served(control: Control, pids: frozenset[int]) -> bool | None:
    try:
        return any(one.pid in pids for one in control.processes())
    except MpsError:
        return None
