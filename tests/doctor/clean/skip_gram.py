# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class SkipGram(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.centres = nn.Embedding(words, width, sparse=True)
        self.contexts = nn.Embedding(words, width, sparse=True)
        nn.init.uniform_(self.centres.weight, -0.5 / width, 0.5 / width)
        nn.init.zeros_(self.contexts.weight)

    def forward(self, centre, context, negatives):
        vectors = self.centres(centre)
        right = (vectors * self.contexts(context)).sum(1)
        wrong = torch.bmm(self.contexts(negatives), vectors.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(right) + F.logsigmoid(-wrong).sum(1)).mean()


model = SkipGram(100, 8)
optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=60)
for _step in range(60):
    centre, context = torch.randint(100, (32,)), torch.randint(100, (32,))
    loss = model(centre, context, torch.randint(100, (32, 5)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
vectors = F.normalize(model.centres.weight.detach())
print((vectors[0] @ vectors.T).topk(5).indices)
