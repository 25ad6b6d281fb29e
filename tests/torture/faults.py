# SPDX-License-Identifier: Apache-2.0
"""Files of which one operation fails: killed before or after it, an error, a short write."""

import errno
import os
import signal
from collections.abc import Callable
from typing import Any

from truestep.checkpoints.file_operations import CheckpointFiles

OPERATIONS = [name for name in vars(CheckpointFiles) if not name.startswith("_")]
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EINTR": errno.EINTR}
KILLS = ("kill before", "kill after")
KINDS = (*KILLS, *ERRORS, "short write")


def _intercepted(name: str) -> Callable[..., Any]:
    def operation(self: "WatchedFiles", *arguments: Any) -> Any:
        return self.around(name, lambda *given: getattr(CheckpointFiles, name)(self, *given), arguments)

    return operation


class WatchedFiles(CheckpointFiles):
    """Files that can look at each operation before it happens."""

    def around(self, name: str, operation: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return operation(*arguments)


for _name in OPERATIONS:
    setattr(WatchedFiles, _name, _intercepted(_name))


class CountingFiles(WatchedFiles):
    """Files that say what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def around(self, name, operation, arguments):
        self.done.append(name)
        return operation(*arguments)


class FaultyFiles(CountingFiles):
    """Files whose operation number `at` (from 0) meets a fault; with `lasting` all later ones do too."""

    def __init__(self, at: int, kind: str, *, lasting: bool = False) -> None:
        super().__init__()
        self.at, self.kind, self.lasting = at, kind, lasting
        self.met: str | None = None

    def around(self, name, operation, arguments):
        self.done.append(name)
        number = len(self.done) - 1
        if number == self.at or (self.lasting and number > self.at):
            self.met = name
            return self._fault(name, operation, arguments)
        return operation(*arguments)

    def _fault(self, name, operation, arguments):
        if self.kind == "kill before":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "kill after":
            operation(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "short write":
            if name != "write":
                return operation(*arguments)
            descriptor, data = arguments
            return operation(descriptor, data[: max(1, len(data) // 3)])
        if name == "close":
            operation(*arguments)  # Linux closes the descriptor even where it reports an error
        raise OSError(ERRORS[self.kind], os.strerror(ERRORS[self.kind]))
