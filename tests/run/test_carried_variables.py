# SPDX-License-Identifier: Apache-2.0
"""What a loop changes in a plain variable and the next body trains on: an observation, a hidden state, a rate of its own."""

import random

import pytest
import torch
from torch import nn

import truestep as ts

CARRIED = "which the loop changes and the training reads in the next body"
TEMPERATURE = 1.0


class Buffer:
    def __init__(self):
        self.rows = [torch.zeros(2)]

    def push(self, row):
        self.rows = [*self.rows[-3:], row]

    def sample(self):
        return torch.stack(self.rows)

    def state_dict(self):
        return {"rows": self.rows}

    def load_state_dict(self, state):
        self.rows = state["rows"]


class Schedule:
    temperature = 1.0

    def state_dict(self):
        return {"temperature": self.temperature}

    def load_state_dict(self, state):
        self.temperature = state["temperature"]


class Meter:
    def __init__(self):
        self.mean = 0.0

    def add(self, value):
        self.mean = 0.9 * self.mean + 0.1 * value


class Training:
    def __init__(self, folder):
        self.run = ts.Run(folder, device="cpu", progress=False, doctor=False, watch_layers=0)
        self.net = self.run.learner(nn.Linear(2, 2), lambda p: torch.optim.SGD(p, lr=0.1))
        self.data = self.run.data(torch.ones(4, 2), batch_size=2)
        self.temperature = self.mean = 1.0

    def loss(self, batch):
        return self.net(batch).square().mean(1)

    def own_loss(self, batch):
        return self.net(batch).square().mean(1) / self.temperature

    def update(self, batch):
        return self.net.update(self.loss, batch).loss

    def decay(self):
        self.temperature *= 0.8

    def note(self, value):
        self.mean = 0.9 * self.mean + 0.1 * value


def number_in_a_closure(t):
    temperature = 1.0

    def loss(batch):
        return t.net(batch).square().mean(1) / temperature

    for _ in t.run.epochs(1):
        for batch in t.run.batches(t.data):
            t.net.update(loss, batch)
        temperature *= 0.8


def number_in_a_lambda(t):
    weight = 0.0
    for _ in t.run.epochs(1):
        for batch in t.run.batches(t.data):
            t.net.update(lambda rows: t.loss(rows) * weight, batch)  # noqa: B023
        weight = min(1.0, weight + 0.1)


def number_of_the_module(t):
    def loss(batch):
        return t.net(batch).square().mean(1) / TEMPERATURE

    global TEMPERATURE
    for batch in t.run.batches(t.data):
        t.net.update(loss, batch)
        TEMPERATURE *= 0.8


def attribute(t):
    for batch in t.run.batches(t.data):
        t.net.update(t.own_loss, batch)
        t.temperature *= 0.8


def method(t):
    for batch in t.run.batches(t.data):
        t.net.update(t.own_loss, batch)
        t.decay()


def member(t):
    options = {"temperature": 1.0}
    for batch in t.run.batches(t.data):
        t.net.update(lambda rows: t.loss(rows) / options["temperature"], batch)
        options["temperature"] *= 0.8


def now_and_then(t):
    scale = 1.0
    for step in t.run.steps(2):
        t.net.update(t.loss, torch.ones(2, 2) * scale)
        if step % 10 == 9:
            scale = scale / 2


def threshold_of_a_draw(t):
    epsilon = 1.0
    for _ in t.run.steps(2):
        action = t.net(torch.ones(2, 2)).detach()
        if random.random() < epsilon:
            action = torch.rand(2, 2)
        t.net.update(t.loss, action)
        epsilon = max(0.05, epsilon * 0.99)


def observation(t):
    seen = torch.zeros(2, 2)
    for _ in t.run.steps(2):
        action = t.net(seen).argmax(1, keepdim=True)
        following = seen + action
        t.net.update(t.loss, torch.cat([seen, following]))
        seen = following


def observation_in_a_buffer(t):
    buffer = Buffer()
    t.run.track(buffer=buffer)
    seen, done = torch.zeros(2), False
    for _ in t.run.steps(2):
        following, done = seen + 1, not done
        buffer.push(following)
        t.net.update(t.loss, buffer.sample())
        seen = torch.zeros(2) if done else following


def hidden_state(t):
    hidden = None
    for batch in t.run.batches(t.data):
        hidden = batch if hidden is None else 0.5 * hidden + batch
        t.net.update(t.loss, hidden)
        hidden = hidden.detach()


def hidden_state_of_an_epoch(t):
    for _ in t.run.epochs(1):
        hidden = torch.zeros(2, 2)
        for batch in t.run.batches(t.data):
            t.net.update(t.loss, batch + hidden)
            hidden = t.net(batch).detach()


def mean_of_rewards(t):
    baseline = 0.0
    for batch in t.run.batches(t.data):
        reward = batch.sum(1)
        t.net.update(lambda rows: t.loss(rows[0]) * rows[1], (batch, reward - baseline))
        baseline = 0.9 * baseline + 0.1 * reward.mean().item()


def counter_that_decides(t):
    turn = torch.tensor(0)
    for batch in t.run.batches(t.data):
        turn += 1
        if turn % 2 == 0:
            t.net.update(t.loss, batch)


def taken_before(t):
    rows = torch.ones(2, 2)
    for _ in t.run.steps(2):
        now, rows = rows, rows * 0.5
        t.net.update(t.loss, now)


def rate_of_its_own(t):
    rate = 0.1
    for batch in t.run.batches(t.data):
        t.net.update(t.loss, batch)
        rate *= 0.9
        for group in t.net.optimizers[0].param_groups:
            group["lr"] = rate


def list_of_rows(t):
    window = [torch.ones(2), torch.ones(2)]
    for batch in t.run.batches(t.data):
        t.net.update(t.loss, torch.stack(window))
        window = [*window[1:], batch[0]]


class Bank:
    def __init__(self):
        self.rows = []

    def push(self, row):
        self.rows.append(row.detach())
        self.rows = self.rows[-3:]


class SlottedBank:
    __slots__ = ("rows",)

    def __init__(self):
        self.rows = torch.zeros(4, 2)

    def push(self, row):
        self.rows = torch.cat([self.rows, row.unsqueeze(0)])[-4:]


class FitWithQueue:
    def __init__(self, t):
        self.t, self.queue = t, torch.zeros(4, 2)

    def loss(self, batch):
        return self.t.net(batch + self.queue.mean()).square().mean(1)

    def own_queue_loss(self, batch):
        queue = self.queue[:2]
        return self.loss(batch) + queue.mean()

    def fit(self):
        for _ in self.t.run.epochs(1):
            for batch in self.t.run.batches(self.t.data):
                self.queue = torch.cat([self.queue, batch])[-4:]
                self.t.net.update(self.loss, batch)

    def fit_behind_a_method(self):
        for batch in self.t.run.batches(self.t.data):
            self.step(batch)

    def step(self, batch):
        self.t.net.update(self.own_queue_loss, batch)
        self.queue = torch.cat([self.queue, batch])[-4:]

    def fit_with_a_queue_of_each_batch(self):
        for batch in self.t.run.batches(self.t.data):
            self.queue = torch.cat([batch, batch])
            self.t.net.update(self.loss, batch)

    def fit_and_show(self):
        for batch in self.t.run.batches(self.t.data):
            self.queue = torch.cat([self.queue, batch])[-4:]
            self.t.net.update(self.t.loss, batch)
            print(self.queue.mean())


def bank_of_a_list(t):
    bank = Bank()
    for batch in t.run.batches(t.data):
        bank.push(batch[0])
        rows = torch.stack(bank.rows)
        t.net.update(lambda given: t.loss(given) + rows.mean(), batch)  # noqa: B023


def bank_with_slots(t):
    bank = SlottedBank()
    for batch in t.run.batches(t.data):
        bank.push(batch[0])
        t.net.update(lambda given: t.loss(given) + bank.rows.mean(), batch)


def queue_of_a_class_with_fit(t):
    FitWithQueue(t).fit()


def queue_behind_a_method(t):
    FitWithQueue(t).fit_behind_a_method()


def mean_of_a_closure(t):
    def stepping():
        mean = 0.0

        def step(batch):
            nonlocal mean
            mean = 0.9 * mean + 0.1 * batch.mean()
            t.net.update(lambda rows: t.loss(rows) + mean, batch)

        return step

    step = stepping()
    for batch in t.run.batches(t.data):
        step(batch)


def mean_of_a_closure_that_is_shown(t):
    def stepping():
        mean = 0.0

        def step(batch):
            nonlocal mean
            mean = 0.9 * mean + 0.1 * t.net.update(t.loss, batch).loss.item()
            print(mean)

        return step

    step = stepping()
    for batch in t.run.batches(t.data):
        step(batch)


def queue_of_each_batch(t):
    FitWithQueue(t).fit_with_a_queue_of_each_batch()


def queue_that_is_shown(t):
    FitWithQueue(t).fit_and_show()


def bank_that_is_counted(t):
    bank = Bank()
    for batch in t.run.batches(t.data):
        bank.push(batch[0])
        t.net.update(t.loss, batch)
        print(len(bank.rows))


FAULTY = [
    bank_of_a_list,
    bank_with_slots,
    queue_of_a_class_with_fit,
    queue_behind_a_method,
    mean_of_a_closure,
    number_in_a_closure,
    number_in_a_lambda,
    number_of_the_module,
    attribute,
    method,
    member,
    now_and_then,
    threshold_of_a_draw,
    observation,
    observation_in_a_buffer,
    hidden_state,
    hidden_state_of_an_epoch,
    mean_of_rewards,
    counter_that_decides,
    taken_before,
    rate_of_its_own,
    list_of_rows,
]


def of_the_epoch(t):
    temperature = 1.0
    for epoch in t.run.epochs(1):
        temperature = 0.8**epoch
        for batch in t.run.batches(t.data):
            t.net.update(lambda rows: t.loss(rows) / temperature, batch)  # noqa: B023


def of_the_step(t):
    weight = 0.0
    for batch in t.run.batches(t.data):
        weight = min(1.0, t.run.step / 100)
        t.net.update(lambda rows: t.loss(rows) * weight, batch)  # noqa: B023


def never_changed(t):
    weight = 0.5
    for batch in t.run.batches(t.data):
        t.net.update(lambda rows: t.loss(rows) * weight, batch)


def in_the_state(t):
    t.run.state.setdefault("temperature", 1.0)
    for batch in t.run.batches(t.data):
        t.net.update(lambda rows: t.loss(rows) / t.run.state["temperature"], batch)
        t.run.state["temperature"] *= 0.8


def tracked(t):
    schedule = Schedule()
    t.run.track(schedule=schedule)
    for batch in t.run.batches(t.data):
        t.net.update(lambda rows: t.loss(rows) / schedule.temperature, batch)
        schedule.temperature *= 0.8


def only_shown(t):
    mean = 0.0
    for batch in t.run.batches(t.data):
        mean = 0.9 * mean + 0.1 * t.update(batch).item()
        print(f"{mean:.3f}")


def only_logged(t):
    mean = 0.0
    for batch in t.run.batches(t.data):
        mean = 0.9 * mean + 0.1 * t.update(batch).item()
        t.run.log(mean=mean)


def attribute_only_shown(t):
    for batch in t.run.batches(t.data):
        t.mean = 0.9 * t.mean + 0.1 * t.net.update(t.loss, batch).loss.item()
        t.note(t.mean)


def meter_only_shown(t):
    meter = Meter()
    for batch in t.run.batches(t.data):
        meter.add(t.net.update(t.loss, batch).loss.item())
        print(meter.mean)


def begun_in_each_body(t):
    seen = None
    for _ in t.run.steps(2):
        seen = torch.zeros(2, 2)
        for _ in range(3):
            seen = seen + t.net(seen).detach()
        t.net.update(t.loss, seen)


def counter_of_lines(t):
    count = 0
    for batch in t.run.batches(t.data):
        count += len(batch)
        if count % 10 == 0:
            print(count)
        t.net.update(t.loss, batch)


def of_another_function(t):
    def loss(batch):
        total = t.net(batch).square()
        return total.mean(1)

    total = 0.0
    for batch in t.run.batches(t.data):
        total = total + t.net.update(loss, batch).loss.item()
        print(total)


def shown_at_the_top(t):
    last = None
    for batch in t.run.batches(t.data):
        if last is not None:
            print(last.loss)
        last = t.net.update(t.loss, batch)


def of_an_evaluation(t):
    bound = 0.5
    for _ in t.run.epochs(1):
        for batch in t.run.batches(t.data):
            t.net.update(t.loss, batch)
        values = t.net.evaluate(lambda rows: (t.net(rows).mean(1) > bound).float(), t.data)  # noqa: B023
        bound = 0.9 * bound + 0.1 * float(values)


def within_a_call(t):
    def loss(batch):
        hidden = torch.zeros(2)
        for row in batch:
            hidden = 0.5 * hidden + row
        return t.net(batch + hidden).square().mean(1)

    for batch in t.run.batches(t.data):
        t.net.update(loss, batch)


def parts_of_a_batch(t):
    for batch in t.run.batches(t.data):
        rows = batch * 2
        rows = rows + 1
        t.net.update(t.loss, rows)


def mean_of_an_epoch(t):
    for _ in t.run.epochs(1):
        total, count = 0.0, 0
        for batch in t.run.batches(t.data):
            total += t.update(batch).item()
            count += 1
        t.run.log(loss=total / count)


RIGHT = [
    mean_of_a_closure_that_is_shown,
    queue_of_each_batch,
    queue_that_is_shown,
    bank_that_is_counted,
    of_the_epoch,
    of_the_step,
    never_changed,
    in_the_state,
    tracked,
    only_shown,
    only_logged,
    attribute_only_shown,
    meter_only_shown,
    begun_in_each_body,
    counter_of_lines,
    of_another_function,
    shown_at_the_top,
    of_an_evaluation,
    within_a_call,
    parts_of_a_batch,
    mean_of_an_epoch,
]


@pytest.mark.parametrize("train", FAULTY)
def test_what_the_training_is_made_of_and_no_checkpoint_has_is_named(tmp_path, capsys, train):
    train(Training(tmp_path))
    assert capsys.readouterr().err.count(CARRIED) == 1


@pytest.mark.parametrize("train", RIGHT)
def test_what_is_kept_made_anew_or_shown_is_not(tmp_path, capsys, train):
    train(Training(tmp_path))
    assert CARRIED not in capsys.readouterr().err
