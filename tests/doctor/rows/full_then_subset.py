# SPDX-License-Identifier: Apache-2.0
# expect: DATA040
import numpy as np, torch
from torch import nn

rng = np.random.default_rng(1)
X = rng.normal(size=(900, 12)).astype("float32")
w = rng.normal(size=12)
Y = (X @ w > 0).astype("int64")
idx = rng.permutation(900)
val_idx, train_idx = idx[:180], idx[180:]
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))
optim = torch.optim.Adam(model.parameters(), 1e-3)
crit = nn.CrossEntropyLoss()
for epoch in range(4):
    order = rng.permutation(900)  # forgot train_idx
    for k in range(0, 900, 50):
        b = order[k : k + 50]
        optim.zero_grad()
        loss = crit(model(torch.from_numpy(X[b])), torch.from_numpy(Y[b]))
        loss.backward()
        optim.step()
    with torch.no_grad():
        acc = (model(torch.from_numpy(X[val_idx])).argmax(-1).numpy() == Y[val_idx]).mean()
    print(epoch, acc)
