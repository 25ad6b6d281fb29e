# SPDX-License-Identifier: Apache-2.0
"""Mistakes that python or torch would answer with words about our insides: each says what to write."""

import pytest
import torch
from torch import nn

import truestep as ts

ROWS = torch.ones(4, 3)
SGD = lambda p: torch.optim.SGD(p, lr=0.1)


@pytest.fixture
def net(make_learner):
    return make_learner(nn.Linear(3, 1), SGD, name="net")


def first(net):
    return lambda rows: net(rows)[:, 0]


CALLS = {
    "a learner for a list": (
        lambda net: ts.update(net, first(net), ROWS),
        r"a list of what run\.learner returned.*net\.update",
    ),
    "a module for a learner": (
        lambda net: ts.update([net.module], first(net), ROWS),
        r"a list of what run\.learner returned",
    ),
    "no learner": (lambda net: ts.update([], first(net), ROWS), r"ts\.update\(\[a, b\], loss, batch\)"),
    "a learner forgotten": (
        lambda net: ts.update(first(net), ROWS),
        "takes learners, one loss of them all, and a batch",
    ),
    "a learner by its class": (
        lambda _: ts.Learner(nn.Linear(1, 1), SGD),
        r"made by a run: net = run\.learner\(module",
    ),
    "a backward outside": (
        lambda net: net.accumulating().backward(first(net)(ROWS)),
        r"outside of the block.*with net\.accumulating\(\) as update",
    ),
    "a batch called data": (lambda net: net.update(first(net), data=ROWS), "Here it is called batch"),
    "a dict": (
        lambda net: net.update(lambda rows: {"loss": first(net)(rows)}, ROWS),
        r"ts\.weighted\(values, accuracy=correct\)",
    ),
    "a criterion": (
        lambda net: net.update(nn.MSELoss(), (ROWS, ROWS)),
        r"The function MSELoss was called with the batch, a tuple of 2.*def loss\(batch\): x, y = batch",
    ),
    "a criterion evaluated": (
        lambda net: net.evaluate(nn.MSELoss(), [(ROWS, ROWS)]),
        "The function MSELoss was called",
    ),
    "two arguments evaluated": (
        lambda net: net.evaluate(lambda x, y: x, [(ROWS, ROWS)]),
        r"The function <lambda> was called with the batch, a tuple of 2.*x, y = batch",
    ),
    "a list of weights": (
        lambda _: ts.weighted(torch.ones(3), [1, 2, 3]),
        r"a list as weights; give a tensor.*torch\.as_tensor",
    ),
    "a misspelt weight": (
        lambda _: ts.weighted(torch.ones(3), wieghts=torch.ones(3)),
        r"would log it as a metric.*Write weights=",
    ),
    "a metric of that name": (lambda _: ts.weighted(torch.ones(3), output=torch.ones(3)), "Write outputs="),
    "a share of steps": (
        lambda net: ts.warmup_cosine(net.optimizers[0], warmup_steps=0.1, total_steps=9),
        r"^ts\.warmup_cosine\(warmup_steps=0\.1\) was given a float where a whole number.*round\(0\.1 \* total_steps\)",
    ),
    "a share of a line": (
        lambda net: ts.warmup_linear(net.optimizers[0], warmup_steps=0.1, total_steps=9),
        r"^ts\.warmup_linear\(warmup_steps=0\.1\).*ts\.warmup_linear\(warmup_steps=round",
    ),
    "a share and then constant": (
        lambda net: ts.warmup_constant(net.optimizers[0], warmup_steps=0.06),
        r"^ts\.warmup_constant\(warmup_steps=0\.06\)",
    ),
    "a share and then a root": (
        lambda net: ts.warmup_inverse_sqrt(net.optimizers[0], warmup_steps=0.5),
        r"^ts\.warmup_inverse_sqrt\(warmup_steps=0\.5\)",
    ),
    "a text of steps": (
        lambda net: ts.one_cycle(net.optimizers[0], total_steps="many"),
        r"^ts\.one_cycle\(total_steps='many'\)",
    ),
    "a mode of plateaus": (
        lambda net: ts.plateau(net.optimizers[0], metric="loss", mode="minimum"),
        "write mode='min'",
    ),
    "a generator for muon": (
        lambda net: ts.muon_with_adamw(net.parameters()),
        r"run\.learner\(net, ts\.muon_with_adamw\)",
    ),
    "a number gathered": (lambda _: ts.gather(3), "no rows; give a tensor of shape"),
    "a list of logits": (lambda _: ts.sample_logits([1.0, 2.0]), "logits is of type list"),
    "a shape for a batch": (
        lambda net: ts.summary(net.module, (3,)),
        r"not int\. A batch is data, not a shape: give torch\.zeros\(2, 3\)",
    ),
    "a shape with a batch size": (
        lambda net: ts.summary(net.module, (5, 3)),
        r"were given\. A batch is data, not a shape: give torch\.zeros\(5, 3\)",
    ),
}
MADE = {
    "a class": ((nn.Linear, SGD), {}, r"got the class Linear itself: write Linear\(\.\.\.\)"),
    "a function": ((len, SGD), {}, "got a builtin_function_or_method"),
    "a factory without parameters": (
        (nn.Linear(1, 1), lambda: None),
        {},
        "python says: .*takes 0 positional arguments.*lambda p: torch",
    ),
    "a mode of compiling": (
        (nn.Linear(1, 1), SGD),
        {"compile": "max-autotune"},
        r"compile='max-autotune'\): write True or False",
    ),
    "a start before the first": (
        (nn.Linear(1, 1), SGD),
        {"starts_at": -1},
        r"starts_at=-1\): give at least 0",
    ),
}
OPTIONS = {
    "a word for a flag": ({"progress": "no"}, r"ts\.Run\(progress='no'\): write True or False"),
    "a number for a flag": ({"quiet": 1}, r"ts\.Run\(quiet=1\)"),
    "torch's third way": ({"deterministic": "warn"}, r"ts\.Run\(deterministic='warn'\)"),
    "a doctor by name": ({"doctor": "GRAD001"}, r"ts\.Run\(doctor='GRAD001'\)"),
    "a tracker's name": (
        {"trackers": "tensorboard"},
        r"give a list of them, trackers=\[ts\.TensorBoardTracker\(\)\]",
    ),
    "a tracker without its list": ({"trackers": ts.CsvTracker()}, "give a list of them"),
    "a card by another word": ({"device": "gpu"}, "torch calls it device='cuda'"),
    "callbacks": ({"callbacks": []}, "the loop is plain python"),
    "gradient_clip_val": (
        {"gradient_clip_val": 1.0},
        r"run\.learner\(module, optimizer, clip=ts\.ClipNorm\(1\.0\)\)",
    ),
    "accumulate_grad_batches": (
        {"accumulate_grad_batches": 4},
        r"batch_size=4 \* 32\) and run\.learner\(net, optimizer, micro_batch=32\)",
    ),
    "max_steps": ({"max_steps": 4}, r"for step in run\.steps\(10_000\)"),
    "max_epochs": ({"max_epochs": 4}, r"for epoch in run\.epochs\(20\)"),
    "devices": ({"devices": 4}, "truestep launch --processes 4"),
    "a precision by bits": ({"precision": 16}, "mean 'fp16-mixed'"),
    "default_root_dir": ({"default_root_dir": "x"}, r"ts\.Run\('x'\)"),
    "logger": ({"logger": True}, r"trackers=\[ts\.TensorBoardTracker\(\)\]"),
    "a flag of data": ({}, r"run\.data\(shuffle='False'\): write True or False"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_call_says_what_to_write(net, call):
    act, message = CALLS[call]
    with pytest.raises(ts.TruestepError, match=message):
        act(net)


@pytest.mark.parametrize("what", MADE)
def test_what_no_learner_is_made_of_says_what_to_write(tmp_path, what):
    arguments, options, message = MADE[what]
    with ts.Run(tmp_path / "run", device="cpu", quiet=True, progress=False) as run:
        with pytest.raises(ts.OptionError, match=message):
            run.learner(*arguments, **options)
        net = run.learner(nn.Linear(1, 1), SGD)
        with pytest.raises(ts.OptionError, match="got a Learner, made already"):
            run.learner(net, SGD)


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_a_run_that_is_none_says_what_to_write(tmp_path, option):
    options, message = OPTIONS[option]
    with pytest.raises(ts.OptionError, match=message) as raised:
        ts.Run(tmp_path / "run", **options).data(ROWS, batch_size=2, shuffle="False")
    if option == "logger":
        assert "log_every" not in str(raised.value)


def test_data_given_as_a_batch_is_told_from_one(net):
    with pytest.raises(TypeError) as raised:
        net.update(first(net), torch.utils.data.DataLoader(ROWS))
    assert (
        "That is all the data, not a batch of it: for batch in run.batches(source)"
        in raised.value.__notes__[0]
    )


def test_an_average_that_is_stepped_by_hand_says_who_does_it():
    with pytest.raises(AttributeError, match=r"a learner averages after each update.*with net\.averaged\(\)"):
        ts.EMA(0.9).update(nn.Linear(1, 1))


@pytest.mark.parametrize("name", ["train", "eval", "requires_grad_"])
def test_methods_that_return_their_module_return_the_learner(net, name):
    assert getattr(net, name)() is net
    assert net.module.training == (name != "eval")


def test_a_method_of_the_module_that_returns_something_else_is_left_alone(make_learner):
    class Own(nn.Linear):
        def eval(self):
            super().eval()
            return "mine"

    net = make_learner(Own(3, 1), SGD)
    assert net.eval() == "mine"
    assert not net.module.training


def test_an_update_inside_an_evaluation_is_told_that_there_are_no_gradients(net):
    def trains(batch):
        net.update(lambda rows: net(rows).sum(1), batch)
        return batch.sum(1)

    with pytest.raises(
        ts.LossError, match=r"inside net\.evaluate\(\.\.\.\), which measures and trains nothing"
    ):
        net.evaluate(trains, [torch.ones(2, 3)])


def test_the_class_of_a_metric_is_no_metric(net):
    class Accuracy:
        def update(self, values): ...
        def compute(self): ...
        def reset(self): ...

    with pytest.raises(ts.OptionError, match=r"the class itself.*Make the object.*metric=Accuracy\(\.\.\.\)"):
        net.evaluate(net, [torch.ones(2, 4)], metric=Accuracy)


@pytest.mark.parametrize(
    "form",
    [
        lambda o, s: ([o], [s]),
        lambda o, s: (o, s),
        lambda o, s: {"optimizer": o, "lr_scheduler": s},
        lambda o, s: ([o], [{"scheduler": s, "interval": "epoch"}]),
    ],
)
def test_a_factory_that_makes_schedules_too_is_shown_where_they_go(tmp_path, form):
    def factory(parameters):
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        return form(optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 30))

    with (
        ts.Run(tmp_path / "run", progress=False, quiet=True) as run,
        pytest.raises(ts.OptionError, match=r"schedule=lambda o: .*StepLR\(o, 1000\)"),
    ):
        run.learner(nn.Linear(2, 2), factory)


@pytest.mark.parametrize("options", [{}, {"batch_size": 16}])
def test_data_in_two_places_are_put_into_a_tuple(tmp_path, options):
    with (
        ts.Run(tmp_path / "run", progress=False, quiet=True) as run,
        pytest.raises(
            ts.OptionError, match=r"was given 2 things by place.*run\.data\(\(x, y\), batch_size=64\)"
        ),
    ):
        run.data(torch.ones(4, 2), torch.ones(4), **options)


NAMES = {
    "schedule": r"run\.learner\(\.\.\., schedule=",
    "loss": r"update = net\.update\(loss, batch\)",
    "precision": "precision=",
    "no_grad": r"net\.evaluate\(values, data\)",
    "param_groups": r"net\.optimizers\[0\]\.param_groups",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_a_learner_lacks_say_where_it_is(net, name):
    with pytest.raises(AttributeError, match=NAMES[name]):
        getattr(net, name)


@pytest.mark.parametrize(
    ("package", "name", "message"),
    [
        (ts, "Trainer", r"The loop is yours: run = ts\.Run\(directory\)"),
        (ts, "EarlyStoppingCallback", r"run\.finish\(\); docs/howto/early-stopping\.md"),
        (ts, "ModelCheckpoint", r"saving=ts\.Saving\(best="),
        (ts, "learner", r"It is a run's: run = ts\.Run\(directory\), run\.learner\(\.\.\.\)"),
        (ts, "AdamW", r"It is torch's: torch\.optim\.AdamW\."),
        (ts.nn, "Linear", r"It is torch's: torch\.nn\.Linear\."),
    ],
)
def test_names_of_other_packages_say_what_to_write(package, name, message):
    assert not hasattr(package, name)
    with pytest.raises(AttributeError, match=message):
        getattr(package, name)
    with pytest.raises(ImportError, match=message):
        exec(f"from {package.__name__} import {name}")
