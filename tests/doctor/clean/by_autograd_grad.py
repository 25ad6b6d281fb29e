# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)
        )

    def forward(self, x):
        return self.layers(x)


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(3, (64,))), batch_size=16, shuffle=True)
net = Net()
parameters = list(net.parameters())
optimizer = torch.optim.SGD(parameters, lr=0.1)
for _epoch in range(3):
    net.train()
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        optimizer.step()
    net.eval()
    with torch.no_grad():
        net(torch.randn(16, 4)).argmax(1)
for _ in range(8):  # sharpness along a random direction, in training mode
    net.train()
    x, y = torch.randn(16, 4), torch.randint(3, (16,))
    gradients = torch.autograd.grad(F.cross_entropy(net(x), y), parameters, create_graph=True)
    directions = [torch.randn_like(each) for each in parameters]
    slope = sum((one * other).sum() for one, other in zip(gradients, directions, strict=True))
    torch.autograd.grad(slope, parameters, allow_unused=True)
