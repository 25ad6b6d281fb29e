# SPDX-License-Identifier: Apache-2.0
"""Values that a mask has set to zero and that are given without weights: the mean counts them, and the loss is told of once."""

import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

CLASSES, LENGTH = 5, 6
generator = torch.Generator().manual_seed(0)
TOKENS = torch.randint(1, 9, (24, LENGTH), generator=generator)
TOKENS[::2, 4:] = 0
LABELS = torch.randint(1, CLASSES, (24, LENGTH), generator=generator)
LABELS[TOKENS == 0] = 0


def entropy(net, batch, **options):
    return F.cross_entropy(net(batch[0]).transpose(1, 2), batch[1], reduction="none", **options)


def flat_entropy(net, batch):
    outputs = net(batch[0]).reshape(-1, CLASSES)
    return F.cross_entropy(outputs, batch[1].reshape(-1), ignore_index=0, reduction="none").view(-1, LENGTH)


def likelihood(net, batch):
    return net(batch[0]).log_softmax(-1).gather(-1, batch[1].unsqueeze(-1)).squeeze(-1)


FAULTY = {
    "a product": lambda net, b, mask: ts.weighted(entropy(net, b) * mask),
    "the mask first": lambda net, b, mask: ts.weighted(mask * entropy(net, b)),
    "of booleans": lambda net, b, mask: ts.weighted(entropy(net, b).mul(mask.bool())),
    "made flat behind it": lambda net, b, mask: ts.weighted((entropy(net, b) * mask).flatten()),
    "made flat before it": lambda net, b, mask: ts.weighted(entropy(net, b).reshape(-1) * mask.reshape(-1)),
    "where": lambda net, b, mask: ts.weighted(torch.where(mask.bool(), entropy(net, b), torch.zeros(()))),
    "where not": lambda net, b, mask: ts.weighted(torch.where(b[0] == 0, 0.0, entropy(net, b))),
    "masked_fill": lambda net, b, mask: ts.weighted(entropy(net, b).masked_fill(mask == 0, 0.0)),
    "beside metrics": lambda net, b, mask: ts.weighted(entropy(net, b) * mask, kept=mask),
    "a likelihood": lambda net, b, mask: ts.weighted(-(likelihood(net, b) * mask)),
    "one value each": lambda net, b, mask: ts.weighted(entropy(net, b)[:, 5] * mask[:, 5]),
    "ignored": lambda net, b, mask: ts.weighted(entropy(net, b, ignore_index=0)),
    "ignored, flat": lambda net, b, mask: ts.weighted(flat_entropy(net, b)),
    "ignored examples": lambda net, b, mask: F.cross_entropy(
        net(b[0])[:, 5], b[1][:, 5].masked_fill(b[1][:, 5] == 0, -100), reduction="none"
    ),
}
RIGHT = {
    "weights": lambda net, b, mask: ts.weighted(entropy(net, b), mask),
    "a product with its weights": lambda net, b, mask: ts.weighted(entropy(net, b) * mask, mask),
    "those that count": lambda net, b, mask: ts.weighted(entropy(net, b)[mask.bool()]),
    "ignored, with weights": lambda net, b, mask: ts.weighted(entropy(net, b, ignore_index=0), mask),
    "a ratio": lambda net, b, mask: (entropy(net, b) * mask).sum(1) / mask.sum(1),
    "a sum": lambda net, b, mask: (entropy(net, b) * mask).sum(1),
    "no mask": lambda net, b, mask: ts.weighted(entropy(net, b) * (mask / 2 + 0.1)),
    "nothing masked": lambda net, b, mask: ts.weighted(entropy(net, b) * torch.ones_like(mask)),
    "a reward": lambda net, b, mask: entropy(net, b).sum(1) * (b[1][:, 0] > 2),
    "a reward beside metrics": lambda net, b, mask: ts.weighted(
        entropy(net, b).sum(1) * (b[1][:, 0] > 2), first=mask[:, 0]
    ),
    "zeros of its own": lambda net, b, mask: ts.weighted(F.relu(entropy(net, b) - 1)),
}


def told(folder, loss):
    run = ts.Run(folder, device="cpu", progress=False, doctor=False)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, CLASSES))
    net = run.learner(model, lambda p: torch.optim.SGD(p, lr=0.1), name="net")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in run.batches(run.data((TOKENS, LABELS), batch_size=8)):
            net.update(lambda b: loss(net, b, (b[0] != 0).float()), batch)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("loss", FAULTY.values(), ids=FAULTY)
def test_a_mean_that_counts_what_is_masked_is_told_of_once(tmp_path, loss):
    (text,) = told(tmp_path, loss)
    assert re.search(r"the mean is over all .* ts\.weighted\(values, ", text), text


@pytest.mark.parametrize("loss", RIGHT.values(), ids=RIGHT)
def test_another_mean_is_not_told_of(tmp_path, loss):
    assert told(tmp_path, loss) == []
