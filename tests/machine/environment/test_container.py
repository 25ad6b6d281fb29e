# SPDX-License-Identifier: Apache-2.0
"""Limits of containers, read from the kernel's files as they look in each kind of container."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from truestep.machine.environment.container import ContainerLimits, read_container_limits, usable_cpus

GIB = 2**30
V2 = "33 24 0:28 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
V1 = (
    "30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


@pytest.fixture
def machine(tmp_path):
    """Write the files of a machine below a folder."""

    def write(cgroup, mountinfo, **files):
        for name, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mountinfo, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def files(folder, **values):
    return {
        f"sys/fs/cgroup/{folder}{name.replace('__', '.')}": f"{value}\n" for name, value in values.items()
    }


def test_a_limited_container_of_version_2(machine):
    root = machine(
        "0::/\n",
        V2,
        **files("", cpu__max="150000 100000", memory__max=4 * GIB, memory__current=GIB, pids__max=512),
    )
    expected = ContainerLimits(
        kind=None,
        cgroup_version=2,
        cpu_limit=1.5,
        memory_limit_bytes=4 * GIB,
        memory_used_bytes=GIB,
        processes_limit=512,
    )
    assert expected == read_container_limits(root, {})


def test_no_limit_is_none(machine):
    root = machine("0::/\n", V2, **files("", cpu__max="max 100000", memory__max="max", pids__max="max"))
    found = read_container_limits(root, {})
    assert (found.cpu_limit, found.memory_limit_bytes, found.processes_limit) == (None, None, None)


def test_the_tightest_limit_on_the_way_up_holds(machine):
    root = machine(
        "0::/slice/job\n",
        V2,
        **files("", memory__max=64 * GIB),
        **files("slice/", cpu__max="200000 100000", memory__max=8 * GIB),
        **files("slice/job/", cpu__max="max 100000", memory__max=16 * GIB),
    )
    found = read_container_limits(root, {})
    assert (found.cpu_limit, found.memory_limit_bytes) == (2.0, 8 * GIB)


def test_a_host_path_that_does_not_exist_inside_means_the_mount_itself(machine):
    root = machine("0::/docker/abcdef\n", V2, **files("", cpu__max="400000 100000"))
    assert read_container_limits(root, {}).cpu_limit == 4.0


def test_version_1_as_docker_mounts_it(machine):
    mounts = V1.replace(" / /sys", " /docker/abc /sys")
    root = machine(
        "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n",
        mounts,
        **files("cpu,cpuacct/", cpu__cfs_quota_us=250000, cpu__cfs_period_us=100000),
        **files("memory/", memory__limit_in_bytes=2 * GIB, memory__usage_in_bytes=GIB),
    )
    found = read_container_limits(root, {})
    assert (found.cgroup_version, found.cpu_limit, found.memory_limit_bytes) == (1, 2.5, 2 * GIB)


def test_version_1_without_limits(machine):
    root = machine(
        "4:cpu,cpuacct:/\n3:memory:/\n0::/\n",
        V1 + V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified "),
        **files("cpu,cpuacct/", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000),
        **files("memory/", memory__limit_in_bytes=9223372036854771712),
        **files("unified/", x=1),
    )
    found = read_container_limits(root, {})
    assert (found.cgroup_version, found.cpu_limit, found.memory_limit_bytes) == (1, None, None)


@pytest.mark.parametrize("broken", ["", "0::/\n", "0::/../..\n"])
def test_a_system_without_or_with_strange_groups_has_no_limits(machine, broken):
    found = read_container_limits(machine(broken, ""), {})
    assert (found.cpu_limit, found.memory_limit_bytes) == (None, None)


def test_no_proc_at_all(tmp_path):
    assert ContainerLimits(kind=None) == read_container_limits(tmp_path, {})


@pytest.mark.parametrize(
    ("environment", "file", "kind"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ".dockerenv", "kubernetes"),
        ({"APPTAINER_CONTAINER": "/x.sif"}, None, "apptainer"),
        ({}, ".dockerenv", "docker"),
        ({}, "run/.containerenv", "podman"),
        ({"container": "lxc"}, None, "lxc"),
        ({}, None, None),
    ],
)
def test_the_kind_of_container(tmp_path, environment, file, kind):
    if file:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("")
    assert kind == read_container_limits(tmp_path, environment).kind


@pytest.mark.parametrize(("limit", "least"), [(0.5, 1), (1.0, 1), (1.5, 2)])
def test_part_of_a_cpu_keeps_one_thread_busy(limit, least):
    assert usable_cpus(ContainerLimits(kind=None, cpu_limit=limit)) <= least


@pytest.fixture
def one_cpu():
    """A group of processes that may use one CPU, made in this machine's own cgroups."""
    for base, files in (
        (Path("/sys/fs/cgroup/cpu"), {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"}),
        (Path("/sys/fs/cgroup"), {"cpu.max": "100000 100000"}),
    ):
        group = base / f"truestep-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, text in files.items():
                (group / name).write_text(text)
            yield group
            return
        except OSError:
            continue
        finally:
            group.rmdir()
    pytest.skip("making a group with a CPU limit needs root and writable cgroups")


def test_a_real_limit_of_the_kernel(one_cpu):
    code = """
import sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text("0")
from truestep.machine.environment.container import read_container_limits, usable_cpus
container = read_container_limits()
print(container.cpu_limit, usable_cpus(container))
"""
    result = subprocess.run(
        [sys.executable, "-c", code, one_cpu], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.split() == ["1.0", "1"]
