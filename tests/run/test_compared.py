# SPDX-License-Identifier: Apache-2.0
"""Runs that were given different things are never called the same, whatever differs; those given the same are."""

import json

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.report.compare import compare_runs
from truestep.report.run_record import read_run_records

USUAL = {
    "lr": 0.001, "weight_decay": 0.01, "optimizer": "AdamW", "width": 4, "clip": None, "schedule": None, "ema": None,
    "batch_size": 8, "shuffle": True, "drop_last": False, "num_samples": 32, "precision": "float32", "seed": 0,
    "micro_batch": None,
}  # fmt: skip
ANOTHER = {
    "lr": (0.1, "optimizer of net: lr"),
    "weight_decay": (0.1, "optimizer of net: weight_decay"),
    "optimizer": ("SGD", "optimizer of net"),
    "width": (5, "model of net"),
    "clip": (1.0, "clip of net"),
    "schedule": (3, "schedule of net"),
    "ema": (0.99, "ema of net"),
    "batch_size": (16, "batches of points: batch_size"),
    "shuffle": (False, "batches of points: shuffle"),
    "drop_last": (True, "batches of points: drop_last"),
    "num_samples": (40, "batches of points: num_samples"),
    "precision": ("bf16-mixed", "precision"),
    "seed": (1, "seed"),
    "micro_batch": (4, "micro_batch of net"),
}


def begun(folder, given):
    """Make a run as given; yield at work, and have it finished at the end."""
    run = ts.Run(folder, seed=given["seed"], precision=given["precision"], progress=False, doctor=False)
    model = nn.Sequential(nn.Linear(3, given["width"]), nn.Linear(given["width"], 1))
    warmup = given["schedule"]
    net = run.learner(
        model,
        lambda p: getattr(torch.optim, given["optimizer"])(
            p, lr=given["lr"], weight_decay=given["weight_decay"]
        ),
        name="net",
        clip=given["clip"] and ts.ClipNorm(given["clip"]),
        schedule=warmup and (lambda o: ts.warmup_cosine(o, warmup_steps=warmup, total_steps=20)),
        ema=given["ema"] and ts.EMA(given["ema"]),
        micro_batch=given["micro_batch"],
    )
    options = {name: given[name] for name in ("batch_size", "shuffle", "drop_last")}
    points = run.data(torch.ones(given["num_samples"], 3), **options)
    for _ in run.epochs(1):
        for batch in run.batches(points):
            net.update(lambda x: net(x).square().squeeze(1), batch)
            yield
    run.finish()


def trained(folder, given):
    for _ in begun(folder, given):
        pass
    return folder


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "usual", USUAL)


def different(*folders):
    return {each.setting for each in compare_runs(read_run_records(folders)).differences}


@pytest.mark.parametrize("what", USUAL)
def test_what_was_given_otherwise_is_named(what, usual, tmp_path):
    value, name = ANOTHER[what]
    found = different(usual, trained(tmp_path / "other", {**USUAL, what: value}))
    assert name in found
    # an optimizer has options of its own, a precision kernels, and what a schedule may move is the schedule's
    assert what in ("optimizer", "precision", "schedule") or all(each.startswith(name) for each in found)


def test_the_same_is_the_same(usual, tmp_path):
    assert different(usual, trained(tmp_path / "again", USUAL)) == set()


def test_a_run_at_work_is_compared_too(usual, tmp_path):
    at_work = begun(tmp_path / "other", {**USUAL, "lr": 0.1})
    next(at_work)
    assert different(usual, tmp_path / "other") == {"optimizer of net: lr"}
    at_work.close()


def test_what_does_not_say_what_it_was_given_is_not_called_the_same(usual, tmp_path):
    """A folder of an older build has no such choices."""
    older = trained(tmp_path / "older", USUAL)
    (older / "choices.json").write_text(json.dumps([{"name": "device", "value": "cpu", "reason": "none"}]))
    assert "optimizer of net" in different(usual, older)
