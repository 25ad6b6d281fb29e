# SPDX-License-Identifier: Apache-2.0
"""Images and captions are brought together by a symmetric contrastive loss with a temperature that is learned."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
WORDS = ["red", "green", "blue", "dark", "light", "square", "disk"]
VOCAB = {w: i + 1 for i, w in enumerate(WORDS)}


def make_pairs(n):
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(n):
        k = rng.integers(3)
        words = [WORDS[k], WORDS[3 + rng.integers(2)], WORDS[5 + rng.integers(2)]][: rng.integers(2, 4)]
        image = rng.normal(size=(3, 4, 4)).astype("float32") * 0.1
        image[k] += 1
        pairs.append((image, words))
    return pairs


def collate(pairs):
    images = torch.from_numpy(np.stack([image for image, _ in pairs]))
    tokens = [torch.tensor([VOCAB[w] for w in words]) for _, words in pairs]
    return images, nn.utils.rnn.pad_sequence(tokens, batch_first=True)


class CLIP(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.visual = nn.Sequential(nn.Flatten(), nn.Linear(48, dim))
        self.token = nn.Embedding(len(WORDS) + 1, dim, padding_idx=0)
        self.text = nn.Linear(dim, dim)
        self.logit_scale = nn.Parameter(torch.tensor(np.log(1 / 0.07), dtype=torch.float32))

    def forward(self, images, tokens):
        mask = (tokens != 0).float().unsqueeze(-1)
        text = (self.token(tokens) * mask).sum(1) / mask.sum(1)
        i = F.normalize(self.visual(images), dim=-1)
        t = F.normalize(self.text(text), dim=-1)
        return self.logit_scale.exp() * i @ t.t()


model = CLIP()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(3):
    for images, tokens in DataLoader(make_pairs(96), batch_size=12, shuffle=True, collate_fn=collate):
        logits = model(images, tokens)
        target = torch.arange(len(logits))
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(max=np.log(100))
    print(epoch, loss.item())
