# SPDX-License-Identifier: Apache-2.0
"""Time per update over two ranks, beside torch's DDP written by hand, in turns in one run: `python benchmarks/ranks/update.py`.

Both train the same network on the same rows with the same fused AdamW and a clip; blocks of updates alternate, and the median of
the blocks' ratios is printed.
"""

import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import truestep as ts

BLOCK, BLOCKS = 20, 15
SIZES = {"0.3 million weights": 256, "4 million weights": 1024}
ROWS = 256  # of both ranks together


def network(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, width),
        nn.ReLU(),
        *[part for _ in range(3) for part in (nn.Linear(width, width), nn.ReLU())],
        nn.Linear(width, 10),
    )


def measured(width: int, folder: Path) -> tuple[float, float, float]:
    run = ts.Run(folder, progress=False, quiet=True, doctor=False, saving=ts.Saving(at_epoch_end=False))
    net = run.learner(network(width), lambda p: torch.optim.AdamW(p, lr=1e-3), clip=ts.ClipNorm(1.0))
    wrapped = DistributedDataParallel(network(width))
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3, fused=True)
    rows, labels = torch.randn(ROWS, 64), torch.randint(0, 10, (ROWS,))
    part = run.context.world.share.of(ROWS)
    batch = rows[part], labels[part]

    def by_hand() -> None:
        optimizer.zero_grad()
        F.cross_entropy(wrapped(batch[0]), batch[1]).backward()
        torch.nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        optimizer.step()

    def engine() -> None:
        net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), batch)

    def seconds(step) -> float:
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(BLOCK):
            step()
        dist.barrier()
        return (time.perf_counter() - begin) / BLOCK

    found = [(seconds(by_hand), seconds(engine)) for _ in range(BLOCKS)][2:]
    medians = [statistics.median(column) for column in zip(*found, strict=True)]
    ratio = statistics.median(engine / hand for hand, engine in found)
    run.close()
    return medians[0], medians[1], ratio


def work() -> list[str]:
    torch.set_num_threads(1)
    lines = []
    for name, width in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            hand, engine, ratio = measured(width, Path(folder) / "run")
        lines.append(
            f"{name}: by hand {hand * 1e3:.2f} ms, Truestep {engine * 1e3:.2f} ms, ratio {ratio:.3f}"
        )
    return lines


if __name__ == "__main__":
    print("\n".join(ts.spawn(work, 2)[0]))
