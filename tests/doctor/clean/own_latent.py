# SPDX-License-Identifier: Apache-2.0
import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def perceptron(inputs, hidden, outputs):
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, outputs)
    )


class OwnLatent(nn.Module):
    """Two views, an online net with a predictor, a target net that follows it."""

    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(perceptron(8, 32, 16), perceptron(16, 32, 8))
        self.target = copy.deepcopy(self.online)
        self.target.requires_grad_(False)
        self.predictor = perceptron(8, 32, 8)

    @torch.no_grad()
    def follow(self, momentum=0.99):
        for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
            slow.data = momentum * slow.data + (1 - momentum) * fast.data

    def forward(self, first, second):
        online = [self.predictor(self.online(view)) for view in (first, second)]
        with torch.no_grad():
            target = [self.target(view).detach() for view in (second, first)]
        pairs = zip(online, target, strict=True)
        return sum(2 - 2 * F.cosine_similarity(mine, other, dim=-1) for mine, other in pairs).mean()


def probe(encoder, x, y, x_test, y_test):
    encoder.eval()
    with torch.no_grad():
        features, test_features = encoder(x), encoder(x_test)
    classifier = nn.Linear(features.size(1), 3)
    optimizer = torch.optim.LBFGS(classifier.parameters(), max_iter=10)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(classifier(features), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        accuracy = (classifier(test_features).argmax(1) == y_test).float().mean().item()
    encoder.train()
    return accuracy


model = OwnLatent()
trained = [each for each in model.parameters() if each.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3)
data, labels = torch.randn(96, 8), torch.randint(3, (96,))
for epoch in range(3):
    for rows in torch.randperm(64).split(16):
        x = data[rows]
        loss = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.follow()
    print(epoch, probe(model.online[0], data[:64], labels[:64], data[64:], labels[64:]))
