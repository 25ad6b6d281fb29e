# SPDX-License-Identifier: Apache-2.0
"""Peak memory of a training beside the loop by hand: `python benchmarks/memory/peaks.py [--width 2048] [--layers 16] [--ranks 2]`.

67 million weights in linear layers, so that activations are little: what is seen are weights, gradients, AdamW's state and what
a save, an average and an evaluation add. `short` and `none` are saves that find memory for 1.5 and 0.5 states, `doctor` is a run
that is watched. With `--ranks 2` a row is rank 0 of two, by hand with torch's DistributedDataParallel. Each row is a process of its
own; Linux resets the peak between stretches (`/proc/self/clear_refs`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import truestep as ts

STEPS = 6  # of each stretch
KINDS = ("plain", "doctor", "saves", "short", "none", "foreground", "ema")
FREE = {"short": 1.5, "none": 0.5}  # of sizes of the state, as a save is told


def peak_of(stretch: Callable[[], None]) -> float:
    """Return the most memory that a stretch had, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    stretch()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def network(width: int, layers: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])


def by_hand(kind: str, width: int, layers: int, folder: Path) -> dict[str, float]:
    module = network(width, layers)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        module = DistributedDataParallel(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=True)
    average = torch.optim.swa_utils.AveragedModel(module) if kind == "ema" else None
    rows = torch.randn(64, width)

    def train() -> None:
        for begin in range(STEPS):
            optimizer.zero_grad()
            F.mse_loss(module(rows[begin : begin + 8]), rows[begin : begin + 8]).backward()
            optimizer.step()
            if average is not None:
                average.update_parameters(module)

    def save() -> None:
        if os.environ.get("RANK", "0") != "0":
            return
        with (folder / "new.pt").open("wb") as stream:
            torch.save([module.state_dict(), optimizer.state_dict()], stream)
            stream.flush()
            os.fsync(stream.fileno())
        (folder / "new.pt").rename(folder / "state.pt")

    def evaluate() -> None:
        with torch.no_grad():
            (average or module)(rows)

    return stretches(kind, train, save, lambda: None, evaluate)


def by_truestep(kind: str, width: int, layers: int, folder: Path) -> dict[str, float]:
    if kind in FREE:
        from truestep.checkpoints import copy_memory_check
        from truestep.core.control_groups import FreeMemory

        state_bytes = 12 * layers * width * (width + 1)
        copy_memory_check.free_memory = lambda: FreeMemory(int(FREE[kind] * state_bytes), "this machine")
    background = kind != "foreground"
    saving = ts.Saving(at_epoch_end=False, background=background)
    run = ts.Run(folder / "run", progress=False, quiet=True, doctor=kind == "doctor", saving=saving)
    net = run.learner(
        network(width, layers),
        lambda p: torch.optim.AdamW(p, lr=1e-3),
        ema=ts.EMA(0.999) if kind == "ema" else None,
    )
    rows = torch.randn(64, width)

    def loss(batch: Any) -> Any:
        return F.mse_loss(net(batch), batch, reduction="none").mean(1)

    steps = iter(run.steps(10_000))

    def train() -> None:
        for begin in range(STEPS):
            next(steps)
            net.update(loss, rows[begin : begin + 8])

    def save() -> None:
        run.save()
        next(steps)  # is saved before
        net.update(loss, rows[:8])

    def wait() -> None:
        while not list((folder / "run" / "checkpoints").glob("0*")) or list(
            (folder / "run" / "checkpoints").glob(".tmp-*")
        ):
            time.sleep(0.05)

    def evaluate() -> None:
        with net.averaged() if kind == "ema" else nullcontext():
            net.evaluate(loss, [rows])

    return stretches(kind, train, save, wait, evaluate)


def stretches(
    kind: str,
    train: Callable[[], None],
    save: Callable[[], None],
    wait: Callable[[], None],
    evaluate: Callable[[], None],
) -> dict[str, float]:
    train()
    found = {"training": peak_of(train)}
    if kind not in ("plain", "doctor", "ema"):
        stalls = []

        def with_saves() -> None:
            for _ in range(3):
                begin = time.perf_counter()
                save()
                stalls.append(time.perf_counter() - begin)
                train()
            wait()

        found["with saves"] = peak_of(with_saves)
        found["behind saves"] = peak_of(train)
        found["stall, s"] = sorted(stalls[1:])[0]
    found["evaluation"] = peak_of(evaluate)
    return found


def one(who: str, kind: str, width: int, layers: int, folder: Path) -> dict[str, float]:
    """Return the peaks of a row."""
    torch.set_num_threads(1)
    return (by_hand if who == "hand" else by_truestep)(kind, width, layers, folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--folder", default=".", help="where is written")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--one")
    options = parser.parse_args()
    if options.one:
        who, kind = options.one.split("/")
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            given = who, kind, options.width, options.layers, Path(folder)
            print(json.dumps(ts.spawn(one, options.ranks, *given)[0] if options.ranks > 1 else one(*given)))
        return
    print("| | | by hand | Truestep | ratio |\n|---|---|---|---|---|")
    for kind in options.kinds.split(","):
        hand, ours = (_row(options, f"{who}/{kind}") for who in ("hand", "ours"))
        for name, value in hand.items():
            print(
                f"| {kind} | {name} | {value:.6g} | {ours[name]:.6g} | {ours[name] / value:.2f} |", flush=True
            )


def _row(options: argparse.Namespace, one: str) -> dict[str, float]:
    sizes = ["--width", str(options.width), "--layers", str(options.layers), "--folder", options.folder]
    command = [sys.executable, __file__, "--one", one, "--ranks", str(options.ranks), *sizes]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


if __name__ == "__main__":
    main()
