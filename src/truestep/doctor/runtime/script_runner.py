# SPDX-License-Identifier: Apache-2.0
"""Runs a script or module of the user's as Python would, under watch, and keeps its exit status."""

import argparse
import builtins
import contextlib
import io
import linecache
import multiprocessing
import os
import runpy
import sys
import threading
import traceback
import warnings
from codeop import Compile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from truestep.core.errors import OptionError
from truestep.core.trial_runs import call_trial_end_callbacks
from truestep.core.user_frames import is_library_file
from truestep.doctor.experiments.in_process_child import end_child_with_script
from truestep.doctor.finding import Place
from truestep.doctor.notebook import parse_notebook
from truestep.doctor.runtime.at_exit import WatchReportAtExit
from truestep.doctor.runtime.script import WatchedScript
from truestep.doctor.runtime.script_file import check_script
from truestep.doctor.runtime.tracebacks import script_part_of_traceback, show_script_traceback
from truestep.doctor.runtime.user_code_line import watched_user_place
from truestep.doctor.runtime.watch import Watch
from truestep.doctor.runtime.watch_schedule import StopWatching


@dataclass
class ScriptOutcome:
    """How the script ended."""

    status: int = 0
    stopped_early: bool = False  # by --steps
    error: str | None = None
    error_place: Place | None = None
    warnings: list[tuple[Place, str]] = field(default_factory=list)  # torch's own, with the user's line
    arguments_refused: str | None = None  # what the script said of its own command line, which ended it


def run_watched(
    script: WatchedScript,
    watch: Watch,
    speak: Callable[[ScriptOutcome], int],
    explain: Callable[[BaseException], None] = lambda _error: None,
) -> int:
    """Run the script as `python SCRIPT ARGUMENTS` would, within the watch; return the status to end with.

    Args:
        script: what to run.
        watch: what watches it.
        speak: called once with how it ended, whichever way that was; gives the report, and returns the status.
        explain: called with what the script raised, before that is shown; it may add a note to it.

    Raises:
        OptionError: there is no such file, it is a notebook that can't be run, or a command that starts scripts.
    """
    check_script(script)
    if script.is_notebook:
        cells_to_run(script)
    outcome = ScriptOutcome()
    process = os.getpid()

    def end_watch_and_report(status: int) -> int:
        outcome.status = status
        watch.end()
        with _working_directory(script.started_in):
            return speak(outcome)

    if (shadow := script.own_torch()) is not None:
        watch.recorder.give_up(f"{shadow} hides PyTorch from this script, which ran unwatched")
        return end_watch_and_report(script.run_apart())
    with (
        _restored_interpreter_state(_wrap_showwarning(outcome, warnings.showwarning)),
        WatchReportAtExit(end_watch_and_report),
        watch,
    ):
        _run_to_status(lambda: _run_script(script), outcome, explain)
        if outcome.error is not None or outcome.stopped_early:
            watch.recorder.cut_short()
        if os.getpid() == process and not outcome.stopped_early:
            _await_children()
    if os.getpid() != process:  # a forked child that went on to the script's end has nothing to report
        return outcome.status
    return end_watch_and_report(outcome.status)


@contextlib.contextmanager
def _working_directory(folder: Path) -> Iterator[None]:
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
def _restored_interpreter_state(showwarning: Callable[..., None]) -> Iterator[None]:
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


def _run_script(script: WatchedScript) -> None:
    sys.argv[:] = [script.name, *script.arguments]
    if script.is_module:
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(script.name, run_name="__main__", alter_sys=True)
    else:
        _run_file(script)


def _run_file(script: WatchedScript) -> None:
    """As `runpy.run_path`, but the module stays `__main__`: spawned workers look there."""
    sys.path.insert(0, str(script.folder()))
    module = ModuleType("__main__")
    vars(module).update(__builtins__=builtins, __spec__=None, __cached__=None, __annotations__={})
    sys.modules["__main__"] = module
    if script.is_notebook:
        run_cells(script, vars(module))
        return
    vars(module).update(__file__=script.file(), __loader__=SourceFileLoader("__main__", script.file()))
    with io.open_code(script.file()) as file:
        code = compile(file.read(), script.file(), "exec")
    exec(code, vars(module))  # noqa: S102 - running the user's script is what was asked for


def _run_to_status(
    start: Callable[[], None], outcome: ScriptOutcome, explain: Callable[[BaseException], None]
) -> None:
    """Turn the ways in which a script can end into a status, as the interpreter would."""
    try:
        start()
        end_child_with_script()
    except StopWatching as over:
        outcome.stopped_early = True
        call_trial_end_callbacks(over)
    except SystemExit as exit_:
        end_child_with_script()
        outcome.status = _exit_status(exit_.code)
        outcome.arguments_refused = _argument_error_text(exit_) if outcome.status == 2 else None
    except BaseException as error:  # noqa: BLE001 - whatever the script raised is shown as Python shows it
        end_child_with_script(error)
        outcome.status = 130 if isinstance(error, KeyboardInterrupt) else 1
        _note_error(error, outcome)
        explain(error)
        show_script_traceback(error)


def _argument_error_text(ended: SystemExit) -> str | None:
    """Return what argparse said of a script's arguments, or that click said it; None where something else ended the script."""
    for frame, _ in traceback.walk_tb(ended.__traceback__):
        if frame.f_code is argparse.ArgumentParser.error.__code__:
            return str(frame.f_locals["message"])
        if frame.f_globals.get("__name__") == "click.core":
            return "as it says above"
    return None


def _exit_status(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _note_error(error: BaseException, outcome: ScriptOutcome) -> None:
    outcome.error = f"{type(error).__name__}: {error}"
    trail = script_part_of_traceback(error.__traceback__)
    if trail is not None:
        last = traceback.extract_tb(trail)
        own = [each for each in last if not is_library_file(each.filename)]
        if own:
            outcome.error_place = Place(own[-1].filename, own[-1].lineno or 0)
    if isinstance(error, SyntaxError) and error.filename:
        outcome.error_place = Place(error.filename, error.lineno or 0)


def _wrap_showwarning(outcome: ScriptOutcome, original: Callable[..., None]) -> Callable[..., None]:
    """Show warnings as ever, and keep torch's own with the line of the user's that they are about."""

    def showwarning(message: Any, category: Any, filename: str, lineno: int, *rest: Any, **more: Any) -> None:
        place = watched_user_place()
        if filename.startswith(str(Path(__file__).parent)):  # a call that is wrapped: not the user's line
            filename, lineno = place.path, place.line
        original(message, category, filename, lineno, *rest, **more)
        if f"{os.sep}torch{os.sep}" in filename or place.path == filename:
            text = f"{category.__name__}: {str(message).splitlines()[0]}"
            if (place, text) not in outcome.warnings:
                outcome.warnings.append((place, text))

    return showwarning


@cache
def cells_to_run(script: WatchedScript) -> list[tuple[int, str]]:
    """Return the number and the Python of each cell.

    Raises:
        OptionError: it is no notebook of Python, or a cell is no Python.
    """
    try:
        notebook = parse_notebook(Path(script.file()).read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{script.name} can't be run: {error}, so no cell of it can be told. Open it in Jupyter and save it again, or take an "
            "older copy; for a script that has the wrong ending, rename it to .py."
        ) from error
    for number, reason in notebook.unreadable:
        raise OptionError(f"Cell {number} of {script.name} can't be run: {reason}.")
    return list(notebook.cells)


def run_cells(script: WatchedScript, names: dict[str, Any]) -> None:
    """Run a notebook's cells with `names` as their variables.

    Each cell has a file's name of its own, so that places and tracebacks say which it was.
    """
    names["display"] = print
    compiled = Compile()  # which remembers imports from __future__
    for number, text in cells_to_run(script):
        file = script.cell_file(number)
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compiled(text, file, "exec"), names)  # noqa: S102 - running the user's code is what was asked for
