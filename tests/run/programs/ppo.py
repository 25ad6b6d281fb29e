# SPDX-License-Identifier: Apache-2.0
"""Proximal policy optimisation on a tiny environment of our own, by hand and with a run that tracks what it does not know."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

ENVIRONMENTS, ROLLOUT, STEPS = 4, 6, 8


class Drift:
    """Points that drift at random; an action pushes one left or right, and the middle pays."""

    def __init__(self):
        self.noise = np.random.default_rng(5)
        self.places = np.zeros(ENVIRONMENTS, dtype=np.float32)
        self.ages = np.arange(ENVIRONMENTS)

    @property
    def observation(self):
        return torch.from_numpy(np.stack([self.places, np.sin(self.places)], axis=1))

    def step(self, actions):
        noise = self.noise.normal(size=ENVIRONMENTS).astype(np.float32)
        self.places = self.places + 0.5 * (2 * actions.numpy().astype(np.float32) - 1) + noise
        self.ages = self.ages + 1
        rewards = -np.abs(self.places)
        over = self.ages >= 7
        self.places, self.ages = np.where(over, np.float32(0), self.places), np.where(over, 0, self.ages)
        return torch.from_numpy(rewards), torch.from_numpy(over)

    def state_dict(self):
        return {"noise": self.noise.bit_generator.state, "places": self.places, "ages": self.ages}

    def load_state_dict(self, state):
        self.noise.bit_generator.state = state["noise"]
        self.places, self.ages = state["places"], state["ages"]


class Normaliser:
    """Mean and variance of all observations so far."""

    def __init__(self):
        self.count, self.mean, self.square = 0, torch.zeros(2), torch.ones(2)

    def __call__(self, observation):
        self.count += 1
        self.mean = self.mean + (observation.mean(0) - self.mean) / self.count
        self.square = self.square + (observation.square().mean(0) - self.square) / self.count
        return (observation - self.mean) / (self.square - self.mean.square()).clamp(min=0.01).sqrt()

    def state_dict(self):
        return {"count": self.count, "mean": self.mean, "square": self.square}

    def load_state_dict(self, state):
        self.count, self.mean, self.square = state["count"], state["mean"], state["square"]


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.policy, self.value = nn.Linear(2, 8), nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, observation):
        hidden = self.body(observation).tanh()
        return self.policy(hidden).log_softmax(1), self.value(hidden).squeeze(1)


@torch.no_grad()
def rollout(net, drift, normalise):
    """Play, and return what was seen, done, how likely that was, its advantage and its return, one row a move."""
    moves = []
    for _ in range(ROLLOUT):
        seen = normalise(drift.observation)
        likely, value = net(seen)
        actions = torch.multinomial(likely.exp(), 1).squeeze(1)
        rewards, over = drift.step(actions)
        moves.append((seen, actions, likely.gather(1, actions[:, None]).squeeze(1), value, rewards, over))
    following, returns = net(normalise(drift.observation))[1], []
    for *_, rewards, over in reversed(moves):
        following = rewards + 0.9 * torch.where(over, 0.0, following)
        returns.insert(0, following)
    seen, actions, likely, values, _, _ = (torch.cat(column) for column in zip(*moves, strict=True))
    returns = torch.cat(returns)
    return seen, actions, likely, returns - values, returns


def losses(net, batch):
    """The clipped objective with a value loss and an entropy bonus, one a move."""
    seen, actions, before, advantage, returns = batch
    likely, value = net(seen)
    ratio = (likely.gather(1, actions[:, None]).squeeze(1) - before).exp()
    gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    entropy = -(likely.exp() * likely).sum(1)
    return -gain + 0.5 * F.mse_loss(value, returns, reduction="none") - 0.01 * entropy


def minibatches(moves):
    for _ in range(2):
        for rows in torch.randperm(len(moves[0])).split(12):
            yield tuple(column[rows] for column in moves)


def by_hand():
    ts.seed_everything(3)
    net, drift, normalise = ActorCritic(), Drift(), Normaliser()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, fused=True)
    for _ in range(STEPS):
        for batch in minibatches(rollout(net, drift, normalise)):
            optimizer.zero_grad()
            losses(net, batch).mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
    return [*net.parameters(), normalise.mean, torch.from_numpy(drift.places)]


def with_a_run(directory, after_each_update):
    run = ts.Run(directory, seed=3, saving=ts.Saving(every_steps=2), progress=False)
    net = run.learner(ActorCritic(), lambda p: torch.optim.Adam(p, lr=1e-2), clip=ts.ClipNorm(0.5))
    drift, normalise = Drift(), Normaliser()
    run.track(drift=drift, normalise=normalise)
    for _ in run.steps(STEPS):
        for batch in minibatches(rollout(net, drift, normalise)):
            net.update(lambda batch: losses(net, batch), batch)
            after_each_update(run)
    return [*net.parameters(), normalise.mean, torch.from_numpy(drift.places)]
