# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn

torch.manual_seed(0)
emb = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
opt = torch.optim.Adam(emb.parameters(), 1e-3)
bank = torch.randn(20, 30, 16)


def episode(classes, way=5, shot=3, query=4):
    c = classes[torch.randperm(len(classes))[:way]]
    rows = torch.stack([torch.randperm(30)[: shot + query] for _ in range(way)])
    x = bank[c[:, None], rows]
    y = torch.arange(way).repeat_interleave(query)
    z = emb(torch.cat([x[:, :shot].reshape(-1, 16), x[:, shot:].reshape(-1, 16)]))
    proto, q = z[: way * shot].view(way, shot, -1).mean(1), z[way * shot :]
    return -torch.cdist(q, proto), y


for it in range(40):
    lg, y = episode(torch.arange(12))
    loss = nn.functional.cross_entropy(lg, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 10 == 9:
        with torch.no_grad():
            print((lambda o: (o[0].argmax(1) == o[1]).float().mean().item())(episode(torch.arange(12, 20))))
