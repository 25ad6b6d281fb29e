# SPDX-License-Identifier: Apache-2.0
# clean
# %% [markdown] exported notebook
import random, collections
import torch, torch.nn as nn, torch.optim as optim

torch.manual_seed(0)
random.seed(0)
# %%
policy = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
target = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
target.load_state_dict(policy.state_dict())
opt = optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
memory = collections.deque([], maxlen=500)
T = collections.namedtuple("T", "s a s2 r")


def select(s):
    if random.random() < 0.3:
        return torch.tensor([[random.randrange(2)]])
    with torch.no_grad():
        return policy(s).max(1).indices.view(1, 1)


def optimize():
    if len(memory) < 32:
        return
    b = T(*zip(*random.sample(memory, 32)))
    s, a, r = torch.cat(b.s), torch.cat(b.a), torch.cat(b.r)
    q = policy(s).gather(1, a)
    with torch.no_grad():
        nxt = target(torch.cat(b.s2)).max(1).values
    loss = nn.SmoothL1Loss()(q, (nxt * 0.99 + r).unsqueeze(1))
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
    opt.step()


# %%
s = torch.randn(1, 4)
for t in range(120):
    a = select(s)
    s2 = s * 0.9 + torch.randn(1, 4) * 0.3
    memory.append(T(s, a, s2, torch.tensor([float(s2[0, 0])])))
    s = s2
    optimize()
    if t % 10 == 0:
        target.load_state_dict(
            {k: policy.state_dict()[k] * 0.005 + target.state_dict()[k] * 0.995 for k in policy.state_dict()}
        )
