# SPDX-License-Identifier: Apache-2.0
"""Values that a line computes: of all ways to read one later none is taken for a loss, and what nothing reads is asked about."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

from truestep.core.call_site import unread_result_name
from truestep.doctor.finding import Severity

pytestmark = needs_forks
PROGRAM = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
        self.scale, self.wants_more, self.kept = nn.Parameter(torch.ones(8)), False, []
        self.register_buffer("codes", torch.randn(5, 8))
    def moved(self, hidden):
        return hidden + 1, hidden.tanh()
    def forward(self, x):
        hidden = self.first(x).relu() + 0
        {forward}
        return self.last(hidden)

net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)

def train():
    for number, (x, y) in enumerate(loader):
        opt.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out, y)
        {loop}
        loss.backward()
        opt.step()

train()
"""
READ_IN_FORWARD = {
    "in a branch that is not taken": "weights = hidden.softmax(1)\nif self.wants_more:\n    return hidden, weights",
    "kept": "self.mask = hidden > 0",
    "in a list": "self.kept = [hidden.tanh()]",
    "by a function within": "mask = (x[:, :1] > 0).float()\nhidden = (lambda given: given * mask)(hidden)",
    "with an underscore": "_mask = (x > 0).float()",
    "written in place": "active = hidden.mul_(0.9)",
    "a part that is written in place": "part = hidden[:, :2].mul_(0.9)",
    "one of several": "hidden, more = self.moved(hidden)",
    "a loop": "for _ in range(2):\n    hidden, state = hidden + 0, hidden * 2\n    hidden = hidden + 0 * state",
    "a loop's next turn": (
        "carried = 0 * hidden\nfor _ in range(2):\n    hidden = hidden + carried\n    carried = 0 * hidden.tanh()"
    ),
    "handed through": "flat = hidden.view(-1)",
    "its size": "wide = hidden * 2\nassert wide.shape == hidden.shape",
    "taken away": "wide = hidden * 2\ndel wide",
    "by all names": "wide = hidden * 2\nself.seen = locals()",
    "where an error is caught": "wide = hidden * 2\ntry:\n    hidden = hidden * 1\nexcept ValueError:\n    hidden = wide",
    "augmented": "hidden += 0 * hidden.tanh()",
    "behind a with": "with torch.enable_grad():\n    gain = hidden.tanh()\nhidden = hidden + gain",
    "without a graph": "with torch.no_grad():\n    size = hidden.norm()",
}
READ_IN_LOOP = {
    "guesses": "guess = out.argmax(1)",
    "a rate of right ones": "guess = out.argmax(1)\nright = (guess == y).float().mean()",
    "probabilities": "shares = F.softmax(out, 1)",
    "printed at times": "mean = out.mean()\nif number % 1000 == 999:\n    print(mean)",
    "detached": "told = loss.detach() * 2",
    "for one who reads": "size = x.abs().mean()",
    "a mask that is read": "mask = (x[:, 0] > 0).float()\nloss = loss * (1 + 0 * mask.sum())",
    "a mask that is counted": "mask = x[:, 0] > 0\nif number == 999:\n    print(int(mask.sum()))",
    "another name": "from torch.autograd import Variable\nshown = Variable(torch.cat([x, x]))",
}
LOST_IN_FORWARD = {
    "a mask": ("masked = x * (x > 0).float()", "masked"),
    "an activation": ("active = hidden.tanh()", "active"),
    "over two lines": ("scaled = (hidden *\n    2).contiguous()", "scaled"),
    "where": ("kept = torch.where(x[:, :1] > 0, hidden, 0.0)", "kept"),
    "rows": ("near = torch.cdist(hidden, self.codes).argmin(1)\nchosen = self.codes[near]", "chosen"),
    "stacked": ("rows = [each * 2 for each in hidden]\nstacked = torch.stack(rows)", "stacked"),
    "written over": (
        "normed = F.layer_norm(hidden, (8,))\nnormed = hidden * 1\nhidden = normed",
        "normed",
    ),
    "in a branch": ("if self.training:\n    noisy = hidden + 0.1 * torch.randn(8)", "noisy"),
    "in a loop": ("for _ in range(2):\n    turned = hidden.roll(1, 1)", "turned"),
}


def program(forward="pass", loop="pass"):
    return PROGRAM.format(
        forward=forward.replace("\n", "\n" + 8 * " "), loop=loop.replace("\n", "\n" + 8 * " ")
    )


def findings(code):
    watch = watched(code, ("REL012",))
    assert watch.experiments.records["REL012"].not_tried is None
    return watch.findings


@pytest.mark.sliced(4)
@pytest.mark.parametrize("way", READ_IN_FORWARD)
def test_what_is_read_in_any_way_is_not_lost(way):
    assert findings(program(READ_IN_FORWARD[way])) == []


@pytest.mark.sliced(3)
@pytest.mark.parametrize("way", READ_IN_LOOP)
def test_figures_for_readers_are_not_lost(way):
    assert findings(program(loop=READ_IN_LOOP[way])) == []


@pytest.mark.sliced(3)
@pytest.mark.parametrize("way", LOST_IN_FORWARD)
def test_what_nothing_reads_is_asked_about(way):
    text, name = LOST_IN_FORWARD[way]
    (found,) = findings(program(text))
    assert found.message.startswith(f"{name} is computed here and nothing reads it")
    assert found.severity is Severity.QUESTION


def test_a_term_that_is_not_in_the_loss_is_asked_about():
    (found,) = findings(program(loop="total = loss + 0.1 * out.square().mean()"))
    assert found.message.startswith("total is computed here")


@pytest.mark.parametrize("given", ["torch.cat([x, x])", "Variable(torch.cat([x, x]))"])
def test_a_mask_of_the_loop_s_own_is_asked_about(given):
    code = program(loop=f"from torch.autograd import Variable\nmask_batch = {given}")
    (found,) = findings(code)
    assert found.message.startswith("mask_batch is computed here and nothing reads it")
    assert found.severity is Severity.QUESTION


def test_a_parameter_that_is_used_for_nothing_else_is_a_risk():
    (found,) = findings(program("scaled = hidden * self.scale"))
    assert found.severity is Severity.RISK
    assert "net.scale has no gradient" in found.message


def test_a_call_for_its_effects_changes_what_comes_after():
    code = program("told = self.codes.add_(0.0).sum()\nhidden = hidden + 0 * self.codes[0]")
    assert [each.message.split()[0] for each in findings(code)] == ["told"]


PROBED = """
def pieces(batch):
    return [each for each in batch.split(4)]
probe = nn.Linear(3, 1)
own = torch.optim.SGD(probe.parameters(), lr=0.1)
def train():
    for batch, labels in loader:
        opt.zero_grad()
        x, y = torch.cat(pieces(batch)), torch.cat(pieces(labels))
        F.cross_entropy(net(x), y).backward()
        opt.step()
        own.zero_grad()
        probing(batch, labels).backward()
        own.step()
def probing(batch, labels):
    {unpacked}
    with torch.no_grad():
        features = net(x)
    return probe(features).square().mean()
train()
"""
UNPACKED_ONCE_MORE = {
    "as it is elsewhere": "x, y = torch.cat(pieces(batch)), torch.cat(pieces(labels))",
    "in brackets": "(x, y) = (torch.cat(pieces(batch)), torch.cat(pieces(labels)))",
    "with other rows beside it": "x, y = torch.cat(pieces(batch.roll(1, 0))), torch.cat(pieces(labels))",
    "over two lines": "x, y = (\n    torch.cat(pieces(batch)),\n    torch.cat(list(labels.split(2))),\n)",
    "by another name": "x, kinds = torch.cat(pieces(batch)), torch.cat(pieces(labels))",
}
LOST_BESIDE_ANOTHER = {
    "alone": ("x = torch.cat(pieces(batch))\ny = torch.cat(pieces(labels))", "y"),
    "a mask": ("x, mask = torch.cat(pieces(batch)), torch.cat(pieces(labels > 0))", "mask"),
    "turned": ("x, turned = torch.cat(pieces(batch)), torch.cat(pieces(batch.flip(1)))", "turned"),
    "of a network": ("x, out = torch.cat(pieces(batch)), torch.cat(pieces(net(batch)))", "out"),
    "weights": ("x, weights = torch.cat(pieces(batch)), torch.bincount(labels)[labels].rsqrt()", "weights"),
}


def probed(unpacked):
    return PROBED.format(unpacked=unpacked.replace("\n", "\n    "))


@pytest.mark.parametrize("way", UNPACKED_ONCE_MORE)
def test_data_that_is_unpacked_once_more_beside_what_is_wanted_is_not_asked_about(way):
    assert findings(probed(UNPACKED_ONCE_MORE[way])) == []


@pytest.mark.parametrize("way", LOST_BESIDE_ANOTHER)
def test_what_is_named_beside_another_and_read_nowhere_is_asked_about(way):
    text, name = LOST_BESIDE_ANOTHER[way]
    assert [each.message.split()[0] for each in findings(probed(text))] == [name]


SCRIPT = """
import torch
total = torch.ones(2) * 2
{rest}
"""


@pytest.mark.parametrize(
    ("rest", "name"),
    [
        ("", "total"),
        ("print(total)", None),
        ("def told():\n    return total", None),
        ("total = 3", "total"),
        ("for total in range(3):\n    pass", "total"),
        ("while True:\n    print(1)\n    if total.sum() > 1:\n        break", None),
    ],
)
def test_a_name_of_a_script_may_be_read_by_its_functions(rest, name):
    code = compile(SCRIPT.format(rest=rest), "script.py", "exec")
    assert unread_result_name(code, _call_that_is_stored(code, "total")) == name


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("Variable(torch.ones(2))", "total"),
        ("torch.autograd.Variable(torch.ones(2))", "total"),
        ("kept(Variable(torch.ones(2)))", None),
        ("kept(torch.ones(2))", None),
        ("Variable(kept(torch.ones(2)))", None),
    ],
)
def test_variable_is_what_it_is_given(statement, name):
    import dis

    code = compile(f"import torch\ntotal = {statement}\n", "script.py", "exec")
    calls = [each.offset for each in dis.get_instructions(code) if each.opname == "CALL"]
    assert unread_result_name(code, calls[0]) == name


def test_names_of_a_notebook_may_be_read_by_another_cell():
    code = compile(SCRIPT.format(rest="other = 1"), "<ipython-input-1>", "exec")
    assert unread_result_name(code, _call_that_is_stored(code, "total")) is None


def _call_that_is_stored(code, name):
    import dis

    steps = list(dis.get_instructions(code))
    stored = next(
        number for number, each in enumerate(steps) if each.opname == "STORE_NAME" and each.argval == name
    )
    return steps[stored - 1].offset
