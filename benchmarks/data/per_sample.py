# SPDX-License-Identifier: Apache-2.0
"""What keyed randomness costs a sample that is decoded and augmented, against a plain DataLoader.

python benchmarks/data/per_sample.py
"""

import argparse
import io
import random
import statistics
import time
import warnings

import numpy as np
import psutil
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from truestep.engine.data import DataOptions, open_source


class Pictures(Dataset):
    """JPEG files in memory: decoded, cropped, flipped, scaled to floats."""

    def __init__(self, count, side):
        smooth = np.random.default_rng(0).random((64, side // 16, side // 16, 3))
        self.files = []
        for noise in smooth:
            picture = Image.fromarray((noise * 255).astype(np.uint8)).resize(
                (side, side), Image.Resampling.BICUBIC
            )
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=90)
            self.files.append(buffer.getvalue())
        self.count, self.side = count, side

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        left, top = random.randrange(self.side // 8), random.randrange(self.side // 8)
        edge = self.side - self.side // 8
        pixels = np.asarray(picture.crop((left, top, left + edge, top + edge)))
        if np.random.rand() < 0.5:
            pixels = pixels[:, ::-1]
        image = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float().div_(255)
        return image + 0.01 * torch.randn(()), index


def processor_seconds():
    """Processor time of this process and its workers, which a busy machine distorts less than the clock."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(process.cpu_times().user + process.cpu_times().system for process in processes)


def measured(batches, count):
    clock, processor = time.perf_counter(), processor_seconds()
    assert sum(len(indices) for _, indices in batches) == count
    return time.perf_counter() - clock, processor_seconds() - processor


def compare(data, num_workers, repeats):
    """Return microseconds a sample: plain by the clock and by the processor, and so ours.

    The median by the clock; the mean by the processor, which is counted in steps of 10 ms.
    """
    count = len(data)
    source = open_source(data, DataOptions(batch_size=32, shuffle=True, num_workers=num_workers), seed=0)
    loader = DataLoader(data, 32, shuffle=True, num_workers=num_workers, persistent_workers=num_workers > 0)
    measured(loader, count), measured(source.batches(0), count)  # start the workers of both
    rows = [(*measured(loader, count), *measured(source.batches(e), count)) for e in range(1, repeats + 1)]
    source.close()
    average = (statistics.median, statistics.mean, statistics.median, statistics.mean)
    columns = zip(*rows, strict=True)
    return [1e6 * mean(column) / count for mean, column in zip(average, columns, strict=True)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of an epoch")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    print(f"Microseconds a sample, decoding JPEGs, median of {arguments.repeats} epochs each, interleaved")
    print(f"{'':>20} {'by the clock':^33}   {'by the processor':^33}")
    print(f"{'image':>11} {'workers':>8} " + 2 * f"{'DataLoader':>12} {'truestep':>11} {'':>10}  ")
    for side in (64, 128, 256, 512):
        begin = time.perf_counter()
        _ = [Pictures(64, side)[i] for i in range(64)]
        each = (time.perf_counter() - begin) / 64
        data = Pictures(max(256, int(arguments.seconds / each)), side)
        for workers in (0, 2, 4):
            plain, plain_processor, ours, ours_processor = compare(data, workers, arguments.repeats)
            clock = f"{plain:>9.0f} µs {ours:>8.0f} µs {ours / plain - 1:>+10.1%}"
            extra = ours_processor / plain_processor - 1
            processor = f"{plain_processor:>11.0f} µs {ours_processor:>8.0f} µs {extra:>+10.1%}"
            print(f"{side:>7}x{side:<3} {workers:>8} {clock} {processor}", flush=True)


if __name__ == "__main__":
    main()
