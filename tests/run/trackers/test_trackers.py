# SPDX-License-Identifier: Apache-2.0
"""Trackers: told all that is logged, each line once however often the run was resumed; one that fails never stops it."""

import csv
import math
import wave
from importlib.util import find_spec

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.report.metrics import read_metrics

METHODS = ["open", "scalars", "histogram", "figure", "graph", "media", "flush", "close"]


class Keeper(ts.Tracker):
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def open(self, tracking):
        self.step = tracking.step
        self.told.append(("open", tracking.step, [line.step for line in tracking.history()]))

    def scalars(self, values, step, epoch):
        self.told.append(("scalars", step, dict(values)))

    def flush(self):
        self.told.append(("flush",))

    def close(self):
        self.told.append(("close",))


def train(directory, trackers, *, epochs=3, stop_after=None, **options):
    """Four batches an epoch; with `stop_after`, raise behind that step's update."""
    torch.manual_seed(0)
    options = {
        "saving": ts.Saving(every_steps=3, background=False),
        "log_every": 2,
        "progress": False,
        **options,
    }
    with ts.Run(directory, trackers=trackers, quiet=True, doctor=False, **options) as run:
        net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.01), name="net")
        data = run.data(torch.ones(16, 3), batch_size=4)
        for epoch in run.epochs(epochs):
            for batch in run.batches(data):
                net.update(lambda x: net(x).squeeze(1).square(), batch)
                if run.step == stop_after:
                    raise KeyboardInterrupt
            run.log(error=float(epoch), odd=math.nan)
    return run


def killed(directory, trackers, at, monkeypatch):
    """End as a kill does: nothing is saved, nothing closed; what trackers had is on disk."""
    with monkeypatch.context() as patch:
        patch.setattr("truestep.run.saver.RunSaver.save_crashed", lambda self, error: "nothing")
        with pytest.raises(KeyboardInterrupt):
            train(directory, trackers, stop_after=at)


def lines_of(run):
    return [
        (line.step, line.epoch, dict(line.values)) for line in read_metrics(run.directory / "metrics.jsonl")
    ]


def test_a_tracker_is_told_every_line(tmp_path):
    keeper = Keeper()
    run = train(tmp_path / "a", [keeper])
    told = [entry[1:] for entry in keeper.told if entry[0] == "scalars"]
    wanted = [(step, values) for step, _, values in lines_of(run)]
    assert repr(told) == repr(wanted)  # NaN is unequal to itself
    assert keeper.told[0] == ("open", 0, [])
    assert keeper.told[-1] == ("close",)
    assert ("flush",) in keeper.told


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return [
            (int(row["step"]), int(row["epoch"]), row["name"], float(row["value"]))
            for row in csv.DictReader(file)
        ]


def plain(rows):
    """What does not differ between two runs."""
    times = ("samples_per_second", "memory_bytes", "save_stall_seconds")
    return [repr(row) for row in rows if row[2] not in times]


@pytest.mark.sliced(2)
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 8, 9, 11])
def test_a_resumed_run_has_every_row_once(tmp_path, monkeypatch, at):
    whole = train(tmp_path / "whole", [ts.CsvTracker()])
    killed(tmp_path / "killed", [ts.CsvTracker()], at, monkeypatch)
    again = train(tmp_path / "killed", [ts.CsvTracker()])
    rows = rows_of(again.directory / "metrics.csv")
    assert plain(rows) == plain(rows_of(whole.directory / "metrics.csv"))
    listed = [
        (step, epoch, name, value)
        for step, epoch, values in lines_of(again)
        for name, value in values.items()
    ]
    assert repr(rows) == repr(listed)


def test_what_is_logged_after_the_end_stands_there_too(tmp_path):
    run = train(tmp_path / "a", [ts.CsvTracker(tmp_path / "own.csv")])
    run.log(late=1.0)
    run.log(later=2.0)
    rows = rows_of(tmp_path / "own.csv")
    assert [row[2] for row in rows[-2:]] == ["late", "later"]
    assert len(rows) == len({(row[0], row[2], row[1]) for row in rows})


class Failing(ts.Tracker):
    def __init__(self, method):
        self.calls = []
        for name in METHODS:
            setattr(self, name, self._failing if name == method else self._noting(name))

    def _noting(self, name):
        return lambda *_: self.calls.append(name)

    def _failing(self, *_):
        self.calls.append("failed")
        raise ConnectionError("the service is down")


@pytest.mark.parametrize("method", ["open", "scalars", "flush", "close"])
def test_a_failing_tracker_is_left_out_with_one_warning(tmp_path, capfd, method):
    failing, keeper = Failing(method), Keeper()
    torch.manual_seed(0)
    with ts.Run(tmp_path / "a", trackers=[failing, keeper], progress=False, doctor=False, log_every=1) as run:
        net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.01), name="net")
        for _ in run.steps(5):
            net.update(lambda x: net(x).squeeze(1).square(), torch.ones(4, 3))
            run.save()
        run.log(end=1.0)
    said = [line for line in capfd.readouterr().err.splitlines() if "tracker" in line]
    assert len(said) == 1
    assert f"Failing failed in {method} (ConnectionError: the service is down)" in said[0]
    assert failing.calls.count("failed") == 1
    assert sum(entry[0] == "scalars" for entry in keeper.told) == len(lines_of(run))


def test_a_tracker_changes_no_bit(tmp_path):
    def weights(trackers, name):
        torch.manual_seed(0)
        with ts.Run(tmp_path / name, trackers=trackers, progress=False, log_every=1) as run:
            net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.01), name="net")
            for _ in run.steps(6):
                net.update(lambda x: net(x).squeeze(1).square(), torch.randn(4, 3))
                run.trackers.histogram("weights", net.weight)
        return net.weight.detach()

    assert torch.equal(weights([], "without"), weights([Keeper(), ts.CsvTracker()], "with"))


@pytest.mark.parametrize("given", [ts.CsvTracker, "csv", None])
def test_what_is_no_tracker_is_refused(tmp_path, given):
    with pytest.raises(ts.OptionError, match=r"CsvTracker\(\)"):
        ts.Run(tmp_path / "a", trackers=[given])


def test_histograms_count_finite_values_once():
    class Histograms(ts.Tracker):
        def histogram(self, name, counts, edges, step):
            self.counts, self.edges = counts, edges

    from truestep.run.trackers.hub import Trackers
    from truestep.run.trackers.tracker import Tracking

    keeper = Histograms()
    hub = Trackers(
        [keeper], lambda: Tracking(directory=None, config={}, step=3, history=lambda: iter(())), print
    )
    hub.histogram("x", torch.tensor([1.0, math.nan, 2.0, 2.0, math.inf]))
    assert sum(keeper.counts) == 3
    assert (keeper.edges[0], keeper.edges[-1]) == (1.0, 2.0)
    hub.histogram("x", torch.ones(5))
    assert sum(keeper.counts) == 5
    hub.histogram("x", torch.tensor([math.nan]))
    assert sum(keeper.counts) == 5


# ---------------------------------------------------------------------- TensorBoard, by its own reader

needs_tensorboard = pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="tensorboard is not installed"
)


def read(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(run.directory / "tensorboard"), size_guidance=dict.fromkeys(
        ("scalars", "histograms", "images", "audio", "tensors"), 0)).Reload()  # fmt: skip


def scalars_of(events):
    times = ("samples_per_second", "memory_bytes", "save_stall_seconds")
    return {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]
            if tag not in times}  # fmt: skip


@pytest.mark.sliced(2)
@needs_tensorboard
@pytest.mark.parametrize("at", [2, 3, 4, 8, 11])
def test_tensorboard_reads_every_value_once(tmp_path, monkeypatch, at):
    whole = scalars_of(read(train(tmp_path / "whole", [ts.TensorBoardTracker()])))
    killed(tmp_path / "killed", [ts.TensorBoardTracker()], at, monkeypatch)
    again = train(tmp_path / "killed", [ts.TensorBoardTracker()])
    found = scalars_of(read(again))
    assert repr(found) == repr(whole)
    assert [step for step, _ in found["loss"]] == [2, 4, 6, 8, 10, 12]


@needs_tensorboard
def test_tensorboard_gets_what_run_log_takes(tmp_path):
    pytest.importorskip("PIL.Image")
    keeper = Keeper()
    keeper.media = lambda *told: keeper.told.append(("media", *told))
    with ts.Run(
        tmp_path / "a", trackers=[ts.TensorBoardTracker(), keeper], progress=False, quiet=True
    ) as run:
        run.log(
            picture=ts.Image(torch.rand(3, 4, 5)),
            words=ts.Text("one"),
            sound=ts.Audio(torch.zeros(80), rate=8000),
        )
    events = read(run)
    assert events.Tags()["images"] == ["picture"]
    assert events.Tags()["audio"] == ["sound"]
    assert "words/text_summary" in events.Tags()["tensors"]
    told = [entry for entry in keeper.told if entry[0] == "media"]
    assert [(name, kind) for _, name, kind, _, _ in told] == [
        ("picture", "image"),
        ("words", "text"),
        ("sound", "audio"),
    ]
    assert all(path.is_file() for _, _, _, path, _ in told)


@needs_tensorboard
def test_tensorboard_reads_everything_else(tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    image = pytest.importorskip("PIL.Image")
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(), nn.BatchNorm1d(2))
    image.new("RGB", (5, 4), (255, 0, 0)).save(tmp_path / "i.png")
    (tmp_path / "t.txt").write_text("words")
    with wave.open(str(tmp_path / "s.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\x00\x40" * 80)
    with ts.Run(tmp_path / "a", trackers=[ts.TensorBoardTracker()], progress=False, quiet=True) as run:
        run.log(error=0.5)
        figure, axes = pyplot.subplots(figsize=(1, 1))
        axes.plot([1, 2])
        run.trackers.figure("curve", figure)
        run.trackers.histogram("weights", torch.linspace(-1, 1, 100))
        before = [tensor.clone() for tensor in model.state_dict().values()], torch.get_rng_state()
        run.trackers.graph(model, torch.zeros(4, 3))
        assert all(map(torch.equal, before[0], model.state_dict().values()))
        assert torch.equal(before[1], torch.get_rng_state())
        assert model.training
        for kind, name in (("image", "i.png"), ("audio", "s.wav"), ("text", "t.txt")):
            run.trackers.media(kind, kind, tmp_path / name, 0)
    pyplot.close(figure)
    events = read(run)
    tags = events.Tags()
    assert tags["graph"]
    assert set(tags["images"]) == {"curve", "image"}
    assert tags["audio"] == ["audio"]
    assert "text/text_summary" in tags["tensors"]
    histogram = events.Histograms("weights")[0].histogram_value
    assert (histogram.num, histogram.min, histogram.max) == (100, -1, 1)
    assert events.Audio("audio")[0].sample_rate == 8000


def test_without_tensorboard_the_message_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ts.MissingPackageError, match=r"truestep\[tensorboard\]"):
        ts.TensorBoardTracker()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trackers": "wandb"}, r"trackers=\[ts\.WandbTracker"),
        ({"trackers": "MLflow"}, r"trackers=\[ts\.MlflowTracker"),
        ({"trackers": "tensorboard"}, r"trackers=\[ts\.TensorBoardTracker"),
        ({"wandb": True}, r"trackers=\[ts\.WandbTracker"),
        ({"report_to": "mlflow"}, r"ts\.MlflowTracker"),
    ],
)
def test_a_service_named_by_a_word_is_answered_with_its_tracker(tmp_path, options, said):
    with pytest.raises(ts.OptionError, match=said):
        ts.Run(tmp_path / "run", progress=False, quiet=True, **options)
