# SPDX-License-Identifier: Apache-2.0
"""The examples that the playground offers: one script with three silent mistakes, and pages of checks."""

from truestep.doctor.catalogue import checks
from truestep.doctor.page import MARK, PRELUDE

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

images, labels = torch.randn(1000, 64), torch.randint(10, (1000,))
train = DataLoader(TensorDataset(images[:800], labels[:800]), batch_size=32, shuffle=True)
test = DataLoader(TensorDataset(images[800:], labels[800:]), batch_size=32)
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.Softmax(dim=1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

for epoch in range(10):
    for inputs, targets in train:
        loss = F.cross_entropy(net(inputs), targets)
        loss.backward()
        optimizer.step()

correct = 0
for inputs, targets in test:
    correct += (net(inputs).argmax(dim=1) == targets).sum().item()
print(correct / len(images[800:]))
"""
CODES = (
    "GRAD001",
    "LOSS001",
    "AMP001",
    "EVAL002",
    "SCHED001",
    "PARAM020",
    "SAVE005",
    "DIST001",
)


def examples() -> list[dict[str, str]]:
    """Return the title and the code of each example."""
    found = [{"title": "Three silent mistakes", "code": SCRIPT}]
    for code in CODES:
        check = checks()[code]
        page = check.page()
        text = page.bad.replace(f"  {MARK}", "").replace(MARK, "")
        found.append({"title": f"{code} {check.name()}", "code": f"{PRELUDE}\n{text}"})
    return found
