# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.features(x))


def attacked(model, x, y, radius=0.1, steps=3):
    was_training = model.training
    model.eval()
    change = torch.zeros_like(x).uniform_(-radius, radius).requires_grad_()
    for _ in range(steps):
        loss = F.cross_entropy(model(x + change), y)
        (gradient,) = torch.autograd.grad(loss, change)
        change = (change.detach() + radius / 2 * gradient.sign()).clamp(-radius, radius).requires_grad_()
    model.train(was_training)
    return (x + change).detach()


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _step in range(30):
    x, y = torch.randn(32, 10), torch.randint(3, (32,))
    hostile = attacked(model, x, y)
    loss = F.cross_entropy(model(hostile), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
x_test, y_test = torch.randn(64, 10), torch.randint(3, (64,))
hostile = attacked(model, x_test, y_test)
with torch.no_grad():
    print(
        (model(x_test).argmax(1) == y_test).float().mean(),
        (model(hostile).argmax(1) == y_test).float().mean(),
    )
