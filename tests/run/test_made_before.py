# SPDX-License-Identifier: Apache-2.0
"""A model that was made before its run is told of: the seed comes too late for its first weights."""

import pytest
import torch
from torch import nn

import truestep as ts

WORDS = "was made before ts.Run(..., seed=5)"


def made(*, bias=True):
    return nn.Sequential(nn.Linear(3, 4, bias=bias), nn.LayerNorm(4), nn.Linear(4, 1))


def train(run, model, load=None):
    net = run.learner(model, lambda p: torch.optim.SGD(p, lr=0.1), name="net")
    if load is not None:
        net.load_state_dict(load)
    for batch in run.batches(run.data(torch.ones(4, 3), batch_size=2)):
        net.update(lambda x: net(x).squeeze(1), batch)
    run.close()


def start(folder):
    return ts.Run(folder / "run", seed=5, device="cpu", progress=False, doctor=False)


def in_a_function(folder):
    model = made()
    train(start(folder), model)


class Trainer:
    def __init__(self, folder):
        self.model = made()
        self.run = start(folder)


def in_a_class(folder):
    trainer = Trainer(folder)
    train(trainer.run, trainer.model)


def given_to_a_function(folder):
    def main(model):
        train(start(folder), model)

    main(made(bias=False))


def several_in_a_dict(folder):
    models = {"encoder": made(), "head": nn.Linear(1, 1)}
    run = start(folder)
    train(run, nn.Sequential(*models.values()))


def initialized_by_hand(folder):
    model = made()
    for layer in (model[0], model[2]):
        nn.init.xavier_uniform_(layer.weight)
    train(start(folder), model)


def a_part_of_it(folder):
    encoder = made()
    run = start(folder)
    train(run, nn.Sequential(encoder, nn.Linear(1, 1)))


FAULTS = [
    in_a_function,
    in_a_class,
    given_to_a_function,
    several_in_a_dict,
    initialized_by_hand,
    a_part_of_it,
]


@pytest.mark.parametrize("kind", FAULTS, ids=lambda f: f.__name__)
def test_the_seed_that_comes_too_late_is_named(tmp_path, capsys, kind):
    torch.seed()
    kind(tmp_path)
    assert capsys.readouterr().err.count(WORDS) == 1
    kind(tmp_path)  # what a run goes on with is the checkpoint's
    assert WORDS not in capsys.readouterr().err


def made_after(folder):
    run = start(folder)
    train(run, made())


def seeded_before(folder):
    torch.manual_seed(0)
    model = made()
    train(start(folder), model)


def loaded_before(folder):
    model = made()
    model.load_state_dict(made().state_dict())
    train(start(folder), model)


def loaded_after(folder):
    model = made()
    train(start(folder), model, load=made().state_dict())


def loaded_as_a_whole(folder):
    torch.save(made(), folder / "model.pt")
    torch.seed()
    model = torch.load(folder / "model.pt", weights_only=False)
    train(start(folder), model)


def constant_and_loaded(folder):
    model = nn.Sequential(made(), nn.Linear(1, 1, bias=False))
    model[0].load_state_dict(made().state_dict())
    nn.init.zeros_(model[1].weight)
    train(start(folder), model)


def beside_the_learner(folder):
    teacher = made()
    run = start(folder)
    train(run, made())
    assert teacher is not None


RIGHT = [
    *(made_after, seeded_before, loaded_before, loaded_after, loaded_as_a_whole),
    *(constant_and_loaded, beside_the_learner),
]


@pytest.mark.parametrize("kind", RIGHT, ids=lambda f: f.__name__)
def test_nothing_is_said_of_weights_that_are_decided(tmp_path, capsys, kind):
    torch.seed()
    kind(tmp_path)
    assert WORDS not in capsys.readouterr().err
