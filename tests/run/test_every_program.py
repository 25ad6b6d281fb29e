# SPDX-License-Identifier: Apache-2.0
"""Programs of every shape, disturbed at every place in every way: started again, each ends where the undisturbed one does.

A program has one or two training passes an epoch, over data whose length is known or not, and validates by hand, with
`net.evaluate` or not at all. It draws at the top of its epochs and in its bodies, counts in `run.state` and in an object that
is tracked, and reads behind its loops what they have set. So each place at which a run can't be gone on from shows: as other
weights, as other lines of metrics, or as a start that fails for ever.
"""

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import warnings
from typing import NamedTuple

import pytest
import torch
from torch import nn

import truestep as ts

ROWS = torch.arange(24.0).reshape(12, 2) / 24
EPOCHS, MOST_STARTS = 2, 4


class Shape(NamedTuple):
    """What a program looks like."""

    known: bool
    passes: int
    validation: str  # "by hand", "evaluate" or "none"
    every_steps: int | None
    ended: str  # "with": the run is used as a context manager; "hook": nobody catches what is raised
    in_epochs: bool = True


class Stopped(BaseException):
    """Stands for SIGKILL: nothing of the run's does anything because of it."""


class FailedError(Exception):
    """What a program raises."""


class Counter:
    """Something that is tracked."""

    def __init__(self):
        self.count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class Disturbance:
    """Happens at the place of its number; without one it counts the places."""

    def __init__(self, number=None, way=None):
        self.number, self.way, self.count = number, way, 0

    def __call__(self, run):
        self.count += 1
        if self.count - 1 != self.number:
            return
        if self.way == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
        elif self.way == "SIGKILL":
            run.session._crashed = True  # so that the next start finds what a kill leaves
            run.session._finish(alive=False)
            raise Stopped
        else:
            raise {"exception": FailedError, "interrupt": KeyboardInterrupt, "exit": SystemExit}[self.way]


WAYS = ("exception", "interrupt", "exit", "SIGTERM", "SIGKILL")


def source(run, shape, rows, place):
    """Return data of known length, or a stream; both fail where they are told to."""

    class Known(torch.utils.data.Dataset):
        def __len__(self):
            return len(rows)

        def __getitem__(self, index):
            if index % 4 == 0:
                place(run)
            return rows[index]

    def stream():
        for number, row in enumerate(rows):
            if number % 4 == 0:
                place(run)
            yield row

    if not shape.known:
        return run.data(stream, batch_size=4)
    return run.data(Known(), batch_size=4, num_workers=0, check=False)


def program(directory, shape, place):  # noqa: C901  (several programs in one)
    """Train, and return the weights and the lines of metrics."""
    saving = ts.Saving(
        every_steps=shape.every_steps, every_seconds=None, epoch_seconds=0.0, background=False, keep_last=1
    )
    run = ts.Run(directory, seed=0, progress=False, quiet=True, doctor=False, log_every=1, saving=saving)
    net = run.learner(
        nn.Linear(2, 1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        schedule=ts.per_epoch(lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.5)),
        ema=ts.EMA(decay=0.9),
    )
    first, second, check = (source(run, shape, rows, place) for rows in (ROWS, ROWS.flip(0), ROWS[:8]))
    counter = Counter()
    run.track(counter=counter)

    def loss(rows):
        return net(rows).squeeze(1).square()

    def train(data, drawn):
        for rows in run.batches(data):
            last = net.update(loss, rows * drawn + torch.rand(())).loss
            counter.count += 1
            run.state["seen"] = run.state.get("seen", 0) + len(rows)
            place(run)
        return last

    def validate():
        if shape.validation == "by hand":
            errors = []
            for rows in run.batches(check):
                with torch.no_grad():
                    errors.append(loss(rows).mean().item())
                place(run)
            return sum(errors) / len(errors)
        if shape.validation == "evaluate":

            def measured(rows):
                place(run)
                return loss(rows)

            return net.evaluate(measured, check)
        return 0.0

    def body():
        counter.count += 100
        drawn = torch.rand(())
        place(run)
        last = train(first, drawn)
        place(run)
        run.log(last=last)
        if shape.passes == 2:
            train(second, drawn)
        error = validate()
        place(run)
        run.log(error=error, count=counter.count, seen=run.state["seen"])
        place(run)

    def everything():
        for _ in run.epochs(EPOCHS) if shape.in_epochs else range(EPOCHS):
            body()

    if shape.ended == "with":
        with run:
            everything()
    else:
        as_python_ends(run, everything)
        run.close()
    lines = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    logged = [(line["step"], {k: v for k, v in line["values"].items() if k not in TIMES}) for line in lines]
    with net.averaged():
        averages = [weight.tolist() for weight in net.parameters()]
    return [weight.tolist() for weight in net.parameters()], averages, counter.count, logged


TIMES = ("samples_per_second", "memory_bytes", "save_stall_seconds")


def as_python_ends(run, act):
    """Call what python calls when nobody catches an exception, or an exit."""
    try:
        act()
    except Stopped:
        raise
    except SystemExit:
        run.session._endings._process_ends()
        raise
    except BaseException as error:
        with contextlib.redirect_stderr(None):
            sys.excepthook(type(error), error, error.__traceback__)
        raise


def ended(directory, shape, number, way):
    """Disturb a program once, start it again until it ends, and return its end and how often it was started."""
    place = Disturbance(number, way)
    for start in range(MOST_STARTS):
        try:
            return program(directory, shape, place), start
        except (FailedError, KeyboardInterrupt, SystemExit, Stopped):
            pass
        except UnboundLocalError:  # behind a pass that was over: the next start goes back before it
            assert start >= 1
            assert shape.passes == 2 or not shape.in_epochs or (way == "exit" and not shape.known)
        place = Disturbance()
    return None, MOST_STARTS


SHAPES = [
    Shape(known, passes, validation, every_steps, ended_by)
    for known, passes, validation, every_steps, ended_by in itertools.product(
        (True, False), (1, 2), ("by hand", "evaluate", "none"), (None, 1, 2), ("with", "hook")
    )
] + [Shape(known, 1, "evaluate", 1, "with", in_epochs=False) for known in (True, False)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return how a shape ends undisturbed, and how many places it has."""
    found = {}

    def end(shape):
        if shape not in found:
            place = Disturbance()
            found[shape] = (program(tmp_path_factory.mktemp("whole") / "run", shape, place), place.count)
        return found[shape]

    return end


def check(tmp_path, whole, cases):
    for case, (shape, number, way) in enumerate(cases):
        directory = tmp_path / str(case)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*was passed over.*")
            end, _ = ended(directory, shape, number, way)
        assert end == whole(shape)[0], (shape, number, way)
        shutil.rmtree(directory)


def all_cases(whole):
    return [(shape, number, way) for shape in SHAPES for number in range(whole(shape)[1]) for way in WAYS]


def test_a_program_of_any_shape_that_is_disturbed_anywhere_ends_as_it_would_have(tmp_path, whole):
    chosen = random.Random(0)
    cases = []
    for shape in chosen.sample(SHAPES, 3):
        places = whole(shape)[1]
        cases += [(shape, chosen.randrange(places), way) for way in WAYS]
    check(tmp_path, whole, cases)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_program_at_every_place_in_every_way(tmp_path, whole):
    check(tmp_path, whole, all_cases(whole))
