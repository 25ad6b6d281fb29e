# SPDX-License-Identifier: Apache-2.0
"""Wrong calls of public names that were drawn before the code was read, and were silent or raw: each says what to write."""

import warnings

import pytest
import torch
from torch import nn

import truestep as ts

WORDS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ts.spawn(print(end=""), 2), r"given a NoneType.*ts\.spawn\(train, 2, folder\)"),
        (lambda: ts.spawn(print, "2"), r"number of processes second.*ts\.spawn\(train, 2\)"),
        (
            lambda: ts.apply_state({}, nn.Linear(2, 1)),
            r"objects are a Linear.*module\.load_state_dict\(state\)",
        ),
    ],
)
def test_what_is_given_in_the_place_of_something_else_is_refused(call, said):
    with pytest.raises(ts.TruestepError, match=said):
        call()


@pytest.mark.parametrize(
    ("logits", "is_told"),
    [
        (WORDS.softmax(-1), True),
        (WORDS[0].softmax(-1), True),
        (WORDS, False),
        (WORDS.log_softmax(-1), False),
        (WORDS.abs(), False),
        (torch.zeros(6, 4), False),
        (torch.ones(6, 1), False),
    ],
)
def test_probabilities_in_the_place_of_logits(logits, is_told):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ts.sample_logits(logits)
    assert bool(told) is is_told


NET = nn.Linear(4, 3)
with torch.no_grad():
    NET.weight.zero_()
    NET.bias.copy_(torch.tensor([0.0, 0.0, 1.0]))  # it chooses the last class


def under_a_name(batch):
    chosen = NET(batch[0]).argmax(dim=1)
    return chosen.float()


def largest(batch):
    return torch.max(NET(batch[0]), 1)[1].float()


def compared(batch):
    return (NET(batch[0]).argmax(1) == batch[1]).float()


def error_of_places(batch):
    chosen = NET(batch[0]).argmax(1)
    return (chosen - batch[1]).abs().float()


@pytest.mark.parametrize(
    ("values", "is_told"),
    [
        (under_a_name, True),
        (largest, True),
        (lambda batch: NET(batch[0]).argmax(1).float(), True),
        (lambda batch: NET(batch[0]).max(1).indices.float(), True),
        (compared, False),
        (error_of_places, False),
        (lambda batch: NET(batch[0]).max(1).values, False),
        (lambda batch: NET(batch[0])[:, :2].argmax(1).float(), False),
    ],
)
def test_class_numbers_in_the_place_of_an_accuracy(tmp_path, values, is_told):
    with ts.Run(tmp_path, device="cpu", progress=False, doctor=False) as run:
        net = run.learner(NET, lambda p: torch.optim.SGD(p, lr=0.1))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            net.evaluate(values, run.data((WORDS, torch.arange(6) % 3), batch_size=6))
    assert any("no accuracy" in str(each.message) for each in told) is is_told
