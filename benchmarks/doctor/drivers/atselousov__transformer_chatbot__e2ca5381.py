# SPDX-License-Identifier: Apache-2.0
"""A decoder of two blocks that attends to an encoded context, on made-up questions and answers."""

import torch
import torch.nn.functional as F
from absent import stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

stand_ins("utils")  # the repository's own asks for packages that are absent
with_gradient, masked_fill = (
    torch.Tensor.requires_grad_,
    torch.Tensor.masked_fill_,
)  # masks were bytes in torch 1.0
torch.Tensor.requires_grad_ = lambda self, *on: with_gradient(self, *on) if self.is_floating_point() else self
torch.Tensor.masked_fill_ = lambda self, mask, value: masked_fill(self, mask.bool(), value)
from transformer import TransformerModule

torch.manual_seed(0)
questions = torch.randint(4, 40, (480, 9))
questions[:, 7:] = 0
answers = torch.cat([torch.ones(480, 1).long(), questions[:, :6], torch.full((480, 1), 2)], 1)
loader = DataLoader(TensorDataset(questions, answers), batch_size=16, shuffle=True)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = {
            "n_layers": 2,
            "n_embeddings": 40,
            "n_pos_embeddings": 12,
            "embeddings_size": 32,
            "padding_idx": 0,
            "n_heads": 4,
        }
        self.transformer = TransformerModule(
            **sizes, dropout=0.1, embed_dropout=0.1, attn_dropout=0.1, ff_dropout=0.1
        )
        self.head = nn.Linear(32, 40)

    def forward(self, question, answer):
        context = self.transformer(question)
        output, _ = self.transformer(answer, [context])
        return self.head(output)


net = Model()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(2):
    for question, answer in loader:
        prediction = net(question, answer[:, :-1])
        loss = F.cross_entropy(prediction.flatten(0, 1), answer[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
