# SPDX-License-Identifier: Apache-2.0
"""Results of layers: of all ways to use one none is taken for a loss, and what is thrown away is found with its line."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
NET = """
from torch.utils.checkpoint import checkpoint

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, given):
        return 2 * given
    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.act, self.drop = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Dropout(0.1)
        self.norm, self.gate, self.aux = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 1)
    def forward(self, x, way):
        hidden = self.inner(x)
        if way == "in place":
            self.act(hidden)
        elif way == "a function with its own backward":
            hidden = Doubled.apply(self.gate(hidden))
        elif way == "kept":
            self.kept = self.aux(hidden)
        elif way == "returned in a list":
            return self.norm(hidden), [{"more": self.aux(hidden)}]
        elif way == "in place of a part":
            hidden = torch.cat([hidden[:, :2], self.gate(hidden)[:, 2:]], 1)
        elif way == "computed anew":
            hidden = checkpoint(self.gate, hidden, use_reentrant=False)
        elif way == "under a name":
            dropped = self.drop(hidden)
        elif way == "a statement":
            self.norm(hidden)
        elif way == "only looked at":
            assert self.gate(hidden).shape == x.shape
        return hidden, None

block, head = Block(), nn.Linear(4, 3)
opt = torch.optim.SGD([*block.parameters(), *head.parameters()], lr=0.1)
for x, y in loader:
    opt.zero_grad()
    hidden, more = block(x, WAY)
    F.cross_entropy(head(hidden), y).backward()
    opt.step()
"""
USED = (
    *("in place", "a function with its own backward", "kept", "returned in a list"),
    *("in place of a part", "computed anew"),
)
LOST = {"under a name": "drop", "a statement": "norm", "only looked at": "gate"}


def findings(way):
    watch = watched(NET.replace("WAY", repr(way)), ("REL012",))
    assert watch.experiments.records["REL012"].not_tried is None
    return [each.message for each in watch.findings]


@pytest.mark.sliced(3)
@pytest.mark.parametrize("way", USED)
def test_what_is_used_in_any_way_is_not_lost(way):
    assert findings(way) == []


@pytest.mark.parametrize("way", LOST)
def test_what_is_thrown_away_is_lost(way):
    (found,) = findings(way)
    assert found.startswith(f"the result of {LOST[way]} is lost")
