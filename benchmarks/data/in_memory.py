# SPDX-License-Identifier: Apache-2.0
"""An epoch over 50,000 images in memory: ours against the usual DataLoader over a TensorDataset.

python benchmarks/data/in_memory.py
"""

import argparse
import statistics
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from truestep.engine.data import DataOptions, open_source


def epoch_seconds(batches):
    begin = time.perf_counter()
    count = sum(len(labels) for _, labels in batches)
    return time.perf_counter() - begin, count


def measure(makers, repeats, num_images):
    times = {name: [] for name in makers}
    for repeat in range(repeats):  # interleaved, so that a busy minute hits all of them
        for name, make in makers.items():
            seconds, count = epoch_seconds(make(repeat))
            assert count == num_images
            times[name].append(seconds)
    return {name: statistics.median(found) for name, found in times.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    size, count = arguments.batch_size, arguments.images
    labels = torch.randint(10, (count,))
    print(
        f"Seconds for an epoch over {count:,} images of 3x32x32 in batches of {size}; "
        f"{torch.get_num_threads()} threads, median of {arguments.repeats}"
    )
    for images in (torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8), torch.rand(count, 3, 32, 32)):
        data = TensorDataset(images, labels)
        loaders = {
            workers: DataLoader(data, size, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
            for workers in (0, 2)
        }
        shuffled = open_source((images, labels), DataOptions(batch_size=size, shuffle=True), seed=0)
        in_order = open_source((images, labels), DataOptions(batch_size=size), seed=0)
        makers = {
            "truestep, shuffled": shuffled.batches,
            "truestep, in order": in_order.batches,
            "DataLoader, 0 workers": lambda _, loader=loaders[0]: loader,
            "DataLoader, 2 workers": lambda _, loader=loaders[2]: loader,
        }
        medians = measure(makers, arguments.repeats, count)
        for name, seconds in medians.items():
            ratio = medians["truestep, shuffled"] / seconds
            print(f"{images.dtype!s:>14} {name:>24} {seconds:8.3f} s   ours is {ratio:5.1%} of it")


if __name__ == "__main__":
    main()
