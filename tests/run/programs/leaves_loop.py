# SPDX-License-Identifier: Apache-2.0
"""The loop of one rank is ended by an exception, which code outside of it catches, or by `sys.exit`.

`python leaves_loop.py FOLDER HOW`
"""

import contextlib
import os
import sys
from pathlib import Path

import torch
from torch.utils.data import Dataset

import truestep as ts

RANK = int(os.environ["RANK"])
HOW = sys.argv[2]
SEEN = []


class Rows(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        # once the training is under way
        if HOW == "caught, of the data" and RANK and index == 14 and SEEN:
            raise OSError("image 14 is cut off")  # the cause
        return torch.full((2,), index / 24)


def find_fault(step):
    if step == 3 and RANK and "deeper" in HOW:
        raise LookupError(f"no label for {step}")  # the cause


def shown(batches):
    for batch in batches:
        SEEN.append(batch)
        yield batch


def end_body(run):
    find_fault(run.step)
    everybody = HOW.startswith("all")
    if run.step != 3 or not (RANK or everybody):
        return
    status = 3
    if HOW in ("caught, of the body", "caught, shown", "all caught"):
        raise KeyError("image_17")  # the cause
    assert HOW != "caught, asserted", "the labels are 0 to 9"  # the cause
    if HOW == "exits":
        sys.exit(3)  # the cause
    if HOW == "exits with a variable":
        sys.exit(status)  # the cause
    if HOW == "raises its exit":
        raise SystemExit(3)  # the cause
    if HOW == "exits with words":
        sys.exit("nothing to train")  # the cause
    if HOW == "exits with 0":
        sys.exit(0)  # the cause


def train(run, net, source):
    if HOW == "caught, in steps":
        for step in run.steps(8):
            net.update(loss(net), torch.ones(4, 2))
            if step == 3 and RANK:
                raise ValueError("step 3")  # the cause
        return
    for _ in run.epochs(2):
        wrapped = shown if "shown" in HOW or "data" in HOW else iter
        for batch in wrapped(run.batches(source)):
            if "within" in HOW:
                with contextlib.suppress(ValueError):
                    int("x" if RANK else "1")
            net.update(loss(net), batch)
            end_body(run)
            if HOW == "all break" and run.step == 2:
                break


def loss(net):
    return lambda rows: net(rows).squeeze(1).square()


def main():
    run = ts.Run(Path(sys.argv[1]) / "run", progress=False, quiet=True, doctor=False, timeout_seconds=20)
    net = run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
    source = run.data(Rows(), batch_size=4, num_workers=0)
    try:
        train(run, net, source)
    except Exception as error:
        print(f"training failed: {type(error).__name__}: {error}")
    if "then evaluates" in HOW or HOW.startswith("all"):
        print(net.evaluate(lambda rows: net(rows).squeeze(1), source))


if __name__ == "__main__":
    main()
