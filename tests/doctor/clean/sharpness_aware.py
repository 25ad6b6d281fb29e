# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Sharpness(torch.optim.Optimizer):
    """Steps with the gradient from where the loss nearby is highest."""

    def __init__(self, parameters, base, radius=0.05, **options):
        super().__init__(parameters, {"radius": radius, **options})
        self.base = base(self.param_groups, **options)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def climb(self):
        held = [each for group in self.param_groups for each in group["params"] if each.grad is not None]
        norm = torch.stack([each.grad.norm() for each in held]).norm()
        for each in held:
            self.state[each]["before"] = each.detach().clone()
            each.add_(each.grad, alpha=0.05 / (norm.item() + 1e-12))
        self.zero_grad()

    @torch.no_grad()
    def descend(self):
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each.copy_(self.state[each]["before"])
        self.base.step()
        self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError("climb, then descend")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.layer(x))))


net = Net()
optimizer = Sharpness(net.parameters(), torch.optim.SGD, lr=0.1)
for _step in range(25):
    x, y = torch.randn(32, 6), torch.randint(3, (32,))
    F.cross_entropy(net(x), y).backward()
    optimizer.climb()
    F.cross_entropy(net(x), y).backward()
    optimizer.descend()
net.eval()
with torch.no_grad():
    net(torch.randn(8, 6))
