# SPDX-License-Identifier: Apache-2.0
"""Right and wrong forms of one mechanism, in drawn habits: what is right is named nowhere, what is wrong everywhere."""

import itertools
import textwrap

import pytest

from truestep.doctor.linting import read_text, read_texts
from truestep.doctor.page import PRELUDE

TRAINING = "for x, y in loader:\n    opt.zero_grad()\n    F.mse_loss(net(x), y).backward()\n    opt.step()\n"


def codes(text, path="<text>"):
    reading = read_text(PRELUDE + textwrap.dedent(text), path)
    assert reading.failures == []
    return {each.code for each in reading.findings}


# ── sums of losses ────────────────────────────────────────────────────────────────────────────

SUMS = ("total += loss", "total = total + loss", "losses.append(loss)", "self.total += loss")
WITHOUT_GRAPH = {
    "decorator": ("@torch.no_grad()\n", "", ""),
    "inference": ("@torch.inference_mode()\n", "", ""),
    "bare": ("@torch.no_grad\n", "", ""),
    "with": ("", "with torch.no_grad():\n", "    "),
    "switch": ("", "with torch.set_grad_enabled(False):\n", "    "),
}


def summed(around, how):
    before, block, indent = WITHOUT_GRAPH.get(around, ("", "", ""))
    body = "for x, y in loader:\n    loss = F.mse_loss(self.net(x), y)\n" + (
        "" if around else "    loss.backward()\n"
    )
    body = block + textwrap.indent(body + f"    {how}\n", indent)
    method = f"{before}def run(self, loader):\n    total, losses = 0, []\n{textwrap.indent(body, '    ')}    return total\n"
    return f"class Trainer:\n{textwrap.indent(method, '    ')}"


@pytest.mark.parametrize(("around", "how"), [*itertools.product(WITHOUT_GRAPH, SUMS)])
def test_sums_without_a_graph_hold_none(around, how):
    assert "MEM001" not in codes(summed(around, how))


@pytest.mark.parametrize("how", SUMS)
def test_sums_with_one_do(how):
    assert "MEM001" in codes(summed("", how))


# ── gradients divided after the loop ──────────────────────────────────────────────────────────

DIVIDED = (
    "for p in net.parameters(): p.grad /= 4",
    "for p in net.parameters(): p.grad.div_(4)",
    "for p in net.parameters(): p.grad.data.mul_(1 / 4)",
    "for p in net.parameters(): p.grad = p.grad / 4",
    "for g in opt.param_groups:\n    for p in g['params']: p.grad.data /= 4",
    "torch._foreach_div_([p.grad for p in net.parameters()], 4)",
)
ACCUMULATED = """\
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    F.mse_loss(net(x), y).backward()
    if (i + 1) % 4 == 0 or i + 1 == len(loader):
{divided}
        opt.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize("divided", DIVIDED)
def test_gradients_may_be_divided_instead_of_the_loss(divided):
    assert codes(ACCUMULATED.format(divided=textwrap.indent(divided, " " * 8))) == set()
    assert codes(ACCUMULATED.format(divided="        pass")) == {"GRAD005"}


# ── what a star import brings ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("first", "is_misfit"),
    [
        ("", True),
        ("__all__ = ['other']\n", False),
        ("__all__ = ['make']\n", True),
        ("__all__ = names()\n", True),
    ],
)
def test_a_star_import_brings_what_all_says(first, is_misfit):
    texts = {
        "train.py": PRELUDE + "from second import *\nfrom first import *\n\nmake(1, 2)\n",
        "first.py": first + "def make(x):\n    return x\n",
        "second.py": "def make(x, y):\n    return x\n",
    }
    assert ("VALUE040" in {each.code for each in read_texts(texts).findings}) is is_misfit


# ── methods that are left open ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "body",
    ["raise NotImplementedError", "...", "pass", '"""Give a loss."""', "raise NotImplementedError('x')"],
)
def test_a_method_that_is_left_open_says_nothing_of_its_arguments(body):
    base = (
        "class Base:\n    def loss(self):\n        {}\n\n    def run(self, x):\n        return self.loss(x)\n"
    )
    assert codes(base.format(body)) == set()
    assert codes(base.format("return 1")) == {"VALUE040"}


# ── one batch, and one row ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("DataLoader(train_set, batch_size=len(train_set))", set()),
        ("DataLoader(train_set, len(train_set))", set()),
        ("DataLoader(train_set, batch_size=32)", {"DATA001"}),
        ("DataLoader(test_set, batch_size=1, drop_last=True)", {"DATA001"}),
    ],
)
def test_an_order_matters_between_batches(made, found):
    text = f"loader = {made}\nfor epoch in range(3):\n" + textwrap.indent(TRAINING, "    ")
    assert codes(text) == found


@pytest.mark.parametrize(
    ("size", "found"), [("1", set()), ("len(test_set)", set()), ("32", {"DATA002"}), ("size", {"DATA002"})]
)
def test_a_last_batch_is_dropped_where_there_is_one(size, found):
    assert (
        codes(f"size = 4\ntest_loader = DataLoader(test_set, batch_size={size}, drop_last=True)\n") == found
    )


# ── arrays that are written to ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("call", "is_lost"),
    [("np.clip(a, 0, 1, a)", False), ("np.clip(a, 0, 1)", True), ("np.exp(a, a)", False), ("np.exp(a)", True),
     ("np.abs(a, out=a)", False), ("np.concatenate((a, a), 0, b)", False), ("np.stack([a, a], 0)", True)],
)  # fmt: skip
def test_the_array_that_is_written_to_may_come_last(call, is_lost):
    assert ("VALUE028" in codes(f"a = np.zeros(3)\n{call}\n")) is is_lost


# ── a chance of 1 ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("chance", "is_random"), [("", True), ("p=0.5", True), ("p=1", False), ("1.0", False), ("p=p", False)]
)
def test_what_is_done_to_each_is_no_augmentation(chance, is_random):
    made = f"transforms.Compose([transforms.RandomHorizontalFlip({chance}), transforms.ToTensor()])"
    text = f"from torchvision import datasets, transforms\np = 1\nt = {made}\nd = datasets.CIFAR10('.', train=False, transform=t)\n"
    assert ("DATA019" in codes(text)) is is_random


# ── thresholds and rows ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "rows",
    [
        "for o, t in zip(out, y):",
        "for i, (o, t) in enumerate(zip(out, y)):",
        "for o in out:",
        "for i, o in enumerate(out):",
    ],
)
@pytest.mark.parametrize("turned", ["", ".sigmoid()"])
def test_a_threshold_is_found_row_by_row(rows, turned):
    text = (
        "criterion = nn.BCEWithLogitsLoss()\nfor x, y in loader:\n    opt.zero_grad()\n    criterion(net(x), y).backward()\n"
        f"    opt.step()\nfor x, y in test_loader:\n    out = net(x){turned}\n    {rows}\n        right = o > 0.5\n"
    )
    assert ("EVAL041" in codes(text)) is not bool(turned)


# ── states that a comprehension keeps ─────────────────────────────────────────────────────────

KEPT = (
    "'all': {k: v.state_dict() for k, v in objects.items()}", "'all': [v.state_dict() for v in objects.values()]",
    "**{k: v.state_dict() for k, v in objects.items()}", "**states", "'all': dict((k, v.state_dict()) for k, v in objects.items())",
)  # fmt: skip


@pytest.mark.parametrize("kept", KEPT)
def test_a_comprehension_may_keep_the_optimizer(kept):
    saved = "for epoch in range(3):\n" + textwrap.indent(TRAINING, "    ")
    saved += "    torch.save({{'net': net.state_dict(), 'epoch': epoch, {}}}, 'last.pt')\n"
    assert "SAVE005" not in codes(saved.format(kept))
    assert "SAVE005" in codes(saved.format(""))


# ── what is left over behind a loop ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(("indent", "is_wrong"), [("    ", True), ("", False)])
def test_a_remainder_behind_the_loop_is_what_is_left(indent, is_wrong):
    text = (
        "step = 0\nfor x, y in loader:\n    print(x)\n    step += 1\n"
        f"{indent}if step % 10:\n{indent}    print(step)\n"
    )
    assert ("VALUE032" in codes(text)) is is_wrong


# ── a schedule of whoever's make ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("made", "is_found"),
    [
        ("from gone import Schedule\nscheduler = Schedule(opt)\n", False),
        ("scheduler = torch.optim.lr_scheduler.LinearLR(opt)\n", True),
    ],
)
def test_a_schedule_made_out_of_sight_may_be_any(made, is_found):
    text = "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n" + made
    text += "for x, y in loader:\n    scheduler.step()\n" + TRAINING.partition("\n")[2]
    assert ("SCHED001" in codes(text)) is is_found
