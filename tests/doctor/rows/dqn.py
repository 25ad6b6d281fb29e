# SPDX-License-Identifier: Apache-2.0
# expect:
import random, collections, copy, torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
q = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))
tgt = copy.deepcopy(q)
opt = torch.optim.Adam(q.parameters(), 1e-3)
mem = collections.deque(maxlen=500)


def reset():
    return torch.randn(4) * 0.05


s = reset()
for t in range(400):
    if random.random() < 0.2:
        a = random.randrange(2)
    else:
        with torch.no_grad():
            a = q(s[None]).argmax(1).item()
    s2 = s + torch.randn(4) * 0.1 + (a - 0.5) * 0.1
    r = -float(s2.abs().sum())
    d = float(s2.abs().max() > 1)
    mem.append((s, a, r, s2, d))
    s = reset() if d else s2
    if len(mem) > 64 and t % 4 == 0:
        S, A, R, S2, D = zip(*random.sample(mem, 32))
        S, S2 = torch.stack(S), torch.stack(S2)
        A, R, D = torch.tensor(A), torch.tensor(R), torch.tensor(D)
        with torch.no_grad():
            y = R + 0.99 * (1 - D) * tgt(S2).gather(1, q(S2).argmax(1, keepdim=True)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q(S).gather(1, A[:, None]).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if t % 100 == 99:
        tgt.load_state_dict(q.state_dict())
