# SPDX-License-Identifier: Apache-2.0
"""Losses that are a ratio of sums over the batch mix its examples on purpose: that is asked, and the quotient is named."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

from truestep.doctor.check import QUESTION, RISK

pytestmark = needs_forks
LOOP = """
seg, seg3 = nn.Conv2d(1, 1, 3, padding=1), nn.Conv2d(1, 3, 3, padding=1)
opt = torch.optim.SGD([*seg.parameters(), *seg3.parameters()], lr=0.1)
pictures = torch.randn(32, 1, 6, 6), (torch.rand(32, 1, 6, 6) > 0.5).float()
class Dice(nn.Module):
    def forward(self, logits, t):
        p, t = torch.sigmoid(logits).view(-1), t.view(-1)
        return 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)
def classes(y): return F.one_hot((y[:, 0] * 2).long(), 3).permute(0, 3, 1, 2).float()
for x, y in DataLoader(TensorDataset(*pictures), batch_size=8, shuffle=True):
    p = torch.sigmoid(seg(x))
    LOSS
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
MEANT = {
    "a module": "loss = Dice()(seg(x), y)",
    "a dot product": "p, t = p.flatten(), y.flatten(); loss = 1 - 2 * torch.dot(p, t) / (p.square().sum() + t.sum())",
    "a union": "both = (p * y).sum(); loss = 1 - both / ((p + y).sum() - both)",
    "einsum": "loss = 1 - 2 * torch.einsum('bchw,bchw->', p, y) / (p.sum() + y.sum())",
    "classes": "p, t, d = seg3(x).softmax(1), classes(y), (0, 2, 3); loss = -((p * t).sum(d) / (p.sum(d) + t.sum(d))).mean()",
    "classes first": "p, t = (each.transpose(0, 1).reshape(3, -1) for each in (seg3(x).softmax(1), classes(y)));"
    " loss = -((p * t).sum(1) / (p.sum(1) + t.sum(1))).mean()",
    "misses": "hit = (p * y).sum(); loss = 1 - hit / (hit + 0.3 * (p * (1 - y)).sum() + 0.7 * ((1 - p) * y).sum())",
    "a logarithm": "loss = -torch.log((2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1))",
    "weights that are learned": "loss = (p * (seg3(x)[:, :1] - y).square()).sum() / p.sum()",
}
SLIPS = {
    "spread beside a ratio": "p, t = p.mean((2, 3)), y.mean((1, 2, 3)); loss = (p - t).square().mean() + Dice()(seg(x), y)",
    "a wrong dimension within": "p, t, d = seg3(x).softmax(0), classes(y), (1, 2, 3);"
    " loss = -((p * t).sum(d) / (p.sum(d) + t.sum(d))).mean()",
}


def told(loss):
    (found,) = watched(LOOP.replace("LOSS", loss), ("REL002",)).findings
    return found


@pytest.mark.sliced(3)
@pytest.mark.parametrize("case", MEANT)
def test_a_ratio_of_sums_is_asked_and_named(case):
    found = told(MEANT[case])
    assert found.severity == QUESTION
    assert "examples first meet in div of" in found.message
    assert "as a Dice loss is?" in found.message
    assert "stays as it is" in found.fix


@pytest.mark.parametrize("case", SLIPS)
def test_a_slip_beside_or_within_a_ratio_is_a_risk(case):
    found = told(SLIPS[case])
    assert found.severity == RISK
    assert "Dice" not in found.message.partition("at <")[0]
