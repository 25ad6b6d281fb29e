# SPDX-License-Identifier: Apache-2.0
"""What a loop in plain PyTorch does around its step is never silent beside a learner: refused where it is wrong for certain,
told once where it may be meant, and nothing is said of what is right."""

import gc
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ExponentialLR,
    LinearLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from torch.optim.optimizer import _global_optimizer_pre_hooks

import truestep as ts
from truestep.run import manual_call_listeners

ROWS = torch.arange(24.0).reshape(8, 3)


def made(folder, **options):
    """A run of two batches an epoch, and what a loop in plain PyTorch has: an optimizer over the same weights, a schedule."""
    torch.manual_seed(0)
    module = nn.Linear(3, 1)
    own = torch.optim.Adam(module.parameters(), lr=0.01)
    run = ts.Run(folder, device="cpu", progress=False, doctor=False)
    kind = options.pop("optimizer", torch.optim.AdamW)
    net = run.learner(module, lambda p: kind(p, lr=0.1), name="net", **options)
    other = nn.Linear(3, 1)
    return SimpleNamespace(
        run=run,
        net=net,
        own=own,
        other=other,
        others=torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9),
        on_net=StepLR(net.optimizers[0], 5),
        on_own=StepLR(own, 5),
        scaler=torch.amp.GradScaler("cpu"),
        losses=lambda rows: net(rows).square().sum(1),
    )


def train(has, *, before=None, after=None, loss=None, epoch=None, epochs=2):
    source = has.run.data(ROWS, batch_size=4)
    for _ in has.run.epochs(epochs):
        for rows in has.run.batches(source):
            if before:
                before(has)
            has.net.update(loss(has) if loss else has.losses, rows)
            if after:
                after(has)
        if epoch:
            epoch(has)
    has.run.close()


def backward(has):
    has.losses(ROWS).mean().backward()


def by_hand(has):
    has.own.zero_grad()
    backward(has)
    clip_grad_norm_(has.net.parameters(), 1.0)
    has.own.step()


def scaled(has):
    return lambda rows: has.scaler.scale(has.losses(rows))


def stepped_in_loss(has):
    def loss(rows):
        has.on_net.optimizer.step()
        return has.losses(rows)

    return loss


def clipped_in_loss(has):
    return lambda rows: (clip_grad_norm_(has.net.parameters(), 1.0), has.losses(rows))[1]


REFUSED = {
    "clipping in the loss": (
        {"loss": clipped_in_loss},
        r"clip_grad_norm_ was called .* within its update.*clip=ts\.ClipNorm",
    ),
    "an optimizer of one's own": ({"after": lambda has: has.own.step()}, r"Adam\.step\(\) was called on an optimizer"),
    "it, before the update": ({"before": lambda has: has.own.step()}, r"Adam\.step\(\) was called on an optimizer"),
    "it, by a scaler": (
        {"after": lambda has: (has.scaler.scale(torch.ones(1)), has.scaler.step(has.own))},
        r"Adam\.step\(\) was called",
    ),
    "the learner's optimizer": ({"after": lambda has: has.net.optimizers[0].step()}, "was stepped by hand"),
    "a step in the loss": ({"loss": stepped_in_loss}, "The loss function stepped an optimizer"),
    "a scaler in the loss": ({"loss": scaled}, r"the factor of a GradScaler \(65536\).*precision="),
    "clipping by norm": (
        {"after": lambda has: clip_grad_norm_(has.net.parameters(), 1.0)},
        r"clip_grad_norm_ was called .* behind its update.*clip=ts\.ClipNorm",
    ),
    "clipping by value": (
        {"after": lambda has: torch.nn.utils.clip_grad_value_([*has.net.parameters()], 1.0)},
        r"clip_grad_value_ was called .*clip=ts\.ClipValue",
    ),
    "a schedule of an optimizer of one's own": (
        {"epoch": lambda has: has.on_own.step()},
        r"an optimizer that never steps.*stay at 0\.1.*schedule=ts\.per_epoch\(lambda o: .*StepLR\(o",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "optimizer", [torch.optim.AdamW, torch.optim.SGD], ids=["kept lists", "torch's step"]
)
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_certainly_wrong_is_refused_at_its_line(tmp_path, what, optimizer):
    has = made(tmp_path / "run", optimizer=optimizer)
    how, message = REFUSED[what]
    with has.run, pytest.raises(ts.TruestepError, match=message):
        train(has, **how)


def test_two_schedules_are_refused(tmp_path):
    has = made(tmp_path / "run", schedule=lambda o: ts.warmup_linear(o, warmup_steps=2, total_steps=9))
    with has.run, pytest.raises(ts.OptionError, match=r"by its schedule= \(LambdaLR\) already.*SequentialLR"):
        train(has, epoch=lambda has: has.on_net.step())


TOLD = {
    "zero_grad of an optimizer": ({"before": lambda has: has.own.zero_grad()}, "zero_grad() does nothing for 'net'"),
    "zero_grad of the learner's": ({"before": lambda has: has.net.optimizers[0].zero_grad()}, "zero_grad() does nothing"),
    "zero_grad of the module": ({"after": lambda has: has.net.zero_grad()}, "zero_grad() does nothing for 'net'"),
    "backward": ({"after": backward}, "backward() beside an update made gradients in 'net' that nothing uses"),
    "a step by hand": ({"after": by_hand}, "run.track(own=optimizer)"),
    "a schedule": ({"after": lambda has: has.on_net.step()}, "run.track(scheduler=scheduler)"),
    "a schedule of schedules": (
        {"epoch": lambda has: SequentialLR(has.net.optimizers[0], [has.on_net, LinearLR(has.net.optimizers[0])], [1]).step()},
        "SequentialLR.step() moves the learning rate of 'net' beside its updates",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TOLD)
def test_what_may_be_meant_is_told_once_with_its_line(tmp_path, capsys, what):
    how, words = TOLD[what]
    train(made(tmp_path / "run"), **how)
    said = [line for line in capsys.readouterr().err.splitlines() if words in line]
    assert len(said) == 1
    assert said[0].startswith("truestep: test_by_hand.py:")


def test_a_loop_that_is_all_by_hand_is_told_and_no_weights_are_said_to_be_as_they_were(tmp_path, capsys):
    has = made(tmp_path / "run")
    source = has.run.data(ROWS, batch_size=4)
    for _ in has.run.epochs(2):
        for _rows in has.run.batches(source):
            by_hand(has)
    has.run.close()
    said = capsys.readouterr().err
    assert said.count("Adam.step() moves weights of 'net' beside its updates") == 1
    assert "no update was made" not in said


def test_a_block_that_clips_is_told_where_that_goes(tmp_path):
    has = made(tmp_path / "run")

    def block():
        with has.net.accumulating() as update:
            update.backward(has.losses(ROWS))
            clip_grad_norm_(has.net.parameters(), 1.0)

    with has.run, pytest.raises(ts.LossError, match="within its update"):
        block()


def others_by_hand(has):
    has.others.zero_grad()
    has.other(ROWS).mean().backward()
    clip_grad_norm_(has.other.parameters(), 1.0)
    has.others.step()


def tracked(has):
    has.run.track(own=has.own, scheduler=has.on_net)
    return by_hand


RIGHT = {
    "nothing": {},
    "another model": {"after": others_by_hand, "before": others_by_hand},
    "measuring": {"after": lambda has: clip_grad_norm_(has.net.parameters(), float("inf"))},
    "a rate set": {"epoch": lambda has: has.net.optimizers[0].param_groups[0].update(lr=0.01)},
    "gradients of inputs": {
        "after": lambda has: torch.autograd.grad(has.losses(r := ROWS.clone().requires_grad_()).sum(), r)
    },
    "a scaler that is off": {
        "loss": lambda has: lambda rows: torch.amp.GradScaler("cpu", enabled=False).scale(has.losses(rows))
    },
}


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
@pytest.mark.parametrize("what", RIGHT)
def test_nothing_is_said_of_what_is_right(tmp_path, capsys, what, kind):
    has = made(
        tmp_path / "run",
        optimizer=kind,
        schedule=lambda o: ChainedScheduler([LinearLR(o)]) and ts.plateau(o, metric="x"),
    )
    train(has, **RIGHT[what])
    assert "beside" not in (said := capsys.readouterr().err)
    assert "does nothing" not in said


def test_what_the_run_keeps_is_the_users_own(tmp_path, capsys):
    has = made(tmp_path / "run")
    has.run.track(own=has.own, scheduler=has.on_net)
    train(has, after=by_hand, epoch=lambda has: has.on_net.step())
    assert "beside" not in capsys.readouterr().err


def test_before_the_first_update_and_behind_the_end_all_is_the_users_own(tmp_path, capsys):
    has = made(tmp_path / "run")
    by_hand(has)
    assert has.run.epochs(1)  # starts it
    by_hand(has)
    train(has)
    for _ in range(2):
        by_hand(has)
        has.net.optimizers[0].step()
        has.on_net.step()
    assert "beside" not in capsys.readouterr().err


@pytest.mark.parametrize("schedule", ["per update", "per epoch", "plateau"])
def test_the_learners_own_schedules_are_its_own(tmp_path, schedule):
    of = lambda o: SequentialLR(o, [ExponentialLR(o, 0.5), ExponentialLR(o, 0.5)], [1])
    schedule = {
        "per update": ts.per_update(of),
        "per epoch": ts.per_epoch(of),
        "plateau": lambda o: ts.plateau(o, metric="loss", patience=0),
    }[schedule]
    has = made(tmp_path / "run", schedule=schedule)
    train(has, epoch=lambda has: has.run.log(loss=1.0), epochs=4)
    assert has.net.learning_rate < 0.1


def test_torch_is_as_it_was_when_no_run_is_open(tmp_path):
    gc.collect()
    owners = (
        torch.optim.Optimizer.zero_grad,
        nn.Module.zero_grad,
        torch.autograd.backward,
        ReduceLROnPlateau.step,
    )
    before = (*owners, torch.amp.GradScaler.scale, dict(_global_optimizer_pre_hooks))
    first, second = made(tmp_path / "first"), made(tmp_path / "second")
    assert first.run.epochs(1)
    assert second.run.epochs(1)
    assert nn.Module.zero_grad is not before[1]
    first.run.close()
    assert nn.Module.zero_grad is not before[1]
    second.run.close()
    owners = (
        torch.optim.Optimizer.zero_grad,
        nn.Module.zero_grad,
        torch.autograd.backward,
        ReduceLROnPlateau.step,
    )
    assert before == (*owners, torch.amp.GradScaler.scale, dict(_global_optimizer_pre_hooks))
    assert not len(manual_call_listeners._listeners)


def test_a_run_that_is_dropped_leaves_nothing_behind(tmp_path):
    gc.collect()
    before = nn.Module.zero_grad
    has = made(tmp_path / "run")
    has.net.update(has.losses, ROWS)
    assert nn.Module.zero_grad is not before
    del has
    gc.collect()
    assert nn.Module.zero_grad is before
