# SPDX-License-Identifier: Apache-2.0
"""Streams that each rank reads for itself: where each rank stands is kept of all of them, and goes back to the same rank."""

from collections.abc import Mapping
from typing import Any

from truestep.core.errors import CheckpointError
from truestep.run.directory import START_ANEW
from truestep.run.state import RunState


def own_stream_states(run: RunState) -> dict[str, Any]:
    """Return where this rank stands in each stream of its own."""
    streams = run.cursor.streams.items()
    return {name: each.source.state_dict() for name, each in streams if each.source.is_per_rank}


def cursor_of_rank(run: RunState, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cursor of a checkpoint with this rank's own places in place of rank 0's.

    Raises a CheckpointError where there were more ranks, or fewer, or a stream was not divided as it is now.
    """
    cursor: dict[str, Any] = dict(state["cursor"])
    _refuse_other_shares(run, cursor["streams"])
    ranks = state.get("ranks", [])
    own = ranks[run.rank].get("streams", {}) if len(ranks) == run.world_size else {}
    cursor["streams"] = {
        name: {**saved, "source": own[name]} if name in own else saved
        for name, saved in cursor["streams"].items()
    }
    return cursor


def _refuse_other_shares(run: RunState, saved: Mapping[str, Any]) -> None:
    for name, stream in saved.items():
        before, label = _shares(stream["fingerprint"]), stream.get("label", name)
        if before and before != run.world_size:
            raise CheckpointError(
                f"The checkpoint holds the places of {before} ranks in {label!r} (run.data(..., per_rank=True)), and here are "
                f"{run.world_size}: how its files would be shared out now nobody knows, so samples would come twice and others "
                f"never. Go on with {before} processes. {START_ANEW}"
            )
        here = run.cursor.streams.get(name)
        if here is not None and bool(before) != bool(_shares(here.source.fingerprint())):
            was, now = ("", "not ") if before else ("not ", "")
            raise CheckpointError(
                f"{label!r} was {was}read with per_rank=True when the run was saved, and is {now}now: the places in it don't fit. "
                f"Write run.data as before. {START_ANEW}"
            )


def _shares(fingerprint: Mapping[str, Any]) -> int:
    number: int = fingerprint.get("ranks", 0) if fingerprint.get("kind") == "stream" else 0
    return number
