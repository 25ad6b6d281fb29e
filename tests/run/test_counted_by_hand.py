# SPDX-License-Identifier: Apache-2.0
"""A loop that counts the batches itself is named in the first bodies: behind a stop it would count from its beginning again."""

import ast
import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.run.manual_batch_counting import _LoopBound, _RunningSource
from truestep.run.name_resolution import SourceNameResolver

WORDS = "counts the batches that it takes"
N = 6


class Training:
    def __init__(self, folder):
        self.run = ts.Run(folder, device="cpu", progress=False, doctor=False, watch_layers=0)
        self.net = self.run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        self.data = self.run.data(torch.ones(32, 2), batch_size=8)

    def loss(self, batch):
        return self.net(batch)[:, 0].square()

    def update(self, batch):
        self.net.update(self.loss, batch)

    def endless(self):
        while True:
            yield from self.passes()

    def passes(self):
        for batch in self.run.batches(self.data):
            yield batch.clone()

    def range_and_next(self):
        it = self.endless()
        for _ in range(N):
            self.update(next(it))

    def class_of_its_own(self):
        it = Endless(self)
        for _ in range(1, N + 1):
            self.update(next(it))

    def begun_again(self):
        it = iter(self.run.batches(self.data))
        for _ in range(N):
            try:
                batch = next(it)
            except StopIteration:
                it = iter(self.run.batches(self.data))
                batch = next(it)
            self.update(batch)

    def bar_around(self):
        it = self.endless()
        for _ in reversed(range(N)):
            self.update(next(it))

    def while_below(self):
        it, n = self.endless(), 0
        n = 0
        while n < N:
            self.update(next(it))
            n += 1

    def zipped(self):
        for _, batch in zip(range(N), self.endless(), strict=False):
            self.update(batch)

    def sliced(self):
        for batch in itertools.islice(self.endless(), N):
            self.update(batch)

    def sliced_beforehand(self):
        few = itertools.islice(self.endless(), N)
        for batch in few:
            self.update(batch)

    def numbered_and_left(self):
        for i, batch in enumerate(self.endless()):
            if i == N:
                break
            self.update(batch)

    def added_and_left(self):
        n = 0
        for batch in self.endless():
            self.update(batch)
            n += 1  # noqa: SIM113  (as people write it)
            if n >= N:
                return

    def in_a_function(self):
        it = self.endless()

        def take():
            return next(it)

        for _ in range(N):
            self.update(take())

    def range_within_range(self):
        it = self.endless()
        for _ in range(2):
            for _ in range(3):
                self.update(next(it))

    def left_within_an_epoch(self):
        for _ in self.run.epochs(2):
            for i, batch in enumerate(self.run.batches(self.data)):
                if i >= 3:
                    break
                self.update(batch)

    def critic_five_times(self):
        for _ in self.run.epochs(2):
            it = iter(self.run.batches(self.data))
            for _ in range(2):
                for _ in range(2):
                    self.update(next(it))

    def step_read_too_early(self):
        it = self.endless()
        start = self.run.step
        for _ in range(start, N):
            self.update(next(it))

    def steps(self):
        it = self.endless()
        for _ in self.run.steps(N):
            for _ in range(2):
                self.update(next(it))

    def while_step(self):
        it = self.endless()
        while self.run.step < N:
            self.update(next(it))

    def step_read_in_time(self):
        it = iter(self.run.batches(self.data, limit=N))
        for _ in range(self.run.step, N):
            self.update(next(it))

    def left_at_step(self):
        for batch in self.endless():
            self.update(batch)
            if self.run.step >= N:
                break

    def range_left_at_step(self):
        it = self.endless()
        for _ in range(100):
            self.update(next(it))
            if self.run.step >= N:
                break

    def limit(self):
        for i, batch in enumerate(self.run.batches(self.data, limit=N)):
            self.update(batch)
            if i % 2 == 0:
                self.run.log(seen=float(i))

    def passes_counted(self):
        for _ in range(2):
            for batch in self.passes():
                self.update(batch)

    def as_many_as_there_are(self):
        for _ in self.run.epochs(2):
            batches = self.run.batches(self.data)
            it = iter(batches)
            for _ in range(len(batches)):
                self.update(next(it))

    def until_the_end(self):
        it = iter(self.run.batches(self.data))
        for _ in range(100):
            batch = next(it, None)
            if batch is None:
                break
            self.update(batch)

    def finished_at_step(self):
        it = self.endless()
        for _ in itertools.count():
            self.update(next(it))
            if self.run.step == N:
                self.run.finish()
                break

    def counted_in_state(self):
        self.run.state.setdefault("n", 0)
        it = self.endless()
        while self.run.state["n"] < N:
            self.update(next(it))
            self.run.state["n"] += 1

    def second_source(self):
        it = self.endless()
        for batch in self.run.batches(self.run.data(torch.ones(16, 2), batch_size=8)):
            self.update(batch)
            for _ in range(3):
                self.update(next(it))

    def no_better(self):
        bad = 0
        for _ in self.run.epochs(2):
            for batch in self.run.batches(self.data):
                self.update(batch)
            bad += 1  # noqa: SIM113
            if bad > 5:
                break


class Endless:
    def __init__(self, training):
        self.training = training
        self.it = iter(training.run.batches(training.data))

    def __next__(self):
        try:
            return next(self.it)
        except StopIteration:
            self.it = iter(self.training.run.batches(self.training.data))
            return next(self.it)


NAMES = [each for each in vars(Training) if each not in ("__init__", "loss", "update", "endless", "passes")]
NAMES = [each for each in NAMES if not each.startswith("__")]
COUNTED = NAMES[: NAMES.index("steps")]


@pytest.mark.parametrize("name", NAMES)
def test_a_count_that_no_checkpoint_has(name, tmp_path, capsys):
    training = Training(tmp_path / "run")
    getattr(training, name)()
    training.run.close()
    said = capsys.readouterr().err
    assert said.count(WORDS) == (name in COUNTED)
    assert ("limit=" in said) == (name in COUNTED)


def test_runs_in_a_loop_are_no_count_of_batches(tmp_path, capsys):
    for number in range(2):
        training = Training(tmp_path / f"run{number}")
        for batch in training.endless():
            training.update(batch)
            if training.run.step >= N:
                break
        training.run.close()
    assert WORDS not in capsys.readouterr().err


HEAD = "n = 0\nfor i, batch in enumerate(data):\n    "
LEFT = {
    "behind the update": HEAD + "net.update(batch)\n    if i == 3:\n        break",
    "two batches": HEAD + "net.update(batch)\n    if i == 1:\n        break",
    "two batches, more than": HEAD + "net.update(batch)\n    if i > 0:\n        break",
    "before the update": HEAD + "if i == 3:\n        break\n    net.update(batch)",
    "at least": HEAD + "net.update(batch)\n    if i >= 3:\n        break",
    "more than": HEAD + "net.update(batch)\n    if i > 3:\n        break",
    "the other way round": HEAD + "net.update(batch)\n    if 3 <= i:\n        break",
    "one more": HEAD + "net.update(batch)\n    if i + 1 == 3:\n        break",
    "one less": HEAD + "net.update(batch)\n    if i - 1 >= 3:\n        break",
    "a name": HEAD + "net.update(batch)\n    if i == most:\n        break",
    "a name before": HEAD + "if i >= most:\n        break\n    net.update(batch)",
    "one less than a name": HEAD + "net.update(batch)\n    if i == most - 1:\n        break",
    "from one": "for i, batch in enumerate(data, 1):\n    net.update(batch)\n    if i == 3:\n        break",
    "start from one": "for i, x in enumerate(data, start=1):\n    net.update(x)\n    if i >= 3:\n        break",
    "raised behind": HEAD + "net.update(batch)\n    if n == 3:\n        break\n    n += 1",
    "raised before": HEAD + "net.update(batch)\n    n += 1\n    if n == 3:\n        break",
    "raised first": HEAD + "n += 1\n    if n > 3:\n        break\n    net.update(batch)",
    "while": "n = 0\nwhile n < 3:\n    net.update(next(data))\n    n += 1",
    "while and at": "n = 0\nwhile n <= 3:\n    net.update(next(data))\n    n += 1",
    "while from one": "n = 1\nwhile n <= 3:\n    net.update(next(data))\n    n += 1",
    "counted": "for i in itertools.count():\n    net.update(next(data))\n    if i == 3:\n        break",
    "a function": HEAD + "train(batch)\n    if i == 3:\n        break",
    "a function behind": HEAD + "if i == 3:\n        break\n    train(batch)",
}


@pytest.mark.parametrize("body", ["if i == 0:\n        break", "n += 1\n    if n == 1:\n        break"])
def test_a_look_at_one_batch_counts_nothing(body):
    text = f"{HEAD}net.update(batch)\n    {body}"
    loop = ast.parse(text).body[-1]
    assert not _LoopBound(
        loop, _RunningSource(compile(text, "train.py", "exec"), SourceNameResolver({}, {}), set())
    ).counts


@pytest.mark.parametrize("name", LEFT)
def test_the_limit_that_is_shown_makes_as_many_updates(name, tmp_path):
    """The loop is run, and its updates are counted."""
    file, made = tmp_path / "train.py", []
    file.write_text(LEFT[name])
    code = compile(LEFT[name], str(file), "exec")
    net = SimpleNamespace(update=made.append)
    names = {"net": net, "train": made.append, "data": iter(range(99)), "most": 5, "itertools": itertools}
    exec(code, names)
    loop = next(each for each in ast.parse(LEFT[name]).body if isinstance(each, ast.For | ast.While))
    bound = _LoopBound(loop, _RunningSource(code, SourceNameResolver(names, {}), set()))
    assert bound.counts
    assert eval(bound.count, names) == len(made)
