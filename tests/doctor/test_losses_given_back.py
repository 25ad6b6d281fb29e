# SPDX-License-Identifier: Apache-2.0
"""Losses that a library goes backward through, or that a step of one batch does: made anew, and kept with their graphs."""

import textwrap

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity
from truestep.doctor.watch_block import watch

LIGHTNING = """
import lightning as L
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 3)
        self.losses, self.total, self.log_of = [], 0, {}
    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        BODY
    def on_train_epoch_end(self):
        END
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
L.Trainer(max_epochs=2).fit(Model(), loader)
"""
TRAINER = """
from transformers import Trainer, TrainingArguments
class Mine(Trainer):
    losses, total, log_of = [], 0, {}
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        y = inputs.pop("labels")
        outputs = model(**inputs)
        loss = F.cross_entropy(outputs.logits, y)
        BODY
    def on_epoch_end(self):
        END
Mine(model=net, args=TrainingArguments("out"), train_dataset=data).train()
"""
IGNITE = """
from ignite.engine import Engine, Events
net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def step(engine, batch):
    self = engine.state
    x, y = batch
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    BODY
    optimizer.step()
    return y
trainer = Engine(step)
trainer.run(loader, max_epochs=2)
"""
OWN = """
class Learner:
    def __init__(self, model, opt, dls):
        self.model, self.opt, self.dls = model, opt, dls
        self.losses, self.total, self.log_of = [], 0, {}
    def one_batch(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        self.opt.zero_grad()
        BODY
        self.opt.step()
    def after_epoch(self):
        END
    def fit(self, epochs):
        for epoch in range(epochs):
            for x, y in self.dls:
                self.one_batch(x, y)
            self.after_epoch()
net = nn.Linear(4, 3)
Learner(net, torch.optim.SGD(net.parameters(), lr=0.1), loader).fit(2)
"""
FORMS = {"lightning": LIGHTNING, "trainer": TRAINER, "ignite": IGNITE, "own": OWN}
TAKEN = {
    "lightning": ("return MADE", "new = MADE\nreturn new", "return {'loss': MADE}", "loss = MADE\nreturn {'loss': loss, 'n': 3}"),
    "trainer": (
        "return MADE",
        "loss = MADE\nreturn (loss, outputs) if return_outputs else loss",
        "loss = MADE\nif return_outputs:\n    return loss, outputs\nreturn loss",
    ),
    "ignite": ("MADE.backward()", "loss = MADE\nloss.backward()"),
    "own": ("MADE.backward()", "loss = MADE\nloss.backward()", "self.loss = MADE\nself.loss.backward()"),
}  # fmt: skip
WHOLE = {
    "lightning": "return loss",
    "trainer": "return (loss, outputs) if return_outputs else loss",
    "ignite": "loss.backward()",
    "own": "loss.backward()",
}
ANEW = (
    "torch.tensor(loss.item(), requires_grad=True)",
    "torch.tensor(loss, requires_grad=True)",
    "torch.tensor([float(loss)], requires_grad=True)",
    "torch.as_tensor(loss.item()).requires_grad_()",
    "torch.from_numpy(loss.detach().numpy()).requires_grad_()",
    "torch.autograd.Variable(loss.data, requires_grad=True)",
    "loss.detach().clone().requires_grad_(True)",
    "loss.new_tensor(loss.item(), requires_grad=True)",
    "nn.Parameter(loss.detach())",
)
KEPT = {
    "self.losses.append(loss)": Severity.RISK,
    "self.losses += [loss]": Severity.RISK,
    "self.losses.append((loss, len(y)))": Severity.RISK,
    "self.losses.append({'loss': loss})": Severity.RISK,
    "self.losses.append(loss * len(y))": Severity.RISK,
    "self.log_of.setdefault('loss', []).append(loss)": Severity.RISK,
    "self.total += loss": Severity.BUG,
    "self.total = self.total + loss": Severity.BUG,
    "self.log_of['loss'] += loss": Severity.BUG,
}
RIGHTLY_KEPT = (
    "self.losses.append(loss.detach())",
    "self.losses.append(loss.item())",
    "self.total += float(loss)",
    "self.last = loss",
    "kept = []\nkept.append(loss)",
    "self.losses.append(y)",
    "with torch.no_grad():\n    self.total = self.total + loss",
    "self.shown = loss.detach().requires_grad_()",
)


def filled(form: str, body: str, end: str = "pass") -> str:
    line = next(each for each in form.splitlines() if each.strip() == "BODY")
    pad = line.removesuffix("BODY")
    return form.replace(line, textwrap.indent(body, pad)).replace("END", end)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("made", ANEW)
def test_a_loss_made_anew_is_told_once(form: str, made: str) -> None:
    for taken in TAKEN[form]:
        assert told("GRAD022", filled(FORMS[form], taken.replace("MADE", made))) == [Severity.BUG], taken


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (
            "lightning",
            "if not loss.isfinite():\n    return torch.tensor(0.0, requires_grad=True)\nreturn loss",
        ),
        (
            "lightning",
            "none = 0.0\nif len(y) < 2:\n    loss = torch.tensor(none, requires_grad=True)\nreturn loss",
        ),
        ("lightning", "return {'loss': loss, 'shown': torch.tensor(loss.item())}"),
        ("lightning", "return torch.as_tensor(loss).clone()"),
        ("trainer", "return (loss.detach(), outputs) if return_outputs else loss"),
        ("trainer", "loss = loss if model.training else loss.detach()\nreturn loss"),
        ("ignite", "loss.backward()\nself.shown = torch.tensor(loss.item())"),
        ("own", "loss.backward()\nself.loss = loss.detach().requires_grad_()"),
    ],
)
def test_a_loss_that_keeps_its_graph_is_quiet(form: str, body: str) -> None:
    assert told("GRAD022", filled(FORMS[form], body)) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kept", "severity"), KEPT.items())
def test_a_step_that_keeps_its_losses_is_told(form: str, kept: str, severity: Severity) -> None:
    assert told("MEM001", filled(FORMS[form], f"{kept}\n{WHOLE[form]}")) == [severity]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kept", RIGHTLY_KEPT)
def test_a_step_that_keeps_numbers_is_quiet(form: str, kept: str) -> None:
    assert told("MEM001", filled(FORMS[form], f"{kept}\n{WHOLE[form]}")) == []


@pytest.mark.parametrize("form", ["lightning", "trainer", "own"])
@pytest.mark.parametrize("end", ["self.losses.clear()", "self.losses = []"])
def test_a_list_that_each_epoch_empties_is_a_question(form: str, end: str) -> None:
    code = filled(FORMS[form], f"self.losses.append(loss)\n{WHOLE[form]}", end)
    assert told("MEM001", code) == [Severity.QUESTION]


def test_a_queue_that_drops_the_oldest_is_quiet() -> None:
    code = filled(
        OWN.replace("self.losses,", "self.losses = deque(maxlen=9); _,"),
        "self.losses.append(loss)\nloss.backward()",
    )
    assert told("MEM001", "from collections import deque\n" + code) == []
    assert told("MEM001", "from collections import deque\n" + code.replace("maxlen=9", "")) == [Severity.RISK]


def test_a_function_that_runs_once_is_quiet() -> None:
    code = filled(OWN, "self.losses.append(loss)\nloss.backward()")
    assert told("MEM001", code.replace("for x, y in self.dls:", "if (pair := next(iter(self.dls))):").replace(
        "for epoch in range(epochs):", "if epochs:").replace("self.one_batch(x, y)", "self.one_batch(*pair)")) == []  # fmt: skip


CLOSURE = """
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.randn(6, 8, 4):
    def closure():
        opt.zero_grad()
        loss = net(x).square().mean()
        LOSS
        return loss
    opt.step(closure)
"""


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("loss.detach().requires_grad_().backward()", 1),
        ("torch.tensor(loss.item(), requires_grad=True).backward()", 1),
        ("loss.backward()", 0),
        ("pass", 0),
        ("loss.backward(); opt.zero_grad()", 0),
    ],
)
def test_a_step_by_a_closure_that_reaches_no_parameter_is_seen(loss: str, expected: int) -> None:
    import torch
    import torch.nn.functional as F
    from torch import nn

    with watch() as report:
        exec(compile(CLOSURE.replace("LOSS", loss), __file__, "exec"), {"torch": torch, "nn": nn, "F": F})
    assert [each.code for each in report.findings].count("GRAD024") == expected
