# SPDX-License-Identifier: Apache-2.0
"""A tracked module whose state_dict() is empty is named once what it holds changes: no checkpoint has it."""

import pytest
import torch
from torch import nn

import truestep as ts


class Replaced(nn.Module):
    """A mean as metrics of torchmetrics keep it: attributes that no state_dict() has."""

    def __init__(self):
        super().__init__()
        self.total = torch.zeros(())

    def update(self, value):
        self.total = self.total + value


class Written(Replaced):
    def update(self, value):
        self.total += value


class Appended(nn.Module):
    def __init__(self):
        super().__init__()
        self.values = []

    def update(self, value):
        self.values.append(value)


class LeftOut(nn.Module):
    def __init__(self, *, persistent=False):
        super().__init__()
        self.register_buffer("total", torch.zeros(()), persistent=persistent)

    def update(self, value):
        self.total += value


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.all = Written(), Appended()

    def update(self, value):
        self.mean.update(value)
        self.all.update(value)


class Constant(nn.Module):
    """Scales by what it never changes, and has nothing to keep."""

    def __init__(self):
        super().__init__()
        self.scale, self.names = torch.tensor(0.1), ["loss"]

    def update(self, value):
        return value * self.scale


class Looked(nn.Linear):
    """Has a state, and remembers beside it what it was last given."""

    def update(self, value):
        self.last = value


class Anew:
    """An environment that begins a new episode where a run goes on."""

    def __init__(self):
        self.place = torch.zeros(())

    def update(self, value):
        self.place = value

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        self.place = torch.zeros(())


def said(tracked, directory, capfd, *, by_steps=False):
    """Return what a run says that updates an object behind each batch."""
    with ts.Run(directory, seed=0, progress=False) as run:
        net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        rows = torch.randn(12, 3)
        data = run.data(rows, batch_size=4)
        run.track(mean=tracked)
        batches = (
            (rows[:4] for _ in run.steps(4))
            if by_steps
            else (b for _ in run.epochs(2) for b in run.batches(data))
        )
        for batch in batches:
            tracked.update(net.update(lambda part: net(part).square().squeeze(1), batch).loss.detach())
    return capfd.readouterr().err


@pytest.mark.parametrize("by_steps", [False, True])
@pytest.mark.parametrize(
    ("made", "held"),
    [
        (Replaced, "total"),
        (Written, "total"),
        (Appended, "values"),
        (LeftOut, "total"),
        (Several, "mean.total, all.values"),
    ],
)
def test_what_an_empty_state_leaves_out_is_named_once(made, held, by_steps, tmp_path, capfd):
    text = said(made(), tmp_path / "run", capfd, by_steps=by_steps)
    assert text.count("run.track(mean=...) keeps nothing") == 1
    assert (
        f"the state_dict() of this {made.__name__} is empty, and what it holds has changed ({held})"
        in " ".join(text.split())
    )


@pytest.mark.parametrize("made", [lambda: LeftOut(persistent=True), Constant, lambda: Looked(2, 2), Anew])
def test_a_state_and_what_never_changes_are_left_alone(made, tmp_path, capfd):
    assert "keeps nothing" not in said(made(), tmp_path / "run", capfd)
