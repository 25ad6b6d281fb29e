# SPDX-License-Identifier: Apache-2.0
"""Schedules in a run: those that count epochs, and those that end before the training does."""

import math
from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import truestep as ts

DATA = torch.randn(40, 3, generator=torch.Generator().manual_seed(2))


def module():
    torch.manual_seed(0)
    return nn.Linear(3, 1)


def train(directory, schedule, *, epochs=5, batch_size=4, use_epochs=True, stop_at=-1, **options):
    run = ts.Run(directory, seed=0, device="cpu", doctor=False)
    net = run.learner(
        module(), lambda p: torch.optim.SGD(p, lr=0.5), schedule=schedule, name="net", **options
    )
    train = run.data(DATA, batch_size=batch_size)
    rates = []
    with suppress(ZeroDivisionError), run:
        for _ in run.epochs(epochs) if use_epochs else range(epochs):
            rates.append(net.learning_rate)
            for batch in run.batches(train):
                net.update(lambda x: net(x).squeeze(1).square(), batch)
                1 / (run.step - stop_at)
            1 / (run.step - stop_at - 0.5)
    return net, rates


def equal(first, second):
    return all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def by_hand(schedule, epochs):
    net = module()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    scheduler = schedule(optimizer)
    for _ in range(epochs):
        for batch in DATA.split(4):
            optimizer.zero_grad()
            net(batch).squeeze(1).square().mean().backward()
            optimizer.step()
        scheduler.step()
    return net


SCHEDULES = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=2, gamma=0.1),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=5),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch),
    "ours": lambda o: ts.warmup_cosine(o, warmup_steps=2, total_steps=5),
}


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", SCHEDULES)
def test_per_epoch_is_the_loop_that_steps_once_an_epoch(tmp_path, name):
    net, _ = train(tmp_path, ts.per_epoch(SCHEDULES[name]))
    assert equal(by_hand(SCHEDULES[name], 5).state_dict(), net.module.state_dict())


@pytest.mark.sliced(3)
@pytest.mark.parametrize("stop_at", [3, 9.5, 10, 11, 19.5, 20])
def test_it_steps_once_an_epoch_wherever_the_run_was_stopped(tmp_path, stop_at):
    whole, expected = train(tmp_path / "whole", ts.per_epoch(SCHEDULES["StepLR"]))
    _, before = train(tmp_path / "parts", ts.per_epoch(SCHEDULES["StepLR"]), stop_at=stop_at)
    net, after = train(tmp_path / "parts", ts.per_epoch(SCHEDULES["StepLR"]))
    assert equal(whole.module.state_dict(), net.module.state_dict())
    assert after == expected[-len(after) :]
    assert before == expected[: len(before)]


def test_epochs_before_a_learner_trains_are_not_counted(tmp_path):
    _, rates = train(tmp_path, ts.per_epoch(SCHEDULES["LambdaLR"]), starts_at=21)
    assert rates == [0.5, 0.5, 0.5, 0.25, 0.125]


def test_a_change_of_what_is_counted_is_said(tmp_path, capsys):
    train(tmp_path, ts.per_update(SCHEDULES["StepLR"]), epochs=1)
    train(tmp_path, ts.per_epoch(SCHEDULES["StepLR"]), epochs=2)
    assert "schedules=['StepLR per epoch'], before ['StepLR']" in capsys.readouterr().err


TOO_SHORT = {
    "ours, in epochs": (
        lambda o: ts.warmup_cosine(o, warmup_steps=1, total_steps=5),
        "was over after 5 updates, in the first of 5 epochs; the learning rate is 0 now. It counts updates that were applied: the",
    ),
    "ours, with a floor": (
        lambda o: ts.warmup_linear(o, warmup_steps=1, total_steps=10, final=0.1),
        "was over after 10 updates, in the first of 5 epochs; the learning rate is 0.05 now.",
    ),
    "torch's": (ts.per_update(SCHEDULES["CosineAnnealingLR"]), "was over after 5 updates, in the first of 5 epochs"),
    "two of torch's": (
        ts.per_update(
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.LinearLR(o, total_iters=2), lr_scheduler.CosineAnnealingLR(o, T_max=6)], [2]
            )
        ),
        "was over after 8 updates, in the first of 5 epochs",
    ),
    "milestones": (
        ts.per_update(lambda o: lr_scheduler.MultiStepLR(o, [3, 6], gamma=0.1)),
        "was over after 6 updates",
    ),
    "a fall that never ends": (
        ts.per_update(lambda o: lr_scheduler.ExponentialLR(o, 0.5)),
        "has brought the learning rate to nothing (4.77e-07) in epoch 2 of 5; what follows would hardly change the weights",
    ),
    "per epoch, too": (
        ts.per_epoch(lambda o: lr_scheduler.ExponentialLR(o, 1e-4)),
        "has brought the learning rate to nothing (5e-09) in epoch 3 of 5",
    ),
}  # fmt: skip


def cosine_of(num_training_steps, warmup=1):
    """Return the form that copies of transformers' have: a closure over the number of steps."""

    def factor(step):
        if step < warmup:
            return step / warmup
        return max(0.0, 0.5 * (1 + math.cos(math.pi * (step - warmup) / (num_training_steps - warmup))))

    return lambda o: lr_scheduler.LambdaLR(o, factor)


STEPS = ("num_warmup_steps", "num_training_steps")


def of_transformers(function, /, *numbers, **options):
    def made(optimizer):
        make = getattr(pytest.importorskip("transformers"), function)
        return make(optimizer=optimizer, **dict(zip(STEPS, numbers, strict=False)), **options)

    return made


CLIMBING = {
    "transformers' cosine": (of_transformers("get_cosine_schedule_with_warmup", 1, 3), 3),
    "by its words": (
        of_transformers("get_cosine_schedule_with_warmup", 2, num_training_steps=7),
        7,
    ),
    "with a floor": (of_transformers("get_cosine_with_min_lr_schedule_with_warmup", 1, 6, min_lr=0.01), 6),
    "by its name": (of_transformers("get_scheduler", 0, 5, name="cosine"), 5),
    "a copy": (cosine_of(4), 4),
    "behind another": (
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LambdaLR(o, lambda step: 1.0), cosine_of(4)(o)], [2]
        ),
        6,
    ),
}


@pytest.mark.parametrize("name", CLIMBING)
def test_a_cosine_that_climbs_behind_its_end_is_named(tmp_path, capsys, name):
    schedule, end = CLIMBING[name]
    train(tmp_path, schedule, epochs=4)
    said = capsys.readouterr().err
    assert said.count("the schedule of net") == 1
    assert f"was over after {end} updates, in the first of 4 epochs; the learning rate" in said


def test_a_climb_in_a_later_epoch_is_named(tmp_path, capsys):
    train(tmp_path, of_transformers("get_cosine_schedule_with_warmup", 1, 22), epochs=6)
    assert (
        "the schedule of net was over after 22 updates, seen in epoch 3 of 6 epochs; the learning rate climbs again, and is"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("name", TOO_SHORT)
def test_a_schedule_that_ends_too_early_is_named_once(tmp_path, capsys, name):
    schedule, message = TOO_SHORT[name]
    train(tmp_path, schedule)
    said = capsys.readouterr().err
    assert said.count("the schedule of net") == 1
    assert message in said


@pytest.mark.sliced(3)
@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: ts.warmup_cosine(o, warmup_steps=5, total_steps=50),
        lambda o: ts.warmup_cosine(o, warmup_steps=5, total_steps=46),  # a few batches are left out somewhere
        lambda o: ts.one_cycle(o, total_steps=50),
        lambda o: ts.warmup_constant(o, warmup_steps=3),
        ts.per_update(lambda o: lr_scheduler.LinearLR(o, total_iters=4)),
        ts.per_epoch(SCHEDULES["CosineAnnealingLR"]),
        lambda o: lr_scheduler.LambdaLR(o, lambda step: step / 50),
        ts.per_epoch(lambda o: lr_scheduler.LambdaLR(o, lambda epoch: epoch / 5)),
        cosine_of(50),
        cosine_of(46),
        of_transformers("get_cosine_schedule_with_warmup", 5, 50),
        of_transformers("get_linear_schedule_with_warmup", 5, 50),
        of_transformers("get_constant_schedule_with_warmup", 5),
        of_transformers("get_inverse_sqrt_schedule", 5),
        of_transformers("get_cosine_with_hard_restarts_schedule_with_warmup", 5, 50, num_cycles=4),
        of_transformers("get_cosine_schedule_with_warmup", 0, 50, num_cycles=2),
        lambda o: ts.plateau(o, metric="accuracy"),
        None,
    ],
)
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_a_schedule_that_fits_is_not_named(tmp_path, capsys, schedule):
    train(tmp_path, schedule)
    assert "schedule" not in capsys.readouterr().err


def test_a_run_made_longer_than_its_schedule_is_told(tmp_path, capsys):
    schedule = lambda o: ts.warmup_cosine(o, warmup_steps=1, total_steps=20)
    train(tmp_path, schedule, epochs=2)
    assert "schedule" not in capsys.readouterr().err
    train(tmp_path, schedule, epochs=6)
    assert (
        "the schedule of net has brought the learning rate to nothing (0) in epoch 3 of 6"
        in capsys.readouterr().err
    )


LEFT_EARLY = {
    "one cycle": (lambda o: lr_scheduler.OneCycleLR(o, 0.5, epochs=12, steps_per_epoch=10), "(OneCycleLR) is over 120 updates"),
    "a warm-up": (
        ts.per_epoch(lambda o: ts.warmup_cosine(o, warmup_steps=10, total_steps=80)),
        "(LambdaLR) is over 80 epochs, and the training ended behind 2: its learning rate is 0.1",
    ),
    "a cosine": (ts.per_epoch(lambda o: lr_scheduler.CosineAnnealingLR(o, 9)), "(CosineAnnealingLR) is over 9 epochs"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_EARLY)
def test_a_training_that_ends_within_half_of_its_schedule_is_told(tmp_path, capsys, name):
    schedule, message = LEFT_EARLY[name]
    train(tmp_path, schedule, epochs=2)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: lr_scheduler.OneCycleLR(o, 0.5, epochs=3, steps_per_epoch=10),
        ts.per_epoch(lambda o: lr_scheduler.CosineAnnealingLR(o, 3)),
        ts.per_epoch(lambda o: lr_scheduler.MultiStepLR(o, [30, 60, 90])),
        ts.per_epoch(lambda o: lr_scheduler.StepLR(o, 30)),
        lambda o: ts.warmup_constant(o, warmup_steps=30),
    ],
)
def test_one_that_is_nearly_over_or_has_no_end_is_not(tmp_path, capsys, schedule):
    train(tmp_path, schedule, epochs=2)
    assert "the schedule of" not in capsys.readouterr().err


@pytest.mark.parametrize("metric", ["val_loss", "wer", "valid/error"])
def test_a_plateau_that_waits_for_a_loss_to_rise_is_told(tmp_path, metric):
    with pytest.warns(UserWarning, match="mode=.min"):
        train(tmp_path, lambda o: ts.plateau(o, metric=metric, mode="max"), epochs=1)
    train(tmp_path / "min", lambda o: ts.plateau(o, metric=metric, mode="min"), epochs=1)
    train(tmp_path / "max", lambda o: ts.plateau(o, metric="accuracy", mode="max"), epochs=1)


@pytest.mark.parametrize(("mode", "metric"), [("min", "val_loss"), ("max", "accuracy")])
def test_a_plateau_of_torch_is_answered_with_its_own_mode(tmp_path, mode, metric):
    with pytest.raises(
        ts.OptionError, match=f"metric='{metric}', mode='{mode}'\\) and log it with run.log\\({metric}="
    ):
        train(tmp_path, lambda o: lr_scheduler.ReduceLROnPlateau(o, mode=mode))


def test_a_loop_without_epochs_is_told_that_nothing_moves(tmp_path, capsys):
    train(tmp_path, ts.per_epoch(SCHEDULES["StepLR"]), use_epochs=False)
    assert capsys.readouterr().err.count("counts epochs, and no loop over run.epochs(...) is under way") == 1


def test_one_that_waits_for_a_metric_counts_nothing(tmp_path):
    with pytest.raises(ts.OptionError, match=r"counts neither updates nor epochs: leave ts\.per_epoch out"):
        train(tmp_path, ts.per_epoch(lambda o: ts.plateau(o, metric="accuracy")))


def at_the_top_of_an_epoch(net, epoch):
    for group in net.optimizers[0].param_groups:
        group["lr"] = 0.5 * 0.9**epoch


def before_an_update(net, step):
    net.optimizers[0].param_groups[0]["lr"] = min(1.0, step / 9) * 0.3


def weight_decay_alone(net, step):
    net.optimizers[0].param_groups[0]["weight_decay"] = 1e-3 * step


def nothing(_net, _number):
    pass


def train_with_rates(directory, schedule, per_epoch=nothing, per_update=nothing):
    run = ts.Run(directory, device="cpu", doctor=False, progress=False)
    net = run.learner(module(), lambda p: torch.optim.SGD(p, lr=0.5), schedule=schedule, name="net")
    source = run.data(DATA, batch_size=4)
    for epoch in run.epochs(3):
        per_epoch(net, epoch)
        for i, batch in enumerate(run.batches(source)):
            per_update(net, i)
            net.update(lambda x: net(x).squeeze(1).square(), batch)
    run.close()


BY_HAND = {
    "of an epoch": (SCHEDULES["ours"], {"per_epoch": at_the_top_of_an_epoch}),
    "of an update": (lambda o: ts.one_cycle(o, total_steps=30), {"per_update": before_an_update}),
    "of a function's": (
        lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
        {"per_epoch": at_the_top_of_an_epoch},
    ),
    "of an epoch's schedule": (ts.per_epoch(SCHEDULES["LambdaLR"]), {"per_update": before_an_update}),
}


@pytest.mark.parametrize("kind", BY_HAND)
def test_a_rate_that_is_set_before_an_update_is_named(tmp_path, capsys, kind):
    schedule, options = BY_HAND[kind]
    train_with_rates(tmp_path, schedule, **options)
    said = capsys.readouterr().err
    assert said.count("what is set by hand is lost") == 1
    assert f"anew after each {'epoch' if 'schedule' in kind else 'update'}" in said


LAWFUL = {
    "none": (SCHEDULES["ours"], {}),
    "no schedule": (None, {"per_epoch": at_the_top_of_an_epoch, "per_update": before_an_update}),
    "another number": (SCHEDULES["ours"], {"per_update": weight_decay_alone}),
    "a plateau": (lambda o: ts.plateau(o, metric="loss"), {"per_epoch": at_the_top_of_an_epoch}),
}


@pytest.mark.parametrize("kind", LAWFUL)
def test_nothing_is_said_of_rates_that_stay(tmp_path, capsys, kind):
    schedule, options = LAWFUL[kind]
    train_with_rates(tmp_path, schedule, **options)
    assert "by hand" not in capsys.readouterr().err


GIVEN_BY_LIGHTNING = {
    "epochs": ({"interval": "epoch"}, lr_scheduler.StepLR, r"ts\.per_epoch\(lambda o: torch\.optim\.lr_scheduler\.StepLR\(o, "),
    "nothing said": ({}, lr_scheduler.ExponentialLR, r"ts\.per_epoch\(lambda o: torch\.optim\.lr_scheduler\.ExponentialLR\("),
    "steps": ({"interval": "step", "frequency": 1}, lr_scheduler.StepLR, r"\('step'\).*ts\.per_update\(lambda o: torch"),
    "a plateau": (
        {"monitor": "val_loss"},
        lambda o, _: lr_scheduler.ReduceLROnPlateau(o),
        r"schedule=lambda o: ts\.plateau\(o, metric='val_loss'\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", GIVEN_BY_LIGHTNING)
def test_what_lightning_is_given_is_written_as_it_stands_here(tmp_path, kind):
    words, make, written = GIVEN_BY_LIGHTNING[kind]
    with pytest.raises(ts.OptionError, match=written):
        train(tmp_path, lambda o: {"scheduler": make(o, 1), **words})
