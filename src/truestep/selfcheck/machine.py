# SPDX-License-Identifier: Apache-2.0
"""Speed, memory, and all cards of a machine."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from truestep.core.accelerator import is_host, most_bytes, num_cards, runs_ahead, wait_for
from truestep.selfcheck.report import Seen, passed_if
from truestep.selfcheck.training import (
    CheckedDevice,
    adamw,
    differ,
    distance,
    losses,
    new_module,
    step_by_hand,
    train,
)

STEPS, ROUNDS = 50, 5
RANKS_SECONDS = 120


def speed(place: CheckedDevice) -> Seen:
    """Time updates and the loop by hand, in turns."""
    batch = place.batch()
    by_hand = _loop_by_hand(place, batch)
    with place.run("speed", doctor=False, watch_layers=0) as run:
        net = run.learner(new_module(), adamw)
        loss = losses(net)
        for _ in run.steps(1):
            ours, theirs = _in_turns(place, lambda: net.update(loss, batch), by_hand)
    return Seen(
        "measured",
        f"{ours * 1e6:.0f} µs an update, {theirs * 1e6:.0f} µs by hand ({ours / theirs:.2f} times)",
    )


def _loop_by_hand(place: CheckedDevice, batch: list[Tensor]) -> Callable[[], object]:
    module = new_module().to(place.device)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, fused=True)
    return lambda: step_by_hand(module, optimizer, batch)


def _in_turns(place: CheckedDevice, *steps: Callable[[], object]) -> list[float]:
    """Return the median seconds of each step."""
    rounds: list[list[float]] = [[] for _ in steps]
    for _ in range(ROUNDS + 1):
        for taken, step in zip(rounds, steps, strict=True):
            wait_for(place.device)
            began = time.perf_counter()
            for _ in range(STEPS):
                step()
            wait_for(place.device)
            taken.append((time.perf_counter() - began) / STEPS)
    return [statistics.median(taken[1:]) for taken in rounds]


def memory(place: CheckedDevice) -> Seen:
    """Say how much memory the tensors of these checks have taken at most."""
    most = most_bytes(place.device)
    if most is None:
        return Seen("does not apply", f"{place.device.type} does not count what tensors take")
    return Seen("measured", f"{most / 2**20:.1f} MiB at most in these checks")


def all_cards(place: CheckedDevice) -> Seen:
    """Train on each other card: flags and lines arrive from it, too."""
    others = [
        torch.device(place.device.type, index) for index in range(num_cards()) if index != place.device.index
    ]
    if is_host(place.device) or not others:
        return Seen("does not apply", "there is one device of this kind at most")
    expected = train(place, "card", clip=None)
    wrong = [
        f"{card}: {difference}"
        for card in others
        if (difference := differ(expected, train(place.on(card), f"card-{card.index}", clip=None)))
    ]
    return (
        Seen("FAILED", "; ".join(wrong))
        if wrong
        else Seen("passed", f"{len(others) + 1} cards, the same bits")
    )


def several_ranks(place: CheckedDevice) -> Seen:
    """Train on two cards together (NCCL), beside one process."""
    if not runs_ahead(place.device) or num_cards() < 2:
        return Seen("does not apply", "NCCL needs two cards")
    return train_on_ranks(place, 2)


def train_on_ranks(place: CheckedDevice, number: int) -> Seen:
    """Train in so many processes, and compare their weights with one process's."""
    script = str(Path(__file__).with_name("ranks.py"))
    words = ["launch", "-n", str(number), "--logs", str(place.folder / "logs"), script]
    done = subprocess.run(
        [sys.executable, "-m", "truestep", *words, str(place.folder), place.device.type],
        capture_output=True,
        text=True,
        timeout=RANKS_SECONDS,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.splitlines() or ["-"])[-1]
        return Seen("FAILED", f"{number} processes ended with {done.returncode}: {last}")
    found = torch.load(place.folder / "ranks.pt", weights_only=True)
    far = distance(train(place, "alone", dropout=0), found)
    return passed_if(far < 1e-4, f"{number} processes and one: largest difference {far:.2g}")
