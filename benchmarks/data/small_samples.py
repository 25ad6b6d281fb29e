# SPDX-License-Identifier: Apache-2.0
"""What keyed randomness costs small samples, by what their transforms draw from, against a plain DataLoader.

python benchmarks/data/small_samples.py [--pairs 15] [--batch-size 128]

Pictures of 3x32x32 in memory are flipped, shifted and scaled one by one. Both load in this process; an epoch of one
and an epoch of the other take turns, and the ratio of a pair's processor times is what is shown: its median and, in
brackets, the 10th and 90th percentile. By-length batches are compared with a sampler that shuffles, sorts pools of
100 batches by length and shuffles the batches, as torchtext's bucket iterator does.
"""

import argparse
import random
import statistics
import time

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

from truestep.engine.data import DataOptions, open_source


class Pictures(Dataset):
    """Each picture is flipped, shifted and scaled; whether and by how much is drawn by `draw`, one of DRAWS."""

    def __init__(self, count, draw):
        self.pictures = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8)
        self.own = np.random.default_rng(0)
        self.own_torch = torch.Generator()
        self.draw = draw

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        number = self.draw(self)
        picture = self.pictures[index]
        if number < 0.5:
            picture = picture.flip(2)
        shift = int(4 * number)
        return picture[:, shift : shift + 28, shift : shift + 28].float().div_(255), index


class PicturesTogether(Pictures):
    """The same, many at a time."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


DRAWS = {
    "nothing": lambda _: 0.25,
    "torch": lambda _: torch.rand(()).item(),
    "numpy": lambda _: np.random.rand(),
    "default_rng of its own": lambda data: data.own.random(),
    "torch.Generator of its own": lambda data: torch.rand((), generator=data.own_torch).item(),
    "random": lambda _: random.random(),
}


class Buckets(Sampler):
    """Batches of similar lengths, in the usual way."""

    def __init__(self, lengths, batch_size):
        self.lengths, self.batch_size = lengths, batch_size

    def __len__(self):
        return (len(self.lengths) + self.batch_size - 1) // self.batch_size

    def __iter__(self):
        order = torch.randperm(len(self.lengths)).tolist()
        pool = 100 * self.batch_size
        batches = []
        for begin in range(0, len(order), pool):
            near = sorted(order[begin : begin + pool], key=self.lengths.__getitem__)
            batches += [near[i : i + self.batch_size] for i in range(0, len(near), self.batch_size)]
        random.shuffle(batches)
        yield from batches


def pad(samples):
    return pad_sequence(samples, batch_first=True)


def processor_seconds(batches):
    begin = time.process_time()
    for _ in batches:
        pass
    return time.process_time() - begin


def ratios(loader, source, pairs):
    processor_seconds(loader), processor_seconds(source.batches(0))
    found = []
    for pair in range(pairs):
        first, second = (loader, source.batches(pair + 1)), (source.batches(pair + 1), loader)
        times = [processor_seconds(batches) for batches in (second if pair % 2 else first)]
        plain, ours = reversed(times) if pair % 2 else times
        found.append((ours / plain, plain))
    return found


def sentences_of(count):
    """Return sentences of random lengths, and these."""
    lengths = np.random.default_rng(0).integers(5, 200, count)
    return [torch.zeros(length, dtype=torch.long) for length in lengths], lengths


def source_of(name, count, size, kind=Pictures):
    """Return our source of pictures whose transforms draw from one of DRAWS, or of sentences "by length"."""
    if name == "by length":
        sentences, lengths = sentences_of(count)
        options = DataOptions(batch_size=size, shuffle=True, by_length=lengths, collate=pad, num_workers=0)
        return open_source(sentences, options, seed=0)
    options = DataOptions(batch_size=size, shuffle=True, num_workers=0)
    return open_source(kind(count, DRAWS[name]), options, seed=0)


def loader_of(name, count, size, kind=Pictures):
    """Return what people write instead."""
    if name == "by length":
        sentences, lengths = sentences_of(count)
        return DataLoader(sentences, batch_sampler=Buckets(lengths.tolist(), size), collate_fn=pad)
    return DataLoader(kind(count, DRAWS[name]), size, shuffle=True)


def show(name, found, count):
    each = sorted(ratio for ratio, _ in found)
    low, high = each[len(each) // 10], each[-1 - len(each) // 10]
    plain = 1e6 * statistics.median(seconds for _, seconds in found) / count
    print(f"| {name} | {plain:.1f} | {statistics.median(each):.2f} ({low:.2f} to {high:.2f}) |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=12_800)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", choices=(*DRAWS, "by length"), action="append")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    count, size = arguments.samples, arguments.batch_size
    print(f"{count:,} samples, batches of {size}, {arguments.pairs} pairs, one thread")
    print("| transforms draw from | DataLoader, µs a sample | ours / DataLoader |\n|---|---|---|")
    for name in arguments.only or (*DRAWS, "by length"):
        for kind in (Pictures, PicturesTogether) if name == "torch" else (Pictures,):
            both = loader_of(name, count, size, kind), source_of(name, count, size, kind)
            label = name if kind is Pictures else f"{name}, with __getitems__"
            show(label, ratios(*both, arguments.pairs), count)


if __name__ == "__main__":
    main()
