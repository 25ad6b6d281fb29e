# SPDX-License-Identifier: Apache-2.0
"""What somebody meets in a first hour with `ExactResume`: wrong calls are answered by the line to write, right code by no line."""

import json

import pytest

import frameworks

pytestmark = pytest.mark.xdist_group("frameworks")  # one process that the others are forked from

LIGHTNING = """
import json, logging, os, sys, warnings
import lightning, torch, truestep as ts
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader
warnings.simplefilter("ignore")

class Module(lightning.LightningModule):
    def __init__(self, rate, steps, kind):
        super().__init__()
        self.rate, self.steps, self.kind, self.net = rate, steps, kind, torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.net(batch).square().mean()
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.rate, momentum=0.9)
        schedule = {
            "one cycle": lambda: lr_scheduler.OneCycleLR(optimizer, self.rate, total_steps=self.steps),
            "by epochs": lambda: lr_scheduler.OneCycleLR(optimizer, self.rate, epochs=self.steps // 8, steps_per_epoch=8),
            "cyclic": lambda: lr_scheduler.CyclicLR(optimizer, self.rate / 10, self.rate, step_size_up=4),
            "cosine": lambda: lr_scheduler.CosineAnnealingLR(optimizer, self.steps),
        }[self.kind]()
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

def fit(callbacks, epochs=1, checkpoint=None, rate=0.1, steps=16, kind="cosine"):
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=epochs, callbacks=callbacks, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Module(rate, steps, kind), DataLoader(torch.ones(32, 4), 4), ckpt_path=checkpoint)

def exact(name):
    return ts.lightning.ExactResume(name, every_n_batches=3)

def goes_on(name, given=True, **made):
    callback = exact(name)
    fit([callback], 2, callback.checkpoint if given else None, **made)

run = ts.Run("run", doctor=False)
once = exact("once")
made = {"one cycle": 8, "by epochs": 8, "cosine": 8, "cyclic": 16, "one cycle, planned": 16, "forgotten": 16}
for name, steps in made.items():
    fit([exact(name)], steps=steps, kind=name.partition(",")[0] if name != "forgotten" else "cosine")
cases = {
    "two": lambda: fit([exact("a"), exact("b")]),
    "two of one folder": lambda: fit([exact("a"), exact("a")]),
    "twice": lambda: fit([once, once]),
    "run": lambda: fit([run]),
    "longer one cycle": lambda: goes_on("one cycle", steps=16, kind="one cycle"),
    "longer by epochs": lambda: goes_on("by epochs", steps=16, kind="by epochs"),
    "longer, as planned before": lambda: goes_on("one cycle", steps=8, kind="one cycle"),
    "other plan": lambda: goes_on("one cycle, planned", steps=32, kind="one cycle"),
    "longer cosine": lambda: goes_on("cosine", steps=16),
    "rate of cosine": lambda: goes_on("cosine", steps=8, rate=0.5),
    "rate of cyclic": lambda: goes_on("cyclic", rate=0.5, kind="cyclic"),
    "rate of one cycle": lambda: goes_on("one cycle, planned", rate=0.5, kind="one cycle"),
    "forgotten": lambda: goes_on("forgotten", given=False, rate=0.5),
    "right": lambda: goes_on("one cycle, planned", kind="one cycle"),
}
said = {}
for name, case in cases.items():
    print("begins " + name, file=sys.stderr, flush=True)
    try:
        case()
        said[name] = "nothing"
    except Exception as error:
        said[name] = str(error)
        print(" ".join(str(each) for each in (error, error.__context__) if each), file=sys.stderr)
print(json.dumps(said))
"""
ONE = "one keeps all of a training, in one directory. Write callbacks=[exact]"
ENDS = "holds a checkpoint whose OneCycleLR ends at step 8, behind which it raises, and this training is to make 16."
LIGHTNING_SAYS = {
    "two": f"The Trainer was given two ExactResume, and {ONE}",
    "two of one folder": f"The Trainer was given two ExactResume, and {ONE}",
    "twice": f"The Trainer was given the same ExactResume twice, and {ONE}",
    "run": "Trainer takes callbacks=[ts.lightning.ExactResume(directory)]",
    "longer one cycle": ENDS,
    "longer by epochs": ENDS,
    "longer, as planned before": ENDS,
    "other plan": "nothing",
    "longer cosine": "nothing",
    "rate of cosine": "nothing",
    "rate of cyclic": "nothing",
    "rate of one cycle": "nothing",
    "forgotten": "this training does not begin there",
    "right": "nothing",
}
NO_EFFECT = {
    "other plan": ["total_steps of OneCycleLR is 32"],
    "longer cosine": ["T_max of CosineAnnealingLR is 16"],
    "rate of cosine": ["lr of SGD is 0.5"],
    "rate of cyclic": ["base_lr of CyclicLR is 0.05", "max_lr of CyclicLR is 0.5"],
    "rate of one cycle": ["max_lr of OneCycleLR is 0.5"],
}


def test_lightning(tmp_path):
    done = frameworks.run("-c", LIGHTNING, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert {name: words in said[name] for name, words in LIGHTNING_SAYS.items()} == dict.fromkeys(
        said, True
    ), said
    parts = dict(part.split("\n", 1) for part in done.stderr.split("begins ")[1:])
    told = {
        name: [line.removeprefix("truestep: ") for line in part.splitlines() if "has no effect" in line]
        for name, part in parts.items()
    }
    wanted = {name: NO_EFFECT.get(name, []) for name in parts}
    assert {name: [line.split(" in the code")[0] for line in lines] for name, lines in told.items()} == wanted
    assert "weights_only" not in done.stderr  # which Lightning prints at each save that leaves it open


TRANSFORMERS = """
import json
import torch, truestep as ts
from transformers import Trainer, TrainingArguments

class Net(torch.nn.Linear):
    def forward(self, x, labels):
        return {"loss": (super().forward(x) - labels).square().mean()}

def train(callbacks, add=False):
    arguments = TrainingArguments("theirs", save_steps=2, max_steps=4, report_to="none", use_cpu=True, disable_tqdm=True)
    data = [{"x": torch.ones(4), "labels": torch.ones(1)}] * 64
    trainer = Trainer(Net(4, 1), arguments, train_dataset=data, callbacks=[] if add else callbacks)
    for each in callbacks if add else []:
        trainer.add_callback(each)
    trainer.train()

run = ts.Run("run", doctor=False)
exact = ts.transformers.ExactResume
same, again = exact("same"), exact("again")
cases = {
    "two": lambda: train([exact("a"), exact("b")]),
    "twice": lambda: train([same, same]),
    "run": lambda: train([run]),
    "run, added": lambda: train([run], add=True),
    "class": lambda: train([exact]),
    "class, added": lambda: train([exact], add=True),
    "one": lambda: train([again]),
}
said = {}
for name, case in cases.items():
    try:
        case()
        said[name] = "nothing"
    except Exception as error:
        said[name] = str(error)
print(json.dumps(said))
"""
CLASS = 'given to a Trainer, has none. Write exact = ts.transformers.ExactResume("runs/exact"), and callbacks=[exact].'
TRANSFORMERS_SAYS = {
    "two": f"The Trainer was given two ExactResume, and {ONE}",
    "twice": f"The Trainer was given the same ExactResume twice, and {ONE}",
    "run": "ts.transformers.ExactResume(directory)",
    "run, added": "ts.transformers.ExactResume(directory)",
    "class": CLASS,
    "class, added": CLASS,
    "one": "nothing",
}


def test_the_trainer(tmp_path):
    done = frameworks.run("-c", TRANSFORMERS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert {name: words in said[name] for name, words in TRANSFORMERS_SAYS.items()} == dict.fromkeys(
        said, True
    ), said


ACCELERATE = """
import json, pickle, sys
import torch, truestep as ts
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)
X = torch.randn(32, 4)
net = torch.nn.Linear(4, 1)
raw = DataLoader(X, 4, shuffle=True)
net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), raw)

def step(batch):
    accelerator.backward(net(batch).square().mean())
    optimizer.step()
    optimizer.zero_grad()

def take(batches):
    for batch in batches:
        step(batch)

def by_hand(batches):
    batches = iter(batches)
    for _ in range(4):
        step(next(batches))

def right(exact):
    for epoch in range(exact.epoch, 1):
        for batch in exact:
            step(batch)

def looks(exact):
    net(next(iter(exact)))

def few(exact):
    for batch, _ in zip(exact, range(3)):
        step(batch)

def planned(steps):
    mine = accelerator.prepare(torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps))
    exact = ts.accelerate.ExactResume(accelerator, loader, "planned", every_n_batches=3)
    try:
        for epoch in range(exact.epoch, 1):
            for batch in exact:
                step(batch)
                mine.step()
    finally:
        exact.close()
        accelerator._schedulers.clear()

cases = {
    "loader": lambda exact: take(loader),
    "by hand": lambda exact: by_hand(loader),
    "without the first": lambda exact: take(accelerator.skip_first_batches(loader, 2)),
    "after a look": lambda exact: (looks(exact), take(loader)),
    "prepared again": lambda exact: take(accelerator.prepare(exact)),
    "registered": lambda exact: accelerator.register_for_checkpointing(exact),
    "registered with another": lambda exact: accelerator.register_for_checkpointing(optimizer, exact),
    "checkpoint": lambda exact: accelerator.load_state(exact.checkpoint),
    "state": lambda exact: exact.state_dict(),
    "pickled": lambda exact: pickle.dumps(exact),
    "never": lambda exact: None,
    "only looked at": looks,
    "few": few,
    "evaluated": lambda exact: [net(batch) for batch in loader] and None,
    "other batches first": lambda exact: (take(DataLoader(X, 4)), right(exact)),
    "right": right,
    "right, evaluated": lambda exact: (right(exact), [net(batch) for batch in loader]),
    "right, over": right,
    "unprepared": right,
}
said = {}
for name, case in cases.items():
    print("begins " + name, file=sys.stderr, flush=True)
    folder = "right" if name == "right, over" else name
    given, every = raw if name == "unprepared" else loader, 100 if name == "few" else 3
    exact = ts.accelerate.ExactResume(accelerator, given, folder, every_n_batches=every)
    try:
        case(exact)
        said[name] = "nothing"
    except Exception as error:
        said[name] = str(error)
    exact.close()
for steps in (8, 16):
    print(f"begins planned {steps}", file=sys.stderr, flush=True)
    planned(steps)
print(json.dumps(said))
"""
LOOP = "Write for batch in exact:, where it is for batch in loader:"
BY_LOADER = "3 steps took their batches from the loader, and not from the ExactResume of"
REGISTERED = "it saves itself between two batches of for batch in exact, and is not registered"
RIGHT = (
    *("never", "only looked at", "few", "evaluated", "other batches first"),
    *("right", "right, evaluated", "right, over", "unprepared", "prepared again"),
)
ACCELERATE_SAYS = {
    **dict.fromkeys(("loader", "by hand", "without the first", "after a look"), BY_LOADER),
    **dict.fromkeys(("registered", "registered with another", "state"), REGISTERED),
    "checkpoint": "it goes on where it is made, so nothing is left to load; the loop is for epoch in range(exact.epoch, 20)",
    "pickled": "can't be pickled or copied",
    **dict.fromkeys(RIGHT, "nothing"),
}
ACCELERATE_TELLS = {
    **dict.fromkeys(("never", "only looked at", "evaluated"), "no batch was taken from exact"),
    "few": "ended before its first save was due (every_n_batches=100), so a kill would have lost all of it. Write",
    "unprepared": "accelerator.prepare has not returned the loader",
}


def test_accelerate(tmp_path):
    done = frameworks.run("-c", ACCELERATE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert {name: words in said[name] for name, words in ACCELERATE_SAYS.items()} == dict.fromkeys(
        said, True
    ), said
    parts = dict(part.split("\n", 1) for part in done.stderr.split("begins ")[1:])
    assert "16 has no effect" in parts["planned 16"]
    assert "It ends at step 8: train no longer." in parts["planned 16"]
    for name in RIGHT:
        told = [line for line in parts[name].splitlines() if "going on" not in line]
        assert len(told) == (name in ACCELERATE_TELLS), (name, told)
        assert ACCELERATE_TELLS.get(name, "") in "".join(told), (name, told)
