# SPDX-License-Identifier: Apache-2.0
"""An epoch over 50,000 images in memory: ours, the limit, and DataLoaders over a TensorDataset.

python benchmarks/data/in_memory.py

The limit is one `index_select` a batch with the order already there. A data set with `__getitems__` and no collating is
the fastest that a DataLoader can be given.
"""

import argparse
import statistics
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from truestep.engine.data import DataOptions, open_source


class TakenTogether(TensorDataset):
    """Hands out whole batches, which need no collating."""

    def __getitems__(self, indices):
        rows = torch.tensor(indices)
        return tuple(tensor.index_select(0, rows) for tensor in self.tensors)


def as_it_is(batch):
    return batch


def index_select(tensors, size, order):
    for rows in order.split(size):
        yield tuple(tensor.index_select(0, rows) for tensor in tensors)


def epoch_seconds(batches):
    begin = time.perf_counter()  # the clock: workers' time is none of this process's
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
        together = DataLoader(TakenTogether(images, labels), size, shuffle=True, collate_fn=as_it_is)
        order = torch.randperm(count)
        makers = {
            "index_select, the limit": lambda _, data=data, order=order: index_select(
                data.tensors, size, order
            ),
            "truestep, shuffled": shuffled.batches,
            "truestep, in order": in_order.batches,
            "DataLoader, 0 workers": lambda _, loader=loaders[0]: loader,
            "DataLoader, 2 workers": lambda _, loader=loaders[2]: loader,
            "DataLoader, __getitems__": lambda _, loader=together: loader,
        }
        medians = measure(makers, arguments.repeats, count)
        for name, seconds in medians.items():
            ratio = medians["truestep, shuffled"] / seconds
            print(f"{images.dtype!s:>14} {name:>24} {seconds:8.3f} s   ours is {ratio:5.1%} of it")


if __name__ == "__main__":
    main()
