# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4)
        )

    def forward(self, x):
        return self.net(x)


class Classifier(nn.Module):
    def __init__(self, encoder, classes=3):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.encoder(x))


def pretrain(encoder, x):
    decoder = nn.Linear(4, 8)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    encoder.train()
    for rows in torch.randperm(len(x)).split(16):
        hidden = encoder(x[rows] + 0.1 * torch.randn(len(rows), 8))
        loss = F.mse_loss(decoder(hidden), x[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train(model, x, y, rate, epochs):
    parameters = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1], 0.1)
    for _ in range(epochs):
        model.train()
        if not any(each.requires_grad for each in model.encoder.parameters()):
            model.encoder.eval()
        for rows in torch.randperm(len(x)).split(16):
            loss = F.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


@torch.no_grad()
def test(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


x, y = torch.randn(160, 8), torch.randint(3, (160,))
encoder = Encoder()
pretrain(encoder, x[:128])
model = Classifier(encoder)
for parameter in model.encoder.parameters():
    parameter.requires_grad = False
train(model, x[:128], y[:128], rate=0.1, epochs=2)
print(test(model, x[128:], y[128:]))
for parameter in model.encoder.parameters():
    parameter.requires_grad = True
train(model, x[:128], y[:128], rate=0.01, epochs=2)
print(test(model, x[128:], y[128:]))
state = {name: each.clone() for name, each in model.state_dict().items()}
again = Classifier(Encoder())
again.load_state_dict(state)
print(test(again, x[128:], y[128:]))
