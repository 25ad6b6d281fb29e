# SPDX-License-Identifier: Apache-2.0
"""The limits that a container or a job puts on this process: cgroups of both versions."""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from truestep.core.processors import usable_processors
from truestep.core.visible_paths import is_visible_folder, is_visible_path

# v1 writes "no limit" as the largest multiple of a page below 2^63
_NO_LIMIT = 2**62


@dataclass(frozen=True, kw_only=True)
class Container:
    """Which container this is, and what it allows; None is no limit."""

    kind: str | None  # "docker", "podman", "kubernetes", "apptainer", "lxc" or None
    cgroup_version: int | None = None
    cpu_limit: float | None = None  # in CPUs: 1.5 is one and a half
    memory_limit_bytes: int | None = None
    memory_used_bytes: int | None = None
    processes_limit: int | None = None


def read_container(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> Container:
    """Return the tightest limits on the way from this process's group to the root."""
    groups = _groups(root)
    # on hybrid systems the second version is mounted too, but governs nothing
    is_v2 = "" in groups and "cpu" not in groups and "memory" not in groups
    return Container(
        kind=_kind(root, environment),
        cgroup_version=(2 if is_v2 else 1) if groups else None,
        cpu_limit=min(_cpu_limits(groups), default=None),
        memory_limit_bytes=min(
            _numbers(groups, "memory", "memory.max", "memory.limit_in_bytes"), default=None
        ),
        memory_used_bytes=next(_numbers(groups, "memory", "memory.current", "memory.usage_in_bytes"), None),
        processes_limit=min(_numbers(groups, "pids", "pids.max", "pids.max"), default=None),
    )


def _groups(root: Path) -> dict[str, list[Path]]:
    """Return, per controller ("" for version 2), the folders from this process's group up to the mount."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
        mounts = list(_mounts(root))
    except OSError:
        return {}
    groups: dict[str, list[Path]] = {}
    for line in lines:
        _, controllers, own = line.split(":", 2)
        for controller in controllers.split(","):
            for names, mounted_root, point in mounts:
                if controller in names:
                    groups[controller] = _upwards(point, own, mounted_root)
    return groups


def _mounts(root: Path) -> Iterator[tuple[set[str], str, Path]]:
    """Yield each cgroup mount: its controllers ({""} for version 2), its root and where it is mounted."""
    for line in (root / "proc/self/mountinfo").read_text("utf-8").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            names = {""} if kind == "cgroup2" else set(options.split(","))
            yield names, fields[3], root / fields[4].lstrip("/")


def _upwards(point: Path, own: str, mounted_root: str) -> list[Path]:
    # inside a container `own` may be the host's path, which does not exist below the mount
    inside = own.removeprefix(mounted_root.rstrip("/")) if own.startswith(mounted_root) else "/"
    folder = point / inside.lstrip("/")
    if ".." in inside or not is_visible_folder(folder):
        # a group that can't be found from here: what the mount itself says is the nearest
        return [point]
    return [folder, *(parent for parent in folder.parents if parent == point or point in parent.parents)]


def _read(folder: Path, name: str) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return (folder / name).read_text("utf-8").strip()
    return None


def _cpu_limits(groups: Mapping[str, list[Path]]) -> Iterator[float]:
    for folder in groups.get("", ()):
        quota, _, period = (_read(folder, "cpu.max") or "").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) / int(period)
    for folder in groups.get("cpu", ()):
        v1_quota, v1_period = _read(folder, "cpu.cfs_quota_us"), _read(folder, "cpu.cfs_period_us")
        if v1_quota and v1_period and v1_quota.isdigit() and int(v1_quota) and int(v1_period):
            yield int(v1_quota) / int(v1_period)


def _numbers(groups: Mapping[str, list[Path]], controller: str, v2: str, v1: str) -> Iterator[int]:
    for key, name in (("", v2), (controller, v1)):
        for folder in groups.get(key, ()):
            text = _read(folder, name)
            if text and text.isdigit() and int(text) < _NO_LIMIT:
                yield int(text)


def _kind(root: Path, environment: Mapping[str, str]) -> str | None:
    signs = {
        "kubernetes": "KUBERNETES_SERVICE_HOST" in environment,
        "apptainer": "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment,
        "docker": is_visible_path(root / ".dockerenv"),
        "podman": is_visible_path(root / "run/.containerenv"),
    }
    return next((kind for kind, is_there in signs.items() if is_there), environment.get("container"))


def usable_cpus(container: Container) -> int:
    """Return how many CPUs this process can keep busy: its affinity, or the container's limit if less."""
    affinity = usable_processors()
    limit = math.ceil(container.cpu_limit) if container.cpu_limit else affinity
    return max(1, min(affinity, limit))
