# SPDX-License-Identifier: Apache-2.0
"""The child of an experiment that lives in this process, and how its results are told when its part of the script is over."""

import io
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Never

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.forks.fork import ContinuingChild

_alive: list["ChildLife"] = []


@contextmanager
def unseen() -> Iterator[None]:
    """Within this, what a child computes for itself passes no mode, and no transform of `torch.func`: it is not the script's."""
    with torch._C.DisableTorchFunction(), _disable_current_modes(), temporarily_clear_interpreter_stack():
        yield


class ChildLife:
    """What a child has seen so far, and the way to tell it.

    Args:
        going_on: how it tells.
        finish: called with what was seen before that is told.
    """

    def __init__(
        self, going_on: ContinuingChild, finish: Callable[[ChildOutcome], None] = lambda _seen: None
    ) -> None:
        self.seen = ChildOutcome()
        self._going_on = going_on
        self._finish = finish
        self._output = io.StringIO()
        _alive.append(self)

    def listen(self) -> None:
        """Keep what is printed and logged from here on."""
        sys.stdout = sys.stderr = self._output
        logging.raiseExceptions = False
        from truestep.doctor.forks.in_memory_files import InMemoryFiles  # for Linux alone
        from truestep.doctor.forks.native_writers import redirect_library_writes

        files = InMemoryFiles()
        files.patch_file_functions()
        redirect_library_writes(files)
        _print_tensorboard_scalars()
        logging.getLogger().addHandler(_CapturingLogHandler(self._output))

    @property
    def num_captured_characters(self) -> int:
        """How many characters were printed or logged, but for those that were forgotten."""
        return self._output.tell()

    def captured_output(self) -> str:
        """Return what was printed or logged, but for what was forgotten."""
        return self._output.getvalue()

    def forget(self, *, since: int = 0) -> None:
        """Drop what was printed since so many characters."""
        self._output.truncate(since)
        self._output.seek(since)

    def end(self, *, failure: str | None = None, error: str | None = None) -> Never:
        """Tell what was seen, and end this process."""
        self.seen.failure, self.seen.error = failure, error
        with unseen():
            self._finish(self.seen)
            self.seen.printed = self._output.getvalue()
            written = self.seen.written()
        self._going_on.tell(written)


def _print_tensorboard_scalars() -> None:
    """Print figures for TensorBoard: its files are closed to a child, and the thread that empties its queue is not there."""
    if (board := sys.modules.get("torch.utils.tensorboard.writer")) is not None:
        vars(board)["SummaryWriter"].add_scalar = _add_scalar
    for name in ("tensorboard.summary.writer.event_file_writer", "tensorboardX.event_file_writer"):
        if (writer := vars(sys.modules.get(name, sys)).get("EventFileWriter")) is not None:
            for waits in ("add_event", "flush", "close"):
                setattr(writer, waits, lambda *_, **__: None)


def _add_scalar(_writer: Any, tag: str, scalar_value: Any, *_: Any, **__: Any) -> None:
    sys.stdout.write(f"{tag}: {float(scalar_value)}\n")


class _CapturingLogHandler(logging.Handler):
    """Writes messages of the root logger where the child's output is kept."""

    def __init__(self, output: io.StringIO) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        self._output.write(f"{record.getMessage()}\n")


def end_child_with_script(error: BaseException | None = None) -> None:
    """In a child of an experiment: the script is over, and so is the child; elsewhere nothing happens."""
    if _alive:
        raised = (
            None if error is None or isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        )
        from truestep.doctor.forks.native_writers import why_file_refused

        _alive[0].end(error=raised, failure=None if error is None else why_file_refused(error))
