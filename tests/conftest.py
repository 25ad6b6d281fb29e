# SPDX-License-Identifier: Apache-2.0
"""What every test must leave as it found it: threads, environment variables, child processes, hooks."""

import atexit
import contextlib
import faulthandler
import gc
import logging
import math
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings
from support import huge_pages, turns

from truestep.core.os_specific import open_descriptors

# how long an example takes says how busy the machine is; who can't write here keeps no examples
KEPT = {} if os.access(Path.cwd(), os.W_OK) else {"database": None}
settings.register_profile("truestep", deadline=None, suppress_health_check=[HealthCheck.too_slow], **KEPT)
settings.load_profile("truestep")

# pytest's own, one that torch sets when an optimizer is first used, and two that scikit-learn sets when it is imported
NOT_OURS = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")
WATCHED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

# Under nohup, and in the background of a script, signals are ignored, and children inherit that: those that are started here have
# them as at a terminal, since what is handled is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)  # and this process goes on, as was asked for

try:
    import resource
except ImportError:  # a system without such a limit
    MOST_FILES = 0
else:
    MOST_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
OWN_WORDS = psutil.Process().cmdline()
HERE = Path(__file__).parent
logging.getLogger().addHandler(logging.NullHandler())  # what nobody listens to is not written to stderr
FORKED = [True]  # since memory was made cheap to fork
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lambda: FORKED.append(True))
ARMED = pytest.StashKey[float]()

# Nothing is kept in the home of whoever runs the tests.
CACHE = tempfile.TemporaryDirectory(prefix="truestep-tests-")
os.environ["TRUESTEP_CACHE"] = CACHE.name
atexit.register(CACHE.cleanup)


def _left_behind() -> dict[str, object]:
    return {
        "environment": {key: value for key, value in os.environ.items() if key not in NOT_OURS},
        "threads": {thread.name for thread in threading.enumerate() if not thread.daemon},
        "excepthook": sys.excepthook,
        "signals": {number: signal.getsignal(number) for number in WATCHED_SIGNALS},
        "directory": os.getcwd(),  # noqa: PTH109
    }


def _children() -> set[int]:
    """Return this process's children; the kernel's own list, since psutil looks at every process of the machine."""
    found: set[int] = set()
    try:
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208 - by pathlib it takes twice as long, and is asked twice a test
            with open(f"/proc/self/task/{task}/children", "rb", buffering=0) as file:  # noqa: PTH123
                found.update(map(int, file.read().split()))
        return found
    except OSError:  # a thread has ended meanwhile, or the kernel keeps no such list
        return {child.pid for child in psutil.Process().children()}


def _is_stray(pid: int) -> bool:
    """Whether a process still runs; multiprocessing's own servers and ours live as long as their parent, by design."""
    try:
        process = psutil.Process(pid)
        words = process.cmdline()
        # multiprocessing does not wait until a server of its own that it has forked is another program
        until = time.monotonic() + 5
        while words in ([], OWN_WORDS) and process.is_running() and time.monotonic() < until:
            time.sleep(0.005)
            words = process.cmdline()
        command = " ".join(words)
        return process.status() != psutil.STATUS_ZOMBIE and not any(
            word in command for word in ("resource_tracker", "forkserver", "warm_process")
        )
    except psutil.NoSuchProcess:
        return False


def pytest_sessionstart(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")  # with -q it shows no header
    if turns.draw() is not None and reporter is not None:
        reporter.write_line(turns.told(turns.draw()))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Have what is not in this draw, or not in a slice, be slow: `make test` leaves it out, and `make torture` runs it."""
    if config.getoption("loadgroup", False):  # as the workers of pytest-xdist are told
        from support.schedule import write_group_behind_name

        for item in items:
            write_group_behind_name(item)
        # what a framework leaves in the process each later fork copies; pages are many short ones: the workers end at once
        items.sort(
            key=lambda item: (
                item.path == HERE / "test_docs.py",
                item.get_closest_marker("imports_framework") is not None,
            )
        )
    for item in turns.left_out(items, turns.draw()):
        item.add_marker("slow")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.getvalue("dist") != "loadgroup":
        return None
    from support.schedule import LinearGroupScheduling

    # In the files' order, not the largest groups first: what test_structure.py leaves behind makes each later fork dearer.
    config.option.loadscopereorder = False
    return LinearGroupScheduling(config, log)


def _set_aside_what_lives_on() -> None:
    """Leave what was imported and kept out of later collections, which take half a second where they look through all of it.

    Where this process was forked meanwhile, and at first, its memory is made cheap to fork, too.
    """
    gc.collect()
    gc.freeze()
    if FORKED:
        huge_pages.collapse()
        FORKED.clear()


def _is_test_file(module) -> bool:
    file = Path(getattr(module, "__file__", None) or "")
    return file.name.startswith("test_") and HERE in file.parents


def pytest_collection_finish():
    """Of the test files one is loaded at a time: they are a user's code, which a run hashes and the doctor searches."""
    for name in [name for name, module in sys.modules.items() if _is_test_file(module)]:
        del sys.modules[name]
    _set_aside_what_lives_on()


def _end_what_no_signal_ends(item) -> None:
    """End this process, with its traceback, six to seven minutes after a test began.

    pytest does so by a thread for each test, and waits for its end: 16 ms where the cores are busy.
    """
    clock, since = time.monotonic(), item.config.stash.get(ARMED, -math.inf)
    if clock - since > 60:
        file = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(420, file=file, exit=True)
        item.config.stash[ARMED] = clock


def pytest_sessionfinish():
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """After a file, and after a test that imported much, nothing of a test lives: what does was imported, or is kept for good."""
    module = getattr(item, "module", None)
    if module is not None:
        sys.modules[module.__name__] = module
    _end_what_no_signal_ends(item)
    modules = len(sys.modules)
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path or len(sys.modules) > modules + 20:
            _set_aside_what_lives_on()
        if module is not None and (nextitem is None or nextitem.path != item.path):
            sys.modules.pop(module.__name__, None)


def _collect_if_few_files_are_left() -> None:
    """What the frames of a caught error hold, a loader's pipes say, is closed when it is collected: under `ulimit -n 64` before."""
    if 0 < MOST_FILES // 3 < len(open_descriptors()):
        gc.collect()


@pytest.fixture(autouse=True)
def nothing_leaks(request):
    _collect_if_few_files_are_left()
    before = _left_behind()
    children = _children()
    yield
    after = _left_behind()
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not changed, f"{request.node.nodeid} leaked: {changed}"
    stray = [pid for pid in _children() - children if _is_stray(pid)]
    assert not stray, f"{request.node.nodeid} left processes: {stray}"
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available():
        assert not torch.distributed.is_initialized(), f"{request.node.nodeid} left a process group"


class Logged(logging.Handler):
    """What is logged while a test runs; pytest's own `caplog` takes 0.4 ms of each test, asked for or not."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    @property
    def messages(self):
        return [each.getMessage() for each in self.records]

    @contextlib.contextmanager
    def debugging(self):
        """Have truestep log what is for debugging, too."""
        ours = logging.getLogger("truestep")
        before = ours.level
        ours.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            ours.setLevel(before)


@pytest.fixture
def nothing_was_compiled(monkeypatch):
    """Where something was, as by an earlier test of this process, a run's doctor follows no operation."""
    monkeypatch.setattr("truestep.doctor.runtime.operations._has_compiled", lambda: False)


@pytest.fixture
def logged():
    found = Logged()
    logging.getLogger().addHandler(found)
    yield found
    logging.getLogger().removeHandler(found)
