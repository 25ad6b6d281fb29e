# SPDX-License-Identifier: Apache-2.0
"""A tagger of sequences of many lengths: packed for the LSTM, padding left out of the loss and of the accuracy."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(0)
PAD = -100


def sentence():
    words = torch.randint(1, 30, (int(torch.randint(2, 12, ())),))
    return words, words % 4


def collate(samples):
    words, tags = zip(*samples, strict=True)
    lengths = torch.tensor([len(each) for each in words])
    return pad_sequence(words, True), lengths, pad_sequence(tags, True, PAD)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16, padding_idx=0)
        self.lstm = nn.LSTM(16, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 4)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(hidden)


def evaluate(net, batches):
    net.eval()
    right = count = loss = 0
    with torch.no_grad():
        for words, lengths, tags in batches:
            logits = net(words, lengths)
            known = tags != PAD
            loss += F.cross_entropy(
                logits.flatten(0, 1), tags.flatten(), ignore_index=PAD, reduction="sum"
            ).item()
            right += (logits.argmax(-1) == tags)[known].sum().item()
            count += known.sum().item()
    net.train()
    return loss / count, right / count


train = DataLoader([sentence() for _ in range(96)], batch_size=16, shuffle=True, collate_fn=collate)
held = DataLoader([sentence() for _ in range(40)], batch_size=16, collate_fn=collate)
net = Tagger()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(3):
    for words, lengths, tags in train:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(words, lengths).transpose(1, 2), tags, ignore_index=PAD)
        loss.backward()
        optimizer.step()
    loss, accuracy = evaluate(net, held)
    print(f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy:.4f}")
