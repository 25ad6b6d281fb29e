# SPDX-License-Identifier: Apache-2.0
"""A stand-in of Windows for truestep alone: what Windows lacks is hidden from its modules; Python's own and torch keep theirs.

On PYTHONPATH, so that it holds in each process that is started, too: there, as on Windows, none is forked. Files that are open are
neither renamed nor removed, Ctrl+Break is a signal of its own, the folder under test is a drive of its own, to which no relative
path leads from elsewhere, and in it no path of 260 characters or more is opened. Paths are written as on the machine it stands in.
"""

import builtins
import contextlib
import errno
import functools
import importlib.machinery
import io
import multiprocessing
import os
import pathlib
import select
import signal
import sys
import types

HIDDEN = {
    "os": """
        O_NOFOLLOW O_NONBLOCK O_NOCTTY O_CLOEXEC O_DIRECTORY O_PATH O_TMPFILE pread pwrite preadv pwritev posix_fadvise
        POSIX_FADV_DONTNEED register_at_fork getuid geteuid getgid fork forkpty setsid killpg getpgid fchmod fchown chown waitid
        P_PIDFD pidfd_open makedev major minor set_blocking mkfifo sched_getaffinity statvfs sync uname WNOHANG getloadavg
    """,
    "signal": """
        SIGUSR1 SIGUSR2 SIGHUP SIGCHLD SIGKILL SIGSTOP SIGCONT SIGPIPE SIGALRM pidfd_send_signal pthread_sigmask setitimer alarm
        siginterrupt sigwait
    """,
    "select": "poll epoll",
}
MISSING = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "posix")
MAX_PATH = 260
CTRL_BREAK = signal.SIGUSR2  # which stands for it here


class Shown(types.ModuleType):
    """A module as truestep sees it: without what is hidden, with what Windows has beside."""

    def __init__(self, module, hidden, added):
        super().__init__(module.__name__)
        self.__dict__.update(_module=module, _hidden=frozenset(hidden), _added=added)

    def __getattr__(self, name):
        if name in self._added:
            return self._added[name]
        if name in self._hidden:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} (on Windows)")
        return getattr(self._module, name)

    def __setattr__(self, name, value):
        setattr(self._module, name, value)

    def __dir__(self):
        return [name for name in dir(self._module) if name not in self._hidden]


def locking(descriptor, mode, size):
    """Lock a file as `msvcrt.locking` does, as far as truestep asks for it."""
    import fcntl

    assert (mode, size) == (2, 1), (mode, size)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None


def absolute(path):
    return str(pathlib.Path(os.fsdecode(path)).absolute())


def on_one_drive(function):
    """Return a function of `os.path` that raises, as `ntpath` does, where paths are on two drives."""

    @functools.wraps(function)
    def checked(given, *more):
        places = given if isinstance(given, list | tuple) else [given, *(more or [os.curdir])]
        inside = {f"{absolute(each)}/".startswith(f"{ROOT}/") for each in places}
        if len(inside) > 1:
            raise ValueError("path is on mount 'C:', start on mount 'D:'")
        return function(given, *more)

    return checked


def modules():
    drives = {"relpath": on_one_drive(os.path.relpath), "commonpath": on_one_drive(os.path.commonpath)}
    msvcrt = types.ModuleType("msvcrt")
    msvcrt.__dict__.update(locking=locking, LK_NBLCK=2)
    added = {
        "os": {"name": "nt", "O_BINARY": 0, "path": Shown(os.path, (), drives)},
        "signal": {"SIGBREAK": CTRL_BREAK},
        "sys": {"platform": "win32"},
    }
    real = {"os": os, "signal": signal, "select": select, "sys": sys}
    shown = {
        name: Shown(each, HIDDEN.get(name, "").split(), added.get(name, {})) for name, each in real.items()
    }
    return {**shown, "msvcrt": msvcrt}


SHOWN = modules()
_import = builtins.__import__


def import_as_on_windows(name, names=None, places=None, fromlist=(), level=0):
    """Stand in place of `__import__` in truestep's modules."""
    if level == 0 and name in MISSING:
        raise ModuleNotFoundError(f"No module named {name!r} (on Windows)", name=name)
    if level == 0 and name in SHOWN:
        return SHOWN[name]
    return _import(name, names, places, fromlist, level)


class OfTruestep(importlib.machinery.SourceFileLoader):
    """Loads a module of truestep with imports of its own."""

    def exec_module(self, module):
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_as_on_windows}
        super().exec_module(module)


class Finder(importlib.machinery.PathFinder):
    """Finds the modules of truestep."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] != "truestep":
            return None
        spec = super().find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = OfTruestep(spec.loader.name, spec.loader.path)
        return spec


def open_files():
    """Return what this process has open, or mapped."""
    found = set()
    for number in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(str(number.readlink()))
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return found | {line.split(maxsplit=5)[5] for line in lines if line.count("/")}


def refusing_open_files(function):
    """Return a function of a path that raises, as on Windows, where the file, or one below it, is open in this process."""

    @functools.wraps(function)
    def refusing(path, *arguments, **options):
        for each in (path, *arguments[:1]) if function.__name__ in ("rename", "replace") else (path,):
            place = os.path.realpath(os.fspath(each)) if isinstance(each, str | os.PathLike) else None
            if (
                place
                and place.startswith(ROOT)
                and any(one == place or one.startswith(place + os.sep) for one in open_files())
            ):
                raise PermissionError(
                    errno.EACCES, "The process cannot access the file because it is being used", place
                )
        return function(path, *arguments, **options)

    return refusing


def refusing_long_paths(function):
    """Return a function that opens or makes what a path names, and finds none of 260 characters or more."""

    @functools.wraps(function)
    def refusing(path, *arguments, **options):
        place = absolute(path) if isinstance(path, str | os.PathLike) else None
        if place is not None and place.startswith(ROOT) and len(place) >= MAX_PATH:
            raise FileNotFoundError(errno.ENOENT, "The system cannot find the path specified", place)
        return function(path, *arguments, **options)

    return refusing


def no_fork():
    raise OSError(errno.ENOSYS, "Windows forks no processes")


ROOT = os.environ.get("STANDS_IN_FOR_WINDOWS", "")
if ROOT:
    ROOT = os.path.realpath(ROOT)
    sys.meta_path.insert(0, Finder)
    for name in ("rename", "replace", "unlink", "remove"):
        setattr(os, name, refusing_open_files(getattr(os, name)))
    for module, names in (
        (os, ("open", "mkdir", "rename", "replace")),
        (builtins, ("open",)),
        (io, ("open",)),
    ):
        for name in names:
            setattr(module, name, refusing_long_paths(getattr(module, name)))
    os.fork = no_fork
    multiprocessing.set_start_method("spawn")
