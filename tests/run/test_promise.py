# SPDX-License-Identifier: Apache-2.0
"""What a resumed run promises is true: of arguments, options of layers, what is unfrozen on the way, the loop's variables."""

import os
import signal
import sys
import textwrap
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support import warm
from support.ranks import on_ranks
from torch import nn

import truestep as ts
from truestep.engine.layer_options import changed_layer_options, layer_options
from truestep.run import fingerprint

UNFREEZING = Path(__file__).parent / "programs" / "unfreezing.py"
SCRIPT = """
    import argparse, os, signal, torch, truestep as ts
    from torch import nn
    words = argparse.ArgumentParser()
    words.add_argument("--dropout", type=float, default=0.1)
    words.add_argument("--aux", type=float, default=1.0)
    words.add_argument("--api-key")
    args = words.parse_args()
    run = ts.Run("run", progress=False)
    dropout = nn.Dropout(args.dropout)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(torch.ones(8, 2), batch_size=2)
    for epoch in run.epochs(2):
        for batch in run.batches(data):
            net.update(lambda b: args.aux * dropout(net(b)).squeeze(1) ** 2, batch)
            if run.step == 3 and not os.path.exists("stopped"):
                open("stopped", "w").close()
                os.kill(os.getpid(), signal.SIGTERM)
"""


def start(tmp_path, *words):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return warm.run(path, *words, cwd=tmp_path)


def test_words_of_the_command_line_that_differ_are_named_and_take_the_promise_back(tmp_path):
    assert start(tmp_path, "--api-key", "hush", "--dropout", "0.1").returncode == 143
    ended = start(tmp_path, "--api-key", "hush", "--dropout", "0.9", "--aux", "5")
    assert ended.returncode == 0, ended.stderr
    assert "(the command line has --dropout 0.9 --aux 5, before --dropout 0.1)" in ended.stderr
    assert "bit-identical" not in ended.stderr
    kept = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != ".lock"]
    assert not [path for path in kept if b"hush" in path.read_bytes()]


def test_the_same_words_keep_the_promise_in_one_line_that_is_not_long(tmp_path):
    assert start(tmp_path, "--aux", "2").returncode == 143
    ended = start(tmp_path, "--aux", "2")
    [line] = ended.stderr.splitlines()
    assert "the rest is bit-identical, if the loop keeps nothing in variables or attributes" in line
    assert len(line) <= 210


@pytest.mark.parametrize(
    ("saved", "now", "said"),
    [
        (["--a", "1"], ["--a", "1"], None),
        (None, ["--a", "1"], None),  # an older checkpoint, or one of a notebook
        (["--a", "1"], None, None),
        (["--lr", "-0.5"], ["--lr", "-0.1"], "the command line has --lr -0.1, before --lr -0.5"),
        (["--fast"], [], "the command line has nothing, before --fast"),
        (["a", "b"], ["b", "a"], "the command line has b a, before a b"),
        (["--a", "1", "--a", "2"], ["--a", "2", "--a", "1"], "has --a 2 --a 1, before --a 1 --a 2"),
    ],
)
def test_which_words_differ(saved, now, said):
    found = fingerprint.changed_arguments(saved, now)
    assert found == [] if said is None else said in found[0]


@pytest.mark.parametrize(
    ("file", "words", "own"),
    [
        ("/home/me/train.py", ["train.py", "--lr", "1"], ["--lr", "1"]),
        ("/home/me/train.py", ["./train.py", "--local_rank=0", "x"], ["x"]),
        ("/home/me/train.py", ["./train.py", "--local-rank", "0", "--lr", "1"], ["--lr", "1"]),
        (None, ["/lib/ipykernel_launcher.py", "-f", "kernel-1.json"], None),
        ("/lib/site-packages/pytest/__main__.py", ["pytest/__main__.py", "-x"], None),
        ("/home/me/train.py", ["/lib/ipykernel_launcher.py", "-f", "kernel-1.json"], None),
    ],
)
def test_only_the_scripts_own_words_count(monkeypatch, file, words, own):
    main = type(sys)("__main__")
    if file is not None:
        main.__file__ = file
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", words)
    assert fingerprint.script_arguments(str) == own


POINTS = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))


def network(p=0.5, eps=1e-5, act=nn.ReLU):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=eps), nn.Dropout(p), act(), nn.Linear(4, 3))


def train(directory, module, *, unfreeze=None, stop=None, epochs=3, saving=None, **options):
    """Train in batches of 4, three an epoch; `unfreeze` is done at the top of epoch 1."""
    with ts.Run(directory, progress=False, saving=saving or ts.Saving(background=False)) as run:
        net = run.learner(
            module, lambda p: torch.optim.AdamW(p, lr=0.1), clip=ts.ClipNorm(1.0), name="net", **options
        )
        data = run.data(POINTS, batch_size=4, shuffle=True)
        for epoch in run.epochs(epochs):
            if epoch == 1 and unfreeze is not None:
                unfreeze(net.module)
            for batch in run.batches(data):
                net.update(lambda b: net(b).square().sum(1), batch)
                if run.step == stop:
                    os.kill(os.getpid(), signal.SIGTERM)
    return net


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"p": 0.9}, "net: 2.p=0.9, before 0.5"),
        ({"eps": 1e-3}, "net: 1.eps=0.001, before 1e-05"),
        ({"act": nn.GELU}, "net: 3=GELU, before ReLU"),
    ],
)
def test_options_of_layers_that_no_tensor_shows_are_named_and_take_the_promise_back(
    tmp_path, capsys, now, said
):
    train(tmp_path, network(), epochs=1)
    train(tmp_path, network(), epochs=2)
    assert "the rest is bit-identical" in capsys.readouterr().err
    train(tmp_path, network(**now), epochs=3)
    message = capsys.readouterr().err
    assert said in message
    assert "bit-identical" not in message
    train(tmp_path, network(**now), epochs=4)  # that is the run now
    assert "the rest is bit-identical" in capsys.readouterr().err


def test_options_are_compared_in_layers_of_every_kind():
    def made(**more):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = nn.MultiheadAttention(4, 2, dropout=more.get("dropout", 0.1))
                self.convolution = nn.Conv2d(1, 1, 3, stride=more.get("stride", 1))
                self.shape, self.words = more.get("shape", [1, 2]), "word " * more.get("words", 100)
                self.activation = more.get("activation", torch.relu)
                self.other = object()  # its text has an address

        return layer_options(Own())

    def changed(**more):
        return changed_layer_options(made(), made(**more))

    assert changed() == []
    assert changed(dropout=0.2) == ["attention.dropout=0.2, before 0.1"]
    assert changed(stride=2) == ["convolution.stride=(2, 2), before (1, 1)"]
    assert changed(shape=[1, 3]) == ["shape=[1, 3], before [1, 2]"]
    assert changed(activation=torch.tanh) == ["activation=tanh, before relu"]
    assert len(changed(words=101)) == 1
    module = network()
    before = layer_options(module)
    assert changed_layer_options(before, layer_options(module.eval())) == []
    added = nn.Sequential(*module, nn.Tanh())
    assert changed_layer_options(before, layer_options(added)) == ["5=Tanh, before nothing"]


class Config:
    """Options in a plain object."""

    def __init__(self, **options):
        self.__dict__.update({"p": 0.5, "kind": Kind.A, "layers": [1, 2], "_cache": 0} | options)


@dataclass(slots=True)
class Slotted:
    p: float = 0.5


class Kind(Enum):
    A, B = 1, 2


class Configured(nn.Module):
    """A layer that holds its options in objects, counts its calls and keeps caches."""

    def __init__(self, **held):
        super().__init__()
        torch.manual_seed(0)
        self.__dict__.update(held)
        self.inner = nn.Linear(4, 3)
        self.inner.config = held.get("config")  # shared, and told once
        self.calls, self.sizes, self.table = 0, {"largest": 0}, {str(number): number for number in range(300)}

    def forward(self, rows):
        self.calls += 1
        self.sizes["largest"] = max(self.sizes["largest"], len(rows))
        if isinstance(self.config, Config):
            self.config._cache = self.calls
        return self.inner(rows)


@pytest.mark.sliced(2)
@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (Config, lambda: Config(p=0.3), "net: config.p=0.3, before 0.5"),
        (Config, lambda: Config(kind=Kind.B), "net: config.kind=Kind.B, before Kind.A"),
        (Config, lambda: Config(layers=[1, 3]), "net: config.layers=[1, 3], before [1, 2]"),
        (Slotted, lambda: Slotted(0.3), "net: config.p=0.3, before 0.5"),
        (lambda: SimpleNamespace(p=0.5), lambda: SimpleNamespace(p=0.3), "net: config.p=0.3, before 0.5"),
    ],
)
def test_options_in_objects_are_told_and_what_moves_in_training_is_not(tmp_path, capsys, before, now, said):
    train(tmp_path, Configured(config=before()), epochs=1)
    net = train(tmp_path, Configured(config=before()), epochs=2)
    assert "the rest is bit-identical" in capsys.readouterr().err
    train(tmp_path, net.module, epochs=3)  # a cell that is run again: its counters go on
    assert "the rest is bit-identical" in capsys.readouterr().err
    train(tmp_path, Configured(config=now()), epochs=4)
    message = capsys.readouterr().err
    assert said in message
    assert message.count("before") == 1
    assert "bit-identical" not in message
    train(tmp_path, Configured(config=now()), epochs=5)
    assert "the rest is bit-identical" in capsys.readouterr().err


def less_dropout(module):
    module[1][2].p = 0.05
    module[2].momentum = 0.5


@pytest.mark.parametrize("stop", [2, 4, 8])
def test_numbers_of_torchs_layers_that_the_loop_sets_are_kept(tmp_path, capsys, stop):
    whole = train(tmp_path / "whole", normed(), unfreeze=less_dropout).module.state_dict()
    with pytest.raises(SystemExit):
        train(tmp_path / "run", normed(), unfreeze=less_dropout, stop=stop)
    capsys.readouterr()
    net = train(tmp_path / "run", normed(), unfreeze=less_dropout)
    assert "the rest is bit-identical" in capsys.readouterr().err
    for name, value in net.module.state_dict().items():
        assert torch.equal(value, whole[name]), name
    train(tmp_path / "run", net.module, unfreeze=less_dropout, epochs=4)
    assert "the rest is bit-identical" in capsys.readouterr().err
    edited = normed()
    edited[1][2].p = 0.7
    assert train(tmp_path / "run", edited, epochs=5).module[1][2].p == 0.7
    assert "net: 1.2.p=0.7, before 0.3" in capsys.readouterr().err


def first_frozen():
    module = network()
    module[0].requires_grad_(False)
    return module


def unfrozen_alone(module):
    module[0].requires_grad_(True)


def exchanged(module):
    ts.unfreeze(module, "0")
    ts.freeze(module, "4")


@pytest.mark.sliced(4)
@pytest.mark.parametrize("unfreeze", [unfrozen_alone, exchanged])
@pytest.mark.parametrize("stop", [2, 4, 6, 8])
def test_what_was_unfrozen_on_the_way_trains_on_and_ends_with_the_same_bits(tmp_path, capsys, unfreeze, stop):
    options = {
        "ema": ts.EMA(decay=0.9),
        "schedule": lambda o: ts.warmup_linear(o, warmup_steps=2, total_steps=9),
    }
    whole = train(tmp_path / "whole", first_frozen(), unfreeze=unfreeze, **options)
    with pytest.raises(SystemExit):
        train(tmp_path / "run", first_frozen(), unfreeze=unfreeze, stop=stop, **options)
    capsys.readouterr()
    net = train(tmp_path / "run", first_frozen(), unfreeze=unfreeze, **options)
    assert "the rest is bit-identical" in capsys.readouterr().err
    for mine, expected in zip(net.module.parameters(), whole.module.parameters(), strict=True):
        assert torch.equal(mine, expected)
        assert mine.requires_grad == expected.requires_grad
    ours, theirs = (learner._parts.optimizers[0].state_dict()["state"] for learner in (net, whole))
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert all(torch.equal(ours[key][name], theirs[key][name]) for name in theirs[key])
    averages = (learner._parts.average.state_dict() for learner in (net, whole))
    assert str(next(averages)) == str(next(averages))


@pytest.mark.slow
@pytest.mark.parametrize("switch", ["unfrozen", "modes", "held"])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_ranks_go_on_with_what_was_switched_and_the_same_bits(tmp_path, strategy, switch):
    def go(name, stop):
        exported = tmp_path / f"{name}.safetensors"
        ended = on_ranks(UNFREEZING, tmp_path / name, strategy, stop, exported, switch, size=2)
        assert {each.status for each in ended} == {143 if stop else 0}, ended[0].error
        return exported.read_bytes() if not stop else b""

    whole = go("whole", 0)
    go("run", 4)
    assert go("run", 0) == whole


def normed():
    torch.manual_seed(0)
    inner = nn.Sequential(nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3))
    return nn.Sequential(nn.Linear(4, 6), inner, nn.BatchNorm1d(6), nn.Linear(6, 3))


def held(module):
    ts.freeze(module, "1", statistics=True)


def in_evaluation(module):
    module[1].eval()


def all_but_one_in_evaluation(module):
    module.eval()[1][2].train()


@pytest.mark.sliced(4)
@pytest.mark.parametrize("switch", [held, in_evaluation, all_but_one_in_evaluation])
@pytest.mark.parametrize("stop", [2, 4, 8])
def test_modes_and_held_statistics_go_on_with_the_same_bits(tmp_path, capsys, switch, stop):
    whole = train(tmp_path / "whole", normed(), unfreeze=switch).module.state_dict()
    with pytest.raises(SystemExit):
        train(tmp_path / "run", normed(), unfreeze=switch, stop=stop)
    capsys.readouterr()
    net = train(tmp_path / "run", normed(), unfreeze=switch)
    assert "the rest is bit-identical" in capsys.readouterr().err
    for name, value in net.module.state_dict().items():
        assert torch.equal(value, whole[name]), name
    assert [layer.training for layer in net.module.train().modules()] == [
        layer.training for layer in switched(normed(), switch).train().modules()
    ]


def switched(module, switch):
    switch(module)
    return module


def test_what_is_switched_behind_the_loop_is_not_of_the_loop(tmp_path, capsys):
    def go(epochs):
        with ts.Run(tmp_path, progress=False) as run:
            net = run.learner(normed(), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
            data = run.data(POINTS, batch_size=4)
            for _ in run.epochs(epochs):
                trained_in = [layer.training for layer in net.module.modules()]
                for batch in run.batches(data):
                    net.update(lambda b: net(b).square().sum(1), batch)
            net.eval()
            ts.freeze(net, "0")
            run.state["tested"] = epochs
        return trained_in

    assert all(go(1) + go(2) + go(3))
    assert "bit-identical" in capsys.readouterr().err


def test_what_is_switched_behind_a_loop_that_was_left_is_not_of_the_loop(tmp_path):
    def go(last):
        with ts.Run(tmp_path, progress=False) as run:
            net = run.learner(normed(), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
            data = run.data(POINTS, batch_size=4)
            trained_in = []
            for _ in run.epochs(9):
                for batch in run.batches(data):
                    trained_in += [layer.training for layer in net.module.modules()]
                    net.update(lambda b: net(b).square().sum(1), batch)
                    if run.step == last:
                        break
                if run.step == last:
                    break
            net.eval()
            run.state["tested"] = last
        return trained_in

    for last in (2, 4, 6, 8):
        trained_in = go(last)
        assert trained_in
        assert all(trained_in)


def state_behind_last_evaluation(folder):
    run = ts.Run(folder, seed=0, device="cpu", progress=False, quiet=True)
    net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
    source = run.data(torch.ones(6, 3), batch_size=3)
    with run:
        for _ in run.epochs(1):
            for rows in run.batches(source):
                net.update(lambda rows: net(rows)[:, 0].square(), rows)
    net.eval()
    return net.training_state()


def test_a_start_that_has_nothing_left_keeps_the_modes_of_the_loop(tmp_path):
    first, second = (state_behind_last_evaluation(tmp_path / "run") for _ in range(2))
    assert second["settings"] == first["settings"]


def test_modes_that_the_code_begins_with_are_used_and_named(tmp_path, capsys):
    train(tmp_path, normed(), epochs=1)
    module = normed()
    module[1].eval()
    net = train(tmp_path, module, epochs=2)
    assert "net: in another mode than the module around it 1" in capsys.readouterr().err
    assert [net.module[1].training, net.module[2].training] == [False, True]


def test_other_frozen_parameters_in_the_code_are_used_and_named(tmp_path, capsys):
    train(tmp_path, first_frozen(), unfreeze=unfrozen_alone, epochs=2)
    module = network()
    module[4].requires_grad_(False)
    net = train(tmp_path, module, epochs=3)
    message = capsys.readouterr().err
    assert "net: frozen 4.bias, 4.weight; net: no longer frozen 0.bias, 0.weight" in message
    assert [p.requires_grad for p in net.module[4].parameters()] == [False, False]


def test_a_cell_that_is_run_again_with_the_same_module_is_no_edit(tmp_path, capsys):
    module = first_frozen()
    train(tmp_path, module, unfreeze=unfrozen_alone, epochs=2)
    train(tmp_path, module, unfreeze=unfrozen_alone, epochs=3)
    assert "the rest is bit-identical" in capsys.readouterr().err
    net = train(tmp_path, first_frozen(), unfreeze=unfrozen_alone, epochs=4)
    assert "the rest is bit-identical" in capsys.readouterr().err
    assert net.module[0].weight.requires_grad


@pytest.mark.parametrize("stop", [2, 4, 6, 8])
def test_a_group_that_the_loop_adds_to_its_optimizer_goes_on_with_the_same_bits(tmp_path, capsys, stop):
    def made(directory, stop=None):
        torch.manual_seed(0)
        with ts.Run(directory, progress=False, saving=ts.Saving(background=False)) as run:
            net = run.learner(
                first_frozen(),
                lambda p: torch.optim.AdamW([each for each in p if each.requires_grad], lr=0.1),
                name="net",
            )
            data = run.data(POINTS, batch_size=4, shuffle=True)
            for epoch in run.epochs(3):
                if epoch == 1:  # a resumed run comes here again
                    ts.unfreeze(net, "0")
                    net.optimizers[0].add_param_group({"params": net.module[0].parameters(), "lr": 0.01})
                for batch in run.batches(data):
                    net.update(lambda b: net(b).square().sum(1), batch)
                    if run.step == stop:
                        os.kill(os.getpid(), signal.SIGTERM)
        return net

    whole = made(tmp_path / "whole")
    with pytest.raises(SystemExit):
        made(tmp_path / "run", stop)
    capsys.readouterr()
    net = made(tmp_path / "run")
    assert "the rest is bit-identical" in capsys.readouterr().err
    assert all(map(torch.equal, net.module.parameters(), whole.module.parameters()))
    assert [group["lr"] for group in net.optimizers[0].param_groups] == [0.1, 0.01]


def test_what_is_frozen_after_the_learner_was_made_is_the_codes_too(tmp_path, capsys):
    def go(epochs, *, freezes):
        with ts.Run(tmp_path, progress=False) as run:
            net = run.learner(network(), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
            if freezes:
                ts.freeze(net, "0")
            data = run.data(POINTS, batch_size=4)
            for _ in run.epochs(epochs):
                for batch in run.batches(data):
                    net.update(lambda b: net(b).square().sum(1), batch)
        return net.module[0].weight.requires_grad

    assert not go(1, freezes=True)
    assert not go(2, freezes=True)
    assert "the rest is bit-identical" in capsys.readouterr().err
    assert go(3, freezes=False)
    assert "no longer frozen 0.bias, 0.weight" in capsys.readouterr().err


def test_the_promise_is_shorter_once_it_was_made(tmp_path, capsys):
    said = []
    for epochs in (1, 2, 3):
        train(tmp_path, network(), epochs=epochs)
        said.append(capsys.readouterr().err)
    assert said[0] == ""
    assert "other packages" in said[1]
    assert "bit-identical, if the loop keeps nothing in variables or attributes" in said[2]
    assert "other packages" not in said[2]


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--hub", "hf_abcdefghijklmnop"], "hf_abc"),  # by its looks, whatever the option is called
        (["--password=hush"], "hush"),
        (["api_key=hush"], "hush"),
        (["--database", "https://me:hush@host/runs?x=1"], "hush"),
    ],
)
def test_no_secret_of_the_command_line_is_kept(monkeypatch, words, kept):
    monkeypatch.setattr(fingerprint, "path_of_main_script", lambda: Path("train.py"))
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    assert kept not in " ".join(fingerprint.script_arguments(lambda _: "***"))


def test_a_word_about_tokens_is_no_secret(monkeypatch):
    monkeypatch.setattr(fingerprint, "path_of_main_script", lambda: Path("train.py"))
    monkeypatch.setattr(sys, "argv", ["train.py", "--max-tokens", "512", "--tokenizer=bpe"])
    assert fingerprint.script_arguments(str) == ["--max-tokens", "512", "--tokenizer=bpe"]
