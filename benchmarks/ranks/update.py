# SPDX-License-Identifier: Apache-2.0
"""Time and communication of an update over two ranks, beside torch's DDP and FSDP2 by hand: `python benchmarks/ranks/update.py`.

Both train the same network on shuffled rows of the same data with the same AdamW and a clip; blocks of updates alternate, and the
median of the blocks' ratios is printed, of the time that passes and of the processor time of rank 0, all its threads together (a
machine that others use has more of the first). Calls and bytes are those that rank 0 gives to gloo in one update, as torch's
profiler sees them.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import truestep as ts

BLOCK, BLOCKS = 20, 9
SIZES = {
    "2,400 weights": 16,
    "20,000 weights": 64,
    "0.3 million weights": 256,
    "4 million weights": 1024,
    "33 MB (8.3 million)": 1640,
}
ROWS = 256  # of all ranks together
EXAMPLES = 1 << 16  # an epoch of 256 updates; the two meetings at its ends are of all its updates
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


def steps(
    strategy: str, width: int, folder: Path, examples: int = EXAMPLES
) -> tuple[Callable[[], None], Callable[[], None], ts.Run]:
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
    rows, labels = torch.randn(examples, 64), torch.randint(0, 10, (examples,))
    theirs = batches_by_hand(rows, labels, run.context.world.share.of(ROWS))
    data = run.data((rows, labels), batch_size=ROWS, shuffle=True)
    given = (batch for _ in run.epochs(10**6) for batch in run.batches(data))

    def by_hand() -> None:
        inputs, targets = next(theirs)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def ours() -> None:
        net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), next(given))

    return by_hand, ours, run


def batches_by_hand(rows: Tensor, labels: Tensor, part: slice) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a rank's part of each batch, the tensors indexed at once: a `DataLoader` takes longer."""
    generator = torch.Generator().manual_seed(0)
    while True:
        order = torch.randperm(len(rows), generator=generator)
        for chosen in order.split(ROWS):
            yield rows[chosen[part]], labels[chosen[part]]


def seconds(step: Callable[[], None]) -> tuple[float, float]:
    """Return how long a step takes, and how much of a processor."""
    dist.barrier()
    begin, worked = time.perf_counter(), time.process_time()
    for _ in range(BLOCK):
        step()
    worked = time.process_time() - worked
    dist.barrier()
    return (time.perf_counter() - begin) / BLOCK, worked / BLOCK


def row(strategy: str, name: str, width: int, blocks: int, examples: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        by_hand, ours, run = steps(strategy, width, Path(folder) / "run", examples)
        found = [(*seconds(by_hand), *seconds(ours)) for _ in range(blocks + 2)][2:]
        talk = [sent(step) for step in (by_hand, ours)]
        run.close()
    hand, hand_worked, mine, worked = (statistics.median(column) * 1e3 for column in zip(*found, strict=True))
    times, processor = (ratios([each[kind::2] for each in found]) for kind in (0, 1))
    calls = " | ".join(f"{count:g} calls, {size / 1e3:,.1f} kB" for count, size in talk)
    return (
        f"| {strategy}, {name} | {hand:.2f} ms ({hand_worked:.2f}) | {mine:.2f} ms ({worked:.2f}) | {times} | {processor} "
        f"| {calls} |"
    )


def ratios(pairs: Sequence[Sequence[float]]) -> str:
    """Return the median of ratios, and the smallest and largest."""
    found = sorted(mine / hand for hand, mine in pairs)
    return f"{statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})"


def work(strategy: str, blocks: int, widths: list[int], examples: int) -> list[str]:
    torch.set_num_threads(1)
    return [row(strategy, name, width, blocks, examples) for name, width in SIZES.items() if width in widths]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--ranks", type=int, default=2, help="with more than cores the times say nothing")
    parser.add_argument("--strategies", nargs="+", default=["ddp", "fsdp"])
    parser.add_argument("--widths", nargs="+", type=int, default=[*SIZES.values()], help="of layers")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help=f"of an epoch; {ROWS} an update")
    options = parser.parse_args()
    print("Milliseconds of an update and (in brackets) of the processor; ratios: median, smallest, largest.")
    print("| | by hand | Truestep | ratio | of processor time | by hand an update | Truestep an update |")
    print("|---|---|---|---|---|---|---|")
    for strategy in options.strategies:
        print(
            "\n".join(
                ts.spawn(work, options.ranks, strategy, options.blocks, options.widths, options.examples)[0]
            ),
            flush=True,
        )
