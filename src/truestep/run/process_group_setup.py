# SPDX-License-Identifier: Apache-2.0
"""Bringing the processes of a run together: the store, the group, and the two that a run makes of it."""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from truestep.core.device_specific import collective_backend, supports_collectives
from truestep.core.errors import OptionError
from truestep.engine.processes.hang_watchdog import end_if_stuck
from truestep.engine.processes.world import RankInWorld, World, WorldLinks
from truestep.engine.shared_context import LearnerContext
from truestep.engine.strategies import STRATEGIES, Ddp, Fsdp
from truestep.run.agreement import RankAgreement
from truestep.run.rank_environment import LaunchedRank, launched_rank
from truestep.run.rendezvous import (
    START_SECONDS,
    STORE_ERRORS,
    WORD,
    open_rank_store,
    rendezvous_failed_error,
)

# Waiting is watched (engine/processes/world.py), so the groups' own limit only ends what nobody waits for.
LIMIT = timedelta(days=2)


def join_run_ranks(context: LearnerContext, *, strategy: str, timeout_seconds: float) -> RankAgreement:
    """Bring a run's context together with those of the other processes; return how they decide from now on."""
    if strategy == "single":
        context.choose("strategy", "single", "as given: this process trains alone, whatever else was started")
        return RankAgreement(None)
    before = World.here if World.here is not None and World.here.links.stand() else None
    world = World.here = before or _world_of_launch(context.device, timeout_seconds)
    if world is None:
        context.choose("strategy", "single", "this process was started alone")
        return RankAgreement(None)
    name, reason = ("ddp", "") if strategy == "auto" else (strategy, ", and it was asked for")
    context.world, context.rank, context.strategy = world, world.rank, STRATEGIES[name](world)
    own = "" if isinstance(context.strategy, Ddp | Fsdp) else f" ({type(context.strategy).__qualname__})"
    context.choose("strategy", name + own, f"{world.size} processes train together{reason}")
    return RankAgreement(world)


def _world_of_launch(device: torch.device, timeout_seconds: float) -> World | None:
    """Return the world of this process, made now; None where it was started alone."""
    if dist.is_available() and dist.is_initialized():
        return _world_of_users_group(device, timeout_seconds)
    found = launched_rank()
    return None if found is None else _launched_world(found, device, timeout_seconds)


def _world_of_users_group(device: torch.device, timeout_seconds: float) -> World | None:
    """Use the group that the user made; it stays theirs."""
    size = dist.get_world_size()
    if size == 1:
        return None
    rank = dist.get_rank()
    found = launched_rank()
    local_rank = found.place.local_rank if found is not None else rank
    default = dist.group.WORLD
    is_carried = _is_group_usable_on_device(dist.get_backend_config(), device)
    if not is_carried:
        _refuse_unsupported_device(device)
    with lazy_gloo_connections():
        control = dist.new_group(backend="gloo", timeout=LIMIT)
        data = default if is_carried else dist.new_group(backend="gloo", timeout=LIMIT)
    store = _unused_part_of_store(dist.distributed_c10d._get_default_store(), rank, size)
    ours = [control] if data is default else [control, data]
    links = WorldLinks(
        control, data, store, partial(_destroy_groups, ours), partial(_is_group_known_to_torch, control)
    )
    return _watch_for_stuck_ranks(
        World(RankInWorld(rank, size, local_rank), links, timeout_seconds=timeout_seconds)
    )


def _is_group_known_to_torch(group: Any) -> bool:
    """Whether torch still has a group: `destroy_process_group()`, which may be the user's, takes all down."""
    return group in dist.distributed_c10d._world.pg_map


def _destroy_groups(groups: list[Any]) -> None:
    for group in filter(_is_group_known_to_torch, groups):
        dist.destroy_process_group(group)


def _destroy_all_groups(control: Any) -> None:
    # where ours are gone, what is there now is somebody else's
    if _is_group_known_to_torch(control):
        dist.destroy_process_group()


@contextmanager
def lazy_gloo_connections() -> Iterator[None]:
    """Have gloo connect two ranks of a group when they first send each other something: most never do."""
    name = "TORCH_GLOO_LAZY_INIT"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


def _is_group_usable_on_device(backends: str, device: torch.device) -> bool:
    """Whether a group takes what a run on `device` sends; one of gloo is left to its owner, whose limit of time it has."""
    by_device = dist.BackendConfig(dist.Backend(backends)).get_device_backend_map()
    return by_device.get(device.type) not in (None, "gloo")


def _refuse_unsupported_device(device: torch.device) -> None:
    if not supports_collectives(device):
        raise OptionError(
            f"Several processes can't train together on {device}: gloo and NCCL, by which torch's processes exchange gradients, "
            f"carry no tensors of {device.type}. Start one process for {device}, or train on the CPUs: ts.Run(device='cpu')."
        )


def _launched_world(found: LaunchedRank, device: torch.device, timeout_seconds: float) -> World:
    _refuse_unsupported_device(device)
    rank, size, _ = found.place
    opened, seconds = open_rank_store(found, timeout_seconds)
    try:
        store = _unused_part_of_store(opened, rank, size, seconds)
    except STORE_ERRORS as error:  # the program that holds the port has ended, say
        raise rendezvous_failed_error(found, error) from error
    backend = collective_backend(device)
    on_card = backend != "gloo"
    with lazy_gloo_connections():
        dist.init_process_group(
            backend,
            store=PrefixStore("groups", store),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout_seconds) if on_card else LIMIT,
            # (torch would else guess a rank's GPU from its number when the first collective comes)
            device_id=device if on_card else None,
        )
        control = dist.new_group(backend="gloo", timeout=LIMIT)
    data = dist.group.WORLD
    close, stand = partial(_destroy_all_groups, control), partial(_is_group_known_to_torch, control)
    links = WorldLinks(control, data, PrefixStore("notes", store), close, stand)
    return _watch_for_stuck_ranks(World(found.place, links, timeout_seconds=timeout_seconds))


def _watch_for_stuck_ranks(world: World) -> World:
    end_if_stuck(world)
    return world


def _unused_part_of_store(store: Any, rank: int, size: int, seconds: float | None = None) -> Any:
    """Return a part of the store that nobody has written to: an agent keeps its store when it starts its workers again.

    Every rank writes a word of its own, and rank 0 offers a name with the words that it has read; who finds its word in an offer
    says yes. A word of an earlier attempt is nobody's word now, so the name that all say yes to was made by those who are here.
    `seconds`: rank 0 of this launch has just made it, so that its word comes within them, and nobody agrees without this rank.
    """
    word = uuid.uuid4().hex
    store.set(f"{WORD}{rank}", word)
    if rank == 0:
        return PrefixStore(f"truestep/{_agree_on_store_name(store, size)}", store)
    if seconds is not None and not _has_key_within(store, f"{WORD}0", seconds):
        raise TimeoutError("what answers there is no store of this run")
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        offer = json.loads(store.get("truestep/offer"))
        name = offer["name"]
        if offer["words"][rank] == word:
            store.set(f"truestep/yes/{name}/{rank}", "1")
            if _has_key_within(store, f"truestep/agreed/{name}", 0.5):
                return PrefixStore(f"truestep/{name}", store)
        elif seconds is not None and store.check([f"truestep/agreed/{name}"]):
            raise TimeoutError("what answers there is the store of another run")
        time.sleep(0.01)
    raise OptionError(
        f"Rank 0 did not come to the start within {START_SECONDS:g} seconds; this is rank {rank} of {size}."
    )


def _agree_on_store_name(store: Any, size: int) -> str:
    """Offer names until all ranks agree on one; return it."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        words = [store.get(f"{WORD}{rank}").decode() for rank in range(size)]
        name = uuid.uuid4().hex
        store.set("truestep/offer", json.dumps({"name": name, "words": words}))
        if all(_has_rank_agreed(store, name, rank, words[rank]) for rank in range(1, size)):
            store.set(f"truestep/agreed/{name}", "1")
            return name
    raise OptionError(f"Not all {size} ranks came to the start in {START_SECONDS:g} s; this is rank 0.")


def _has_rank_agreed(store: Any, name: str, rank: int, word: str) -> bool:
    """Whether a rank says yes within a second. No, as soon as it has another word: this one was of an earlier run."""

    def is_outdated() -> bool:
        return bool(store.get(f"{WORD}{rank}").decode() != word)

    return _has_key_within(store, f"truestep/yes/{name}/{rank}", 1.0, is_outdated)


def _has_key_within(
    store: Any, key: str, seconds: float, is_in_vain: Callable[[], bool] = lambda: False
) -> bool:
    """Whether a key is there within so many seconds, unless it turns out that it is waited for in vain."""
    until = time.monotonic() + seconds
    while not store.check([key]):
        if time.monotonic() > until or is_in_vain():
            return False
        time.sleep(0.002)
    return True
