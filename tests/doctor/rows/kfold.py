# SPDX-License-Identifier: Apache-2.0
# expect:
import torch, copy
from torch import nn

torch.manual_seed(0)
X = torch.randn(200, 8)
y = X.sum(1, keepdim=True) + 0.1 * torch.randn(200, 1)
folds = torch.randperm(200).chunk(5)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
start = copy.deepcopy(net.state_dict())
scores = []
for k in range(5):
    if k % 2:
        net.load_state_dict(start)
    else:
        for l in net:
            if hasattr(l, "reset_parameters"):
                l.reset_parameters()
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    tr = torch.cat([f for i, f in enumerate(folds) if i != k])
    for ep in range(6):
        for b in tr[torch.randperm(160)].split(40):
            loss = ((net(X[b]) - y[b]) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        scores.append(((net(X[folds[k]]) - y[folds[k]]) ** 2).mean().item())
print(scores)
