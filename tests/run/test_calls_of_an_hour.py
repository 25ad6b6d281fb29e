# SPDX-License-Identifier: Apache-2.0
"""Calls that users of an hour wrote and that got a raw error or a wrong remedy: each is answered with the line to write."""

import contextlib
import copy
import gc
import json
import re
import warnings
from collections import deque

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

INPUTS, LABELS = torch.randn(24, 4, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 2
BATCHES = [(INPUTS[at : at + 6], LABELS[at : at + 6]) for at in range(0, 24, 6)]


class Training:
    def __init__(self, folder, data=(INPUTS, LABELS), **options):
        self.run = ts.Run(folder, device="cpu", progress=False, doctor=False)
        self.net = self.run.learner(nn.Linear(4, 2), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
        self.data = self.run.data(data, **({"batch_size": 6} | options))

    def loss(self, batch):
        return F.cross_entropy(self.net(batch[0]), batch[1], reduction="none")

    def train(self, loss):
        for batch in self.run.batches(self.data):
            self.net.update(loss, batch)


def optimizer():
    return torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)


LATER = r"schedule=lambda optimizer: ts\.{name}\(optimizer, "


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("warmup_cosine", (), {"warmup_steps": 3, "total_steps": 20}),
        ("warmup_cosine", (), {"total_steps": 20}),
        ("warmup_cosine", (3, 20), {}),
        ("warmup_cosine", (nn.Linear(1, 1),), {"warmup_steps": 3, "total_steps": 20}),
        ("warmup_linear", (lambda p: None,), {"warmup_steps": 3, "total_steps": 20}),
        ("warmup_constant", (torch.optim.SGD,), {"warmup_steps": 3}),
        ("warmup_inverse_sqrt", (), {"warmup_steps": 3}),
        ("one_cycle", (nn.Linear(1, 1).parameters(),), {"total_steps": 20}),
        ("plateau", (), {"metric": "loss"}),
        ("plateau", ("loss",), {"metric": "loss"}),
    ],
)
def test_a_schedule_without_its_optimizer_names_the_function_that_a_learner_takes(name, arguments, options):
    with pytest.raises(ts.OptionError, match=LATER.format(name=name)):
        getattr(ts, name)(*arguments, **options)


def test_a_schedule_of_an_optimizer_is_made():
    assert ts.warmup_cosine(optimizer(), warmup_steps=3, total_steps=20).last_epoch == 0


EXCHANGED = {
    "values and weights": lambda t, b: t.net.update(
        lambda b: ts.weighted(torch.ones(len(b[1])), t.loss(b)), b
    ),
    "values and weights by name": lambda t, b: t.net.update(
        lambda b: ts.weighted(weights=t.loss(b), values=torch.ones(len(b[1]))), b
    ),
    "batch and loss": lambda t, b: t.net.update(b, t.loss),
    "batch and function": lambda t, b: t.net.update(b, lambda b: t.loss(b).mean()),
    "batch and loss of several": lambda t, b: ts.update([t.net], b, t.loss),
    "batch and torch's loss": lambda t, b: t.net.update(b, nn.CrossEntropyLoss()),
}


@pytest.mark.parametrize("call", EXCHANGED.values(), ids=EXCHANGED)
def test_what_was_exchanged_is_said(tmp_path, call):
    training = Training(tmp_path)
    with pytest.raises(ts.LossError, match=r"in each other's place|Exchange the two"):
        call(training, (INPUTS, LABELS))


def test_weights_that_are_learned_get_their_own_words(tmp_path):
    training = Training(tmp_path)
    learned = lambda b: ts.weighted(training.loss(b), training.net(b[0])[:, 0].sigmoid())
    with pytest.raises(ts.LossError, match=r"weights\.detach\(\)"):
        training.net.update(learned, (INPUTS, LABELS))


@pytest.mark.parametrize("write", ["state.best = 0.5", "state.best", "state.best += 1", "state.add(1)"])
def test_a_name_behind_a_point_of_the_state_is_written_in_brackets(tmp_path, write):
    run = ts.Run(tmp_path, device="cpu", progress=False)
    with pytest.raises(AttributeError, match=r"Write run\.state\['(best|add)'\]"):
        exec(write, {"state": run.state})


def test_the_state_is_a_dict_in_all_else(tmp_path):
    training = Training(tmp_path)
    training.run.state.setdefault("losses", []).append(1.0)
    training.train(training.loss)
    state = training.run.state
    assert copy.deepcopy(state) == dict(state) == json.loads(json.dumps(state)) == {"losses": [1.0]}
    training.run.close()
    again = Training(tmp_path)
    again.train(again.loss)
    assert again.run.state == {"losses": [1.0]}


@pytest.mark.parametrize("values", [{"accuracy": 0.5, "loss": 1.0}, {"a b": torch.ones(())}])
def test_a_dict_under_one_name_is_logged_by_its_own_names(tmp_path, values):
    run = ts.Run(tmp_path, device="cpu", progress=False)
    with pytest.raises(
        ts.OptionError, match=re.escape('run.log(**{"val/" + str(key): each for key, each in value.items()})')
    ):
        run.log(val=values)


def square(training):
    return lambda b: (training.net(b[0])[..., 0] - b[1]).square()


@pytest.mark.parametrize("data", [BATCHES, lambda: iter(BATCHES), [[x, y] for x, y in BATCHES]])
@pytest.mark.parametrize("loss", [lambda training: training.loss, square])
def test_batches_that_are_batched_again_are_asked_after(tmp_path, data, loss):
    training = Training(tmp_path, data, batch_size=2)
    with pytest.raises((RuntimeError, ts.LossError)) as caught, training.run:
        training.train(loss(training))
    assert "run.data(lambda: batches)" in caught.value.__notes__[-1]  # behind what else it may mean


def test_tokens_with_a_label_each_are_not_asked_after(tmp_path):
    training = Training(tmp_path, (torch.zeros(24, 6).long(), torch.zeros(24, 6).long()))
    with pytest.raises(ts.LossError) as caught, training.run:
        training.train(lambda b: training.net.module.weight.sum() * b[0])
    assert "batches already" not in "".join(getattr(caught.value, "__notes__", []))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("best.pt", r"holds 'a\.pth', 'net\.safetensors'\. A run keeps its weights in its directory"),
        ("a.pt", r"Did you mean .*a\.pth"),
        ("runs/x.pt", r"There is no folder .*runs"),
    ],
)
def test_a_file_of_weights_that_is_not_there_is_answered_with_those_that_are(tmp_path, name, said):
    for each in ("a.pth", "net.safetensors", "log.txt"):
        (tmp_path / each).touch()
    with pytest.raises(ts.CheckpointError, match=said):
        ts.load_weights(nn.Linear(1, 1), tmp_path / name)


def test_a_config_is_read_in_brackets_and_weights_come_behind_the_module(tmp_path):
    run = ts.Run(tmp_path, device="cpu", progress=False, config={"rate": 0.1})
    with pytest.raises(AttributeError, match=r"Write run\.config\['rate'\]"):
        _ = run.config.rate
    assert copy.deepcopy(run.config) == {"rate": 0.1}
    with pytest.raises(ts.CheckpointError, match="The module comes first"):
        ts.load_weights({"weight": torch.ones(1, 1)}, nn.Linear(1, 1))


def test_several_values_of_an_evaluation_are_a_dict_and_losses_a_tensor(tmp_path):
    training = Training(tmp_path)
    both = lambda b: (training.loss(b), training.loss(b))
    with pytest.raises(ts.LossError, match=r"Of several values return a dict: \{'accuracy'"):
        training.net.evaluate(both, training.data)
    with pytest.raises(ts.LossError, match=r"torch\.stack\(losses\)"):
        ts.weighted([1.0, 2.0])


def test_what_is_not_kept_yet_and_what_a_loading_returns_say_what_to_write(tmp_path):
    run = ts.Run(tmp_path, device="cpu", progress=False)
    with pytest.raises(
        KeyError, match=r"run\.state has no 'best' yet.*run\.state\.setdefault\('best', value\)"
    ):
        _ = run.state["best"]
    assert run.state.get("best") is None
    assert "best" not in run.state
    loaded = ts.load_weights(nn.Linear(1, 1), nn.Linear(1, 1).state_dict())
    with pytest.raises(ts.OptionError, match=r"ts\.load_weights\(net, source\) on a line of its own"):
        loaded(torch.ones(1, 1))


def kept(run, habit, value):
    match habit:
        case "set":
            run.state["buf"] = value
        case "default":
            run.state.setdefault("buf", value)
        case "updated":
            run.state.update(buf=value)
        case "updated by a dict":
            run.state.update({"buf": value})


@pytest.mark.parametrize("habit", ["set", "default", "updated", "updated by a dict"])
def test_what_no_checkpoint_takes_is_refused_where_it_is_set(tmp_path, habit):
    run = ts.Run(tmp_path, device="cpu", progress=False)
    for value in (deque([1]), {1, 2}, nn.Linear(1, 1)):
        with pytest.raises(ts.CheckpointError, match=r"run\.state\['buf'\] is "):
            kept(run, habit, value)
    assert run.state == {}
    for value in ([1], {"a": (1, 2)}, torch.ones(2), None, 3.0):
        kept(run, habit, value)
        assert run.state.pop("buf") is value


def trained(folder, module, **named):
    run = ts.Run(folder, device="cpu", progress=False, doctor=False)
    net = run.learner(module, lambda p: torch.optim.SGD(p, lr=0.1), **named)
    data = run.data((INPUTS, LABELS), batch_size=6)
    for _ in run.epochs(1):
        for batch in run.batches(data):
            net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), batch)
    run.close()


def test_another_class_of_the_module_is_another_name_of_the_learner(tmp_path):
    class Head(nn.Linear):
        pass

    trained(tmp_path, nn.Linear(4, 2))
    with pytest.raises(ts.CheckpointError, match=r"makes 'head', called so by the class.*name='linear'\)"):
        trained(tmp_path, Head(4, 2))
    with pytest.raises(ts.CheckpointError, match="There are: net"):
        trained(tmp_path, nn.Linear(4, 2), name="net")
    trained(tmp_path, Head(4, 2), name="linear")


def make():
    return nn.Linear(4, 2)


@pytest.mark.parametrize("given", [make, lambda: nn.Linear(4, 2)])
def test_a_function_that_makes_the_module_is_to_be_called(tmp_path, given):
    run = ts.Run(tmp_path, device="cpu", progress=False)
    with pytest.raises(
        ts.OptionError, match=r"got a function, which is not called here: .*net = make_net\(\)"
    ):
        run.learner(given, lambda p: torch.optim.SGD(p, lr=0.1))
    run.learner(given(), lambda p: torch.optim.SGD(p, lr=0.1))


def left(folder, spoil):
    training = Training(folder)
    training.run.state["seen"] = []
    for _ in training.run.epochs(2):
        for batch in training.run.batches(training.data):
            training.net.update(training.loss, batch)
            if spoil:
                training.run.state["seen"].append(deque([1]))
            raise ValueError("of the user's")


@pytest.mark.parametrize("spoil", [False, True])
def test_a_run_that_a_caught_exception_lets_go_of_is_said_in_one_line(tmp_path, capfd, spoil):
    with contextlib.suppress(ValueError):
        left(tmp_path, spoil)
    gc.collect()
    told = capfd.readouterr().err
    assert "the process ended" not in told
    assert "Traceback" not in told
    assert (
        "the run could not be saved when it ended: run.state['seen'][0] is a collections.deque" in told
    ) is spoil


@pytest.mark.parametrize(
    ("kept", "advice"),
    [("frame", 'value.to_dict("list")'), ("column", "value.to_list()"), ("own", "its parts")],
)  # fmt: skip
def test_what_the_state_does_not_take_is_answered_with_what_it_has(tmp_path, kept, advice):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0]})
    values = {"frame": frame, "column": frame["a"], "own": Training.__new__(Training)}
    training = Training(tmp_path)
    with pytest.raises(ts.CheckpointError, match=re.escape(f"Keep {advice} instead")):
        training.run.state[kept] = values[kept]
    training.run.close()


def test_a_table_among_columns_is_answered_with_its_numbers(tmp_path):
    frame = pytest.importorskip("pandas").DataFrame({"a": [1.0, 2.0]})
    with pytest.raises(ts.DataError, match=re.escape("Write torch.tensor(data[0].to_numpy()) for")):
        ts.Run(tmp_path, progress=False).data((frame, frame["a"]), batch_size=1)


@pytest.mark.parametrize(("prefix", "near"), [("weigth", "'weight'"), ("bais", "'bias'")])
def test_a_misspelt_group_is_answered_with_the_nearest_and_nothing_else(tmp_path, prefix, near):
    run = ts.Run(tmp_path, progress=False)
    with pytest.raises(ts.OptionError, match=f"Did you mean {near}") as raised:
        run.learner(nn.Linear(4, 2), lambda p: torch.optim.SGD(p.groups({prefix: {"lr": 0.1}}), lr=0.1))
    assert "could not be made" not in str(raised.value)
    assert raised.value.__cause__ is None
    run.close()


@pytest.mark.parametrize(("given", "written"), [(0.1, "0.1"), (2, "2"), ("small", "0.001"), (True, "0.001")])
def test_a_number_under_another_name_is_written_as_it_was_given(given, written):
    with pytest.raises(ts.OptionError, match=rf"no option 'delta'\. Write min_delta={written}\.$"):
        ts.EarlyStopping(patience=3, mode="min", delta=given)


def test_a_schedule_under_another_name_stays_the_function_that_it_is(tmp_path):
    run = ts.Run(tmp_path, progress=False)
    make = lambda p: torch.optim.SGD(p, lr=0.1)
    with pytest.raises(
        ts.OptionError,
        match=r"Write schedule=, with the same function, in ts\.per_epoch\(\.\.\.\) where it counts epochs\.$",
    ):
        run.learner(nn.Linear(4, 2), make, scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 3))
    net = run.learner(nn.Linear(4, 2), make)
    with pytest.raises(
        AttributeError, match=r"is made with the learner, run\.learner\(module, optimizer, schedule=lambda"
    ):
        torch.optim.lr_scheduler.StepLR(net.optimizer, 3)
    run.close()


def message_of(call):
    with pytest.raises((ts.OptionError, ts.CheckpointError, RuntimeError)) as raised:
        call()
    return "\n".join([str(raised.value), *getattr(raised.value, "__notes__", ())])


PARTS = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ts.Run(name="exp1"), "Write it first: ts.Run('exp1')."),
        (lambda: ts.Run(log_dir="logs", seed=0), "Write it first: ts.Run('logs')."),
        (
            lambda: ts.Run(output_dir="out", learning_rate=1e-3, num_train_epochs=3),
            "for epoch in run.epochs(",
        ),
        (lambda: ts.freeze(PARTS, "encoder"), "All in a part of it: '0', '1'."),
        (
            lambda: ts.freeze(PARTS[0].parameters()),
            "Write ts.freeze(net), where net is what has the parameters",
        ),
    ],
)
def test_what_was_meant_is_written_out(call, said):
    assert said in message_of(call)


@pytest.mark.parametrize("value", [torch.eye(2), torch.eye(2).numpy(), "words", {"a": 1.0}])
def test_what_can_not_be_logged_is_said_without_what_was_tried(tmp_path, value):
    with pytest.raises(ts.OptionError) as raised:
        Training(tmp_path / "run").run.log(value=value)
    assert raised.value.__suppress_context__


def test_what_is_refused_twice_in_the_same_words_is_said_once(tmp_path):
    training = Training(tmp_path / "run")
    training.run.state["history"] = [lambda: None]

    def train():
        for _ in training.run.epochs(1):
            training.train(training.loss)

    assert message_of(train).count("history") == 1
    training.run.state.clear()
    training.run.close()


def averaged_by_hand(net, other):
    for mine, its in zip(net.module.parameters(), other.parameters(), strict=True):
        other_weight = its.detach()
        other_weight.lerp_(mine.detach(), 0.5)


MEASURED = {
    "another": (lambda net, other: lambda b: -other(b[0]).square().mean(1), None, True),
    "another within a function": (lambda net, other: lambda b: F.cross_entropy(other(b[0]), b[1], reduction="none"), None, True),
    "its own": (lambda net, other: lambda b: net(b[0]).square().mean(1), None, False),
    "both": (lambda net, other: lambda b: (net(b[0]) - other(b[0])).square().mean(1), None, False),
    "a copy that follows": (lambda net, other: lambda b: other(b[0]).square().mean(1), averaged_by_hand, False),
    "a teacher": (lambda net, other: lambda b: other.requires_grad_(False)(b[0]).square().mean(1), None, False),
}  # fmt: skip


@pytest.mark.parametrize("habit", MEASURED)
def test_another_network_that_is_measured_again_and_again_is_told(tmp_path, habit):
    training, other = Training(tmp_path), nn.Linear(4, 2)
    values, follow, is_told = MEASURED[habit]
    with warnings.catch_warnings(record=True) as caught, training.run:
        warnings.simplefilter("always")
        for _ in training.run.epochs(2):
            training.train(training.loss)
            if follow is not None:
                follow(training.net, other)
            training.net.evaluate(values(training.net, other), training.data)
    told = [str(each.message) for each in caught if "no part of 'net'" in str(each.message)]
    assert len(told) == is_told


def test_one_batch_of_a_source_is_looked_at_without_an_epoch(tmp_path):
    training = Training(tmp_path)
    inputs, _ = next(iter(training.data.batches()))
    assert torch.equal(inputs, INPUTS[:6])
