# SPDX-License-Identifier: Apache-2.0
"""A loss that draws for itself while its batch is computed in parts is told of it once; a right one hears nothing."""

import random
import textwrap
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

pytestmark = pytest.mark.usefixtures("nothing_was_compiled")

LOSS = """
def noise(x): return {draw}

def loss(batch):
    x, y = batch
    return F.cross_entropy(net(x + noise(x)), y, reduction="none")
"""
NOISE = {
    "torch.randn(x.shape)": "ts.randn",
    "torch.randn(len(x), 6).to(x)": "ts.randn",
    "torch.randn_like(x) * 0.1": "ts.randn",
    "0.1 * torch.rand_like(x)": "ts.rand",
    "torch.rand(*x.shape, device=x.device)": "ts.rand",
    "torch.empty_like(x).normal_()": "ts.randn",
    "x.new_zeros(x.shape).uniform_(-1, 1)": "ts.rand",
    "torch.normal(0.0, 1.0, x.shape)": "ts.randn",
    "torch.normal(x, 1.0)": "ts.randn",
    "torch.randint(0, 9, (len(x), 1))": "ts.rand",
    "torch.bernoulli(torch.full_like(x, 0.3))": "ts.rand",
    "torch.distributions.Normal(0.0, 1.0).sample(x.shape)": "ts.randn",
    "torch.distributions.Normal(x, 1.0).rsample()": "ts.randn",
    "torch.distributions.Uniform(0.0, 1.0).sample(x.shape)": "ts.rand",
    "torch.empty_like(x).exponential_()": "part of it",
    "x[torch.randperm(len(x))]": "collate=",
}
OF_THE_HOST = {
    "x * random.random()": "random",
    "0.0 if random.random() < 0.5 else x": "random",
    "x * 0.1 + random.gauss(0.0, 0.1)": "random",
    "x[random.sample(range(len(x)), len(x))]": "random",
    "torch.tensor([random.choice((0.0, 1.0)) for _ in x])[:, None]": "random",
    "x * np.random.rand()": "numpy.random",
    "torch.as_tensor(np.random.randn(*x.shape)).float()": "numpy.random",
    "torch.from_numpy(np.random.binomial(1, 0.5, x.shape)).float()": "numpy.random",
    "x[np.random.permutation(len(x))]": "numpy.random",
}
RIGHT = [
    "x * own_random.random()",
    "x * own_numpy.random()",
    "ts.randn(x.shape)",
    "ts.rand(len(x), 6)",
    "torch.randn(x.shape, generator=own)",
    "torch.empty_like(x).normal_(generator=own)",
    "F.dropout(x, 0.5)",
    "F.dropout(x, 0.5, training=net.training) * 0",
    "nn.Dropout(0.2)(x)",
    "nn.AlphaDropout(0.2)(x)",
    "F.gumbel_softmax(x)",
    "F.rrelu(x, training=True)",
    "recurrent(x[:, None])[0][:, 0]",
    "encoder(x[:, None])[:, 0]",
    "beside(x)",
]


def said_of(draw, folder, capsys, *, micro_batch=2, learner=None, whole=None, **options):
    """Run a program of two epochs as a script; return what its author reads."""
    run = ts.Run(folder / "run", device="cpu", progress=False, **options)
    torch.manual_seed(1)
    encoder = nn.TransformerEncoderLayer(6, 2, 12, dropout=0.5, batch_first=True)
    module = nn.ModuleList([nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 3)), encoder])
    net = run.learner(module, lambda p: torch.optim.SGD(p, lr=0.1), micro_batch=micro_batch)
    train = run.data((torch.randn(16, 6), torch.arange(16) % 3), batch_size=8)
    names = {
        "ts": ts,
        "torch": torch,
        "F": F,
        "nn": nn,
        "net": net[0],
        "encoder": encoder,
        "beside": drawn_beside,
    }
    names["recurrent"] = nn.GRU(6, 6, 2, dropout=0.5, batch_first=True).requires_grad_(False)
    names["own"] = torch.Generator()
    names |= {"random": random, "np": np}
    names["own_random"], names["own_numpy"] = random.Random(0), np.random.default_rng(0)
    script = folder / "train.py"
    script.write_text(textwrap.dedent(whole or LOSS).format(draw=draw), "utf-8")
    exec(compile(script.read_text("utf-8"), str(script), "exec"), names)
    for _ in run.epochs(2):
        for batch in run.batches(train):
            random.random(), np.random.rand()  # the loop's own
            net.update(names["loss"], batch)
            random.random(), np.random.rand()
    run.close()
    return capsys.readouterr().err


def drawn_beside(x):
    """A thread that draws while the loss is computed, as a loader of one's own does."""
    thread = threading.Thread(target=lambda: torch.randn(3))
    thread.start()
    thread.join()
    return x


@pytest.mark.sliced(3)
@pytest.mark.parametrize("draw", NOISE)
def test_it_is_told_once_with_the_line_and_what_to_write(tmp_path, capsys, draw):
    said = said_of(draw, tmp_path, capsys)
    assert said.count("in parts") == 1
    assert "train.py:2" in said
    assert NOISE[draw] in said


@pytest.mark.sliced(2)
@pytest.mark.parametrize("draw", OF_THE_HOST)
def test_draws_of_python_and_numpy_are_told_once(tmp_path, capsys, draw):
    said = said_of(f"x + 0.1 * ({draw})", tmp_path, capsys)
    assert said.count("in parts") == 1
    assert f"the loss draws from {OF_THE_HOST[draw]} for itself" in said
    assert "train.py:" in said
    assert "in parts" not in said_of(draw, tmp_path / "whole", capsys, micro_batch=None)


def test_dropout_and_draws_that_belong_to_the_examples_are_told_nothing(tmp_path, capsys):
    assert "in parts" not in said_of(" + ".join(f"0.1 * ({each})" for each in RIGHT), tmp_path, capsys)


@pytest.mark.parametrize("options", [{"micro_batch": None}, {"micro_batch": 8}, {"doctor": False}])
def test_where_nothing_is_split_or_nobody_looks_nothing_is_said(tmp_path, capsys, options):
    assert "in parts" not in said_of("torch.randn(x.shape)", tmp_path, capsys, **options)


def test_a_run_that_was_left_open_keeps_no_other_from_being_looked_at(tmp_path, capsys):
    left = ts.Run(tmp_path / "left", device="cpu", progress=False)
    net = left.learner(nn.Linear(6, 3), lambda p: torch.optim.SGD(p, lr=0.1))
    data = left.data((torch.randn(16, 6), torch.arange(16) % 3), batch_size=8)
    for batch in left.batches(data):
        net.update(lambda batch: F.cross_entropy(net(batch[0]), batch[1], reduction="none"), batch)
        break
    said = said_of("torch.randn(x.shape)", tmp_path, capsys)
    left.close()
    assert "ts.randn" in said


def test_the_same_numbers_come_with_the_look_and_without(tmp_path, capsys):
    weights = []
    for name, doctor in (("a", True), ("b", False)):
        (tmp_path / name).mkdir()
        run = ts.Run(tmp_path / name / "run", device="cpu", progress=False, doctor=doctor)
        torch.manual_seed(1)
        net = run.learner(nn.Linear(6, 3), lambda p: torch.optim.SGD(p, lr=0.1), micro_batch=2)
        train = run.data((torch.randn(16, 6), torch.arange(16) % 3), batch_size=8)

        def loss(batch, net=net):
            return F.cross_entropy(net(batch[0] + torch.randn_like(batch[0])), batch[1], reduction="none")

        for _ in run.epochs(1):
            for batch in run.batches(train):
                net.update(loss, batch)
        weights.append(net.weight.detach().clone())
        run.close()
    assert torch.equal(*weights)
    assert "ts.randn" in capsys.readouterr().err
