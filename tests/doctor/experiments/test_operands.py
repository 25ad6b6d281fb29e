# SPDX-License-Identifier: Apache-2.0
"""Conditions that decide nothing, and values that are paired with themselves, are told; those that do decide are not."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
LOOP = """
for x, y in loader:
    out = net(x)
    errors = F.cross_entropy(out, y, reduction="none")
    onehot = F.one_hot(y, 3).float()
    FIRST
    opt.zero_grad()
    (LOSS).backward()
    opt.step()
"""
CE = "errors.mean()"
RIGHT = {
    "huber": ("d = out - onehot", "torch.where(d.abs() < 1, d ** 2 / 2, d.abs() - 0.5).mean()"),
    "a mask of the batch": ("m = y != 0", "(errors * m).sum() / m.sum().clamp(min=1)"),
    "an index": ("m = y > 0", "errors[m].sum() / len(errors)"),
    "an expectile": ("d = out - onehot", "(torch.where(d < 0, 0.3, 0.7) * d ** 2).mean()"),
    "in arithmetic": ("d = out - onehot", "((0.7 - (d < 0).float()).abs() * d ** 2).mean()"),
    "a figure": ("hits = (out.argmax(1) == y).float().mean()", CE),
    "a figure of what has a graph": ("hits = out[out > 0].mean()", CE),
    "a guard": ("safe = torch.where(torch.isnan(out), torch.zeros_like(out), out)", "F.cross_entropy(safe, y)"),
    "an assertion": ("assert (out.square() >= 0).all()", CE),
    "a term of weight 0": ("extra = torch.where(out > 0, out, -out).mean()", "errors.mean() + 0 * extra"),
    "the sign of a bounded norm": ("n = out.norm(dim=1); n = torch.where(n > 0, n, torch.ones_like(n))", "(errors / n).mean()"),
    "a threshold of probabilities": ("p = out.sigmoid()", "(errors * (p[:, 0] > 0.5)).sum() / len(y) + errors.mean()"),
    "filled in": ("z = out.masked_fill(onehot.bool() & (out > 0), 0.0)", "F.cross_entropy(out + 0.1 * z, y)"),
    "written into": ("z = out * 1; z[z < 0] *= 0.1", "F.cross_entropy(z, y)"),
    "pairs": ("far = (x.unsqueeze(1) - x.unsqueeze(0)).square().sum(-1)", "(errors * (1 + far.mean())).mean()"),
    "pairs of axes": ("t = out.unsqueeze(1) * out.unsqueeze(2)", "errors.mean() + t.square().mean() * 1e-3"),
    "pairs of a mask": ("m = (x > 0).float(); t = m[:, :, None] * m[:, None, :]", "(errors * t.mean((1, 2))).mean()"),
    "a square of one view": ("v = out.unsqueeze(1)", "errors.mean() + (v * v).mean() * 1e-3"),
    "views of two values": ("t = x.unsqueeze(1)[:, :, :3] * out.unsqueeze(1)", "errors.mean() + t.mean() * 1e-3"),
    "parts of one value": ("t = out[:, None, :1] * out[:, None, 1:2]", "errors.mean() + t.mean() * 1e-3"),
    "a term twice, by one name": ("", "errors.mean() + errors.mean().detach() + F.nll_loss(out.log_softmax(1), 0 * y)"),
    "two passes with dropout": (
        "one, two = (F.dropout(out, 0.5) for _ in range(2))",
        "F.cross_entropy(one, y) + F.cross_entropy(two, y)",
    ),
    "two draws": (
        "one, two = (out + torch.randn(out.shape) for _ in range(2))",
        "torch.min(one.mean(), two.mean()) + errors.mean()",
    ),
    "both directions": (
        "s = out @ out.T + torch.triu(out @ out.T)",
        "F.cross_entropy(s, y) + F.cross_entropy(s.T, y) + errors.mean()",
    ),
    "a clip that is not reached": ("r = (out - out.detach()).exp()", "-torch.min(r, r.clamp(0.8, 1.2)).mean() + errors.mean()"),
    "two terms that are 0": ("a, b = (out - out).sum(), (x.sum() * out - x.sum() * out).sum()", "(a + b) + errors.mean()"),
}  # fmt: skip
FAULTY = {
    "equal branches": ("d = out - onehot", "(torch.where(d < 0, d, d) ** 2).mean()"),
    "equal by another way": ("d = out - onehot", "torch.where(d < 0, d ** 2, (-d) ** 2).mean()"),
    "no factor": ("d = out - onehot; far = (d > 0).float()", "((1 - far) * d ** 2 + far * d ** 2).mean()"),
    "filled in where it was": ("z = out.masked_fill(out < 0, 0.0); z = torch.where(out < 0, out, out)", "F.cross_entropy(z, y)"),
    "equal branches by a name": ("d = out - onehot; far = d > 0; a = d ** 2; b = a", "torch.where(far, a, b).mean()"),
    "a square below 0": ("d = (out - onehot) ** 2", "(torch.where(d < 0, 0.3, 0.7) * d).mean()"),
    "a squared error below 0": ("d = F.mse_loss(out, onehot, reduction='none')", "((0.7 - (d < 0).float()) * d).mean()"),
    "a magnitude below 0": ("d = (out - onehot).abs()", "torch.where(d >= 0, d, 2 * d).mean()"),
    "a sigmoid above 0": ("p = torch.sigmoid(out)", "(errors * (p[:, 0] > 0)).mean()"),
    "a share above 1": ("p = F.softmax(out, 1)", "(errors * (1 + (p > 1).float().amax(1))).mean()"),
    "an error that was detached": (
        "d = F.l1_loss(out, onehot, reduction='none').detach()",
        "(out.square() * (d < 0)).mean() + errors.mean()",
    ),
    "differences with itself": ("far = (x.unsqueeze(1) - x.unsqueeze(1)).square().sum(-1)", "(errors * (1 + far.mean())).mean()"),
    "one axis in two words": ("t = out.unsqueeze(-1) * out.unsqueeze(2)", "errors.mean() + t.square().mean() * 1e-3"),
    "a mask by index": ("m = (x > 0).float(); t = m[:, None, :] * m[:, None, :]", "(errors * t.mean((1, 2))).mean()"),
    "a mask by view": ("m = (x > 0).float(); t = m.view(-1, 1, 4) * m.view(-1, 1, 4)", "(errors * t.mean((1, 2))).mean()"),
    "equal labels": ("t = (y.unsqueeze(1) == y.unsqueeze(1)).float()", "(errors * t.mean(1)).mean()"),
    "masks by and": ("m = x > 0; t = (m[:, None] & m[:, None]).float()", "(errors * t.mean((1, 2))).mean()"),
    "one direction twice": (
        "s = out @ out.T + torch.triu(out @ out.T); r = s * 1",
        "F.cross_entropy(s, y) + F.cross_entropy(r, y)",
    ),
    "one direction in parts": ("s = out @ x[:, :3].T; a, b = map(torch.exp, (s, s))", "(a.sum(1).log() + b.sum(1).log()).mean()"),
    "the same view twice": ("one, two = net(x.clone()), net(x)", "F.cross_entropy(one, y) / 2 + F.cross_entropy(two, y) / 2"),
    "one view by two names": ("one = net(x); two = net(x + 0)", "(F.cross_entropy(one, y) + F.cross_entropy(two, y)) / 2"),
}  # fmt: skip


def watched_loop(first, loss):
    return watched(LOOP.replace("FIRST", first).replace("LOSS", loss), ("REL018", "REL019"))


@pytest.mark.sliced(8)
@pytest.mark.parametrize("name", RIGHT)
def test_what_decides_is_silent(name):
    watch = watched_loop(*RIGHT[name])
    assert [each.message for each in watch.findings] == []
    assert watch.experiments.outcome("REL018")[0] in ("held", "not applicable")
    assert watch.experiments.outcome("REL019")[0] == "held"


@pytest.mark.sliced(8)
@pytest.mark.parametrize("name", FAULTY)
def test_what_decides_nothing_is_told(name):
    assert len(watched_loop(*FAULTY[name]).findings) == 1
