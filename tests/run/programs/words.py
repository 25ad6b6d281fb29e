# SPDX-License-Identifier: Apache-2.0
"""A word model that carries its hidden state from batch to batch, by hand and with a run that keeps it."""

import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

TEXTS, CHUNKS, LENGTH, WORDS, WIDTH, EPOCHS = 4, 5, 6, 9, 8, 3


class WordModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.recurrent = nn.GRU(WIDTH, WIDTH, num_layers=2, batch_first=True)

    def forward(self, words, hidden):
        output, hidden = self.recurrent(self.embedding(words), hidden.transpose(0, 1).contiguous())
        return self.head(output), hidden.transpose(0, 1)  # examples first, as in the batch


def chunks():
    """The next words of every text in each batch, so that a batch goes on where the one before it ended."""
    texts = torch.randint(WORDS, (TEXTS, CHUNKS * LENGTH + 1), generator=torch.Generator().manual_seed(1))
    starts = range(0, CHUNKS * LENGTH, LENGTH)
    return torch.cat([texts[:, start : start + LENGTH + 1] for start in starts])


def losses(net, words, hidden):
    scores, hidden = net(words[:, :-1], hidden)
    return F.cross_entropy(scores.flatten(0, 1), words[:, 1:].flatten(), reduction="none").view(
        -1, LENGTH
    ), hidden


def by_hand():
    ts.seed_everything(6)
    net = WordModel()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9, fused=True)
    for _ in range(EPOCHS):
        hidden = torch.zeros(TEXTS, 2, WIDTH)
        for words in chunks().split(TEXTS):
            loss, hidden = losses(net, words, hidden)
            hidden = hidden.detach()
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
    return [*net.parameters(), hidden]


def with_a_run(directory, after_each_update):
    run = ts.Run(directory, seed=6, saving=ts.Saving(every_steps=1), progress=False)
    net = run.learner(WordModel(), lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9))
    train = run.data(chunks(), batch_size=TEXTS)

    def loss(batch):
        values, hidden = losses(net, *batch)
        return ts.weighted(values, outputs={"hidden": hidden})

    for _ in run.epochs(EPOCHS):
        run.state["hidden"] = torch.zeros(TEXTS, 2, WIDTH)
        for words in run.batches(train):
            update = net.update(loss, (words, run.state["hidden"]))
            run.state["hidden"] = update.outputs["hidden"]
            after_each_update(run)
    return [*net.parameters(), run.state["hidden"]]
