# SPDX-License-Identifier: Apache-2.0
"""What follows and stays behind is told: statistics of an average, an unread tensor, a name in a copied line, a number."""

import warnings

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity
from truestep.doctor.page import PRELUDE
from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.selection import CheckSelection

AVERAGE = """
torch.manual_seed(0)
def made(norm=nn.BatchNorm1d):
    return nn.Sequential(nn.Linear(4, 8), norm(8), nn.ReLU(), nn.Linear(8, 3))
data = TensorDataset(torch.randn(32, 4) + 1, torch.arange(32) % 3)
loader, test_loader = DataLoader(data, batch_size=8), DataLoader(data, batch_size=16)
net = made()
START
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(EPOCHS):
    net.train()
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        FOLLOWS
    BEFORE
    with torch.no_grad():
        for x, y in test_loader:
            right = (average(x).argmax(1) == y).sum()
"""
COPY = "average = copy.deepcopy(net).eval()"
WEIGHTS = "for a, b in zip(average.parameters(), net.parameters()): a.data.lerp_(b.data, 0.2)"
STAYS = {
    "drawn nearer": (COPY, WEIGHTS),
    "copied": (COPY, "for a, b in zip(average.parameters(), net.parameters()): a.data.copy_(b.data)"),
    "by name": (
        COPY,
        "own = dict(net.named_parameters())\\n        for n, p in average.named_parameters(): p.data = own[n].data * 0.5",
    ),
    "without gradients": (
        COPY,
        "torch._foreach_lerp_([p.data for p in average.parameters()], [p.data for p in net.parameters()], 0.2)",
    ),
    "a shadow that is put in": (
        COPY + "; shadow = {n: p.detach().clone() for n, p in net.named_parameters()}",
        "for n, p in net.named_parameters(): shadow[n].lerp_(p.detach(), 0.2)\\n        average.load_state_dict(shadow, False)",
    ),
    "a model of the same class": ("average = made(); average.load_state_dict(net.state_dict()); average.eval()", WEIGHTS),
}  # fmt: skip
MOVES = {
    "whole states": (COPY, "average.load_state_dict(net.state_dict())"),
    "buffers copied": (
        COPY,
        WEIGHTS + "\\n        for a, b in zip(average.buffers(), net.buffers()): a.copy_(b)",
    ),
    "buffers drawn nearer": (
        COPY,
        "for n, v in average.state_dict().items(): v.copy_((v + net.state_dict()[n]) / 2)",
    ),
    "torch's own average": ("average = torch.optim.swa_utils.AveragedModel(net).eval()", "average.update_parameters(net)"),
    "in training mode": ("average = copy.deepcopy(net)", WEIGHTS),
    "no statistics": ("net = made(nn.LayerNorm); " + COPY, WEIGHTS),
    "frozen statistics": ("net[1].eval(); net.train = lambda *_: net; " + COPY, WEIGHTS),
    "the trained model": ("average = net", "pass"),
    "a copy of the start": (COPY, "pass"),
    "a new copy": (COPY, "average = copy.deepcopy(net).eval()"),
}  # fmt: skip
CUT = """
def parts(x, y, rows, labels=None):
    FIRST
    SECOND
    return locals()
"""
LEFT = {
    ("x_train, x_test = np.split(x, [rows])", "y_train, y_test = np.split(x, [rows])"),
    ("x_train, x_test = x[:rows], x[rows:]; x_train = x_train[0]", "y_train, y_test = np.split(y, [rows])"),
    ("train_x = torch.tensor(x[rows])", "train_y = torch.tensor(x[rows])"),
    ("x_train = x[:rows]", "y_train = x[:rows]"),
    ("x_mean = x.mean(0)", "y_mean = x.mean(0)"),
    ("x_new, x_old = cut(x, rows), 0; x_a = cut(x)", "y_a = cut(x)"),
    ("first_x, last_x = cut(x, size=rows)", "first_y, last_y = cut(x, size=rows)"),
    ("x_out = int((x - rows) / 2 + 1)", "y_out = int((x - rows) / 2 + 1)"),
    ("x_val = x.view(-1, 3).float()", "y_val = x.view(-1, 3).float()"),
    ("x_t = torch.from_numpy(x).float()", "y_t = torch.from_numpy(x).float()"),
}
WELL = {
    ("x_train, x_test = np.split(x, [rows])", "y_train, y_test = np.split(y, [rows])"),
    ("x_shift = torch.rand(1).repeat(x.shape[0])", "y_shift = torch.rand(1).repeat(x.shape[0])"),
    ("x_zero = torch.zeros(len(x))", "y_zero = torch.zeros(len(x))"),
    ("x_list = []", "y_list = []"),
    ("x_copy = x.clone()", "z_copy = x.clone()"),
    ("one = x.mean(0)", "two = x.mean(0)"),
    ("x_in, x_out = cut(x)", "y_in, y_off = cut(x)"),
    ("rows_x = np.split(labels, [rows])", "rows_y = np.split(labels, [rows])"),
    ("if rows: x_a = x[0]", "else: y_a = x[0]"),
    ("x_a = x[0]", "y_a = y[0]"),
}
ASKED = """
def step(net, x, y, KIND, clip=1.0, verbose=0):
    loss = F.mse_loss(net(x), y)
    if TEST:
        DOES
    loss.backward()
"""
ONLY_ASKED = {
    ("alpha=0.0", "alpha > 0", "x = x * torch.distributions.Beta(1.0, 1.0).sample()"),
    ("alpha=0", "alpha > 0", "x = mix(x, np.random.beta(0.2, 0.2))"),
    ("max_norm=1.0", "max_norm > 0", "nn.utils.clip_grad_norm_(net.parameters(), 0.5)"),
    ("rate=0.5", "rate > 0", "x = F.dropout(x, 0.5)"),
    ("weight: float = 0", "weight > 0.0", "loss = loss + torch.mul(net.penalty(), 0.01)"),
    ("noise: float", "noise > 0", "x = x + torch.normal(0.0, 0.1, x.shape)"),
    ("smoothing=0.1", "smoothing != 0", "loss = F.cross_entropy(net(x), y, label_smoothing=0.1)"),
    ("margin=0.2", "margin > 0", "loss = F.margin_ranking_loss(x, y, y, margin=0.5)"),
    ("tau=0.0", "tau > 0.0", "net.follow(net.target, 0.005)"),
    ("*, decay=0.0", "decay > 0", "loss = loss + torch.sum(net.w ** 2).mul(1e-4)"),
}
USED = {
    ("alpha=0.0", "alpha > 0", "x = x * torch.distributions.Beta(alpha, alpha).sample()"),
    ("max_norm=1.0", "max_norm > 0", "nn.utils.clip_grad_norm_(net.parameters(), max_norm)"),
    ("rate=0.5", "rate > 0 and net.training", "x = F.dropout(x, 0.5)"),
    ("weight=0.1", "weight > 0", "loss = loss + weight * torch.mul(net.penalty(), 0.5)"),
    ("log=0", "log > 0", "print(loss.item())"),
    ("mixes=False", "mixes", "x = mix(x, np.random.beta(0.2, 0.2))"),
    ("rank=0", "rank > 0", "net.wait()"),
    ("bound=0.5", "loss > bound", "loss = loss.clamp(0.5)"),
    ("kind='mean'", "kind != 'sum'", "loss = torch.mul(loss, 0.5)"),
    ("level=0", "level > 1", "loss = torch.mul(loss, 0.5)"),
    ("steps=None", "steps is not None", "loss = torch.mul(loss, 0.5)"),
}

MEANS = """
def loss(net, x, y, mask):
    losses = F.mse_loss(net(x), y, reduction="none")
    FILLED
    MEAN
    return found.mean()
"""
OTHER_PART = (
    ("losses = losses.masked_fill(mask, 0.)", "found = losses.sum() / mask.sum()"),
    ("losses = losses.masked_fill(~mask, 0)", "found = losses.sum() / (~mask).sum()"),
    ("losses = losses.masked_fill(mask, 0.)", "n = mask.sum(-1).clamp(min=1e-5); found = losses.sum(-1) / n"),
    (
        "losses = losses.mean(-1).masked_fill(mask, 0.)",
        "t = reduce(losses, 'b n -> b', 'sum'); found = t / mask.sum(dim=-1)",
    ),
    ("losses = torch.where(mask, 0.0, losses)", "found = losses.sum() / mask.sum()"),
    ("losses.masked_fill_(mask, 0.)", "found = losses.masked_fill(mask, 0.).sum() / mask.float().sum()"),
    ("kept = losses.masked_fill(mask, 0.)", "found = torch.sum(kept) / torch.sum(mask)"),
    ("losses = losses.masked_fill(mask[..., None], 0.)", "found = losses.sum() / (mask.sum() + 1e-6)"),
    ("losses = losses.masked_fill(mask.bool(), 0.)", "found = losses.sum(1) / mask.sum(1)"),
    (
        "losses = losses.masked_fill(mask.logical_not(), 0.)",
        "found = losses.sum() / mask.logical_not().sum()",
    ),
)
SAME_PART = (
    ("losses = losses.masked_fill(~mask, 0.)", "found = losses.sum() / mask.sum()"),
    ("losses = losses.masked_fill(mask, 0.)", "found = losses.sum() / (~mask).sum()"),
    ("losses = losses.masked_fill(mask, 0.)", "found = losses.sum() / mask.logical_not().sum()"),
    ("losses = losses.masked_fill(mask, 0.)", "found = losses.sum() / mask.numel()"),
    ("losses = losses * mask", "found = losses.sum() / mask.sum()"),
    ("x = x.masked_fill(mask, 0.)", "found = (F.mse_loss(net(x), y, reduction='none') * mask).sum() / mask.sum()"),
    ("losses = losses.masked_fill(mask, -1e9)", "found = losses.sum() / mask.sum()"),
    ("losses = torch.where(mask, losses, 0.0)", "found = losses.sum() / mask.sum()"),
    ("losses = losses.masked_fill(mask, 0.)", "found = losses.mean()"),
    ("losses = losses.masked_fill(mask, 0.)", "n = len(y) - mask.sum().item(); found = losses.sum() / n"),
    ("losses = losses.masked_fill(mask, 0.)", "mask = ~mask; found = losses.sum() / y.sum()"),
)  # fmt: skip


def watched(start, follows, epochs, before=""):
    code = AVERAGE.replace("START", start).replace("EPOCHS", str(epochs)).replace("BEFORE", before or "pass")
    code = code.replace("FOLLOWS", follows.replace("\\n", "\n"))
    selection = CheckSelection(select=("EVAL052",), preview=True)
    with Watch(WatchOptions(selection, probe=False)) as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {"__name__": "__example__"}
        exec(compile(PRELUDE + "import copy\n" + code, "<example>", "exec"), names)
    assert watch.failures == []
    return [each.code for each in watch.findings]


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("name", STAYS)
def test_an_average_with_statistics_of_before_is_told(name, epochs):
    assert watched(*STAYS[name], epochs) == ["EVAL052"]


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("name", MOVES)
def test_an_average_whose_statistics_follow_is_not(name, epochs):
    assert watched(*MOVES[name], epochs) == []


def test_an_average_that_is_passed_over_the_data_is_not():
    update = "torch.optim.swa_utils.update_bn(loader, average); average.eval()"
    assert watched(COPY, WEIGHTS, 3, update) == []


@pytest.mark.parametrize(("first", "second"), sorted(LEFT))
def test_a_name_that_is_left_in_a_copied_line_is_told(first, second):
    is_left = "(y, " not in second
    assert bool(told("VALUE044", CUT.replace("FIRST", first).replace("SECOND", second))) is is_left


@pytest.mark.parametrize(("first", "second"), sorted(WELL))
def test_two_lines_alike_that_are_meant_so_are_not(first, second):
    assert not told("VALUE044", CUT.replace("FIRST", first).replace("SECOND", second))


@pytest.mark.parametrize(("kind", "test", "does"), sorted(ONLY_ASKED))
def test_a_number_that_is_only_asked_is_asked_after(kind, test, does):
    code = ASKED.replace("KIND", kind if "*" not in kind else "z=0").replace(
        "verbose=0", f"verbose=0, {kind}" if "*" in kind else "verbose=0"
    )
    assert told("PARAM048", code.replace("TEST", test).replace("DOES", does))


@pytest.mark.parametrize(("kind", "test", "does"), sorted(USED))
def test_a_number_that_is_used_is_not(kind, test, does):
    assert not told("PARAM048", ASKED.replace("KIND", kind).replace("TEST", test).replace("DOES", does))


@pytest.mark.parametrize(("filled", "mean"), OTHER_PART)
def test_a_mean_of_the_other_part_is_told(filled, mean):
    assert told("LOSS060", MEANS.replace("FILLED", filled).replace("MEAN", mean)) == [Severity.RISK]


@pytest.mark.parametrize(("filled", "mean"), SAME_PART)
def test_a_mean_of_what_is_left_is_not(filled, mean):
    assert not told("LOSS060", MEANS.replace("FILLED", filled).replace("MEAN", mean))


IN_ARMS = """
import numpy as np
import torch

def split(x, y=None):
    if y is None:
        x_train, x_test = np.split(x, [3])
        return x_train, x_test
    else:
        x_train, x_test = np.split(x, [3])
        y_train, y_test = np.split(GIVEN, [3])
        return x_train, y_train, x_test, y_test
"""


def test_a_name_that_is_left_is_told_where_another_arm_has_the_same_line():
    assert told("VALUE044", IN_ARMS.replace("GIVEN", "x"))
    assert not told("VALUE044", IN_ARMS.replace("GIVEN", "y"))
