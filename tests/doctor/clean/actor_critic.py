# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.actor, self.critic = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, x):
        x = self.body(x)
        return self.actor(x), self.critic(x)


net = ActorCritic()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _update in range(10):
    states = torch.randn(64, 4)
    with torch.no_grad():
        logits, values = net(states)
        chosen = torch.distributions.Categorical(logits=logits)
        actions = chosen.sample()
        old = chosen.log_prob(actions)
    rewards = (actions == (states[:, 0] > 0)).float()
    advantages = rewards - values.squeeze(-1)
    for _epoch in range(4):
        for rows in torch.randperm(64).split(16):
            logits, values = net(states[rows])
            chosen = torch.distributions.Categorical(logits=logits)
            ratio = (chosen.log_prob(actions[rows]) - old[rows]).exp()
            gain = torch.min(ratio * advantages[rows], ratio.clamp(0.8, 1.2) * advantages[rows]).mean()
            value_loss = F.mse_loss(values.squeeze(-1), rewards[rows])
            loss = -gain + 0.5 * value_loss - 0.01 * chosen.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
