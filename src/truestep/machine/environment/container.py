# SPDX-License-Identifier: Apache-2.0
"""The limits that a container or a job puts on this process: cgroups of both versions."""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from truestep.core.atomic_files import is_visible_path
from truestep.core.control_groups import (
    control_groups,
    num_usable_cpus,
    read_cgroup_file,
    read_cgroup_numbers,
)


@dataclass(frozen=True, kw_only=True)
class ContainerLimits:
    """Which container this is, and what it allows; None is no limit."""

    kind: str | None  # "docker", "podman", "kubernetes", "apptainer", "lxc" or None
    cgroup_version: int | None = None
    cpu_limit: float | None = None  # in CPUs: 1.5 is one and a half
    memory_limit_bytes: int | None = None
    memory_used_bytes: int | None = None
    processes_limit: int | None = None


def read_container_limits(
    root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> ContainerLimits:
    """Return the tightest limits on the way from this process's group to the root."""
    groups = control_groups(root)
    # on hybrid systems the second version is mounted too, but governs nothing
    is_v2 = "" in groups and "cpu" not in groups and "memory" not in groups
    return ContainerLimits(
        kind=_container_kind(root, environment),
        cgroup_version=(2 if is_v2 else 1) if groups else None,
        cpu_limit=min(_cpu_limits(groups), default=None),
        memory_limit_bytes=min(
            read_cgroup_numbers(groups, "memory", "memory.max", "memory.limit_in_bytes"), default=None
        ),
        memory_used_bytes=next(
            read_cgroup_numbers(groups, "memory", "memory.current", "memory.usage_in_bytes"), None
        ),
        processes_limit=min(read_cgroup_numbers(groups, "pids", "pids.max", "pids.max"), default=None),
    )


def _cpu_limits(groups: Mapping[str, list[Path]]) -> Iterator[float]:
    for folder in groups.get("", ()):
        quota, _, period = (read_cgroup_file(folder, "cpu.max") or "").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) / int(period)
    for folder in groups.get("cpu", ()):
        v1_quota, v1_period = (
            read_cgroup_file(folder, "cpu.cfs_quota_us"),
            read_cgroup_file(folder, "cpu.cfs_period_us"),
        )
        if v1_quota and v1_period and v1_quota.isdigit() and int(v1_quota) and int(v1_period):
            yield int(v1_quota) / int(v1_period)


def _container_kind(root: Path, environment: Mapping[str, str]) -> str | None:
    signs = {
        "kubernetes": "KUBERNETES_SERVICE_HOST" in environment,
        "apptainer": "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment,
        "docker": is_visible_path(root / ".dockerenv"),
        "podman": is_visible_path(root / "run/.containerenv"),
    }
    return next((kind for kind, is_there in signs.items() if is_there), environment.get("container"))


def usable_cpus(container: ContainerLimits) -> int:
    """Return how many CPUs this process can keep busy: its affinity, or the container's limit if less."""
    affinity = num_usable_cpus()
    limit = math.ceil(container.cpu_limit) if container.cpu_limit else affinity
    return max(1, min(affinity, limit))
