# SPDX-License-Identifier: Apache-2.0
"""A GPT's loop: token weights, gradient accumulation, clip, warm-up, decay groups, beside the loop written by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

VOCABULARY, LENGTH, PADDING = 11, 9, 0
STEPS, BATCH = 12, 10
EPS = 1e-3  # the gradient of an attention's key bias is zero but for rounding, which Adam would blow up to steps of lr


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 16)
        self.places = nn.Embedding(LENGTH, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight  # tied, as in GPT-2

    def forward(self, tokens):
        length = tokens.shape[1]
        hidden = self.tokens(tokens) + self.places.weight[:length]
        mask = nn.Transformer.generate_square_subsequent_mask(length, dtype=hidden.dtype)
        return self.head(self.block(hidden, src_mask=mask, is_causal=True))


def new_module(dtype=torch.float32):
    torch.manual_seed(3)
    return GPT().to(dtype)


def batches():
    draw = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        tokens = torch.randint(1, VOCABULARY, (BATCH, LENGTH + 1), generator=draw)
        lengths = torch.randint(2, LENGTH + 2, (BATCH, 1), generator=draw)
        yield torch.where(torch.arange(LENGTH + 1) < lengths, tokens, PADDING)


def token_losses(net, tokens):
    scores, targets = net(tokens[:, :-1]), tokens[:, 1:]
    losses = F.cross_entropy(scores.transpose(1, 2), targets, reduction="none")
    return losses, (targets != PADDING).to(losses.dtype)


def rate_at(step):
    return (step + 1) / 4 if step < 4 else (1 + math.cos(math.pi * min((step - 4) / 8, 1))) / 2


def by_hand(sizes, dtype=torch.float32):
    """The sum of a part's weighted losses over the tokens of the whole batch, part by part."""
    net = new_module(dtype)
    decayed = [
        p
        for name, p in net.named_parameters()
        if p.ndim == 2 and "tokens" not in name and "places" not in name
    ]
    others = [p for p in net.parameters() if not any(p is each for each in decayed)]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, eps=EPS, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_at)
    for tokens in batches():
        optimizer.zero_grad()
        total = (tokens[:, 1:] != PADDING).sum()
        for part in tokens.split(sizes):
            losses, weights = token_losses(net, part)
            ((losses * weights).sum() / total).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return {name: p.detach() for name, p in net.named_parameters()}


def with_the_engine(make_learner, micro_batch=None, sizes=None):
    net = make_learner(
        new_module(),
        lambda p: torch.optim.AdamW(p.decayed(0.1), lr=3e-3, eps=EPS),
        clip=ts.ClipNorm(1.0),
        schedule=lambda o: ts.warmup_cosine(o, warmup_steps=4, total_steps=12),
        micro_batch=micro_batch,
    )
    for tokens in batches():
        if sizes is None:
            net.update(lambda tokens: ts.weighted(*token_losses(net, tokens)), tokens)
            continue
        with net.accumulating(weight=float((tokens[:, 1:] != PADDING).sum())) as update:
            for part in tokens.split(sizes):
                update.backward(ts.weighted(*token_losses(net, part)))
    return {name: p.detach() for name, p in net.named_parameters()}


@pytest.mark.parametrize("micro_batch", [None, 10, 7, 4, 1])
def test_it_lies_no_farther_from_float64_than_four_times_the_loop_by_hand(make_learner, micro_batch):
    reference, plain = by_hand(BATCH, torch.float64), by_hand(BATCH)
    found = with_the_engine(make_learner, micro_batch)
    distance = lambda tensors: math.sqrt(
        sum(float((tensors[n] - reference[n]).square().sum()) for n in reference)
    )
    moved = math.sqrt(
        sum(
            float((reference[n] - p.detach()).square().sum())
            for n, p in new_module(torch.float64).named_parameters()
        )
    )
    assert distance(found) <= 4 * distance(plain) < 1e-4 * moved


@pytest.mark.parametrize("sizes", [10, 4])
def test_a_block_of_parts_is_the_loop_of_parts_bit_for_bit(make_learner, same, sizes):
    assert same(by_hand(sizes), with_the_engine(make_learner, sizes=sizes))


def test_the_mean_of_the_parts_means_is_another_training(make_learner):
    """The mistake that token weights are for: without them the distance would be thousands of times as large."""
    reference = by_hand(BATCH, torch.float64)
    net = make_learner(new_module(), lambda p: torch.optim.AdamW(p.decayed(0.1), lr=3e-3, eps=EPS))
    for tokens in batches():
        with net.accumulating(weight=1) as update:
            for part in tokens.split(4):
                losses, weights = token_losses(net, part)
                update.backward((losses * weights).sum() / weights.sum() / 3)
    assert max(float((reference[n] - p.detach()).abs().max()) for n, p in net.named_parameters()) > 1e-3
