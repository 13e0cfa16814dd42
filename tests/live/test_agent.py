"""The recorder in real Python processes: counts exactly, and never changes a job.

Most tests give the process a stand-in for torch that has the same way of registering a hook, since
the recorder waits for a module by name; the last ones run real torch.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.agent import recorder_folder
from headway.core.recording import (
    FILE_BYTES,
    FOLDER_VARIABLE,
    count_and_last,
    python_path,
    read_folder,
    summary,
    why_unseen,
)

FAKE_TORCH = {
    "__init__.py": """
        import torch.optim
        from torch import compiler, cuda
    """,
    "compiler/__init__.py": """
        def is_compiling():
            return False
    """,
    "cuda.py": """
        ready = failing = False
        def is_initialized(): return ready
        def device_count(): return 2
        def memory_reserved(device): return 100 + device
        def max_memory_reserved(device):
            if failing: raise RuntimeError("no such device")
            return 200 + device
    """,
    "optim/__init__.py": """
        from torch.optim.optimizer import Optimizer
    """,
    "optim/optimizer.py": """
        _hooks = {}
        def register_optimizer_step_post_hook(hook):
            _hooks[len(_hooks)] = hook
        class Optimizer:
            def step(self):
                for hook in _hooks.values():
                    hook(self, (), {})
    """,
}
TRAIN = """
import sys
import torch
def train(steps):
    optimizer = torch.optim.Optimizer()
    for _ in range(steps):
        optimizer.step()
"""


def lines(text):
    """A block of code without its common indent."""
    rows = text.strip("\n").splitlines()
    indent = min(len(row) - len(row.lstrip()) for row in rows if row.strip())
    return "".join(row[indent:] + "\n" for row in rows)


class Job:
    """Runs commands as Headway starts them, or plainly for comparison."""

    def __init__(self, root):
        self.root = root
        self.home = root / "home"
        self.library = root / "library"
        self.recordings = root / "recordings"
        for folder in (self.home, self.library, self.recordings):
            folder.mkdir()

    def write(self, name, text, folder=None):
        path = (folder or self.home) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines(text))
        return path

    def fake_torch(self):
        for name, text in FAKE_TORCH.items():
            self.write(f"torch/{name}", text, self.library)
        self.write("train.py", TRAIN, self.library)

    def run(self, *argv, recorder=True, inherited=None, stdin="", **variables):
        """`inherited` is the user's own PYTHONPATH; by default the library with the fake torch."""
        env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
        users = str(self.library) if inherited is None else inherited
        env["PYTHONPATH"] = users
        if recorder:
            env["PYTHONPATH"] = python_path(str(recorder_folder()), users)
            env[FOLDER_VARIABLE] = str(self.recordings)
        return subprocess.run(
            [sys.executable, *argv],
            cwd=self.home,
            env=env | variables,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def unchanged(self, *argv, **options):
        """Run with and without the recorder, and check that nobody can tell the difference."""
        plain = self.run(*argv, recorder=False, **options)
        seen = self.run(*argv, **options)
        assert (seen.returncode, seen.stdout, seen.stderr) == (
            plain.returncode,
            plain.stdout,
            plain.stderr,
        )
        return seen

    def steps(self):
        return [recording.steps for recording in read_folder(self.recordings)]


@pytest.fixture
def job(tmp_path):
    made = Job(tmp_path)
    made.fake_torch()
    return made


@pytest.mark.parametrize(
    "way", ["job.py", "-m job", "-s job.py", "-P job.py", "-O job.py", "-", "-c"]
)
def test_every_way_to_start_python_counts_exactly(job, way):
    text = "import train; train.train(7); print('done'); raise SystemExit(3)"
    job.write("job.py", text)
    argv = [way, text] if way == "-c" else way.split()
    inherited = f"{job.library}:{job.home}"
    done = job.unchanged(*argv, stdin=text if argv == ["-"] else "", inherited=inherited)
    assert (done.returncode, done.stdout, done.stderr) == (3, "done\n", "")
    (recording,) = read_folder(job.recordings)
    assert (recording.steps, recording.generation, len(recording.times_ns)) == (7, 1, 7)
    assert recording.started_ns < recording.first_ns <= recording.last_ns
    assert list(recording.times_ns) == sorted(recording.times_ns)
    (file,) = job.recordings.iterdir()
    assert count_and_last(file) == (7, recording.times_ns[-1])
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_hidden_jobs_run_unharmed_and_the_reason_is_known(job, flag):
    text = f"import sys; sys.path.insert(0, {str(job.library)!r})\nimport train; train.train(2)"
    job.write("job.py", text + "; print(2)")
    assert job.unchanged(flag, "job.py").stdout == "2\n"
    assert job.steps() == []
    assert why_unseen(f"python {flag} job.py") == f"steps not visible: started with {flag}"


def test_switched_off_it_records_nothing(job):
    done = job.run("-c", "import train; train.train(2); print(2)", **{FOLDER_VARIABLE: ""})
    assert (done.stdout, done.stderr, job.steps()) == ("2\n", "", [])


def test_a_job_without_torch_is_left_alone(job):
    loaded = "import sys; print(sorted(sys.modules)); print([str(f) for f in sys.meta_path])"
    plain = job.run("-c", loaded, recorder=False)
    seen = job.run("-c", loaded)
    modules, plain_modules = (set(eval(run.stdout.splitlines()[0])) for run in (seen, plain))
    added = modules - plain_modules
    if "sitecustomize" in plain_modules:  # this Python's own, which has to be found and run
        assert {name.partition(".")[0] for name in added} <= sys.stdlib_module_names
    else:
        assert added <= {"sitecustomize", "time"}
    assert job.steps() == []


def test_the_users_sitecustomize_runs_once_and_takes_its_place(job):
    job.write("sitecustomize.py", "print('mine'); value = 5", job.library)
    text = """
        import sys, train
        train.train(3)
        print(sys.modules["sitecustomize"].value, sys.modules["sitecustomize"].__file__)
    """
    job.write("job.py", text)
    assert job.unchanged("job.py").stdout == f"mine\n5 {job.library}/sitecustomize.py\n"
    assert job.steps() == [3]


def test_the_users_sitecustomize_is_chained_without_a_folder_to_record_in(job):
    job.write("sitecustomize.py", "print('mine')", job.library)
    assert job.unchanged("-c", "1", **{FOLDER_VARIABLE: ""}).stdout == "mine\n"


def test_an_error_in_the_users_sitecustomize_reads_as_always(job):
    job.write("sitecustomize.py", "raise ValueError('my own mistake')", job.library)
    job.write("job.py", "import sys, train; train.train(3); print('sitecustomize' in sys.modules)")
    done = job.unchanged("job.py")
    assert "my own mistake" in done.stderr
    assert done.stdout == "False\n"
    assert job.steps() == [3]


@pytest.mark.parametrize("argv", [["job.py"], ["-m", "job"], ["-c", "import job"]], ids=str)
def test_a_sitecustomize_beside_the_script_does_not_run(job, argv):
    job.write("sitecustomize.py", "print('a stranger')")
    job.write("job.py", "print('job')")
    assert job.unchanged(*argv).stdout == "job\n"
    assert job.unchanged(*argv, inherited="").stdout == "job\n"


def test_a_sitecustomize_in_the_current_folder_runs_where_the_user_asked_for_it(job):
    job.write("sitecustomize.py", "print('asked for')")
    assert job.unchanged("-c", "1", inherited=".").stdout == "asked for\n"


def test_one_recorder_behind_another_counts_once(job):
    other = job.root / "other"
    shutil.copytree(recorder_folder(), other)
    job.write("sitecustomize.py", "print('mine')", job.library)
    inherited = python_path(str(other), str(job.library))
    text = "import sys, train; train.train(4); print(len(sys.meta_path))"
    plain = job.run("-c", text, recorder=False)
    assert job.run("-c", text, inherited=inherited).stdout == plain.stdout
    assert job.steps() == [4]


def test_other_import_hooks_go_on_working(job):
    """A tool that wraps loaders and searches again, as coverage and tracing tools do."""
    text = """
        import importlib.util, sys
        class Tool:
            busy = False
            def find_spec(self, name, path=None, target=None):
                if Tool.busy or not name.startswith("torch.optim"):
                    return None
                Tool.busy = True
                try:
                    spec = importlib.util.find_spec(name)
                finally:
                    Tool.busy = False
                print("found", name)
                return spec
        sys.meta_path.insert(int(sys.argv[1]), Tool())
        import train
        train.train(4)
        module = sys.modules["torch.optim.optimizer"]
        assert module.__loader__ is module.__spec__.loader
        print(type(module.__loader__).__name__, len(sys.meta_path))
    """
    job.write("job.py", text)
    for count, position in enumerate("01", start=1):
        done = job.unchanged("job.py", position)
        assert "SourceFileLoader" in done.stdout
        assert "found torch.optim.optimizer" in done.stdout
        assert job.steps() == [4] * count


def test_a_torch_that_cannot_be_imported_fails_as_always(job):
    job.write("torch/optim/optimizer.py", "raise ImportError('libgomp is missing')", job.library)
    text = """
        for _ in range(2):
            try:
                import torch
            except ImportError as error:
                print(error)
    """
    job.write("job.py", text)
    assert job.unchanged("job.py").stdout == "libgomp is missing\n" * 2
    assert job.steps() == []


def test_an_old_torch_is_named_as_the_reason(job):
    text = """
        class Optimizer:
            def step(self): pass
    """
    job.write("torch/optim/optimizer.py", text, job.library)
    job.unchanged("-c", "import train; train.train(4)")
    recordings = read_folder(job.recordings)
    assert summary(recordings) is None
    assert "torch too old" in why_unseen("python job.py", recordings=recordings)


def test_a_forked_child_has_its_own_file(job):
    text = """
        import os, train
        train.train(5)
        pids = []
        for steps in (3, 0):
            pid = os.fork()
            if pid == 0:
                train.train(steps)
                os._exit(0)
            pids.append(pid)
            os.waitpid(pid, 0)
        train.train(1)
        print(os.getpid(), pids[0])
    """
    job.write("job.py", text)
    parent, child = map(int, job.run("job.py").stdout.split())
    found = {each.pid: each for each in read_folder(job.recordings)}
    assert {pid: each.steps for pid, each in found.items()} == {parent: 6, child: 3}
    assert found[child].started_ns > found[parent].first_ns


def test_execv_goes_on_in_the_same_file(job):
    text = """
        import os, sys, train
        train.train(3)
        if len(sys.argv) < 3:
            os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
    """
    job.write("job.py", text)
    assert job.run("job.py", "once").returncode == 0
    (recording,) = read_folder(job.recordings)
    assert (recording.steps, recording.generation, len(recording.times_ns)) == (6, 2, 6)


def test_a_killed_job_leaves_its_count(job):
    job.write("job.py", "import os, train; train.train(9); os.kill(os.getpid(), 9)")
    assert job.run("job.py").returncode == -signal.SIGKILL
    assert job.steps() == [9]


def test_threads_that_step_at_once_lose_nothing(job):
    text = """
        import threading, train
        train.train(1)
        threads = [threading.Thread(target=train.train, args=(2000,)) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        train.train(1)
    """
    job.write("job.py", text)
    assert job.unchanged("job.py").returncode == 0
    assert job.steps() == [8002]


@pytest.mark.slow
def test_device_memory_is_summed_over_devices_once_a_second(job):
    text = """
        import time, torch, train
        torch.cuda.ready = True
        train.train(1)
        torch.cuda.memory_reserved = lambda device: 9
        train.train(2)
        if "fail" in __import__("sys").argv:
            torch.cuda.failing = True
            until = time.monotonic() + 1.01
            while time.monotonic() < until: pass
            train.train(2)
    """
    job.write("job.py", text)
    assert job.run("job.py").stderr == ""
    (reading,) = read_folder(job.recordings)
    assert (reading.steps, reading.device_bytes, reading.device_peak_bytes) == (3, 201, 401)
    assert job.run("job.py", "fail").stderr == ""
    assert sorted(job.steps()) == [3, 5]


def test_without_a_device_in_use_its_memory_is_unknown(job):
    job.run("-c", "import train; train.train(3)")
    (reading,) = read_folder(job.recordings)
    assert (reading.device_bytes, reading.device_peak_bytes) == (None, None)


def test_a_job_that_freezes_its_clocks_is_timed_all_the_same(job):
    text = """
        import time
        time.monotonic_ns = time.perf_counter_ns = lambda: 1
        import train
        train.train(50)
    """
    job.write("job.py", text)
    job.run("job.py")
    (recording,) = read_folder(job.recordings)
    assert recording.started_ns < recording.first_ns < recording.last_ns


BROKEN = {
    "folder is missing": "import shutil; shutil.rmtree({folder!r})",
    "folder is a file": "import shutil; shutil.rmtree({folder!r}); open({folder!r}, 'w').close()",
    "no file may grow": "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (0, 0))",
    "no file may be opened": "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (3, 3))",
    "a link lies in the way": """
        import os
        start = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
        os.symlink("victim", os.path.join({folder!r}, f"{{os.getpid()}}-{{start}}.steps"))
    """,
    "a stranger's file lies in the way": """
        import os
        start = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
        with open(os.path.join({folder!r}, f"{{os.getpid()}}-{{start}}.steps"), "wb") as file:
            file.write(b"x" * 8320)
    """,
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN.keys())
def test_where_nothing_can_be_written_the_job_goes_on(job, damage):
    victim = job.recordings / "victim"
    untouched = bytes(FILE_BYTES)  # zeros, so that it would be taken for a file just begun
    victim.write_bytes(untouched)
    job.write("damage.py", damage.format(folder=str(job.recordings)))
    done = job.run("-c", "import train, damage; train.train(30); print('done')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert job.steps() == []
    if victim.exists():
        assert victim.read_bytes() == untouched
    for left in job.recordings.glob("*.steps"):
        assert left.is_symlink() or set(left.read_bytes()) == {ord("x")}


def test_a_folder_that_is_none_is_ignored(job):
    text = "import sys, train; train.train(3); print([type(each) for each in sys.meta_path])"
    done = job.unchanged("-c", text, **{FOLDER_VARIABLE: "/nowhere/at all"})
    assert (done.returncode, "Finder" in done.stdout) == (0, True)


def test_a_job_that_closes_every_descriptor_still_counts(job):
    job.write("job.py", "import os, train; train.train(2); os.closerange(3, 99); train.train(2)")
    assert job.unchanged("job.py").returncode == 0
    assert job.steps() == [4]


def in_a_mount(folder, options, argv):
    """The command behind a small file system that only it can see."""
    script = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, "sh", options, str(folder), *argv]


def can_mount(folder):
    try:
        probe = subprocess.run(in_a_mount(folder, "size=4k", ["true"]), capture_output=True)
    except OSError:
        return False
    return probe.returncode == 0


@pytest.mark.root
@pytest.mark.parametrize("options", ["ro", "size=4k"], ids=["read-only", "full disk"])
def test_a_job_on_a_disk_that_takes_nothing_goes_on(job, options):
    if not can_mount(job.recordings):
        pytest.skip("needs root to mount a file system of its own")
    text = """
        import os, train
        folder = os.environ["HEADWAY_RECORDER_DIR"]
        train.train(3000)
        print(os.listdir(folder))
    """
    job.write("job.py", text)
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": python_path(str(recorder_folder()), str(job.library)),
        FOLDER_VARIABLE: str(job.recordings),
    }
    argv = in_a_mount(job.recordings, options, [sys.executable, "job.py"])
    done = subprocess.run(argv, cwd=job.home, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


# Real torch from here on: each start costs seconds, so each script checks much.

MODEL = """
import os, sys
import torch
def train(steps, make=torch.optim.SGD, seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Linear(4, 1)
    optimizer = make(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()
"""


@pytest.fixture
def torch_job(tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch: pip install headway[torch]")
    made = Job(tmp_path)
    made.write("model.py", MODEL, made.library)
    return made


@pytest.mark.slow
@pytest.mark.torch
def test_real_torch_counts_every_kind_of_step_exactly(torch_job):
    text = """
        import contextlib, copy, os
        import torch
        from model import train

        class Squares(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, i): return torch.ones(4) * i

        class Mine(torch.optim.Optimizer):
            def __init__(self, parameters, lr): super().__init__(parameters, {"lr": lr})
            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]: p -= group["lr"] * p.grad

        expected = 0
        def check(steps):
            global expected
            expected += steps

        print(repr(train(6, torch.optim.AdamW))); check(6)
        train(2, Mine); check(2)

        model = torch.nn.Linear(4, 1)
        lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=4)
        calls = []
        def closure():
            lbfgs.zero_grad()
            loss = (model(torch.ones(2, 4)) - 1).square().mean()
            loss.backward()
            calls.append(1)
            return loss
        for _ in range(3): lbfgs.step(closure)
        assert len(calls) > 3
        check(3)

        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        sgd = torch.optim.SGD(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(sgd, 1)
        for bad in (False, True, False):
            sgd.zero_grad()
            scaler.scale(model(torch.ones(2, 4)).sum() * (float("inf") if bad else 1)).backward()
            scaler.step(sgd); scaler.update(); schedule.step()
        check(2)  # the scaler leaves the step with infinite gradients out

        other = torch.optim.Adam(torch.nn.Linear(2, 2).parameters())
        for _ in range(4): sgd.step(); copy.deepcopy(other).step()
        check(8)

        for batch in torch.utils.data.DataLoader(Squares(), batch_size=2, num_workers=2):
            sgd.step()
        check(4)

        def compiled(): sgd.step()
        torch.compile(compiled, backend="eager")()  # runs unharmed; only Python's steps are seen

        pid = os.fork()
        if pid == 0:
            train(3)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print(expected, os.getpid(), pid)
    """
    torch_job.write("job.py", text)
    done = torch_job.run("-W", "ignore", "job.py", TORCH_LOGS="-all")
    assert done.returncode == 0, done.stderr
    expected, parent, child = map(int, done.stdout.splitlines()[-1].split())
    found = {each.pid: each for each in read_folder(torch_job.recordings)}
    assert {pid: each.steps for pid, each in found.items()} == {parent: expected, child: 3}
    assert found[parent].device_bytes is None


@pytest.mark.slow
@pytest.mark.torch
def test_real_torch_gives_the_same_result_with_and_without(torch_job):
    done = torch_job.unchanged(
        "-", stdin="from model import train\nprint(repr(train(50)))\nraise SystemExit(4)\n"
    )
    assert done.returncode == 4
    assert torch_job.steps() == [50]


@pytest.mark.slow
@pytest.mark.torch
def test_real_torch_after_execv_and_in_a_spawned_process(torch_job):
    text = """
        import os, sys
        import torch.multiprocessing as mp
        from model import train
        def rank(number): train(4)
        if __name__ == "__main__":
            if len(sys.argv) < 2:
                train(3)
                os.execv(sys.executable, [sys.executable, __file__, "again"])
            train(2)
            mp.spawn(rank, nprocs=1)
            print(os.getpid())
    """
    torch_job.write("job.py", text)
    done = torch_job.run("-W", "ignore", "job.py")
    assert done.returncode == 0, done.stderr
    recordings = read_folder(torch_job.recordings)
    steps = {each.pid: (each.steps, each.generation) for each in recordings}
    assert steps.pop(int(done.stdout)) == (5, 2)
    assert list(steps.values()) == [(4, 1)]


@pytest.mark.slow
@pytest.mark.torch
def test_real_torchrun_has_a_file_for_each_rank(torch_job):
    text = """
        import os
        import torch.distributed as dist
        from model import train
        dist.init_process_group("gloo")
        train(5)
        dist.barrier()
        dist.destroy_process_group()
    """
    torch_job.write("job.py", text)
    launcher = ["-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
    done = torch_job.run(*launcher, "--nproc-per-node=2", "job.py")
    assert done.returncode == 0, done.stderr
    found = summary(read_folder(torch_job.recordings))
    assert (found.processes, found.steps, found.total_steps) == (2, 5, 10)
    assert found.median_step_ns > 0


def test_the_folder_that_is_handed_out_holds_the_recorder():
    assert (recorder_folder() / "sitecustomize.py").is_file()
    assert recorder_folder().is_absolute()
    assert Path(recorder_folder()).name == "recorder"
