# SPDX-License-Identifier: Apache-2.0
"""What mixes examples, steps or passes is named: the operation, its line and its layer."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts
from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.selection import selection_of


@pytest.fixture(autouse=True)
def weights_that_let_the_first_example_through():
    """A ReLU may be 0 wherever the first example depends on the others; then there is nothing to see."""
    torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, middle):
        super().__init__()
        self.first, self.middle, self.head = nn.Linear(6, 6), middle, nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.middle(self.first(x)).relu())


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        unused = x.mean()  # mixes the examples too, and goes nowhere  # noqa: F841
        return self.function(x)


class Attention(nn.Module):
    """Attention over the first axis, where the batch is."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def message_of(code, model, inputs, target, loss=F.cross_entropy):
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    with Watch(WatchOptions(selection_of([code], ()), probe=True)) as watch:
        for _ in range(2):
            opt.zero_grad()
            loss(model(*inputs), target).backward()
            opt.step()
    assert watch.failures == []
    return [each.message for each in watch.findings]


MIXING = {
    "softmax": lambda x: x.softmax(0),
    "transpose": lambda x: x.reshape(6, -1).transpose(0, 1).cumsum(1).reshape(-1, 6),
    "sub": lambda x: x - x.mean(0),
    "div": lambda x: x / x.norm(),
}
FIRST = {"softmax": "softmax", "transpose": "cumsum", "sub": "mean", "div": "norm"}


@pytest.mark.parametrize("kind", MIXING)
def test_the_operation_in_which_examples_meet_is_named(kind):
    x, y = torch.randn(16, 6), torch.randint(3, (16,))
    (message,) = message_of("DATA015", Net(Applied(MIXING[kind])), (x,), y)
    assert f"they first meet in {FIRST[kind]} at test_bisection.py:" in message.replace("tests/doctor/", "")
    assert "(model.middle)" in message


@pytest.mark.sliced(3)
@pytest.mark.parametrize("kind", [None, "softmax", "sub", "div"])
@pytest.mark.parametrize("draw", [ts.randn, ts.rand])
def test_numbers_that_a_run_draws_for_each_example_mix_none(tmp_path, draw, kind):
    mix = MIXING.get(kind, lambda x: x)
    run = ts.Run(tmp_path / "run", seed=0, progress=False, quiet=True, doctor=False)
    net = run.learner(
        Net(Applied(lambda x: mix(x + draw(*x.shape)))), lambda p: torch.optim.SGD(p, lr=0.1), name="net"
    )
    with Watch(WatchOptions(selection_of(["DATA015"], ()), probe=True)) as watch:
        for _ in run.steps(6):
            net.update(lambda x: net(x).square().mean(1), torch.randn(16, 6))
    run.close()
    found = [each.message for each in watch.findings]
    assert len(found) == (kind is not None)
    assert all(f"they first meet in {FIRST[kind]} at" in each for each in found), found


class Recurrent(nn.Module):
    def __init__(self, cell, *, batch_first, way):
        super().__init__()
        self.cell, self.head, self.way = cell(5, 6, batch_first=batch_first), nn.Linear(6, 3), way

    def forward(self, x):
        if self.way == "turned":
            x = x.transpose(0, 1)
        out = self.cell(x)[0]
        return self.head(
            out.mean(1) if self.way == "mean" else out[-1] if self.way == "turned" else out[:, -1]
        )


@pytest.mark.sliced(3)
@pytest.mark.parametrize("cell", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("way", ["last", "mean"])
def test_a_batch_that_is_gone_through_as_time_is_seen_at_its_last_example(cell, way):
    x, y = torch.randn(8, 7, 5), torch.randint(3, (8,))
    (message,) = message_of("DATA015", Recurrent(cell, batch_first=False, way=way), (x,), y)
    assert message.startswith("The output for the last example depends on the others of its batch")
    assert message_of("DATA015", Recurrent(cell, batch_first=True, way=way), (x,), y) == []
    assert message_of("DATA015", Recurrent(cell, batch_first=False, way="turned"), (x,), y) == []


def test_a_layer_of_torch_s_is_named_by_its_path():
    x, y = torch.randn(16, 6), torch.randint(3, (16,))
    (message,) = message_of("DATA015", Net(Attention()), (x,), y)
    assert "(model.middle.attention)" in message


def test_symbols_are_exchanged_where_numbers_can_t_be_changed():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(20, 6), nn.Linear(6, 3)

        def forward(self, tokens):
            x = self.head(self.embed(tokens).mean(1))
            return x - x.mean(0) if self.centred else x

    tokens, y = torch.randint(20, (6, 6)), torch.randint(3, (6,))
    Bag.centred = True
    (message,) = message_of("DATA015", Bag(), (tokens,), y)
    assert "they first meet in mean" in message
    Bag.centred = False
    assert message_of("DATA015", Bag(), (tokens,), y) == []


def test_a_model_that_takes_whole_batches_only_is_tried_with_one():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(x.view(16, 6)) + x.sum() * 0.1

    (message,) = message_of("DATA015", Whole(), (torch.randn(16, 6),), torch.randint(3, (16,)))
    assert "meet in sum" in message


class Language(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(11, 6), body, nn.Linear(6, 11)

    def forward(self, tokens):
        x = self.body(self.embed(tokens))
        return self.head(x[0] if isinstance(x, tuple) else x).transpose(1, 2)


def attention_by_hand(masked):
    def function(x):
        scores = x @ x.transpose(1, 2)
        if masked:
            size = x.shape[1]
            scores = scores.masked_fill(torch.ones(size, size).triu(1).bool(), float("-inf"))
        return scores.softmax(-1) @ x

    return Applied(function)


class Padded(nn.Module):
    def __init__(self, left, right):
        super().__init__()
        self.pad, self.conv = nn.ConstantPad1d((left, right), 0.0), nn.Conv1d(6, 6, 3)

    def forward(self, x):
        return self.conv(self.pad(x.transpose(1, 2))).transpose(1, 2)


BODIES = {
    "lstm": (
        lambda: nn.LSTM(6, 6, batch_first=True),
        lambda: nn.LSTM(6, 3, batch_first=True, bidirectional=True),
    ),
    "matmul": (lambda: attention_by_hand(True), lambda: attention_by_hand(False)),
    "conv1d": (lambda: Padded(2, 0), lambda: Padded(1, 1)),
}


@pytest.mark.parametrize("kind", BODIES)
def test_the_operation_that_sees_the_next_symbol_is_named(kind):
    causal, seeing = BODIES[kind]
    text = torch.randint(11, (4, 9))
    inputs, targets = (text[:, :-1],), text[:, 1:]
    assert message_of("DATA033", Language(causal()), inputs, targets) == []
    (message,) = message_of("DATA033", Language(seeing()), inputs, targets)
    assert f"from {kind} at " in message
    assert "(model.body" in message


@pytest.mark.parametrize("ahead", [0, 1])
def test_as_many_steps_as_symbols_hide_neither_mistake(ahead):
    text = torch.randint(11, (4, 11 + ahead))
    inputs, targets = (text[:, :11],), text[:, ahead:]
    causal, seeing = (Language(make()) for make in BODIES["lstm"])
    assert len(message_of("DATA033", causal, inputs, targets)) == 1 - ahead
    assert len(message_of("DATA033", seeing, inputs, targets)) == ahead


def test_models_that_see_all_may_be_asked_for_anything_else():
    text = torch.randint(11, (4, 9))
    both = nn.LSTM(6, 3, batch_first=True, bidirectional=True)
    assert message_of("DATA033", Language(both), (text,), torch.randint(11, (4, 9))) == []
    assert message_of("DATA033", Language(both), (text,), text) == []  # an autoencoder
    masked = text.clone()
    masked[:, ::3] = -100
    assert message_of("DATA033", Language(nn.LSTM(6, 6, batch_first=True)), (text.roll(1, 1),), masked) == []


def test_padding_does_not_hide_targets_that_are_not_shifted():
    text = torch.randint(1, 11, (4, 9))
    targets = text.clone()
    targets[:, 7:] = -100
    (message,) = message_of("DATA033", Language(nn.GRU(6, 6, batch_first=True)), (text,), targets)
    assert "the same step" in message


class Carried(nn.Module):
    """Starts from where the last batch ended: in a buffer given anew or written to, or in an attribute."""

    def __init__(self, way):
        super().__init__()
        self.cell, self.head, self.way = nn.GRUCell(6, 6), nn.Linear(6, 3), way
        self.register_buffer("kept", torch.zeros(1, 6))
        self.state = torch.zeros(1, 6)

    def forward(self, x):
        before = self.state if self.way == "attribute" else self.kept
        hidden = self.cell(x, before.expand(len(x), -1).clone())
        after = hidden.detach().mean(0, keepdim=True)
        if self.way == "attribute":
            self.state = after
        elif self.way == "written":
            self.kept.copy_(after)
        else:
            self.kept = after
        return self.head(hidden)


@pytest.mark.parametrize("way", ["given anew", "written", "attribute"])
def test_a_state_carried_from_batch_to_batch_does_not_mix_the_examples_of_one(way):
    assert message_of("DATA015", Carried(way), (torch.randn(8, 6),), torch.randint(3, (8,))) == []


class Taught(nn.Module):
    """A decoder that is given the next true symbol, or its own, as something decides."""

    def __init__(self, decide, peeks=False):
        super().__init__()
        self.decide, self.peeks = decide, peeks
        self.embed, self.cell, self.head = nn.Embedding(11, 6), nn.GRUCell(6, 6), nn.Linear(6, 11)

    def forward(self, text):
        state, given, found = torch.zeros(len(text), 6), text[:, 0], []
        for step in range(text.shape[1]):
            seen = self.embed(given) + self.embed(text).mean(1) if self.peeks else self.embed(given)
            state = self.cell(seen, state)
            found.append(self.head(state))
            if step + 1 < text.shape[1]:
                given = text[:, step + 1] if self.decide() else found[-1].argmax(1)
        return torch.stack(found, 2)


class GoingOn(Language):
    """A model that goes on from where the last batch ended."""

    def forward(self, tokens):
        x, self.state = nn.GRU.forward(self.body, self.embed(tokens), getattr(self, "state", None))
        self.state = self.state.detach()
        return self.head(x).transpose(1, 2)


own, generator, entropy = random.Random(3), np.random.default_rng(3), random.SystemRandom()
DECIDE = {
    "random": lambda: random.random() < 0.5,
    "choice": lambda: random.choice([True, False]),
    "numpy": lambda: np.random.rand() < 0.5,
    "torch": lambda: bool(torch.rand(1) < 0.5),
    "bernoulli": lambda: bool(torch.bernoulli(torch.tensor(0.5))),
    "own": lambda: own.random() < 0.5,
    "generator": lambda: generator.random() < 0.5,
    "entropy": lambda: entropy.random() < 0.5,
    "always": lambda: True,
}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("kind", DECIDE)
def test_a_decoder_that_is_taught_at_random_sees_nothing_of_later(kind):
    text = torch.randint(11, (4, 9))
    assert message_of("DATA033", Taught(DECIDE[kind]), (text[:, :-1],), text[:, 1:]) == []
    if kind in ("random", "choice", "numpy", "torch", "bernoulli", "always"):
        (message,) = message_of("DATA033", Taught(DECIDE[kind], peeks=True), (text[:, :-1],), text[:, 1:])
        assert "depends on later ones" in message


def test_a_state_that_is_carried_on_is_no_later_step():
    text = torch.randint(11, (4, 9))
    assert message_of("DATA033", GoingOn(nn.GRU(6, 6, batch_first=True)), (text[:, :-1],), text[:, 1:]) == []


class Window(nn.Module):
    """Predicts numbers from a window of a series; `hides` are places that it does not look at."""

    def __init__(self, size, out, hides=()):
        super().__init__()
        self.hides, self.fc = list(hides), nn.Linear(size, out)

    def forward(self, x, goal=None):
        x = x.flatten(1).clone()
        x[:, self.hides] = 0.0
        return self.fc(x)


SERIES = torch.randn(60)
WINDOWS = SERIES.unfold(0, 12, 1)[:40]
BESIDE = torch.stack([WINDOWS, torch.randn(40, 12)], 2)
LATER = torch.stack([SERIES[each + 12 : each + 15] for each in range(40)])
WITHIN = {
    "the end": (Window(12, 3), (WINDOWS,), WINDOWS[:, -3:], F.mse_loss, "those at 9 to 11"),
    "the last": (Window(12, 1), (WINDOWS,), WINDOWS[:, -1:], F.l1_loss, "those at 11"),
    "the middle, rows of one feature": (Window(12, 2), (WINDOWS[..., None],), WINDOWS[:, 4:6], F.huber_loss, "4 to 5"),
    "one feature of two": (Window(24, 1), (BESIDE,), BESIDE[:, -1, :1], F.smooth_l1_loss, "those at 22"),
    "a second input": (Window(12, 3), (WINDOWS, None), WINDOWS[:, :3], F.mse_loss, "0 to 2"),
    "flat": (nn.Sequential(Window(12, 1), nn.Flatten(0)), (WINDOWS,), WINDOWS[:, -1], F.mse_loss, "those at 11"),
}  # fmt: skip
AHEAD = {
    "later": (Window(12, 3), (WINDOWS,), LATER, F.mse_loss),
    "all of it": (Window(12, 12), (WINDOWS,), WINDOWS, F.mse_loss),
    "half of it": (Window(12, 6), (WINDOWS,), WINDOWS[:, 6:], F.mse_loss),
    "hidden": (Window(12, 3, (9, 10, 11)), (WINDOWS,), WINDOWS[:, -3:], F.mse_loss),
    "two values": (Window(12, 1), (WINDOWS.sign(),), WINDOWS.sign()[:, :1], F.mse_loss),
    "scaled": (Window(12, 1), (WINDOWS,), 2 * WINDOWS[:, -1:], F.mse_loss),
    "three rows": (Window(12, 1), (WINDOWS[:3],), WINDOWS[:3, -1:], F.mse_loss),
    "a later figure": (Window(12, 3), (WINDOWS,), WINDOWS[:, :1], lambda out, y: F.mse_loss(out.sum(1, keepdim=True), y)),
}  # fmt: skip


@pytest.mark.parametrize("form", [*WITHIN, *AHEAD])
def test_targets_within_their_own_window_are_named(form):
    model, inputs, targets, loss, *said = WITHIN[form] if form in WITHIN else AHEAD[form]
    messages = message_of("DATA033", model, inputs, targets, loss)
    assert [said[0] in each for each in messages] == [True] * len(said)
