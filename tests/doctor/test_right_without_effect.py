# SPDX-License-Identifier: Apache-2.0
"""Programs of strangers in which what a check names has no effect, in several wordings; the plain mistake beside them."""

import pytest

from tests.support.told import loud, told

# ── MEM001: a sum that is made where gradients are off has no graph ────────────────────────────

EPOCH = """
def train(net, opt, loader):
    total = 0
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
{added}
    return total
"""
SUMMED = ("total += loss", "total = total + loss", "total += loss * len(x)", "total += loss / len(loader)")


@pytest.mark.parametrize(
    "off", ["torch.no_grad()", "torch.inference_mode()", "torch.set_grad_enabled(False)"]
)
@pytest.mark.parametrize("added", SUMMED)
def test_a_sum_made_without_gradients_keeps_no_graph(off, added):
    assert not loud("MEM001", EPOCH.format(added=f"        with {off}:\n            {added}"))
    assert loud("MEM001", EPOCH.format(added=f"        {added}"))


# ── EVAL001: a rate of zero drops nothing ──────────────────────────────────────────────────────

LAYER = """
class Block(nn.Module):
    {shared}
    def __init__(self):
        super().__init__()
        {made}
        self.head = nn.Linear(4, 4)

    def forward(self, q, k, v):
        q = F.dropout(self.head(q), {rate})
        return F.scaled_dot_product_attention(q, k, v, dropout_p={rate})
"""
RATES = [
    ("pass", "self.rate = {0}", "self.rate"),
    ("rate = {0}", "pass", "self.rate"),
    ("pass", "pass", "{0}"),
    ("pass", "self.p = self.rate = {0}", "self.rate"),
]


@pytest.mark.parametrize(("shared", "made", "rate"), RATES)
def test_dropout_at_a_rate_of_zero_is_none(shared, made, rate):
    def layer(number):
        return LAYER.format(shared=shared.format(number), made=made.format(number), rate=rate.format(number))

    assert not loud("EVAL001", layer("0.0"))
    assert not loud("EVAL001", layer("0"))
    assert loud("EVAL001", layer("0.1"))


# ── OLD007: `volatile` where gradients are off anyway ──────────────────────────────────────────


@pytest.mark.parametrize(
    "around",
    [
        "with torch.no_grad():\n    v = {}",
        "with torch.inference_mode():\n    for _ in range(3):\n        v = {}",
        "@torch.no_grad()\ndef f(x):\n    return {}",
    ],
)
def test_volatile_without_gradients_is_no_mistake(around):
    made = "torch.autograd.Variable(x, volatile=True)"
    assert not loud("OLD007", around.format(made))
    assert loud("OLD007", f"v = {made}")


GIVES = """
from torch.autograd import Variable
def to_var(x, {parameter}):
    if torch.cuda.is_available():
        x = x.cuda()
    return Variable(x, {given})

class Net(nn.Module):
    def _var(self, x, off=False):
        return Variable(x, volatile=off)
    def forward(self, x):
        return self._var({own})

out = {called}
"""
NOT_ON = {"parameter": "volatile=False", "given": "volatile=volatile", "called": "to_var(x)", "own": "x"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"called": "to_var(x, False)"},
        {"called": "[to_var(each) for each in xs]"},
        {"parameter": "*, volatile: bool = False"},
        {"parameter": "volatile=None"},
        {"parameter": "grad=True", "given": "volatile=not grad"},
        {"parameter": "training=True", "given": "requires_grad=False, volatile=(not training)"},
        {"given": "volatile=False"},
        {"given": "volatile=True if volatile else False"},
        {"called": "to_var(x, volatile=OFF)\nOFF = False"},
        {"own": "x, off=False"},
    ],
)
def test_volatile_that_nobody_turns_on(changes):
    assert not told("OLD007", GIVES.format(**NOT_ON | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"called": "to_var(x, True)"},
        {"called": "to_var(x, volatile=not training)"},
        {"called": "to_var(x, **options)"},
        {"called": "map(to_var, xs)"},
        {"parameter": "volatile=True"},
        {"parameter": "grad=True", "given": "volatile=not grad", "called": "to_var(x, grad=False)"},
        {"own": "x, not self.training"},
        {"given": "volatile=x.is_leaf"},
        {"given": "volatile=True"},
    ],
)
def test_volatile_that_somebody_turns_on(changes):
    assert loud("OLD007", GIVES.format(**NOT_ON | changes))


NEEDS_NONE = [
    "targets = [{} for ann in targets]",
    "target_var = {}",
    "self.priors = {}",
    "labels, other = {}, 1",
    "y = {}",
    "gt_v = {}.cuda()",
    "loss = F.cross_entropy(net(x), torch.autograd.Variable(labels.cuda(), volatile=True))",
]
NEEDS_ONE = [
    "images = {}",
    "input_var = {}",
    "x, y = {}, torch.autograd.Variable(y)",
    "out = net({})",
    "return net({}).max(1)",
    "hidden = [{} for h in hidden]",
    "labels = net({})",
]


@pytest.mark.parametrize(("lines", "loudness"), [(NEEDS_NONE, False), (NEEDS_ONE, True)])
def test_volatile_of_targets_is_a_question(lines, loudness):
    for line in lines:
        made = "torch.autograd.Variable(x.cuda(), volatile=True)"
        text = f"class Task:\n    def f(self, x, net, ann, y, labels, hidden, targets):\n        {line.format(made)}\n"
        assert loud("OLD007", text) is loudness, line
        assert told("OLD007", text), line


# ── PARAM004: a module in name only ────────────────────────────────────────────────────────────

OWN_CALL = """
class Made(nn.Module):
    def __init__(self, name, options, net):
        {sets}

    def {called}(self, *given):
        return {does}
"""
PLAIN = [
    ("self.name, self.options = name, options", "getattr(zoo, self.name)(**self.options)"),
    ("self.weights = torch.tensor(options)", "sum(w * each for w, each in zip(self.weights, given))"),
    ("self.name = name\n        self.size = len(options)", "torch.zeros(self.size)"),
]
HELD = [("self.net = net", "self.net(*given)"), ("self.head = nn.Linear(3, 1)", "self.name")]


@pytest.mark.parametrize(("sets", "does"), PLAIN)
def test_a_class_that_holds_no_layers_and_is_called_by_its_own_needs_nothing_of_torchs(sets, does):
    assert not loud("PARAM004", OWN_CALL.format(sets=sets, does=does, called="__call__"))
    assert loud("PARAM004", OWN_CALL.format(sets=sets, does=does, called="forward"))


@pytest.mark.parametrize(("sets", "does"), HELD)
def test_layers_have_nowhere_to_go_without_super(sets, does):
    assert loud("PARAM004", OWN_CALL.format(sets=sets, does=does, called="__call__"))


# ── VALUE028: methods of classes that nobody has looked at ─────────────────────────────────────


@pytest.mark.parametrize(
    "line", ["points.clip(-1.0, 1.0)", "points.clamp(min=0)", "points.masked_fill(y, 0)"]
)
@pytest.mark.parametrize(
    "made", ["Points(x)", "octree.Points(points=x)", "Cloud.Points(x) if x is not None else Points(y)"]
)
def test_a_method_of_a_foreign_class_may_change_it(made, line):
    imported = "from octree import Points\nimport octree\nfrom clouds import Cloud\n"
    assert not loud(
        "VALUE028", f"{imported}def f(x, y):\n    points = {made}\n    {line}\n    return points\n"
    )
    assert loud("VALUE028", f"def f(x, y):\n    points = torch.Tensor(x)\n    {line}\n    return points\n")


# ── GRAD003: a way through the program on which nothing is known ───────────────────────────────


FINE_TUNED = """
tune, checkpoint = {tune}, {checkpoint}

def main():
    global checkpoint, tune
    if checkpoint is None:
        head, net = nn.Linear(2, 2), nn.Linear(2, 2)
        a = torch.optim.Adam(head.parameters())
        b = torch.optim.Adam(net.parameters()) if tune else None
    else:
        checkpoint = torch.load(checkpoint)
        head, net = checkpoint["head"], checkpoint["net"]
        a = checkpoint["a"]
        b = checkpoint["b"]
        if tune is True and b is None:
            b = torch.optim.Adam(net.parameters())
    loader = DataLoader(torch.ones(4, 2))
    for epoch in range(3):
        if epoch > 1 and tune:
            b.param_groups[0]["lr"] = 0.1
        fit(net, head, loader, a, b)

def fit(net, head, loader, a, b):
    for x, y in loader:
        loss = F.mse_loss(head(net(x)), y)
        a.zero_grad()
        if b is not None:
            b.zero_grad()
        loss.backward()
        a.step()
        if b is not None:
            b.step()

main()
"""


@pytest.mark.parametrize("tune", ["True", "False", "ask()"])
@pytest.mark.parametrize("checkpoint", ["None", "'last.pt'", "ask()"])
def test_an_optimizer_that_may_be_none_is_cleared_with_the_other(tune, checkpoint):
    assert not loud("GRAD003", FINE_TUNED.format(tune=tune, checkpoint=checkpoint))  # no check failed, either
