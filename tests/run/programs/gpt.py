# SPDX-License-Identifier: Apache-2.0
"""A small GPT with accumulation: the losses of several parts of a batch, weighted by their tokens, make one update."""

import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

EPOCHS, BATCH, PART, LENGTH, WORDS, WIDTH = 3, 6, 2, 7, 11, 16


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.query_key_value, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        x = self.words(words) + self.places.weight[: words.shape[1]]
        query, key, value = self.query_key_value(self.norm(x)).chunk(3, dim=-1)
        return self.head(x + self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True)))


def data():
    """Texts, and a mask of the words that count: each text has another number of them."""
    draw = torch.Generator().manual_seed(1)
    words = torch.randint(WORDS, (4 * BATCH, LENGTH + 1), generator=draw)
    lengths = torch.randint(2, LENGTH + 1, (4 * BATCH, 1), generator=draw)
    return words, (torch.arange(LENGTH) < lengths).float()


def losses(net, words):
    scores = net(words[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1), words[:, 1:].flatten(), reduction="none").view(-1, LENGTH)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01, fused=True)


def schedule(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.1 * step))


def by_hand():
    ts.seed_everything(6)
    net = Transformer()
    optimizer = adamw(net.parameters())
    rates = schedule(optimizer)
    for _ in range(EPOCHS):
        for words, mask in zip(*(each.split(BATCH) for each in data()), strict=True):
            optimizer.zero_grad()
            total = float(mask.sum())
            for part, counts in zip(words.split(PART), mask.split(PART), strict=True):
                values = losses(net, part)
                torch.autograd.backward(values, counts / total)
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            rates.step()
    return list(net.parameters())


def with_a_run(directory, after_each_update):
    run = ts.Run(directory, seed=6, saving=ts.Saving(every_steps=1), progress=False)
    net = run.learner(Transformer(), adamw, clip=ts.ClipNorm(0.5), schedule=schedule)
    train = run.data(data(), batch_size=BATCH)
    for _ in run.epochs(EPOCHS):
        for words, mask in run.batches(train):
            with net.accumulating(weight=float(mask.sum())) as update:
                for part, counts in zip(words.split(PART), mask.split(PART), strict=True):
                    update.backward(ts.weighted(losses(net, part), counts))
            after_each_update(run)
    return list(net.parameters())
