# SPDX-License-Identifier: Apache-2.0
"""Double deep Q learning with a replay buffer and a target network that is copied now and then."""

import random
from collections import deque
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

random.seed(0)
torch.manual_seed(0)


class Transition(NamedTuple):
    state: Any
    action: Any
    next_state: Any
    reward: Any
    done: Any


class Corridor:
    """One goes left or right, and is paid at the right end."""

    def reset(self):
        self.x, self.t = random.random() - 0.5, 0
        return torch.tensor([self.x, 0.0])

    def step(self, action):
        self.x += (0.1 if action else -0.1) + random.gauss(0, 0.02)
        self.t += 1
        done = abs(self.x) > 1 or self.t >= 30
        return torch.tensor([self.x, self.t / 30]), float(self.x > 1), done


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


def make_net():
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))


policy_net, target_net = make_net(), make_net()
target_net.load_state_dict(policy_net.state_dict())
optimizer = torch.optim.Adam(policy_net.parameters(), lr=1e-3)
memory = ReplayMemory(1000)


def optimize_model(batch_size=32, gamma=0.95):
    if len(memory) < batch_size:
        return None
    batch = Transition(*zip(*memory.sample(batch_size), strict=True))
    states, next_states = torch.stack(batch.state), torch.stack(batch.next_state)
    actions = torch.tensor(batch.action).unsqueeze(1)
    rewards, done = torch.tensor(batch.reward), torch.tensor(batch.done)
    q = policy_net(states).gather(1, actions).squeeze(1)
    with torch.no_grad():
        best = policy_net(next_states).argmax(1, keepdim=True)
        target = rewards + gamma * target_net(next_states).gather(1, best).squeeze(1) * (~done)
    loss = F.smooth_l1_loss(q, target)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.item()


env, steps = Corridor(), 0
for episode in range(12):
    state, total = env.reset(), 0.0
    while True:
        eps = max(0.1, 1 - steps / 200)
        with torch.no_grad():
            action = random.randrange(2) if random.random() < eps else policy_net(state).argmax().item()
        next_state, reward, done = env.step(action)
        memory.push(state, action, next_state, reward, done)
        state, total, steps = next_state, total + reward, steps + 1
        optimize_model()
        if steps % 50 == 0:
            target_net.load_state_dict(policy_net.state_dict())
        if done:
            break
    print(f"episode {episode} return {total:.2f}")
