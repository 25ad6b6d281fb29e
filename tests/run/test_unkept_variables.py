# SPDX-License-Identifier: Apache-2.0
"""A generator or a buffer of the loop's own that no checkpoint has is named in the first steps, before anything is lost."""

import random
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import truestep as ts

WORDS = "is in no checkpoint"


class Pole:
    def __init__(self):
        self.draw = np.random.default_rng(0)

    def step(self):
        return torch.as_tensor(self.draw.normal(size=2), dtype=torch.float32)


class KeptPole(Pole):
    def state_dict(self):
        return {"draw": self.draw.bit_generator.state}

    def load_state_dict(self, state):
        self.draw.bit_generator.state = state["draw"]


class Memory:
    def __init__(self):
        self.items, self.images = deque(maxlen=50), []

    def push(self, row):
        self.items.append(row)
        self.images.append(row)

    def sample(self, size):
        return torch.stack([self.items[number % len(self.items)] for number in range(size)])


class KeptMemory(Memory):
    def state_dict(self):
        return {"items": torch.stack([*self.items]) if self.items else torch.zeros(0, 2)}

    def load_state_dict(self, state):
        self.items = deque(state["items"], maxlen=50)


class Training:
    def __init__(self, folder):
        self.run = ts.Run(folder, device="cpu", progress=False, doctor=False)
        self.net = self.run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))

    def loss(self, batch):
        return self.net(batch)[:, 0].square()

    def update(self, batch):
        self.net.update(self.loss, batch)


def numpy_generator(t):
    rng = np.random.default_rng(0)
    for _ in t.run.steps(4):
        t.update(torch.as_tensor(rng.normal(size=(4, 2)), dtype=torch.float32))


def torch_generator(t):
    generator = torch.Generator().manual_seed(0)
    for _ in t.run.steps(4):
        t.update(torch.randn(4, 2, generator=generator))


def python_generator(t):
    own = random.Random(0)
    for _ in t.run.steps(4):
        t.update(torch.full((4, 2), own.random()))


def old_numpy_generator(t):
    rng = np.random.RandomState(0)
    data = t.run.data(torch.randn(32, 2), batch_size=8)
    for _ in t.run.epochs(1):
        for batch in t.run.batches(data):
            t.update(batch + float(rng.rand()))


def of_environment(t):
    pole = Pole()
    for _ in t.run.steps(4):
        t.update(torch.stack([pole.step(), pole.step()]))


def in_loss(t):
    generator = torch.Generator().manual_seed(0)

    def loss(batch):
        return t.net(batch + torch.randn(batch.shape, generator=generator))[:, 0].square()

    for _ in t.run.steps(4):
        t.net.update(loss, torch.ones(4, 2))


def in_function(t):
    rng = np.random.default_rng(0)

    def rows():
        return torch.as_tensor(rng.normal(size=(4, 2)), dtype=torch.float32)

    for _ in t.run.steps(4):
        t.update(rows())


def in_dict(t):
    tools = SimpleNamespace(rng=np.random.default_rng(0))
    for _ in t.run.steps(4):
        t.update(torch.as_tensor(tools.rng.normal(size=(4, 2)), dtype=torch.float32))


def list_of_rows(t):
    rows = []
    for _ in t.run.steps(4):
        rows.append(torch.randn(2))
        t.update(torch.stack(random.choices(rows, k=4)))


def deque_of_transitions(t):
    memory = deque(maxlen=100)
    for number in t.run.steps(8):
        memory.append((torch.randn(2), number, 1.0))
        if len(memory) > 2:
            t.update(torch.stack([row for row, _, _ in random.sample(memory, 2)]))


def memory_of_class(t):
    memory = Memory()
    for _ in t.run.steps(4):
        memory.push(torch.randn(2))
        t.update(memory.sample(4))


def bounded_by_hand(t):
    rows = []
    for _ in t.run.steps(4):
        rows.append(torch.randn(2))
        if len(rows) > 3:
            rows.pop(0)
        t.update(torch.stack(random.choices(rows, k=4)))


def beside_a_target(t):
    rng, target = np.random.default_rng(0), nn.Linear(2, 1)
    t.run.track(target=target)
    for _ in t.run.steps(4):
        t.update(torch.as_tensor(rng.normal(size=(4, 2)), dtype=torch.float32))
        target.load_state_dict(t.net.module.state_dict())


def consumed(t):
    waiting = []
    for _ in t.run.steps(4):
        waiting.extend(torch.randn(2, 2))
        while len(waiting) > 1:
            t.update(waiting.pop(0)[None])


def seeded_by_function(t):
    generator = torch.Generator()

    def seed(of, number):
        of.manual_seed(number)

    for number in t.run.steps(4):
        seed(generator, number)
        t.update(torch.randn(4, 2, generator=generator))


def tracked_generator(t):
    rng = np.random.default_rng(0)
    t.run.track(rng=rng)
    for _ in t.run.steps(4):
        t.update(torch.as_tensor(rng.normal(size=(4, 2)), dtype=torch.float32))


def tracked_environment(t):
    pole = KeptPole()
    t.run.track(pole=pole)
    for _ in t.run.steps(4):
        t.update(torch.stack([pole.step(), pole.step()]))


def tracked_memory(t):
    memory = KeptMemory()
    t.run.track(memory=memory)
    for _ in t.run.steps(4):
        memory.push(torch.randn(2))
        t.update(memory.sample(4))


def early_stop(t, *, tracked=False):
    data = t.run.data(torch.randn(16, 2), batch_size=8)
    early = ts.EarlyStopping(patience=3, mode="min")
    if tracked:
        t.run.track(early=early)
    for _ in t.run.epochs(2):
        for batch in t.run.batches(data):
            t.update(batch)
        if early.step(t.net.evaluate(t.loss, data)):
            t.run.finish()


def early_stop_of_a_trainer(t):
    class Trainer:
        def __init__(self):
            self.stopping = ts.EarlyStopping(patience=3, mode="max")

        def validate(self):
            return self.stopping.step(0.5)

    trainer = Trainer()
    for _ in t.run.steps(4):
        t.update(torch.randn(4, 2))
        trainer.validate()


def early_stop_tracked(t):
    early_stop(t, tracked=True)


def early_stop_of_another_loop(t):
    early = ts.EarlyStopping(patience=3, mode="min")
    early.step(1.0)
    for _ in t.run.steps(4):
        t.update(torch.randn(4, 2))


def made_anew(t):
    for number in t.run.steps(4):
        rng = np.random.default_rng(number)
        t.update(torch.as_tensor(rng.normal(size=(4, 2)), dtype=torch.float32))


def seeded_anew(t):
    generator = torch.Generator()
    for number in t.run.steps(4):
        generator.manual_seed(number)
        t.update(torch.randn(4, 2, generator=generator))


def own_streams(t):
    for _ in t.run.steps(4):
        t.update(torch.randn(4, 2) + random.random() + float(np.random.rand()))


def not_drawn_from(t):
    rng = np.random.default_rng(0)
    for _ in t.run.steps(4):
        if t.run.step > 100:
            print(rng.normal())
        t.update(torch.randn(4, 2))


def history_of_numbers(t):
    losses = []
    for _ in t.run.steps(4):
        t.update(torch.randn(4, 2))
        losses.append(1.0)
        t.run.log(mean=sum(losses[-10:]) / 10)


def pictures(t):
    pictures = []
    for _ in t.run.steps(4):
        t.update(torch.randn(4, 2))
        pictures.append(torch.zeros(3, 4, 4))
    torch.stack(pictures)


def pictures_shown(t):
    def show(pictures):
        return torch.stack(pictures).mean()

    pictures = []
    for step in t.run.steps(4):
        t.update(torch.randn(4, 2))
        pictures.append(torch.zeros(3, 4, 4))
        if step % 2 == 0:
            t.run.log(shown=float(show(pictures)), last=float(pictures[-1].mean()))


def agent_that_learns(t):
    class Agent:
        def __init__(self):
            self.memory = Memory()

        def learn(self):
            rows = self.memory.sample(4)
            t.update(rows)

    agent = Agent()
    for _ in t.run.steps(4):
        agent.memory.push(torch.randn(2))
        agent.learn()


def taken_apart(t):
    memory = deque(maxlen=100)
    for number in t.run.steps(8):
        memory.append((torch.randn(2), number))
        seen = []
        for row, _ in memory:
            seen.append(row)
        t.update(torch.stack(seen))


def read_by_the_loss(t):
    bank = [torch.ones(2)]

    def loss(batch):
        return (t.net(batch) - t.net(torch.stack(bank)).mean())[:, 0].square()

    for _ in t.run.steps(4):
        t.net.update(loss, torch.randn(4, 2))
        bank.append(torch.randn(2))


def rollout_cleared(t):
    rows = []
    for _ in t.run.steps(4):
        for _ in range(4):
            rows.append(torch.randn(2))
        t.update(torch.stack(rows))
        rows.clear()


def rollout_made_anew(t):
    for _ in t.run.steps(4):
        rows = []
        for _ in range(4):
            rows.append(torch.randn(2))
        t.update(torch.stack(rows))


def in_state(t):
    t.run.state["rows"] = rows = []
    for _ in t.run.steps(4):
        rows.append([1.0, 2.0])
        t.update(torch.tensor(random.choices(rows, k=4)))


def drawn_before_the_loop(t):
    rng = np.random.default_rng(0)
    rows = torch.as_tensor(rng.normal(size=(4, 2)), dtype=torch.float32)
    for _ in t.run.steps(4):
        t.update(rows)


def list_that_stays(t):
    rows = [torch.randn(2) for _ in range(8)]
    for _ in t.run.steps(4):
        t.update(torch.stack(random.choices(rows, k=4)))


GENERATORS = [
    *(numpy_generator, torch_generator, python_generator, old_numpy_generator),
    *(of_environment, in_loss, in_function, in_dict, beside_a_target),
]
BUFFERS = [
    *(agent_that_learns, taken_apart, read_by_the_loss),
    list_of_rows,
    bounded_by_hand,
    deque_of_transitions,
    memory_of_class,
]
SILENT = [
    *(consumed, seeded_by_function, pictures_shown, early_stop_tracked, early_stop_of_another_loop),
    *(
        tracked_generator,
        tracked_environment,
        tracked_memory,
        made_anew,
        seeded_anew,
        own_streams,
        not_drawn_from,
    ),
    *(
        history_of_numbers,
        pictures,
        rollout_cleared,
        rollout_made_anew,
        in_state,
        drawn_before_the_loop,
        list_that_stays,
    ),
]


COUNTS = [early_stop, early_stop_of_a_trainer]


@pytest.mark.parametrize("variant", GENERATORS + BUFFERS + COUNTS)
def test_what_is_in_no_checkpoint_is_named(tmp_path, capsys, variant):
    variant(Training(tmp_path / "run"))
    assert capsys.readouterr().err.count(WORDS) == 1


@pytest.mark.parametrize("variant", SILENT)
def test_what_is_kept_or_made_anew_is_left_alone(tmp_path, capsys, variant):
    variant(Training(tmp_path / "run"))
    assert WORDS not in capsys.readouterr().err
