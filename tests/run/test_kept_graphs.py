# SPDX-License-Identifier: Apache-2.0
"""A list that a loop only adds tensors with graphs to is named; one of numbers, and one that is read or emptied, is not."""

import pytest
import torch
from torch import nn

import truestep as ts

WORDS = "with the graphs that they were computed by"


class Training:
    def __init__(self, folder):
        self.run = ts.Run(folder, device="cpu", progress=False, doctor=False, watch_layers=0)
        self.net = self.run.learner(nn.Linear(2, 2), lambda p: torch.optim.SGD(p, lr=0.1))
        self.noise, self.images = torch.ones(4, 2), []

    def loss(self, batch):
        return self.net(batch).square().sum(1)

    def steps(self):
        for step in self.run.steps(12):
            self.net.update(self.loss, self.noise)
            yield step

    def samples(self):
        imgs = []
        for _ in self.run.steps(12):
            self.net.update(self.loss, self.noise)
            imgs.append(self.net(self.noise))

    def now_and_then(self):
        imgs = []
        for step in self.run.steps(12):
            self.net.update(self.loss, self.noise)
            if step % 2 == 0:
                fake = self.net(self.noise)
                imgs.append(fake.cpu())

    def of_an_object(self):
        for _ in self.run.steps(12):
            self.net.update(self.loss, self.noise)
            self.images.append(self.net(self.noise).mean())

    def in_a_function(self):
        for _ in self.run.steps(12):
            self.net.update(self.loss, self.noise)
            self.keep()

    def keep(self):
        self.images.append(self.net(self.noise))

    def detached(self):
        imgs = []
        for _ in self.run.steps(12):
            self.net.update(self.loss, self.noise)
            imgs.append(self.net(self.noise).detach())

    def without_a_graph(self):
        imgs = []
        for _ in self.run.steps(12):
            self.net.update(self.loss, self.noise)
            with torch.no_grad():
                imgs.append(self.net(self.noise))

    def losses(self):
        losses = []
        for _ in self.run.steps(12):
            losses.append(self.net.update(self.loss, self.noise).loss)

    def read_in_the_loop(self):
        kept = []
        for _ in self.run.steps(12):
            kept.append(self.net(self.noise))
            self.net.update(lambda batch: self.loss(batch) + 0 * sum(kept).detach().sum(), self.noise)

    def made_anew(self):
        for step in self.run.steps(12):
            if step % 10 == 0:
                kept = []
            self.net.update(self.loss, self.noise)
            kept.append(self.net(self.noise))

    def read_by_a_method(self):
        self.rows = []
        for _ in self.run.steps(12):
            self.net.update(self.loss, self.noise)
            self.rows.append(self.net(self.noise))

    def later(self):
        return torch.cat(self.rows)

    def emptied(self):
        kept = []
        for step in self.run.steps(12):
            self.net.update(self.loss, self.noise)
            kept.append(self.net(self.noise))
            if step == 10:
                kept.clear()


NAMES = [
    each
    for each in vars(Training)
    if not each.startswith("__") and each not in ("loss", "steps", "keep", "later")
]
KEPT = NAMES[: NAMES.index("detached")]


@pytest.mark.parametrize("name", NAMES)
def test_graphs_that_a_list_keeps(name, tmp_path, capsys):
    training = Training(tmp_path / "run")
    getattr(training, name)()
    training.run.close()
    assert capsys.readouterr().err.count(WORDS) == (name in KEPT)
