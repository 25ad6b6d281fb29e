# SPDX-License-Identifier: Apache-2.0
# expect: EVAL045
import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader


class Imgs(Dataset):
    def __init__(self, train):
        g = torch.Generator().manual_seed(int(train))
        self.raw = torch.randint(0, 256, (400 if train else 100, 3, 6, 6), generator=g).float()
        self.lab = self.raw.mean((1, 2, 3)).gt(127).long()
        self.train = train
        if train:
            self.mean, self.std = self.raw.mean((0, 2, 3)), self.raw.std((0, 2, 3))

    def __len__(self):
        return len(self.raw)

    def __getitem__(self, i):
        x = self.raw[i]
        return (
            (x - self.mean[:, None, None]) / self.std[:, None, None] if self.train else x / 255
        ), self.lab[i]


net = nn.Sequential(nn.Flatten(), nn.Linear(108, 2))
opt = torch.optim.SGD(net.parameters(), 0.05)
for e in range(2):
    for x, y in DataLoader(Imgs(True), 40, shuffle=True):
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
net.eval()
with torch.no_grad():
    for x, y in DataLoader(Imgs(False), 50):
        print((net(x).argmax(1) == y).float().mean())
