# SPDX-License-Identifier: Apache-2.0
"""The control groups of this process, of both versions, and the memory that it could still take. Imports no torch."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from truestep.core.atomic_files import is_visible_folder

# v1 writes "no limit" as the largest multiple of a page below 2^63
_NO_LIMIT = 2**62
Groups = Mapping[str, list[Path]]


def control_groups(root: Path = Path("/")) -> dict[str, list[Path]]:
    """Return, per controller ("" for version 2), the folders from this process's group up to the mount."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
        mounts = list(_cgroup_mounts(root))
    except OSError:
        return {}
    groups: dict[str, list[Path]] = {}
    for line in lines:
        _, controllers, own = line.split(":", 2)
        for controller in controllers.split(","):
            for names, mounted_root, point in mounts:
                if controller in names:
                    groups[controller] = _folders_up_to_mount(point, own, mounted_root)
    return groups


def _cgroup_mounts(root: Path) -> Iterator[tuple[set[str], str, Path]]:
    """Yield each cgroup mount: its controllers ({""} for version 2), its root and where it is mounted."""
    for line in (root / "proc/self/mountinfo").read_text("utf-8").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            names = {""} if kind == "cgroup2" else set(options.split(","))
            yield names, fields[3], root / fields[4].lstrip("/")


def _folders_up_to_mount(point: Path, own: str, mounted_root: str) -> list[Path]:
    # inside a container `own` may be the host's path, which does not exist below the mount
    inside = own.removeprefix(mounted_root.rstrip("/")) if own.startswith(mounted_root) else "/"
    folder = point / inside.lstrip("/")
    if ".." in inside or not is_visible_folder(folder):
        # a group that can't be found from here: what the mount itself says is the nearest
        return [point]
    return [folder, *(parent for parent in folder.parents if parent == point or point in parent.parents)]


def read_cgroup_file(folder: Path, name: str) -> str | None:
    """Return what a file of a group says; None where it can't be read."""
    with suppress(OSError, UnicodeDecodeError):
        return (folder / name).read_text("utf-8").strip()
    return None


def read_cgroup_numbers(groups: Groups, controller: str, v2: str, v1: str) -> Iterator[int]:
    """Yield the number that each group has in a file, whose name depends on the version, from this process's own upwards."""
    for key, name in (("", v2), (controller, v1)):
        for folder in groups.get(key, ()):
            if (found := _read_cgroup_number(folder, name)) is not None:
                yield found


def _read_cgroup_number(folder: Path, name: str) -> int | None:
    text = read_cgroup_file(folder, name)
    return int(text) if text and text.isdigit() and int(text) < _NO_LIMIT else None


class FreeMemory(NamedTuple):
    """How much memory a process could still take, and whose limit that is."""

    num_bytes: int
    of: str


def free_memory(root: Path = Path("/")) -> FreeMemory:
    """Return what is least, the memory that the machine has to give or that of a control group.

    What files that were read or written hold of it counts as free: the system gives it to whoever asks.
    """
    own = FreeMemory(_available_bytes(root), "this machine")
    return min([own, *_cgroup_free_memory(control_groups(root))])


def _available_bytes(root: Path) -> int:
    for line in (read_cgroup_file(root / "proc", "meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    import psutil

    return int(psutil.virtual_memory().available)


def _cgroup_free_memory(groups: Groups) -> Iterator[FreeMemory]:
    for key, limits, usage, prefix in (
        ("", ("memory.max", "memory.high"), "memory.current", ""),
        ("memory", ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_"),
    ):
        for folder in groups.get(key, ()):
            limit = min(filter(None, (_read_cgroup_number(folder, name) for name in limits)), default=None)
            used = _read_cgroup_number(folder, usage)
            if limit is not None and used is not None:
                free = limit - used + _file_cache_bytes(folder, prefix)
                yield FreeMemory(max(0, min(free, limit)), "its control group (container, job)")


def _file_cache_bytes(folder: Path, prefix: str) -> int:
    fields = [line.split() for line in (read_cgroup_file(folder, "memory.stat") or "").splitlines()]
    wanted = (f"{prefix}inactive_file", f"{prefix}active_file")
    return sum(int(field[1]) for field in fields if len(field) == 2 and field[0] in wanted)


def num_usable_cpus() -> int:
    """Return how many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
