# SPDX-License-Identifier: Apache-2.0
# planted: LOSS001
import argparse, random
import numpy as np
import torch, torch.nn as nn, torch.optim as optim
from torch.utils.data import Dataset, DataLoader


class Blobs(Dataset):
    def __init__(self, n=256):
        g = np.random.RandomState(n)
        self.X = g.randn(n, 12).astype("float32")
        self.Y = (self.X[:, 0] > 0).astype("int64") + (self.X[:, 1] > 0)

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i], self.Y[i]


class MLP(nn.Module):
    def __init__(self, d, h, c):
        super(MLP, self).__init__()
        self.body = nn.Sequential(nn.Linear(d, h), nn.BatchNorm1d(h), nn.ReLU(inplace=True), nn.Dropout(0.2))
        self.out = nn.Linear(h, c)

    def forward(self, x):
        x = self.body(x)
        return torch.softmax(self.out(x), dim=-1)


def train(args, model, device, loader, opt, epoch):
    model.train()
    crit = nn.CrossEntropyLoss()
    for i, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        opt.zero_grad()
        output = model(data)
        loss = crit(output, target)
        loss.backward()
        opt.step()


def test(model, device, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            correct += model(data.to(device)).argmax(1).eq(target.to(device)).sum().item()
    print(
        "\nTest set: Accuracy: {}/{} ({:.0f}%)\n".format(
            correct, len(loader.dataset), 100.0 * correct / len(loader.dataset)
        )
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    args = p.parse_args()
    torch.manual_seed(1)
    device = torch.device("cpu")
    tr, te = DataLoader(Blobs(), 32, shuffle=True), DataLoader(Blobs(64), 64)
    model = MLP(12, 32, 3).to(device)
    opt = optim.Adadelta(model.parameters(), lr=0.5)
    sch = optim.lr_scheduler.StepLR(opt, 1, 0.7)
    for e in range(args.epochs):
        train(args, model, device, tr, opt, e)
        test(model, device, te)
        sch.step()


if __name__ == "__main__":
    main()
