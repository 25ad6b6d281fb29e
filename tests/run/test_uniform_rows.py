# SPDX-License-Identifier: Apache-2.0
"""Rows of one kind are kept as columns: drawn rows come back as they went in, as those that are kept value by value do."""

import collections
import math
import random

import numpy as np
import pytest
import torch

import truestep as ts
from truestep.core.errors import CheckpointError
from truestep.run import uniform_rows
from truestep.run.user_state import check_run_state_value, decode_run_state, encode_run_state

VALUES = {
    "bool": lambda rng: rng.random() < 0.5,
    "int": lambda rng: rng.randrange(-(2**63), 2**63),
    "large int": lambda rng: rng.randrange(2**70),
    "float": lambda rng: rng.choice([0.0, -0.0, math.nan, math.inf, 0.1, 5e-324, rng.gauss(0, 1)]),
    "None": lambda rng: None,
    "str": lambda rng: rng.choice(["", "left", "\u00e9"]),
    "int or None": lambda rng: rng.choice([None, 3]),
    "bool or int": lambda rng: rng.choice([True, 1]),
    "array": lambda rng: np.array([rng.random() for _ in range(4)], np.float32),
    "matrix": lambda rng: np.asfortranarray(np.array([[rng.random(), 1.0], [2.0, -0.0]])),
    "half": lambda rng: np.array([rng.random()], np.float16),
    "pixels": lambda rng: np.array([[rng.randrange(256)]], np.uint8),
    "big-endian": lambda rng: np.array([rng.randrange(9)], ">i4"),
    "dates": lambda rng: np.array([rng.randrange(9)], "datetime64[D]"),
    "no numbers": lambda rng: np.empty((0, 3)),
    "no axes": lambda rng: np.array(rng.random()),
    "ragged": lambda rng: np.zeros(rng.randrange(1, 4)),
    "of several dtypes": lambda rng: np.zeros(2, rng.choice([np.float32, np.int64])),
    "view": lambda rng: np.arange(6.0)[::2],
    "reversed": lambda rng: np.arange(6)[::-1],
    "scalar": lambda rng: np.float32(rng.random()),
    "scalar flag": lambda rng: np.bool_(rng.random() < 0.5),
    "text scalar": lambda rng: np.str_(rng.choice(["a", "bc"])),
    "tensor": lambda rng: torch.tensor([rng.random(), math.nan]),
    "bfloat16": lambda rng: torch.tensor([rng.random()]).bfloat16(),
    "tensor without axes": lambda rng: torch.tensor(rng.randrange(9)),
    "tensors of two shapes": lambda rng: torch.zeros(rng.choice([1, 2])),
    "part of a tensor": lambda rng: torch.arange(4.0)[1:],
    "list": lambda rng: [rng.random(), 1],
    "nested": lambda rng: (np.zeros(2), [torch.zeros(1)]),
    "dict": lambda rng: {"reward": rng.random(), 3: np.zeros(1)},
}
SHAPES = {
    "tuple": tuple,
    "list": list,
    "dict": lambda row: {("key", number): each for number, each in enumerate(row)},
    "one value": lambda row: row[0],
}


def drawn_rows(seed):
    rng = random.Random(seed)
    names = rng.choices(sorted(VALUES), k=rng.randrange(1, 5))
    if rng.random() < 0.7:
        names.append(rng.choice(["array", "tensor", "pixels"]))
    make = SHAPES[rng.choice(sorted(SHAPES))]
    count = rng.choice([31, 32, 33, 50])
    rows = [make([VALUES[each](rng) for each in names]) for _ in range(count)]
    if rng.random() < 0.2:
        rows[rng.randrange(count)] = make(
            [VALUES[each](rng) for each in rng.choices(sorted(VALUES), k=len(names))]
        )
    return rng.choice([list, tuple])(rows)


def spelt_out(value):
    """Return what is equal for the same types, bits and structure alone."""
    if isinstance(value, torch.Tensor):
        return (
            "tensor",
            value.dtype,
            tuple(value.shape),
            value.contiguous().view(-1).view(torch.uint8).tolist() if value.numel() else [],
        )
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return [(key, spelt_out(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [spelt_out(each) for each in value]
    return type(value), repr(value)


@pytest.mark.parametrize("seed", range(150))
def test_drawn_rows_come_back_as_they_went_in(seed, monkeypatch):
    rows = drawn_rows(seed)
    before = spelt_out(rows)
    check_run_state_value(rows, "rows")
    back = decode_run_state(encode_run_state(rows), copy=True)
    assert spelt_out(rows) == before
    monkeypatch.setattr(uniform_rows, "FEWEST_ROWS", 10_000)
    assert spelt_out(back) == spelt_out(decode_run_state(encode_run_state(rows), copy=True)) == before


def test_most_drawn_rows_are_kept_as_columns():
    kept = [uniform_rows.encode_rows(drawn_rows(seed), encode_run_state) for seed in range(150)]
    assert sum(each is not None for each in kept) > 50


@pytest.mark.parametrize("value", [np.array([object()]), object(), 1 + 2j, 1 << 20_000, {1, 2}], ids=range(5))
@pytest.mark.parametrize("place", [0, 17, 39])
def test_what_can_t_be_kept_is_refused_with_its_place(value, place):
    rows = [(np.zeros(2), 1) for _ in range(40)]
    rows[place] = (np.zeros(2), value)
    with pytest.raises(CheckpointError, match=rf"rows\[{place}\]\[1\]"):
        check_run_state_value(rows, "rows")


def test_each_array_and_each_tensor_has_memory_of_its_own():
    rows = [(np.zeros(2), torch.zeros(2)) for _ in range(40)]
    back = decode_run_state(encode_run_state(rows), copy=True)
    for array, tensor in back:
        array += 1
        tensor += 1
    assert all(array.tolist() == tensor.tolist() == [1, 1] for array, tensor in back)
    assert all(array.tolist() == tensor.tolist() == [0, 0] for array, tensor in rows)


def test_tensors_that_share_memory_are_kept_value_by_value():
    rows = [(part, 1) for part in torch.zeros(40, 2)]
    assert uniform_rows.encode_rows(rows, encode_run_state) is None


class Replay:
    def __init__(self, made):
        self.rows, self.made = collections.deque(maxlen=60), made

    def push(self, number):
        self.rows.append(self.made(number))

    def state_dict(self):
        return {"rows": list(self.rows)}

    def load_state_dict(self, state):
        self.rows = collections.deque(state["rows"], maxlen=60)


@pytest.mark.parametrize(
    "made",
    [
        lambda number: (
            np.full(4, number, np.float32),
            number % 2,
            0.5 * number,
            np.full(4, number + 1, np.float32),
            number == 3,
        ),
        lambda number: {"state": torch.full((3,), float(number)), "action": number, "done": False},
        lambda number: [np.zeros((2, 2), np.uint8), np.int64(number)],
    ],
)
def test_a_replay_buffer_goes_on_as_it_was(tmp_path, made):
    def steps(directory, count):
        run, replay = ts.Run(directory, seed=0, progress=False), Replay(made)
        net = run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, 0.1))
        run.track(replay=replay)
        with run:
            for step in run.steps(count):
                for number in range(20):
                    replay.push(20 * step + number)
                net.update(lambda x: net(x).square().mean(1), torch.ones(4, 2) * len(replay.rows))
        return spelt_out(list(replay.rows)), spelt_out([*net.module.parameters()])

    whole = steps(tmp_path / "whole", 5)
    steps(tmp_path / "parts", 2)
    assert steps(tmp_path / "parts", 5) == whole


def test_a_long_buffer_costs_few_files_entries(tmp_path):
    replay = Replay(lambda number: (np.zeros(4, np.float32), number))
    replay.rows = [replay.made(number) for number in range(2_000)]
    with ts.Run(tmp_path / "run", progress=False) as run:
        run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, 0.1))
        run.track(replay=replay)
        for _ in run.steps(1):
            pass
    (manifest,) = (tmp_path / "run").glob("checkpoints/*/manifest.json")
    assert manifest.stat().st_size < 50_000
