# SPDX-License-Identifier: Apache-2.0
"""Noticing how a loop ends when nobody tells: by an exception nobody caught, by the end of the process, of a cell."""

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from types import TracebackType
from typing import Any, Protocol

from truestep.core.errors import TruestepError
from truestep.core.trial_runs import register_trial_end_callback, unregister_trial_end_callback
from truestep.core.user_frames import is_library_file, is_truestep_file
from truestep.doctor.runtime.tracebacks import frames_without_watch, traceback_of_frames
from truestep.engine.processes.world import World
from truestep.run.notebook import notebook_shell
from truestep.run.owning_process import RunOwner


class RunEndListener(Protocol):
    """What is told how a loop ends."""

    owner: RunOwner

    def crashed(self, error: BaseException) -> None:
        """An exception goes through the loop."""

    def interrupted(self) -> None:
        """A cell was interrupted, and the next one may go on."""

    def close_at_process_end(self, *, is_dropped: bool = False) -> None:
        """The process ends, or nobody holds the run any more, and nobody closed it."""


_watching: "list[LoopEndHooks]" = []
"""Those of all runs that are at work, in the order in which their loops began; one hook tells them all."""


class LoopEndHooks:
    """Hooks that are in place from a loop's start to its end, and gone before and after, and in every forked process."""

    def __init__(self, end: RunEndListener) -> None:
        self._end = end
        self.ended = False

    @property
    def watching(self) -> bool:
        """Whether a loop runs."""
        return self in _watching

    def watch(self) -> None:
        """Put the hooks in place."""
        self.ended = False
        if self.watching:
            return
        _watching.append(self)
        for hook in _hooks:
            hook.install()
        atexit.register(self._process_ends)
        register_trial_end_callback(self.handle_uncaught_exception)
        notebook = notebook_shell()
        if notebook is not None:
            notebook.events.register("post_run_cell", self._cell_done)

    def release(self) -> None:
        """Take the hooks away."""
        self.ended = True
        if not self.watching:
            return
        _watching.remove(self)
        if not _watching:
            for hook in _hooks:
                hook.remove()
        atexit.unregister(self._process_ends)
        unregister_trial_end_callback(self.handle_uncaught_exception)
        notebook = notebook_shell()
        if notebook is not None:
            notebook.events.unregister("post_run_cell", self._cell_done)

    def handle_uncaught_exception(self, error: BaseException) -> None:
        """Nobody caught an exception; torch's threads and workers tell of their own, while the run goes on."""
        if self._end.owner.is_here:
            self._end.crashed(error)

    def handle_uncaught_in_thread(self, error: BaseException, thread: threading.Thread | None) -> None:
        """The same, of the thread that made the run."""
        owner = self._end.owner
        if owner.is_this_process and thread is owner.thread:
            self._end.crashed(error)

    def dropped(self) -> None:
        """Nobody holds the run any more, nor a loop of it, so none goes on: a search over many runs must not keep them all."""
        # Of several processes each would come here at a moment of its own, and where a run ends they meet.
        if self._end.owner.is_here and World.here is None:
            self._process_ends(is_dropped=True)

    def _process_ends(self, *, is_dropped: bool = False) -> None:
        if not (self.watching and self._end.owner.is_this_process):
            return
        try:
            self._end.close_at_process_end(is_dropped=is_dropped)
        except (TruestepError, OSError) as error:
            # python would print it as ignored, with our frames: nobody can catch it here
            sys.stderr.write(f"truestep: the run could not be saved when it ended: {error}\n")

    def _cell_done(self, result: Any) -> None:
        error = result.error_in_exec or result.error_before_exec
        if error is None or not self._end.owner.is_here:
            return
        if isinstance(error, KeyboardInterrupt):
            self._end.interrupted()  # and the next cell may go on
        else:
            self._end.crashed(error)


class _ExceptHook:
    """An excepthook of python's, replaced while any run is at work; what stood there is called afterwards."""

    def __init__(self, module: Any, tell: Callable[..., None]) -> None:
        self._module, self._tell = module, tell
        self._ours: Any = None
        self._before: Any = None

    def install(self) -> None:
        """Put ours on top; one that somebody's covers stays where it is, and only hands on."""
        if self._module.excepthook is self._ours:
            return
        before = self._before = self._module.excepthook
        tell = self._tell

        def replacement_excepthook(*arguments: Any) -> None:
            if self._ours is replacement_excepthook:
                tell(*arguments)
            with _note_hidden_frames(_exception_from_hook_arguments(*arguments)):
                before(*arguments)

        self._ours = self._module.excepthook = replacement_excepthook

    def remove(self) -> None:
        """Put back what stood there; somebody else's hook, put on top of ours, stays."""
        if self._module.excepthook is self._ours:
            self._module.excepthook = self._before
        self._ours = self._before = None


class _NotebookTracebackPatch:
    """What a notebook prints of a cell's exception, without our frames while any run is at work; it asks no excepthook."""

    def __init__(self) -> None:
        self._shell: Any = None

    def install(self) -> None:
        """Put ours before the shell's own, unless somebody's lies on it already."""
        shell = notebook_shell()
        if shell is None or "showtraceback" in vars(shell):
            return
        before = shell.showtraceback

        def showtraceback(exc_tuple: Any = None, *arguments: Any, **options: Any) -> None:
            error = sys.exception() if exc_tuple is None else exc_tuple[1]
            with _note_hidden_frames(error) as are_left_out:
                if are_left_out and error is not None and exc_tuple is not None:
                    exc_tuple = (exc_tuple[0], error, error.__traceback__)
                before(exc_tuple, *arguments, **options)

        self._shell, shell.showtraceback = shell, showtraceback

    def remove(self) -> None:
        """Let the shell print whole tracebacks again."""
        if self._shell is not None:
            del self._shell.showtraceback
        self._shell = None


@contextmanager
def _note_hidden_frames(error: Any) -> Iterator[bool]:
    """Say that our frames are left out before an exception is printed: its own words stay the last."""
    with hide_truestep_frames(error) as are_left_out:
        if are_left_out and sys.stderr is not None:
            sys.stderr.write(f"{HIDDEN}\n")
        yield are_left_out


def _exception_from_hook_arguments(*arguments: Any) -> BaseException | None:
    """Return the exception that a hook of `sys` or of `threading` is called with."""
    found = arguments[1] if len(arguments) == 3 else arguments[0].exc_value
    return found if isinstance(found, BaseException) else None


def _notify_of_uncaught(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
    for each in reversed(_watching):
        each.handle_uncaught_exception(error)


def _notify_of_uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    assert arguments.exc_value is not None
    for each in reversed(_watching):
        each.handle_uncaught_in_thread(arguments.exc_value, arguments.thread)


_hooks: list[_ExceptHook | _NotebookTracebackPatch] = [
    _ExceptHook(sys, _notify_of_uncaught),
    _ExceptHook(threading, _notify_of_uncaught_in_thread),
    _NotebookTracebackPatch(),
]

_NO_CUDA = ("Torch not compiled with CUDA", "Found no NVIDIA driver")
_MOVES = ("to", "cuda")  # methods of a tensor that move it


@contextmanager
def note_further_errors(
    error: BaseException, words: str, kind: type[Exception] = Exception
) -> Iterator[None]:
    """Note beside an exception what goes wrong while it is dealt with: it is the one to see.

    Of one that python shows nobody (a script's `sys.exit`), it is said at once.
    """
    try:
        yield
    except kind as own:
        # a state that no checkpoint takes is refused where it is set, and where it is saved
        if str(own) == str(error):
            return
        error.add_note(f"truestep: {words}{own}")
        if isinstance(error, SystemExit | GeneratorExit):
            sys.stderr.write(f"truestep: {words}{own}\n")


def call_all_then_raise(*ends: Callable[[], None]) -> None:
    """Call each in its turn, whatever another one raises; that is raised at the end."""
    with ExitStack() as left:
        for end in reversed(ends):
            left.callback(end)


def add_explanation_note(error: BaseException) -> None:
    """Note beside an exception what it means here, where that is known."""
    with suppress(OSError, ImportError):  # where no file can be opened, nothing is imported either
        from truestep.explainer.explain import annotate_error

        annotate_error(error)
    if (
        isinstance(error, AttributeError)
        and error.name in _MOVES
        and isinstance(error.obj, tuple | list | dict)
    ):
        kind = type(error.obj).__name__
        error.add_note(
            f"truestep: if this {kind} is a batch, leave .{error.name}(...) out: what run.batches and net.evaluate give is on "
            "run.device already, each tensor in it."
        )

    if str(error).startswith(_NO_CUDA):
        error.add_note(
            'truestep: leave .cuda() and .to("cuda") out: modules and batches are on run.device already, which ts.Run(device=...) '
            "chooses. What is made beside them says device=run.device."
        )


def error_identity(error: BaseException | None) -> int | None:
    """Return what an exception is recognised by; to keep it would keep every tensor in its frames."""
    # an exception of python's own takes no weak reference
    return None if error is None else id(error)


FULL_TRACEBACK = "TRUESTEP_FULL_TRACEBACK"
HIDDEN = f"truestep: frames of Truestep are left out below; {FULL_TRACEBACK}=1 shows them."


@contextmanager
def hide_truestep_frames(error: BaseException | None) -> Iterator[bool]:
    """Let the exception's tracebacks, and those of what it came from, lack our frames; afterwards they are what they were.

    Yields whether any was left out: none where we failed ourselves, or TRUESTEP_FULL_TRACEBACK is set.
    """
    whole = {each: each.__traceback__ for each in _exception_and_its_causes(error)}
    try:
        if os.environ.get(FULL_TRACEBACK, "0") in ("", "0"):
            for each, trail in whole.items():
                each.__traceback__ = _traceback_without_our_frames(
                    trail, says_all=isinstance(each, TruestepError)
                )
        yield any(each.__traceback__ is not trail for each, trail in whole.items())
    finally:
        for each, trail in whole.items():
            each.__traceback__ = trail


def _exception_and_its_causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and all(each is not other for other in found):
            found.append(each)
            waiting += [each.__cause__, each.__context__]
    return found


def _traceback_without_our_frames(trail: TracebackType | None, *, says_all: bool) -> TracebackType | None:
    """Return a trail without our frames, where code of the user's stands behind them; else the trail itself.

    What we raise ourselves, called by that code, keeps the frames that lead there, unless its message says all (`says_all`): then
    the trail ends at the user's own line.
    """
    frames = frames_without_watch(trail)
    of_user = [not is_library_file(_traceback_file_name(each)) for each in frames]
    ours = [is_truestep_file(_traceback_file_name(each)) for each in frames]
    if not any(ours) or not any(of_user if says_all else of_user[ours.index(True) :]):
        return trail
    kept: list[TracebackType] = []
    for is_user, found in groupby(frames, key=lambda each: not is_library_file(_traceback_file_name(each))):
        group = [*found]
        is_raised_here = group[-1] is frames[-1] and is_truestep_file(_traceback_file_name(group[-1]))
        kept += group if is_user or (is_raised_here and not says_all) else _library_frames_after_ours(group)
    return traceback_of_frames(kept)


def _library_frames_after_ours(frames: list[TracebackType]) -> list[TracebackType]:
    """Return the frames of libraries that come behind the last of ours: those between are how we got there."""
    last = max(
        (place for place, each in enumerate(frames) if is_truestep_file(_traceback_file_name(each))),
        default=-1,
    )
    return frames[last + 1 :]


def _traceback_file_name(trail: TracebackType) -> str:
    return trail.tb_frame.f_code.co_filename
