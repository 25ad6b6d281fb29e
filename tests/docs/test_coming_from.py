# SPDX-License-Identifier: Apache-2.0
"""Who comes from another library is told what is true: every line on the right of the tables runs, or is taken as an option."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR  # noqa: F401  (named on the page)

import truestep as ts

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text("utf-8")
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if re.match(r"\| [^-]", line)]
RIGHT = sorted(
    {code for row in ROWS for code in re.findall(r"`([^`]+)`", row[1]) if row[1] not in ("in a run",)}
)
COMMANDS = [code for code in RIGHT if code.startswith("truestep ")]
NAMES = [
    "ts.per_epoch",
    "fit",
    "run.data",
    "loss(batch)",
    "metric=",
    "self.net",
    "training_step",
    "nn.Module",
]
OPTIONS = [
    code for code in RIGHT if re.match(r"\w+=", code) and code not in NAMES
]  # names are said in passing
LINES = [code for code in RIGHT if code not in (*COMMANDS, *OPTIONS, *NAMES)]


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the lines stand among."""
    monkeypatch.chdir(tmp_path)
    run = ts.Run("runs/mine", seed=0, progress=False, quiet=True, doctor=False, watch_layers=0)
    module, model, x = nn.Linear(4, 2), nn.Linear(4, 2), torch.randn(24, 4)
    train_set = (x, torch.arange(24) % 2)
    net = run.learner(module, AdamW, name="made", ema=ts.EMA())
    torch.save(
        {"state_dict": {f"net.{name}": value for name, value in module.state_dict().items()}}, "ours.ckpt"
    )
    torch.save({"state_dict": module.state_dict()}, "old.ckpt")

    def loss(batch):
        return F.cross_entropy(net(batch[0]), batch[1], reduction="none")

    def correct(batch):
        return net(batch[0]).argmax(1) == batch[1]

    batch = tuple(part[:16] for part in train_set)
    yield globals() | locals() | {
        "y": train_set[1], "train": run.data(train_set, batch_size=16), "test": run.data(train_set, batch_size=16),
        "scores": net(x), "labels": train_set[1], "losses": torch.rand(3), "errors": torch.rand(3), "weights": torch.rand(3),
        "accuracy": 0.5, "thing": nn.Linear(1, 1),
    }  # fmt: skip
    run.close()


def test_the_tables_are_read():
    assert len(ROWS) > 90
    assert (len(COMMANDS), len(OPTIONS) > 25, len(LINES) > 25) == (1, True, True)
    assert set(NAMES) <= set(RIGHT)


@pytest.mark.parametrize("line", LINES)
def test_a_line_runs(names, line):
    if "weights.safetensors" in line:
        names["net"].update(names["loss"], names["batch"])
        names["run"].close()
        ts.export_weights("runs/mine", "weights.safetensors")
    if "ModuleDict" in line:
        Path("ours.ckpt").rename("old.ckpt")
    if line.startswith(("ts.WandbTracker", "ts.MlflowTracker")):
        with pytest.raises(ts.MissingPackageError):  # `make trackers` has them
            exec(compile(line, "coming-from.md", "exec"), names)
        return
    if line == 'ts.Run("runs/mine")':
        names["run"].close()
    body = " break" if line.startswith("for") else " pass" if line.endswith(":") else ""
    if line.startswith("run.batches"):
        line = f"next(iter({line}))"
    fresh = line.replace("net = run.learner(module", "net = run.learner(nn.Linear(4, 2)")
    exec(compile(fresh + body, "coming-from.md", "exec"), names)


TAKERS = {
    "run.data": lambda names, **options: names["run"].data(**({"data": [torch.randn(2)] * 4, "batch_size": 2} | options)),
    "run.learner": lambda names, **options: names["run"].learner(nn.Linear(4, 2), AdamW, **options),
    "ts.Run": lambda _names, **options: ts.Run("runs/other", **({"quiet": True, "progress": False} | options)).close(),
    "ts.Saving": lambda _names, **options: ts.Saving(**options),
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_taken(names, option):
    if option == "deterministic=True":  # it would stay so for all tests
        assert "deterministic" in inspect.signature(ts.Run).parameters
        return
    options = eval(f"dict({option})", names)
    errors = {}
    for taker, call in TAKERS.items():
        try:
            call(names, **options)
        except (TypeError, ts.OptionError) as error:
            errors[taker] = str(error)
        else:
            return
    pytest.fail(f"nothing takes {option}: {errors}")


def test_the_command_is_there():
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "truestep", command.split()[1], "--help"], check=True, capture_output=True
        )
        assert b"--processes" in done.stdout


def test_a_limit_beyond_the_data_reads_on(names):
    run, train = names["run"], names["train"]
    for _ in run.epochs(1):
        assert sum(1 for _ in run.batches(train, limit=5)) == 5  # two make an order
    assert run.step == 5


def test_the_usual_mode_of_the_best_is_the_one_that_is_named():
    assert ts.Saving(best="accuracy").is_better(0.9, than=0.8)
    with pytest.raises(ts.OptionError, match="which way is better"):
        ts.Saving(best="valid_loss")
