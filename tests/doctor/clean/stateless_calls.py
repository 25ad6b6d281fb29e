# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 16), nn.Linear(16, 2)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.second(self.drop(torch.relu(self.first(x))))


class Hyper(nn.Module):
    """Makes the weights of another net's head from a description of the task."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.maker = nn.Linear(3, 2 * 16 + 2)

    def forward(self, task, x):
        made = self.maker(task)
        weights = {"second.weight": made[:32].view(2, 16), "second.bias": made[32:]}
        return functional_call(self.net, {**dict(self.net.named_parameters()), **weights}, (x,))


model = Hyper(Net())
used = [each for name, each in model.named_parameters() if not name.startswith("net.second")]
optimizer = torch.optim.Adam(used, lr=1e-3)
for step in range(30):
    model.train()
    optimizer.zero_grad()
    for _task in range(2):
        loss = F.cross_entropy(model(torch.randn(3), torch.randn(16, 5)), torch.randint(2, (16,)))
        (loss / 2).backward()
    optimizer.step()
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            model(torch.randn(3), torch.randn(16, 5)).argmax(1)
