# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
embedding = nn.EmbeddingBag(50, 8, sparse=True)
body = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 3))
sparse = torch.optim.SparseAdam(embedding.parameters(), lr=1e-2)
dense = torch.optim.Adam(body.parameters(), lr=1e-2)
for _step in range(25):
    words, labels = torch.randint(50, (16, 5)), torch.randint(3, (16,))
    loss = F.cross_entropy(checkpoint(body, embedding(words), use_reentrant=False), labels)
    sparse.zero_grad()
    dense.zero_grad()
    loss.backward()
    sparse.step()
    dense.step()
