# SPDX-License-Identifier: Apache-2.0
"""A word model whose hidden state is carried from batch to batch, as torch's own example trains it, beside that loop."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

VOCABULARY, ROWS, LENGTH, STEPS = 13, 6, 5, 15


class WordModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 12)
        self.recurrent = nn.GRU(12, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, words, hidden):
        outputs, hidden = self.recurrent(self.embedding(words), hidden)
        return self.head(outputs), hidden


def new_module(dtype=torch.float32):
    torch.manual_seed(1)
    return WordModel().to(dtype)


def text():
    """One long stream of words a row, cut into pieces that follow each other."""
    words = torch.randint(
        0, VOCABULARY, (ROWS, STEPS * LENGTH + 1), generator=torch.Generator().manual_seed(9)
    )
    for start in range(0, STEPS * LENGTH, LENGTH):
        yield words[:, start : start + LENGTH], words[:, start + 1 : start + LENGTH + 1]


def by_hand(dtype=torch.float32):
    net = new_module(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, fused=True)
    hidden = torch.zeros(2, ROWS, 16, dtype=dtype)
    for words, targets in text():
        optimizer.zero_grad()
        scores, hidden = net(words, hidden)
        hidden = hidden.detach()
        F.cross_entropy(scores.transpose(1, 2), targets, reduction="none").mean(1).mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.25)
        optimizer.step()
    return {name: p.detach() for name, p in net.named_parameters()}, hidden


def with_the_engine(make_learner, micro_batch):
    """The state travels with the batch, an example's in its row, so that a part takes its own; what comes out is gathered."""
    net = make_learner(
        new_module(),
        lambda p: torch.optim.SGD(p, lr=0.5, fused=True),
        clip=ts.ClipNorm(0.25),
        micro_batch=micro_batch,
    )
    carried = torch.zeros(ROWS, 2, 16)
    following = torch.empty_like(carried)

    def loss(batch):
        words, targets, hidden, rows = batch
        scores, after = net(words, hidden.transpose(0, 1).contiguous())
        following[rows] = after.detach().transpose(
            0, 1
        )  # written by row: a part tried again writes the same again
        return F.cross_entropy(scores.transpose(1, 2), targets, reduction="none").mean(1)

    for words, targets in text():
        net.update(loss, (words, targets, carried, torch.arange(ROWS)))
        carried, following = following, torch.empty_like(carried)
    return {name: p.detach() for name, p in net.named_parameters()}, carried.transpose(0, 1).contiguous()


def test_unsplit_it_ends_where_the_loop_by_hand_ends(make_learner, same):
    assert same(by_hand(), with_the_engine(make_learner, None))


@pytest.mark.parametrize("micro_batch", [4, 2, 1])
def test_split_it_lies_no_farther_from_float64_than_four_times_the_loop_by_hand(make_learner, micro_batch):
    (reference, state), (plain, plain_state) = by_hand(torch.float64), by_hand()
    found, found_state = with_the_engine(make_learner, micro_batch)
    distance = lambda tensors: math.sqrt(
        sum(float((tensors[n] - reference[n]).square().sum()) for n in reference)
    )
    assert distance(found) <= 4 * distance(plain)
    assert (found_state - state).norm() <= 4 * (plain_state - state).norm()


def test_a_state_that_was_not_carried_is_another_training(make_learner):
    reference, _ = by_hand()
    net = make_learner(new_module(), lambda p: torch.optim.SGD(p, lr=0.5), clip=ts.ClipNorm(0.25))
    for words, targets in text():
        net.update(
            lambda batch: F.cross_entropy(
                net(batch[0], None)[0].transpose(1, 2), batch[1], reduction="none"
            ).mean(1),
            (words, targets),
        )
    assert max(float((reference[n] - p.detach()).abs().max()) for n, p in net.named_parameters()) > 1e-3
