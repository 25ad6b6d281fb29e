# SPDX-License-Identifier: Apache-2.0
"""Memory that each rank needs beyond what it holds while a run with divided weights goes on: `python benchmarks/ranks/loading.py`.

A network of some eight million weights is saved after one update by two ranks, with AdamW and a moving average: 126 MB. Then two,
four and three ranks go on from it. What is printed is the peak of the memory of each process while it loads, less what it had
before.
"""

import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import truestep as ts

WIDTH, LAYERS = 1000, 8
MB = 1e6


def status(word: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(word)) / MB


def work(folder: str, steps: int) -> tuple[float, float]:
    """Train to so many steps; return the megabytes and the seconds that it took to begin."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    saving = ts.Saving(background=False)
    run = ts.Run(folder, strategy="fsdp", progress=False, quiet=True, doctor=False, saving=saving)
    layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    net = run.learner(layers, torch.optim.AdamW, ema=ts.EMA(decay=0.9))
    rows, since = torch.randn(4, WIDTH), time.perf_counter()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = status("VmRSS")
    found = None
    for _ in run.steps(steps):
        found = found or (status("VmHWM") - before, time.perf_counter() - since)
        net.update(lambda batch: net(batch).square().mean(1), rows)
    run.close()
    assert found is not None
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ts.spawn(work, 2, folder, 1)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*.safetensors")) / MB
        print(f"a checkpoint of {size:.0f} MB, saved by 2 ranks")
        for steps, ranks in enumerate((2, 4, 3), start=2):
            for rank, (peak, seconds) in enumerate(ts.spawn(work, ranks, folder, steps)):
                print(f"{ranks} ranks: rank {rank} needed {peak:.0f} MB and {seconds:.2f} s")
