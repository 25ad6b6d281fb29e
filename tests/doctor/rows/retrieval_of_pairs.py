# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn

torch.manual_seed(0)
image, text = nn.Linear(12, 8), nn.Linear(6, 8)
pictures, words = torch.randn(200, 12), torch.randn(200, 6)
opt = torch.optim.Adam([*image.parameters(), *text.parameters()], lr=1e-2)
for step in range(30):
    rows = torch.randperm(160)[:32]
    a, b = (
        nn.functional.normalize(image(pictures[rows]), dim=1),
        nn.functional.normalize(text(words[rows]), dim=1),
    )
    loss = nn.functional.cross_entropy(a @ b.T / 0.1, torch.arange(32))
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    a = nn.functional.normalize(image(pictures[160:]), dim=1)
    found = (a @ nn.functional.normalize(text(words[160:]), dim=1).T).argmax(1) == torch.arange(40)
    same = torch.cdist(a, a)
    same.fill_diagonal_(float("inf"))
    kinds = torch.arange(40) % 4
    knn = (kinds[same.argmin(1)] == kinds).float().mean()
    second = (kinds[(a @ a.T).topk(4).indices[:, 1:]] == kinds[:, None]).any(1).float().mean()
    third = (kinds[torch.cdist(a, a).argsort(1)] == kinds[:, None])[:, 1:3].float().mean()
    print(found.float().mean().item(), knn.item(), second.item(), third.item())
