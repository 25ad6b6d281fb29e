# SPDX-License-Identifier: Apache-2.0
"""A best value, a count of bodies without one, and what a loop only adds to: no checkpoint has them, and the run says so."""

import time

import pytest
import torch
from torch import nn

import truestep as ts

KEPT, ADDED = "which the loop compares and sets", "which the loop adds to"


class Training:
    def __init__(self, folder):
        self.run = ts.Run(folder, device="cpu", progress=False, doctor=False, watch_layers=0)
        self.net = self.run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        self.data = self.run.data(torch.ones(16, 2), batch_size=8)
        self.best, self.waited = 0.0, 0

    def loss(self, batch):
        return self.net(batch)[:, 0].square()

    def update(self, batch):
        return self.net.update(self.loss, batch).loss

    def epoch(self):
        for batch in self.run.batches(self.data):
            self.update(batch)
        return float(self.net.evaluate(self.loss, self.data))

    def keep(self, value):
        if value > self.best:
            self.best = value


def compared(t):
    best = 0.0
    for _ in t.run.epochs(2):
        value = t.epoch()
        if value > best:
            best = value


def other_way_round(t):
    best = float("inf")
    for _ in t.run.epochs(2):
        value = t.epoch()
        if best > value:
            best, best_epoch = value, t.run.epoch
            print(best_epoch)


def greatest(t):
    best = 0.0
    for _ in t.run.epochs(2):
        best = max(best, t.epoch())


def if_expression(t):
    best = 0.0
    for _ in t.run.epochs(2):
        value = t.epoch()
        best = value if value > best else best


def none_at_first(t):
    best = None
    for _ in t.run.epochs(2):
        value = t.epoch()
        if best is None or value < best:
            best = value


def by_a_flag(t):
    best = torch.tensor(0.0)
    for _ in t.run.epochs(2):
        value = torch.tensor(t.epoch())
        is_better = value > best
        if is_better:
            best = value.clone()


def by_a_margin(t):
    best = 1e9
    for batch in t.run.batches(t.data):
        value = t.update(batch).item()
        if value < best - 1e-4:
            best = value


def attribute(t):
    for _ in t.run.epochs(2):
        value = t.epoch()
        if value > t.best:
            t.best = value


def method(t):
    for _ in t.run.epochs(2):
        t.keep(t.epoch())


def member(t):
    best = {"loss": 0.0}
    for _ in t.run.epochs(2):
        values = {"loss": t.epoch()}
        if values["loss"] > best["loss"]:
            best["loss"] = values["loss"]


def patience(t):
    waited, last = 0, 0.0
    for _ in t.run.epochs(2):
        value = t.epoch()
        if value < last:
            waited = 0
        else:
            waited += 1
            if waited >= 5:
                t.run.finish()
        last = value


FAULTY = [
    compared,
    other_way_round,
    greatest,
    if_expression,
    none_at_first,
    by_a_flag,
    by_a_margin,
    attribute,
    method,
    member,
    patience,
]


def in_the_state(t):
    t.run.state.setdefault("best", 0.0)
    for _ in t.run.epochs(2):
        value = t.epoch()
        if value > t.run.state["best"]:
            t.run.state["best"] = value


def anew_in_each_epoch(t):
    for _ in t.run.epochs(2):
        best = 0.0
        for batch in t.run.batches(t.data):
            value = t.update(batch).item()
            if value > best:
                best = value


def of_a_list_within(t):
    best = 0.0
    for _ in t.run.epochs(2):
        best = 0.0
        for value in [t.epoch(), 1.0]:
            if value > best:
                best = value


def tracked(t):
    class Best:
        value = 0.0

        def state_dict(self):
            return {"value": self.value}

        def load_state_dict(self, state):
            self.value = state["value"]

    best = Best()
    best.value = 0.0
    t.run.track(best=best)
    for _ in t.run.epochs(2):
        value = t.epoch()
        if value > best.value:
            best.value = value


def by_the_clock(t):
    shown = time.monotonic()
    for batch in t.run.batches(t.data):
        t.update(batch)
        if time.monotonic() - shown > 100:
            shown = time.monotonic()


def by_the_step(t):
    shown = 0
    for batch in t.run.batches(t.data):
        t.update(batch)
        if t.run.step > shown:
            shown = t.run.step


def flag(t):
    is_first = True
    for batch in t.run.batches(t.data):
        t.update(batch)
        if is_first:
            is_first = False


def mean_for_a_line(t):
    for _ in t.run.epochs(2):
        total, count = 0.0, 0
        for batch in t.run.batches(t.data):
            total += t.update(batch).item()
            count += 1
        print(total / count)


def count_for_a_line(t):
    count = 0
    for batch in t.run.batches(t.data):
        t.update(batch)
        count += len(batch)
        if count % 10 == 0:
            print(count)


def local_to_a_function(t):
    def largest(values):
        best = 0.0
        for value in values:
            if value > best:
                best = value
        return best

    best = 0.0
    for _ in t.run.epochs(2):
        print(largest([t.epoch(), best]))


RIGHT = [
    in_the_state,
    anew_in_each_epoch,
    of_a_list_within,
    tracked,
    by_the_clock,
    by_the_step,
    flag,
    mean_for_a_line,
    count_for_a_line,
    local_to_a_function,
]


@pytest.mark.parametrize("train", FAULTY)
def test_a_best_value_that_no_checkpoint_has_is_named_in_the_first_body(tmp_path, capsys, train):
    train(Training(tmp_path))
    assert capsys.readouterr().err.count(KEPT) == 1


@pytest.mark.parametrize("train", RIGHT)
def test_what_is_kept_or_begins_anew_is_not_named(tmp_path, capsys, train):
    train(Training(tmp_path))
    assert KEPT not in capsys.readouterr().err


def history(t):
    losses, seen = [], 0
    for _ in t.run.epochs(2):
        losses.append(t.epoch())
        seen += 1
        if t.run.epoch == 0 and not t.stopped:
            t.run.close()
            return
    print(losses, seen)


def not_read_behind(t):
    losses = []
    for _ in t.run.epochs(2):
        losses.append(t.epoch())
        print(losses[-1])
        if t.run.epoch == 0 and not t.stopped:
            t.run.close()
            return


@pytest.mark.parametrize(("train", "named"), [(history, True), (not_read_behind, False)])
def test_what_is_only_added_to_is_named_where_the_run_goes_on(tmp_path, capsys, train, named):
    first = Training(tmp_path)
    first.stopped = False
    for _ in first.run.epochs(1):
        first.epoch()
    assert ADDED not in capsys.readouterr().err
    again = Training(tmp_path)
    again.stopped = True
    train(again)
    assert ("losses and seen, " + ADDED in capsys.readouterr().err) is named
