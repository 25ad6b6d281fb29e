# SPDX-License-Identifier: Apache-2.0
# expect: EVAL046
import torch
from torch import nn


class Retrieval:
    def __init__(self):
        self.enc = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
        self.opt = torch.optim.SGD(self.enc.parameters(), lr=1e-2)

    def fit(self, x, y):
        for i in range(10):
            a, p, n = x[y == 0][:20], x[y == 0][20:40], x[y == 1][:20]
            nn.functional.triplet_margin_loss(self.enc(a), self.enc(p), self.enc(n)).backward()
            self.opt.step()
            self.opt.zero_grad()

    @torch.inference_mode()
    def precision(self, x, y, k=3):
        self.enc.eval()
        z = nn.functional.normalize(self.enc(x), dim=-1)
        top = (z @ z.t()).topk(k, dim=1)[1]
        return y[top].eq(y.view(-1, 1)).sum().item() / (k * len(y))


torch.manual_seed(1)
X, Y = torch.randn(300, 10), torch.randint(2, (300,))
r = Retrieval()
r.fit(X[:200], Y[:200])
print(r.precision(X[200:], Y[200:]))
