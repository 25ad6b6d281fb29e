# SPDX-License-Identifier: Apache-2.0
"""What the nineteenth bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity

BUG, RISK, ADVICE = Severity.BUG, Severity.RISK, Severity.ADVICE


# ── GRAD020: one tensor of labels that each loss fills anew ──

REFILLED = """
net_g = nn.Sequential(nn.Linear(8, 16)); net_d = nn.Sequential(nn.Linear(16, 1)); bce = nn.BCEWithLogitsLoss()
opt_d = torch.optim.Adam(net_d.parameters()); opt_g = torch.optim.Adam(net_g.parameters())
real_label, fake_label = 1.0, 0.0
label = torch.empty(8)
for x in loader:
    MADE
    opt_d.zero_grad()
    bce(net_d(x).view(-1), label).backward()
    fake = net_g(torch.randn(len(x), 8))
    FAKE
    bce(net_d(fake.detach()).view(-1), label).backward()
    opt_d.step()
    opt_g.zero_grad()
    TRUE
    bce(net_d(fake).view(-1), label).backward()
    opt_g.step()
"""
FULL = "label = torch.full((len(x),), real_label)"


@pytest.mark.parametrize(
    ("made", "fake", "true"),
    [
        (FULL, "label.fill_(fake_label)", "label.fill_(real_label)"),
        (FULL, "label.fill_(0)", "label.fill_(1)"),
        ("label = torch.ones(len(x))", "label.zero_()", "label.fill_(1.0)"),
        ("label.fill_(1)", "label.fill_(0)", "label.fill_(1)"),
        (FULL, "label.data.fill_(fake_label)", "label.data.fill_(real_label)"),
        ("label.resize_(len(x)).fill_(1)", "label.resize_(len(x)).fill_(0)", "label.resize_(len(x)).fill_(1)"),
        (FULL, "label[:] = fake_label", "label[:] = real_label"),
        (FULL, "label[...] = 0", "label[...] = 1"),
        (FULL, "label.copy_(torch.zeros(8))", "label.copy_(torch.ones(8))"),
        (FULL, "label = label.fill_(fake_label)", "label = label.fill_(real_label)"),
        (FULL, "label = torch.full((len(x),), fake_label)", "label = torch.full((len(x),), real_label)"),
        (FULL, "label = torch.full_like(label, fake_label)", "label = torch.full_like(label, 0.9)"),
        ("label = torch.autograd.Variable(torch.ones(8))", "label.data.fill_(0)", "label.data.fill_(1)"),
    ],
)  # fmt: skip
def test_one_tensor_of_labels_filled_anew(made: str, fake: str, true: str) -> None:
    program = REFILLED.replace("MADE", made).replace("FAKE", fake)
    assert not told("GRAD020", program.replace("TRUE", true))
    assert told("GRAD020", program.replace("TRUE", "pass")) == [BUG]
    assert told("GRAD020", program.replace("TRUE", fake)) == [BUG]


@pytest.mark.parametrize(
    "true",
    ["if flip:\n        label.fill_(1)", "label[: len(x)] = 1", "label.uniform_(0.8, 1)", "label += 1", "label.sub_(1).neg_()"],
)  # fmt: skip
def test_labels_that_may_be_filled_anew(true: str) -> None:
    program = REFILLED.replace("MADE", FULL).replace("FAKE", "label.fill_(fake_label)")
    assert not told("GRAD020", program.replace("TRUE", true))


CLASSES = """
net_g = nn.Sequential(nn.Linear(8, 16)); d_gan = nn.Linear(16, 1); d_aux = nn.Linear(16, 4)
bce, ce = nn.BCEWithLogitsLoss(), nn.CrossEntropyLoss()
opt_d = torch.optim.Adam([*d_gan.parameters(), *d_aux.parameters()]); opt_g = torch.optim.Adam(net_g.parameters())
for x, y in loader:
    fake = net_g(torch.randn(8, 8))
    d_loss = JUDGED
    opt_d.zero_grad(); d_loss.backward(); opt_d.step()
    g_loss = MADE
    opt_g.zero_grad(); g_loss.backward(); opt_g.step()
"""
BOTH = """(ce(d_aux(x), y) + ce(d_aux(fake.detach()), y)
        + bce(d_gan(x), torch.ones(8, 1)) + bce(d_gan(fake.detach()), torch.zeros(8, 1)))"""


@pytest.mark.parametrize(
    ("judged", "made", "severity"),
    [
        ("ce(d_aux(x), y) + ce(d_aux(fake.detach()), y)", "ce(d_aux(fake), y)", []),
        ("ce(d_aux(fake.detach()), y) + ce(d_aux(x), y)", "ce(d_aux(x), y) + ce(d_aux(fake), y)", []),
        ("(ce(d_aux(x), y) + ce(d_aux(fake.detach()), y)) / 2", "ce(d_aux(fake), y)", []),
        ("ce(d_aux(x), y)", "ce(d_aux(fake), y)", []),
        (BOTH,
         "bce(d_gan(fake), torch.ones(8, 1)) + ce(d_aux(fake), y)", []),
        (BOTH,
         "bce(d_gan(fake), torch.zeros(8, 1)) + ce(d_aux(fake), y)", [BUG]),
        ("bce(d_gan(x), torch.ones(8, 1)) + bce(d_gan(fake.detach()), torch.zeros(8, 1))",
         "bce(d_gan(fake), torch.zeros(8, 1))", [BUG]),
        ("bce(d_gan(x), 1 - y) + bce(d_gan(fake.detach()), y)", "bce(d_gan(fake), y)", [BUG]),
    ],
)  # fmt: skip
def test_classes_that_both_sides_want(judged: str, made: str, severity: list[Severity]) -> None:
    assert told("GRAD020", CLASSES.replace("JUDGED", judged).replace("MADE", made)) == severity
