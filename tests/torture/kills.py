# SPDX-License-Identifier: Apache-2.0
"""Kill a training by SIGKILL at random moments, again and again, until it has reached its end all the same.

A `Trainer` is what is killed: a function of a directory that trains from what it finds there to the end,
and returns a digest of all it ends with. `train` below is a small one on a bare store; a whole run is
another. Children are forked from a process that has torch loaded, so that a thousand kills take minutes, or
started as interpreters of their own.
"""

import hashlib
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import nn

from truestep.checkpoints import Checkpoint, CheckpointStore, Retention
from truestep.checkpoints.checkpoint_selection import read_checkpoints
from truestep.checkpoints.file_operations import CheckpointFiles

Trainer = Callable[[Path], str]
Launch = Callable[[Trainer, Path], "Child"]
STEPS = 24
EVERY = 3


def train(directory: Path) -> str:
    """Train a small net with dropout and momentum from the newest checkpoint on; save in the background."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 1))
    velocity = [torch.zeros_like(parameter) for parameter in net.parameters()]
    losses: list[float] = []
    step = 0
    with CheckpointStore(
        directory, retention=Retention(last=2, best=1, best_metric="loss", best_mode="min")
    ) as store:
        resumed = store.resume()
        if resumed:
            state = resumed.state
            step, losses = resumed.checkpoint.step, state["losses"]
            net.load_state_dict(state["net"])
            velocity = state["velocity"]
            torch.set_rng_state(state["rng"])
        while step < STEPS:
            losses.append(_step(net, velocity, step))
            step += 1
            if step % EVERY == 0 or step == STEPS:
                state = {
                    "net": net.state_dict(),
                    "velocity": velocity,
                    "losses": losses,
                    "rng": torch.get_rng_state(),
                }
                store.save(step, state, metrics={"loss": losses[-1]})
    return digest([*net.state_dict().values(), *velocity], losses)


def _step(net: nn.Module, velocity: list[torch.Tensor], step: int) -> float:
    data = torch.Generator().manual_seed(step)
    inputs = torch.randn(8, 6, generator=data)
    loss = (net(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    net.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter, speed in zip(net.parameters(), velocity, strict=True):
            speed.mul_(0.9).add_(parameter.grad)
            parameter.sub_(0.01 * speed)
    return loss.item()


def digest(tensors: list[torch.Tensor], values: Any) -> str:
    content = b"".join(tensor.detach().contiguous().numpy().tobytes() for tensor in tensors)
    return hashlib.sha256(content + repr(values).encode()).hexdigest()


@dataclass
class Report:
    """What many kills did."""

    kills: int = 0
    runs: int = 0
    wrong_ends: list[str] = field(default_factory=list)
    moments_without_a_checkpoint: list[str] = field(default_factory=list)
    kills_by_phase: dict[str, int] = field(default_factory=dict)


class Child:
    """A process that trains; its end is read from a pipe."""

    def __init__(self, number: int, pipe: BinaryIO) -> None:
        self.number, self.pipe = number, pipe

    def end(self, seconds: float) -> str | None:
        """Kill it unless it ends by itself before; return what it ended with, None if that was killed."""
        with self.pipe:
            _kill_after(self.number, seconds)
            os.waitpid(self.number, 0)
            return self.pipe.read().decode() or None


def forked(trainer: Trainer, directory: Path) -> Child:
    """Start a training in a forked process."""
    reader, writer = os.pipe()
    number = os.fork()
    if number == 0:
        try:
            os.close(reader)
            os.write(writer, _attempt(trainer, directory))
        finally:
            os._exit(0)
    os.close(writer)
    return Child(number, os.fdopen(reader, "rb"))


def load_all(trainer: Trainer, directory: Path) -> None:
    """Run a training in this process, so that what it imports late need not be imported in each fork of it."""
    threads, filters = torch.get_num_threads(), warnings.filters[:]
    _attempt(trainer, directory)
    torch.set_num_threads(threads)
    warnings.filters[:] = filters


def fresh(trainer: Trainer, directory: Path) -> Child:
    """Start a training in an interpreter of its own, and return when it has imported what it needs."""
    code = (
        f"from {trainer.__module__} import {trainer.__name__} as train; from {__name__} import _attempt\n"
        "import os, pathlib\n"
        "os.write(1, b'!')\n"
        f"os.write(1, _attempt(train, pathlib.Path({str(directory)!r})))\n"
        "os._exit(0)\n"  # leaving torch takes longer than the training, and nothing is killed in it
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
        bufsize=0,
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"!"
    process.returncode = 0  # whoever waits for it is Child
    return Child(process.pid, process.stdout)  # type: ignore[arg-type]


def _attempt(trainer: Trainer, directory: Path) -> bytes:
    try:
        warnings.simplefilter("ignore")  # three kills before a save pass a checkpoint over, with a warning
        return trainer(directory).encode()
    except BaseException as error:
        return f"raised {error!r}".encode()


def _kill_after(number: int, seconds: float) -> None:
    """Kill a process unless it ends by itself before."""
    descriptor = os.pidfd_open(number)
    try:
        select.select([descriptor], [], [], seconds)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def torture(
    folder: Path,
    kills: int,
    *,
    seed: int = 0,
    trainer: Trainer = train,
    launch: Launch = forked,
    where: str = ".",
) -> Report:
    """Run trainings to their end, killing each on its way many times, until there were `kills` kills.

    `where` in its directory a training keeps its checkpoints.
    """
    dice = random.Random(seed)
    load_all(trainer, folder / "loaded")
    expected = launch(trainer, folder / "undisturbed").end(600.0)
    assert expected is not None
    assert not expected.startswith("raised"), expected
    child = launch(trainer, folder / "timed")
    begun = time.perf_counter()
    child.end(600.0)
    whole = time.perf_counter() - begun
    report = Report()
    while report.kills < kills:
        directory = folder / str(report.runs)
        end = _run_to_the_end(
            lambda place=directory: launch(trainer, place), directory / where, dice, whole, report
        )
        report.runs += 1
        if end == expected:
            shutil.rmtree(directory)
        else:
            report.wrong_ends.append(f"{directory}: {end} instead of {expected}")
    return report


def _run_to_the_end(
    start: Callable[[], Child], directory: Path, dice: random.Random, whole: float, report: Report
) -> str:
    published = False
    attempts = 0
    while True:
        # most live for a moment: long enough to come to a save, seldom to the end; but longer and longer where the
        # machine has become so slow that none comes to its end
        attempts += 1
        longest = whole * max(1.0, attempts / 10)
        end = start().end(dice.uniform(0.0, longest * dice.choice([0.1, 0.3, 0.6, 1.2])))
        if end is not None:
            return end
        report.kills += 1
        phase = _phase(directory)
        report.kills_by_phase[phase] = report.kills_by_phase.get(phase, 0) + 1
        sound = _has_a_sound_one(directory)
        if published and not sound:
            report.moments_without_a_checkpoint.append(f"{directory} after kill {report.kills}")
        published = published or sound


def _phase(directory: Path) -> str:
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    if any(name.startswith(".del-") for name in names):
        return "deleting"
    if any(name.startswith(".tmp-") for name in names):
        return "writing"
    return "elsewhere" if names else "before anything"


def _has_a_sound_one(directory: Path) -> bool:
    if not directory.exists():
        return False
    for found in read_checkpoints(CheckpointFiles(), directory):
        if isinstance(found, Checkpoint):
            found.load()
            return True
    return False
