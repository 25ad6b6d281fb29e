# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        normed, causal = self.norm1(x), nn.Transformer.generate_square_subsequent_mask(x.size(1))
        x = x + self.attention(normed, normed, normed, attn_mask=causal, need_weights=False)[0]
        return x + self.feed(self.norm2(x))


class Deep(nn.Module):
    def __init__(self, words=40, width=16, depth=3):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.place = nn.Parameter(0.02 * torch.randn(12, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.tail = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, words)

    def forward(self, words):
        x = self.embed(words) + self.place[: words.size(1)]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return self.head(checkpoint_sequential(self.tail, 2, x, use_reentrant=False))


model = Deep()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
for step in range(30):
    words = torch.randint(40, (8, 13))
    logits = model(words[:, :-1])
    loss = F.cross_entropy(logits.transpose(1, 2), words[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    warmup.step()
    if (step + 1) % 10 == 0:
        model.eval()
        with torch.inference_mode():
            held_out = torch.randint(40, (8, 13))
            perplexity = F.cross_entropy(
                model(held_out[:, :-1]).flatten(0, 1), held_out[:, 1:].flatten()
            ).exp()
        model.train()
