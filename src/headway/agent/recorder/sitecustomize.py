"""Writes down when each optimizer step of this process ended, for the Headway run it belongs to.

Python imports this file at its start because the run put its folder first on PYTHONPATH. It does
nothing but give way to the next sitecustomize unless HEADWAY_RECORDER_DIR names a folder; unset
that variable (``env -u HEADWAY_RECORDER_DIR``) to switch it off.

It is a guest in a stranger's process, so it imports neither torch nor anything of Headway, opens
nothing before the first step, prints nothing, and gives up without a word when anything fails.
The layout of its file is described in headway.core.recording, which repeats the constants.
"""

# The syntax stays old on purpose: an interpreter too old to record must still be able to pass by.
import os
import sys
import time

MAGIC = 0x5344524F43455248  # "HRECORDS" as little-endian bytes
VERSION = 1
RING_SLOTS = 1024
HEADER_WORDS = 16
FILE_BYTES = 8 * (HEADER_WORDS + RING_SLOTS)
FIELDS = (
    "magic",
    "version",
    "pid",
    "start_ticks",
    "generation",
    "steps",
    "first_ns",
    "last_ns",
    "status",
    "device_ns",
    "device_bytes",
    "device_peak_bytes",
    "started_ns",
)
(
    _MAGIC,
    _VERSION,
    _PID,
    _START_TICKS,
    _GENERATION,
    _STEPS,
    _FIRST_NS,
    _LAST_NS,
    _STATUS,
    _DEVICE_NS,
    _DEVICE_BYTES,
    _DEVICE_PEAK_BYTES,
    _STARTED_NS,
) = range(len(FIELDS))
STATUS_TORCH_TOO_OLD = 1

_AWAITED = "torch.optim.optimizer"
_DEVICE_EVERY_NS = 1000000000
_NEVER_NS = 1 << 62


class Recorder(object):
    """The file of one process: made at its first step, written without a lock, count last."""

    def __init__(self, folder):
        self.folder = folder
        self.clock = time.monotonic_ns  # held here: tools that freeze clocks patch the module
        self.started_ns = self.clock()
        self.given_up = False
        self._clear()

    def _clear(self):
        self.words = None
        self.mapping = None
        self.numbers = None
        self.device_due_ns = 0
        self.opening = _new_lock()

    def step(self, now_ns):
        """Write down one step that ended at `now_ns` (CLOCK_MONOTONIC)."""
        if self.words is None and not self.open(now_ns):
            return
        # next() is one indivisible operation, so two threads that step never share a number.
        number = next(self.numbers)
        words = self.words
        words[HEADER_WORDS + number % RING_SLOTS] = now_ns
        words[_LAST_NS] = now_ns
        words[_STEPS] = number + 1
        if now_ns >= self.device_due_ns:
            self.read_device(now_ns)

    def open(self, now_ns):
        """Make this process's file and tell whether it can be written."""
        if self.given_up or not self.opening.acquire(False):
            return False
        try:
            if self.words is None:
                self._open(now_ns)
            return True
        except Exception:
            self.given_up = True
            return False
        finally:
            self.opening.release()

    def _open(self, now_ns):
        import itertools
        import mmap

        pid, start_ticks = os.getpid(), _start_ticks()
        descriptor = _open_file(os.path.join(self.folder, "%d-%d.steps" % (pid, start_ticks)))
        try:
            mapping = mmap.mmap(descriptor, FILE_BYTES)
        finally:
            os.close(descriptor)
        words = memoryview(mapping).cast("Q")
        if words[_MAGIC] == 0:
            words[_VERSION] = VERSION
            words[_PID] = pid
            words[_START_TICKS] = start_ticks
            words[_FIRST_NS] = words[_LAST_NS] = now_ns
            words[_STARTED_NS] = self.started_ns
            words[_MAGIC] = MAGIC  # last: a reader takes a file without it for garbage
        elif words[:_GENERATION].tolist() != [MAGIC, VERSION, pid, start_ticks]:
            raise ValueError("not a file of this process")
        words[_GENERATION] += 1  # execv keeps pid and start time: the new program goes on here
        self.mapping = mapping
        self.numbers = itertools.count(words[_STEPS])
        self.words = words

    def read_device(self, now_ns):
        """Write down the device memory that torch holds, summed over devices, where it uses any."""
        self.device_due_ns = now_ns + _DEVICE_EVERY_NS
        try:
            cuda = sys.modules["torch"].cuda
            if not cuda.is_initialized():
                return
            devices = range(cuda.device_count())
            words = self.words
            words[_DEVICE_BYTES] = sum([cuda.memory_reserved(d) for d in devices])
            peak_bytes = sum([cuda.max_memory_reserved(d) for d in devices])
            words[_DEVICE_PEAK_BYTES] = max(words[_DEVICE_PEAK_BYTES], peak_bytes)
            words[_DEVICE_NS] = now_ns
        except Exception:
            self.device_due_ns = _NEVER_NS

    def say(self, status):
        """Make the file without a step, to tell why there will be none."""
        if self.open(self.clock()):
            self.words[_STATUS] = status

    def forked(self):
        """Let go of the parent's file in a forked child, which makes its own."""
        words, mapping = self.words, self.mapping
        self.started_ns = self.clock()
        self._clear()
        if words is not None:
            words.release()
            mapping.close()

    def torch_loaded(self, optimizer_module):
        """Ask torch to call after each step of each optimizer."""
        os.register_at_fork(after_in_child=self.forked)
        register = getattr(optimizer_module, "register_optimizer_step_post_hook", None)
        if register is None:
            self.say(STATUS_TORCH_TOO_OLD)
        else:
            register(make_hook(self, sys.modules["torch"]))


def make_hook(recorder, torch):
    """Give the function that torch calls after each step; it never raises an Exception.

    It cannot be taken off again after a failure: torch is iterating over its hooks just then.
    """
    clock = recorder.clock
    # torch.compiler is loaded after torch.optim, so only its folder can be looked for here.
    can_compile = os.path.isdir(os.path.join(os.path.dirname(torch.__file__), "compiler"))

    def after_step(optimizer, args, kwargs):
        # A compiled step must not contain anything of ours: with fullgraph=True it would fail.
        if can_compile and torch.compiler.is_compiling():
            return
        try:
            recorder.step(clock())
        except Exception:
            recorder.given_up = True
            recorder.words = None

    return after_step


def _new_lock():
    import _thread

    return _thread.allocate_lock()


def _start_ticks():
    with open("/proc/self/stat", "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[19])


def _open_file(path):
    """Open the file with its blocks reserved: a write to a full disk through mmap is SIGBUS."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        descriptor = os.open(path, flags)
        status = os.fstat(descriptor)
        if status.st_size == FILE_BYTES and status.st_uid == os.geteuid():
            return descriptor
        os.close(descriptor)
        raise
    try:
        os.posix_fallocate(descriptor, 0, FILE_BYTES)
    except Exception:
        os.close(descriptor)
        os.unlink(path)
        raise
    return descriptor


class _Finder(object):
    """First in sys.meta_path until torch's optimizers are loaded; finds nothing by itself."""

    headway_recorder = True

    def __init__(self, recorder):
        self.recorder = recorder
        self.searching = False

    def find_spec(self, name, path=None, target=None):
        # Another tool's finder may search sys.meta_path again, and so come back to this one.
        if name != _AWAITED or self.searching:
            return None
        self.searching = True
        try:
            spec = _find(name, path, target)
            if hasattr(getattr(spec, "loader", None), "exec_module"):
                spec.loader = _Loader(spec.loader, self)
            return spec
        except Exception:
            return None  # whoever raised is asked again by Python itself
        finally:
            self.searching = False

    def loaded(self, module):
        try:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self.recorder.torch_loaded(module)
        except Exception:
            self.recorder.given_up = True


class _Loader(object):
    """Runs the real loader, puts it back in its place, and reports that the module is there."""

    def __init__(self, loader, finder):
        self.loader = loader
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.finder.loaded(module)


def _find(name, path, target=None):
    for finder in list(sys.meta_path):
        if hasattr(finder, "find_spec") and not hasattr(finder, "headway_recorder"):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
    return None


def _next_sitecustomize():
    """Find the sitecustomize that Python would have run without this one.

    Python found this file by walking sys.path, so nothing before our own entry holds one, and the
    walk simply goes on behind it. The script's own folder, put in front later, is never searched.
    """
    ours = os.path.realpath(os.path.dirname(os.path.abspath(__file__)))
    is_ours = [os.path.realpath(entry) == ours for entry in sys.path]
    if True not in is_ours:
        return None
    behind = range(is_ours.index(True) + 1, len(is_ours))
    return _find("sitecustomize", [sys.path[i] for i in behind if not is_ours[i]])


def _install():
    folder = os.environ.get("HEADWAY_RECORDER_DIR")
    if not folder or not os.path.isdir(folder) or not hasattr(os, "posix_fallocate"):
        return
    if any(hasattr(finder, "headway_recorder") for finder in sys.meta_path):
        return  # one Headway inside another: the same file must not be written twice
    finder = _Finder(Recorder(os.path.abspath(folder)))
    if _AWAITED in sys.modules:
        finder.loaded(sys.modules[_AWAITED])
    else:
        sys.meta_path.insert(0, finder)


def _main():
    try:
        if sys.version_info >= (3, 8):
            _install()
    except Exception:
        pass
    try:
        spec = _next_sitecustomize()
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
    except Exception:
        return
    # What the user's own file raises is for Python to report, as it would without us.
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    _main()
