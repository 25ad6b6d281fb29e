# SPDX-License-Identifier: Apache-2.0
"""Evaluations that differ by rank, and their right twins, each in a run of its own: `python measured_by_rank.py FOLDER STRATEGY`.

Each rank writes down with which words it was refused, or what it measured, in FOLDER/RANK.json.
"""

import functools
import json
import operator
import os
import random
import sys
import time
from pathlib import Path

import torch
from refused import RANK, refused
from torch.utils.data import DataLoader, Subset, TensorDataset

import truestep as ts

X = torch.arange(28.0)[:, None].expand(28, 2) / 28
SIGNS = {}  # what a closure may hold that is another on each rank


class Largest:
    def reset(self):
        self.value = -1.0

    def update(self, values):
        self.value = max(self.value, float(values.max()))

    def compute(self):
        return self.value


class Smallest(Largest):
    pass


class Score:
    def __init__(self, net):
        self.net = net

    def __call__(self, rows):
        return self.net(rows).squeeze(1)

    def other(self, rows):
        return -self.net(rows).squeeze(1)


class OtherScore(Score):
    def __call__(self, rows):
        return 2 * self.net(rows).squeeze(1)


def timed(function):
    @functools.wraps(function)
    def wrapper(rows):
        return function(rows)

    return wrapper


def in_some(net, rows, words=("a", "b", "c", "d")):
    # the order of a set of words is another one in each process
    return net(rows).squeeze(1) if all(each in {"a", "b", "c", "d"} for each in words) else None


def functions(net):
    """Return functions by name; those that don't begin with "same" differ by rank."""

    def score(rows):
        return net(rows).squeeze(1)

    def other(rows):
        return 1 - net(rows).squeeze(1)

    def writes(rows):
        found = net(rows).squeeze(1)
        if RANK == 0:
            SIGNS["seen"] = found
        return found

    def scaled(rows, by=1.0):
        return by * net(rows).squeeze(1)

    if RANK:

        def under_condition(rows):
            return net(rows).squeeze(1) > 0.5

    else:

        def under_condition(rows):
            return net(rows).squeeze(1) > 0.4

    path = f"predictions-{RANK}.txt"
    objects = Score(net), OtherScore(net)
    return {
        "one or the other": other if RANK else score,
        "lambdas": (lambda rows: 1 - net(rows)[:, 0]) if RANK else (lambda rows: net(rows)[:, 0]),
        "partials of two": functools.partial(other if RANK else score),
        "wrapped": timed(other if RANK else score),
        "two methods": objects[0].other if RANK else objects[0].__call__,
        "objects of two classes": objects[RANK],
        "an object and its method": objects[0] if RANK else objects[0].other,
        "by a condition": under_condition,
        "the net and a function": (lambda rows: net(rows)[:, 0] ** 2) if RANK else net,
        "same function": score,
        "same lambda": lambda rows: net(rows).squeeze(1),
        "same object": objects[1],
        "same method": objects[1].other,
        "same with a word on one rank": writes,
        "same, wrapped on one rank": timed(score) if RANK else score,
        "same, without gradients": torch.no_grad()(score),
        "same, with a path by rank": lambda rows: net(rows).squeeze(1) * len(path),
        "same, partial": functools.partial(scaled, by=2.0),
        "same, a set of words": functools.partial(in_some, net),
        "same builtin": operator.itemgetter((slice(None), 0)),
    }


def batches(run):
    """Return what makes data, by name; those that don't begin with "same" differ by rank."""
    parts = [X[:7], X[7:14], X[14:]]
    shares = [*X[RANK:27:2].split(4)]
    loader = DataLoader(TensorDataset(X), batch_size=5)
    return {
        "a longer batch": lambda: [X[: 7 + 7 * RANK]],
        "a batch more": lambda: [X[:7]] * (2 - RANK),
        "a batch less": lambda: tuple(parts[: 3 - RANK]),
        "as many samples": lambda: [X[:14]] if RANK else [X[:7], X[7:14]],
        "a longer dict": lambda: [{"x": X[: 9 - RANK]}],
        "generator of more": lambda: iter(parts[: 2 + RANK]),
        "generator of longer": lambda: (part[RANK:] for part in parts),
        "shares by hand": lambda: [(rows,) for rows in shares],
        "a loader of a share": lambda: DataLoader(
            Subset(TensorDataset(X), range(RANK, 27, 2)), batch_size=20
        ),
        "a shorter loader": lambda: DataLoader(TensorDataset(X), batch_size=5, drop_last=bool(RANK)),
        "a list and a source": lambda: parts if RANK else run.data(X, batch_size=7),
        "same list": lambda: parts,
        "same tuple of pairs": lambda: tuple((part, part) for part in parts),
        "same source": lambda: run.data(X, batch_size=7),
        "same loader": lambda: loader,
        "same generator": lambda: (part for part in parts),
        "same, shown on one rank": lambda: iter(parts) if RANK else parts,
        "same, kept on one rank": lambda: list(loader) if RANK else loader,
        "same, equal shares": lambda: [X[RANK::2]],
        "same, shares with leave": lambda: run.data(lambda: iter(shares), per_rank=True),
        "same, an empty batch": lambda: [X[:7], X[:0], X[7:]],
    }


def ways(run, net):
    """Return calls by name; those that don't begin with "same" differ by rank."""
    rows = [X[:7]]

    def score(rows):
        return net(rows).squeeze(1)

    def within(is_here):
        if not is_here:
            return net.evaluate(score, rows)
        with net.averaged():
            return net.evaluate(score, rows)

    return {
        "averaged on rank 1": lambda: net.evaluate(score, rows, averaged=bool(RANK)),
        "averaged on rank 0": lambda: net.evaluate(score, rows, averaged=run.is_main),
        "a block on rank 0": lambda: within(run.is_main),
        "a block on rank 1": lambda: within(bool(RANK)),
        "a block of one, averaged= of the other and a source": lambda: (
            within(True) if RANK else net.evaluate(score, run.data(X, batch_size=7))
        ),
        "a metric on rank 0": lambda: net.evaluate(score, rows, metric=Largest() if run.is_main else None),
        "a metric of another kind": lambda: net.evaluate(
            score, rows, metric=Smallest() if RANK else Largest()
        ),
        "same averaged": lambda: net.evaluate(score, rows, averaged=True),
        "same in a block": lambda: within(True),
        "same, a block and averaged=": lambda: (
            within(True) if RANK else net.evaluate(score, rows, averaged=True)
        ),
        "same metric": lambda: net.evaluate(score, rows, metric=Largest()),
    }


def plain(part):
    """Return the rows of a batch of any structure."""
    while not isinstance(part, torch.Tensor):
        part = part["x"] if isinstance(part, dict) else part[0]
    return part


NAMES = {"function": [*functions(None)], "data": [*batches(None)], "way": [*ways(None, None)]}


def call(run, net, kind, name):
    """Make the call of this name; what is left open is drawn."""
    drawn = random.Random(f"{kind} {name}")
    metric = Largest() if drawn.random() < 0.4 else None
    if kind == "function":
        data = drawn.choice([run.data(X, batch_size=9), [X[:7], X[7:]]])
        return net.evaluate(functions(net)[name], data, metric=metric)
    if kind == "data":
        # a metric is given what each batch gives, whose sizes nobody compares
        metric = None if "generator" in name or "loader" in name else metric
        return net.evaluate(lambda part: net(plain(part)).squeeze(1), batches(run)[name](), metric=metric)
    return ways(run, net)[name]()


def learner(run):
    torch.manual_seed(0)
    module = torch.nn.Linear(2, 1)
    net = run.learner(module, lambda p: torch.optim.SGD(p, lr=0.1), name="net", ema=ts.EMA(decay=0.9))
    net.update(lambda rows: net(rows).squeeze(1).square(), X[:4])
    return net


def wrong(kind, name):
    """Return an attempt; each ends its ranks' connection."""

    def attempt(run):
        call(run, learner(run), kind, name)

    attempt.__name__ = f"{kind}_{name}".translate(str.maketrans(" :,=", "____"))
    return attempt


def found_in(folder, strategy, part):
    calls = [(kind, name) for kind, names in NAMES.items() for name in names]
    found = {}
    with ts.Run(folder / "right", progress=False, quiet=True, doctor=False, strategy=strategy) as run:
        net = learner(run)
        for kind, name in calls:
            if name.startswith("same"):
                found[f"{kind}: {name}"] = call(run, net, kind, name)
    differing = [each for each in calls if not each[1].startswith("same")]
    for kind, name in differing[::part]:
        found[f"{kind}: {name}"] = refused(wrong(kind, name), folder, strategy=strategy)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, strategy, part = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    found = found_in(folder, strategy, part)
    (folder / f"{RANK}.json").write_text(json.dumps(found, indent=1))
    while RANK == 0 and not (folder / "1.json").exists():
        time.sleep(0.05)  # the store is rank 0's, and rank 1 has yet to say why it stops
    os._exit(0)
