# SPDX-License-Identifier: Apache-2.0
# expect: EVAL044
import torch, random
from torch import nn
from torch.utils.data import Dataset, DataLoader, Subset


class Pics(Dataset):
    def __init__(self, n=300, augment=True):
        g = torch.Generator().manual_seed(0)
        self.x = torch.rand(n, 1, 8, 8, generator=g)
        self.y = torch.randint(0, 5, (n,), generator=g)
        self.augment = augment

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        im = self.x[i]
        if self.augment and random.random() < 0.5:
            im = im.flip(-1)
        return im, self.y[i]


data = Pics()
order = torch.randperm(300, generator=torch.Generator().manual_seed(2)).tolist()
tl, vl = DataLoader(Subset(data, order[:240]), 24, shuffle=True), DataLoader(Subset(data, order[240:]), 20)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
opt = torch.optim.Adam(net.parameters())
for ep in range(4):
    net.train()
    for x, y in tl:
        opt.zero_grad(set_to_none=True)
        nn.CrossEntropyLoss()(net(x), y).backward()
        opt.step()
    net.eval()
    tot = 0.0
    with torch.inference_mode():
        for x, y in vl:
            tot += nn.functional.cross_entropy(net(x), y, reduction="sum").item()
    print(tot / 60)
