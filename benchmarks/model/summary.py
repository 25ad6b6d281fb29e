# SPDX-License-Identifier: Apache-2.0
"""Parameters and multiply-adds of seventeen architectures: by formulas, by ts.summary, by torchinfo; seconds beside.

`python benchmarks/model/summary.py` prints a table in Markdown. Ours finds the memory
of training too.
"""

import time
import warnings

import torch
from architectures import ALL
from torchinfo import summary as torchinfo_summary

import truestep as ts


def by_torchinfo(model, batch):
    """Return its counts, or the error's name; in its default mode, eval (in train mode it moves statistics)."""
    try:
        found = torchinfo_summary(model, input_data=batch, verbose=0)
    except Exception as error:
        return type(error).__name__, type(error).__name__
    return found.total_params, found.total_mult_adds


def timed(call, *arguments):
    """Return the result and the seconds it took."""
    start = time.perf_counter()
    result = call(*arguments)
    return result, time.perf_counter() - start


def cell(value, expected):
    shown = f"{value:,}" if isinstance(value, int) else value
    return shown if value == expected else f"**{shown}**"


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    ts.summary(torch.nn.Linear(2, 2), torch.zeros(1, 2))  # imports
    print(
        "| architecture | parameters | ts | torchinfo | multiply-adds | ts | torchinfo | s (ts) | s (torchinfo) |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    wrong = {"ts": 0, "torchinfo": 0}
    for name, each in ALL.items():
        parameters, multiply_adds = each.cost
        ours, our_seconds = timed(ts.summary, each.make(), each.batch())
        theirs, their_seconds = timed(by_torchinfo, each.make(), each.batch())
        wrong["ts"] += (ours.num_parameters, ours.multiply_adds) != (parameters, multiply_adds)
        wrong["torchinfo"] += theirs != (parameters, multiply_adds)
        print(
            f"| {name} | {parameters:,} | {cell(ours.num_parameters, parameters)} | {cell(theirs[0], parameters)} "
            f"| {multiply_adds:,} | {cell(ours.multiply_adds, multiply_adds)} | {cell(theirs[1], multiply_adds)} "
            f"| {our_seconds:.2f} | {their_seconds:.2f} |"
        )
    print(f"\nWrong (bold): ts {wrong['ts']}, torchinfo {wrong['torchinfo']}, of {len(ALL)}.")


if __name__ == "__main__":
    main()
