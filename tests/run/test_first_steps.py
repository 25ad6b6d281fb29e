# SPDX-License-Identifier: Apache-2.0
"""The doctor in a run's first updates: what it says, that it changes nothing, and that it is gone afterwards."""

import json

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as module_calls

import truestep as ts
from truestep.doctor.runtime.history import WINDOW


def batches(number=4, size=16, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(number * size, 4, generator=generator), torch.arange(number * size) % 3


def train(folder, *, softmax=False, epochs=2, stop=None, model=None, **options):
    run = ts.Run(folder, seed=3, saving=ts.Saving(every_steps=1, background=False), **options)
    module = model or nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 3))
    net = run.learner(module, lambda p: torch.optim.AdamW(p, lr=1e-2))
    data = run.data(batches(), batch_size=16, shuffle=True)

    def loss(batch):
        x, y = batch
        logits = net(x)
        return F.cross_entropy(logits.softmax(1) if softmax else logits, y, reduction="none")

    for _epoch in run.epochs(epochs):
        for batch in run.batches(data):
            net.update(loss, batch)
            if run.step == stop:
                run.close()
                return net
    return net


def found(folder):
    path = folder / "doctor.json"
    return json.loads(path.read_text())["findings"] if path.exists() else []


def test_a_fault_of_the_loss_is_said_once_and_kept(tmp_path, capsys):
    train(tmp_path / "run", softmax=True, epochs=8)
    said = [line for line in capsys.readouterr().err.splitlines() if "LOSS001" in line]
    assert len(said) == 1
    assert f"{__file__}:" in said[0]
    assert [each["code"] for each in found(tmp_path / "run")] == ["LOSS001"]
    assert "LOSS001" in (tmp_path / "run" / "report.html").read_text()


def test_a_correct_run_says_and_keeps_nothing(tmp_path, capsys):
    train(tmp_path / "run", epochs=8)
    assert "LOSS" not in capsys.readouterr().err
    assert not (tmp_path / "run" / "doctor.json").exists()


def test_it_can_be_turned_off(tmp_path, capsys):
    train(tmp_path / "run", softmax=True, doctor=False)
    assert "LOSS001" not in capsys.readouterr().err
    assert found(tmp_path / "run") == []


@pytest.mark.sliced(2)
@pytest.mark.parametrize("precision", ["float32", "bf16-mixed"])
def test_runs_with_and_without_it_end_bit_identical(tmp_path, precision):
    seen, unseen = (
        train(tmp_path / str(doctor), epochs=8, doctor=doctor, precision=precision)
        for doctor in (True, False)
    )
    for one, other in zip(seen.parameters(), unseen.parameters(), strict=True):
        assert torch.equal(one, other)


def test_resuming_stays_exact_and_is_watched_again(tmp_path):
    whole = train(tmp_path / "whole", epochs=3, softmax=True)
    train(tmp_path / "parts", epochs=3, softmax=True, stop=5)
    (tmp_path / "parts" / "doctor.json").unlink(missing_ok=True)
    resumed = train(tmp_path / "parts", epochs=3, softmax=True)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)
    assert [each["code"] for each in found(tmp_path / "parts")] == ["LOSS001"]


def test_after_the_window_nothing_of_it_is_left(tmp_path):
    before = F.cross_entropy
    run = ts.Run(tmp_path / "run", progress=False)
    net = run.learner(nn.Linear(4, 3), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(batches(), batch_size=16)
    wrapped = []
    for _epoch in run.epochs(8):
        for batch in run.batches(data):
            wrapped.append(F.cross_entropy is not before)
            net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), batch)
    assert wrapped == [True] * WINDOW + [False] * (32 - WINDOW)
    assert not module_calls._has_any_global_hook()


def test_a_run_that_ends_within_the_window_leaves_nothing_either(tmp_path):
    before = F.cross_entropy
    train(tmp_path / "run", epochs=1)
    assert F.cross_entropy is before
    assert not module_calls._has_any_global_hook()


def test_a_watch_of_the_user_s_own_comes_first(tmp_path):
    with ts.watch() as outer:
        train(tmp_path / "outer", softmax=True, epochs=1)
    assert [each.code for each in outer.findings] == ["LOSS001"]
    assert found(tmp_path / "outer") == []
    run = ts.Run(tmp_path / "inner", progress=False)
    net = run.learner(nn.Linear(4, 3), lambda p: torch.optim.SGD(p, lr=0.1))
    for batch in run.batches(run.data(batches(), batch_size=16)):
        with ts.watch():
            net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), batch)
    run.close()


@pytest.mark.parametrize("way", ["update", "accumulating", "two learners", "skipped"])
def test_correct_training_of_ours_that_is_watched_as_a_whole_has_no_finding(tmp_path, way):
    def layers():
        return nn.Sequential(
            nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 3)
        )

    with ts.watch() as watch:
        run = ts.Run(
            tmp_path, seed=3, progress=False, precision="fp16-mixed" if way == "skipped" else "float32"
        )
        scale = ts.LossScale(initial=2.0**24, growth_interval=40) if way == "skipped" else None
        nets = [
            run.learner(
                layers(),
                lambda p: torch.optim.AdamW(p, lr=1e-3),
                name=f"net{i}",
                loss_scale=scale,
                ema=ts.EMA(0.9),
            )
            for i in range(2 if way == "two learners" else 1)
        ]
        train = run.data(batches(8), batch_size=16, shuffle=True)
        test = run.data(batches(8, seed=2), batch_size=16)
        for _epoch in run.epochs(5):
            for batch in run.batches(train):
                for net in nets:
                    if way == "accumulating":
                        with net.accumulating() as update:
                            for half in (
                                tuple(part[:8] for part in batch),
                                tuple(part[8:] for part in batch),
                            ):
                                update.backward(cross_entropy(net, half).mean(), weight=len(half[0]))
                    else:
                        net.update(lambda b, net=net: cross_entropy(net, b), batch)
            run.log(loss=nets[0].evaluate(lambda b: cross_entropy(nets[0], b), test, averaged=True))
    assert [(each.code, each.message) for each in watch.findings] == []


def cross_entropy(net, batch):
    return F.cross_entropy(net(batch[0]), batch[1], reduction="none")


def test_a_skipped_update_is_no_parameter_that_never_moves(tmp_path):
    generous = ts.LossScale(initial=2.0**24)
    run = ts.Run(tmp_path / "run", precision="fp16-mixed", progress=False)
    module = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    net = run.learner(module, lambda p: torch.optim.SGD(p, lr=0.1), loss_scale=generous)
    data = run.data(batches(), batch_size=16)
    for _epoch in run.epochs(6):
        for batch in run.batches(data):
            net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), batch)
    assert "PARAM017" not in [each["code"] for each in found(tmp_path / "run")]


def test_dead_units_and_frozen_learning_rates_are_found(tmp_path):
    dead = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    nn.init.constant_(dead[0].bias, -50.0)
    train(tmp_path / "dead", model=dead, epochs=6)
    assert "PARAM018" in [each["code"] for each in found(tmp_path / "dead")]
    run = ts.Run(tmp_path / "still", progress=False)
    net = run.learner(nn.Linear(4, 3), lambda p: torch.optim.SGD(p, lr=0.0))
    data = run.data(batches(), batch_size=16)
    for _epoch in run.epochs(3):
        for batch in run.batches(data):
            net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), batch)
    assert [(each["code"], each["severity"]) for each in found(tmp_path / "still")] == [("PARAM017", "bug")]
