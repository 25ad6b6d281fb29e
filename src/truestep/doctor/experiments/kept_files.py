# SPDX-License-Identifier: Apache-2.0
"""Files that a child writes: they are kept in memory, so that a script that saves goes on, and can read what it saved.

The seal refuses them all; this only has fewer children end for it.
"""

import builtins
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_WRITES = frozenset("wax+")
_CHANGES_OF_NAMES = ("mkdir", "rename", "replace", "remove", "unlink", "rmdir", "chmod", "utime")


class KeptFiles:
    """What was written, by path; in place for the rest of a child's life."""

    def __init__(self) -> None:
        self._saved: dict[str, bytes] = {}
        self._save, self._load, self._open = torch.save, torch.load, builtins.open

    def put_in_place(self) -> None:
        """Have torch and Python write here."""
        torch.save, torch.load = self._saving, self._loading
        builtins.open = io.open = self._opening
        for name in _CHANGES_OF_NAMES:
            setattr(os, name, _nothing)

    def _saving(self, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(f, (str, os.PathLike)):
            self._save(obj, f, *args, **kwargs)
            return
        memory = io.BytesIO()
        self._save(obj, memory, *args, **kwargs)
        self._saved[_whole(f)] = memory.getvalue()

    def _loading(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        saved = self._saved.get(_whole(f)) if isinstance(f, (str, os.PathLike)) else None
        return self._load(f if saved is None else io.BytesIO(saved), *args, **kwargs)

    def _opening(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if not isinstance(file, (str, bytes, os.PathLike)):
            return self._open(file, mode, *args, **kwargs)
        path, is_binary = _whole(file), "b" in mode
        if _WRITES.isdisjoint(mode):
            if path not in self._saved:
                return self._open(file, mode, *args, **kwargs)
            kept = self._saved[path]
            return io.BytesIO(kept) if is_binary else io.StringIO(kept.decode())
        return _keeping(io.BytesIO if is_binary else io.StringIO, lambda written: self._keep(path, written))

    def _keep(self, path: str, written: bytes | str) -> None:
        self._saved[path] = written.encode() if isinstance(written, str) else written


def _keeping(kind: Any, keep: Callable[[Any], None]) -> Any:
    """Return a file in memory that gives its contents away when it is closed."""

    class Kept(kind):  # type: ignore[misc]
        def close(self) -> None:
            if not self.closed:
                keep(self.getvalue())
            super().close()

    return Kept()


def _whole(path: Any) -> str:
    return str(Path(os.fsdecode(path)).absolute())


def _nothing(*_: Any, **__: Any) -> None:
    """Change no name of a file: names are the parent's."""
