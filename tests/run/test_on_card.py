# SPDX-License-Identifier: Apache-2.0
"""Whole trainings on the stand-in of a card: bits, metrics, checkpoints, and what the host waits for."""

import json
import math

import pytest
import torch
from support.card import Card
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import truestep as ts
from truestep.core import device_specific

LATE_LINES = ("learning_rate", "updates_skipped")  # what is true of an update is known one update later
OF_MACHINE = ("samples_per_second", "memory_bytes", "save_stall_seconds")
ROWS = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))


class Rows(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return ROWS[index], index % 2


class Weighted(Rows):
    """Rows with a weight each, which a loss hands on."""

    def __getitem__(self, index):
        return ROWS[index], index % 2, torch.tensor(index % 3.0)


DATA = {"tensors": lambda: (ROWS, torch.arange(32) % 2), "samples": Rows, "weighted": Weighted}


def train(directory, device, *, data="tensors", num_epochs=2, card=None, **options):
    """Train; return the weights and what was logged. `card`: it may not make the host wait once the first steps are made."""
    options = {"log_every": 1, "watch_layers": 2, "progress": True, **options}
    with ts.Run(directory, device=device, saving=ts.Saving(every_seconds=3600), **options) as run:
        torch.manual_seed(0)
        module = nn.Sequential(
            nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2)
        )
        schedule = lambda o: ts.warmup_cosine(o, warmup_steps=2, total_steps=100)
        net = run.learner(
            module,
            lambda p: torch.optim.AdamW(p, lr=1e-3),
            ema=ts.EMA(),
            clip=ts.ClipNorm(1.0),
            schedule=schedule,
        )
        source = run.data(DATA[data](), batch_size=8, shuffle=True)

        def loss(batch):
            values = cross_entropy(net(batch[0]), batch[1], reduction="none")
            return ts.weighted(values, batch[2], size=values.square()) if len(batch) > 2 else values

        for _ in run.epochs(num_epochs):
            for number, batch in enumerate(run.batches(source)):
                if card is not None and number > 1:
                    assert card.reads == []
                net.update(loss, batch)
                if card is not None and number <= 1:
                    card.reads.clear()
            run.log(
                accuracy=net.evaluate(lambda batch: (net(batch[0]).argmax(1) == batch[1]).float(), source)
            )
        weights = [each.detach().cpu().clone() for each in module.state_dict().values()]
    lines = [json.loads(line)["values"] for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return weights, [
        {name: value for name, value in line.items() if name not in (*LATE_LINES, *OF_MACHINE)}
        for line in lines
    ]


def are_close(first, second):
    return all(
        a.keys() == b.keys() and all(math.isclose(a[name], b[name], rel_tol=1e-5) for name in a)
        for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize(
    ("kind", "device", "data"),
    [("cuda", "cuda", "tensors"), ("cuda", "cuda:1", "samples"), ("mps", "mps", "weighted")],
)
def test_a_training_on_a_card_ends_with_the_bits_of_the_host(tmp_path, kind, device, data):
    weights, lines = train(tmp_path / "host", "cpu", data=data)
    with Card(kind, count=2):
        found, found_lines = train(tmp_path / "card", device, data=data)
    assert all(map(torch.equal, weights, found))
    assert are_close(lines, found_lines)


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.sliced(2)
def test_a_run_that_went_on_ends_with_the_same_bits(tmp_path, device):
    with Card(count=2):
        weights, lines = train(tmp_path / "whole", device, num_epochs=2)
        train(tmp_path / "parts", device, num_epochs=1)
        found, found_lines = train(tmp_path / "parts", device, num_epochs=2)
    assert all(map(torch.equal, weights, found))
    assert lines == found_lines


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.sliced(3)
def test_lines_progress_and_watched_layers_make_the_host_wait_for_nothing_between_saves(
    tmp_path, device, data
):
    with Card(count=2) as card:
        train(tmp_path, device, data=data, card=card)


def test_a_read_that_is_put_into_a_line_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "truestep.run.logbook.send_to_host", lambda tensor: device_specific.AsyncHostCopy(tensor.cpu(), None)
    )
    with Card() as card, pytest.raises(AssertionError, match="a copy to the host at"):
        train(tmp_path, "cuda", card=card)


def test_an_event_of_another_card_would_be_found(tmp_path, monkeypatch):
    """What it was before: recorded in the current card's stream, where the run's is another."""

    def after_now(device):
        event = torch.Event(device)
        event.record()
        return event

    weights, lines = train(tmp_path / "host", "cpu")
    monkeypatch.setattr(device_specific, "_record_event", after_now)
    with Card(count=2):
        second = train(tmp_path / "second", "cuda:1", watch_layers=0)
        first = train(tmp_path / "first", "cuda:0", watch_layers=0)
    assert all(map(torch.equal, weights, first[0]))
    assert are_close(lines, first[1])
    assert not all(map(torch.equal, weights, second[0]))  # its flags were read before they had arrived


def test_memory_that_runs_out_splits_the_batch_and_the_update_is_made(tmp_path):
    def updated(directory, fails_at):
        with Card() as card, ts.Run(directory, device="cuda", progress=False) as run:
            torch.manual_seed(0)
            module = nn.Linear(8, 2)
            net = run.learner(module, lambda p: torch.optim.SGD(p, lr=0.1), micro_batch="auto")
            rows = torch.randn(32, 8).to("cuda")
            for _ in run.steps(1):
                card.fails_at = card.allocations + fails_at if fails_at else 0
                net.update(lambda batch: net(batch).square().sum(1), rows)
                assert card.allocations >= card.fails_at
            return [each.detach().cpu().clone() for each in module.parameters()]

    whole = updated(tmp_path / "whole", 0)
    for number in (1, 2, 3):
        torch.testing.assert_close(whole, updated(tmp_path / str(number), number))


def test_memory_is_that_of_the_cards_own_device(tmp_path):
    with Card(count=2):
        train(tmp_path, "cuda:1", num_epochs=1)
    first = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert first["values"]["memory_bytes"] == 1001


@pytest.mark.parametrize("ends_on", ["cpu", "cuda:1"])
def test_layers_of_a_model_over_a_card_and_the_host_are_told_as_they_were(ends_on):
    """The rows of all layers are put together: one on its way to the host would be NaN there."""

    def looked(devices):
        torch.manual_seed(0)
        layers = [nn.Linear(8, 16), nn.Linear(16, 4)]
        for layer, device in zip(layers, devices, strict=True):
            layer.to(device)
        net = nn.Sequential(layers[0], ToDevice(devices[1]), layers[1])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with ts.watch_layers(net, every=1) as watch:
            for _ in range(3):
                optimizer.zero_grad()
                net(ROWS.to(devices[0])).square().mean().backward()
                optimizer.step()
        return [layer for look in watch.looks for layer in look.layers]

    expected = looked(["cpu", "cpu"])
    with Card(count=2):
        assert looked(["cuda:0", ends_on]) == expected
        assert looked([ends_on, "cuda:0"]) == expected


class ToDevice(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.device = device

    def forward(self, values):
        return _Moved.apply(values, self.device)


class _Moved(torch.autograd.Function):
    """As `Tensor.to`, whose backward the stand-in does not see."""

    @staticmethod
    def forward(ctx, values, device):
        ctx.source = values.device
        return values.detach().to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def test_float64_is_asked_of_no_device_that_has_none(tmp_path):
    """Norms of parameters, histograms, and the statistics of batch normalisation."""

    class Told(ts.Tracker):
        def __init__(self):
            self.counts = []

        def histogram(self, name, counts, edges, step):
            self.counts.append(counts)

    def told(device):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).to(device)
        net(ROWS.to(device)).square().sum().backward()
        tracker = Told()
        with ts.Run(tmp_path / device, device=device, progress=False, trackers=[tracker]) as run:
            run.trackers.histogram("weights", net[0].weight)
        ts.nn.exact_batch_norm(net, [ROWS.to(device)])
        table = ts.parameters(net)
        return (
            tracker.counts,
            net[1].running_var.tolist(),
            [row.norm for row in table.rows],
            table.gradient_norm,
        )

    expected = told("cpu")
    with Card("mps"):
        assert told("mps") == expected
