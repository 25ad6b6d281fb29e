# SPDX-License-Identifier: Apache-2.0
"""A view that is written over while another one that overlaps it is read afterwards is asked of; others are not."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
LOOP = """
for x, y in loader:
    x = x.clone()
    FIRST
    out = net(F.pad(a, (0, 4 - a.shape[1])))
    loss = (out.amax(1) - b.float().sum(1)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
RIGHT = {
    "cloned": "a, b = x[:, :-1], x[:, 1:].clone(); b.masked_fill_(b < 0, 0.0)",
    "a new tensor": "a, b = x[:, :-1], x[:, 1:]; b = b.masked_fill(b < 0, 0.0)",
    "parts side by side": "a, b = x[:, :2], x[:, 2:]; b.zero_()",
    "the whole is read": "b = x[:, 1:]; b.zero_(); a = x",
    "a part of a part": "a = x[:, :3]; row = a[:, 0]; row.fill_(1.0); b = a",
    "nothing is written": "a, b = x[:, :-1], x[:, 1:]; b[b > 100] = 0.0",
    "written before": "x[:, 1:].clamp_(min=0); a, b = x[:, :-1], x[:, 1:]",
    "read before": "a, b = x[:, :-1], x[:, 1:]; a = a * 1; b.zero_()",
    "moved along": "x[:, :-1].copy_(x[:, 1:].clone()); a = b = x",
    "added up": "a, b = x[:, :-1], x[:, 1:]; b += 1",
    "a row and a column": "row, column = x[0], x[:, 0]; row.fill_(1.0); column.fill_(1.0); a = b = x",
    "chunks": "a, b = x.chunk(2, 1); b.zero_()",
}
FAULTY = {
    "masked": "a, b = x[:, :-1], x[:, 1:]; b.masked_fill_(b < 0, 0.0)",
    "by index": "a, b = x[:, :-1], x[:, 1:]; b[b < 0] = 0.0",
    "set to zero": "a, b = x[:, :-1], x[:, 1:]; b[:, -1:]; b.zero_()",
    "by narrow": "a, b = x.narrow(1, 0, 3), x.narrow(1, 1, 3); b.clamp_(min=0.3)",
    "the inputs": "a, b = x[:, :-1], x[:, 1:]; a.masked_fill_(a < 0, 5.0)",
    "copied into": "a, b = x[:, :-1], x[:, 1:]; b.copy_(torch.ones_like(b))",
    "filled": "a, b = x[:, :3], x[:, 2:]; b.fill_(3.0)",
    "by split and slice": "a = x[:, :-1]; b = x[:, 1:]; mask = b > 0.5; b[mask] = -1.0",
}


def watched_loop(first):
    return watched(LOOP.replace("FIRST", first), ("REL019", "REL024"))  # one that applies beside it


@pytest.mark.sliced(4)
@pytest.mark.parametrize("name", RIGHT)
def test_views_that_go_together_are_silent(name):
    watch = watched_loop(RIGHT[name])
    assert [each.message for each in watch.findings] == []
    assert watch.experiments.outcome("REL024")[0] in ("held", "not applicable")


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", FAULTY)
def test_a_view_that_is_written_over_is_asked_of(name):
    assert [each.code for each in watched_loop(FAULTY[name]).findings] == ["REL024"]
