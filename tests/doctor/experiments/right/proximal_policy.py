# SPDX-License-Identifier: Apache-2.0
"""PPO on a made-up environment: rollouts, advantages normalised in each mini-batch, several epochs over each rollout."""

import torch
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.actor, self.critic = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, x):
        hidden = self.body(x)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


def step(states, actions):
    rewards = (actions == (states.sum(1) > 0).long()).float()
    return torch.randn_like(states), rewards


@torch.no_grad()
def rollout(net, length=20, count=16):
    states, kept = torch.randn(count, 4), []
    for _ in range(length):
        policy, values = net(states)
        actions = policy.sample()
        following, rewards = step(states, actions)
        kept.append((states, actions, policy.log_prob(actions), values, rewards))
        states = following
    states, actions, log_probs, values, rewards = (torch.stack(each) for each in zip(*kept, strict=True))
    advantages, last = torch.zeros_like(rewards), torch.zeros(count)
    for t in reversed(range(length)):
        following = values[t + 1] if t + 1 < length else torch.zeros(count)
        last = rewards[t] + 0.99 * following - values[t] + 0.99 * 0.95 * last
        advantages[t] = last
    flat = (states, actions, log_probs, advantages, advantages + values)
    return TensorDataset(*(each.flatten(0, 1) for each in flat)), rewards.mean().item()


net = ActorCritic()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3, eps=1e-5)
for update in range(4):
    data, reward = rollout(net)
    for _ in range(3):
        for states, actions, old, advantages, returns in DataLoader(data, batch_size=40, shuffle=True):
            policy, values = net(states)
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            ratio = (policy.log_prob(actions) - old).exp()
            gain = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
            loss = -gain + 0.5 * (values - returns).square().mean() - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
    print(f"update {update}: reward {reward:.4f}")
