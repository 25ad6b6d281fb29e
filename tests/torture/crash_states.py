# SPDX-License-Identifier: Apache-2.0
"""A file system in memory that promises as little as POSIX does, and every state a loss of power can leave
it in.

What was written to a file is certain only once the file is synced: until then it may be as it was, whole,
cut off, or as long as it should be with zeros in it. What was done to a folder's names is certain only once
the folder is synced: until then any of those operations may have happened and any other not. Renaming
within a folder is atomic.
"""

import errno
import itertools
import math
import os
import random
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truestep.checkpoints.file_operations import CheckpointFiles


@dataclass
class File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""

    def variants(self, sample: "Sample") -> list[bytes]:
        now = bytes(self.content)
        if now == self.synced:
            return [now]
        holes = [bytes(len(now)), now[:-8] + bytes(len(now[-8:]))]
        return list(dict.fromkeys([self.synced, now, now[: len(now) // 2], *holes]))


class Lock(File):
    """A file whose content says nothing."""

    def variants(self, sample: "Sample") -> list[bytes]:
        return [b""]


@dataclass
class Folder:
    entries: dict[str, "File | Folder"] = field(default_factory=dict)
    synced: dict[str, "File | Folder"] = field(default_factory=dict)
    pending: list[list[tuple[str, "File | Folder | None"]]] = field(default_factory=list)

    def change(self, *changes: tuple[str, "File | Folder | None"]) -> None:
        self.pending.append(list(changes))
        _apply(self.entries, list(changes))

    def variants(self, sample: "Sample") -> list[dict[str, Any]]:
        """Return the trees of names to bytes or trees that this folder can be after a loss of power."""
        return list(self._variants(sample))

    def _variants(self, sample: "Sample") -> Iterator[dict[str, Any]]:
        seen = set()
        for happened in sample.of([[True, False]] * len(self.pending)):
            entries = dict(self.synced)
            for changes, did in zip(self.pending, happened, strict=True):
                if did:
                    _apply(entries, changes)
            identity = frozenset((name, id(child)) for name, child in entries.items())
            if identity in seen:
                continue
            seen.add(identity)
            for children in sample.of([_kept(name, child, sample) for name, child in entries.items()]):
                yield dict(zip(entries, children, strict=True))


def _kept(name: str, child: "File | Folder", sample: "Sample") -> list[Any]:
    # what is in such a folder is only ever deleted: one variant can stand for all
    if sample.merged and name.startswith((".tmp-", ".del-")):
        return [{"x": b""}]
    return child.variants(sample)


@dataclass
class Sample:
    """All combinations while there are few, else some, drawn at random; `complete` says which it was."""

    few: int = 5000
    some: int = 100
    complete: bool = True
    merged: bool = True
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    def of(self, choices: list[list[Any]]) -> Iterable[tuple[Any, ...]]:
        if math.prod(map(len, choices)) <= self.few:
            return itertools.product(*choices)
        self.complete = False
        return [tuple(self.dice.choice(options) for options in choices) for _ in range(self.some)]


def _apply(entries: dict[str, File | Folder], changes: list[tuple[str, File | Folder | None]]) -> None:
    for name, child in changes:
        if child is None:
            entries.pop(name, None)
        else:
            entries[name] = child


class MemoryFiles(CheckpointFiles):
    """Files in such a file system, whose root is `/`. `on_change` is called before each change and sync."""

    def __init__(self, tree: dict[str, Any] | None = None) -> None:
        self.root = _settled(tree or {})
        self.descriptors: dict[int, Any] = {}
        self.on_change = lambda: None

    def _find(self, path: Path) -> File | Folder:
        node: File | Folder = self.root
        for part in path.parts[1:]:
            if not isinstance(node, Folder) or part not in node.entries:
                raise OSError(errno.ENOENT, "No such file or directory", str(path))
            node = node.entries[part]
        return node

    def _folder(self, path: Path) -> Folder:
        node = self._find(path)
        assert isinstance(node, Folder)
        return node

    def _new_descriptor(self, node: File | Folder) -> int:
        number = 1000 + len(self.descriptors)
        self.descriptors[number] = node
        return number

    def make_folders(self, path: Path) -> None:
        assert isinstance(self._find(path), Folder)

    def make_folder(self, path: Path) -> None:
        self.on_change()
        assert path.name not in self._folder(path.parent).entries
        self._folder(path.parent).change((path.name, Folder()))

    def create(self, path: Path) -> int:
        self.on_change()
        assert path.name not in self._folder(path.parent).entries
        file = File()
        self._folder(path.parent).change((path.name, file))
        return self._new_descriptor(file)

    def write(self, descriptor: int, data: memoryview) -> int:
        self.on_change()
        self.descriptors[descriptor].content += data
        return len(data)

    def write_back(self, descriptor: int, begin: int, size: int) -> None:
        pass  # what is written may be certain at any time before it is synced

    def sync(self, descriptor: int) -> None:
        self.on_change()
        node = self.descriptors[descriptor]
        if isinstance(node, File):
            node.synced = bytes(node.content)
        else:
            node.synced, node.pending = dict(node.entries), []

    def close(self, descriptor: int) -> None:
        pass

    def open(self, path: Path) -> int:
        return self._new_descriptor(self._find(path))

    def open_folder(self, path: Path) -> int:
        return self._new_descriptor(self._find(path))

    def read(self, descriptor: int, buffer: memoryview, at: int) -> int:
        data = self.descriptors[descriptor].content[at : at + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def status(self, target: Path | int) -> os.stat_result:
        node = self.descriptors[target] if isinstance(target, int) else self._find(target)
        mode, size = (stat.S_IFREG, len(node.content)) if isinstance(node, File) else (stat.S_IFDIR, 0)
        return os.stat_result((mode, id(node), 0, 1, 0, 0, size, 0, 0, 0))

    def names(self, folder: Path) -> list[str]:
        return list(self._folder(folder).entries)

    def rename(self, source: Path, target: Path) -> None:
        self.on_change()
        assert source.parent == target.parent
        folder = self._folder(source.parent)
        assert target.name not in folder.entries
        folder.change((source.name, None), (target.name, folder.entries[source.name]))

    def remove(self, path: Path) -> None:
        self.on_change()
        self._folder(path.parent).change((path.name, None))

    def remove_folder(self, path: Path) -> None:
        self.on_change()
        assert not self._folder(path).entries
        self._folder(path.parent).change((path.name, None))

    def open_lock(self, path: Path) -> int:
        # what it holds is of no importance after a loss of power
        folder = self._folder(path.parent)
        folder.synced[path.name] = folder.entries[path.name] = Lock()
        return self.open(path)

    def truncate(self, descriptor: int) -> None:
        del self.descriptors[descriptor].content[:]

    def lock(self, descriptor: int) -> None:
        pass


def _settled(tree: dict[str, Any]) -> Folder:
    """Return a tree as it is after the power came back: all of it certain."""
    entries: dict[str, File | Folder] = {
        name: _settled(child) if isinstance(child, dict) else File(bytearray(child), bytes(child))
        for name, child in tree.items()
    }
    return Folder(dict(entries), dict(entries))
