# SPDX-License-Identifier: Apache-2.0
"""Peak memory of a CNN with two data workers beside the loop by hand: `python benchmarks/memory/convolutions.py [--images 640]`.

Images are made by the workers, so that they are tensors in shared memory as those of any data set. A row is a process of its own,
its peak that of the training process (`VmHWM`) and of its workers' own pages, from the start to the end; ratios are medians of
the pairs. `--mapped 131072` sets glibc's MALLOC_MMAP_THRESHOLD_ for all contenders: blocks of that size are given back when freed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

BATCH, EPOCHS = 64, 3
CONTENDERS = ("by hand", "a run", "a run with the doctor")


class Images(Dataset[tuple[Tensor, int]]):
    """Drawn images of 3 x 64 x 64."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        return torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(number)), number % 10


def network() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, behind in ((3, 32), (32, 64), (64, 128), (128, 128)):
        layers += [
            nn.Conv2d(before, behind, 3, padding=1),
            nn.BatchNorm2d(behind),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def by_hand(folder: Path, data: Images) -> None:
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    images, test = (DataLoader(data, BATCH, shuffle=turn, num_workers=2) for turn in (True, False))
    for _ in range(EPOCHS):
        net.train()
        for inputs, labels in images:
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            right = sum(float((net(inputs).argmax(1) == labels).sum()) for inputs, labels in test)
        torch.save([net.state_dict(), optimizer.state_dict(), right], folder / "state.pt")


def as_a_run(folder: Path, data: Images, *, doctor: bool) -> None:
    import truestep as ts

    run = ts.Run(folder / "run", progress=False, quiet=True, doctor=doctor)
    net = run.learner(network(), lambda p: torch.optim.AdamW(p, lr=1e-3))
    images = run.data(data, batch_size=BATCH, shuffle=True, num_workers=2)
    test = run.data(data, batch_size=BATCH, num_workers=2)

    def right(batch: list[Tensor]) -> Tensor:
        return (net(batch[0]).argmax(1) == batch[1]).float()

    for _ in run.epochs(EPOCHS):
        for batch in run.batches(images):
            net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), batch)
        run.log(right=net.evaluate(right, test))
    run.finish()


def own_mib(process: str) -> float:
    """Return the pages that a process has for itself alone, in MiB."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def peaks(train: Callable[[], None]) -> dict[str, float]:
    """Return the most memory of this process, and the most that its children had for themselves together, in MiB."""
    most, ended = [0.0], threading.Event()

    def look() -> None:
        while not ended.wait(0.25):
            found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            most[0] = max(most[0], sum(map(own_mib, found)))

    looker = threading.Thread(target=look)
    begin = _high_water()
    looker.start()
    began = time.process_time()
    try:
        train()
    finally:
        ended.set()
        looker.join()
    return {"start": begin, "peak": _high_water(), "workers": most[0], "seconds": time.process_time() - began}


def _high_water() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def one(name: str, folder: str, images: int) -> None:
    """Print the figures of a contender."""
    torch.set_num_threads(1)
    data = Images(images)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        train = (
            (lambda: by_hand(Path(own), data))
            if name == "by hand"
            else (lambda: as_a_run(Path(own), data, doctor="doctor" in name))
        )
        print(json.dumps(peaks(train)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=640, help="how many an epoch reads")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", default=".", help="where is written")
    parser.add_argument("--mapped", type=int, help="bytes from which on glibc maps a block for itself")
    parser.add_argument("--contenders", nargs="+", default=[*CONTENDERS])
    parser.add_argument("--one")
    options = parser.parse_args()
    if options.one:
        one(options.one, options.folder, options.images)
        return
    environment = {**os.environ} | ({"MALLOC_MMAP_THRESHOLD_": str(options.mapped)} if options.mapped else {})
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options.contenders}
    for _ in range(options.repeats):
        for name, rows in found.items():
            command = [sys.executable, __file__, "--one", name, "--folder", options.folder]
            command += ["--images", str(options.images)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
            rows.append(json.loads(done.stdout))
            print(name, rows[-1], file=sys.stderr, flush=True)
    print(
        "| | start | peak, MiB (least to most) | beside the first | workers' own pages |\n|---|---|---|---|---|"
    )
    base = next(iter(found.values()))
    for name, rows in found.items():
        column = sorted(row["peak"] for row in rows)
        ratio = statistics.median(row["peak"] / first["peak"] for row, first in zip(rows, base, strict=True))
        start, workers = (statistics.median(row[key] for row in rows) for key in ("start", "workers"))
        middle = statistics.median(column)
        print(
            f"| {name} | {start:.0f} | {middle:.0f} ({column[0]:.0f} to {column[-1]:.0f}) | {ratio:.2f} | {workers:.0f} |"
        )


if __name__ == "__main__":
    main()
