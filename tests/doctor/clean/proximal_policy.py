# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.LayerNorm(32), nn.Tanh(), nn.Dropout(0.05))
        self.actor, self.critic = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, state):
        features = self.body(state)
        return Categorical(logits=self.actor(features)), self.critic(features).squeeze(-1)


class World:
    def reset(self):
        self.state, self.time = torch.randn(4), 0
        return self.state

    def step(self, action):
        self.time += 1
        reward = float((self.state[0] > 0) == bool(action))
        self.state = self.state + 0.3 * torch.randn(4)
        return self.state, reward, self.time >= 16


def rollout(policy, world, length):
    policy.eval()
    states, actions, rewards, old, values = [], [], [], [], []
    state = world.reset()
    with torch.no_grad():
        for _ in range(length):
            distribution, value = policy(state.unsqueeze(0))
            action = distribution.sample()
            states.append(state)
            actions.append(action)
            old.append(distribution.log_prob(action))
            values.append(value)
            state, reward, done = world.step(action.item())
            rewards.append(reward)
            if done:
                state = world.reset()
    policy.train()
    return torch.stack(states), torch.cat(actions), torch.tensor(rewards), torch.cat(old), torch.cat(values)


def update(policy, optimizer, states, actions, returns, old, advantages):
    for _ in range(3):
        for rows in torch.randperm(len(states)).split(16):
            distribution, value = policy(states[rows])
            ratio = (distribution.log_prob(actions[rows]) - old[rows]).exp()
            clipped = ratio.clamp(0.8, 1.2)
            gain = torch.min(ratio * advantages[rows], clipped * advantages[rows]).mean()
            loss = -gain + 0.5 * F.mse_loss(value, returns[rows]) - 0.01 * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


policy, world = Policy(), World()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, eps=1e-5)
for _update in range(4):
    states, actions, rewards, old, values = rollout(policy, world, 64)
    returns = torch.zeros_like(rewards)
    running = 0.0
    for time in reversed(range(len(rewards))):
        running = rewards[time].item() + 0.9 * running
        returns[time] = running
    advantages = returns - values
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    update(policy, optimizer, states, actions, returns, old, advantages)
