# SPDX-License-Identifier: Apache-2.0
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
random.seed(0)


def make():
    return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))


online, target = make(), make()
target.load_state_dict(online.state_dict())
target.eval()
optimizer = torch.optim.RMSprop(online.parameters(), lr=1e-3)
memory = deque(maxlen=1000)
state = torch.randn(4)
for step in range(120):
    with torch.no_grad():
        action = int(online(state).argmax()) if random.random() > 0.2 else random.randrange(2)
    following = torch.randn(4)
    memory.append((state, action, float(action == (state[0] > 0)), following))
    state = following
    if len(memory) < 32:
        continue
    states, actions, rewards, nexts = zip(*random.sample(memory, 32), strict=True)
    values = online(torch.stack(states)).gather(1, torch.tensor(actions).unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        wanted = torch.tensor(rewards) + 0.9 * target(torch.stack(nexts)).max(1).values
    loss = F.smooth_l1_loss(values, wanted)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(online.parameters(), 100)
    optimizer.step()
    if step % 20 == 0:
        target.load_state_dict(online.state_dict())
