# SPDX-License-Identifier: Apache-2.0
"""First mistakes with a run: each message says what happened and what to write."""

import copy
import io
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.engine.precision import MODES
from truestep.run.options import check_run_directory

SGD = lambda p: torch.optim.SGD(p, lr=0.1)


@pytest.fixture
def run(tmp_path):
    run = ts.Run(tmp_path / "run", progress=False, device="cpu")
    yield run
    run.close()


def learner(run, **options):
    return run.learner(nn.Linear(3, 1), options.pop("optimizer", SGD), **options)


DATA = torch.ones(4, 3)

MISTAKES = {
    "a source iterated": (
        lambda run: [*run.data(DATA, batch_size=2)],
        r"Write for batch in run\.batches\(source\)",
    ),
    "a source zipped": (
        lambda run: list(zip(run.data(DATA, batch_size=2), [1], strict=False)),
        r"run\.batches\(source\)",
    ),
    "a schedule's name": (
        lambda run: learner(run, schedule="cosine"),
        r"schedule=lambda o: ts\.warmup_cosine\(o, warmup_steps=100, total",
    ),
    "another's name": (
        lambda run: learner(run, schedule="onecycle"),
        r"ts\.one_cycle\(o, total_steps=2000\)",
    ),
    "a number": (lambda run: learner(run, schedule=0.1), r"schedule=0\.1 of 'linear' is no function"),
    "a schedule's class": (
        lambda run: learner(run, schedule=torch.optim.lr_scheduler.StepLR),
        r"schedule=StepLR of 'linear'.*'step_size'.*ts\.per_epoch\(lambda o: torch\.optim\.lr_scheduler\.StepLR\(o, \.\.\.\)\)",
    ),
    "a function without its numbers": (
        lambda run: learner(run, schedule=ts.warmup_cosine),
        r"'warmup_steps'.*lambda o: ts\.warmup_cosine\(o, warmup_steps=100, total_steps=2000\)",
    ),
    "a schedule itself": (
        lambda run: learner(run, schedule=torch.optim.lr_scheduler.LambdaLR(SGD([DATA]), lambda _: 1.0)),
        r"schedule=LambdaLR\(\.\.\.\) of 'linear'.*lambda o: torch\.optim\.lr_scheduler\.LambdaLR\(o, .*which.*ts\.per_epoch",
    ),
    "an optimizer's name": (
        lambda run: learner(run, optimizer="adam"),
        r"optimizer='adam' is no function.*AdamW\(p, lr=1e-3\)",
    ),
    "a dict logged": (
        lambda run: run.log({"accuracy": 0.5}),
        r"run\.log\(accuracy=\.\.\.\), or run\.log\(\*\*values\)",
    ),
    "a number logged": (lambda run: run.log(0.5), "run.log was given float '0.5' without a name"),
    "clip_norm": (
        lambda run: learner(run, clip_norm=1.0),
        r"run\.learner has no option 'clip_norm'. Write clip=ts\.ClipNorm",
    ),
    "a number logged with its name": (
        lambda run: run.log("loss", 0.5),
        r"both together: run\.log\(loss=value\)",
    ),
    "a path logged with its step": (
        lambda run: run.log("train/loss", 0.5, 3),
        r'run\.log\(\*\*\{"train/loss": value\}\)',
    ),
    "a dict of paths logged": (
        lambda run: run.log({"a/b": 1}),
        r'by name: run\.log\(\*\*\{"a/b": \.\.\.\}\), or run\.log\(\*\*values\) for all of a dict',
    ),
    "a keyword logged": (
        lambda run: run.log("return", 0.5),
        r'run\.log\(\*\*\{"return": value\}\)',
    ),
    **{
        f"{option} logged": (
            lambda run, option=option: run.log(loss=0.5, **{option: True}),
            f"run.log has no option '{option}', and would log it as a value: leave it out, {instead}",
        )
        for option, instead in {
            "prog_bar": "the bar shows",
            "on_epoch": "a value is written as it is",
            "on_step": r"a value is written.*ts\.weighted",
            "sync_dist": r"all processes.*ts\.gather",
            "logger": "all goes to metrics.jsonl",
            "step": r"each line has run\.step already",
        }.items()
    },
    "data's size by place": (
        lambda run: run.data(DATA, 2),
        r"all else by name: run\.data\(data, batch_size=64, shuffle=True\)",
    ),
    "a limit by place": (
        lambda run: run.batches(run.data(DATA, batch_size=2), 3),
        r"run\.batches\(source, limit=\.\.\.\)",
    ),
    "an end with a reason": (
        lambda run: run.finish("early"),
        r"run\.finish takes nothing: write run\.finish\(\)",
    ),
    "a learner moved": (
        lambda run: learner(run).to(torch.float64),
        r"net\.to\(torch\.float64\) would change the learner 'linear' under its optimizer.*ts\.Run\(directory, device=",
    ),
    "a learner halved": (lambda run: learner(run).half(), r"copy\.deepcopy\(net\.module\)\.half\(\)"),
    "a learner on a card": (lambda run: learner(run).cuda(1), r"net\.cuda\(1\) would change"),
    "a typing error": (lambda run: learner(run, schedul=None), "Did you mean 'schedule'"),
    "torch's word": (
        lambda run: run.data(DATA, batch_size=2, collate_fn=list),
        "run.data has no option 'collate_fn'. Write collate=",
    ),
    "a run's": (
        lambda run: ts.Run(run.directory, max_epochs=3),
        r"ts\.Run has no option 'max_epochs'.*run\.epochs\(20\)",
    ),
    "a checkpoint's path": (
        lambda run: ts.Run(run.directory, ckpt_path="last"),
        "start the program again, and it goes on",
    ),
    "resume=True": (
        lambda run: ts.Run(run.directory, resume=True),
        r"resume=True\) is not needed.*goes on by itself",
    ),
    "the last": (lambda run: ts.Run(run.directory, resume="last"), "goes on by itself"),
    "an epoch's word": (
        lambda run: run.epochs(max_epochs=3),
        r"Here it is called total: run\.epochs\(total=",
    ),
    "an epoch's word of transformers": (
        lambda run: run.epochs(num_train_epochs=3),
        r"Here it is called total: run\.epochs\(total=",
    ),
    "a pass's word": (lambda run: run.batches(DATA, max_steps=3), r"Here it is called limit"),
    "a run's typing error": (lambda run: ts.Run(run.directory, sede=3), "Did you mean 'seed'"),
    "bfloat16": (
        lambda run: learner(run, precision="bfloat16"),
        r"Most people mean 'bf16-mixed' by it.*\"bf16\" is another mode",
    ),
    "a dtype": (lambda run: learner(run, precision=torch.float16), "mean 'fp16-mixed'"),
    "fp32": (lambda run: learner(run, precision="fp32"), "mean 'float32'"),
    "a precision's typing error": (
        lambda run: learner(run, precision="bf16-mxed"),
        "Did you mean 'bf16-mixed'",
    ),
    "a number for an average": (
        lambda run: learner(run, ema=0.999),
        r"ema=0\.999\) was given a float.*Write ema=ts\.EMA\(0\.999\)",
    ),
    "a flag for an average": (lambda run: learner(run, ema=True), r"was given a bool.*ts\.EMA\(0\.999\)"),
    "no optimizer": (
        lambda run: run.learner(nn.Linear(3, 1)),
        r"a function that makes its optimizer.*run\.learner\(net, lambda p: torch\.optim\.AdamW",
    ),
    "a source's name": (
        lambda run: run.data(DATA, batch_size=2, name="train"),
        r"has no option 'name'\. Write nothing: a source needs no name",
    ),
    "ambiguous": (
        lambda run: learner(run, schedule=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=30)),
        r"CosineAnnealingLR \(T_max=30\).*ts\.per_epoch\(lambda o: Cosine.*ts\.per_update\(lambda o: Cosine",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_it_says_what_to_write(run, mistake):
    act, message = MISTAKES[mistake]
    with pytest.raises(ts.TruestepError, match=message):
        act(run)


def two(x, y):
    return (x - y).mean(1)


CALLS = {
    "a tensor": (
        lambda net, run: net.update(torch.ones(4)),
        r"a Tensor instead of a loss function.*update\.backward",
    ),
    "a number": (lambda net, run: net.update(0.5), "a float instead of a loss function"),
    "a number and a batch": (lambda net, run: net.update(0.5, DATA), "a float instead of a loss function"),
    "no batch": (lambda net, run: net.update(lambda batch: batch), "takes a loss function and a batch"),
    "nothing": (lambda net, run: net.update(), "takes a loss function and a batch"),
    "two batches": (
        lambda net, run: net.update(two, DATA, DATA),
        r"2 batches.*net\.update\(loss, \(x, y\)\)",
    ),
    "a typing error": (lambda net, run: net.update(two, DATA, microbatch=2), "Here it is called micro_batch"),
    "two arguments": (
        lambda net, run: net.update(two, (DATA, DATA)),
        r"The function two was called with the batch, a tuple of 2,.*def loss\(batch\): x, y = batch",
    ),
    "no arguments": (
        lambda net, run: net.update(lambda: DATA, DATA),
        "The function <lambda> was called with",
    ),
    "a metric's name": (
        lambda net, run: net.evaluate(len, [DATA], metric="accuracy"),
        r"metric='accuracy'\) was given a str, which has no update.*net\.evaluate\(correct, run\.data",
    ),
    "data before the function": (
        lambda net, run: net.evaluate([DATA], len),
        r"data and function in each other's place.*def correct\(batch\)",
    ),
    "data of a run before the function": (
        lambda net, run: net.evaluate(run.data(DATA, batch_size=2), len),
        "data and function in each other's place",
    ),
    "a number as data": (lambda net, run: net.evaluate(len, 3), "was given an int as data"),
    "an evaluation of nothing": (
        lambda net, run: net.evaluate(len),
        "takes a function of a batch, and the data",
    ),
    "average": (
        lambda net, run: net.evaluate(len, [DATA], average=True),
        "no option 'average'. Did you mean 'averaged'",
    ),
    "a learner in a file": (
        lambda net, run: torch.save(net, io.BytesIO()),
        r"can't be pickled or copied.*torch\.save\(net\.module\.state_dict\(\)",
    ),
    "a copy of a learner": (lambda net, run: copy.deepcopy(net), r"copy\.deepcopy\(net\.module\)"),
    "a file's name": (lambda net, run: run.save("x.pt"), r"run\.save\(\) takes nothing.*ts\.export_weights"),
    "epochs without a number": (lambda net, run: run.epochs(), r"for epoch in run\.epochs\(20\)"),
    "steps without a number": (lambda net, run: run.steps(), r"for step in run\.steps\(10_000\)"),
    "a name with an escape": (lambda net, run: learner(run, name="a\x1b[31m"), "without control codes"),
    "a name with a line end": (lambda net, run: learner(run, name="a\nb"), "without control codes"),
    "a name with a surrogate": (lambda net, run: learner(run, name="a\udc80"), "without control codes"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_call_says_what_to_write(run, call):
    act, message = CALLS[call]
    with pytest.raises(ts.TruestepError, match=message):
        act(learner(run), run)


ABSENT = {
    "net.fit": (
        lambda net, run: net.fit(),
        r"for batch in run\.batches\(source\): net\.update\(loss, batch\)",
    ),
    "net.step": (lambda net, run: net.step(), r"An update is one call.*net\.update\(loss, batch\)"),
    "net.optimizer": (
        lambda net, run: net.optimizer.step(),
        r"An update is one call.*net\.update\(loss, batch\)",
    ),
    "run.fit": (lambda net, run: run.fit(), r"run has no attribute 'fit'.*net\.update\(loss, batch\)"),
    "run.bacthes": (lambda net, run: run.bacthes, "Did you mean 'batches'"),
    "run.callback_metrics": (lambda net, run: run.callback_metrics, r"metrics\.jsonl"),
    "run.global_step": (lambda net, run: run.global_step, r": run\.step counts"),
    "run.backward": (lambda net, run: run.backward(), r"net\.update\(loss, batch\)"),
    "run.manual_backward": (lambda net, run: run.manual_backward(0), r"net\.accumulating\(\)"),
    "run.save_checkpoint": (lambda net, run: run.save_checkpoint("x"), r"run\.save\(\)"),
    "run.log_image": (lambda net, run: run.log_image("x"), r"run\.log\(samples=ts\.Image\(pixels\)\)"),
    "run.load_weights": (
        lambda net, run: run.load_weights("weights.pt"),
        r"ts\.load_weights\(net\.module, .*ts\.Run\(directory\)",
    ),
    "run.state_dict": (lambda net, run: run.state_dict(), r"net\.module\.state_dict\(\)"),
    "net.log": (lambda net, run: net.log("loss", 1), r"run\.log\(accuracy=0\.9\)"),
    "net.freeze": (lambda net, run: net.freeze(), r"ts\.freeze\(net"),
    "net.device": (lambda net, run: net.device, r"run\.device"),
    "update.item": (lambda net, run: updated(net).item(), r"float\(update\.loss\)"),
    "update.grad_norm": (lambda net, run: updated(net).grad_norm, r"write update\.gradient_norm"),
    "update.weigth": (lambda net, run: updated(net).weigth, "Did you mean 'weight'"),
    "source.batch_size": (
        lambda net, run: run.data(DATA, batch_size=2).batch_size,
        r"run\.data\(data, batch_size=",
    ),
    "source.set_epoch": (lambda net, run: run.data(DATA, batch_size=2).set_epoch(1), "from the run's seed"),
    "a block's loss": (lambda net, run: net.accumulating().loss, r"update\.result\.loss"),
    "a block's step": (lambda net, run: net.accumulating().step(), "made at the end of the block"),
}
SET = {
    "run.should_stop": r"run\.finish\(\) ends the run",
    "run.precision": r"ts\.Run\(directory, precision=\.\.\.\)",
    "run.step": "the run counts it",
    "run.max_epochs": r"for epoch in run\.epochs\(20\)",
    "run.rank": "'rank' of a run can be read, not set",
    "run.stte": "Did you mean 'state'.*Set, it would be read by nobody",
    "source.batch_size": r"run\.data\(data, batch_size=\.\.\.\)",
    "source.num_batches": "can be read, not set",
    "source.transform": "Set, it would be read by nobody",
    "net.temperature": r"net\.module\.temperature = ",
}


def updated(net):
    return net.update(lambda rows: net(rows)[:, 0], DATA)


@pytest.mark.parametrize("name", SET)
def test_what_is_set_and_would_be_read_by_nobody_is_refused(run, name):
    holders = {"run": run, "net": learner(run), "source": run.data(DATA, batch_size=2)}
    owner, attribute = name.split(".")
    with pytest.raises(AttributeError, match=SET[name]):
        setattr(holders[owner], attribute, 3)


def test_what_is_a_users_own_to_set_can_be_set(run):
    run.state = {"a": 1}
    run.state["b"] = 2
    assert run.state == {"a": 1, "b": 2}


class Own(ts.BatchSource):
    """A user's own source keeps what it likes."""

    num_batches = num_samples = None

    def batches(self, epoch, start=0):
        self.seen = epoch
        return iter(())

    def fingerprint(self):
        return {}


def test_a_source_of_the_users_own_keeps_what_it_likes():
    source = Own()
    source.batches(3)
    source.batch_size = 4
    assert (source.seen, source.batch_size) == (3, 4)


NO_NUMBER = {
    "summed": lambda update: 0.0 + update,
    "added": lambda update: update + 1,
    "divided": lambda update: update / 2,
    "as a float": float,
    "formatted": lambda update: f"{update:.4f}",
    "compared": lambda update: update < 3,
}


@pytest.mark.parametrize("use", NO_NUMBER)
def test_what_an_update_returned_is_no_number(run, use):
    with pytest.raises(TypeError, match=r"float\(update\.loss\) is a number"):
        NO_NUMBER[use](updated(learner(run)))


def test_an_update_in_a_text_is_shown_as_it_prints(run):
    update = updated(learner(run))
    assert f"{update}" == "{}".format(update) == str(update) == repr(update)  # noqa: UP032 -- three ways to ask


def test_a_learner_that_is_moved_to_where_it_is_is_the_learner(run):
    net = learner(run)
    for moved in (
        net.to(run.device),
        net.to("cpu"),
        net.cpu(),
        net.float(),
        net.to(torch.float32),
        net.to(device="cpu"),
    ):
        assert moved is net
    assert net.to(memory_format=torch.channels_last) is net
    with pytest.raises(RuntimeError, match="Expected one of cpu"):
        net.to("nowhere")


def test_a_move_that_the_module_defines_itself_is_the_modules(run):
    class Own(nn.Linear):
        def half(self):
            return "mine"

    assert run.learner(Own(3, 1), SGD).half() == "mine"


@pytest.mark.parametrize("absent", ABSENT)
def test_a_method_of_other_libraries_is_answered_with_the_loop(run, absent):
    act, message = ABSENT[absent]
    with pytest.raises(AttributeError, match=message):
        act(learner(run), run)


# of each, names that nothing here has: some are near to one that it has, some to one that every object of python has
PATHS = [
    *("ts.Trainer", "ts.ModelCheckpoint", "net.optimizer", "run.loger", "run.stop = 1"),
    *(
        f"{name}.{each}"
        for name in ("ts", "net", "run")
        for each in ("reduce_ex", "getattribute", "parmeters", "epocs")
    ),
    *(
        f"{name}.{each} = 1"
        for name in ("net", "run")
        for each in ("reduce_ex", "parmeters", "epocs", "lernrate")
    ),
]


@pytest.mark.parametrize("path", PATHS)
def test_python_adds_no_guess_to_what_is_to_be_written(run, capsys, path):
    names = {"ts": ts, "net": learner(run), "run": run}
    with pytest.raises(AttributeError) as caught:
        exec(path, names)
    sys.__excepthook__(type(caught.value), caught.value, None)  # as the interpreter prints what nobody caught
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"AttributeError: {caught.value}"
    assert ".." not in last.replace("...", "")
    assert "?." not in last
    assert (
        caught.value.__cause__ is None
    )  # torch's words for the same, with python's guess, would stand above


def test_the_decay_of_an_average_needs_no_name():
    assert ts.EMA(0.99) == ts.EMA(decay=0.99)


def notes(error):
    return " ".join(" ".join(error.__notes__).split())


def classify(net, take):
    def loss(batch):
        x, y = take(batch)
        return nn.functional.cross_entropy(net(x), y, reduction="none")

    return loss


X, Y = torch.ones(4, 3), torch.arange(4) % 2
IN_THE_LOSS = {
    "a dict read by number": (
        {"x": X, "y": Y},
        lambda batch: (batch[0], batch[1]),
        r"a dict of batch\['x'\] float32 \(4, 3\), batch\['y'\] int64 \(4,\)\. Take it apart by name: batch\['x'\]",
    ),
    "a dict unpacked": (
        {"x": X, "y": Y},
        lambda batch: batch,
        r"a dict of batch\['x'\].*a dict gives its keys",
    ),
    "exchanged": (
        (Y, X),
        lambda batch: batch,
        r"a tuple of batch\[0\] int64 \(4,\).*have changed places.*x, y = batch",
    ),
    "images of bytes": ((X.byte(), Y), lambda batch: batch, r"batch\[0\] uint8.*x\.float\(\) / 255"),
    "a class too many": (
        (X, Y + 7),
        lambda batch: batch,
        r"a tuple of.*the outputs have 2 classes.*or map the labels",
    ),
}


@pytest.mark.parametrize("kind", IN_THE_LOSS)
@pytest.mark.parametrize("how", ["update", "evaluate"])
def test_an_error_in_a_function_of_a_batch_says_what_the_batch_is_and_what_the_error_means(run, kind, how):
    batch, take, message = IN_THE_LOSS[kind]
    net = run.learner(nn.Linear(3, 2), SGD)
    with pytest.raises((KeyError, TypeError, RuntimeError, IndexError)) as caught:
        net.update(classify(net, take), batch) if how == "update" else net.evaluate(
            classify(net, take), [batch]
        )
    assert re.search(message, notes(caught.value))
    assert len(caught.value.__notes__) <= 2


def test_an_error_in_the_body_of_the_loop_is_explained_too(tmp_path):
    def train():
        with ts.Run(tmp_path / "run", quiet=True, device="cpu") as run:
            net = learner(run)
            for batch in run.batches(run.data(DATA, batch_size=2)):
                update = net.update(lambda rows: net(rows)[:, 0], batch)
                update.loss.backward()

    with pytest.raises(RuntimeError) as caught:
        train()
    said = notes(caught.value)
    assert re.search(r"`update\.loss` is what net\.update gave.*leave backward\(\) and step\(\) out", said)


def test_a_learner_of_frozen_weights_alone_is_warned_of_where_it_is_made(run):
    with pytest.warns(UserWarning, match="All 2 parameters of the learner 'linear' are frozen") as caught:
        run.learner(nn.Linear(3, 1).requires_grad_(False), SGD)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_that_loses_small_updates_says_so_once(tmp_path, capsys, mode):
    with ts.Run(tmp_path / "run", precision=mode, device="cpu", progress=False) as run:
        learner(run)
        list(run.epochs(1))
    said = f'"{mode}-mixed" computes in 16 bits' in capsys.readouterr().err
    assert said == (mode in ("bf16", "fp16"))


def test_a_type_error_of_the_users_own_stays_what_it_is(run):
    net = learner(run)
    with pytest.raises(TypeError, match="unsupported operand"):
        net.update(lambda batch: batch + None, DATA)
    with pytest.raises(TypeError, match=r"two\(\) missing"):
        net.update(lambda batch: two(batch), DATA)  # noqa: PLW0108 - the mistake lies inside the loss


def test_a_pass_has_a_length_where_that_is_known(run):
    data = run.data(DATA, batch_size=1)
    stream = run.data(lambda: iter(DATA), batch_size=1)
    assert len(run.batches(data)) == 4
    assert len(run.batches(stream, limit=3)) == 3
    with pytest.raises(TypeError, match="is not known"):
        len(run.batches(stream))
    assert [len(rows) for rows in run.batches(stream)] == [1] * 4
    batches = run.batches(data)
    assert next(batches).shape == (1, 3)
    assert len(list(batches)) == 3


def test_a_pass_that_goes_on_has_the_length_of_its_rest(tmp_path):
    for lengths in ([3], [1, 0]):
        with ts.Run(tmp_path / "run", progress=False, quiet=True, doctor=False) as run:
            data, found = run.data(torch.ones(3, 2), batch_size=1), []
            for _ in range(2):
                batches = run.batches(data)
                found.append(len(batches))
                for _ in batches:
                    if run.step == 2:
                        break
                if run.step == 2:
                    break
                break
        assert found == lengths[:1]


def test_how_far_a_run_has_come_is_told_in_epochs_done_as_the_bar_counts_them(tmp_path, capsys):
    for epochs in (1, 2):
        with ts.Run(tmp_path / "run", device="cpu", progress=True) as run:
            net, data = learner(run), run.data(DATA, batch_size=2)
            for _ in run.epochs(epochs):
                for batch in run.batches(data):
                    net.update(lambda rows: net(rows)[:, 0], batch)  # noqa: B023
    said = capsys.readouterr().err
    assert "(step 2, 1 epoch done)" in said
    assert "epoch 2/2" in said


@pytest.mark.parametrize("take", [list, tuple, dict])
def test_a_new_learner_is_not_taken_apart(tmp_path, take):
    with ts.Run(tmp_path / "run", device="cpu", progress=False, quiet=True) as run:
        pair = nn.Linear(1, 1), nn.Linear(1, 1)
        modules = {"G": pair[0], "D": pair[1]} if take is dict else [*pair]
        with pytest.raises(ts.OptionError, match=r"taken apart.*G = run\.learner\(G, optimizer\)"):
            _, _ = run.learner(modules, lambda p: torch.optim.SGD(p, lr=0.1))
        net = run.learner(
            nn.ModuleList(nn.Linear(1, 1) for _ in range(2)), lambda p: torch.optim.SGD(p, lr=0.1)
        )
        one, other = net  # its parts, as a loss may take them
        assert [one, other] == [*net] == [net[0], net[1]]
        update = net.update(lambda x: one(other(x))[:, 0], torch.ones(2, 1))
        with pytest.raises(ts.OptionError, match=r"read update\.loss"):
            _, _ = update
        with pytest.raises(ts.OptionError, match=r"run\.epochs"):
            _, _ = run


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda early: early(1.0), "early.step(valid_loss)"),
        (lambda early: early(1.0, None), "early.step(valid_loss)"),
        (lambda early: early.update(1.0), "early.step(valid_loss)"),
        (lambda early: early.early_stop, "run.finish()"),
        (lambda early: early.counter, "early.waited"),
        (lambda early: early.best_score, "early.best"),
        (lambda early: early.step(), "early.step"),
    ],
)
def test_early_stopping_in_other_libraries_words(use, said):
    with pytest.raises((ts.OptionError, AttributeError)) as caught:
        use(ts.EarlyStopping(patience=2, mode="min"))
    assert said in str(caught.value)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_loss_that_holds_the_learner_of_another_run(tmp_path, is_closed):
    def made(name):
        run = ts.Run(tmp_path / name, device="cpu", progress=False, quiet=True)
        net = run.learner(nn.Linear(3, 1), SGD)
        return run, net, lambda batch: net(batch)[:, 0]

    run, net, loss = made("a")
    net.update(loss, DATA)
    if is_closed:
        run.close()
    other, newer, _ = made("b")
    with pytest.raises(ts.LossError, match=r"calls net, .* one of another run.* behind net = run\.learner"):
        newer.update(loss, DATA)
    other.close()
    run.close()


def test_an_update_of_a_closed_runs_learner_in_the_loop_of_another(tmp_path, capsys):
    run = ts.Run(tmp_path / "a", device="cpu", progress=False)
    net = run.learner(nn.Linear(3, 1), SGD)
    for _ in run.steps(1):
        net.update(lambda batch: net(batch)[:, 0], DATA)
    run.close()
    other = ts.Run(tmp_path / "b", device="cpu", progress=False)
    other.learner(nn.Linear(3, 1), SGD)
    for _ in other.steps(1):
        net.update(lambda batch: net(batch)[:, 0], DATA)
    other.close()
    said = capsys.readouterr().err
    assert "which is closed, was updated in the loop of the run in b" in said
    assert "Call run.close() last" not in said


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda run: ts.use_gpus("0,1"), "ts.use_gpus(count="),
        (lambda run: ts.explain_errors(nn.Linear(1, 1)), "write ts.explain_errors()"),
        (lambda run: ts.split_along(DATA, 1), "write ts.split_along(dim)"),
        (lambda run: run.data(nn.Linear(1, 1), batch_size=2), "run.learner(model, optimizer)"),
        (lambda run: run.data(nn.Sequential(nn.ReLU()), batch_size=2), "run.learner(model, optimizer)"),
        (copy.deepcopy, "saves itself in its directory"),
        (lambda run: torch.save(run, io.BytesIO()), "saves itself in its directory"),
        (lambda run: ts.EarlyStopping(patience=2, mode="min").step(1.0, run), "write early.step(value)"),
    ],
)
def test_calls_that_were_raw_or_silent(run, use, said):
    with pytest.raises(ts.TruestepError) as caught:
        use(run)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("s3://bucket/x", "ts.Run('runs/x', mirror='s3://bucket/x')"),
        (Path("s3://bucket/a/b"), "ts.Run('runs/b', mirror='s3://bucket/a/b')"),
        ("gs://bucket/runs/x/", "ts.Run('runs/x', mirror='gs://bucket/runs/x/')"),
        ("az://container/x", "mirror='az://container/x'"),
        ("file:///shared/x", "ts.Run('/shared/x')"),
        ("hdfs://host/x", "Nothing here writes to hdfs://"),
        ("https://host/x?token=1", "Nothing here writes to https://"),
    ],
)
def test_an_address_is_no_folder(given, written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ts.OptionError, match=re.escape(written)) as caught:
        ts.Run(given, progress=False, device="cpu")
    assert "token" not in str(caught.value)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("given", ["a:b/x", "s3/x", "run:1", "C:/x", "12:30/x", "s3:x"])
def test_a_colon_makes_no_address(given):
    assert check_run_directory(given) == Path(given).absolute()
