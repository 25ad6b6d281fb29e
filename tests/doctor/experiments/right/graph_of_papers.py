# SPDX-License-Identifier: Apache-2.0
"""A graph network is trained on all nodes at once; masks say which are for training and for validation."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
N = 80
labels = torch.arange(N) % 4
features = torch.randn(N, 10) + F.one_hot(labels, 10)
edges = torch.randint(N, (2, 400))
edges = edges[:, (labels[edges[0]] == labels[edges[1]]) | (torch.rand(400) < 0.2)]
adj = torch.zeros(N, N)
adj[edges[0], edges[1]] = adj[edges[1], edges[0]] = 1
adj = adj + torch.eye(N)
adj = adj / adj.sum(1, keepdim=True)
idx_train, idx_val = torch.arange(40), torch.arange(40, 80)


class GraphConvolution(nn.Module):
    def __init__(self, fin, fout):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fin, fout))
        self.bias = nn.Parameter(torch.zeros(fout))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        return torch.spmm(adj, x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(10, 16), GraphConvolution(16, 4)

    def forward(self, x, adj):
        x = F.dropout(F.relu(self.gc1(x, adj)), 0.5, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(10):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        output = model(features, adj)
        acc_val = (output[idx_val].argmax(1) == labels[idx_val]).float().mean()
    print(f"Epoch: {epoch + 1:04d} loss_train: {loss_train.item():.4f} acc_val: {acc_val.item():.4f}")
