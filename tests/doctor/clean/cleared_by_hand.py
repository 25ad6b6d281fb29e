# SPDX-License-Identifier: Apache-2.0
import torch

torch.manual_seed(0)
x = torch.randn(64, 10)
y = x @ torch.randn(10, 1)
w1 = (torch.randn(10, 16) / 3).requires_grad_()
w2 = (torch.randn(16, 1) / 4).requires_grad_()
for _step in range(30):
    loss = ((x @ w1).clamp(min=0) @ w2 - y).square().mean()
    loss.backward()
    with torch.no_grad():
        for w in (w1, w2):
            w -= 1e-2 * w.grad
            w.grad.zero_()

layer = torch.nn.Linear(10, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
for _step in range(30):
    loss = (layer(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    for parameter in layer.parameters():
        parameter.grad.zero_()
