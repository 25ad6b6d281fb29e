# SPDX-License-Identifier: Apache-2.0
"""A translator: masked encoder and causal decoder, shifted targets, label smoothing, a warm-up, greedy decoding."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
PAD, BEGIN, END = 0, 1, 2


class Reversals(Dataset):
    def __init__(self, size):
        self.rows = [torch.randint(3, 20, (int(torch.randint(2, 7, ())),)) for _ in range(size)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return {"source": self.rows[row], "target": self.rows[row].flip(0)}


def collate(samples):
    source = nn.utils.rnn.pad_sequence([each["source"] for each in samples], True, PAD)
    ends = [F.pad(F.pad(each["target"], (1, 0), value=BEGIN), (0, 1), value=END) for each in samples]
    return {"source": source, "target": nn.utils.rnn.pad_sequence(ends, True, PAD)}


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 16, padding_idx=PAD), nn.Embedding(10, 16)
        self.body = nn.Transformer(16, 2, 1, 1, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 20, bias=False)

    def embedded(self, words):
        return self.words(words) + self.places(torch.arange(words.shape[1]))

    def forward(self, source, target):
        hidden = self.body(
            self.embedded(source),
            self.embedded(target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.bool),
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        return self.head(hidden)


def loss_of(net, batch, smoothing=0.0):
    logits = net(batch["source"], batch["target"][:, :-1])
    return F.cross_entropy(
        logits.flatten(0, 1), batch["target"][:, 1:].flatten(), ignore_index=PAD, label_smoothing=smoothing
    )


net = Translator()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 20, 1.0))
train = DataLoader(Reversals(320), batch_size=16, shuffle=True, collate_fn=collate)
held = DataLoader(Reversals(60), batch_size=16, collate_fn=collate)
for epoch in range(3):
    net.train()
    for batch in train:
        optimizer.zero_grad()
        loss_of(net, batch, 0.1).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    net.eval()
    total = count = 0
    with torch.no_grad():
        for batch in held:
            words = int((batch["target"][:, 1:] != PAD).sum())
            total += loss_of(net, batch).item() * words
            count += words
    print(f"epoch {epoch}: loss per word {total / count:.4f}")
