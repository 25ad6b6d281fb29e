# SPDX-License-Identifier: Apache-2.0
"""Rank 0 alone looks at other data in the body of the loop: `python looked_at_alone.py FOLDER DATA HOW`.

DATA is "mapped" or "a stream", HOW says whether it looks at "all", or the look is "left" at its first batch.
"""

import sys
from pathlib import Path

import torch

import truestep as ts


def main(folder, kind, how):
    rows = torch.randn(48, 3, generator=torch.Generator().manual_seed(0))
    with ts.Run(folder / "run", progress=False, doctor=False) as run:
        net = run.learner(torch.nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        data = run.data(rows if kind == "mapped" else lambda: iter(rows), batch_size=8)
        few = run.data(rows[:9], batch_size=3)
        for batch in run.batches(data):
            if run.is_main and run.step > 1:
                for _ in run.batches(few):
                    if how == "left":
                        break
            net.update(lambda batch: net(batch).square().squeeze(1), batch)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
