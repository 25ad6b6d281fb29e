# SPDX-License-Identifier: Apache-2.0
# planted: DATA015
import torch
from torch import nn

torch.manual_seed(0)


class Pool(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.score = nn.Linear(d, 1)

    def forward(self, h):
        w = torch.softmax(self.score(h), dim=0)  # over the batch
        return (w * h).sum(1)


class SentimentModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(100, 16, padding_idx=0)
        self.rnn = nn.LSTM(16, 16, batch_first=True, bidirectional=True)
        self.pool = Pool(32)
        self.fc = nn.Linear(32, 2)
        self.drop = nn.Dropout(0.3)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.fc(self.drop(self.pool(h)))


ids = torch.randint(1, 100, (256, 15))
lab = (ids[:, 0] > 50).long()
net = SentimentModel()
opt = torch.optim.Adam(net.parameters())
lf = nn.CrossEntropyLoss()
for ep in range(3):
    for b in torch.randperm(256).split(16):
        opt.zero_grad()
        lf(net(ids[b]), lab[b]).backward()
        opt.step()
