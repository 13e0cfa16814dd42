"""How an attempt ended: each row of what was tried for real, and what must not be taken for it."""

import errno
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.units import GIB, MIB
from headway.core.words import NO_DEVICE
from headway.engines.local.attempts import CgroupMemory, ExitRecord, SpawnError
from headway.engines.local.last_words import read_last_words
from headway.engines.local.outcomes import Evidence, Victim, classify, lost_outcome
from headway.system.kernel_log import OomKill


def Record(**given):  # noqa: N802
    """An exit record of a command that ended well, but for what is given."""
    plain = {
        "exit_code": 0,
        "signal": None,
        "spawn_error": None,
        "start_ns": 0,
        "command_end_ns": 1,
        "end_ns": 1,
        "largest_process_bytes": 7 * MIB,
        "user_s": 0.0,
        "system_s": 0.0,
        "reaped": 1,
        "killed_children": (),
        "cgroup": None,
        "host_oom_kills": (3, 3),
        "inherited_oom_kills": (0, 0),
        "address_space_limit_bytes": None,
        "notes": (),
    }
    return ExitRecord(**{**plain, **given})


KILLED = Record(exit_code=None, signal=9)
FULL = CgroupMemory(1, 400 * MIB, 400 * MIB)
CACHED = CgroupMemory(0, 400 * MIB, 400 * MIB)
HOST_KILL = replace(KILLED, host_oom_kills=(3, 4))
AROUND_KILL = replace(KILLED, host_oom_kills=(3, 4), inherited_oom_kills=(0, 1))
LIMITED = Record(exit_code=1, address_space_limit_bytes=2000 * MIB)

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
TORCH = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
    "allocate memory: you tried to allocate 800000000 bytes. Error code 12 (Cannot allocate "
    "memory)\n"
)
NUMPY = (
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.11 PiB for an array with "
    "shape (1000000000000000,) and data type float64\n"
)
CUDA = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.10 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process "
    "has 78.00 GiB memory in use.\n"
)
SHARED_CUDA = CUDA.replace("Including", "Process 4711 has 21.00 GiB memory in use. Including")
WORKER = "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. \n"
SHAPES = "ValueError: shapes (128,64) and (60,10) not aligned\n"
CHATTER = "".join(f"epoch {i} loss 0.1\n" for i in range(25))


def evidence(record, stderr="", **more):
    return Evidence(record=record, stderr_tail=stderr.encode(), **more)


OUT_OF_MEMORY = {
    "torch grows under a cap": (
        evidence(replace(KILLED, cgroup=FULL)),
        "killed at 400 MiB of its 400 MiB cap; the job itself grew; victim: the command itself",
    ),
    "the victim is named where the kernel's log can be read": (
        evidence(
            replace(KILLED, cgroup=CgroupMemory(1, int(1.98 * GIB), 2 * GIB)),
            victims=[Victim(9, "other", "/b"), Victim(41, "python3", "/a")],
            tree_pids=frozenset({40, 41}),
        ),
        "killed at 1.98 GiB of its 2.0 GiB cap; the job itself grew; "
        "victim: its process 41 (python3)",
    ),
    "a victim too short-lived to be sampled is known by its cgroup": (
        evidence(
            replace(KILLED, cgroup=FULL), victims=[Victim(41, "dd", "/x/1")], cgroup_path="/x/1"
        ),
        "victim: its process 41 (dd)",
    ),
    "a kernel without a recorded peak": (
        evidence(replace(KILLED, cgroup=CgroupMemory(1, None, None)), cap_bytes=2 * GIB),
        "of its 2.0 GiB cap; the job itself grew",
    ),
    "a cgroup of its own, but the limit above it was met": (
        evidence(replace(KILLED, cgroup=CgroupMemory(1, 300 * MIB, GIB))),
        "killed at 300 MiB; memory around it was full",
    ),
    "the log knows better than the peak whose limit it was": (
        evidence(
            replace(KILLED, cgroup=CgroupMemory(1, GIB, GIB)),
            victims=[Victim(41, "python3", "/x/1", limit_of="/x")],
            cgroup_path="/x/1",
        ),
        "killed at 1.00 GiB; memory around it was full",
    ),
    "the log knows better than the counters where memory was full": (
        evidence(AROUND_KILL, victims=[Victim(41, "python3", "/x", "")], tree_pids=frozenset({41})),
        "the machine's memory was full; victim: its process 41 (python3)",
    ),
    "in the cgroup around Headway, too short-lived to be sampled": (
        evidence(
            replace(AROUND_KILL, exit_code=137, signal=None), victims=[Victim(41, "python3", "/a")]
        ),
        "the memory of the cgroup Headway is in was full; victim: its process 41 (python3)",
    ),
    "in its own cgroup, named by the log's short line alone": (
        evidence(
            Record(exit_code=137, cgroup=FULL), victims=[Victim(41, "dd", "")], cgroup_path="/x/1"
        ),
        "victim: its process 41 (dd)",
    ),
    "child killed behind exit 0": (
        evidence(
            Record(cgroup=FULL), victims=[Victim(41, "python3", "/a")], tree_pids=frozenset({41})
        ),
        "finished with exit 0 but the kernel killed its process 41 (python3) for memory, "
        "at 400 MiB of its 400 MiB cap; the job itself grew",
    ),
    "sh -c 'job; true' in the cgroup around Headway": (
        evidence(
            Record(host_oom_kills=(3, 4), inherited_oom_kills=(0, 1)),
            victims=[Victim(41, "python3", "/a")],
            tree_pids=frozenset({40, 41}),
            siblings=3,
        ),
        "finished with exit 0 but the kernel killed its process 41 (python3)",
    ),
    "loader worker killed in its own cgroup": (
        evidence(Record(exit_code=1, cgroup=FULL), TRACEBACK + WORKER),
        "killed at 400 MiB of its 400 MiB cap",
    ),
    "loader worker killed, counted around Headway": (
        evidence(
            Record(exit_code=1, host_oom_kills=(0, 1), inherited_oom_kills=(0, 1)),
            TRACEBACK + WORKER,
        ),
        "the memory of the cgroup Headway is in was full; victim: its process 77",
    ),
    "rlimit, torch grows": (
        evidence(LIMITED, TRACEBACK + TORCH),
        "exit 1: memory ran out: RuntimeError: [enforce fail",
    ),
    "rlimit, bytearrays": (
        evidence(LIMITED, TRACEBACK + "MemoryError\n"),
        "exit 1: memory ran out: MemoryError; it ran under an address space limit of 2.0 GiB "
        "(ulimit -v)",
    ),
    "rlimit, a library cannot be mapped": (
        evidence(
            LIMITED,
            TRACEBACK + "ImportError: libtorch_cpu.so: failed to map segment from shared object\n",
        ),
        "address space limit",
    ),
    "host's counter, log names a process of the tree": (
        evidence(
            HOST_KILL,
            victims=[Victim(41, "python3", "/", "")],
            tree_pids=frozenset({41}),
            siblings=2,
        ),
        "the machine's memory was full; victim: its process 41 (python3)",
    ),
    "host's counter, log not readable, nobody beside it": (
        evidence(HOST_KILL, peak_bytes=3 * GIB),
        "killed at 3.00 GiB; the machine's memory was full; victim: the command itself",
    ),
    "counter around Headway, log wrapped": (
        evidence(AROUND_KILL, victims=[]),
        "the memory of the cgroup Headway is in was full",
    ),
    "a daemon it left behind was the victim": (
        evidence(
            Record(exit_code=1, killed_children=((50, 15), (51, 9)), host_oom_kills=(0, 1)),
        ),
        "victim: its process 51",
    ),
    "a shell's 137 with a counter that rose": (
        evidence(Record(exit_code=137, host_oom_kills=(0, 1))),
        "victim: one of its processes",
    ),
    "an old kernel counts nothing, but its log names us": (
        evidence(
            replace(KILLED, host_oom_kills=(None, None), inherited_oom_kills=(None, None)),
            victims=[Victim(41, "python3", "/", "")],
            tree_pids=frozenset({41}),
        ),
        "victim: its process 41 (python3)",
    ),
    "numpy asks for more than there is": (
        evidence(Record(exit_code=1), TRACEBACK + NUMPY, host_bytes=24 * GIB),
        "this machine has 24.0 GiB in all",
    ),
    "C++ throws bad_alloc": (
        evidence(
            Record(exit_code=None, signal=6),
            "terminate called after throwing an instance of 'std::bad_alloc'\n"
            "  what():  std::bad_alloc\n",
        ),
        "killed by signal 6 (SIGABRT): memory ran out: std::bad_alloc",
    ),
    "C++ throws bad_alloc behind a shell": (
        evidence(
            Record(exit_code=134),
            "terminate called after throwing an instance of 'std::bad_alloc'\n"
            "  what():  std::bad_alloc\nAborted (core dumped)\n",
        ),
        "memory ran out: std::bad_alloc",
    ),
    "errno 12": (
        evidence(Record(exit_code=1), TRACEBACK + "OSError: [Errno 12] Cannot allocate memory\n"),
        "memory ran out: OSError: [Errno 12] Cannot allocate memory",
    ),
    "a C program's perror": (
        evidence(Record(exit_code=1), "solver: malloc: Cannot allocate memory\n"),
        "memory ran out: solver: malloc: Cannot allocate memory",
    ),
    "OpenMP's own allocator": (
        evidence(Record(exit_code=1), "\nlibgomp: Out of memory allocating 8000 bytes\n"),
        "memory ran out: libgomp",
    ),
    "XLA does not say whose memory": (
        evidence(
            Record(exit_code=1),
            TRACEBACK + "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory "
            "while trying to allocate 99 bytes.\n",
        ),
        "memory ran out: jaxlib",
    ),
    "one rank of torchrun": (
        evidence(
            Record(exit_code=1),
            "[rank0]: Traceback (most recent call last):\n[rank0]:   File\n[rank0]: "
            + CUDA
            + CHATTER
            + TRACEBACK
            + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
            + "=" * 60
            + "\ntrain.py FAILED\n",
        ),
        "GPU memory ran out: tried to allocate 2.00 GiB, device 0 had 1.02 GiB of 79.10 GiB free",
    ),
    "wrapped by a trainer, the cause is named": (
        evidence(
            Record(exit_code=1),
            TRACEBACK + "MemoryError\n\nThe above exception was the direct cause of the following "
            "exception:\n\n" + TRACEBACK + "lightning.FitError: batch 3 failed\n",
        ),
        "memory ran out: MemoryError",
    ),
    "a watcher's summary and ignored noise follow": (
        evidence(
            Record(exit_code=1),
            TRACEBACK
            + "MemoryError\n"
            + "wandb: loss 0.1\n" * 40
            + "Exception ignored in: <_io.TextIOWrapper name='<stdout>'>\n"
            + "BrokenPipeError: [Errno 32] Broken pipe\n",
        ),
        "memory ran out: MemoryError",
    ),
}


@pytest.mark.parametrize("case", OUT_OF_MEMORY)
def test_is_out_of_memory(case):
    given_evidence, cause = OUT_OF_MEMORY[case]
    outcome = classify(given_evidence)
    assert outcome.status == "oom"
    assert cause in outcome.cause


def test_a_full_device_is_told_by_its_index():
    first = classify(evidence(Record(exit_code=1), TRACEBACK + CUDA, devices=(3,)))
    assert (first.status, first.device) == ("oom", 3)
    assert "device 3 had 1.02 GiB of 79.10 GiB free" in first.cause
    unknown = classify(evidence(Record(exit_code=1), TRACEBACK + CUDA))
    assert (unknown.status, unknown.device) == ("oom", NO_DEVICE)


def test_who_filled_a_device_alone_is_told_what_needs_less():
    alone = classify(evidence(Record(exit_code=1), TRACEBACK + CUDA, devices=(0,)))
    assert not alone.retry_helps
    assert "smaller batch" in alone.cause
    shared = evidence(Record(exit_code=1), TRACEBACK + SHARED_CUDA, devices=(0,))
    assert classify(shared).retry_helps
    assert "process 4711 held 21.00 GiB" in classify(shared).cause
    # In a driver's message its own process may be named like any other.
    own = replace(shared, tree_pids=frozenset({4711}))
    assert not classify(own).retry_helps


OTHERWISE = {
    "plain success": (evidence(Record()), "ok", ""),
    "page cache filled the cap": (evidence(Record(cgroup=CACHED)), "ok", ""),
    "page cache filled the cap, then it failed": (
        evidence(Record(exit_code=1, cgroup=CACHED), TRACEBACK + SHAPES),
        "failed",
        "exit 1: ValueError: shapes (128,64) and (60,10) not aligned",
    ),
    "SIGKILL from outside": (
        evidence(replace(KILLED, cgroup=CACHED), free_bytes=3 * GIB),
        "failed",
        "killed by signal 9 (SIGKILL), not by Headway; no memory kill was counted; "
        "host had 3.0 GiB free",
    ),
    "SIGKILL after an allocator's complaint": (
        evidence(KILLED, TRACEBACK + "MemoryError\n"),
        "failed",
        "killed by signal 9 (SIGKILL), not by Headway; no memory kill was counted",
    ),
    "SIGKILL while the kernel killed another's process": (
        evidence(HOST_KILL, victims=[Victim(9, "chrome", "/")], tree_pids=frozenset({41})),
        "failed",
        "killed by signal 9 (SIGKILL), not by Headway; "
        "the kernel's log names other victims of memory, not this job",
    ),
    "SIGKILL with a kill counted that may be a neighbour's": (
        evidence(HOST_KILL, siblings=2),
        "failed",
        "killed by signal 9 (SIGKILL), not by Headway; "
        "perhaps for memory: 1 memory kill counted while 2 other jobs ran beside it",
    ),
    "SIGKILL where the kernel counts nothing": (
        evidence(replace(KILLED, host_oom_kills=(None, None), inherited_oom_kills=(None, None))),
        "failed",
        "killed by signal 9 (SIGKILL), not by Headway; "
        "whether for memory cannot be told here (the kernel does not count it)",
    ),
    "exit(137)": (
        evidence(Record(exit_code=137)),
        "failed",
        "exit 137 (a shell's word for signal 9, SIGKILL); no memory kill was counted",
    ),
    "exit(137) after an allocator's complaint": (
        evidence(Record(exit_code=137), TRACEBACK + "MemoryError\n"),
        "failed",
        "exit 137 (a shell's word for signal 9, SIGKILL); no memory kill was counted",
    ),
    "an out-of-memory caught, exit 0": (evidence(Record(), TRACEBACK + CUDA), "ok", ""),
    "an out-of-memory caught, another error much later": (
        evidence(Record(exit_code=1), TRACEBACK + "MemoryError\n" + TRACEBACK + SHAPES),
        "failed",
        "exit 1: ValueError: shapes (128,64) and (60,10) not aligned",
    ),
    "an out-of-memory caught, then an exit of its own": (
        evidence(Record(exit_code=3), TRACEBACK + TORCH + CHATTER + "bad config\n"),
        "failed",
        "exit 3; last line: bad config",
    ),
    "the handler of an out-of-memory had a fault of its own": (
        evidence(
            Record(exit_code=1),
            TRACEBACK
            + "MemoryError\n\nDuring handling of the above exception, another exception occurred:"
            + "\n\n"
            + TRACEBACK
            + "NameError: name 'retry' is not defined\n",
        ),
        "failed",
        "exit 1: NameError: name 'retry' is not defined",
    ),
    "a warning about memory, then an error": (
        evidence(
            Record(exit_code=1),
            "pinned buffer: Cannot allocate memory\nfalling back\n" + TRACEBACK + SHAPES,
        ),
        "failed",
        "exit 1: ValueError: shapes (128,64) and (60,10) not aligned",
    ),
    "loader worker killed by somebody": (
        evidence(Record(exit_code=1), TRACEBACK + WORKER),
        "failed",
        "exit 1: RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.",
    ),
    "a library that cannot be mapped, without a limit": (
        evidence(
            Record(exit_code=1),
            TRACEBACK + "ImportError: x.so: failed to map segment from shared object\n",
        ),
        "failed",
        "exit 1: ImportError: x.so: failed to map segment from shared object",
    ),
    "it killed a helper of its own": (evidence(Record(killed_children=((51, 9),))), "ok", ""),
    "a segmentation fault": (
        evidence(Record(exit_code=None, signal=11)),
        "failed",
        "killed by signal 11 (SIGSEGV)",
    ),
    "a segmentation fault behind a shell": (
        evidence(Record(exit_code=139), "Segmentation fault\n"),
        "failed",
        "exit 139 (a shell's word for signal 11, SIGSEGV); last line: Segmentation fault",
    ),
    "no traceback": (
        evidence(Record(exit_code=2), "usage: train.py\ntrain.py: error: no such option: -x\n"),
        "failed",
        "exit 2; last line: train.py: error: no such option: -x",
    ),
    "nothing said": (evidence(Record(exit_code=1)), "failed", "exit 1; nothing on stderr"),
    "a progress bar": (
        evidence(Record(exit_code=3), "\r  0%|   |\r 50%|=  |\r"),
        "failed",
        "exit 3; last line: 50%|=  |",
    ),
    "dash does not find the program": (
        evidence(Record(exit_code=127), "/bin/sh: 1: trian.py: not found\n"),
        "failed",
        "command not found: trian.py (exit 127)",
    ),
    "bash does not find the program": (
        evidence(Record(exit_code=127), "bash: line 1: trian.py: command not found\n"),
        "failed",
        "command not found: trian.py (exit 127)",
    ),
    "the shell may not execute it": (
        evidence(Record(exit_code=126), "/bin/sh: 1: ./train.py: Permission denied\n"),
        "failed",
        "not allowed to execute: ./train.py (exit 126)",
    ),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_is_not_out_of_memory(case):
    given_evidence, status, cause = OTHERWISE[case]
    outcome = classify(given_evidence)
    assert outcome.status == status
    assert outcome.cause == cause


@pytest.mark.parametrize(
    ("number", "what", "cause"),
    [
        (errno.ENOENT, "/x", 'could not start: no such folder "/x"'),
        (errno.ENOTDIR, "/x", 'could not start: "/x" is not a folder'),
        (errno.ENOENT, "trian.py", "command not found: trian.py"),
        (errno.EACCES, "./a", 'could not start: "./a" may not be executed; chmod +x it'),
        (errno.ENOEXEC, "./a", 'could not start: "./a" is not a program'),
        (errno.ENOSPC, "stdout", "could not start: stdout: No space left on device"),
        (errno.ENOENT, "a\x1b[31m\u202eb", "command not found: a\\u202eb"),
    ],
)
def test_a_command_that_cannot_start_says_why(number, what, cause):
    record = Record(exit_code=None, spawn_error=SpawnError(number, os.strerror(number), what))
    outcome = classify(evidence(record, cwd="/x"))
    assert outcome.status == "failed"
    assert outcome.cause.startswith(cause)


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        ("timeout", "timeout"),
        ("stall", "stalled"),
        ("cancel", "cancelled"),
        ("memory", "cancelled"),
        ("interrupt", "cancelled"),
    ],
)
@pytest.mark.parametrize("record", [KILLED, HOST_KILL, Record(exit_code=137)])
def test_headways_own_stop_has_the_last_word(stop, status, record):
    outcome = classify(evidence(record, stop=stop, stop_reason="it was time"))
    assert (outcome.status, outcome.stopped, outcome.cause) == (status, stop, "it was time")


def test_the_logs_short_line_does_not_say_whose_limit_it_was():
    long = OomKill(41, "python3", "/x/1", "", t_us=5)
    assert Victim.of(long) == Victim(41, "python3", "/x/1", "")
    assert Victim.of(replace(long, cgroup="")) == Victim(41, "python3", "", None)


def test_a_stop_still_tells_of_a_kill_before_it():
    hung = replace(KILLED, cgroup=FULL, signal=15)
    outcome = classify(evidence(hung, stop="timeout", stop_reason="ran longer than 5:00"))
    assert outcome.status == "timeout"
    assert outcome.cause == (
        "ran longer than 5:00; the kernel had killed one of its processes for memory"
    )


def test_what_a_retry_can_change():
    def helps(record, stderr="", **more):
        return classify(evidence(record, stderr, **more)).retry_helps

    assert helps(replace(KILLED, cgroup=FULL))
    assert helps(Record(exit_code=1), TRACEBACK + TORCH, host_bytes=24 * GIB)
    assert not helps(Record(exit_code=1), TRACEBACK + NUMPY, host_bytes=24 * GIB)
    assert not helps(LIMITED, TRACEBACK + "MemoryError\n")
    assert not helps(Record(exit_code=1), TRACEBACK + CUDA)
    assert helps(Record(exit_code=1), TRACEBACK + SHARED_CUDA)


def test_the_peak_is_the_largest_that_was_seen_and_never_file_cache():
    cached = classify(evidence(Record(cgroup=CACHED), peak_bytes=90 * MIB))
    assert cached.peak_bytes == 90 * MIB
    short = classify(evidence(Record(largest_process_bytes=120 * MIB), peak_bytes=90 * MIB))
    assert short.peak_bytes == 120 * MIB
    killed = classify(evidence(replace(KILLED, cgroup=FULL), peak_bytes=90 * MIB))
    assert killed.peak_bytes == 400 * MIB


def test_a_job_can_neither_paint_the_screen_nor_flood_it():
    words = "\x1b[31mValueError: \x1b]0;title\x07" + "x" * 500 + "\u202e\u200b\x00\n"
    outcome = classify(evidence(Record(exit_code=1), words))
    assert re.fullmatch(r"exit 1: ValueError: x+…", outcome.cause)
    assert len(outcome.cause) == len("exit 1: ") + 200


@settings(max_examples=60)
@given(st.binary(max_size=2000), st.sampled_from([0, 1, 2, 126, 127, 134, 137, 139]))
def test_any_bytes_on_stderr_give_a_printable_cause_and_exit_0_stays_ok(tail, code):
    outcome = classify(Evidence(record=Record(exit_code=code), stderr_tail=tail))
    assert outcome.cause.isprintable()
    assert (outcome.status == "ok") == (code == 0)


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(
            [TRACEBACK, TORCH, CUDA, NUMPY, SHAPES, CHATTER, WORKER, "MemoryError\n", "\n", "x\n"]
        ),
        max_size=12,
    )
)
def test_what_came_before_the_last_exception_does_not_decide(parts):
    outcome = classify(evidence(Record(exit_code=1), "".join(parts) + TRACEBACK + SHAPES))
    assert outcome.status == "failed"
    assert outcome.cause == f"exit 1: {SHAPES.strip()}"


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("x = bytearray(10**10)", "MemoryError"),
        ("import mmap; mmap.mmap(-1, 10**11)", "OSError: [Errno 12] Cannot allocate memory"),
        (
            "import concurrent.futures as f\n"
            "with f.ThreadPoolExecutor() as pool: pool.submit(bytearray, 10**11).result()",
            "MemoryError",
        ),
        (
            "try: bytearray(10**11)\nexcept MemoryError as error: raise KeyError(3) from error",
            "KeyError: 3",
        ),
    ],
)
def test_a_real_interpreter_under_a_real_limit(code, last):
    limit_bytes = 512 * MIB
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes)),
        check=False,
    )
    record = Record(exit_code=ended.returncode, address_space_limit_bytes=limit_bytes)
    assert read_last_words(ended.stderr).raised.headline == last
    outcome = classify(Evidence(record=record, stderr_tail=ended.stderr))
    assert (outcome.status, outcome.retry_helps) == ("oom", False)
    assert "address space limit of 512 MiB" in outcome.cause


def test_lost_says_what_happened_and_the_next_command():
    at_ns = int(time.mktime((2026, 11, 30, 14, 2, 11, 0, 0, -1))) * 10**9
    outcome = lost_outcome(
        "killed", run="sweep-1", job="job-3", last_seen_ns=at_ns, keeper_pid=4711
    )
    assert outcome.status == "lost"
    assert outcome.cause == (
        "was running when Headway was killed at 2026-11-30 14:02:11; its keeper (process 4711) is "
        "gone and left no exit record. Run again: headway retry sweep-1 job-3"
    )
    rebooted = lost_outcome("reboot", run="sweep-1", job="a b", last_seen_ns=at_ns)
    assert "machine was restarted (last seen at 2026-11-30 14:02:11)" in rebooted.cause
    assert rebooted.cause.endswith("headway retry sweep-1 'a b'")
    assert "was killed and left no exit record" in lost_outcome("keeper", run="r", job="j").cause


def test_a_job_that_ended_well_before_it_was_to_give_way_is_not_run_again() -> None:
    ended = classify(evidence(Record(), stop="memory", stop_reason="memory ran low"))
    assert (ended.status, ended.stopped) == ("ok", None)
    killed = classify(evidence(KILLED, stop="memory", stop_reason="memory ran low"))
    assert (killed.status, killed.stopped) == ("cancelled", "memory")
