# SPDX-License-Identifier: Apache-2.0
"""Losses that push outputs away from targets of 0 and 1 are told; those that pull them there, or have none, are not."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
LOOP = """
class Dice(nn.Module):
    def forward(self, output, target):
        output, target = output.flatten(), target.flatten()
        return 2 * (output * target).sum() / (output.square().sum() + target.square().sum())
def iou(output, target):
    both = (output * target).sum((1,))
    return (both / (output + target - output * target).sum(1)).mean()
head = nn.Linear(4, 3)
OPT
for x, y in loader:
    out = net(x)
    p, t = out.sigmoid(), F.one_hot(y, 3).float()
    FIRST
    opt.zero_grad()
    (LOSS).backward()
    opt.step()
"""
TWO = """
opt, other = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (net, head))
F.cross_entropy(head(data.tensors[0]), data.tensors[1]).backward()
other.step()
"""
RIGHT = {
    "dice": ("", "1 - Dice()(p, t)"),
    "minus dice": ("", "-Dice()(p, t)"),
    "overlap": ("", "1 - iou(p, t)"),
    "the logarithm of dice": ("", "-Dice()(p, t).log()"),
    "bce by hand": ("", "-(t * p.log() + (1 - t) * (1 - p).log()).mean()"),
    "bce": ("", "F.binary_cross_entropy_with_logits(out, t)"),
    "focal": ("", "-(t * (1 - p) ** 2 * p.log() + (1 - t) * p ** 2 * (1 - p).log()).mean()"),
    "squared": ("", "(out - t).square().mean()"),
    "far from their scale": ("out = 100 * out", "(out - t).square().mean()"),
    "cross entropy by hand": ("", "-(out.log_softmax(1) * t).sum(1).mean()"),
    "chosen actions": ("q = (out * t).sum(1)", "(q - x.sum(1)).square().mean()"),
    "a policy": ("", "-((out.log_softmax(1) * t).sum(1) * x[:, 0]).mean()"),
    "a mask": ("", "(F.mse_loss(out, x[:, :3], reduction='none') * t).mean()"),
    "hidden units": ("h = head(x) * t", "F.cross_entropy(out + h, y)"),
    "beside a term of the weights": ("", "1 - Dice()(p, t) + 1e-3 * net[0].weight.square().sum()"),
    "a hinge": ("", "(1 - (2 * t - 1) * out).clamp(min=0).mean()"),
    "to fool another": (
        "",
        "Dice()(p, t)",
        TWO,
    ),
}  # fmt: skip
FAULTY = {
    "dice": ("", "Dice()(p, t)"),
    "overlap": ("", "iou(p, t)"),
    "a product": ("", "(p * t).mean() / p.mean()"),
    "of a softmax": ("p = out.softmax(1)", "(p * t).sum(1).mean() - p.square().sum(1).mean()"),
    "dice of a batch of labels": ("t = F.one_hot(y, 3)", "Dice()(p, t.to(p))"),
    "cosine": ("", "F.cosine_similarity(p, t, dim=1).mean()"),
    "tversky": ("tp = (p * t).sum()", "tp / (tp + 0.3 * (p * (1 - t)).sum() + 0.7 * ((1 - p) * t).sum())"),
    "one less an error": ("", "1 - (p - t).square().mean()"),
    "a logarithm of dice": ("", "Dice()(p, t).log()"),
    "jaccard by sums": ("both = (p * t).sum()", "both / (p.sum() + t.sum() - both)"),
}  # fmt: skip


def watched_loop(first, loss, opt="opt = torch.optim.SGD(net.parameters(), lr=0.1)"):
    code = LOOP.replace("OPT", opt).replace("FIRST", first).replace("LOSS", loss)
    return watched(code, ("REL020",))


@pytest.mark.sliced(4)
@pytest.mark.parametrize("name", RIGHT)
def test_what_pulls_to_targets_is_silent(name):
    watch = watched_loop(*RIGHT[name])
    assert [each.message for each in watch.findings] == []


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", FAULTY)
def test_what_pushes_from_targets_is_told(name):
    assert len(watched_loop(*FAULTY[name]).findings) == 1
