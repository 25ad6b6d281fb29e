# SPDX-License-Identifier: Apache-2.0
"""Loss of power at any moment, in a file system that promises little: every state it can leave is tried.

And the trial itself is tried: a store with any one sync, the rename or the order of pruning left out must
fail it.
"""

import hashlib
import json
from collections import Counter
from pathlib import Path

import blake3
import pytest
import torch
from torture.crash_states import MemoryFiles, Sample

from truestep.checkpoints import CheckpointStore, Retention
from truestep.checkpoints import store as store_module
from truestep.checkpoints.checkpoint_names import TEMPORARY, committed_checkpoints
from truestep.core.errors import CheckpointError

ROOT = Path("/run")


def state(step: int) -> dict:
    return {
        "learners": {"net": {"modules": {"w": torch.full((3,), float(step))}}},
        "random": torch.full((2,), step),
    }


def is_of_step(found: dict, step: int) -> bool:
    return (
        found["random"].tolist() == [step, step]
        and found["learners"]["net"]["modules"]["w"].tolist() == [step] * 3
    )


def run(files: MemoryFiles, acknowledge) -> None:
    """Save three times, the last two with pruning, and once go on in between."""
    for steps in ((1, 2), (3,)):
        with CheckpointStore(ROOT, background=False, files=files, retention=Retention(last=1)) as store:
            store.resume()
            for step in steps:
                store.save(step, state(step))
                acknowledge(step)


def judge(tree: dict, acknowledged: int) -> str | None:
    """Return what is wrong with a state that was left, if anything."""
    files = MemoryFiles(tree)
    try:
        with CheckpointStore(ROOT, background=False, files=files) as store:
            newest = store.newest()
            if newest is None:
                return "nothing left" if acknowledged else None
            if not is_of_step(newest.load(), newest.step):
                return "silent corruption"
            if newest.step < acknowledged:
                return "acknowledged, then lost"
            if len(store.checkpoints()) != sum(hasattr(item, "step") for item in store.checkpoints()):
                return "a damaged one is shown"
            store.save(9, state(9))
            return None if is_of_step(store.newest().load(), 9) else "does not go on"
    except CheckpointError:
        return "nothing left" if acknowledged else "can't begin"


def trial(files: MemoryFiles, *, most: int | None = None) -> tuple[int, Counter]:
    """Return how many states there were, and what was wrong with how many."""
    done = 0
    seen: set[str] = set()
    wrong: Counter = Counter()
    sample = Sample(merged=most is not None)

    def acknowledge(step: int) -> None:
        nonlocal done
        done = step

    def look() -> None:
        for tree in files.root.variants(sample) if most is None or len(seen) < most else ():
            key = f"{done} {json.dumps(tree, default=bytes.hex, sort_keys=True)}"
            if key not in seen:
                seen.add(key)
                if problem := judge(tree, done):
                    wrong[problem] += 1

    files.on_change = look
    run(files, acknowledge)
    look()
    assert sample.complete or most, "too many states to try them all"
    return len(seen), wrong


@pytest.mark.filterwarnings("ignore:The checkpoint .* was passed over")
def test_every_state_that_a_loss_of_power_can_leave_is_sound():
    states, wrong = trial(MemoryFiles({"run": {}}))
    assert wrong == {}
    assert states > 100


class SkippingSync(MemoryFiles):
    """One of the syncs is left out."""

    def __init__(self, left_out):
        super().__init__({"run": {}})
        self.paths, self.left_out = {}, left_out

    def _opened(self, descriptor, path):
        self.paths[descriptor] = path
        return descriptor

    def create(self, path):
        return self._opened(super().create(path), path)

    def open_folder(self, path):
        return self._opened(super().open_folder(path), path)

    def sync(self, descriptor):
        if not self.left_out(self.paths[descriptor], self):
            super().sync(descriptor)


def is_deleting(path: Path, files: MemoryFiles) -> bool:
    return path == ROOT and any(name.startswith(".del-") for name in files.names(ROOT))


MUTANTS = {
    "no sync of a file": lambda path, _: path.suffix == ".safetensors",
    "no sync of the manifest": lambda path, _: path.name == "manifest.json",
    "no sync of the new folder": lambda path, _: path.name.startswith(TEMPORARY),
    "no sync of its parent": lambda path, files: path == ROOT and not is_deleting(path, files),
    "no sync before deleting": is_deleting,
    "no sync at all": lambda *_: True,
}


@pytest.mark.filterwarnings("ignore:The checkpoint .* was passed over")
@pytest.mark.parametrize("left_out", MUTANTS.values(), ids=MUTANTS)
def test_a_store_without_one_of_its_syncs_is_caught(left_out):
    _, wrong = trial(SkippingSync(left_out), most=3000)
    assert wrong, "this sync seems to be needless"


class InPlace(MemoryFiles):
    """The folder has its final name from the beginning: nothing is renamed."""

    @staticmethod
    def final(path: Path) -> Path:
        parts = [
            part.removeprefix(TEMPORARY).rpartition("-")[0] if part.startswith(TEMPORARY) else part
            for part in path.parts
        ]
        return Path(*parts)

    def make_folder(self, path):
        super().make_folder(self.final(path))

    def create(self, path):
        return super().create(self.final(path))

    def open_folder(self, path):
        return super().open_folder(self.final(path))

    def rename(self, source, target):
        if not source.name.startswith(TEMPORARY):
            super().rename(source, target)


@pytest.mark.filterwarnings("ignore:The checkpoint .* was passed over")
def test_a_store_without_the_rename_is_caught():
    _, wrong = trial(InPlace({"run": {}}))
    assert wrong


@pytest.mark.filterwarnings("ignore:The checkpoint .* was passed over")
def test_a_store_that_deletes_the_old_before_it_has_the_new_is_caught(monkeypatch):
    def deleting_first(files, directory, pending):
        from truestep.checkpoints.file_operations import remove_tree

        for name in committed_checkpoints(files, directory):
            remove_tree(files, directory / name)
        return commit(files, directory, pending)

    commit = store_module.commit_checkpoint
    monkeypatch.setattr(store_module, "commit_checkpoint", deleting_first)
    _, wrong = trial(MemoryFiles({"run": {}}))
    assert wrong["nothing left"]


@pytest.mark.filterwarnings("ignore:The checkpoint .* was passed over")
def test_a_store_that_neither_syncs_nor_checks_hashes_is_caught(monkeypatch):
    class Blind:
        """A hash that finds everything right."""

        def __init__(self, data=b""):
            pass

        def update(self, data):
            pass

        def digest(self):
            return bytes(32)

        def hexdigest(self):
            return "0" * 64

    monkeypatch.setattr(hashlib, "sha256", Blind)
    monkeypatch.setattr(blake3, "blake3", Blind)
    _, wrong = trial(SkippingSync(lambda *_: True), most=3000)
    assert wrong["silent corruption"]
