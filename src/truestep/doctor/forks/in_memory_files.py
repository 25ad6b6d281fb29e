# SPDX-License-Identifier: Apache-2.0
"""Files that a child writes: they are kept in memory, so that a script that saves goes on, and can read what it saved.

The seal refuses them all; this only has fewer children end for it.
"""

import builtins
import errno
import inspect
import io
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_FOLDER, _GONE = -1, -2  # in the place of a descriptor
_OPENS = inspect.signature(builtins.open)
_NO_CHANGE = ("chmod", "utime", "link", "symlink", "chown")


class InMemoryFiles:
    """What a child makes of names: files in memory, folders, names that are gone; all others are as its parent's."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._plain = {each: getattr(os, each) for each in ("open", "stat", "lstat", "listdir", "scandir")}
        self._file = builtins.open

    def patch_file_functions(self) -> None:
        """Have Python write here for the rest of the child's life."""
        builtins.open = io.open = self._open_file
        exchanged: dict[str, Callable[..., Any]] = {
            "open": self._open_descriptor,
            "stat": lambda path, **how: self._stat_path("stat", path, how),
            "lstat": lambda path, **how: self._stat_path("lstat", path, how),
            "access": lambda path, *_, **__: self._exists(path),
            "listdir": self._list_folder,
            "scandir": lambda path=".": _FolderScan(self._entries(path)),
            "mkdir": self._make_folder,
            **dict.fromkeys(("rename", "replace"), self._rename_path),
            **dict.fromkeys(("remove", "unlink", "rmdir"), self._remove_path),
            "listxattr": lambda *_, **__: [],
            **{each: lambda *_, **__: None for each in _NO_CHANGE},
        }
        for name, function in exchanged.items():
            setattr(os, name, function)
        shutil.rmtree = self._remove_tree  # type: ignore[assignment]

    def path_for_native_code(self, path: Any) -> Any:
        """Return where code that is not Python's reads a file."""
        kept = self._entry_of_path(_absolute_path(path)) if isinstance(path, (str, os.PathLike)) else None
        return path if kept is None or kept < 0 else f"/proc/self/fd/{kept}"

    def _entry_of_path(self, path: str) -> int | None:
        """Return what the child made of a name, None where it made nothing of it."""
        if not self._names or path in self._names:
            return self._names.get(path)
        above = (self._names.get(str(each)) for each in Path(path).parents)
        return _GONE if any(each is not None and each < 0 for each in above) else None

    def _exists(self, path: Any) -> bool:
        try:
            os.stat(path)  # noqa: PTH116 - of any path, as it is exchanged
        except OSError:
            return False
        return True

    def _open_file(self, file: Any, mode: str = "r", *more: Any, **how: Any) -> Any:
        given = _OPENS.bind(file, mode, *more, **how).arguments
        if given.get("opener") is None and not isinstance(file, int):
            given["opener"] = self._open_descriptor
        return self._file(**given)

    def _open_descriptor(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        kept = self._entry_of_path(_absolute_path(path)) if dir_fd is None else None
        if kept is None and not flags & _WRITES:
            return int(self._plain["open"](path, flags, mode, dir_fd=dir_fd))
        if kept == _FOLDER:
            return os.memfd_create("folder")  # to be synced, at most
        if kept is None or kept == _GONE:
            kept = self._create_copy(path, flags)
        elif flags & os.O_EXCL:
            raise _os_error(errno.EEXIST, path)
        if not flags & _WRITES:
            return int(self._plain["open"](f"/proc/self/fd/{kept}", flags))
        if flags & os.O_TRUNC:
            os.ftruncate(kept, 0)
        os.lseek(kept, 0, os.SEEK_END if flags & os.O_APPEND else os.SEEK_SET)
        return os.dup(kept)

    def _create_copy(self, path: Any, flags: int) -> int:
        """Return a descriptor for a file that the child has not written so far, with what its parent has there."""
        is_there = self._exists(path)
        if is_there and flags & os.O_EXCL and flags & os.O_CREAT:
            raise _os_error(errno.EEXIST, path)
        if not (is_there or flags & os.O_CREAT) or not self._exists(Path(_absolute_path(path)).parent):
            raise _os_error(errno.ENOENT, path)
        kept = os.memfd_create("kept")
        if is_there and not flags & os.O_TRUNC:
            with self._file(path, "rb") as file:
                os.write(kept, file.read())
        self._names[_absolute_path(path)] = kept
        return kept

    def _stat_path(self, kind: str, path: Any, how: dict[str, Any]) -> os.stat_result:
        kept = (
            None if isinstance(path, int) or how.get("dir_fd") else self._entry_of_path(_absolute_path(path))
        )
        if kept == _GONE:
            raise _os_error(errno.ENOENT, path)
        if kept is not None and kept >= 0:
            return os.fstat(kept)
        found: os.stat_result = self._plain[kind](path if kept is None else os.sep, **how)
        return found

    def _list_folder(self, path: Any = ".") -> list[Any]:
        if not isinstance(path, (str, os.PathLike)):
            return list(self._plain["listdir"](path))
        return [each.name for each in self._entries(path)]

    def _entries(self, path: Any) -> Iterator[Any]:
        if not isinstance(path, (str, os.PathLike)):
            yield from self._plain["scandir"](path)
            return
        whole, given = Path(_absolute_path(path)), os.fspath(path)
        kept = self._entry_of_path(str(whole))
        if kept == _GONE:
            raise _os_error(errno.ENOENT, path)
        own = {Path(each).name: kept for each, kept in self._names.items() if Path(each).parent == whole}
        if kept is None:
            yield from (each for each in self._plain["scandir"](path) if each.name not in own)
        for name, its in own.items():
            if its != _GONE:
                yield _KeptEntry(str(name), str(Path(given, name)))

    def _make_folder(self, path: Any, *_: Any, dir_fd: int | None = None) -> None:
        if self._exists(path):
            raise _os_error(errno.EEXIST, path)
        if not self._exists(Path(_absolute_path(path)).parent):
            raise _os_error(errno.ENOENT, path)
        self._names[_absolute_path(path)] = _FOLDER

    def _rename_path(self, before: Any, after: Any, **_: Any) -> None:
        if not self._exists(before):
            raise _os_error(errno.ENOENT, before)
        old, new = _absolute_path(before), _absolute_path(after)
        if self._entry_of_path(old) is None and not Path(old).is_dir():
            os.close(os.open(old, os.O_RDWR))  # its contents, in memory
        for each, kept in [*self._names.items()]:
            if each == old or each.startswith(f"{old}{os.sep}"):
                self._names[new + each.removeprefix(old)] = kept
                self._names[each] = _GONE

    def _remove_path(self, path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is None and not self._exists(path):
            raise _os_error(errno.ENOENT, path)
        self._names[_absolute_path(path)] = _GONE

    def _remove_tree(self, path: Any, ignore_errors: bool = False, *_: Any, **__: Any) -> None:
        if self._exists(path):
            whole = _absolute_path(path)
            for each in [each for each in self._names if each.startswith(f"{whole}{os.sep}")]:
                del self._names[each]
            self._names[whole] = _GONE
        elif not ignore_errors:
            raise _os_error(errno.ENOENT, path)


class _KeptEntry:
    """An entry of a folder, as `os.scandir` gives them."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path

    def __fspath__(self) -> str:
        return self.path

    def is_dir(self, **_: Any) -> bool:
        return Path(self.path).is_dir()

    def is_file(self, **_: Any) -> bool:
        return Path(self.path).is_file()

    def is_symlink(self) -> bool:
        return False

    def stat(self, **_: Any) -> os.stat_result:
        return Path(self.path).stat()


class _FolderScan:
    """What `os.scandir` returns: an iterator that can be closed."""

    def __init__(self, entries: Iterator[Any]) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def _os_error(number: int, path: Any) -> OSError:
    return OSError(number, os.strerror(number), os.fspath(path))


def _absolute_path(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links stay as they are named
