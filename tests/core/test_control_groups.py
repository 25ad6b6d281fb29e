# SPDX-License-Identifier: Apache-2.0
"""How much memory a process could still take, read from the kernel's files as they look in containers and jobs."""

from pathlib import Path

import pytest

from truestep.core.control_groups import free_memory

GIB = 2**30
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
V2 = ("memory.max", "memory.current", "")
MOUNTS = {
    V1: "31 24 0:27 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n",
    V2: "33 24 0:28 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n",
}
OWN = {V1: "4:memory:/job/step\n", V2: "0::/job/step\n"}


@pytest.fixture(params=[V1, V2], ids=["version 1", "version 2"])
def group(request, tmp_path):
    """Write a machine with 64 GiB to give, and what its groups say."""
    limit, usage, prefix = request.param

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    def group(folder: str, most: float | None, used: float, files: float = 0) -> Path:
        write("proc/self/cgroup", OWN[request.param])
        write("proc/self/mountinfo", MOUNTS[request.param])
        write("proc/meminfo", f"MemTotal: 99 kB\nMemAvailable:   {64 << 20} kB\n")
        nothing = "max" if limit == "memory.max" else "9223372036854771712"
        write(f"sys/fs/cgroup/{folder}{limit}", nothing if most is None else str(int(most * GIB)))
        write(f"sys/fs/cgroup/{folder}{usage}", str(int(used * GIB)))
        halves = int(files * GIB / 2)
        stat = f"anon 5\n{prefix}inactive_file {halves}\n{prefix}active_file {halves}\n"
        write(f"sys/fs/cgroup/{folder}memory.stat", stat)
        return tmp_path

    return group


@pytest.mark.parametrize(
    ("groups", "free"),
    [
        ({"job/step/": (None, 3)}, 64),
        ({"job/step/": (8, 3)}, 5),
        ({"job/step/": (80, 3)}, 64),
        ({"job/step/": (8, 7, 4)}, 5),  # what files hold is given to whoever asks
        ({"job/step/": (8, 9)}, 0),
        ({"job/step/": (None, 3), "job/": (10, 9.5)}, 0.5),
        ({"job/step/": (4, 3), "job/": (10, 9.5)}, 0.5),
        ({"job/step/": (4, 3.75), "job/": (10, 4)}, 0.25),
    ],
)
def test_it_is_the_least_of_the_machine_and_of_all_groups_upwards(group, groups, free):
    roots = [group(folder, *told) for folder, told in groups.items()]
    found = free_memory(roots[0])
    assert found.num_bytes == int(free * GIB)
    assert ("group" in found.of) == (free != 64)


def test_without_groups_the_machine_says():
    assert free_memory(Path("/nowhere")).num_bytes > 0
