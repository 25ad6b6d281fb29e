# SPDX-License-Identifier: Apache-2.0
"""Mistakes that users of an hour wrote in plain loops and that reading was silent of, beside right twins."""

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity

TRAIN = """
net, old = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), nn.Linear(4, 3)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
beta, total, mean, stats, count = 0.9, 0.0, None, {"loss": 0.0}, 0
def softmax(z):
    e = torch.exp(z - z.max(1, keepdim=True)[0])
    return e / e.sum(1, keepdim=True)
for x, y in loader:
    opt.zero_grad()
    out = net(x)
    with torch.no_grad():
        teacher = old(x)
    BODY
    loss.backward()
    opt.step()
"""
SOFTMAX = [
    "e = out.exp()\np = e / e.sum(1, keepdim=True)\nloss = F.cross_entropy(p, y)",
    "e = torch.exp(out - out.max(1, keepdim=True).values)\np = e / e.sum(dim=1, keepdim=True)\nloss = F.cross_entropy(p, y)",
    "p = torch.exp(out) / torch.exp(out).sum(-1, keepdim=True)\nloss = F.cross_entropy(p, y)",
    "e = out.exp()\np = e / torch.sum(e, dim=1, keepdim=True)\nloss = nn.CrossEntropyLoss()(p, y)",
    "e = out.exp()\np = e / e.sum(1).unsqueeze(1)\nloss = F.cross_entropy(p, y)",
    "e = out.exp()\np = e.div(e.sum(1, keepdim=True))\nloss = F.cross_entropy(p, y)",
    "p = softmax(out)\nloss = F.cross_entropy(p, y)",
    "e = out.exp()\ns = e.sum(1, keepdim=True)\np = e / s\nloss = F.cross_entropy(p, y)",
    "p = torch.exp(out - torch.logsumexp(out, 1, keepdim=True))\nloss = F.cross_entropy(p, y)",
    "p = out.log_softmax(1).exp()\nloss = F.cross_entropy(p, y)",
    "e = out.exp()\np = e / (e.sum(1, keepdim=True) + 1e-8)\nloss = F.cross_entropy(p, y)",
]
NO_SOFTMAX = [
    "e = out.exp()\np = e / e.sum(1, keepdim=True)\nloss = F.nll_loss(p.log(), y)",
    "loss = F.cross_entropy(out / out.norm(dim=1, keepdim=True), y)",
    "loss = F.cross_entropy(out - out.max(1, keepdim=True).values, y)",
    "loss = F.cross_entropy(out / 0.5, y)",
    "e = out.abs()\nloss = F.cross_entropy(10 * e / e.sum(1, keepdim=True), y)",
    "e = out.exp()\np = e / e.sum(1, keepdim=True)\nloss = F.cross_entropy(p.log(), y)",
    "e = out.exp()\np = e / e.sum(1, keepdim=True)\nprint(p.max())\nloss = F.cross_entropy(out, y)",
]
AVERAGES = [
    "loss = F.cross_entropy(out, y)\ntotal = 0.9 * total + 0.1 * loss",
    "loss = F.cross_entropy(out, y)\nmean = loss if mean is None else 0.9 * mean + 0.1 * loss",
    "loss = F.cross_entropy(out, y)\ntotal = total * 0.99 + loss * 0.01",
    "loss = F.cross_entropy(out, y)\ntotal = beta * total + (1 - beta) * loss",
    "loss = F.cross_entropy(out, y)\ntotal += 0.1 * (loss - total)",
    "loss = F.cross_entropy(out, y)\ntotal = total + 0.1 * (loss - total)",
    'loss = F.cross_entropy(out, y)\nstats["loss"] = 0.9 * stats["loss"] + 0.1 * loss',
    "loss = F.cross_entropy(out, y)\ntotal = torch.lerp(total, loss, 0.1)",
    "loss = F.cross_entropy(out, y)\ncount += 1\ntotal = (total * (count - 1) + loss) / count",
]
CUT_AVERAGES = [
    "loss = F.cross_entropy(out, y)\ntotal = 0.9 * total + 0.1 * loss.item()",
    "loss = F.cross_entropy(out, y)\ntotal = 0.9 * total + 0.1 * loss.detach()",
    "loss = F.cross_entropy(out, y)\ntotal = 0.9 * total + 0.1 * float(loss)",
    "loss = F.cross_entropy(out, y)\nwith torch.no_grad():\n    total = 0.9 * total + 0.1 * loss",
    "loss = F.cross_entropy(out, y)\ntotal = (0.9 * total + 0.1 * loss).detach()",
    "loss = F.cross_entropy(out, y)\nloss = 0.9 * loss + 0.1 * out.pow(2).mean()",
    "loss = F.cross_entropy(out, y)\ntotal = 0.9 * total + 0.1 * loss\ntotal = total.detach()",
    "loss = F.cross_entropy(out, y)\nmixed = 0.9 * out.mean() + 0.1 * loss\nprint(mixed.item())",
]
TURNED = [
    'loss = F.kl_div(teacher.log_softmax(1), out.softmax(1), reduction="batchmean")',
    'loss = F.kl_div(F.log_softmax(teacher, dim=1), F.softmax(out, dim=1), reduction="batchmean")',
    'p = F.softmax(out, 1)\nq = F.log_softmax(teacher, 1)\nloss = F.kl_div(q, p, reduction="batchmean")',
    'loss = F.kl_div(teacher.softmax(1).log(), out.softmax(1), reduction="batchmean")',
    'loss = nn.KLDivLoss(reduction="batchmean")(F.log_softmax(teacher / 2, 1), F.softmax(out / 2, 1))',
    'loss = F.kl_div(teacher.log_softmax(1), out.log_softmax(1), reduction="batchmean", log_target=True)',
]
STRAIGHT = [
    'loss = F.kl_div(out.log_softmax(1), teacher.softmax(1), reduction="batchmean")',
    'loss = F.kl_div(out.log_softmax(1), teacher.log_softmax(1), reduction="batchmean", log_target=True)',
    'loss = F.kl_div(F.log_softmax(out / 2, 1), F.softmax(teacher / 2, 1), reduction="batchmean") * 4',
    'noisy = net(x + 0.01)\nloss = F.kl_div(noisy.log_softmax(1), out.softmax(1), reduction="batchmean")',
]
UNCALLED = ["loss.backward", "opt.step", "opt.zero_grad", "net.train", "net.eval"]


def read(code, body, program=TRAIN):
    return told(code, program.replace("BODY", body.replace("\n", "\n    ")))


@pytest.mark.parametrize("body", SOFTMAX)
def test_a_softmax_by_hand_before_cross_entropy_is_told(body):
    assert read("LOSS001", body) == [Severity.BUG]


@pytest.mark.parametrize("body", NO_SOFTMAX)
def test_what_is_no_softmax_before_cross_entropy_is_not(body):
    assert read("LOSS001", body) == []


@pytest.mark.parametrize("body", AVERAGES)
def test_a_moving_average_that_keeps_its_graph_is_told(body):
    assert read("MEM001", body) == [Severity.BUG]


@pytest.mark.parametrize("body", CUT_AVERAGES)
def test_a_moving_average_of_numbers_is_not(body):
    assert read("MEM001", body) == []


@pytest.mark.parametrize("body", TURNED)
def test_a_divergence_whose_target_is_trained_is_asked_after(body):
    assert read("LOSS003", body) == [Severity.QUESTION]


@pytest.mark.parametrize("body", STRAIGHT)
def test_a_divergence_whose_input_is_trained_is_not(body):
    assert read("LOSS003", body) == []


@pytest.mark.parametrize("written", UNCALLED)
def test_a_step_of_the_training_without_its_parentheses_is_told(written):
    assert read("VALUE028", f"loss = F.cross_entropy(out, y)\n{written}") == [Severity.BUG]
    assert read("VALUE028", f"loss = F.cross_entropy(out, y)\n{written}()") == []
