# SPDX-License-Identifier: Apache-2.0
"""A transformer encoder learns words that the collation masks, and is evaluated on words masked once."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
PAD, MASK, WORDS = 0, 1, 20


def make_sentence(i):
    generator = torch.Generator().manual_seed(i)
    first = torch.randint(2, WORDS, (1,), generator=generator).item()
    length = torch.randint(5, 10, (1,), generator=generator).item()
    return torch.tensor([2 + (first + k) % (WORDS - 2) for k in range(length)])


class Masking:
    def __init__(self, share=0.2, generator=None):
        self.share, self.generator = share, generator

    def __call__(self, rows):
        tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        chosen = (torch.rand(tokens.shape, generator=self.generator) < self.share) & (tokens != PAD)
        chosen[:, 0] = True
        labels = tokens.masked_fill(~chosen, -100)
        return {
            "input_ids": tokens.masked_fill(chosen, MASK),
            "labels": labels,
            "attention_mask": tokens != PAD,
        }


class Encoder(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.tokens, self.places = nn.Embedding(WORDS, d, padding_idx=PAD), nn.Embedding(16, d)
        layer = nn.TransformerEncoderLayer(d, 2, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, WORDS)

    def forward(self, input_ids, attention_mask):
        x = self.tokens(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        return self.head(self.encoder(x, src_key_padding_mask=~attention_mask))


train = [make_sentence(i) for i in range(96)]
held_out = [make_sentence(1000 + i) for i in range(20)]
fixed = [Masking(generator=torch.Generator().manual_seed(5))(held_out[i : i + 10]) for i in (0, 10)]
loader = DataLoader(train, batch_size=12, shuffle=True, collate_fn=Masking())
model = Encoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
for epoch in range(3):
    model.train()
    for batch in loader:
        labels = batch.pop("labels")
        logits = model(**batch)
        loss = F.cross_entropy(logits.view(-1, WORDS), labels.view(-1), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    right = total = 0
    with torch.no_grad():
        for batch in fixed:
            logits = model(batch["input_ids"], batch["attention_mask"])
            asked = batch["labels"] != -100
            right += (logits.argmax(-1)[asked] == batch["labels"][asked]).sum().item()
            total += asked.sum().item()
    print(f"epoch {epoch}: accuracy {right / total:.4f}")
