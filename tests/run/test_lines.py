# SPDX-License-Identifier: Apache-2.0
"""Lines of metrics are read together, and say what was true when each was due."""

import json
import weakref

import torch
from torch import nn

import truestep as ts
from truestep.run import logbook
from truestep.run.metrics_window import MOST_NOTED, LearnerLogWindow


def train(directory, steps, **options):
    """A run of so many steps, a line each; the losses of its updates, read one by one."""
    run = ts.Run(directory, log_every=1, device="cpu", progress=False, doctor=False, **options)
    torch.manual_seed(0)
    net = run.learner(
        nn.Linear(3, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        schedule=ts.per_update(lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5)),
    )
    data = run.data((torch.randn(4 * steps, 3, generator=torch.Generator().manual_seed(0)),), batch_size=4)
    losses, newest, waiting, norms = [], [], [], []
    for batch in run.batches(data):
        losses.append(float(net.update(lambda b: net(b[0]).squeeze(1).square(), batch).loss))
        norms.append(float(torch.nn.utils.get_total_norm([each.grad for each in net.parameters()])))
        waiting.append(len(run.logbook._readback))
        newest.append(run.logbook.newest.get("loss") if len(losses) == 50 else None)
    run.close()
    lines = [json.loads(line)["values"] for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert norms == [line["gradient_norm"] for line in lines]
    return losses, newest, waiting, lines


def test_each_line_says_what_was_true_at_its_step(tmp_path):
    losses, _, _, lines = train(tmp_path / "run", 20)
    assert losses == [line["loss"] for line in lines]
    assert [0.1 * 0.5**step for step in range(1, 21)] == [line["learning_rate"] for line in lines]


def test_few_lines_wait_to_be_read_and_whoever_asks_reads_them(tmp_path, monkeypatch):
    monkeypatch.setattr(logbook, "READ_SECONDS", 1e9)
    losses, newest, waiting, lines = train(tmp_path / "run", 3 * logbook.READ_LINES)
    assert max(waiting) == logbook.READ_LINES - 1
    assert newest[49] == losses[48]  # the line of step 50 is due when the next batch is asked for
    assert losses == [line["loss"] for line in lines]


def test_a_tracker_is_told_of_each_line_at_once(tmp_path):
    _, _, waiting, _ = train(tmp_path / "run", 5, trackers=[ts.CsvTracker()])
    assert set(waiting) == {0}


def learner(directory):
    """A learner that can be updated outside of a loop."""
    run = ts.Run(directory, device="cpu", progress=False, doctor=False)
    return run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))


def test_a_window_keeps_no_outputs_but_the_newest(tmp_path):
    net = learner(tmp_path / "run")
    window, batch = LearnerLogWindow(), torch.randn(4, 3)

    def loss(batch):
        hidden = net(batch)
        return ts.weighted(hidden.squeeze(1), outputs={"hidden": hidden})

    outputs = []
    for _ in range(3):
        update = net.update(loss, batch)
        outputs.append(weakref.ref(update.outputs["hidden"]))
        window.add(update)
        del update
    assert [each() is None for each in outputs] == [True, True, False]


def test_a_long_window_keeps_numbers(tmp_path):
    net = learner(tmp_path / "run")
    window = LearnerLogWindow()
    updates = [net.update(lambda b: net(b).squeeze(1), torch.randn(4, 3)) for _ in range(2 * MOST_NOTED + 1)]
    for update in updates:
        window.add(update)
    assert all(type(value) is float for value in window._values["loss"])
    assert len(window._noted) == 1
    expected = sum(float(update.loss) * 4 for update in updates) / (4 * len(updates))
    assert float(window.averages()["loss"]) == expected
