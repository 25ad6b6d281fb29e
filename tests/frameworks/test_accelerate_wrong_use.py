# SPDX-License-Identifier: Apache-2.0
"""What is given to Accelerate's `ExactResume` is looked at where it is made; a save is made where no step is left."""

import json

import pytest

import frameworks

pytestmark = pytest.mark.xdist_group("frameworks")  # one process that the others are forked from

MADE = """
import json, os, shutil
from pathlib import Path
import torch, truestep as ts
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

X = torch.randn(32, 4)
said = {}

def say(name, case):
    try:
        said[name] = case() or "nothing"
    except ts.OptionError as error:
        said[name] = str(error)

def prepared(accumulation=1, seed=0, **made):
    torch.manual_seed(seed)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation, **made)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1), torch.nn.Linear(4, 1))
    made = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.01), DataLoader(X, 4, shuffle=True))
    return accelerator, *made
"""

GIVEN = """
class Stream(IterableDataset):
    def __iter__(self):
        return iter(X)

class HandsOn:
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        return iter(self.loader)
    def __getattr__(self, name):
        return getattr(self.loader, name)

class Own:
    def __iter__(self):
        return iter([X])

accelerator, net, optimizer, loader = prepared()

def make(*given, **named):
    exact = ts.accelerate.ExactResume(*given, every_n_batches=1, **named)
    for _ in exact:
        pass
    exact.close()

given = {
    "batches": list(loader), "none": [], "generator": (batch for batch in loader), "map": map(len, loader), "rows": X,
    "data set": TensorDataset(X), "array": X.numpy(), "own": Own(), "all": (net, optimizer, loader), "net": net,
    "optimizer": optimizer, "loaders": (loader, loader), "number": 3, "prepared": loader, "unprepared": DataLoader(X, 4),
    "stream": accelerator.prepare(DataLoader(Stream(), 4)), "hands on": HandsOn(loader),
}
for name, each in given.items():
    say(name, lambda: make(accelerator, each, name))
say("folder second", lambda: make(accelerator, "second", loader))
say("loader first", lambda: make(loader, accelerator, "first"))
say("folder first", lambda: make(Path("first"), accelerator, loader))
say("named", lambda: make(accelerator=loader, loader="named", directory=accelerator))
say("no accelerator", lambda: make(optimizer, loader, "optimizer"))
for folder in (None, "", 3):
    say(f"folder {folder!r}", lambda: make(accelerator, loader, folder))
print(json.dumps(said))
"""

RIGHT = ("prepared", "unprepared", "stream", "hands on")
NO_LOADER = "where the training loader that accelerator.prepare returned stands. Write "
PREPARED = "net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data_set, batch_size=32, shuffle=True))"
NOT_A_LOADER = (
    *(
        "batches",
        "none",
        "generator",
        "map",
        "rows",
        "data set",
        "array",
        "own",
        "number",
        "net",
        "optimizer",
    ),
    *("all", "loaders", "folder second"),
)
NO_ACCELERATOR = (
    "where the Accelerator stands. Write ts.accelerate.ExactResume(accelerator, loader, directory)."
)
GIVEN_SAYS = {
    **dict.fromkeys(
        NOT_A_LOADER,
        f"{NO_LOADER}{PREPARED} first, and then ts.accelerate.ExactResume(accelerator, loader, dir",
    ),
    "folder second": f"was given a str {NO_LOADER}{PREPARED}",
    **dict.fromkeys(("loader first", "folder first", "named", "no accelerator"), NO_ACCELERATOR),
    **dict.fromkeys(("folder None", "folder ''", "folder 3"), 'Write directory="runs/exact", say.'),
    **dict.fromkeys(RIGHT, "nothing"),
}

STEPS = """
def train(habit, folder, accumulation, every, killed=None):
    accelerator, net, optimizer, loader = prepared(accumulation)
    exact = ts.accelerate.ExactResume(accelerator, loader, folder, every_n_batches=every)
    done = 0
    try:
        for epoch in range(exact.epoch, 3):
            for batch in exact:
                if done == killed:
                    raise KeyboardInterrupt
                done += 1
                if habit == "leaves out" and batch[0, 0] > 0.5:
                    continue
                with accelerator.accumulate(net):
                    accelerator.backward(net(batch).square().mean())
                    optimizer.step()
                    optimizer.zero_grad()
            if habit == "steps behind the pass":
                accelerator.backward(net(X[:4]).square().mean())
                optimizer.step()
                optimizer.zero_grad()
    finally:
        exact.close()
    return [each.detach().clone() for each in net.parameters()]

def goes_on(habit, accumulation, every):
    for folder in ("whole", "killed"):
        shutil.rmtree(folder, ignore_errors=True)
    whole = train(habit, "whole", accumulation, every)
    try:
        train(habit, "killed", accumulation, every, 13)
    except KeyboardInterrupt:
        pass
    return "same bits" if all(map(torch.equal, whole, train(habit, "killed", accumulation, every))) else "other bits"

for habit in HABITS:
    for accumulation, every in ((1, 1), (1, 3), (2, 1), (2, 3)):
        say(f"{habit}, {accumulation}, {every}", lambda: goes_on(habit, accumulation, every))
print(json.dumps(said))
"""
HABITS = dict.fromkeys(("leaves out", "steps behind the pass", "without"), "same bits")

OTHERS = """
def begun(folder, seed, **configured):
    accelerator, net, optimizer, loader = prepared(seed=seed, dataloader_config=DataLoaderConfiguration(**configured))
    exact = ts.accelerate.ExactResume(accelerator, loader, folder, every_n_batches=3)
    try:
        for batch in exact:
            accelerator.backward(net(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    finally:
        exact.close()

begun("seedable", 0, use_seedable_sampler=True)
say("its seed", lambda: begun("seedable", 1, use_seedable_sampler=True))
begun("data seed", 0, use_seedable_sampler=True, data_seed=5)
say("the data's seed", lambda: begun("data seed", 0, use_seedable_sampler=True, data_seed=6))
say("the same data's seed", lambda: begun("data seed", 1, use_seedable_sampler=True, data_seed=5))
begun("plain", 0)
say("no seed of its own", lambda: begun("plain", 1))

run = ts.Run("run", seed=0, doctor=False)
learner = run.learner(torch.nn.Linear(4, 1), lambda parameters: torch.optim.SGD(parameters, lr=0.1))
rows = run.data((X,), batch_size=8)
for _ in run.epochs(1):
    for batch in run.batches(rows):
        learner.update(lambda batch: learner(batch[0]).square().mean(), batch)
run.finish()
shutil.copytree("run", "checkpoints alone")
os.remove("checkpoints alone/config.json")
for folder in ("run", "checkpoints alone"):
    before = sorted(map(str, Path(folder).rglob("*")))
    say(f"{folder}, lightning", lambda: ts.lightning.ExactResume(folder).checkpoint)
    say(f"{folder}, transformers", lambda: ts.transformers.ExactResume(folder).checkpoint)
    say(f"{folder}, accelerate", lambda: begun(folder, 0))
    assert set(before) <= set(map(str, Path(folder).rglob("*")))
print(json.dumps(said))
"""
OTHERS_SAYS = {
    "its seed": "of another order of the samples: the seed was 0, and is 1",
    "the data's seed": "of another order of the samples: the seed was 5, and is 6",
    "the same data's seed": "nothing",
    "no seed of its own": "nothing",
    **{
        f"{folder}, {library}": "is the folder of a ts.Run"
        for folder in ("run", "checkpoints alone")
        for library in ("lightning", "transformers", "accelerate")
    },
}

NAMED = """
from accelerate.utils import ProjectConfiguration

def train(folder, given, is_exact=True, stop=None, hook=None):
    accelerator, net, optimizer, loader = prepared(project_config=ProjectConfiguration(f"{folder}/theirs", **given))
    exact = ts.accelerate.ExactResume(accelerator, loader, f"{folder}/ours", every_n_batches=3) if is_exact else None
    if hook is not None:
        accelerator.register_save_state_pre_hook(hook)
    done = 0
    try:
        for epoch in range(exact.epoch if is_exact else 0, 3):
            for batch in exact or loader:
                accelerator.backward(net(batch).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                done += 1
                if done == stop:
                    raise KeyboardInterrupt
            if given.get("automatic_checkpoint_naming"):
                accelerator.save_state()
    except KeyboardInterrupt:
        return None
    finally:
        if is_exact:
            exact.close()
    theirs = Path(folder, "theirs", "checkpoints")
    named = sorted(each.name for each in theirs.iterdir()) if theirs.is_dir() else []
    return named, accelerator.save_iteration, [each.detach().clone() for each in net.parameters()]

def as_without(name, given):
    named, number, whole = train(f"{name} whole", given)
    if (named, number) != train(f"{name} without", given, is_exact=False)[:2]:
        return f"the user's own are {named}"
    for stop in (4, 9, 7):  # within an epoch; before a save, behind the user's own one; within
        train(f"{name} killed", given, stop=stop)
    named, number, ended = train(f"{name} killed", given)
    limit = given.get("total_limit")
    if given.get("automatic_checkpoint_naming") and len(named) < (limit or 3):
        return f"the user's own are {named}"
    return "same bits" if all(map(torch.equal, whole, ended)) else "other bits"

AUTOMATIC = {"automatic_checkpoint_naming": True}
for name, given in {
    "automatic": AUTOMATIC, "limit": {**AUTOMATIC, "total_limit": 2}, "limit of 1": {**AUTOMATIC, "total_limit": 1},
    "number": {**AUTOMATIC, "iteration": 7}, "folder alone": {}, "limit alone": {"total_limit": 1},
}.items():
    say(name, lambda: as_without(name, given))

def write(_, weights, folder):
    torch.save(weights.pop(), f"{folder}/own.pt")

say("taken out", lambda: train("taken out", {}, hook=lambda _, weights, folder: weights.clear()) and None)
say("taken out, automatic", lambda: train("taken out, automatic", AUTOMATIC, hook=lambda _, w, folder: w.clear()) and None)
say("written", lambda: train("written", {}, hook=write) and None)
say("looked at", lambda: train("looked at", {}, hook=lambda _, weights, folder: len(weights)) and None)
shutil.rmtree("ours of none", ignore_errors=True)
from truestep.checkpoints.store import CheckpointStore
store = CheckpointStore("of none/ours/checkpoints", background=False)
store.save(1, {"name": "accelerate", "files": {}, "place": {}})
store.close()
say("of none", lambda: train("of none", {}) and None)
print(json.dumps(said))
"""
NAMED_SAYS = {
    **dict.fromkeys(
        ("automatic", "limit", "limit of 1", "number", "folder alone", "limit alone"), "same bits"
    ),
    "taken out": "was left no weights to save",
    "written": "nothing",
    "looked at": "nothing",
    "of none": "no weights to go on from. Give ExactResume an empty directory.",
}

EPOCHS = """
import contextlib, io

def ends(folder, loop, every, total, stop=None):
    accelerator, net, optimizer, loader = prepared()
    exact = ts.accelerate.ExactResume(accelerator, loader, folder, every_n_batches=every)
    numbers = range(exact.epoch if loop == "from exact.epoch" else 0, total)
    batches = {"enumerate": enumerate, "tqdm": iter}.get(loop, lambda each: each)
    done = 0
    try:
        for _ in numbers:
            for batch in batches(exact):
                batch = batch[1] if loop == "enumerate" else batch
                accelerator.backward(net(batch).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                done += 1
                if done == stop:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    finally:
        exact.close()

def told(loop, every, total, stop):
    ends(f"{loop} {every} {total} {stop}", loop, every, total, stop)
    with contextlib.redirect_stderr(io.StringIO()) as words:
        ends(f"{loop} {every} {total} {stop}", loop, every, total)
    return words.getvalue()

for loop in ("plain", "enumerate", "tqdm", "from exact.epoch"):
    for name, case in {"within": (3, 2, 13), "at the end": (8, 3, 17), "done": (8, 4, None), "first": (8, 2, 10)}.items():
        say(f"{loop}, {name}", lambda: told(loop, *case))
print(json.dumps(said))
"""
TOO_MANY = "and the loop has not asked for it: one that begins at 0 trains"
EPOCHS_SAYS = {
    **{
        f"{loop}, {end}": TOO_MANY
        for loop in ("plain", "enumerate", "tqdm")
        for end in ("within", "at the end", "done")
    },
    **{f"{loop}, first": TOO_MANY for loop in ("plain", "enumerate", "tqdm")},
    "from exact.epoch": "going on from step",
}
NEVER = {"from exact.epoch, first": TOO_MANY}
NEVER |= {f"from exact.epoch, {end}": TOO_MANY for end in ("within", "at the end", "done")}


@pytest.mark.parametrize(
    ("program", "says"),
    [
        pytest.param(NAMED, NAMED_SAYS, id="named"),
        pytest.param(EPOCHS, EPOCHS_SAYS, id="epochs"),
        pytest.param(GIVEN, GIVEN_SAYS, id="given"),
        pytest.param(f"HABITS = {list(HABITS)}\n{STEPS}", HABITS, id="steps"),
        pytest.param(OTHERS, OTHERS_SAYS, id="others"),
    ],
)
def test_a_wrong_use_is_named_and_a_right_one_is_not(program, says, tmp_path):
    done = frameworks.run("-c", MADE + program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    found = {
        name: says.get(name, says.get(name.partition(",")[0], "?")) in words for name, words in said.items()
    }
    assert found == dict.fromkeys(said, True), said
    assert not [name for name, words in said.items() if NEVER.get(name, "?!") in words], said
    assert len(said) >= len(says)
