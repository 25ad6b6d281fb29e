# SPDX-License-Identifier: Apache-2.0
"""Wrong functions and numbers that a user's first hour brings: each is answered with the line to write."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD, AdamW, lr_scheduler

import truestep as ts


def learner(folder, optimizer=lambda p: SGD(p, lr=0.1), **options):
    run = ts.Run(folder, device="cpu", progress=False, doctor=False)
    return run.learner(nn.Linear(3, 2), optimizer, name="net", **options)


def lr_lambda(step):
    return step / 10 if step < 10 else 1.0


class Cosine:
    def __call__(self, epoch):
        return math.cos(epoch / 10)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda step: 0.95**step,
        lr_lambda,
        Cosine(),
        lambda step: min(1.0, step / 100),
        lambda s: math.cos(s) / 2,
        ts.per_epoch(lambda epoch: 0.9**epoch),
    ],
)
def test_a_function_of_the_step_is_given_to_lambda_lr(tmp_path, schedule):
    with pytest.raises(
        ts.OptionError, match=r"function of the step.*schedule=lambda o: .*LambdaLR\(o, function\)"
    ):
        learner(tmp_path, schedule=schedule)


def test_another_error_of_a_schedule_stays_as_it_is(tmp_path):
    def broken(optimizer):
        return lr_scheduler.LambdaLR(optimizer, lambda step: 1 / "a")

    with pytest.raises(TypeError, match="unsupported operand"):
        learner(tmp_path, schedule=broken)


def test_a_one_cycle_that_is_over_says_how_many_steps_it_has(tmp_path):
    run = ts.Run(tmp_path, device="cpu", progress=False, doctor=False)
    cycle = lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=3)
    net = run.learner(nn.Linear(3, 1), lambda p: SGD(p, lr=0.1), schedule=cycle, name="net")
    update = lambda: net.update(lambda x: net(x).squeeze(1), torch.ones(4, 3))
    update(), update()
    with pytest.raises(ts.OptionError, match=r"total_steps=3\).*ts\.one_cycle\(o, total_steps=3\)"):
        [update() for _ in range(2)]


WRONG = {
    "a rate": (
        lambda p: AdamW(p, lr=-1e-3),
        "Invalid learning rate: -0.001. With a rate below 0 .* write lr=1e-3",
    ),
    "a momentum": (lambda p: SGD(p, lr=0.1, momentum=-1), "write momentum=0.9"),
    "betas": (lambda p: AdamW(p, betas=(1.0, 0.9)), r"write betas=\(0.9, 0.999\)"),
    "a decay": (lambda p: AdamW(p, weight_decay=-1), "write weight_decay=0.01"),
    "groups": (
        lambda p: AdamW([{"params": list(p)}, {"params": list(p)[:1]}]),
        r"stepped twice.*p\.groups\(",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_an_optimizer_refuses_is_answered_with_what_it_takes(tmp_path, kind):
    factory, said = WRONG[kind]
    with pytest.raises(ts.OptionError, match=f"'net' could not be made: .*{said}"):
        learner(tmp_path, factory)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: ts.Saving(keep_last=0), "ts.Saving(keep_last=0) would keep no checkpoint"),
        (lambda: ts.Saving(keep_best=-1), "ts.Saving(keep_best=-1): give keep_best at least 0"),
        (lambda: ts.Saving(keep_every=0), "ts.Saving(keep_every=0): give at least 1"),
        (lambda: ts.Run("runs/x", resume="best"), "checkpoint='highest accuracy') above run.learner"),
    ],
)
def test_what_is_kept_and_gone_on_from_is_said_in_the_words_of_the_call(made, said):
    with pytest.raises(ts.OptionError, match=re.escape(said)):
        made()


def helper(outputs):
    return outputs.detach().square().mean(1)


class Cut(nn.Linear):
    def forward(self, x):
        return super().forward(x).data


CUTS = {
    "argmax": lambda net, x: F.mse_loss(net(x).argmax(1).float(), x[:, 0], reduction="none"),
    "item": lambda net, x: torch.zeros(4) + net(x).mean().item(),
    "detach": lambda net, x: helper(net(x)),
    "tensor": lambda net, x: torch.tensor([each.mean().item() for each in net(x)]),
    "numpy": lambda net, x: torch.from_numpy(net(x).cpu().detach().numpy()).mean(1),
}


@pytest.mark.parametrize("kind", [*CUTS, "data"])
def test_a_loss_without_a_gradient_is_told_where_it_was_lost(tmp_path, kind):
    run = ts.Run(tmp_path, device="cpu", progress=False, doctor=False)
    net = run.learner((Cut if kind == "data" else nn.Linear)(3, 2), lambda p: SGD(p, lr=0.1))
    loss = CUTS.get(kind, lambda net, x: net(x).mean(1))
    with pytest.raises(ts.LossError) as caught:
        net.update(lambda x: loss(net, x), torch.ones(4, 3))
    assert re.search(
        rf"no gradient goes through .*{kind} \(test_wrong_first_hour.py:\d+\)", caught.value.__notes__[0]
    )


def of_generator_trained_by_another(G, D):
    return lambda z: D(G(z).detach()).mean(1)


def of_student_trained_by_another(G, D):
    def loss(z):
        with torch.no_grad():
            target = G(z)
        return F.mse_loss(D(z[:, :2]), target, reduction="none").mean(1)

    return loss


@pytest.mark.parametrize("make", [of_generator_trained_by_another, of_student_trained_by_another])
def test_a_loss_of_another_learner_is_told_whose_it_is(tmp_path, make):
    run = ts.Run(tmp_path, device="cpu", progress=False, doctor=False)
    G, D = (
        run.learner(nn.Linear(size, 2), lambda p: SGD(p, lr=0.1), name=name)
        for size, name in ((3, "G"), (2, "D"))
    )
    with pytest.raises(ts.LossError) as caught:
        G.update(make(G, D), torch.ones(4, 3))
    assert re.search(
        r"(detach|no_grad) \(.*if the loss is G's, leave it out\..*reads D, too.*write D\.update\(",
        caught.value.__notes__[0],
    )
    assert "what no loss trains needs no update" in caught.value.__notes__[0]


@pytest.mark.parametrize("first", [True, False])
def test_an_average_within_a_loss_is_computed_before_what_is_trained(tmp_path, first):
    run = ts.Run(tmp_path, device="cpu", progress=False, doctor=False)
    net = run.learner(
        nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), lambda p: SGD(p, lr=0.1), ema=ts.EMA(0.9)
    )

    def loss(x):
        outputs = None if first else net(x)
        with torch.no_grad(), net.averaged():
            targets = net(x)
        outputs = net(x) if outputs is None else outputs
        return F.mse_loss(outputs, targets.softmax(1), reduction="none").mean(1)

    if first:
        assert not net.update(loss, torch.ones(4, 3)).skipped
        return
    with pytest.raises(
        ts.LossError, match=r"enters net\.averaged\(\) \(line \d+\) behind a call of net\(\.\.\.\)"
    ):
        net.update(loss, torch.ones(4, 3))
