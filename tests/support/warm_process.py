# SPDX-License-Identifier: Apache-2.0
"""The process that `warm` forks others from: it loads torch, computes nothing and keeps to one thread, so forking it is safe.

What it is asked comes as one message: a command, a folder, an environment, and four open files (the three streams, and
one that the child's pid and then its status are written to). Or it is asked for one as itself that has more modules loaded:
these, and the socket by which that one is asked.
"""

import atexit
import contextlib
import gc
import importlib
import importlib.machinery
import json
import multiprocessing.process
import os
import pkgutil
import posix
import random
import runpy
import select
import signal
import socket
import sys
import threading
import types
import weakref
from pathlib import Path

import huge_pages  # noqa: F401


def serve(control):
    """Fork a child for each message; return in the child, with what it was asked and its streams."""
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running = {}
    while True:
        ready = select.select([control, wake], [], [])[0]
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        tell_of_the_ended(running)
        if control not in ready:
            continue
        message, files, *_ = socket.recv_fds(control, 2**20, 4)
        if not message:  # whoever asked is gone
            for child in running:
                end_group(child)
            return None
        child = posix.fork()  # os.fork may be a stand-in
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked = json.loads(message)
            status = [] if "also" in asked else [files.pop()]
            for file in (wake, woken, *status, control.detach(), *running.values()):
                os.close(file)
            return asked, files
        *streams, running[child] = files
        for stream in streams:
            os.close(stream)
        os.write(running[child], str(child).encode())


def tell_of_the_ended(running):
    for child in list(running):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            end_group(child)  # what it left behind
            file = running.pop(child)
            with contextlib.suppress(BrokenPipeError):
                os.write(file, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(file)


def end_group(child):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def become(asked, streams):
    """Make this process what `python COMMAND` would be before its first line runs."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream is sys.stderr or stream.isatty())
    old = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    multiprocessing.process.ORIGINAL_DIR = asked["cwd"]
    stand_in = sys.modules.get("sitecustomize")
    if hasattr(stand_in, "MAX_PATH"):
        stand_in.ROOT = os.path.realpath(asked["env"]["STANDS_IN_FOR_WINDOWS"])
    new = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [
        *(str(Path.cwd() / each) for each in new if each),
        *(each for each in sys.path[1:] if each not in old),
    ]
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def run(command):
    """Run a file, `-m module` or `-c code` as the main module."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __annotations__={}, __cached__=None)
    if command[0] == "-m":
        sys.argv[:] = command[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    if command[0] == "-c":
        sys.argv[:] = ["-c", *command[2:]]
        sys.path.insert(0, "")
        exec(compile(command[1], "<string>", "exec"), main.__dict__)
        return
    sys.argv[:] = command
    path = Path.cwd() / command[0]
    sys.path.insert(0, str(path.resolve().parent))
    main.__file__ = str(path)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", str(path))
    exec(compile(path.read_bytes(), str(path), "exec"), main.__dict__)


def without_us(trace):
    """Return a traceback without the frames of this file and of what it calls to run a module."""
    while trace and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        trace = trace.tb_next
    return trace


def leave(error):
    """End as Python does, but for taking torch's modules apart one by one, which costs more than most of what is run."""
    status = 0 if error is None else 1
    if isinstance(error, SystemExit):
        status = error.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    elif error is not None:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(
            type(error), error.with_traceback(without_us(error.__traceback__)), error.__traceback__
        )
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


# what most of those that are forked import: torch._dynamo with the first optimizer, pydantic with the first option
WORTH_LOADING = (
    "torch._dynamo",
    "torch._subclasses.schema_check_mode",
    "torch.profiler._cupti_monitor",
    "torch.utils.serialization.config",
    "numpy.ma",
    "pydantic.main",
    "pydantic.type_adapter",
    "typer._adapters",
    "psutil",
    "blake3",
    "rich.rule",
    "rich._emoji_codes",
    "importlib.resources.readers",
    "truestep.cli.main",
    "truestep.cli.doctor",
    "truestep.cli.train",
)
WHOLE = ("checkpoints", "core", "doctor", "engine", "nn", "report", "run")


def names_worth_loading():
    """Return the modules to load, one after the other, as a package's own are found when it is loaded."""
    yield from WORTH_LOADING
    yield from os.environ.get("WARM_ALSO", "").split()
    for package in WHOLE:
        found = importlib.import_module(f"truestep.{package}")
        yield from (each.name for each in pkgutil.walk_packages(found.__path__, f"{found.__name__}."))
    for name in sys.modules["truestep"].__all__:
        getattr(sys.modules["truestep"], name)


def know_libraries():
    """Have a run find at once that modules of libraries are no source of the user's, and copy no memory to look at them."""
    frames, own_code = map(
        importlib.import_module, ("truestep.core.user_frames", "truestep.run.user_source_files")
    )
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    own_code.CODE_OF_PROCESS._seen.update(
        name for name, file in files.items() if isinstance(file, str) and frames.is_library_file(file)
    )


def know_what_a_watch_asks_for():
    """Have a watch find the checks, and that libraries' modules hold nothing of the user's, as it does behind its first run."""
    catalogue, wrapping = map(
        importlib.import_module, ("truestep.doctor.catalogue", "truestep.doctor.runtime.wrapping")
    )
    catalogue.checks()
    wrapping._user_module_variables()


def load(names, collapse):
    """Import modules, and make this process cheap to fork."""
    for name in names:
        with contextlib.suppress(ImportError):  # of what is not installed
            importlib.import_module(name)
    know_libraries()
    for finalizer, told in weakref.finalize._registry.items():
        finalizer.atexit = told.func.__name__ != "_del_library"  # of torch's operators: 40 ms of each child
    know_what_a_watch_asks_for()
    gc.collect()
    gc.freeze()
    collapse()


def main():
    collapse = sys.modules.pop("huge_pages").collapse  # no module of those that are forked
    load(names_worth_loading(), collapse)
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    while asked is not None and "also" in asked[0]:
        load(asked[0]["also"], collapse)
        asked = serve(socket.socket(fileno=asked[1][0]))
    if asked is None:
        return
    become(*asked)
    try:
        run(asked[0]["command"])
    except BaseException as error:
        leave(error)
    leave(None)


if __name__ == "__main__":
    KEPT = sys.modules["__main__"]  # its functions still run when another takes its name
    main()
