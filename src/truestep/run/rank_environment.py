# SPDX-License-Identifier: Apache-2.0
"""Which of several processes this one is, as far as whoever launched it says so in the environment."""

import os
import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

from truestep.core.errors import OptionError
from truestep.engine.processes.world import RankInWorld

PORT = 29500  # torchrun's own
SLURM_PORTS = 12000, 20000  # where a job that names no port meets: the first, and how many there are

_WORDS = {
    # rank, number of processes, rank on the machine, processes on the machine
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "SLURM": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
    "OpenMPI": (
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ),
}


class LaunchedRank(NamedTuple):
    """This process among those that its launcher started, where they meet, and which launcher it was."""

    place: RankInWorld
    address: str
    port: int
    by: str


def launched_rank(environment: Mapping[str, str] = os.environ) -> LaunchedRank | None:
    """Return what the launcher says; None where this process is alone. `WORLD_SIZE` outranks a scheduler's own words."""
    for by, words in _WORDS.items():
        rank, size, local_rank, local_size = (_integer_variable(environment, word) for word in words)
        if size is None or (by == "SLURM" and "SLURM_STEP_ID" not in environment):
            continue  # in a job of SLURM, a process that srun did not start is alone
        if size == 1:
            return None
        if rank is None or not 0 <= rank < size:
            given = environment.get(words[0])
            raise OptionError(
                f"{words[1]}={size} says that there are {size} processes, and {words[0]}={given!r} does not say "
                f"which this is. Give each a number from 0 to {size - 1}: {words[0]}=0 {words[1]}={size} python train.py"
            )
        local = local_rank if local_rank is not None else _local_rank_argument()
        place = RankInWorld(rank, size, rank if local is None else local)
        return LaunchedRank(
            place, *_rendezvous_address(environment, by, is_one_machine=local_size in (None, size)), by
        )
    return None


def _integer_variable(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if re.fullmatch(r"\d+", text) else None


def _local_rank_argument() -> int | None:
    """Return the `--local_rank` that `python -m torch.distributed.launch` adds to the arguments."""
    for number, word in enumerate(sys.argv):
        name, _, value = word.partition("=")
        if name in ("--local_rank", "--local-rank"):
            value = value or (sys.argv[number + 1] if number + 1 < len(sys.argv) else "")
            return int(value) if value.isdigit() else None
    return None


def _rendezvous_address(environment: Mapping[str, str], by: str, *, is_one_machine: bool) -> tuple[str, int]:
    """Return where rank 0 waits for the others."""
    port = _integer_variable(environment, "MASTER_PORT")
    if port is None:
        first, count = SLURM_PORTS
        job = _integer_variable(environment, "SLURM_JOB_ID") or 0
        port = first + job % count if by == "SLURM" else PORT
    if address := environment.get("MASTER_ADDR"):
        return address, port
    if by == "SLURM":
        return first_launched_host(
            environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
        ), port
    if is_one_machine:
        return "127.0.0.1", port
    raise OptionError(
        f"{by} started processes on several machines, and nothing says where they meet. Set MASTER_ADDR to the name of the machine "
        "of rank 0 (and MASTER_PORT to a free port of it) for all of them."
    )


def first_launched_host(nodes: str) -> str:
    """Return the first machine of SLURM's list: gpu[03-05,9],login1 begins with gpu03."""
    match = re.match(r"([^\[,]+)(?:\[([^\]]*)\]([^,\[]*))?", nodes)
    if match is None:
        return "127.0.0.1"
    prefix, numbers, suffix = match[1], match[2], match[3]
    return prefix if numbers is None else prefix + re.split("[-,]", numbers)[0] + (suffix or "")
