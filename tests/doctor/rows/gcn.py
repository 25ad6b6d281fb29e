# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn

torch.manual_seed(0)
N = 200
A = (torch.rand(N, N) < 0.05).float()
A = ((A + A.T) > 0).float() + torch.eye(N)
A = A / A.sum(1, keepdim=True)
X = torch.randn(N, 16)
y = torch.randint(3, (N,))
tm = torch.zeros(N, dtype=torch.bool)
tm[:60] = True


class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x, adj):
        return adj @ self.b((adj @ self.a(x)).relu())


g = G()
opt = torch.optim.Adam(g.parameters(), 1e-2)
for e in range(30):
    g.train()
    opt.zero_grad()
    out = g(X, A)
    nn.functional.cross_entropy(out[tm], y[tm]).backward()
    opt.step()
    g.eval()
    with torch.no_grad():
        pred = g(X, A).argmax(1)
        acc = (pred[~tm] == y[~tm]).float().mean()
        ok = pred == y
    if e % 10 == 0:
        print(acc.item(), ok[~tm].float().mean().item())
