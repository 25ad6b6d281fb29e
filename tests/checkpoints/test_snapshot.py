# SPDX-License-Identifier: Apache-2.0
"""What is saved is what was there at the call, whatever is done to it the moment the call returns."""

import copy
import random
import threading
from pathlib import Path

import pytest
import torch

from truestep.checkpoints import CheckpointStore, prepare
from truestep.checkpoints.file_operations import CheckpointFiles


class Gated(CheckpointFiles):
    """A disk that takes nothing until it is let."""

    def __init__(self):
        self.gate = threading.Event()

    def create(self, path):
        assert self.gate.wait(60)
        return super().create(path)


def random_state(dice: random.Random) -> dict:
    shape = [dice.randint(0, 6) for _ in range(dice.randint(0, 3))]
    dtype = dice.choice([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
    tied = torch.randn(5)
    return {
        "weights": {str(number): torch.randn(shape).to(dtype) for number in range(dice.randint(1, 5))},
        "transposed": torch.randn(3, 4).t(),
        "tied": [tied, tied, tied[1:3]],
        "values": {"list": [dice.random() for _ in range(3)], "name": "before", "deep": {"count": [0]}},
        "large": torch.randn(dice.choice([10, 100_000])),
    }


def change_everything(state: dict, dice: random.Random) -> None:
    """Do to a state whatever can be done to it in place."""
    for tensor in [*state["weights"].values(), state["transposed"], *state["tied"], state["large"]]:
        match dice.randrange(3):
            case 0:
                tensor.zero_()
            case 1:
                tensor.copy_(torch.randn(tensor.shape).to(tensor.dtype) + 1)
            case 2:
                tensor.zero_()
                tensor.set_(torch.ones(tensor.shape, dtype=tensor.dtype).untyped_storage(), 0, tensor.shape)
    state["values"]["list"].append(1)
    state["values"]["name"] = "after"
    state["values"]["deep"]["count"][0] = 9
    state["weights"].clear()
    state["more"] = torch.ones(3)


def same(left, right) -> bool:
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def torn(folder: Path, count: int) -> int:
    """Return how many of `count` saves were not what the state was at the call."""
    dice, wrong = random.Random(0), 0
    files = Gated()
    with CheckpointStore(folder, files=files) as store:
        for step in range(count):
            state = random_state(dice)
            before = copy.deepcopy(state)
            files.gate.clear()
            store.save(step, state)
            change_everything(state, dice)
            files.gate.set()
            wrong += not same(store.newest().load(), before)
    return wrong


def test_nothing_that_happens_after_the_call_is_saved(quick):
    assert torn(quick, 40) == 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_that_happens_after_the_call_is_saved_a_thousand_times(tmp_path):
    assert torn(tmp_path, 1000) == 0


def test_a_snapshot_that_shares_memory_with_the_state_is_caught(quick, monkeypatch):
    original = prepare.CheckpointPreparer.__init__
    monkeypatch.setattr(prepare.CheckpointPreparer, "__init__", lambda self, _: original(self, None))
    assert torn(quick, 10) > 5


def test_the_buffers_are_reused(tmp_path):
    state = {"weights": torch.randn(1000)}
    with CheckpointStore(tmp_path) as store:
        store.save(1, state)
        before = store._preparing._buffers._buffers["state-r0000.safetensors"].data_ptr()
        store.save(2, {"weights": torch.randn(900)})
        assert store._preparing._buffers._buffers["state-r0000.safetensors"].data_ptr() == before
