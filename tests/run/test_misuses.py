# SPDX-License-Identifier: Apache-2.0
"""Mistakes that users of plain PyTorch, Lightning, Accelerate and Keras make with the public names: none is silent.

Each row is a program and what must be said of it, by an exception, on standard error or as a warning. To add one, add a row.
What a plain loop does around its step stands in `test_by_hand.py`.
"""

import gc
import re
import textwrap
import traceback
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

PRELUDE = """
torch.manual_seed(0)
inputs, labels = torch.randn(16, 3), torch.arange(16) % 2
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
adamw = lambda p: torch.optim.AdamW(p, lr=1e-3)
run = ts.Run(folder / "run", device="cpu", progress=False, doctor=False)
net = run.learner(model, adamw, name="net")
train = run.data((inputs, labels), batch_size=4)
test = run.data((inputs, labels), batch_size=8)

def loss(batch):
    x, y = batch
    return F.cross_entropy(net(x), y, reduction="none")

def correct(batch):
    x, y = batch
    return (net(x).argmax(1) == y).float()
"""
LOOP = """
for epoch in run.epochs(2):
    for batch in run.batches(train):
        {body}
    {end}
"""


def loop(body, end="pass"):
    return LOOP.format(body=body, end=end)


def given_whole(data, form="batch"):
    """Return a program whose loss gives the model the whole batch."""
    return f"train = run.data({data}, batch_size=4)\n" + loop(
        f"net.update(lambda batch: net({form}).sum(1), batch)"
    )


MISUSES = {
    # ------------------------------------------------------------------ the loops
    "epochs as a number": (
        "for epoch in range(run.epochs(2)): pass",
        r"run\.epochs\(2\) gives the numbers .*for number in run\.epochs",
    ),
    "steps as a number": ("for step in range(run.steps(9)): pass", r"Write for number in run\.steps\(9\):"),
    "a step in a run's block": ("with run: run.step(5)", r"run\.step is no method.*write run\.step\."),
    "a step outside of loops": ("run.step(5)", r"run\.step is no method, but a value \(0\): write run\.step\."),
    "a loop over the step": ("for step in run.step(100): net.update(loss, (inputs, labels))", r"in run\.steps\(100\)"),
    "a count of steps": ("print('step', run.step(), sep=' ')", r"run\.step is no method"),
    "an epoch as a method": ("def run_on(run): return run.epoch()\nrun_on(run)", r"run\.epoch is no method"),
    "whether it is the main one": ("if run.is_main(): print('here')", r"value \(True\): write run\.is_main\."),
    "a device as a method": ("inputs.to(run.device())", r"run\.device is no method.*write run\.device\."),
    "a rate as a method": ("print(net.learning_rate())", r"value \(0\.001\): write net\.learning_rate\."),
    "a loss of an update as a method": (
        "print(net.update(loss, (inputs, labels)).loss())",
        r"update\.loss is no method.*: write update\.loss\.",
    ),
    "epochs within batches": (
        "for batch in run.batches(train):\n    for epoch in run.epochs(3): net.update(loss, batch)",
        r"Turn the two round: for epoch in run\.epochs\(3\): for batch in run\.batches\(train\)",
    ),
    "an update behind the loop": (
        "for epoch in run.epochs(2):\n    for batch in run.batches(train): pass\n    net.update(loss, batch)",
        r"stands behind the loop .* all of its 4 batches: behind a loop it is made once.*Write it into that loop",
    ),
    "updates on batches taken beforehand": (
        "for epoch in run.epochs(2):\n    for batch in list(run.batches(train)): net.update(loss, batch)",
        r"batches taken beforehand, as by list\(run\.batches\(source\)\), count as done.*Write it into that loop",
    ),
    "steps of an epoch": ("run.epochs(3, steps=10)", r"Write the limit where batches are taken: run\.batches\(source, limit=10\)"),
    "an evaluation of each with each": (
        "net.evaluate(lambda b: (net(b[0])[:, :1] - b[1]).square(), test)",
        r"Each example was compared with each other one.*outputs\.squeeze\(1\)",
    ),
    "an update before the loops": (
        "net.update(loss, (inputs, labels))\n" + loop("net.update(loss, batch)"),
        r"before any loop of the run.*each start of the script makes it again",
    ),
    "updates without a loop of the run": (
        "for epoch in range(2):\n    for i in range(0, 16, 4): net.update(loss, (inputs[i:i + 4], labels[i:i + 4]))",
        r"before any loop of the run.*for batch in run\.batches\(source\)",
    ),
    # ------------------------------------------------------------------ what the model is given
    "a pair for the model": (given_whole("(inputs, labels)"), r"given all of it.*x, y = batch, and net\(x\)"),
    "a list for the model": (
        given_whole("[(x, y) for x, y in zip(inputs, labels)]"),
        r"given all of it.*x, y = batch, and net\(x\)",
    ),
    "three for the model": (given_whole("(inputs, labels, labels)"), r"x, \*others = batch, and net\(x\)"),
    "a dict for the model": (given_whole("{'x': inputs, 'y': labels}"), r"Take it apart by name: batch\['x'\], batch\['y'\]"),
    # ------------------------------------------------------------------ text, and names that are not there
    "a rate that is text": (
        "run.learner(nn.Linear(2, 1), lambda p: torch.optim.AdamW(p, lr='1e-3'))",
        r"YAML reads 1e-3 as text.*lr=float\(lr\)",
    ),
    "a configuration that was not given": ("run.config['lr']", r"it holds what ts\.Run\(directory, config=.*\) was given"),
    "early stopping by a name": ("ts.EarlyStopping(monitor='accuracy', patience=3, mode='max')", r"if early\.step\(accuracy\)"),
    # ------------------------------------------------------------------ the loss and the update
    "a loss that is computed": (loop("net.update(loss(batch), batch)"), r"a Tensor instead of a loss function"),
    "batch and loss exchanged": (loop("net.update(batch, loss)"), r"Exchange the two: net\.update\(loss, batch\)"),
    "a loss that logs": (
        loop("net.update(lambda b: (run.log(x=1.0), loss(b))[1], batch)"),
        r"run\.log\(x=\.\.\.\) was called inside of an update.*ts\.weighted\(losses, accuracy=correct\)",
    ),
    "a loss divided by the parts": (
        loop("net.update(lambda b: loss(b) / 2, batch, micro_batch=2)"),
        r"divided by 2, and it is computed in 2 parts.*2 times too small\. Leave the division out",
    ),
    "a loss times one over the parts": (
        loop("net.update(lambda b: ts.weighted(loss(b) * 0.25), batch, micro_batch=1)"),
        r"divided by 4, and it is computed in 4 parts",
    ),
    "losses of a block divided by the parts": (
        """
with net.accumulating() as update:
    for batch in run.batches(train): update.backward(loss(batch) / 4)
""",
        r"divided by 4, and it is computed in 4 parts",
    ),
    "means of a block divided by the parts": (
        """
with net.accumulating() as update:
    for batch in run.batches(train): update.backward(loss(batch).mean() / 4, weight=len(batch[0]))
""",
        r"divided by 4, and it is computed in 4 parts",
    ),
    "means of a block": (
        """
with net.accumulating() as update:
    for batch in run.batches(train): update.backward(loss(batch).mean())
""",
        r"a second scalar .*update\.backward\(part, weight=len\(x\)\).*net\.accumulating\(weight=1\)",
    ),
    "a block of one part": (
        "for batch in run.batches(train):\n    with net.accumulating() as update: update.backward(loss(batch).mean() / 4)",
        r"divided by 4, and the block makes its update of this one loss.*have the block around all parts",
    ),
    "a sum over the batch": (
        loop("net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction='sum'), batch)"),
        r'a sum over its batch .*last batch counts less.*reduction="none"',
    ),
    "a sum by hand": (loop("net.update(lambda b: loss(b).sum(), batch)"), r"a sum over its batch"),
    "a divergence for each class": (
        loop("net.update(lambda b: F.kl_div(net(b[0]).log_softmax(1), torch.full((4, 2), 0.5), reduction='none'), batch)"),
        r"add up within an example: values\.flatten\(1\)\.sum\(1\)",
    ),
    "a cross entropy by hand": (
        loop("net.update(lambda b: -(torch.full((4, 2), 0.5) * net(b[0]).log_softmax(1)), batch)"),
        r"add up within an example: values\.flatten\(1\)\.sum\(1\)",
    ),
    "autocast around the update": (
        loop("torch.autocast('cpu', dtype=torch.bfloat16)(lambda: net.update(loss, batch))()"),
        r'within torch\.autocast \(bfloat16\).*precision="bf16-mixed"',
    ),
    "float16 in a loss": (
        loop("net.update(torch.autocast('cpu', dtype=torch.float16)(loss), batch)"),
        r'float16 at least in part .* below 6e-8 become 0.*precision="fp16-mixed"',
    ),
    "float16 in a block of a loss": (
        """
def half(batch):
    with torch.autocast("cpu", dtype=torch.float16): outputs = net(batch[0])
    return F.cross_entropy(outputs.float(), batch[1], reduction="none")
"""
        + loop("net.update(half, batch)"),
        r"float16 at least in part",
    ),
    "float16 in a module": (
        "model.forward = torch.autocast('cpu', dtype=torch.float16)(model.forward)\n" + loop("net.update(loss, batch)"),
        r"float16 at least in part",
    ),
    "float16 by half": (
        loop("net.update(lambda b: F.cross_entropy(net(b[0]).half().float(), b[1], reduction='none'), batch)"),
        r"float16 at least in part",
    ),
    "float16 in a block of losses": (
        loop("with net.accumulating() as update: update.backward(torch.autocast('cpu', dtype=torch.float16)(loss)(batch))"),
        r"float16 at least in part",
    ),
    "accumulation of an update": (
        loop("net.update(loss, batch, accumulate=4)"),
        r"batch_size=4 \* 32\) and run\.learner\(net, optimizer, micro_batch=32\)",
    ),
    "accumulation of a learner": (
        "run.learner(model, adamw, gradient_accumulation_steps=4)",
        r"batch_size=4 \* 32\) and run\.learner\(net, optimizer, micro_batch=32\)",
    ),
    "a scaler around the update": (
        "scaler = torch.amp.GradScaler('cpu')\n" + loop("scaler.scale(net.update(loss, batch).loss).backward()"),
        r"has made backward and step by then, and update\.loss is a number .*a GradScaler around it out",
    ),
    "gradients added up by hand": (
        loop("loss(batch).mean().backward(); net.optimizers[0].step()"),
        r"with gradients of a backward\(\) of your own.*micro_batch=32",
    ),
    "all frozen": (
        "net.requires_grad_(False)\n" + loop("net.update(loss, batch)"),
        r"all 4 parameters of 'net' are frozen now .*requires_grad_\(True\)",
    ),
    "a batch that is moved": (
        loop("net.update(lambda b: loss(b.to('cpu')), batch)"),
        r"leave \.to\(\.\.\.\) out: what run\.batches and net\.evaluate give is on run\.device already",
    ),
    "a loss that returns nothing": (loop("net.update(lambda b: print(), batch)"), r"returned NoneType.*reduction="),
    "a loss that updates": (loop("net.update(lambda b: net.update(loss, b).loss, batch)"), "an update is under way"),
    "a mean where parts are summed": (
        loop("net.update(lambda b: loss(b).mean(), batch, micro_batch=2)"),
        r'Return one loss per example \(reduction="none"\)',
    ),
    "an update without gradients": (loop("torch.no_grad()(lambda: net.update(loss, batch))()"), "gradients are switched off"),
    "clip in the update": (loop("net.update(loss, batch, clip=1.0)"), r"where the learner is made: .*clip=ts\.ClipNorm"),
    "a graph kept": (loop("net.update(loss, batch, retain_graph=True)"), r"torch\.autograd\.grad"),
    "targets apart": (loop("net.update(loss, batch[0], targets=batch[1])"), r"net\.update\(loss, \(inputs, targets\)\)"),
    "an accuracy of the update": (loop("net.update(loss, batch).accuracy"), r"ts\.weighted\(losses, accuracy=correct\)"),
    "a block without a loss": ("with net.accumulating() as update: loss((inputs, labels))", r"call update\.backward\(loss\)"),
    "a block that was not entered": ("net.accumulating().backward(loss((inputs, labels)))", r"outside of the block"),
    "a rate beside a schedule": (
        """
net = run.learner(nn.Linear(3, 2), adamw, schedule=lambda o: ts.warmup_cosine(o, warmup_steps=2, total_steps=20))
for epoch in run.epochs(2):
    for batch in run.batches(train):
        net.update(loss, batch)
    net.optimizers[0].param_groups[0]["lr"] = 0.5
""",
        r"was set to 0\.5 by hand, and its schedule= \(LambdaLR\) sets it anew",
    ),
    # ------------------------------------------------------------------ loops and data
    "a number that is no number": (
        "for epoch in run.epochs(1):\n    for i, batch in run.batches(train): net.update(loss, batch)",
        r"for i, batch in enumerate\(run\.batches\(source\)\)",
    ),
    "labels in order": (
        "train = run.data((inputs, labels.sort().values), batch_size=4)\n" + loop("net.update(loss, batch)"),
        r"come class by class.*shuffle=True",
    ),
    "a loader in its own loop": (
        """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size=4)
for epoch in run.epochs(2):
    for batch in loader: net.update(loss, batch)
""",
        r"no batch came from run\.batches.*source = run\.data\(data\) .*which also takes a DataLoader",
    ),
    "a loader in run.batches": ("run.batches(torch.utils.data.DataLoader(inputs))", r"Write train = run\.data\(data_set"),
    "epochs of a pass": ("run.batches(train, epochs=3)", r"for epoch in run\.epochs\(20\)"),
    "a batch by its number": ("train[0]", r"for batch in run\.batches\(source\)"),
    "a transform": ("run.data((inputs, labels), batch_size=4, transform=len)", "the data set's own __getitem__"),
    "epochs that are done": (
        "for epoch in run.epochs(2): pass\nfor epoch in run.epochs(2): pass",
        r"all 2 epochs are done already; .* write run\.epochs\(4\) for 2 more",
    ),
    "fewer epochs than are done": (
        "for epoch in run.epochs(8): pass\nfor epoch in run.epochs(1): pass",
        r"8 epochs are done already; .* write run\.epochs\(9\) for 1 more",
    ),
    "a batch to look at": (
        "next(iter(run.batches(train)))\n" + loop("net.update(loss, batch)"),
        r"1 batch came from run\.batches before run\.epochs began.*counts as steps.*if run\.step == 1: print\(batch\)",
    ),
    "a part of an epoch": ("run.epochs(2.5)", r"a whole number of at least 0, run\.epochs\(3\)\."),
    "a range for epochs": ("run.epochs(range(3))", r"a whole number of at least 0, run\.epochs\(3\)"),
    "a text for steps": ("run.steps('9')", r"given '9'.*run\.steps\(9\)"),
    "a fraction for a limit": ("run.batches(train, limit=2.0)", r"given 2\.0.*run\.batches\(source, limit=2\)"),
    "a fraction for a batch": ("run.data(inputs, batch_size=4.0)", r"batch_size=4\.0 is a float; write batch_size=4, a whole"),
    "a run to resume from": (
        "ts.Run(folder / 'x', resume_from='runs/digits')",
        r"no option 'resume_from'.*goes on by itself.*ts\.load_weights\(module, path\)",
    ),
    "no resume": ("ts.Run(folder / 'x', resume=False)", r'resume=False\).*resume="anew" starts a new one beside it'),
    "the next batch of a source": ("next(train)", r"iterated by itself.*for batch in run\.batches\(source\)"),
    "steps within epochs": ("for e in run.epochs(1):\n    for s in run.steps(3): pass", "is the outermost loop"),
    "no update": (loop("loss(batch)"), r"no update was made in 4 batches.*net\.update\(loss, batch\)"),
    # ------------------------------------------------------------------ measuring and logging
    "tensors evaluated": ("net.evaluate(correct, (inputs, labels))", r"the data themselves \(\(16, 3\), \(16,\)\).*run\.data\("),
    "rows evaluated": ("net.evaluate(correct, inputs)", r"Make a source of them first: run\.data\(data, batch_size=256\)"),
    "a mean evaluated": ("net.evaluate(lambda b: loss(b).mean(), test)", "Return one value per example"),
    "an update logged": (loop("run.log(x=net.update(loss, batch))"), r"The loss of an update is update\.loss"),
    "a function logged": ("run.log(accuracy=net.evaluate)", "It was not called"),
    "a text logged": ("run.log(accuracy='0.5')", r"given a str, '0\.5'.*run\.log\(accuracy=float\(value\)\)"),
    "weights for a module": (
        "run.learner(torch.nn.Linear(3, 1).state_dict(), lambda p: torch.optim.SGD(p, lr=0.1), name='b')",
        r"a dict of tensors, as state_dict\(\) gives: make the module, call its load_state_dict\(\)",
    ),
    "an accelerator": ("ts.Run('other', accelerator='cpu')", r'device="cuda", "cpu" or "auto"'),
    "a name and a value": ("run.log('accuracy', 0.5)", r"run\.log\(accuracy=value\)"),
    "the run's own name": (
        loop("net.update(loss, batch)", "run.log(loss=net.evaluate(loss, test))"),
        r"run\.log\(loss=\.\.\.\) has the name .* run\.log\(val_loss=\.\.\.\)",
    ),
    "a warm-up in epochs": (
        "ts.warmup_cosine(torch.optim.SGD(model.parameters()), warmup_epochs=1, total_steps=9)",
        r"no option 'warmup_epochs'\. Write warmup_steps=2 \* train\.num_batches for two epochs: it counts updates",
    ),
    "a schedule's end in epochs": (
        "ts.warmup_linear(torch.optim.SGD(model.parameters()), warmup_steps=1, epochs=9)",
        r"no option 'epochs'\. Write total_steps=20 \* train\.num_batches",
    ),
    # ------------------------------------------------------------------ the run and its learners
    "a module for a class": ("ts.run('runs/x')", r"ts\.run is a module and can't be called\. ts\.Run\(directory\)"),
    "a second run": ("ts.Run(folder / 'run', progress=False)", "another ts.Run of .* was made while one was open"),
    "a run that is over": (
        "again = ts.Run(folder / 'run', progress=False)\nfor epoch in run.epochs(1): pass",
        "This run is over: another ts.Run",
    ),
    "no seed": ("ts.Run(folder / 'x', seed=None)", r"ts\.Run\(seed=None\)"),
    "Keras' compile": ("net.compile(optimizer='adam', loss='mse')", r"net\.update\(loss, batch\)"),
    "Keras' fit": ("net.fit(inputs, labels)", "The loop is yours"),
    "Accelerate's prepare": ("run.prepare(model, train)", r"net = run\.learner\(module, optimizer\)"),
    "an optimizer made already": ("run.learner(nn.Linear(1, 1), torch.optim.SGD(model.parameters()))", "Pass a function"),
    "an average without its block": (
        "run.learner(nn.Linear(1, 1), adamw, ema=ts.EMA()).averaged()",
        r"without a with block.*with net\.averaged\(\)",
    ),
    "an average for a model": (
        "run.learner(nn.Linear(1, 1), adamw, ema=ts.EMA()).averaged()(inputs)",
        r"with net\.averaged\(\): and call net\(inputs\)",
    ),
    "a layer replaced": ("model[0] = nn.Linear(3, 4)\n" + loop("net.update(loss, batch)"), "a layer was replaced or added"),
    "a measure that logs": (
        "net.evaluate(lambda b: (run.log(x=1.0), correct(b))[1], test)",
        r"by the function that net\.evaluate calls with each batch.*run\.log\(accuracy=net\.evaluate",
    ),
    "a pass that is over": (
        "batches = run.batches(train)\nfor epoch in range(2):\n    for batch in batches: net.update(loss, batch)",
        r"one pass\. Call it anew for each",
    ),
    "a run for its folder": ("ts.write_report(run)", r"not as a Run\. Write run\.directory"),
    "a run among runs": ("ts.runs(run)", r"Write run\.directory"),
    "an update behind the end": (
        loop("net.update(loss, batch)") + "run.close()\nnet.update(loss, (inputs, labels))",
        r"behind run\.close\(\): what it changes is in no checkpoint",
    ),
    "an optimizer put in": (
        "net.optimizers[0] = torch.optim.SGD(model.parameters(), lr=0.1)",
        r"net\.optimizers can be read, not changed",
    ),
    "optimizers put in": ("net.optimizers = []", r"made by the function that run\.learner\(module, optimizer\) is given"),
    "parameters put in": (
        "net.optimizers[0].add_param_group({'params': [nn.Parameter(torch.ones(2))]})\n" + loop("net.update(loss, batch)"),
        "1 parameters that its module does not have",
    ),
    "optimizer and module exchanged": ("run.learner(adamw, model)", r"It comes first, .*run\.learner\(net, lambda p"),
    "a model for a directory": ("ts.Run(model)", r"ts\.Run was given a Sequential first\. Give the directory"),
    "a file to go on from": ("ts.Run(folder / 'x', resume='runs/x/1.pt')", r"names a file.*ts\.load_weights\(module, path\)"),
    "a file beside the script to go on from": ("ts.Run(folder / 'x', resume='best.pt')", r"names a file"),
    "batches by hand, too many": (
        "batches = iter(run.batches(train))\nfor _ in range(9):\n    net.update(loss, next(batches))",
        r"this pass of run\.batches has ended.*which begins each pass anew",
    ),
    "batches by hand among steps": (
        "batches = iter(run.batches(train))\nfor step in run.steps(9):\n    net.update(loss, next(batches))",
        r"this pass of run\.batches has ended",
    ),
    "a batch by hand behind a pass": (
        "batches = run.batches(train)\nwhile True:\n    net.update(loss, next(batches))",
        r"this pass of run\.batches has ended",
    ),
    "an example without its batch": (
        "net.update(lambda x: net(x)[:1].square(), inputs[0])",
        r"The loss has shape \(1,\), expected \(3,\).*each tensor of it is given as x\[None\]",
    ),
    "a transition without its batch": (
        "net.update(lambda b: net(b['state'])[b['action']].square()[None], {'state': inputs[0], 'action': torch.tensor(1)})",
        r"lacks that dimension: each tensor of it is given as x\[None\]",
    ),
    "a mean that kept its dimension": (
        loop("net.update(lambda b: loss(b).mean(0, keepdim=True), batch)"),
        r"or the mean without a dimension: values\.mean\(\)",
    ),
    "an array for a module": ("net(inputs.numpy())", r"was given a ndarray\. Make one of it: net\(torch\.as_tensor"),
    "a list for a module": ("net([0.5, 1.0, 2.0])", r"was given a list\. Make one of it"),
    "a number for a module": ("net(1.0)", r"was given a float\. Make one of it"),
    "a buffer for data": (
        "class Replay:\n    def sample(self, size):\n        return inputs[:size]\nrun.data(Replay(), batch_size=4)",
        r"Replay, which gives batches by its own sample\(\).*for step in run\.steps.*run\.track",
    ),
    "a share of the newest weights for a decay": (
        "run.learner(nn.Linear(3, 2), adamw, ema=ts.EMA(decay=0.005))",
        r"what stays of the average at an update.*write EMA\(decay=0\.995\)",
    ),
    "such a share alone": (
        "run.learner(nn.Linear(3, 2), adamw, ema=0.005)",
        r"the share of the newest weights .*write EMA\(decay=0\.995\)",
    ),
    "such a share by its name": (
        "run.learner(nn.Linear(3, 2), adamw, ema=ts.EMA(tau=0.005))",
        r"decay=1 - tau.*ts\.EMA\(decay=0\.995\)",
    ),
    "such a share for a learner": (
        "run.learner(nn.Linear(3, 2), adamw, tau=0.005)",
        r"ema=ts\.EMA\(decay=1 - tau\)",
    ),
    "another learner's optimizer": (
        "other = torch.optim.Adam(model.parameters())\nrun.learner(nn.Linear(3, 2), lambda p: other, name='second')",
        r"optimizer of 'second' holds 4 parameters not of the learner, but of 'net' ",
    ),
    "another learner's parameters": (
        "run.learner(nn.Linear(3, 2), lambda p: torch.optim.Adam(model.parameters()), name='second')",
        r"optimizer of 'second' holds 4 parameters not of the learner, but of 'net' ",
    ),
    "another learner's layer in a group": (
        "some = [{'params': model[0].parameters()}]\nrun.learner(nn.Linear(3, 2), lambda p: torch.optim.Adam(some))",
        r"optimizer of 'linear' holds 2 parameters not of the learner, but of 'net' ",
    ),
    "one optimizer for two": (
        "h = nn.Linear(3, 2)\nboth = torch.optim.Adam([*net.parameters(), *h.parameters()])\nrun.learner(h, lambda p: both)",
        r"optimizer of 'linear' holds 4 parameters not of the learner, but of 'net' ",
    ),
    "weights and module exchanged": ("ts.load_weights(folder, model)", r"The module comes first"),
    "weights of a run": ("ts.load_weights(model, run)", r"write run\.directory"),
    "weights before the first save": (
        "next(iter(run.batches(train)))\nts.load_weights(nn.Linear(3, 2), run.directory)",
        "A run writes its first when an epoch has ended",
    ),
    "resume as a method": ("run.resume()", r"a run goes on by itself: ts\.Run\(directory\)"),
    "the best loaded": ("run.load('best')", r"ts\.load_weights\(module, run\.directory, checkpoint='highest accuracy'\)"),
    "torch's average": ("torch.optim.swa_utils.AveragedModel(net)", r"ema=ts\.EMA\(0\.999\)"),
    "a backward in an evaluation": (
        "def value(b):\n    l = F.cross_entropy(net(b[0]), b[1])\n    l.backward()\n    return l\nnet.evaluate(value, test)",
        r"inside net\.evaluate.*write net\.update\(loss, batch\) in the loop itself, without \.backward",
    ),
    "gradients in an evaluation": (
        "net.evaluate(lambda b: torch.autograd.grad(net(b[0]).sum(), model[0].weight)[0].sum(1), test)",
        r"inside net\.evaluate.*within torch\.enable_grad",
    ),
    "an item in an evaluation": (
        "net.evaluate(lambda b: F.cross_entropy(net(b[0]), b[1]).item(), test)",
        r"returned 0\.\d+, a number of Python's, for 'value'.*without \.item\(\)",
    ),
    "a dict of items in an evaluation": (
        "net.evaluate(lambda b: {'loss': float(loss(b).mean()), 'right': int(correct(b).sum())}, test)",
        r"a number of Python's, for 'loss'.*\(scores\.argmax\(1\) == labels\)\.float\(\)",
    ),
    "texts for a batch": (given_whole("['a', 'b', 'c', 'd']"), r"These are texts.*collate=lambda rows: tokenizer\(rows"),
    "texts in a dict": (
        given_whole("[{'text': each} for each in 'abcd']", "batch['text']"),
        r"These are texts.*collate=lambda rows: tokenizer\(rows",
    ),
    "metrics of a Trainer, by their names": (
        "def measure(p): return {'a': (p.predictions.argmax(-1) == p.label_ids).mean()}\nnet.evaluate(measure, test)",
        r"as compute_metrics of the Trainer does.*has no attribute 'predictions'.*with each batch, a tuple.*x, y = batch",
    ),
    "metrics of a Trainer, unpacked": (
        """
def measure(eval_pred):
    logits, labels = eval_pred
    return {"accuracy": (logits.argmax(-1) == labels).float().mean()}
net.evaluate(measure, test)
""",
        r"as compute_metrics of the Trainer does.*one number for a batch.*calls the model, and",
    ),
    "metrics of a Trainer, of NumPy": (
        """
import numpy
def compute_metrics(pair):
    logits, labels = pair
    return {"accuracy": (numpy.argmax(logits, axis=-1) == labels).mean()}
net.evaluate(compute_metrics, test)
""",
        r"as compute_metrics of the Trainer does.*could not infer",
    ),
    "metrics of a Trainer, of a dict": (
        """
test = run.data({"x": inputs, "labels": labels}, batch_size=4)
def measure(p):
    labels = p.label_ids
net.evaluate(measure, test)
""",
        r"as compute_metrics of the Trainer does.*'dict' object has no attribute 'label_ids'.*each batch, a dict",
    ),
    "metrics of a Trainer, of a class": (
        """
class EvalPrediction: pass
def measure(p: EvalPrediction): return {"accuracy": float((p[0].argmax(1) == p[1]).float().mean())}
net.evaluate(measure, test)
""",
        r"as compute_metrics of the Trainer does",
    ),
    "weights under another name": (
        "net.load_state_dict({f'module.{name}': each for name, each in model.state_dict().items()})",
        r"Unexpected key.*module\.0\.weight.*Write ts\.load_weights\(net\.module, weights\)",
    ),
    "weights of a compiled module": (
        "net.load_state_dict(state_dict={f'_orig_mod.{name}': each for name, each in model.state_dict().items()})",
        r"Unexpected key.*_orig_mod\. of torch\.compile",
    ),
    "weights within a checkpoint": (
        "net.load_state_dict({'epoch': 3, 'state_dict': model.state_dict()})",
        r"in a checkpoint with other things beside them",
    ),
    "weights that are a path": ("net.load_state_dict('weights.pt')", r"got <class 'str'>.*Write ts\.load_weights\(net\.module"),
    "weights of which none is loaded": (
        "net.load_state_dict({f'module.{name}': each for name, each in model.state_dict().items()}, strict=False)",
        r"has loaded nothing into 'net'.*Write ts\.load_weights\(net\.module",
    ),
    "a step by hand, without a loop": (
        "F.cross_entropy(net(inputs), labels).backward()\nnet.optimizers[0].step()",
        r"The optimizer of 'net' was stepped by hand, with gradients of a backward\(\) of your own",
    ),
    "a loop by hand, with the learner's optimizer": (
        """
optimizer = net.optimizers[0]
for epoch in range(2):
    for x, y in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), 4):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
""",
        r"The optimizer of 'net' was stepped by hand",
    ),
    "a state that is a number": ("run.state = 5", r"run\.state is an int and not the dict it was, so write run\.state\['name'\]"),
    "a state that is a list": ("run.state = [1, 2]", r"run\.state is a list and not the dict"),
    "a split as text": (loop("net.update(loss, batch, split='2')"), r"split='2': give the dimension.*micro_batch=4"),
    "a split as a list": (loop("net.update(loss, batch, split=[2, 2])"), r"split=\[2, 2\]: give the dimension.*micro_batch=4"),
    "logits that are inputs": (
        """
def accuracy(pair):
    logits, labels = pair
    return (logits.argmax(-1) == labels).float()
net.evaluate(accuracy, test)
""",
        r"calls no model, so its numbers say nothing of 'net'.*def correct\(batch\): x, y = batch",
    ),
    "logits that are inputs, in a line": (
        "net.evaluate(lambda p: (p[0].argmax(1) == p[1]).float(), test)",
        r"calls no model",
    ),
    "logits that are inputs, by a helper": (
        """
import numpy
def accuracy(logits, labels): return (logits.argmax(-1) == labels).astype(float)
def metrics(eval_pred): return {"accuracy": torch.tensor(accuracy(*(each.numpy() for each in eval_pred)))}
for epoch in run.epochs(1):
    for batch in run.batches(train): net.update(loss, batch)
    run.log(**net.evaluate(metrics, test))
""",
        r"calls no model",
    ),
    "logits that are inputs, of a dict": (
        """
test = run.data({"logits": inputs, "labels": labels}, batch_size=4)
net.evaluate(lambda outputs: F.cross_entropy(outputs["logits"], outputs["labels"], reduction="none"), test)
""",
        r"calls no model",
    ),
    "inputs given to a metric": (
        """
class Accuracy:
    def reset(self): self.values = []
    def update(self, logits, labels): self.values.append((logits.argmax(1) == labels).float())
    def compute(self): return torch.cat(self.values).mean()
net.evaluate(lambda batch: batch, test, metric=Accuracy())
""",
        r"calls no model",
    ),
    "an array in an evaluation": (
        "net.evaluate(lambda b: loss(b).numpy(), test)",
        r"returned an? ndarray for 'value'.*without .*numpy",
    ),
    "a module in the place of parameters": (
        "run.learner(nn.Linear(2, 1), lambda p: torch.optim.AdamW(model))",
        r"gave AdamW the module Sequential itself.*lambda p: torch\.optim\.AdamW\(p, lr=1e-3\)",
    ),
    "a list of modules in the place of parameters": (
        "run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD([{'params': model}], lr=0.1))",
        r"gave SGD the module \w+ itself.*lambda p: torch\.optim\.SGD\(p",
    ),
    "a method in the place of parameters": (
        "run.learner(nn.Linear(2, 1), lambda p: torch.optim.AdamW(model.parameters))",
        r"Module\.parameters itself, which was not called.*AdamW\(p",
    ),
    "a state in the place of parameters": (
        "run.learner(nn.Linear(2, 1), lambda p: torch.optim.AdamW(model.state_dict()))",
        r"gave AdamW a dict in the place of parameters",
    ),
    "parameters of parameters": (
        "run.learner(nn.Linear(2, 1), lambda m: torch.optim.AdamW(m.parameters()))",
        r"asked for \.parameters of what it is given, and that is the learner's parameters themselves",
    ),
    "a module in the place of an optimizer": (
        "run.learner(nn.Linear(2, 1), model)",
        r"optimizer=Sequential\(\.\.\.\) is no function that makes an optimizer",
    ),
    "a schedule stepped": ("net.schedule.step()", r"the update moves it: nothing else steps it"),
    "a schedule made already": (
        "run.learner(nn.Linear(1, 1), adamw, schedule=torch.optim.lr_scheduler.CosineAnnealingLR(net.optimizers[0], 10))",
        r"write schedule=ts\.per_epoch\(lambda o: torch\.optim\.lr_scheduler\.CosineAnnealingLR\(o, \.\.\.\)\)",
    ),
    "a schedule by its class": (
        "run.learner(nn.Linear(1, 1), adamw, schedule=torch.optim.lr_scheduler.StepLR)",
        r"schedule=ts\.per_epoch\(lambda o: torch\.optim\.lr_scheduler\.StepLR\(o, \.\.\.\)\)",
    ),
    "two updates for a schedule of one": (
        """
run = ts.Run(folder / "two", device="cpu", progress=False, doctor=False, log_every=1)
net = run.learner(nn.Linear(3, 2), adamw, schedule=lambda o: ts.warmup_linear(o, warmup_steps=1, total_steps=8))
train = run.data((inputs, labels), batch_size=4)
for epoch in run.epochs(2):
    for batch in run.batches(train): net.update(loss, batch), net.update(loss, batch)
""",
        r"the whole run has about 16, 2 with each batch",
    ),
    # ------------------------------------------------------------------ checkpoints
    **{
        f"resumed with {what}": (
            loop("net.update(loss, batch)")
            + "run = ts.Run(folder / 'run', progress=False)\n"
            + f"net = run.learner(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), {made}, name='net')\n"
            + "train = run.data((inputs, labels), batch_size=4)\ntest = run.data((inputs, labels), batch_size=8)\n"
            + "for epoch in run.epochs(3): pass",
            rf"In the checkpoint:\n  {message}\nA run goes on",
        )
        for what, made, message in (
            ("a schedule", "adamw, schedule=lambda o: ts.warmup_constant(o, warmup_steps=2)", "no schedules, .*: schedule= is new"),
            ("an average", "adamw, ema=ts.EMA()", "no average of the weights: ema= is new"),
            ("another optimizer", "lambda p: torch.optim.SGD(p, lr=0.1)", "the optimizer AdamW, here SGD"),
        )
    },
    "a wider model": (
        loop("net.update(loss, batch)")
        + "run = ts.Run(folder / 'run', progress=False, resume='edited')\n"
        + "net = run.learner(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), adamw, name='net')\n"
        + "train = run.data((inputs, labels), batch_size=4)\ntest = run.data((inputs, labels), batch_size=8)\n"
        + "for epoch in run.epochs(3): pass",
        r"whatever resume= says.*resume=\"anew\".*strict=False",
    ),
    "the best of all": (
        loop("net.update(loss, batch)", "run.log(accuracy=net.evaluate(correct, test))")
        + "run.close()\nts.load_weights(model, folder / 'run', checkpoint='best')",
        r"Say by which metric, and which way is better: \"highest accuracy\", \"lowest loss\"\.",
    ),
    "the last one": (
        loop("net.update(loss, batch)") + "run.close()\nts.load_weights(model, folder / 'run', checkpoint='latest')",
        "taken where none is named: leave it out",
    ),
    "the best loss": ("ts.Retention(best=1, best_metric='val_loss')", r"does not say which way is better.*best_mode=\"min\""),
    "the best loss saved": ("ts.Saving(best='val_loss')", r"does not say which way is better.*best_mode=\"min\""),
    "a store's directory twice": (
        "first = ts.CheckpointStore(folder)\ntry: ts.CheckpointStore(folder)\nfinally: first.close()",
        r"That is this process itself: close what it made there",
    ),
}  # fmt: skip


def what_is_said(code, folder, capsys):
    """Run a program as a script; return all that its author reads: the exception, standard error, warnings."""
    names = {"ts": ts, "torch": torch, "nn": nn, "F": F, "folder": folder}
    script = folder / "train.py"
    script.write_text(PRELUDE + textwrap.dedent(code), "utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(script.read_text("utf-8"), str(script), "exec"), names)
            raised = ""
        except Exception as error:
            raised = "".join(traceback.format_exception_only(error))
        gc.collect()
    with warnings.catch_warnings(record=True):
        for name in ("again", "run"):
            if isinstance(names.get(name), ts.Run):
                names[name].close()
    said = [raised, capsys.readouterr().err, *(str(each.message) for each in caught)]
    return "\n".join(each for each in said if each)


@pytest.mark.parametrize("misuse", MISUSES)
def test_it_is_said_what_to_write(tmp_path, capsys, misuse):
    code, message = MISUSES[misuse]
    said = what_is_said(code, tmp_path, capsys)
    assert re.search(message, said, re.DOTALL)
    assert not re.search(r"[^.]\.\.(\s|$)|\?\.", said)  # no sentence ends twice
    assert len(re.findall("Did you mean", said)) <= 1


def test_a_right_program_is_told_nothing(tmp_path, capsys):
    right = loop("net.update(loss, batch)", "run.log(accuracy=net.evaluate(correct, test))")
    assert what_is_said(right, tmp_path, capsys) == ""


RIGHT = {
    "one update for a whole pass": """
for epoch in run.epochs(2):
    with net.accumulating(weight=16.0) as update:
        for batch in run.batches(train): update.backward(loss(batch).sum())
""",
    "an update of the data, and a look at the batches": """
for epoch in run.epochs(2):
    net.update(loss, (inputs, labels))
    for batch in run.batches(train): net.update(loss, batch)
    net.update(loss, (inputs, labels))
""",
    "a loss that is tried": "net.evaluate(correct, test)\n" + loop("net.update(loss, batch)"),
    "bfloat16 in a loss": loop("net.update(torch.autocast('cpu', dtype=torch.bfloat16)(loss), batch)"),
    "float16 in front of what is trained": loop("net.update(lambda b: loss((b[0].half().float(), b[1])), batch)"),
    "half of a loss": loop("net.update(lambda b: loss(b) * 0.3, batch, micro_batch=2)"),
    "another divisor": loop("net.update(lambda b: loss(b) / 3, batch, micro_batch=2)"),
    "a mean of two losses": loop("net.update(lambda b: (loss(b) + net(b[0]).square().mean(1)) / 2, batch, micro_batch=2)"),
    "half a square": loop("net.update(lambda b: net(b[0]).sum(1) ** 2 / 2, batch, micro_batch=2)"),
    "means that add up": """
with net.accumulating(weight=1) as update:
    for batch in run.batches(train): update.backward(loss(batch).mean() / 4)
""",
    "means of parts": """
with net.accumulating() as update:
    for batch in run.batches(train): update.backward(loss(batch).mean(), weight=len(batch[0]))
""",
    "sums, and what they are divided by": """
with net.accumulating(weight=16.0) as update:
    for batch in run.batches(train): update.backward(F.cross_entropy(net(batch[0]), batch[1], reduction="sum"))
""",
    "a sum over its number": loop("net.update(lambda b: loss(b).sum() / len(b[0]), batch)"),
    "a sum of two losses": loop("net.update(lambda b: torch.stack([loss(b).mean(), net(b[0]).mean()]).sum(), batch)"),
    "labels in order, shuffled": (
        "train = run.data((inputs, labels.sort().values), batch_size=4, shuffle=True)\n" + loop("net.update(loss, batch)")
    ),
    "weights that fit": """
net.load_state_dict(model.state_dict())
net.load_state_dict({"0.weight": torch.ones(4, 3)}, strict=False)
""",
    "another model, trained by hand beside it": """
other = nn.Linear(3, 2)
optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
optimizer.zero_grad()
F.cross_entropy(other(inputs), labels).backward()
nn.utils.clip_grad_norm_(other.parameters(), 1.0)
optimizer.step()
schedule.step()
""",
    "an evaluation by a helper": "def score(x): return net(x)\nnet.evaluate(lambda b: score(b[0]).argmax(1).float(), test)",
    "an evaluation by a method": """
class Trainer:
    def __init__(self): self.model = net
    def correct(self, batch): return (self.model(batch[0]).argmax(1) == batch[1]).float()
net.evaluate(Trainer().correct, test)
net.evaluate(__import__("functools").partial(lambda model, b: model(b[0]).sum(1), net), test)
""",
    "an evaluation of weights": """
bare = run.learner(nn.ParameterDict({"w": nn.Parameter(torch.ones(3))}), adamw, name="bare")
weights = [bare["w"]]
bare.evaluate(lambda b: b[0] @ weights[0], test)
bare.evaluate(lambda b: b[0] @ bare["w"], test)
""",
    "an evaluation of a model that is found elsewhere": """
found = {"nets": {"first": {"of": {"all": {"nets": model}}}}}
import sys; sys.modules["at_hand"] = __import__("types").SimpleNamespace(net=model)
net.evaluate(lambda b: found["nets"]["first"]["of"]["all"]["nets"](b[0]).sum(1), test)
net.evaluate(lambda b: __import__("at_hand").net(b[0]).sum(1), test)
""",
    "labels in order, measured": (
        "test = run.data((inputs, labels.sort().values), batch_size=8)\n"
        + loop("net.update(loss, batch)", "net.evaluate(correct, test)")
    ),
    "numbers of the samples": (
        "train = run.data((inputs, torch.arange(16)), batch_size=4)\n"
        + loop("net.update(lambda b: net(b[0]).square().sum(1), batch)")
    ),
}  # fmt: skip


@pytest.mark.parametrize("right", RIGHT)
def test_what_only_looks_like_a_misuse_is_told_nothing(tmp_path, capsys, right):
    assert what_is_said(RIGHT[right], tmp_path, capsys) == ""
