# SPDX-License-Identifier: Apache-2.0
"""A run that goes on with other code than it was started with is refused, or says that its end is another one."""

import json
from dataclasses import dataclass
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts
from truestep.engine.precision import MODES, Precision
from truestep.run.rank_consistency import are_run_weights_finite

POINTS = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(20) % 3


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.1)


def linear(optimizer, steps=20):
    return ts.warmup_linear(optimizer, warmup_steps=1, total_steps=steps)


def train(directory, *, epochs=1, optimizer=adamw, module=nn.Linear, of_run=None, batch_size=10, **options):
    """Train for some epochs of two batches."""
    torch.manual_seed(0)
    with ts.Run(directory, saving=ts.Saving(background=False), **(of_run or {})) as run:
        net = run.learner(module(4, 3), optimizer, name="net", **options)
        data = run.data((POINTS, LABELS), batch_size=batch_size)
        for _ in run.epochs(epochs):
            for batch in run.batches(data):
                net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), batch)
    return net


def in_two_groups(parameters):
    return torch.optim.AdamW([{"params": [parameter]} for parameter in parameters], lr=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": lambda p: torch.optim.SGD(p, lr=0.1)}, "the optimizer AdamW, here SGD"),
        (
            {"optimizer": in_two_groups},
            r"AdamW with groups of \[2\] parameters, here AdamW with groups of \[1, 1\]",
        ),
        ({"optimizer": lambda p: [adamw([q]) for q in p]}, "another number of optimizers, 1, here 2"),
        ({"schedule": linear}, "no schedules, here 1: schedule= is new"),
        ({"module": lambda a, b: nn.Linear(a, b, bias=False)}, r"unexpected  bias \["),
    ],
)
def test_an_optimizer_or_model_that_the_state_does_not_fit_is_refused_with_the_reason(
    tmp_path, options, message
):
    train(tmp_path)
    with pytest.raises(ts.CheckpointError, match=message):
        train(tmp_path, epochs=2, **options)
    train(tmp_path, epochs=2)  # and nothing was touched


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (
            {},
            {
                "optimizer": lambda p: torch.optim.Adam(
                    p, lr=0.1, weight_decay=0.01, decoupled_weight_decay=True
                )
            },
            "net: optimizers=['Adam'], before ['AdamW']",
        ),
        ({}, {"clip": ts.ClipNorm(1.0)}, "before None"),
        ({}, {"micro_batch": 3}, "net: micro_batch=3, before None"),
        ({"ema": ts.EMA(decay=0.9)}, {"ema": ts.EMA(decay=0.5)}, "net: ema=EMA(decay=0.5"),
        (
            {"schedule": linear},
            {"schedule": ts.per_update(lambda o: torch.optim.lr_scheduler.StepLR(o, 1))},
            "net: schedules=['StepLR'], before ['LambdaLR']",
        ),
        (
            {"schedule": linear},
            {"schedule": lambda o: linear(o, 40)},
            "net: learning rate after 4 updates=[0.09",
        ),
    ],
)
def test_other_settings_in_the_code_are_named_and_no_bits_are_promised(tmp_path, capsys, before, now, said):
    train(tmp_path, **before)
    train(tmp_path, epochs=2, **before)
    assert "the rest is bit-identical" in capsys.readouterr().err
    train(tmp_path, epochs=3, **(before | now))
    message = capsys.readouterr().err
    assert said in message
    assert "the rest is what the code now makes of it" in message
    assert "bit-identical" not in message


class OwnClip(ts.Clip):
    """A clip of the user's own, with no text of its own."""

    def __init__(self, factor=0.5):
        self._factor = factor

    def apply(self, gradients, norm):
        torch._foreach_mul_(gradients.tensors, self._factor)


class OtherClip(OwnClip):
    """Another class with the same fields."""


@dataclass(frozen=True)
class OwnNorm(ts.ClipNorm):
    """A kind of a kind that there is."""

    factor: float = 0.5


def scaling(factor):
    def scaled(gradients, *, bias=1.0):
        for gradient in gradients.values():
            gradient.mul_(factor * bias)

    return scaled


class Callable:
    """An object that is called."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, gradients):
        scaling(self.factor)(gradients)


OWN_CLIPS = [
    (OwnClip(), OwnClip(0.25), "OwnClip(_factor=0.25)", "OwnClip(_factor=0.5)"),
    (OwnClip(), OtherClip(), "OtherClip(_factor=0.5)", "OwnClip(_factor=0.5)"),
    (
        OwnNorm(1.0),
        OwnNorm(1.0, factor=2.0),
        "OwnNorm(max_norm=1.0, norm_type=2.0, factor=2.0)",
        "factor=0.5)",
    ),
    (scaling(0.5), scaling(0.25), "scaled factor=0.25 bias=1.0>)", "scaled factor=0.5 bias=1.0>)"),
    (Callable(0.5), Callable(0.25), "Callable(factor=0.25))", "Callable(factor=0.5))"),
    (partial(scaling(1.0), bias=0.5), partial(scaling(1.0), bias=0.25), "bias=0.25))", "bias=0.5))"),
]


@pytest.mark.parametrize(("before", "now", "new", "old"), OWN_CLIPS)
def test_a_clip_of_ones_own_is_among_the_choices_and_another_one_is_told(
    tmp_path, capsys, before, now, new, old
):
    for epochs in (1, 2):
        train(tmp_path, clip=before, epochs=epochs)
    assert "the rest is bit-identical" in capsys.readouterr().err
    train(tmp_path, clip=now, epochs=3)
    message = capsys.readouterr().err
    assert "net: clip=" in message
    assert new in message
    assert old in message.partition("before ")[2]
    assert "bit-identical" not in message
    choices = {each["name"]: each["value"] for each in json.loads((tmp_path / "choices.json").read_text())}
    assert new in choices["clip of net"]


def test_all_that_a_learner_was_given_is_among_the_choices(tmp_path):
    net = train(
        tmp_path,
        optimizer=in_two_groups,
        precision="bf16-mixed",
        schedule=linear,
        ema=ts.EMA(decay=0.9),
        micro_batch=3,
        starts_at=1,
    )
    chosen = {each.name: each.value for each in net._parts.context.choices}
    assert chosen["optimizer of net"].startswith("AdamW(")
    assert "lr=0.1" in chosen["optimizer of net"]
    assert (chosen["precision of net"], chosen["schedule of net"]) == ("bf16-mixed", "LambdaLR")
    assert chosen["ema of net"].startswith("EMA(decay=0.9")
    assert (chosen["micro_batch of net"], chosen["starts_at of net"]) == ("3", "1")
    assert not {"clip of net", "compile of net", "loss_scale of net"} & chosen.keys()


def test_a_precision_of_ones_own_is_shown_and_compared_by_its_fields(tmp_path, capsys, monkeypatch):
    def mode(**fields):
        monkeypatch.setitem(MODES, "mine", Precision(name="mine", meaning="As I like it.", **fields))

    mode(autocast=torch.bfloat16)
    train(tmp_path, precision="mine", epochs=1)
    net = train(tmp_path, precision="mine", epochs=2)
    assert "the rest is bit-identical" in capsys.readouterr().err
    (chosen,) = [each for each in net._parts.context.choices if each.name == "precision of net"]
    assert "autocast=torch.bfloat16" in chosen.value
    assert chosen.reason == "As I like it."
    mode(autocast=torch.float16)
    train(tmp_path, precision="mine", epochs=3)
    message = capsys.readouterr().err
    assert "net: precision=Precision(name='mine'" in message
    assert "autocast=torch.float16" in message
    assert "bit-identical" not in message


class ClipToUsual(ts.Clip):
    """Clip to the largest norm so far."""

    def __init__(self):
        self.largest = 0.01

    def apply(self, gradients, norm):
        torch._foreach_mul_(gradients.tensors, min(1.0, self.largest / float(norm)))
        self.largest = max(self.largest, 1.01 * self.largest)


class StatefulClip(ClipToUsual):
    """The same, saved with its learner."""

    def state_dict(self):
        return {"largest": self.largest}

    def load_state_dict(self, state):
        self.largest = state["largest"]


class StatefulFunction:
    """An object that is called with the gradients by name, and has a state."""

    def __init__(self):
        self.largest = 0.01

    def __call__(self, gradients):
        for gradient in gradients.values():
            gradient.clamp_(-self.largest, self.largest)
        self.largest *= 1.5

    def state_dict(self):
        return {"largest": self.largest}

    def load_state_dict(self, state):
        self.largest = state["largest"]


class OwnStep(torch.optim.SGD):
    """An optimizer that counts in an attribute."""

    num_steps = 0

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self.num_steps = 0

    def step(self, closure=None):
        self.num_steps += 1
        super().step(closure)


@pytest.mark.parametrize("kind", [StatefulClip, StatefulFunction])
def test_what_a_clip_keeps_is_saved_with_its_learner(tmp_path, capsys, kind):
    whole = train(tmp_path / "whole", clip=kind(), epochs=3)
    train(tmp_path / "run", clip=kind(), epochs=1)
    net = train(tmp_path / "run", clip=kind(), epochs=3)
    assert "the rest is bit-identical" in capsys.readouterr().err
    assert torch.equal(net.weight, whole.weight)


@pytest.mark.parametrize("kind", [StatefulClip, StatefulFunction])
def test_a_clip_that_was_used_before_in_this_process_is_no_other_one(tmp_path, capsys, kind):
    """As where a notebook's cell is run again, and the clip was made in the one before."""
    whole = train(tmp_path / "whole", clip=kind(), epochs=3)
    clip = kind()
    train(tmp_path / "run", clip=clip, epochs=1)
    capsys.readouterr()
    net = train(tmp_path / "run", clip=clip, epochs=3)
    assert "the rest is bit-identical" in capsys.readouterr().err
    assert torch.equal(net.weight, whole.weight)


def test_another_value_of_what_a_clip_also_keeps_is_told(tmp_path, capsys):
    class Wider(StatefulClip):
        def __init__(self, largest):
            self.largest = largest

    train(tmp_path, clip=Wider(0.01), epochs=1)
    train(tmp_path, clip=Wider(0.5), epochs=2)
    assert "net: clip=" in capsys.readouterr().err


def test_what_a_clip_keeps_that_has_no_state_is_told(tmp_path, capsys):
    train(tmp_path / "told", clip=ClipToUsual(), epochs=1)
    train(tmp_path / "told", clip=ClipToUsual(), epochs=2)
    message = capsys.readouterr().err
    assert "net: clip had changed since it was made, and no checkpoint keeps it" in message
    assert "bit-identical" not in message


def test_what_an_optimizer_keeps_outside_of_its_state_is_told(tmp_path, capsys):
    train(tmp_path, optimizer=OwnStep, epochs=1)
    train(tmp_path, optimizer=OwnStep, epochs=2)
    assert "net: OwnStep.num_steps had changed since it was made" in capsys.readouterr().err


def test_data_of_another_size_is_refused_with_both_values(tmp_path):
    train(tmp_path)
    with ts.Run(tmp_path, progress=False) as run:
        run.learner(nn.Linear(4, 3), adamw, name="net")
        data = run.data((POINTS[:15], LABELS[:15]), batch_size=5)
        with pytest.raises(ts.DataError, match=r"num_samples was 20, is 15; batch_size was 10, is 5"):
            next(iter(run.batches(data)))


EDITS = [
    (
        {},
        {"optimizer": lambda p: torch.optim.AdamW(p, lr=0.2)},
        "net: lr=0.2 in the code, 0.1 in the checkpoint",
    ),
    (
        {},
        {"optimizer": lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.8, 0.99), weight_decay=0.5)},
        r"net: betas=\(0.8, 0.99\) in the code, \(0.9, 0.999\) in the checkpoint; weight_decay=0.5",
    ),
    (
        {"schedule": linear},
        {"schedule": linear, "optimizer": lambda p: torch.optim.AdamW(p, lr=0.2)},
        "net: lr=0.2 in the code, 0.1 in the checkpoint",
    ),
    ({}, {"batch_size": 5}, "batch_size was 10, is 5"),
    ({"of_run": {"seed": 1}}, {"of_run": {"seed": 2}}, "seed: 1 there, 2 now"),
    ({"of_run": {"config": {"lr": 1}}}, {"of_run": {"config": {"lr": 2}}}, r"config\.lr: 1 there, 2 now"),
    ({}, {"of_run": {"precision": "bf16-mixed"}}, "precision: 'float32' there, 'bf16-mixed' now"),
]


@pytest.mark.parametrize(("before", "now", "message"), EDITS)
def test_what_was_edited_is_refused_with_both_ways_out_and_used_when_asked(
    tmp_path, capsys, before, now, message
):
    directory = tmp_path / "run"
    train(directory, **before)
    with pytest.raises(ts.TruestepError, match=message) as refused:
        train(directory, epochs=2, **now)
    assert 'resume="anew") starts a new run beside it, in run-2; resume="edited" would go on' in str(
        refused.value
    )
    capsys.readouterr()
    edited = {**now, "of_run": {**now.get("of_run", {}), "resume": "edited"}}
    train(directory, epochs=2, **edited)
    assert "the rest is what the code now makes of it" in capsys.readouterr().err
    train(directory, epochs=3, **now)  # that is the run now
    assert "the rest is bit-identical" in capsys.readouterr().err


@pytest.mark.parametrize(
    "schedule",
    [
        None,
        lambda o: linear(o, 8),
        ts.per_update(lambda o: torch.optim.lr_scheduler.StepLR(o, 3)),
        ts.per_epoch(lambda o: torch.optim.lr_scheduler.StepLR(o, 1)),
    ],
)
def test_an_edited_rate_moves_the_weights_as_it_would_in_the_place_of_the_old_one(tmp_path, schedule):
    def rate(lr):
        return lambda p: torch.optim.SGD(p, lr=lr, momentum=0.9)

    train(tmp_path, optimizer=rate(0.1), schedule=schedule)
    net = train(tmp_path, optimizer=rate(0.3), schedule=schedule, epochs=2, of_run={"resume": "edited"})
    whole = train(tmp_path / "whole", optimizer=rate(0.3), schedule=schedule, epochs=2)
    assert net.learning_rate == pytest.approx(whole.learning_rate)
    group, expected = (learner.optimizers[0].param_groups[0] for learner in (net, whole))
    assert {name: group[name] for name in group if name not in ("params", "lr")} == {
        name: expected[name] for name in expected if name not in ("params", "lr")
    }


def test_a_rate_that_a_plateau_or_the_loop_has_moved_is_no_edit(tmp_path, capsys):
    def go(epochs):
        with ts.Run(tmp_path) as run:
            net = run.learner(
                nn.Linear(4, 3), adamw, schedule=lambda o: ts.plateau(o, metric="error", patience=0)
            )
            other = run.learner(nn.Linear(4, 3), adamw, name="other")
            data = run.data((POINTS, LABELS), batch_size=10)
            for _ in run.epochs(epochs):
                for batch in run.batches(data):
                    for each in (net, other):
                        each.update(lambda b, e=each: F.cross_entropy(e(b[0]), b[1], reduction="none"), batch)
                run.log(error=1.0)
                other.optimizers[0].param_groups[0]["lr"] *= 0.5
        return net.learning_rate, other.learning_rate

    assert go(2) == pytest.approx((0.01, 0.025))
    capsys.readouterr()
    assert go(3) == pytest.approx((0.001, 0.0125))
    assert "the rest is bit-identical" in capsys.readouterr().err


def test_batches_of_another_size_go_on_at_the_sample_that_the_run_was_at(tmp_path):
    def go(batch_size, stop, resume="auto"):
        seen = []
        with ts.Run(tmp_path, resume=resume, saving=ts.Saving(every_steps=1)) as run:
            net = run.learner(nn.Linear(4, 3), adamw)
            data = run.data((POINTS, torch.arange(20)), batch_size=batch_size)
            for _ in run.epochs(1):
                for batch in run.batches(data):
                    net.update(lambda b: net(b[0]).sum(1), batch)
                    seen += batch[1].tolist()
                    if run.step == stop:
                        raise KeyboardInterrupt
        return seen

    with pytest.raises(KeyboardInterrupt):
        go(4, 4)  # three batches are done
    assert go(3, None, resume="edited") == list(range(12, 20))


class Odd(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs, dtype=torch.complex64))
        self.empty = nn.Parameter(torch.empty(0))

    def forward(self, x):
        return (x.to(self.weight.dtype) @ self.weight).abs()


def test_empty_and_complex_weights_are_saved_and_a_complex_nan_is_unhealthy(tmp_path):
    net = train(tmp_path, module=Odd)
    with ts.CheckpointStore(tmp_path / "checkpoints") as store:
        assert store.newest(healthy=True).step == 2
    with torch.no_grad():
        net.weight[0, 0] = complex(0, float("nan"))
    assert not are_run_weights_finite(net._parts.context)
