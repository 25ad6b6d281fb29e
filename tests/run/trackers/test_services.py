# SPDX-License-Identifier: Apache-2.0
"""wandb and MLflow, by stand-ins that keep what they are told: one run there, each value at its step."""

import math
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.core.errors import MissingPackageError
from truestep.report.metrics import read_metrics

TIMES = ("samples_per_second", "memory_bytes", "save_stall_seconds")


class Wandb(ModuleType):
    """`wandb` as far as the tracker calls it; `online` remembers a run's summary."""

    def __init__(self, online):
        super().__init__("wandb")
        self.online, self.runs, self.inits = online, {}, []
        self.Histogram = self.Image = self.Audio = self.Html = lambda *_, **__: "media"

    def init(self, **settings):
        self.inits.append(settings)
        rows = self.runs.setdefault(settings["id"], [])
        summary = dict(pair for row in rows for pair in row.items()) if self.online else {}
        return SimpleNamespace(
            summary=summary, log=rows.append, define_metric=lambda *_, **__: None, finish=lambda: None
        )

    def told(self):
        (rows,) = self.runs.values()
        return [(name, row["step"], value) for row in rows for name, value in row.items() if value != "media"]


class Mlflow(ModuleType):
    """`mlflow` as far as the tracker calls it."""

    def __init__(self):
        super().__init__("mlflow")
        self.metrics, self.params, self.status = [], {}, []
        self.MlflowClient = lambda uri: self
        entities = ModuleType("mlflow.entities")
        entities.Metric = lambda key, value, timestamp, step: (key, step, value)
        self.entities = entities

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return "7"

    def create_run(self, experiment, *, tags, run_name):
        self.status.append(("begun", experiment, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))

    def update_run(self, run_id, *, status):
        self.status.append((status, run_id))

    def get_run(self, run_id):
        return SimpleNamespace(data=SimpleNamespace(metrics={key: 0 for key, *_ in self.metrics}))

    def get_metric_history(self, run_id, key):
        return [SimpleNamespace(step=step) for name, step, _ in self.metrics if name == key]

    def log_param(self, run_id, name, value):
        self.params[name] = value

    def log_batch(self, run_id, *, metrics):
        self.metrics += metrics

    def set_terminated(self, run_id):
        self.status.append(("ended", run_id))


@pytest.fixture(params=["wandb online", "wandb offline", "mlflow"])
def service(request, monkeypatch):
    name, *how = request.param.split()
    made = Mlflow() if name == "mlflow" else Wandb(online=how == ["online"])
    monkeypatch.setitem(sys.modules, name, made)
    if name == "mlflow":
        monkeypatch.setitem(sys.modules, "mlflow.entities", made.entities)
    return made


def train(directory, service, stop_after=None):
    """Twelve steps, a line every second one, a checkpoint every third; end as a kill does after `stop_after`."""
    tracker = ts.MlflowTracker("e") if isinstance(service, Mlflow) else ts.WandbTracker("p")
    saving = ts.Saving(every_steps=3, background=False)
    options = {"log_every": 2, "quiet": True, "progress": False, "doctor": False}
    with ts.Run(directory, trackers=[tracker], seed=0, config={"lr": 0.1}, saving=saving, **options) as run:
        net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.01), name="net")
        for step in run.steps(12):
            net.update(lambda x: net(x).squeeze(1).square(), torch.randn(4, 3))
            if step % 4 == 3:
                run.log(score=float(step), odd=math.nan)
            if step == stop_after:
                raise KeyboardInterrupt
    return run


@pytest.mark.sliced(3)
@pytest.mark.parametrize("stops", [[], [2], [3, 4], [7, 10], [11]], ids=str)
def test_a_service_has_one_run_with_every_value_at_its_step(tmp_path, service, monkeypatch, stops):
    for stop in stops:
        with monkeypatch.context() as patch:
            patch.setattr("truestep.run.saver.RunSaver.save_crashed", lambda self, error: "nothing")
            with pytest.raises(KeyboardInterrupt):
                train(tmp_path / "a", service, stop)
    run = train(tmp_path / "a", service)
    told = service.metrics if isinstance(service, Mlflow) else service.told()
    found = {}
    for name, step, value in told:
        found.setdefault((name, step), []).append(repr(value))
    for line in read_metrics(run.directory / "metrics.jsonl"):
        for name, value in line.values.items():
            assert name in TIMES or {*found[name, line.step]} == {repr(value)}
            if isinstance(service, Mlflow):
                assert len(found[name, line.step]) == 1
    if isinstance(service, Mlflow):
        assert service.status[0] == ("begun", "7", "a")
        assert service.status[-1] == ("ended", "r1")
        assert service.params == {"lr": 0.1}
    else:
        assert len({each["id"] for each in service.inits}) == 1
        assert service.inits[0]["project"] == "p"


def test_two_runs_of_one_name_are_two_at_the_service(tmp_path, monkeypatch):
    wandb = Wandb(online=True)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for folder in ("one", "other"):
        train(tmp_path / folder / "digits", wandb)
    assert len(wandb.runs) == 2


@pytest.mark.parametrize(("make", "extra"), [(ts.WandbTracker, "wandb"), (ts.MlflowTracker, "mlflow")])
def test_a_package_that_is_missing_is_said_before_the_training(monkeypatch, make, extra):
    monkeypatch.setitem(sys.modules, extra, None)
    with pytest.raises(MissingPackageError, match=rf"pip install 'truestep\[{extra}\]'"):
        make()


def test_trackers_get_activations_and_gradients_of_the_layers(tmp_path):
    class Histograms(ts.Tracker):
        def __init__(self):
            self.told = {}

        def histogram(self, name, counts, edges, step):
            self.told.setdefault(name, []).append((sum(counts), edges[0], edges[-1]))

    histograms = Histograms()
    options = {"quiet": True, "progress": False, "doctor": False, "watch_layers": 2}
    with ts.Run(tmp_path / "a", trackers=[histograms], seed=0, **options) as run:
        layers = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
        net = run.learner(layers, lambda p: torch.optim.SGD(p, lr=0.01), name="net")
        for _ in run.steps(6):
            net.update(lambda x: net(x).squeeze(1).square(), torch.randn(8, 3))
    assert {*histograms.told} == {"net/0", "net/1", "net/2", "net/0/gradient", "net/2/gradient"}
    for name, size in (("net/0/gradient", 15), ("net/2/gradient", 5), ("net/0", 40)):
        for total, low, high in histograms.told[name]:
            assert total == size
            assert low < high
            assert "gradient" not in name or low == -high
