# SPDX-License-Identifier: Apache-2.0
"""Uses of `ExactResume` that would save nothing or go on to other bits are refused, each with the line to write.

The frameworks set variables when they are imported, so each trains in a process of its own, once for all of its cases.
"""

import json

import pytest

import frameworks

pytestmark = pytest.mark.xdist_group("frameworks")  # one process that the others are forked from

LIGHTNING = """
import itertools, json, logging, os, warnings
import lightning, torch, truestep as ts
from torch.utils.data import DataLoader
from truestep.lightning import ExactResume
warnings.simplefilter("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
assert ExactResume is ts.lightning.ExactResume

class Module(lightning.LightningModule):
    def __init__(self, width, kind=torch.optim.SGD, rate=0.1):
        super().__init__()
        self.made = lambda parameters: kind(parameters, lr=rate)
        self.net = torch.nn.Linear(4, width)
    def training_step(self, batch, index):
        return self.net(batch).square().mean()
    def configure_optimizers(self):
        return self.made(self.parameters())

def fit(callbacks, checkpoint=None, samples=16, batch_size=4, accumulation=1, epochs=2, width=1, workers=0,
    given=lambda loader: loader, **made):
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=epochs, callbacks=callbacks, accumulate_grad_batches=accumulation, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    loader = DataLoader(torch.randn(samples, 4), batch_size, shuffle=True, num_workers=workers)
    trainer.fit(Module(width, **made), given(loader), ckpt_path=checkpoint)

class Iterable:
    def __iter__(self):
        return iter([torch.randn(4, 4)] * 8)

def goes_on(**habits):
    exact = ExactResume("exact", every_n_batches=3)
    fit([exact], exact.checkpoint, epochs=3, **habits)

def launched():
    os.environ["WORLD_SIZE"] = "2"  # as Lightning's launcher and torchrun set it
    try:
        ExactResume("launched").checkpoint
    finally:
        del os.environ["WORLD_SIZE"]
        assert not os.path.exists("launched")

torch.manual_seed(3)
exact = ExactResume("exact", every_n_batches=3)
fit([exact], exact.checkpoint)
fit([ExactResume("long", every_n_batches=3)], epochs=4)
fit([ExactResume("rarely", every_n_batches=1000)])
said = {}
cases = {
    "class": lambda: fit([ExactResume]),
    "other library": lambda: fit([ts.transformers.ExactResume("other")]),
    "samples": lambda: goes_on(samples=24),
    "batch_size": lambda: goes_on(batch_size=8),
    "accumulation": lambda: goes_on(accumulation=2),
    "model": lambda: goes_on(width=2),
    "optimizer": lambda: goes_on(kind=torch.optim.Adam),
    "fewer epochs": lambda: fit([exact := ExactResume("long", every_n_batches=3)], exact.checkpoint, epochs=1),
    "callback as path": lambda: fit([exact := ExactResume("exact")], exact),
    "directory as path": lambda: fit([ExactResume("exact")], "exact"),
    "name": lambda: __import__("truestep.lightning", fromlist=["Exact"]).ExactResumeCallback,
    "place": lambda: ts.ExactResume("exact"),
    "none": lambda: ExactResume(None),
    "empty": lambda: ExactResume(""),
    "two loaders": lambda: fit([ExactResume("two")], given=lambda loader: [loader, loader]),
    "any order": lambda: fit([ExactResume("any")], given=lambda loader: DataLoader(loader.dataset, 4, in_order=False)),
    "iterable": lambda: fit([ExactResume("iterable")], given=lambda _: Iterable()),
    "launched": launched,
    "called": lambda: fit([exact := ExactResume("exact")], exact.checkpoint()),
    "called at first": lambda: fit([exact := ExactResume("first")], exact.checkpoint()),
}
for name, case in cases.items():
    try:
        case()
        said[name] = "nothing"
    except Exception as error:
        said[name] = " ".join([str(error), *getattr(error, "__notes__", [])])
torch.manual_seed(4)
goes_on(workers=1, rate=5.0)
forgotten = ExactResume("forgotten")
fit([], forgotten.checkpoint)
print(json.dumps(said))
"""

ACCELERATE = """
import json, itertools
import torch, truestep as ts
from accelerate import Accelerator
from torch.utils.data import DataLoader
from truestep.accelerate import ExactResume

accelerator = Accelerator(cpu=True)
raw = torch.nn.Linear(4, 1)

def train(name, take="exact", start="exact.epoch", epochs=1, batch_size=4, order=lambda *given: given, seed=0):
    torch.manual_seed(0)
    loader = accelerator.prepare(DataLoader(torch.randn(16, 4), batch_size, shuffle=True))
    torch.manual_seed(seed)
    exact = ExactResume(*order(accelerator, loader), name, every_n_batches=2)
    try:
        for epoch in range(exact.epoch if start == "exact.epoch" else 0, epochs):
            for batch in exact if take == "exact" else loader:
                optimizer.zero_grad()
                accelerator.backward(net(batch).square().mean())
                optimizer.step()
    finally:
        exact.close()

said = {}
def say(name, case):
    try:
        case()
        said[name] = "nothing"
    except ts.OptionError as error:
        said[name] = str(error)

def other_model():
    accelerator._models.append(torch.nn.Linear(2, 2))
    try:
        train("right", epochs=4)
    finally:
        accelerator._models.pop()

say("unprepared", lambda: train("unprepared"))
net, optimizer = accelerator.prepare(raw), torch.optim.AdamW(raw.parameters(), lr=0.1)
say("optimizer", lambda: train("optimizer"))
net, optimizer = accelerator.prepare(raw, torch.optim.SGD(raw.parameters(), lr=0.1))
say("right", lambda: train("right", epochs=2))
say("goes on", lambda: train("right", epochs=3))
say("batch_size", lambda: train("right", epochs=4, batch_size=8))
say("other model", lambda: other_model())
def remade(kind, rate, **options):
    mine, accelerator._optimizers[:] = list(accelerator._optimizers), [kind(raw.parameters(), lr=rate)]
    try:
        train("right", **options)
    finally:
        accelerator._optimizers[:] = mine

say("other optimizer", lambda: remade(torch.optim.Adam, 0.1, epochs=4))
say("other rate", lambda: remade(torch.optim.SGD, 5.0, epochs=4, seed=4))
say("loader", lambda: train("loader", take="loader"))
say("crossed", lambda: train("crossed", order=lambda one, other: (other, one)))
say("model", lambda: train("model", order=lambda one, _: (one, net)))
train("right", start=0, epochs=1)

def scheduled(name, form, steps):
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer.optimizer, 1.0, 0.5, 16)
    if form == "registered":
        accelerator.register_for_checkpointing(schedule)
    elif form == "prepared":
        schedule = accelerator.prepare(schedule)
    elif form == "held":
        holder = type("Holder", (), {"state_dict": schedule.state_dict, "load_state_dict": schedule.load_state_dict})()
        holder.schedule = schedule
        accelerator.register_for_checkpointing(holder)
    hook = optimizer.optimizer.register_step_post_hook(lambda *_: schedule.step() if steps else None)
    try:
        train(name, epochs=2)
    finally:
        hook.remove()
        accelerator._schedulers.clear(), accelerator._custom_objects.clear()

for form in ("plain", "registered", "prepared", "held"):
    say(form + " schedule", lambda: scheduled(form, form, True))
    import gc; gc.collect()
say("idle schedule", lambda: scheduled("idle", "plain", False))
print(json.dumps(said))
"""

TRANSFORMERS = """
import json
import torch, truestep as ts
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from truestep.transformers import ExactResume

def train(exact, samples=16, batch_size=4, accumulation=1, epochs=1, callbacks=None, workers=0, rate=0.1, seed=42,
    data_seed=None, given=None, theirs="theirs", **model):
    model = {"n_embd": 4, "n_layer": 1, **model}
    config = GPT2Config(vocab_size=8, n_positions=4, n_head=1, bos_token_id=0, eos_token_id=0, **model)
    arguments = TrainingArguments(
        theirs, per_device_train_batch_size=batch_size, num_train_epochs=epochs, save_strategy="steps", save_steps=2,
        learning_rate=rate, gradient_accumulation_steps=accumulation, report_to="none", use_cpu=True, disable_tqdm=True,
        dataloader_num_workers=workers, seed=seed, data_seed=data_seed,
    )
    data = [{"input_ids": torch.arange(4), "labels": torch.arange(4)} for _ in range(samples)]
    callbacks = [exact] if callbacks is None else callbacks
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=given or exact.checkpoint)

train(ExactResume("exact"))
said = {}
cases = {
    "samples": {"samples": 24}, "batch_size": {"batch_size": 2}, "accumulation": {"accumulation": 2},
    "model": {"n_embd": 8}, "layers": {"n_layer": 2},
    "seed": {"seed": 1}, "data seed": {"data_seed": 1}, "both seeds": {"seed": 1, "data_seed": 1},
}
for name, habits in cases.items():
    try:
        train(ExactResume("exact"), epochs=2, **habits)
        said[name] = "nothing"
    except ts.OptionError as error:
        said[name] = str(error)
open("file", "w").close()
try:
    ExactResume("file")
except ts.OptionError as error:
    said["file"] = str(error)
for name, add in {"other library": False, "other library, added": True}.items():
    other = ts.lightning.ExactResume("other")
    trainer = Trainer(torch.nn.Linear(4, 4), TrainingArguments("theirs", report_to="none", use_cpu=True, disable_tqdm=True),
        train_dataset=[{"input": torch.ones(4)}] * 4) if add else None
    try:
        if add:
            trainer.add_callback(other)
            trainer.train()
        else:
            train(other, callbacks=[other])
        said[name] = "nothing"
    except AttributeError as error:
        said[name] = str(error)
try:
    train(ExactResume("path"), given=ExactResume("path"))
    said["callback as path"] = "nothing"
except ts.OptionError as error:
    said["callback as path"] = str(error)
try:
    train(ExactResume("called"), given=ExactResume("called").checkpoint())
    said["called"] = "nothing"
except ts.OptionError as error:
    said["called"] = str(error)
train(ExactResume("exact"), epochs=2, workers=1, rate=5.0, seed=4, data_seed=42)
forgotten = ExactResume("forgotten")
train(forgotten, callbacks=[])
print(json.dumps(said))
"""

SAYS = {
    LIGHTNING: {
        "class": 'exact = ts.lightning.ExactResume("runs/exact"), and callbacks=[exact].',
        "other library": "Write ts.lightning.ExactResume(directory).",
        "samples": "the number of samples was 16, and is 24",
        "batch_size": "batch_size was 4, and is 8",
        "accumulation": "the number of batches to a step was 1, and is 2",
        "model": "net.weight was (1, 4), and is (2, 4) (and 1 more)",
        "optimizer": "the optimizer was SGD, and is Adam",
        "fewer epochs": "max_epochs=1 asks for no more than is done, so nothing would be trained. Write a larger max_epochs, or",
        "callback as path": "ckpt_path is the callback itself, and that is no checkpoint",
        "directory as path": "ckpt_path is its directory",
        "name": "Did you mean 'ExactResume'?",
        "place": "ts.lightning.ExactResume(directory)",
        "none": "was given None for its directory",
        "empty": "was given '' for its directory",
        "two loaders": "this training has 2. Give one DataLoader",
        "any order": "DataLoader(in_order=False) gives batches",
        "iterable": "which iterates in a way of its own",
        "launched": "trains on 2",
        "called": "no method to call. Write trainer.fit(model, loader, ckpt_path=exact.checkpoint)",
        "called at first": "no method to call. Write trainer.fit(model, loader, ckpt_path=exact.checkpoint)",
    },
    ACCELERATE: {
        "unprepared": "Write net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data_set",
        "optimizer": "has prepared no optimizer, so its save_state would save no moments or rate",
        "plain schedule": "Write accelerator.register_for_checkpointing(schedule)",
        "registered schedule": "nothing",
        "prepared schedule": "nothing",
        "held schedule": "nothing",
        "idle schedule": "nothing",
        "right": "nothing",
        "goes on": "nothing",
        "batch_size": "batch_size was 4, and is 8",
        "other model": "holds a checkpoint of another model",
        "other optimizer": "the optimizer was SGD, and is Adam",
        "other rate": "nothing",
        "loader": "took their batches from the loader, and not from the ExactResume of",
        "crossed": "where the Accelerator stands. Write ts.accelerate.ExactResume(accelerator, loader, ",
        "model": "where the training loader that accelerator.prepare returned stands",
    },
    TRANSFORMERS: {
        "samples": "the number of samples was 16, and is 24",
        "batch_size": "batch_size was 4, and is 2",
        "accumulation": "the number of batches to a step was 1, and is 2",
        "model": "and is (8, 8) (and ",
        "layers": "was not there, and is (4,) (and 11 more)",
        "seed": "of another order of the samples: the seed was 42, and is 1",
        "data seed": "of another order of the samples: the seed was 42, and is 1",
        "both seeds": "of another order of the samples: the seed was 42, and is 1",
        "file": "names a file",
        "callback as path": "trainer.train(resume_from_checkpoint=exact.checkpoint)",
        "called": "no method to call. Write trainer.train(resume_from_checkpoint=exact.checkpoint)",
        "other library": "Write ts.transformers.ExactResume(directory).",
        "other library, added": "Write ts.transformers.ExactResume(directory).",
    },
}
ERR = {
    LIGHTNING: "ExactResume('forgotten') was made, and no trainer began with it",
    ACCELERATE: "Write for epoch in range(exact.epoch, N):",
    TRANSFORMERS: "ExactResume('forgotten') was made, and no trainer began with it",
}


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(LIGHTNING, marks=pytest.mark.slow, id="lightning"),
        pytest.param(ACCELERATE, id="accelerate"),
        pytest.param(TRANSFORMERS, marks=pytest.mark.slow, id="transformers"),
    ],
)
def test_a_wrong_use_is_named_with_the_line_to_write(program, tmp_path):
    done = frameworks.run("-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert {name: words in said[name] for name, words in SAYS[program].items()} == dict.fromkeys(
        said, True
    ), said
    assert done.stderr.count(ERR[program]) == 1, done.stderr
    rates = "is 5.0 in the code, and was 0.1 when this training began"
    assert done.stderr.count(rates) == 1, done.stderr
    seeds = "the seed is 4 in the code, and was "
    assert done.stderr.count(seeds) == 1, done.stderr
    assert "truestep: going on from step " in done.stderr
    rarely = "ended before its first save was due (every_n_batches=1000)"
    assert done.stderr.count(rarely) == (program == LIGHTNING), done.stderr
    assert done.stderr.count("num_workers was 0, and is 1") == (program != ACCELERATE), done.stderr


FIRST_START = (
    TRANSFORMERS.partition("train(ExactResume")[0]
    + "train(ExactResume('first'), given={given}, theirs='first of theirs')"
)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["True", "'first of theirs'", "'first'"])
def test_a_first_start_that_asks_for_a_checkpoint_of_the_trainers_is_told_of_ours(tmp_path, given):
    program = FIRST_START.replace("{given}", given)
    done = frameworks.run("-c", program, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("Write trainer.train(resume_from_checkpoint=exact.checkpoint)") == 1, done.stderr


NAMES = """
import json, torch, truestep as ts
from accelerate import Accelerator, skip_first_batches
from truestep.core.guidance import guidance_by_name

accelerator = Accelerator(cpu=True)
net = torch.nn.Linear(4, 1)
prepared = accelerator.prepare(net, torch.optim.SGD(net.parameters()), torch.utils.data.DataLoader(torch.ones(8, 4)))
made = {
    "lightning": ts.lightning.ExactResume("lightning"),
    "transformers": ts.transformers.ExactResume("transformers"),
    "accelerate": ts.accelerate.ExactResume(accelerator, prepared[2], "accelerate"),
}
said = {}
for library, exact in made.items():
    for name in (*guidance_by_name(f"{library}.exact.NAME"), "epochz", "_private"):
        if name == "__reduce__":  # which it has, to say so
            continue
        try:
            said[f"{library} {name}"] = str(getattr(exact, name))
        except AttributeError as error:
            said[f"{library} {name}"] = str(error)
options = {}
for name in guidance_by_name("ts.transformers.ExactResume(NAME=...)"):
    try:
        ts.transformers.ExactResume("options", **{name: 3})
    except ts.OptionError as error:
        options[name] = str(error)
try:
    skip_first_batches(made["accelerate"], 2)
except AttributeError as error:
    options["skip_first_batches"] = str(error)
print(json.dumps([said, options]))
"""


def test_a_name_that_it_does_not_have_is_answered_with_the_call_to_write(tmp_path):
    done = frameworks.run("-c", NAMES, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said, options = json.loads(done.stdout.splitlines()[-1])
    assert "write for batch in exact, without skip_first_batches" in options.pop("skip_first_batches")
    assert "every_n_batches" in options
    assert all('save_strategy="steps", save_steps=100' in each for each in options.values())
    for asked, message in said.items():
        library, name = asked.split()
        assert message.startswith(f"ts.{library}.ExactResume has no attribute {name!r}")
    assert "ckpt_path=exact.checkpoint" in said["lightning resume"]
    assert "resume_from_checkpoint=exact.checkpoint" in said["transformers resume"]
    assert "between two batches of for batch in exact" in said["accelerate save"]
    assert said["accelerate epochz"].endswith("Did you mean 'epoch'?")


NEVER_SAVED = """
import sys
import torch, transformers, truestep as ts
def train(folder, every):
    arguments = transformers.TrainingArguments(
        folder + "/theirs", save_steps=every, max_steps=4, report_to="none", use_cpu=True, disable_tqdm=True)
    class Net(torch.nn.Linear):
        def forward(self, x, labels):
            return {"loss": (super().forward(x) - labels).square().mean()}
    data = [{"x": torch.ones(4), "labels": torch.ones(1)}] * 64
    exact = ts.transformers.ExactResume(folder + "/exact")
    print("begins", file=sys.stderr)
    transformers.Trainer(Net(4, 1), arguments, train_dataset=data, callbacks=[exact]).train(
        resume_from_checkpoint=exact.checkpoint)
    return arguments
train("seldom", 500)
train("seldom", 500)
arguments = train("often", 2)
try:
    ts.transformers.ExactResume(arguments)
except ts.OptionError as error:
    print(error)
"""


def test_a_trainer_that_saves_only_at_its_last_step_is_told_so_once(tmp_path):
    done = frameworks.run("-c", NEVER_SAVED, cwd=tmp_path)
    said = ["before its first save was due (save_steps=500)" in part for part in done.stderr.split("begins")]
    assert said == [False, True, False, False], done.stderr
    assert done.stdout.splitlines()[-1].startswith(
        "ExactResume was given a TrainingArguments for its directory"
    )
