# SPDX-License-Identifier: Apache-2.0
"""Time and communication of an update over two ranks, beside torch's DDP and FSDP2 by hand: `python benchmarks/ranks/update.py`.

Both train the same network on the same rows with the same AdamW and a clip; blocks of updates alternate, and the median of the
blocks' ratios is printed. Calls and bytes are those that rank 0 gives to gloo in one update, as torch's profiler sees them.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import truestep as ts

BLOCK, BLOCKS = 20, 15
SIZES = {"0.3 million weights": 256, "4 million weights": 1024}
ROWS = 256  # of all ranks together
DOUBLES = 9  # of a meeting, all that is not in single precision


def network(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, width),
        nn.ReLU(),
        *[part for _ in range(3) for part in (nn.Linear(width, width), nn.ReLU())],
        nn.Linear(width, 10),
    )


def wrapped(module: nn.Module, strategy: str) -> nn.Module:
    if strategy == "ddp":
        return DistributedDataParallel(module)
    for layer in module:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return fully_shard(module)


def sent(step: Callable[[], None], repeats: int = 10) -> tuple[float, float]:
    """Return the calls and the bytes of an update."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(repeats):
            step()
    found = [event for event in profiler.events() if event.name.startswith("gloo:")]
    numbers = [sum(torch.Size(shape).numel() for shape in event.input_shapes if shape) for event in found]
    return len(found) / repeats, sum(n * (8 if n == DOUBLES else 4) for n in numbers) / repeats


def steps(strategy: str, width: int, folder: Path) -> tuple[Callable[[], None], Callable[[], None], ts.Run]:
    """Return an update by hand, one of ours, and the run of the latter."""
    run = ts.Run(
        folder,
        strategy=strategy,
        progress=False,
        quiet=True,
        doctor=False,
        saving=ts.Saving(at_epoch_end=False),
    )
    net = run.learner(network(width), lambda p: torch.optim.AdamW(p, lr=1e-3), clip=ts.ClipNorm(1.0))
    model = wrapped(network(width), strategy)
    # of parts of weights torch has no fused kernel here
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=strategy == "ddp")
    rows, labels = torch.randn(ROWS, 64), torch.randint(0, 10, (ROWS,))
    part = run.context.world.share.of(ROWS)
    batch = rows[part], labels[part]

    def by_hand() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(batch[0]), batch[1]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def ours() -> None:
        net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), batch)

    return by_hand, ours, run


def seconds(step: Callable[[], None]) -> float:
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(BLOCK):
        step()
    dist.barrier()
    return (time.perf_counter() - begin) / BLOCK


def row(strategy: str, name: str, width: int, blocks: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        by_hand, ours, run = steps(strategy, width, Path(folder) / "run")
        found = [(seconds(by_hand), seconds(ours)) for _ in range(blocks)][2:]
        talk = [sent(step) for step in (by_hand, ours)]
        run.close()
    medians = [statistics.median(column) * 1e3 for column in zip(*found, strict=True)]
    ratios = sorted(mine / hand for hand, mine in found)
    low, middle, high = ratios[len(ratios) // 10], statistics.median(ratios), ratios[-1 - len(ratios) // 10]
    calls = " | ".join(f"{count:g} calls, {size / 1e3:,.1f} kB" for count, size in talk)
    return (
        f"| {strategy}, {name} | {medians[0]:.2f} ms | {medians[1]:.2f} ms | {middle:.3f} ({low:.2f} to {high:.2f}) "
        f"| {calls} |"
    )


def work(strategy: str, blocks: int) -> list[str]:
    torch.set_num_threads(1)
    return [row(strategy, name, width, blocks) for name, width in SIZES.items()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--ranks", type=int, default=2, help="with more than cores the times say nothing")
    options = parser.parse_args()
    print("| | by hand | Truestep | ratio (10th to 90th) | by hand an update | Truestep an update |")
    print("|---|---|---|---|---|---|")
    for strategy in ("ddp", "fsdp"):
        print("\n".join(ts.spawn(work, options.ranks, strategy, options.blocks)[0]))
