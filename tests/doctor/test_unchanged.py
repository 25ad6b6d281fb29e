# SPDX-License-Identifier: Apache-2.0
"""The law of watching: a script ends with the same bits watched as unwatched, weights, optimizers and random streams."""

import contextlib
import io
import os
import random
import sys
import warnings
from pathlib import Path
from types import FunctionType, ModuleType
from unittest import mock

import numpy as np
import pytest
import torch
import torch._dynamo  # sets an environment variable when it is first imported
from torch import nn
from torch.optim import Optimizer

from truestep.doctor.watch_block import watch

SCRIPTS = sorted((Path(__file__).parent / "clean").glob("*.py"))
QUICK = [
    "actor_critic",
    "autoencoder",
    "averaged_weights",
    "checkpointed_blocks",
    "diffusion",
    "fitted_by_closure",
    "frozen_backbone",
    "gan_of_labels",
    "gan_with_penalty",
    "language_model",
    "noise_and_sharing",
    "sparse_and_checkpointed",
    "trainer_class",
    "vae_with_methods",
]
NEEDED = {"distributed_autograd", "distributed_half"}  # more than one process's worth

# What a watch could change by looking: kernels that are chosen by who looks, modes of the script's own, subclasses.
SPECIAL = {
    "attention_in_evaluation": """
layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
model = nn.TransformerEncoder(layer, 2)
head = nn.Linear(16, 3)
opt = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
seen = []
for step in range(6):
    model.train()
    x, y = torch.randn(8, 5, 16), torch.randint(3, (8,))
    opt.zero_grad()
    F.cross_entropy(head(model(x).mean(1)), y).backward()
    opt.step()
    model.eval()
    with torch.no_grad():
        seen.append(model(x))
""",
    "default_device_and_own_modes": """
from torch.overrides import TorchFunctionMode


class Counting(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        Counting.calls += func is F.relu
        return func(*args, **(kwargs or {}))


model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(30):
    with torch.device("cpu"), Counting():
        x, y = torch.randn(8, 4), torch.randint(3, (8,))
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
    assert torch.empty(1).device.type == "cpu"
assert Counting.calls == 30 and torch.overrides._len_torch_function_stack() <= 1
""",
    "subclass_of_tensor": """
class Named(torch.Tensor):
    pass


model = nn.Linear(4, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    x = torch.randn(8, 4).as_subclass(Named)
    opt.zero_grad()
    out = model(x)
    assert type(out) is Named
    F.cross_entropy(out, torch.randint(3, (8,))).backward()
    opt.step()
""",
    "copies_and_pickles": """
import copy
import io

model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3))
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
best = None
for step in range(25):
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    best = copy.deepcopy(model)
    kept = io.BytesIO()
    torch.save({"model": best.state_dict(), "loss": loss}, kept)
    kept.seek(0)
    again = torch.load(kept)
    assert torch.equal(again["model"]["0.weight"], model[0].weight)
""",
}
PRELUDE = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


@pytest.fixture(autouse=True)
def as_found(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    state = torch.get_rng_state()
    with mock.patch.dict(os.environ):
        yield
    torch.set_rng_state(state)
    torch._dynamo.reset()


def state_after(text, watched):
    """Return all that a script leaves: what it holds, its random streams and what it printed."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    names, printed = {"__name__": "__main__"}, io.StringIO()
    with watched, warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        exec(compile(text, "<script>", "exec"), names)
    streams = [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()]
    return [list(bits_of(names)), list(bits_of(streams)), printed.getvalue()]


def bits_of(value, depth=0):
    """Yield the bits of every number within a value."""
    if isinstance(value, torch.Tensor):
        value = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
        yield value.contiguous().flatten().view(torch.uint8).tolist() if value.numel() else []
    elif isinstance(value, int | float | str):
        yield repr(value)
    elif depth < 4:
        for each in parts_of(value, depth):
            yield from bits_of(each, depth + 1)


def parts_of(value, depth):
    if isinstance(value, nn.Module):
        return [value.state_dict(), [each.training for each in value.modules()]]
    if isinstance(value, Optimizer):
        return [value.state_dict()["state"]]
    if isinstance(value, dict):
        return [each for key, each in value.items() if not str(key).startswith("__")]
    if isinstance(value, list | tuple):
        return value
    if hasattr(value, "__dict__") and not isinstance(value, type | ModuleType | FunctionType) and depth < 2:
        return [each for key, each in vars(value).items() if "time" not in key]
    return []


def check(text):
    plain = state_after(text, contextlib.nullcontext())
    torch._dynamo.reset()
    with_watch = watch()
    assert state_after(text, with_watch) == plain
    assert with_watch.failures == []


@pytest.mark.sliced(4)
@pytest.mark.parametrize("name", QUICK)
def test_a_script_ends_with_the_same_bits_watched(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check((Path(__file__).parent / "clean" / f"{name}.py").read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", [each for each in SCRIPTS if each.stem not in {*QUICK, *NEEDED}], ids=lambda path: path.stem
)
def test_every_clean_script_ends_with_the_same_bits_watched(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(script.read_text("utf-8"))


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", SPECIAL)
def test_what_looking_might_change_is_the_same(name):
    check(PRELUDE + SPECIAL[name])
