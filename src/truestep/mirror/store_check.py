# SPDX-License-Identifier: Apache-2.0
"""Whether a store is fit for a mirror, found out with objects of its own below the address: made, raced for, damaged, removed."""

import os
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from truestep.checkpoints.checksum import PIECE_BYTES
from truestep.checkpoints.digests import NEWEST_DIGEST, new_digest
from truestep.checkpoints.manifest import DamagedCheckpointError
from truestep.core.errors import RunDirectoryError
from truestep.core.result_display import RenderableType, Result, facts_table
from truestep.mirror.address import check_mirror_address
from truestep.mirror.checkpoint_record import StoredFilePiece
from truestep.mirror.pull import download_piece
from truestep.mirror.store_requests import MirrorObjectStore, StoreError, translate_store_errors

PROBES, RACES, RACERS = "probe/", 10, 8


class StoreOperationTrial(NamedTuple):
    """One thing that a store was asked to do, and what came of it; `problem` is empty where all is well."""

    name: str
    problem: str


@dataclass(frozen=True)
class MirrorCheck(Result):
    """What was tried of a store."""

    address: str
    trials: tuple[StoreOperationTrial, ...]

    @property
    def is_fit(self) -> bool:
        """Whether a run can be mirrored there."""
        return not any(each.problem for each in self.trials)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        trials = [each._asdict() for each in self.trials]
        return {"schema_version": 1, "address": self.address, "fit": self.is_fit, "trials": trials}

    def __rich__(self) -> RenderableType:
        facts = [(each.name, each.problem or "well") for each in self.trials]
        verdict = "fit for a mirror" if self.is_fit else "not fit: runs would not be safe there"
        return facts_table(f"{self.address}: {verdict}", facts)


def has_ignored_create_only(objects: MirrorObjectStore) -> bool:
    """Make an object twice, and say whether the second came through; it is removed again."""
    path = f"{PROBES}{uuid.uuid4().hex}"
    objects.create(path, b"first")
    try:
        objects.create(path, b"second", may_be_own=False)
    except FileExistsError:
        return False
    finally:
        objects.remove([path])
    return True


def refuse_unfit_store(objects: MirrorObjectStore) -> None:
    """Raise a RunDirectoryError for a store in which two runs would not notice each other."""
    if has_ignored_create_only(objects):
        raise RunDirectoryError(
            f"The store of {objects.address} ignores create-only requests (If-None-Match: *): it answered that an object was made "
            "that was there already. Two machines that go on with one run would not notice each other there. Choose another store; "
            "`truestep mirror check ADDRESS` says whether one is fit."
        )


def check_mirror(address: str) -> MirrorCheck:
    """Try a store at a place of its own below the address, and remove again what was made."""
    address = check_mirror_address(address)
    with translate_store_errors(address):
        objects = MirrorObjectStore(f"{address}/{PROBES}{uuid.uuid4().hex}")
    try:
        trials = tuple(
            StoreOperationTrial(name, _run_trial(trial, objects)) for name, trial in _TRIALS.items()
        )
    finally:
        with suppress(StoreError):
            objects.remove(objects.names(""))
        objects.close()
    return MirrorCheck(address, trials)


def _run_trial(trial: Callable[[MirrorObjectStore], str], objects: MirrorObjectStore) -> str:
    try:
        return trial(objects)
    except (StoreError, FileExistsError, FileNotFoundError) as error:
        return f"{type(error).__name__.removesuffix('Error')}: {error}"


def _try_write_and_read_back(objects: MirrorObjectStore) -> str:
    data = os.urandom(PIECE_BYTES)
    objects.put("piece", data)
    return "" if objects.get("piece") == data else "other bytes came back"


def _try_overwrite(objects: MirrorObjectStore) -> str:
    for content in (b"0", b"1", b"2", b"3", b"4"):
        objects.put("lease", content)
        if objects.get("lease") != content:
            return "what was replaced is still read"
    return ""


def _try_listing(objects: MirrorObjectStore) -> str:
    objects.put("listed/one", b"1")
    if list(objects.names("listed/")) != ["listed/one"]:
        return "a new object is not listed"
    objects.remove(["listed/one"])
    return "a removed object is still listed" if objects.names("listed/") else ""


def _try_create_only(objects: MirrorObjectStore) -> str:
    ignored = "create-only is ignored: the second create of one object succeeded"
    return ignored if has_ignored_create_only(objects) else ""


def _try_concurrent_create(objects: MirrorObjectStore) -> str:
    def wins_creation(number: int) -> bool:
        start.wait()
        try:
            objects.create(path, b"%d" % number)
        except (FileExistsError, StoreError):
            return False
        return True

    for race in range(RACES):
        path, start = f"race-{race}", threading.Barrier(RACERS)
        with ThreadPoolExecutor(RACERS) as racers:
            winners = sum(racers.map(wins_creation, range(RACERS)))
        if winners != 1:
            return f"of {RACERS} that created one object at once {winners} succeeded"
    return ""


def _try_detecting_damage(objects: MirrorObjectStore) -> str:
    piece = StoredFilePiece(
        1, NEWEST_DIGEST.name, new_digest(NEWEST_DIGEST.name, b"what was sent").hexdigest()
    )
    objects.put(piece.path, b"something else")
    try:
        download_piece(objects, piece)
    except DamagedCheckpointError:
        return ""
    return "content that is not what was sent was taken"


_TRIALS: dict[str, Callable[[MirrorObjectStore], str]] = {
    "8 MiB are sent and come back": _try_write_and_read_back,
    "what is replaced is read at once": _try_overwrite,
    "what is made or removed is listed so at once": _try_listing,
    "what is there can't be created": _try_create_only,
    f"of {RACERS} that create one object one succeeds, {RACES} times": _try_concurrent_create,
    "damage is noticed": _try_detecting_damage,
}
