# SPDX-License-Identifier: Apache-2.0
"""A run's looks at its layers: the same bits with and without, written once, told to trackers and shown in the report."""

import json

import pytest
import torch
import torch.nn.functional as F
from support.layer_plants import NETS, batch
from torch import nn

import truestep as ts
from truestep.report.layers import read_reported_looks

OPTIONS = {"progress": False, "quiet": True, "doctor": False}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))


def train(directory, steps, *, net=None, precision="float32", micro_batch=None, stop_after=None, **options):
    saving = ts.Saving(every_steps=5, background=False)
    with ts.Run(directory, precision=precision, saving=saving, **{**OPTIONS, **options}) as run:
        learner = run.learner(
            net or network(), lambda p: torch.optim.AdamW(p, lr=1e-3), name="net", micro_batch=micro_batch
        )
        generator = torch.Generator().manual_seed(1)
        batches = [batch(generator) for _ in range(4)]
        for step in run.steps(steps):
            learner.update(
                lambda b: F.cross_entropy(learner(b[0]), b[1], reduction="none"), batches[step % 4]
            )
            if run.step == stop_after:
                raise KeyboardInterrupt
    return run, [tensor.clone() for tensor in learner.state_dict().values()]


@pytest.mark.parametrize("options", [{}, {"precision": "bf16-mixed"}, {"micro_batch": 5}], ids=str)
def test_a_run_ends_with_the_same_bits(tmp_path, options):
    _, without = train(tmp_path / "without", 12, watch_layers=0, **options)
    run, watched = train(tmp_path / "watched", 12, watch_layers=3, **options)
    assert all(map(torch.equal, without, watched))
    assert [look["step"] for look in read_reported_looks(run.directory / "layers.jsonl")] == [3, 6, 9, 12]
    assert not (tmp_path / "without" / "layers.jsonl").exists()


@pytest.mark.parametrize("at", [4, 6, 7, 9, 11])
def test_a_resumed_run_has_every_look_once(tmp_path, monkeypatch, at):
    with monkeypatch.context() as patch:
        patch.setattr("truestep.run.saver.RunSaver.save_crashed", lambda self, error: "nothing")
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "a", 14, watch_layers=3, stop_after=at)
    run, _ = train(tmp_path / "a", 14, watch_layers=3)
    steps = [look["step"] for look in read_reported_looks(run.directory / "layers.jsonl")]
    assert steps == sorted(set(steps))
    assert set(steps) <= {3, 6, 9, 12}
    assert len(steps) >= 3  # the look under way when it stopped may be lost


def test_a_look_has_every_layer_and_is_valid_json(tmp_path):
    run, _ = train(tmp_path / "a", 5, watch_layers=3)
    [line] = (run.directory / "layers.jsonl").read_text().splitlines()
    look = json.loads(line)
    assert set(look["layers"]) == {"1", "2", "4"}
    assert look["layers"]["1"]["gradient"] > 0
    assert look["layers"]["4"]["output_gradient"] > 0
    assert look["layers"]["1"]["update"] < look["layers"]["1"]["weight"]


class Counting(ts.Tracker):
    def __init__(self):
        self.told = []

    def histogram(self, name, counts, edges, step):
        self.told.append((name, sum(counts), len(edges), step))


def test_trackers_get_histograms(tmp_path):
    counting = Counting()
    train(tmp_path / "a", 5, watch_layers=3, trackers=[counting])
    names = [entry[0] for entry in counting.told]
    assert names == ["net/1", "net/1/gradient", "net/2", "net/4", "net/4/gradient"]
    assert counting.told[0][1:] == (16 * 16, 25, 3)


def test_a_dead_layer_is_said_once_and_stands_in_the_report(tmp_path, capfd):
    net = network()
    nn.init.constant_(net[1].bias, -1000.0)
    run, _ = train(tmp_path / "a", 40, net=net, watch_layers=2, quiet=False)
    said = [line for line in capfd.readouterr().err.splitlines() if "2: 100% of its units were zero" in line]
    assert len(said) == 1
    page = (run.directory / "report.html").read_text()
    assert (
        page.count("2: 100% of its units were zero in each of the 8 batches looked at among the last 16") == 1
    )
    assert "Dead units (share)" in page
    assert "do not help" in page


def test_a_healthy_run_says_so_in_the_report(tmp_path):
    run, _ = train(tmp_path / "a", 12, watch_layers=2)
    page = (run.directory / "report.html").read_text()
    assert "No layer was dead, saturated, exploding or vanishing" in page
    assert "Weight gradient (RMS)" in page


def test_a_compiled_learner_is_said_to_be_unwatched(tmp_path):
    net = network()
    net._compiled_call_impl = net._call_impl  # what net.compile() sets, without the compiler
    run, _ = train(tmp_path / "a", 5, net=net, watch_layers=3)
    [choice] = [choice for choice in run.choices() if choice.name == "layers of net"]
    assert choice.value == "not watched"
    assert not (run.directory / "layers.jsonl").exists()


def test_a_full_disk_ends_the_watch_and_nothing_else(tmp_path, monkeypatch, capfd):
    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("truestep.run.layers._append_to_file", full)
    run, _ = train(tmp_path / "a", 20, watch_layers=2, quiet=False)
    assert run.step == 20
    assert capfd.readouterr().err.count("the layers are not watched any more") == 1


def test_a_long_run_writes_fewer_and_fewer_looks(tmp_path, monkeypatch):
    monkeypatch.setattr("truestep.run.layers.FULL", 8)
    run, _ = train(tmp_path / "a", 130, watch_layers=2)
    steps = [look["step"] for look in read_reported_looks(run.directory / "layers.jsonl")]
    assert 16 < len(steps) < 40
    assert steps == sorted(set(steps))


DAMAGE = [
    '{"step": 1}\n',
    "nonsense\n",
    '{"step": "x", "layers": {}}\n',
    "[" * 5000 + "\n",
    '{"step": 1, "layers": {"a": {"dead": "x", "kind": 3}}}\n',
    '{"step": 1, "layers": {"a": 3}, "findings": 7}\n',
]


@pytest.mark.parametrize("text", DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_file_costs_its_lines_alone(tmp_path, text):
    run, _ = train(tmp_path / "a", 12, watch_layers=2)
    path = run.directory / "layers.jsonl"
    path.write_text(text + path.read_text())
    assert "Weight gradient (RMS)" in ts.write_report(run.directory).read_text()


@pytest.mark.parametrize("given", [1, -4, 2.5])
def test_what_can_not_be_used_is_refused(tmp_path, given):
    with pytest.raises(ts.OptionError, match="watch_layers"):
        ts.Run(tmp_path / "a", watch_layers=given)


@pytest.mark.parametrize("name", ["attention", "recurrent", "residual"])
def test_other_networks(tmp_path, name):
    torch.manual_seed(0)
    run, _ = train(tmp_path / "a", 5, net=NETS[name](), watch_layers=3)
    assert len(list(read_reported_looks(run.directory / "layers.jsonl"))) == 1


def test_one_fault_of_many_layers_is_one_sentence(tmp_path, capfd):
    within = [layer for _ in range(11) for layer in (nn.Sigmoid(), nn.Linear(16, 16))]
    deep = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), *within, nn.Sigmoid(), nn.Linear(16, 10))
    train(tmp_path / "a", 40, net=deep, watch_layers=2, quiet=False)
    said = [line for line in capfd.readouterr().err.splitlines() if "times that of a later layer" in line]
    assert len(said) == 1
    assert "Likewise " in said[0]
