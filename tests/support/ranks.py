# SPDX-License-Identifier: Apache-2.0
"""Starting a program in several real processes, each told by its environment which it is, as torchrun would."""

import os
import socket
import time
from pathlib import Path
from typing import NamedTuple

import truestep

from . import warm


class Finished(NamedTuple):
    """How one process ended, after how many seconds since the first had ended, or all were started, and when (`time.time`)."""

    status: int
    out: str
    error: str
    seconds: float
    at: float


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def environment(**more: object) -> dict[str, str]:
    """Return this process's environment for a child that imports the same package."""
    source = str(Path(truestep.__file__).parents[1])
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | {
        name: str(value) for name, value in more.items()
    }


def start(program: Path, *arguments: object, size: int, loaded: str = "") -> list[warm.Process]:
    """Start `python program arguments` as each rank of `size`, with the modules that are to be `loaded` already."""
    port = free_port()
    return [
        warm.Process(
            program,
            *arguments,
            env=environment(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=rank, MASTER_PORT=port),
            loaded=loaded,
        )
        for rank in range(size)
    ]


def finish(
    processes: list[warm.Process], seconds: float = 240, *, hangs: int | None = None
) -> list[Finished]:
    """Wait for all but the rank that `hangs`; whoever is left then is killed, with status -9."""
    until, begun = time.monotonic() + seconds, time.monotonic()
    ended: dict[int, float] = {}
    shift = time.time() - time.monotonic()
    waited_for = set(range(len(processes))) - {hangs}
    while waited_for - ended.keys() and time.monotonic() < until:
        for rank, process in enumerate(processes):
            if rank not in ended and process.poll() is not None:
                ended[rank] = time.monotonic()
        time.sleep(0.02)
    for process in processes:
        process.kill()
    first = min(ended.values(), default=begun)
    found = []
    for rank, process in enumerate(processes):
        end = ended.get(rank, until)
        found.append(Finished(process.wait(), process.output, process.error, end - first, end + shift))
    return found


def on_ranks(
    program: Path, *arguments: object, size: int = 2, seconds: float = 240, loaded: str = ""
) -> list[Finished]:
    """Run a program as all ranks, and wait for them."""
    return finish(start(program, *arguments, size=size, loaded=loaded), seconds)
