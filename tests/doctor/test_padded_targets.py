# SPDX-License-Identifier: Apache-2.0
"""Targets at padded places, while a training runs: counted ones are told, whatever the habit, and left out ones are not."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from truestep.doctor.watch_block import watch

LENGTHS = (12, 5, 9, 7)


class Model(nn.Module):
    """Takes symbols and a mask, and gives scores, or the loss of the next symbols as causal models do."""

    def __init__(self, ignored=-100, padding_idx=None):
        super().__init__()
        self.embed, self.head, self.ignored = nn.Embedding(9, 8, padding_idx), nn.Linear(8, 9), ignored

    def forward(self, input_ids, attention_mask=None, labels=None):
        scores = self.head(self.embed(input_ids))
        if labels is None:
            return scores
        labels = F.pad(labels, (0, 1), value=self.ignored)[:, 1:]
        return (
            F.cross_entropy(
                scores.flatten(0, 1), labels.flatten(), ignore_index=self.ignored, reduction="sum"
            )
            / 8
        )


def batch(side="right"):
    ids = torch.zeros(4, 12, dtype=torch.long)
    for row, length in enumerate(LENGTHS):
        where = slice(0, length) if side == "right" else slice(12 - length, 12)
        ids[row, where] = torch.randint(1, 9, (length,))
    return ids, (ids != 0).long()


def left_out(ids, mask, keep=0):
    """Return labels with -100 at padded places, but for so many behind each text."""
    return torch.where((mask.cumsum(1) == mask.sum(1, keepdim=True)) & (mask.flip(1).cumsum(1).flip(1) == 0) & (
        (1 - mask).cumsum(1) > keep), -100, ids)  # fmt: skip


def scores_and(ids, **options):
    return lambda net, mask: F.cross_entropy(
        net(ids, attention_mask=mask)[:, :-1].transpose(1, 2), ids[:, 1:], **options
    )


def masked_by_hand(ids):
    def loss(net, mask):
        each = F.cross_entropy(net(ids, mask)[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
        return (each * mask[:, 1:]).sum() / mask[:, 1:].sum()

    return loss


def tags_of(ids, mask, padded):
    tags = torch.where(mask == 1, ids % 3, padded)
    return lambda net, mask: F.cross_entropy(net(ids, mask.bool()).flatten(0, 1), tags.flatten())


def prompt(ids, mask):
    """Return a mask that leaves out the first places, whose symbols are asked for on purpose."""
    part = torch.ones_like(mask)
    part[:, :3], part[0, 2] = 0, 1
    ids = torch.randint(1, 9, ids.shape)
    return lambda net, _: net(ids, attention_mask=part, labels=ids)


COUNTED = {
    "labels are the ids": lambda ids, mask: lambda net, mask: net(ids, attention_mask=mask, labels=ids),
    "labels are a copy": lambda ids, mask: (
        lambda net, mask: net(input_ids=ids, attention_mask=mask, labels=ids.clone())
    ),
    "shifted by hand": lambda ids, mask: scores_and(ids),
    "summed": lambda ids, mask: scores_and(ids, reduction="sum"),
    "another number is ignored": lambda ids, mask: scores_and(ids, ignore_index=8),
    "a mask of truth values": lambda ids, mask: lambda net, mask: net(ids, mask.bool(), ids),
    "tags": lambda ids, mask: tags_of(ids, mask, 0),
}
LEFT_OUT = {
    "labels are -100": lambda ids, mask: lambda net, m: net(ids, attention_mask=m, labels=ids.masked_fill(m == 0, -100)),
    "the first behind a text counts": lambda ids, mask: lambda net, m: net(ids, attention_mask=m, labels=left_out(ids, m, 1)),
    "padding is ignored": lambda ids, mask: scores_and(ids, ignore_index=0),
    "weights": lambda ids, mask: scores_and(ids, weight=torch.tensor([0.0] + [1.0] * 8)),
    "masked by hand": lambda ids, mask: masked_by_hand(ids),
    "packed, without a mask": lambda ids, mask: lambda net, m: net(ids, labels=ids),
    "packed, all real": lambda ids, mask: lambda net, m: net(ids, attention_mask=torch.ones_like(m), labels=ids),
    "a prompt": prompt,
    "tags of -100": lambda ids, mask: tags_of(ids, mask, -100),
}  # fmt: skip


def told(form, side, **options):
    torch.manual_seed(0)
    net = Model(**options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch(select=["LOSS026"]) as report:
        for _ in range(4):
            ids, mask = batch(side)
            optimizer.zero_grad()
            form(ids, mask)(net, mask).backward()
            optimizer.step()
    return [(each.code, each.message) for each in report.findings]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("form", COUNTED)
def test_padding_that_counts_is_told_once(form, side):
    ((code, message),) = told(COUNTED[form], side)
    assert code == "LOSS026"
    assert " targets are 0, where " in message


@pytest.mark.parametrize("form", LEFT_OUT)
def test_padding_that_is_left_out_is_quiet(form):
    assert told(LEFT_OUT[form], "right") == []


def test_a_model_that_ignores_the_padding_itself_is_quiet():
    assert told(COUNTED["labels are the ids"], "right", ignored=0) == []


def next_of(ids, **options):
    return lambda net, mask: F.cross_entropy(net(ids[:, :-1]).transpose(1, 2), ids[:, 1:], **options)


BY_INDEX = {
    "the next symbols": lambda ids, mask: next_of(ids),
    "smoothed": lambda ids, mask: next_of(ids, label_smoothing=0.1),
    "the same symbols": lambda ids, mask: (
        lambda net, m: F.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    ),
    "tags": lambda ids, mask: lambda net, m: F.cross_entropy(net(ids).flatten(0, 1), (ids % 3).flatten()),
}
LEFT_OUT_BY_INDEX = {
    "ignored": lambda ids, mask: next_of(ids, ignore_index=0),
    "of no weight": lambda ids, mask: next_of(ids, weight=torch.tensor([0.0] + [1.0] * 8)),
    "filled": lambda ids, mask: (
        lambda net, m: F.cross_entropy(
            net(ids[:, :-1]).transpose(1, 2), ids[:, 1:].masked_fill(m[:, 1:] == 0, -100)
        )
    ),
    "picked": lambda ids, mask: lambda net, m: F.cross_entropy(net(ids)[m == 1], ids[m == 1]),
    "no padding": lambda ids, mask: next_of(ids.clamp(min=1)),
    "one class of each": lambda ids, mask: lambda net, m: F.cross_entropy(net(ids).mean(1), ids[:, 0]),
}


@pytest.mark.parametrize("form", BY_INDEX)
def test_padding_that_an_embedding_names_and_a_loss_counts_is_told_once(form):
    ((_, message),) = told(BY_INDEX[form], "right", padding_idx=0)
    assert " targets are 0, where padding_idx=0 says padding" in message
    assert told(BY_INDEX[form], "right") == []


@pytest.mark.parametrize("form", LEFT_OUT_BY_INDEX)
def test_padding_that_an_embedding_names_and_a_loss_leaves_out_is_quiet(form):
    assert told(LEFT_OUT_BY_INDEX[form], "right", padding_idx=0) == []
