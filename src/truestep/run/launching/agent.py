# SPDX-License-Identifier: Apache-2.0
"""torchrun's agent, with what a training needs: a log a rank, threads shared out, restarts that meet in a store of their own."""

import logging
import os
import socket
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truestep.core.control_groups import num_usable_cpus
from truestep.core.environment_variables import set_environment_variables
from truestep.core.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """How many processes, on how many machines, and where they meet and write.

    Attributes:
        processes: on this machine, and on each.
        nodes: machines.
        node_rank: which of them this is, from 0.
        rendezvous: host and port where the machines meet, "host:port"; None where there is one machine.
        restarts: how often all are started again after one has failed; a run goes on from its newest checkpoint.
        grace_seconds: how long processes have to save after they were asked to stop, before they are killed.
        logs: the folder of the logs; None for a temporary one.
    """

    processes: int
    nodes: int = 1
    node_rank: int = 0
    rendezvous: str | None = None
    restarts: int = 0
    grace_seconds: int = 30
    logs: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="truestep-logs-")))

    def __post_init__(self) -> None:
        leasts = {"processes": 1, "nodes": 1, "node_rank": 0, "restarts": 0, "grace_seconds": 0}
        for name, least in leasts.items():
            if getattr(self, name) < least:
                raise OptionError(f"{name}={getattr(self, name)}: give at least {least}.")
        if self.nodes > 1 and self.rendezvous is None:
            raise OptionError(
                f"{self.nodes} machines need a place to meet: --rendezvous HOST:PORT, the name of the first machine and a free "
                "port of it, the same on all of them."
            )
        if self.node_rank >= self.nodes:
            raise OptionError(
                f"node_rank={self.node_rank}: {self.nodes} machines are counted from 0, so give at most {self.nodes - 1}."
            )


def run_launched_processes(
    launch: LaunchOptions, program: Callable[..., Any] | str, arguments: Sequence[Any]
) -> dict[int, Any]:
    """Run a program (or a function) in every process and wait; return what each gave, by rank.

    Raises:
        ChildFailedError: torch's, where a process failed as often as there are restarts.
        SignalException: torch's, where this process was asked to stop; the others have been, too.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    one_machine = launch.nodes == 1
    config = LaunchConfig(
        min_nodes=launch.nodes,
        max_nodes=launch.nodes,
        nproc_per_node=launch.processes,
        logs_specs=DefaultLogsSpecs(str(launch.logs), redirects=Std.ALL, tee={0: Std.ALL}),
        # (of its own: two launches on one machine must not meet; several machines have to)
        run_id=uuid.uuid4().hex if one_machine else "truestep",
        role="rank",
        rdzv_backend="c10d",
        # (port 0: any that is free)
        rdzv_endpoint="localhost:0" if one_machine else str(launch.rendezvous),
        # (torch would guess the host by its name, which is not always the one that it was given)
        rdzv_configs={} if one_machine else {"is_host": launch.node_rank == 0},
        local_addr=None if one_machine else local_address_for_rendezvous(str(launch.rendezvous)),
        max_restarts=launch.restarts,
        start_method=_process_start_method(program),
        shutdown_timeout=launch.grace_seconds,
    )
    with _launch_environment_variables(launch), _silence_agent_log():
        found: dict[int, Any] = elastic_launch(config, program)(*arguments)
        return found


def _process_start_method(program: Callable[..., Any] | str) -> str:
    """Return how functions are started: one of a notebook is in no file that another process could import."""
    main = sys.modules.get("__main__")
    in_notebook = (
        not isinstance(program, str) and program.__module__ == "__main__" and not hasattr(main, "__file__")
    )
    return "fork" if in_notebook else "spawn"


@contextmanager
def _launch_environment_variables(launch: LaunchOptions) -> Iterator[None]:
    """Set what the processes inherit."""
    threads = max(1, num_usable_cpus() // launch.processes)
    wanted = {
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        # or workers that are started again read addresses of those that are gone (half of the restarts with gloo fail)
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        # a rank that is killed takes nothing that it had printed with it
        "PYTHONUNBUFFERED": "1",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    }
    if launch.rendezvous is not None and (
        interface := _interface_of_address(local_address_for_rendezvous(launch.rendezvous))
    ):
        wanted["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", interface)
    before = set_environment_variables(wanted)
    try:
        yield
    finally:
        set_environment_variables(before)


def local_address_for_rendezvous(rendezvous: str) -> str:
    """Return the address by which this machine reaches the meeting place, and is reached by the others.

    Its own name may stand for 127.0.1.1 on it, and for nothing on the others. Nothing is sent for it.
    """
    host, _, port = rendezvous.rpartition(":")
    try:
        ((family, kind, _, _, address), *_) = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )
        with socket.socket(family, kind) as found:
            found.connect(address)
            return str(found.getsockname()[0])
    except (OSError, ValueError) as error:
        raise OptionError(
            f"--rendezvous {rendezvous}: {error}. Give HOST:PORT, the name or address of the first machine as all of them know it, "
            "and a free port of it."
        ) from error


def _interface_of_address(address: str) -> str | None:
    """Return the network interface that has this address: gloo would look its own name up."""
    import psutil

    interfaces = psutil.net_if_addrs().items()
    return next((name for name, each in interfaces if any(one.address == address for one in each)), None)


@contextmanager
def _silence_agent_log() -> Iterator[None]:
    """Keep the agent from logging its own account of a failure; ours comes first."""
    loggers = [logging.getLogger(name) for name in ("torch.distributed.elastic", "torch.multiprocessing")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
