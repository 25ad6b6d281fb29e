# SPDX-License-Identifier: Apache-2.0
"""Runs a script or module of the user's as Python would, under watch, and keeps its exit status."""

import builtins
import contextlib
import io
import multiprocessing
import os
import runpy
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from truestep.core.errors import OptionError
from truestep.doctor.finding import Finding, Place
from truestep.doctor.watch import StopWatching, Watch
from truestep.doctor.watching.endings import LastWord
from truestep.doctor.watching.frames import is_library, user_place

_WATCHING = str(Path(__file__).parent / "watching") + os.sep  # where the wrappers are


@dataclass
class Outcome:
    """How the script ended."""

    status: int = 0
    stopped_early: bool = False  # by --steps
    error: str | None = None
    error_place: Place | None = None
    warnings: list[tuple[Place, str]] = field(default_factory=list)  # torch's own, with the user's line


@dataclass(frozen=True)
class Target:
    """What is to be run: a file, or a module as `python -m` would."""

    name: str
    is_module: bool
    arguments: tuple[str, ...]
    started_in: Path = field(default_factory=Path.cwd)

    def file(self) -> str:
        """Return the script's absolute name, which is what Python itself calls it."""
        return str(self.started_in / self.name)

    def shown(self, place: Place) -> Place:
        """Return a place with its file named as the user would: the script as it was given, others from here."""
        path = Path(place.path)
        if not self.is_module and place.path == self.file():
            return replace(place, path=self.name)
        inside = path.is_relative_to(self.started_in)
        return replace(place, path=str(path.relative_to(self.started_in))) if inside else place

    def folder(self) -> Path:
        """Return where Python looks first for what a script imports."""
        return Path.cwd() if self.is_module else Path(self.name).resolve().parent

    def own_torch(self) -> Path | None:
        """Return a file or package of the user's that is called torch, if there is one."""
        places = (self.folder() / "torch.py", self.folder() / "torch" / "__init__.py")
        return next((each for each in places if each.is_file()), None)

    def run_apart(self) -> int:
        """Run it in a Python of its own, unwatched, and return its status."""
        how = ["-m", self.name] if self.is_module else [self.name]
        ran = subprocess.run([sys.executable, *how, *self.arguments], check=False)
        return ran.returncode if ran.returncode >= 0 else 128 - ran.returncode

    def sources(self) -> list[Path]:
        """Return the source file, where there is one to read."""
        if not self.is_module:
            return [Path(self.name)] if Path(self.name).is_file() else []
        import importlib.util

        sys.path.insert(0, str(Path.cwd()))
        try:
            found = importlib.util.find_spec(self.name)
            if found is not None and found.submodule_search_locations:
                found = importlib.util.find_spec(f"{self.name}.__main__")
        except (ImportError, ValueError):
            found = None
        finally:
            sys.path.pop(0)
        return [Path(found.origin)] if found is not None and found.origin else []


def run_watched(
    target: Target,
    watch: Watch,
    speak: Callable[[Outcome], int],
    explain: Callable[[BaseException], None] = lambda _error: None,
) -> int:
    """Run the target as `python TARGET ARGUMENTS` would, within the watch; return the status to end with.

    Args:
        target: what to run.
        watch: what watches it.
        speak: called once with how it ended, whichever way that was; gives the report, and returns the status.
        explain: called with what the script raised, before that is shown; it may add a note to it.

    Raises:
        OptionError: there is no such file.
    """
    if not target.is_module and not Path(target.name).is_file():
        raise OptionError(f"There is no file {target.name!r} to run.")
    outcome = Outcome()
    process = os.getpid()

    def conclude(status: int) -> int:
        outcome.status = status
        watch.end()
        with _in_folder(target.started_in):
            return speak(outcome)

    if (shadow := target.own_torch()) is not None:
        watch.scene.gave_up = f"{shadow} hides PyTorch from this script, which ran unwatched"
        return conclude(target.run_apart())
    with _as_found(_noting(outcome, warnings.showwarning)), LastWord(conclude), watch:
        _guarded(lambda: _start(target), outcome, explain)
        if outcome.error is not None:
            watch.break_off()
        if os.getpid() == process and not outcome.stopped_early:
            _await_children()
    if os.getpid() != process:  # a forked child that went on to the script's end has nothing to report
        return outcome.status
    return conclude(outcome.status)


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    """Within this, paths mean what they meant when the script began, wherever it went since."""
    before = None
    with contextlib.suppress(OSError):  # a folder may have been removed meanwhile
        before = Path.cwd()
    with contextlib.suppress(OSError):
        os.chdir(folder)
    try:
        yield
    finally:
        if before is not None:
            os.chdir(before)


def _await_children() -> None:
    """Wait, as Python does at the end of a script, for threads and processes that are no daemons."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    for child in multiprocessing.active_children():
        if not child.daemon:
            child.join()


@contextlib.contextmanager
def _as_found(showwarning: Callable[..., None]) -> Iterator[None]:
    """Give the script the interpreter's state as its own, and put everything back after it."""
    streams = sys.stdin, sys.stdout, sys.stderr
    before = sys.argv[:], sys.path[:], sys.modules["__main__"], warnings.showwarning
    warnings.showwarning = showwarning
    sys.excepthook = sys.__excepthook__  # the command line's own has no part in what the script raises
    try:
        yield
    finally:
        for own, first in zip((sys.stdout, sys.stderr), streams[1:], strict=True):
            if own is not first:
                with contextlib.suppress(Exception):
                    own.flush()
        sys.stdin, sys.stdout, sys.stderr = streams
        sys.argv[:], sys.path[:], sys.modules["__main__"], warnings.showwarning = before


def _start(target: Target) -> None:
    sys.argv[:] = [target.name, *target.arguments]
    if target.is_module:
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(target.name, run_name="__main__", alter_sys=True)
    else:
        _run_file(target)


def _run_file(target: Target) -> None:
    """As `runpy.run_path`, but the module stays `__main__`: spawned workers look there."""
    sys.path.insert(0, str(target.folder()))
    module = ModuleType("__main__")
    vars(module).update(__file__=target.file(), __builtins__=builtins, __spec__=None, __cached__=None)
    vars(module).update(__annotations__={}, __loader__=SourceFileLoader("__main__", target.file()))
    sys.modules["__main__"] = module
    with io.open_code(target.file()) as file:
        code = compile(file.read(), target.file(), "exec")
    exec(code, vars(module))  # noqa: S102 - running the user's script is what was asked for


def _guarded(start: Callable[[], None], outcome: Outcome, explain: Callable[[BaseException], None]) -> None:
    """Turn the ways in which a script can end into a status, as the interpreter would."""
    try:
        start()
    except StopWatching:
        outcome.stopped_early = True
    except SystemExit as exit_:
        outcome.status = _status(exit_.code)
    except BaseException as error:  # noqa: BLE001 - whatever the script raised is shown as Python shows it
        outcome.status = 130 if isinstance(error, KeyboardInterrupt) else 1
        _note(error, outcome)
        explain(error)
        _show(error)


def _status(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _note(error: BaseException, outcome: Outcome) -> None:
    outcome.error = f"{type(error).__name__}: {error}"
    trail = _own(error.__traceback__)
    if trail is not None:
        last = traceback.extract_tb(trail)
        own = [each for each in last if not is_library(each.filename)]
        if own:
            outcome.error_place = Place(own[-1].filename, own[-1].lineno or 0)
    if isinstance(error, SyntaxError) and error.filename:
        outcome.error_place = Place(error.filename, error.lineno or 0)


def _own(trail: TracebackType | None) -> TracebackType | None:
    """Leave out the frames that are ours, at the top of the trail."""
    here = str(Path(__file__).parent)
    while trail is not None and (
        trail.tb_frame.f_code.co_filename.startswith((here, "<frozen runpy>"))
        or "runpy" in trail.tb_frame.f_code.co_filename
    ):
        trail = trail.tb_next
    return trail


def _show(error: BaseException) -> None:
    """Print the traceback as Python would have done without us."""
    _leave_ours_out(error, set())
    own = _own(error.__traceback__)
    sys.excepthook(type(error), error.with_traceback(own), own)


def _leave_ours_out(error: BaseException | None, seen: set[int]) -> None:
    """Leave our wrappers out of the trail of an error and of those it came from."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    frames = []
    trail = error.__traceback__
    while trail is not None:
        frames.append(trail)
        trail = trail.tb_next
    kept: TracebackType | None = None
    for each in reversed(frames):
        if not each.tb_frame.f_code.co_filename.startswith(_WATCHING):
            kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    error.__traceback__ = kept
    for other in (error.__cause__, error.__context__):
        _leave_ours_out(other, seen)


def _noting(outcome: Outcome, show: Callable[..., None]) -> Callable[..., None]:
    """Show warnings as ever, and keep torch's own with the line of the user's that they are about."""

    def showwarning(message: Any, category: Any, filename: str, lineno: int, *rest: Any, **more: Any) -> None:
        place = user_place()
        if filename.startswith(str(Path(__file__).parent)):  # a call that is wrapped: not the user's line
            filename, lineno = place.path, place.line
        show(message, category, filename, lineno, *rest, **more)
        if f"{os.sep}torch{os.sep}" in filename or place.path == filename:
            text = f"{category.__name__}: {str(message).splitlines()[0]}"
            if (place, text) not in outcome.warnings:
                outcome.warnings.append((place, text))

    return showwarning


def merged(ran: Sequence[Finding], read: Sequence[Finding]) -> list[Finding]:
    """Return the findings of both ways; what reading found and the run bore out is one finding."""
    left = list(ran)
    found = []
    for finding in read:
        same = [each for each in left if each.code == finding.code and _near(each.place, finding.place)]
        if same:
            left = [each for each in left if each not in same]
            finding = replace(finding, evidence={**finding.evidence, **same[0].evidence}, seen="read and ran")
        found.append(finding)
    return sorted([*found, *left], key=lambda each: each.order)


def _near(first: Place, second: Place) -> bool:
    same_file = Path(first.path).resolve() == Path(second.path).resolve()
    return same_file and abs(first.line - second.line) <= 3
