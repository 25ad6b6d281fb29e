# SPDX-License-Identifier: Apache-2.0
"""Kill a training by SIGKILL at random moments, again and again, until it has reached its end all the same.

A `Trainer` is what is killed: a function of a directory that trains from what it finds there to the end,
and returns a digest of all it ends with. `train` below is a small one on a bare store; a whole run is
another. Children are forked from a process that has torch loaded, so that a thousand kills take minutes.
"""

import hashlib
import os
import random
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from truestep.engine.checkpoints import Checkpoint, CheckpointStore, Retention
from truestep.engine.checkpoints.files import Files
from truestep.engine.checkpoints.selection import read_all

Trainer = Callable[[Path], str]
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


def torture(folder: Path, kills: int, seed: int = 0, trainer: Trainer = train) -> Report:
    """Run trainings to their end, killing each on its way many times, until there were `kills` kills."""
    dice = random.Random(seed)
    expected = _in_child(lambda: trainer(folder / "undisturbed"), 60.0)
    report = Report()
    assert expected is not None
    begun = time.perf_counter()
    _in_child(lambda: trainer(folder / "timed"), 60.0)
    whole = time.perf_counter() - begun
    while report.kills < kills:
        end = _run_to_the_end(folder / str(report.runs), trainer, dice, whole, report)
        report.runs += 1
        if end != expected:
            report.wrong_ends.append(f"run {report.runs}: {end} instead of {expected}")
    return report


def _run_to_the_end(
    directory: Path, trainer: Trainer, dice: random.Random, whole: float, report: Report
) -> str:
    published = False
    while True:
        # most live for a moment: long enough to come to a save, seldom to the end
        seconds = dice.uniform(0.0, whole * dice.choice([0.1, 0.3, 0.6, 1.2]))
        end = _in_child(lambda: trainer(directory), seconds)
        if end is not None:
            return end
        report.kills += 1
        phase = _phase(directory)
        report.kills_by_phase[phase] = report.kills_by_phase.get(phase, 0) + 1
        sound = _has_a_sound_one(directory)
        if published and not sound:
            report.moments_without_a_checkpoint.append(f"{directory} after kill {report.kills}")
        published = published or sound


def _in_child(work: Callable[[], str], seconds: float) -> str | None:
    """Run in a forked process and return its result, or None where it was killed before it had one."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            warnings.simplefilter(
                "ignore"
            )  # three kills before a save pass a checkpoint over, with a warning
            os.write(writer, work().encode())
        except BaseException as error:
            os.write(writer, f"raised {error!r}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        _kill_after(child, seconds)
        os.waitpid(child, 0)
        return pipe.read().decode() or None


def _kill_after(child: int, seconds: float) -> None:
    """Kill a process unless it ends by itself before."""
    descriptor = os.pidfd_open(child)
    try:
        import select

        select.select([descriptor], [], [], seconds)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


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
    for found in read_all(Files(), directory):
        if isinstance(found, Checkpoint):
            found.load()
            return True
    return False
