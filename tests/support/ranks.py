# SPDX-License-Identifier: Apache-2.0
"""Starting a program in several real processes, each told by its environment which it is, as torchrun would."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import truestep


class Finished(NamedTuple):
    """How one process ended, and after how many seconds since the first had ended, or all were started."""

    status: int
    out: str
    error: str
    seconds: float


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


def start(program: Path, *arguments: object, size: int) -> list[subprocess.Popen[str]]:
    """Start `python program arguments` as each rank of `size`."""
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, str(program), *map(str, arguments)],
            env=environment(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=rank, MASTER_PORT=port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def finish(processes: list[subprocess.Popen[str]], seconds: float = 240) -> list[Finished]:
    """Wait for all; whoever is left then is killed, with status -9."""
    until, begun = time.monotonic() + seconds, time.monotonic()
    ended: dict[int, float] = {}
    while len(ended) < len(processes) and time.monotonic() < until:
        for rank, process in enumerate(processes):
            if rank not in ended and process.poll() is not None:
                ended[rank] = time.monotonic()
        time.sleep(0.02)
    for process in processes:
        if process.poll() is None:
            process.kill()
    first = min(ended.values(), default=begun)
    texts = [process.communicate() for process in processes]
    return [
        Finished(process.returncode, *text, ended.get(rank, until) - first)
        for rank, (process, text) in enumerate(zip(processes, texts, strict=True))
    ]


def on_ranks(program: Path, *arguments: object, size: int = 2, seconds: float = 240) -> list[Finished]:
    """Run a program as all ranks, and wait for them."""
    return finish(start(program, *arguments, size=size), seconds)
