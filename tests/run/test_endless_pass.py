# SPDX-License-Identifier: Apache-2.0
"""A loop over data without an end is told of before its first batch, where nothing in it leaves it; an evaluation is refused."""

import itertools
from contextlib import suppress

import pytest
import torch

import truestep as ts
from truestep.engine.data.endless import endless_reason

ROWS = torch.ones(8, 2)


class Stop(Exception):
    pass


def forever():
    while True:
        yield from ROWS


def counted():
    for i in itertools.count():
        yield ROWS[i % 8]


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        while 1:
            yield from ROWS


FILE = iter([1, 2])


def until_nothing():
    while True:
        if next(FILE, None) is None:
            return
        yield ROWS[0]


def until_it_fails():
    while True:
        try:
            yield ROWS[0]
        except ValueError:
            yield ROWS[1]


def asked():
    more = [1]
    while more:
        yield more.pop()


def of_a_loop():
    for _ in range(3):
        while True:
            yield ROWS[0]
            break


ENDLESS = [forever, counted, Endless(), itertools.cycle([1]), itertools.count(), itertools.repeat(1)]
WITH_AN_END = [
    until_nothing,
    until_it_fails,
    asked,
    of_a_loop,
    itertools.repeat(1, 3),
    [1],
    iter([1]),
    len,
    Stop,
]


@pytest.mark.parametrize("data", ENDLESS)
def test_data_without_an_end_is_known(data):
    assert endless_reason(data)


@pytest.mark.parametrize("data", WITH_AN_END)
def test_nothing_else_is(data):
    assert endless_reason(data) == ""


# each loop is ended by an error in its first body, or by itself
LOOPS = {
    "a loop": ("for batch in run.batches(train):\n    stop(batch)", True),
    "numbered": ("for i, batch in enumerate(run.batches(train)):\n    stop(batch)", True),
    "in epochs": ("for _ in run.epochs(2):\n    for batch in run.batches(train):\n        stop(batch)", True),
    "limited": ("for batch in run.batches(train, limit=3):\n    stop(batch)", False),
    "left": (
        "for batch in run.batches(train):\n    stop(batch)\n    if run.step == 3:\n        break",
        False,
    ),
    "ended by the run": ("for batch in run.batches(train):\n    stop(batch)\n    run.finish()", False),
    "ended in a function": (
        "def over():\n    run.finish()\nfor x in run.batches(train):\n    stop(x)\n    over()",
        False,
    ),
    "raised": ("for batch in run.batches(train):\n    raise Stop", False),
    "with numbers beside": ("for batch, i in zip(run.batches(train), range(3)):\n    stop(batch)", False),
    "asked one by one": (
        "batches = iter(run.batches(train))\nfor _ in range(3):\n    stop(next(batches))",
        False,
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_nothing_leaves_is_told_of(name, tmp_path, capsys):
    def stop(batch):
        raise Stop

    text, is_told = LOOPS[name]
    (tmp_path / "train.py").write_text(text)
    mixture = ts.Mixture({"a": ROWS, "b": ROWS}, weights={"a": 1, "b": 1})
    with suppress(Stop), ts.Run(tmp_path / "run", device="cpu", progress=False, doctor=False) as run:
        names = {"run": run, "train": run.data(mixture, batch_size=2), "stop": stop, "Stop": Stop}
        exec(compile(text, str(tmp_path / "train.py"), "exec"), names)
    assert ("never ends" in capsys.readouterr().err) is is_told


@pytest.mark.parametrize(("data", "is_told"), [(forever, True), (Endless(), True), (of_a_loop, False)])
def test_a_stream_is_told_of_and_its_evaluation_refused(data, is_told, tmp_path, capsys):
    text = "for batch in run.batches(train):\n    seen.append(batch)\n    check()"
    (tmp_path / "train.py").write_text(text)
    seen = []

    def check():
        if is_told:
            raise Stop

    with ts.Run(tmp_path / "run", device="cpu", progress=False, doctor=False) as run:
        net = run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        train = run.data(data, batch_size=2)
        values = lambda x: net(x)[:, 0]
        if is_told:
            with pytest.raises(ts.DataError, match=r"has no end: .*islice"):
                net.evaluate(values, train)
        else:
            net.evaluate(values, train)
        names = {"run": run, "train": train, "seen": seen, "check": check}
        with suppress(Stop):
            exec(compile(text, str(tmp_path / "train.py"), "exec"), names)
    assert ("never ends" in capsys.readouterr().err) is is_told
    assert seen
