# SPDX-License-Identifier: Apache-2.0
"""Opening the store in which the processes of a launch meet; a port that belongs to another program is told of, on every rank."""

import os
import socket
import time
from datetime import timedelta
from functools import partial
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from truestep.core.errors import OptionError
from truestep.engine.processes.store_requests import ask_rank_store
from truestep.run.rank_environment import LaunchedRank

START_SECONDS = 600.0
"""How long ranks wait for one that was started late."""
ANSWER_SECONDS = 30.0
"""How long the store may take to answer, where it can be reached: a thread of its own does that."""
WORD = "truestep/word/"
STORE_ERRORS = (dist.DistNetworkError, dist.DistStoreError, TimeoutError)

_stores: dict[tuple[str, int], Any] = {}


def open_rank_store(found: LaunchedRank, timeout_seconds: float) -> tuple[Any, float | None]:
    """Return the store that all processes reach, and within how many seconds rank 0 of this launch has written to it.

    Rank 0 holds it; then it stays open for a later run. Or torchrun's agent does, and of when rank 0 comes it says nothing: None.
    """
    key = found.address, found.port
    if key in _stores:
        return _stores[key], None
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    is_master = found.place.rank == 0 and not agents
    seconds = min(timeout_seconds / 2, ANSWER_SECONDS)
    try:
        if not is_master:
            _wait_for_listener(found, timeout_seconds)
        # torch waits without a limit for what takes a connection and never answers
        connect = partial(_connect_tcp_store, found, is_master=is_master, seconds=seconds)
        _stores[key] = ask_rank_store(connect, seconds + 1)
    except STORE_ERRORS as error:
        raise rendezvous_failed_error(found, error) from error
    return _stores[key], None if agents else seconds


def _wait_for_listener(found: LaunchedRank, timeout_seconds: float) -> None:
    """Wait until somebody listens there: rank 0 may be started late, on a machine that answers till then."""
    begin = time.monotonic()
    while True:
        try:
            with socket.create_connection((found.address, found.port), timeout=5.0):
                return
        except OSError as error:
            limit = timeout_seconds - 5.0 if isinstance(error, TimeoutError) else START_SECONDS
            if time.monotonic() - begin > limit:
                raise TimeoutError(str(error)) from error
        time.sleep(0.05)


def _connect_tcp_store(found: LaunchedRank, *, is_master: bool, seconds: float) -> Any:
    store = TCPStore(
        found.address,
        found.port,
        found.place.size,
        is_master=is_master,
        timeout=timedelta(seconds=seconds),
        # (who does not come is named later)
        wait_for_workers=False,
        # (a second run of this process gets the server that the first one has open)
        multi_tenant=True,
    )
    store.set_timeout(timedelta(seconds=START_SECONDS))
    return store


def rendezvous_failed_error(found: LaunchedRank, error: object) -> OptionError:
    """Return what is said where the meeting place is somebody else's, or out of reach."""
    where = f"{found.address}:{found.port} ({str(error).splitlines()[0]})"
    return OptionError(
        f"Rank {found.place.rank} of {found.place.size} could not meet the others at {where}. Is that port taken by another job or "
        "program (choose another MASTER_PORT for all ranks), has rank 0 ended (its own error says why), or is its machine not "
        "reached by this name (MASTER_ADDR)?"
    )
