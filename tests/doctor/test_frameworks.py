# SPDX-License-Identifier: Apache-2.0
"""Trainings in Lightning, Accelerate, the Trainer and Ignite, read and watched: right ones are quiet, faults are named."""

import os
import sys
import warnings
from importlib import import_module
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch._dynamo

from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_text
from truestep.doctor.watch_block import watch

pytestmark = pytest.mark.imports_framework


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Import them once, as they set environment variables; not while tests are collected, for the forks of others copy them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("accelerate", "ignite.engine", "lightning", "transformers"):
            import_module(name)


DATA = """
data = TensorDataset(torch.randn(96, 4), torch.arange(96) % 3)
loader = DataLoader(data, batch_size=8, shuffle=True)
def network():
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
"""
SCHEDULES = {
    "none": "None",
    "cosine": "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates)",
    "warm-up": "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))",
}
LIGHTNING = """
import lightning
class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = network()
    def training_step(self, batch, _index):
        x, y = batch
        return F.cross_entropy(self.net(x), y)
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = SCHEDULE
        if schedule is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, accumulate_grad_batches=K, gradient_clip_val=1.0,
)
trainer.fit(Classifier(), loader)
"""
ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=K)
net = network()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
schedule = SCHEDULE
schedule = accelerator.prepare(schedule) if schedule is not None else None
for _epoch in range(2):
    for x, y in loader:
        with accelerator.accumulate(net):
            accelerator.backward(F.cross_entropy(net(x), y))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            if schedule is not None:
                schedule.step()
            optimizer.zero_grad()
"""
TRAINER = """
from transformers import Trainer, TrainingArguments
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()
    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}
rows = [{"x": x, "labels": y} for x, y in data]
model = Classifier()
arguments = TrainingArguments(
    "out", num_train_epochs=2, per_device_train_batch_size=8, gradient_accumulation_steps=K, learning_rate=1e-2,
    report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
Trainer(model, arguments, train_dataset=rows, optimizers=(optimizer, SCHEDULE)).train()
"""
IGNITE = """
from ignite.engine import Events, create_supervised_trainer
net = network()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
schedule = SCHEDULE
trainer = create_supervised_trainer(net, optimizer, nn.CrossEntropyLoss(), gradient_accumulation_steps=K)
if schedule is not None:
    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=K), lambda: schedule.step())
trainer.run(loader, max_epochs=2)
"""
PROGRAMS = {"lightning": LIGHTNING, "accelerate": ACCELERATE, "transformers": TRAINER, "ignite": IGNITE}
HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
"""


@pytest.fixture(autouse=True)
def as_found(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with mock.patch.dict(os.environ), torch.random.fork_rng():
        yield
    torch._dynamo.reset()


def said_of(text):
    """Return the codes that both halves say of a program, advice left out, and what broke in them."""
    read = read_text(text, "train.py")
    with watch() as watched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, str(Path("train.py").resolve()), "exec"), {"__name__": "__main__"})
    assert watched.history.num_steps
    assert (read.failures, watched.failures) == ([], [])
    found = [*read.findings, *watched.findings]
    return {each.code for each in found if each.severity is not Severity.ADVICE}


def written(library, num_accumulated, schedule="none"):
    updates = 24 // num_accumulated
    made = SCHEDULES[schedule].replace("updates", str(updates))
    return HEAD + DATA + PROGRAMS[library].replace("SCHEDULE", made).replace("K", str(num_accumulated))


@pytest.mark.sliced(8)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("num_accumulated", [1, 3])  # of 12 batches
@pytest.mark.parametrize("library", PROGRAMS)
def test_nothing_is_said_of_a_right_program(library, num_accumulated, schedule):
    assert said_of(written(library, num_accumulated, schedule)) == set()


BEHIND = {
    "its own": ("accelerator.backward(loss)", None),
    "plain": ("loss.backward()", "Write accelerator.backward(loss)."),
    "without a name": (
        "F.cross_entropy(net(x), y).backward()",
        "Write accelerator.backward(F.cross_entropy(net(x), y)).",
    ),
    "among others": ("with torch.enable_grad(): loss.backward()", "Write accelerator.backward(loss)."),
    "divided by hand": ("(loss / 3).backward()", None),
}


@pytest.mark.parametrize("name", BEHIND)
def test_the_backward_that_accelerate_divides_is_named(name):
    line, told = BEHIND[name]
    whole = "accelerator.backward(F.cross_entropy(net(x), y))"
    text = written("accelerate", 3).replace(whole, f"loss = F.cross_entropy(net(x), y)\n            {line}")
    found = [each.message for each in read_text(text).findings if each.code == "GRAD005"]
    assert len(found) == (told is not None), found
    assert all(each.endswith(told) for each in found), found


@pytest.mark.parametrize("num_accumulated", [1, 3])
def test_gradients_that_accelerate_never_clears_are_named(num_accumulated):
    text = written("accelerate", num_accumulated).replace("            optimizer.zero_grad()\n", "")
    assert said_of(text) == {"GRAD001"}


@pytest.mark.sliced(2)
@pytest.mark.parametrize(
    ("library", "said"),
    # the Trainer divides by the batches in the window; Ignite's windows go on into the next epoch
    [("lightning", {"GRAD066"}), ("accelerate", {"GRAD066"}), ("transformers", set()), ("ignite", set())],
)
def test_a_short_last_window_that_counts_too_little_is_named(library, said):
    assert said_of(written(library, 5)) == said  # of 12 batches


PLAIN = """
batches = [(torch.randn(4, 4), torch.randint(3, (4,))) for _ in range(NUM)]
net = network()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for _epoch in range(2):
    for i, (x, y) in enumerate(batches):
        (F.cross_entropy(net(x), y) / DIVISOR).backward()
        if (i + 1) % K == 0 or i + 1 == len(batches):
            BEFORE
            optimizer.step()
            optimizer.zero_grad()
"""
HABITS = {  # of the last window: what is done before the step, what the loss is divided by, and whether it is right
    "as it is": ("pass", "K", False),
    "clipped": ("torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)", "K", False),
    "scaled": ("[p.grad.mul_(K / (i % K + 1)) for p in net.parameters()]", "K", True),
    "divided": ("pass", "min(K, len(batches) - i // K * K)", True),
    "summed": ("pass", "1", True),
}


@pytest.mark.sliced(4)
@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize(("num", "by"), [(6, 3), (7, 3), (8, 4), (9, 2), (5, 4), (3, 4)])
def test_a_short_window_of_a_plain_loop_is_named_where_it_follows_full_ones_and_nothing_makes_up_for_it(
    habit, num, by
):
    before, divisor, is_right = HABITS[habit]
    text = (
        PLAIN.replace("BEFORE", before)
        .replace("DIVISOR", divisor)
        .replace("NUM", str(num))
        .replace("K", str(by))
    )
    short = num % by and num > by and not is_right
    assert ("GRAD066" in said_of(HEAD + DATA + text)) == bool(short)


WOKEN = """
net = network()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for i in range(60):
    x, y = torch.randn(4, 4), torch.randint(3, (4,))
    BEFORE
    (F.cross_entropy(net(x), y) / 2).backward()
    AFTER
    if i % 2 == 1:
        optimizer.step()
        optimizer.zero_grad()
"""
WAKES = [  # a watch that sleeps, within a window: it sees the second of two backwards alone
    ("pass", "torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)"),
    ("if i == 41:\n        with torch.no_grad():\n            print(net(x).sum())", "pass"),
    ("if i == 41:\n        net.eval(), net.train()", "pass"),
    ("if i == 41:\n        with torch.inference_mode():\n            print(net(x).sum())", "pass"),
]


@pytest.mark.parametrize(("before", "after"), WAKES)
def test_a_window_that_is_watched_in_part_is_not_taken_for_a_short_one(before, after):
    assert "GRAD066" not in said_of(HEAD + DATA + WOKEN.replace("BEFORE", before).replace("AFTER", after))


# a Trainer leaves the division to a model that takes **kwargs: to see whether this one does is the check's task
TOKENS = """
import transformers
from transformers import Trainer, TrainingArguments
rows = [{"input_ids": torch.randint(5, 50, (8,)), "labels": LABELS} for _ in range(20)]
size = dict(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
config = transformers.MODELConfig(**size, pad_token_id=0, num_labels=2)
model = transformers.MODELTASK(config)
arguments = TrainingArguments(
    "out", max_steps=4, per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[], save_strategy="no",
    use_cpu=True, disable_tqdm=True,
)
trainer = Trainer(model, arguments, train_dataset=rows)
CHANGE
trainer.train()
"""
ONE, EACH = "int(torch.randint(2, ()))", "torch.randint(2, (8,))"
LEFT_UNDIVIDED = [
    ("Bert", "ForSequenceClassification", ONE),
    ("Bert", "ForTokenClassification", EACH),
    ("Roberta", "ForSequenceClassification", ONE),
    ("Electra", "ForTokenClassification", EACH),
    ("Llama", "ForTokenClassification", EACH),
]
DIVIDED_BY_ITSELF = [
    ("Llama", "ForCausalLM", EACH),
    ("GPT2", "LMHeadModel", EACH),
]
CHANGES = {
    "by the Trainer": "trainer.model_accepts_loss_kwargs = False",
    "by the Trainer, told so": "trainer.loss_is_scaled_for_ga = False",
    "by a function": (
        "trainer.compute_loss_func = lambda outputs, labels, num_items_in_batch: "
        "F.cross_entropy(outputs.logits, labels, reduction='sum') / num_items_in_batch"
    ),
    "of one batch": "arguments.gradient_accumulation_steps = 1",
}
UNDONE = {
    "at all": "pass",
    "by a function": "trainer.compute_loss_func = lambda outputs, labels, **_: F.cross_entropy(outputs.logits, labels)",
}


def observed(model, task, labels, change="pass"):
    text = TOKENS.replace("MODEL", model).replace("TASK", task).replace("LABELS", labels)
    text = HEAD + text.replace("CHANGE", change)
    with watch() as watched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, str(Path("train.py").resolve()), "exec"), {"__name__": "__main__"})
    assert (watched.history.num_steps, watched.failures) == (4, [])
    (line,) = [number for number, each in enumerate(text.splitlines(), 1) if each == "trainer.train()"]
    found = [each for each in watched.findings if each.code == "GRAD005"]
    assert all((each.place.line, each.severity) == (line, Severity.RISK) for each in found)
    return [each.message for each in found]


@pytest.mark.sliced(2)
@pytest.mark.parametrize("form", LEFT_UNDIVIDED, ids="-".join)
def test_a_loss_that_a_trainer_takes_for_divided_is_named(form):
    (told,) = observed(*form)
    assert "trainer.model_accepts_loss_kwargs = False" in told


@pytest.mark.sliced(1)
@pytest.mark.parametrize("form", DIVIDED_BY_ITSELF, ids="-".join)
def test_nothing_is_said_of_a_model_that_divides_its_loss(form):
    assert observed(*form) == []


@pytest.mark.sliced(2)
@pytest.mark.parametrize("way", CHANGES)
def test_nothing_is_said_of_a_trainer_whose_loss_is_divided(way):
    assert observed(*LEFT_UNDIVIDED[0], CHANGES[way]) == []


def test_a_loss_function_that_leaves_out_the_number_of_items_is_named():
    (told,) = observed(*LEFT_UNDIVIDED[0], UNDONE["by a function"])
    assert "compute_loss_func divide" in told
