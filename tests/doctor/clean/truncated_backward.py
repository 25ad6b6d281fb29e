# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.rnn = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, tokens, state):
        out, state = self.rnn(self.embedding(tokens), state)
        return self.head(out), state


net = Language()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
text = torch.randint(1, 20, (4, 201))
for _epoch in range(2):
    state = None
    for start in range(0, 200, 10):
        x, y = text[:, start : start + 10], text[:, start + 1 : start + 11]
        logits, state = net(x, state)
        state = tuple(each.detach() for each in state)
        loss = F.cross_entropy(logits.reshape(-1, 20), y.reshape(-1), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
