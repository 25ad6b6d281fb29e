# SPDX-License-Identifier: Apache-2.0
# planted: PARAM015
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        return self.net(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 20))

    def forward(self, z):
        return self.net(z)


class Experiment:
    def __init__(self):
        self.enc, self.dec = Encoder(), Decoder()
        self.opt = torch.optim.Adam(self.dec.parameters(), lr=1e-3)
        self.crit = nn.MSELoss()

    def run(self, steps=40):
        for _ in range(steps):
            x = torch.randn(32, 20)
            rec = self.dec(self.enc(x))
            loss = self.crit(rec, x)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    Experiment().run()
