# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.randn(48, 12)
worth = x.sum(1)
LOSSES = [
    lambda a, b, sign: F.margin_ranking_loss(a, b, sign, margin=0.1),
    lambda a, b, sign: F.binary_cross_entropy_with_logits(a - b, (sign + 1) / 2),
    lambda a, b, sign: (F.relu(0.1 - sign * (a - b))).mean(),
    lambda a, b, sign: nn.SoftMarginLoss()(a - b, sign),
    lambda a, b, sign: F.cross_entropy(torch.stack([a, b], 1), (sign < 0).long()),
    lambda a, b, sign: F.mse_loss(torch.tanh(a - b), sign),
    lambda a, b, sign: F.cosine_embedding_loss(a[:, None].expand(-1, 2), b[:, None].expand(-1, 2), sign),
    lambda a, b, sign: (
        (1 + sign) / 2 * (a - b) ** 2 + (1 - sign) / 2 * F.relu(1 - (a - b).abs()) ** 2
    ).mean(),
]
for loss_of in LOSSES:
    net = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))
    opt = torch.optim.SGD(net.parameters(), 0.01)
    for epoch in range(4):
        for first, second in zip(torch.randperm(48).split(16), torch.randperm(48).split(16)):
            sign = torch.sign(worth[first] - worth[second] + 1e-3)
            opt.zero_grad()
            loss_of(net(x[first]).squeeze(1), net(x[second]).squeeze(1), sign).backward()
            opt.step()
