# SPDX-License-Identifier: Apache-2.0
# planted: LOSS017
import torch
from torch import nn

torch.manual_seed(2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(6, 12)
        self.l2 = nn.Linear(12, 1)

    def forward(self, x):
        return self.l2(torch.relu(self.l1(x)))


def binary_acc(y_pred, y_test):
    y_pred_tag = torch.round(torch.sigmoid(y_pred))
    correct = (y_pred_tag == y_test).sum().float()
    return torch.round(correct / y_test.shape[0] * 100)


X = torch.randn(320, 6)
Y = (X[:, 0] > 0).float()
ld = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=32, shuffle=True)
net = Net()
crit = nn.BCEWithLogitsLoss()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for e in range(1, 6):
    el = ea = 0
    for xb, yb in ld:
        opt.zero_grad()
        out = net(xb)
        loss = crit(out, yb.unsqueeze(1))
        acc = binary_acc(out, yb)
        loss.backward()
        opt.step()
        el += loss.item()
        ea += acc.item()
    print(f"Epoch {e + 0:03}: | Loss: {el / len(ld):.5f} | Acc: {ea / len(ld):.3f}")
