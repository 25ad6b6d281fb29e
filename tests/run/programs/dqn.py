# SPDX-License-Identifier: Apache-2.0
"""Deep Q-learning with a target network and a replay buffer of priorities, by hand and with a run that tracks both."""

import random

import torch
from torch import nn

import truestep as ts

STEPS, PLACES, BATCH = 40, 6, 8


class Corridor:
    """A walk along places in a row; the last one pays."""

    def __init__(self):
        self.place = 0

    @property
    def observation(self):
        return nn.functional.one_hot(torch.tensor(self.place), PLACES).float()

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        over = self.place == PLACES - 1
        if over:
            self.place = 0
        return float(over), over

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class Replay:
    """The last moves, each drawn as often as its error is large; its draws are its own."""

    def __init__(self):
        self.draw = torch.Generator().manual_seed(2)
        self.moves, self.priorities = [], torch.zeros(0)

    def add(self, *move):
        self.moves = [*self.moves, [torch.as_tensor(value) for value in move]][-30:]
        self.priorities = torch.cat([self.priorities, torch.ones(1)])[-30:]

    def sample(self):
        rows = torch.multinomial(self.priorities, BATCH, replacement=True, generator=self.draw)
        return rows, tuple(
            torch.stack(column) for column in zip(*[self.moves[row] for row in rows], strict=True)
        )

    def state_dict(self):
        return {"draw": self.draw.get_state(), "moves": self.moves, "priorities": self.priorities}

    def load_state_dict(self, state):
        self.draw.set_state(state["draw"])
        self.moves, self.priorities = state["moves"], state["priorities"]


def network():
    return nn.Sequential(nn.Linear(PLACES, 16), nn.ReLU(), nn.Linear(16, 2))


def play(net, corridor, replay):
    seen = corridor.observation
    with torch.no_grad():
        action = random.randrange(2) if random.random() < 0.4 else int(net(seen).argmax())
    reward, over = corridor.step(action)
    replay.add(seen, action, reward, over, corridor.observation)


def errors(net, target, batch):
    seen, actions, rewards, over, after = batch
    with torch.no_grad():
        wanted = rewards + 0.9 * torch.where(over, 0.0, target(after).amax(1))
    return net(seen).gather(1, actions[:, None]).squeeze(1) - wanted


def by_hand():
    ts.seed_everything(4)
    net, target, corridor, replay = network(), network(), Corridor(), Replay()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, fused=True)
    for step in range(STEPS):
        play(net, corridor, replay)
        rows, batch = replay.sample()
        error = errors(net, target, batch)
        optimizer.zero_grad()
        error.square().mean().backward()
        optimizer.step()
        replay.priorities[rows] = error.detach().abs() + 0.01
        if step % 7 == 0:
            target.load_state_dict(net.state_dict())
    return [*net.parameters(), *target.parameters(), replay.priorities]


def with_a_run(directory, after_each_update):
    run = ts.Run(directory, seed=4, saving=ts.Saving(every_steps=3), progress=False)
    net = run.learner(network(), lambda p: torch.optim.AdamW(p, lr=1e-2))
    target, corridor, replay = network(), Corridor(), Replay()
    run.track(target=target, corridor=corridor, replay=replay)

    def loss(batch):
        error = errors(net, target, batch)
        return ts.weighted(error.square(), outputs={"priorities": error.abs() + 0.01})

    for step in run.steps(STEPS):
        play(net, corridor, replay)
        rows, batch = replay.sample()
        replay.priorities[rows] = net.update(loss, batch).outputs["priorities"]
        after_each_update(run)
        if step % 7 == 0:
            target.load_state_dict(net.module.state_dict())
    return [*net.parameters(), *target.parameters(), replay.priorities]
