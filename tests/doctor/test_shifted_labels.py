# SPDX-License-Identifier: Apache-2.0
"""Labels that a user shifted and a model shifts again, and targets made of the answers of what they train: told from what runs."""

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from truestep.doctor.watch_block import watch

text = torch.randint(9, (4, 12), generator=torch.Generator().manual_seed(0))


class Causal(nn.Module):
    """A causal model that may compute its loss itself, as those of transformers do."""

    def __init__(self, shifts):
        super().__init__()
        self.embed, self.layer, self.head = (
            nn.Embedding(9, 8),
            nn.GRU(8, 8, batch_first=True),
            nn.Linear(8, 9),
        )
        self.shifts = shifts

    def forward(self, input_ids, labels=None):
        logits = self.head(self.layer(self.embed(input_ids))[0])
        return logits if labels is None else self.shifts(logits, labels)


def cut(logits, labels):
    return F.cross_entropy(logits[:, :-1].reshape(-1, 9), labels[:, 1:].reshape(-1))


def padded(logits, labels):
    return F.cross_entropy(logits.reshape(-1, 9), F.pad(labels, (0, 1), value=-100)[:, 1:].reshape(-1))


def kept(logits, labels):
    return F.cross_entropy(logits.transpose(1, 2), labels)


DATA = {
    "the same": (text, text),
    "cut": (text[:, :-1], text[:, 1:]),
    "rolled": (text, text.roll(-1, 1)),
    "ignored": (text, F.pad(text[:, 1:], (0, 1), value=-100)),
    "of bidirectional models": (torch.where(torch.arange(12) % 3 > 0, text, 8), text),
}


def told(step, *modules):
    """Return what is told of two steps."""
    opt = torch.optim.SGD([each for module in modules for each in module.parameters()], lr=0.1)
    with watch() as watched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            opt.zero_grad()
            step().backward()
            opt.step()
    assert watched.failures == []
    return {each.code: each.severity.name for each in watched.findings}


@pytest.mark.parametrize(("shifts", "data"), list(itertools.product((cut, padded, kept), DATA)))
@pytest.mark.parametrize("within", [True, False], ids=["by the model", "by the loop"])
def test_labels_shifted_twice_are_told_whoever_shifts_them_and_how(shifts, data, within):
    given, labels = DATA[data]
    model = Causal(shifts)
    step = (lambda: model(input_ids=given, labels=labels)) if within else lambda: shifts(model(given), labels)
    is_shifted = data in ("cut", "rolled", "ignored") and shifts is not kept
    assert told(step, model).get("LOSS059") == ((within and "BUG") or "RISK" if is_shifted else None)


def test_heads_for_the_next_symbol_and_the_one_after_it_are_meant():
    model, after = Causal(cut), nn.Linear(8, 9)

    def step():
        seen = model.layer(model.embed(text))[0]
        logits = model(text)
        return cut(logits, text) + F.cross_entropy(after(seen)[:, :-2].transpose(1, 2), text[:, 2:])

    assert "LOSS059" not in told(step, model, after)


states, later, rewards = torch.randn(8, 4), torch.randn(8, 4), torch.randn(8)
ends = torch.arange(8) < 2
ANSWERS = {
    "best": lambda net, s: net(s).max(1).values,
    "chosen": lambda net, s: net(s).gather(1, net(s).argmax(1, keepdim=True)).squeeze(1),
    "value": lambda net, s: net(s)[:, 0],
}
TARGETS = {
    "masked": lambda answer: rewards + 0.99 * answer * (1 - ends.float()),
    "chosen": lambda answer: rewards + 0.9 * torch.where(ends, 0.0, answer),
    "turned": lambda answer: answer * 0.9 + 1.0,
}
ERRORS = {
    "mse": F.mse_loss,
    "huber": lambda value, target: F.smooth_l1_loss(target, value),
    "by hand": lambda value, target: ((target - value) ** 2).mean(),
}


@pytest.mark.sliced(4)
@pytest.mark.parametrize(("answer", "target", "error"), list(itertools.product(ANSWERS, TARGETS, ERRORS)))
def test_a_target_made_of_the_trained_answer_is_told_and_a_detached_one_is_right(answer, target, error):
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def step(detach):
        aim = TARGETS[target](ANSWERS[answer](net, later))
        return ERRORS[error](net(states)[:, 0], aim.detach() if detach else aim)

    assert told(lambda: step(False), net).get("GRAD067") == "RISK"
    assert "GRAD067" not in told(lambda: step(True), net)


@pytest.mark.parametrize(
    "right",
    [
        lambda net, other: F.mse_loss(net(states), net(states + 0.1)),  # two views of the same
        lambda net, other: F.mse_loss(net(states)[:, 0], rewards + 0.9 * other(later)[:, 0]),
        lambda net, other: F.mse_loss(net(states)[:, 0] + 1.0, 0.9 * net(later)[:, 0]),
        lambda net, other: ((net(states) - net(later)) ** 2).mean(),
    ],
    ids=["views", "another net", "nothing known is added", "a difference"],
)
def test_a_model_may_be_compared_with_itself(right):
    net, other = (nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)) for _ in range(2))
    assert "GRAD067" not in told(lambda: right(net, other), net, other)
