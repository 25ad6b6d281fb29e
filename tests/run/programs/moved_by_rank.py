# SPDX-License-Identifier: Apache-2.0
"""Moves the weights by hand before or behind each update: `python moved_by_rank.py FOLDER HABIT`; `HABITS` says who is right.

`steps-RANK` holds how many updates were made.
"""

import copy
import os
import sys
from pathlib import Path

import torch
from torch import nn

import truestep as ts

RANK = int(os.environ.get("RANK", "0"))
X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
RHO = 0.05


class Habit:
    """What a loop does around an update."""

    def __init__(self, net, run):
        self.net, self.run, self.module = net, run, net.module
        self.held = []

    def before(self, batch):
        pass

    def behind(self):
        for parameter, value in zip(self.module.parameters(), self.held, strict=False):
            parameter.data.copy_(value)
        self.held = []

    def keep(self):
        self.held = [parameter.detach().clone() for parameter in self.module.parameters()]

    def gradients(self, batch):
        return torch.autograd.grad(self.module(batch).square().mean(), [*self.module.parameters()])


class Sam(Habit):
    """Moves by its own rows' gradient, for the gradient there."""

    def before(self, batch):
        self.keep()
        gradients = self.moved_by(self.gradients(batch))
        norm = torch.stack([each.norm() for each in gradients]).norm() + 1e-12
        self.move([RHO * each / norm for each in gradients])

    def moved_by(self, gradients):
        return gradients

    @torch.no_grad()
    def move(self, by):
        for parameter, each in zip(self.module.parameters(), by, strict=True):
            parameter.add_(each)


class SamOfData(Sam):
    def move(self, by):
        for parameter, each in zip(self.module.parameters(), by, strict=True):
            parameter.data.add_(each)


class SamTogether(Sam):
    @torch.no_grad()
    def move(self, by):
        torch._foreach_add_([*self.module.parameters()], by)


class SamFlat(Sam):
    def move(self, by):
        flat = nn.utils.parameters_to_vector(self.module.parameters()).detach()
        nn.utils.vector_to_parameters(
            flat + torch.cat([each.flatten() for each in by]), self.module.parameters()
        )


class SamLoaded(Sam):
    def move(self, by):
        state = self.module.state_dict()
        named = zip(self.module.named_parameters(), by, strict=True)
        self.module.load_state_dict(state | {name: state[name] + each for (name, _), each in named})


class SamOfOneLayer(Sam):
    @torch.no_grad()
    def move(self, by):
        self.module[-1].weight += by[-2]


class Noise(Habit):
    """Adds noise of the rank's own stream."""

    def before(self, batch):
        self.keep()
        generator = torch.Generator().manual_seed(RANK)
        with torch.no_grad():
            for parameter in self.module.parameters():
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))


class MainAlone(Habit):
    @torch.no_grad()
    def before(self, batch):
        self.keep()
        if self.run.is_main:
            self.module[0].weight.mul_(0.9)


class GatheredSam(Sam):
    """The gradient of all ranks."""

    def moved_by(self, gradients):
        return [ts.gather(each[None]).mean(0) for each in gradients]


class LastGradient(Sam):
    """Looks ahead along the last update's gradient, which is of the whole batch."""

    def gradients(self, batch):
        last = [parameter.grad for parameter in self.module.parameters()]
        return [torch.zeros_like(p) for p in self.module.parameters()] if None in last else last


class SeededNoise(Habit):
    def before(self, batch):
        self.keep()
        generator = torch.Generator().manual_seed(self.run.step)
        with torch.no_grad():
            for parameter in self.module.parameters():
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))


class Clamp(Habit):
    @torch.no_grad()
    def behind(self):
        for parameter in self.module.parameters():
            parameter.clamp_(-0.3, 0.3)


class Decay(Habit):
    @torch.no_grad()
    def before(self, batch):
        torch._foreach_mul_([*self.module.parameters()], 0.99)


class Pruned(Habit):
    @torch.no_grad()
    def behind(self):
        self.module[0].weight *= self.module[0].weight.abs() > 0.05


class Lookahead(Habit):
    slow = None

    @torch.no_grad()
    def behind(self):
        if self.slow is None:
            self.slow = copy.deepcopy([*self.module.parameters()])
        if self.run.step % 3 == 0:
            for slow, fast in zip(self.slow, self.module.parameters(), strict=True):
                slow.lerp_(fast, 0.5)
                fast.copy_(slow)


class Begun(Habit):
    """A last layer that is begun anew, the same on all ranks."""

    def before(self, batch):
        if self.run.step == 3:
            nn.init.normal_(self.module[-1].weight, generator=torch.Generator().manual_seed(1))


OTHER = [Sam, SamOfData, SamTogether, SamFlat, SamLoaded, SamOfOneLayer, Noise, MainAlone]
SAME = [GatheredSam, LastGradient, SeededNoise, Clamp, Decay, Pruned, Lookahead, Begun]
HABITS = {kind.__name__: kind for kind in (*OTHER, *SAME)}


def main(folder, name):
    saving = ts.Saving(every_steps=None, every_seconds=None, at_epoch_end=False)
    with ts.Run(folder / "run", progress=False, doctor=False, saving=saving) as run:
        torch.manual_seed(0)
        net = run.learner(
            nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), lambda p: torch.optim.SGD(p, lr=0.1)
        )
        data = run.data(X, batch_size=8)
        habit, steps = HABITS[name](net, run), 0
        try:
            for batch in run.batches(data):
                habit.before(batch)
                net.update(lambda batch: net(batch).squeeze(1).square(), batch)
                steps += 1
                habit.behind()
        finally:
            (folder / f"steps-{RANK}").write_text(str(steps))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
