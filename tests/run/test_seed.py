# SPDX-License-Identifier: Apache-2.0
"""A run's seed decides the weights of modules that are made after it, and whatever else draws from global streams."""

import random

import numpy as np
import pytest
import torch

import truestep as ts


def draws():
    return random.random(), float(np.random.random()), torch.nn.Linear(3, 3).weight.tolist()


def test_the_same_seed_gives_the_same_first_weights(tmp_path):
    seen = []
    for name, seed in (("one", 5), ("two", 5), ("three", 6)):
        ts.Run(tmp_path / name, seed=seed, progress=False)
        seen.append(draws())
    assert seen[0] == seen[1]
    assert all(mine != other for mine, other in zip(seen[0], seen[2], strict=True))


def test_the_streams_are_those_of_a_script_seeded_by_hand(tmp_path):
    ts.Run(tmp_path / "run", seed=7, progress=False)
    seen = draws()
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    assert draws() == seen


def test_seeds_larger_than_numpy_takes_are_taken():
    ts.seed_everything(2**40 + 1)
    first = draws()
    ts.seed_everything(2**40 + 1)
    assert draws() == first


def test_a_finished_run_says_that_nothing_is_left(tmp_path, capsys):
    for _ in range(2):
        run = ts.Run(tmp_path / "run", seed=0)
        net = run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        train = run.data(torch.ones(4, 2), batch_size=2)
        for _ in run.epochs(1):
            for batch in run.batches(train):
                net.update(lambda rows, net=net: net(rows).squeeze(1), batch)
    assert "the only epoch is done already; nothing is left to train" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["epochs", "steps"])
def test_a_loop_of_none_says_that_it_trains_nothing(what, tmp_path, capsys):
    run = ts.Run(tmp_path / "run", seed=0)
    run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    assert list(getattr(run, what)(0)) == []
    assert f"run.{what}(0) trains nothing" in capsys.readouterr().err
