# SPDX-License-Identifier: Apache-2.0
"""An actor and a critic with one body; each rollout of several environments is one batch."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

torch.manual_seed(1)
NUM_ENVS, NUM_STEPS, GAMMA, LAMBDA = 4, 8, 0.98, 0.95


class Envs:
    def __init__(self):
        self.state = torch.rand(NUM_ENVS, 3)

    def step(self, action):
        reward = (action == self.state.argmax(1)).float()
        self.state = torch.rand(NUM_ENVS, 3)
        return self.state, reward, torch.rand(NUM_ENVS) < 0.1


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 32), nn.Tanh())
        self.actor = nn.Linear(32, 3)
        self.critic = nn.Linear(32, 1)

    def forward(self, x):
        h = self.body(x)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


envs, model = Envs(), ActorCritic()
optimizer = torch.optim.RMSprop(model.parameters(), lr=7e-3, eps=1e-5)
state = envs.state
for update in range(12):
    log_probs, values, rewards, masks, entropies = [], [], [], [], []
    for _ in range(NUM_STEPS):
        dist, value = model(state)
        action = dist.sample()
        state, reward, done = envs.step(action)
        log_probs.append(dist.log_prob(action))
        entropies.append(dist.entropy())
        values.append(value)
        rewards.append(reward)
        masks.append(1 - done.float())
    with torch.no_grad():
        next_value = model(state)[1]
    gae, returns = torch.zeros(NUM_ENVS), []
    for t in reversed(range(NUM_STEPS)):
        following = next_value if t == NUM_STEPS - 1 else values[t + 1].detach()
        delta = rewards[t] + GAMMA * following * masks[t] - values[t].detach()
        gae = delta + GAMMA * LAMBDA * masks[t] * gae
        returns.insert(0, gae + values[t].detach())
    returns, values = torch.stack(returns), torch.stack(values)
    advantage = (returns - values).detach()
    actor_loss = -(torch.stack(log_probs) * advantage).mean()
    critic_loss = F.mse_loss(values, returns)
    loss = actor_loss + 0.5 * critic_loss - 0.01 * torch.stack(entropies).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    print(
        f"update {update} reward {torch.stack(rewards).mean().item():.3f} value loss {critic_loss.item():.4f}"
    )
