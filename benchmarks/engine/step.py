# SPDX-License-Identifier: Apache-2.0
"""Microseconds a step beside other libraries and loops: `python benchmarks/engine/step.py [--steps 10000]`.

All contenders take turns in one process, 250 steps at a time; a figure is the median over all steps. Garbage
collection is off while steps are timed, and torch uses one thread.
"""

import argparse
import gc
import statistics
import warnings

import contenders
import torch

CHUNK = 250
WARM_UP = 20


def measure(makers, steps):
    """Return {name: step durations in seconds}, taken in turns."""
    trainings = {name: make() for name, make in makers.items()}
    durations = {name: [] for name in makers}
    for training in trainings.values():
        training.run(CHUNK)
    gc.disable()
    while min(len(times) for times in durations.values()) < steps:
        for name, training in trainings.items():
            began = training.run(CHUNK)
            durations[name] += [b - a for a, b in zip(began[WARM_UP:], began[WARM_UP + 1 :], strict=False)]
            gc.collect()
    gc.enable()
    return durations


def table(title, durations, base):
    print(f"\n{title} ({min(map(len, durations.values())):,} steps each)\n")
    print("| | median, µs | 10th percentile, µs | ratio to the best loop by hand |\n|---|---|---|---|")
    reference = statistics.median(durations[base])
    for name, times in durations.items():
        median, tenth = statistics.median(times), statistics.quantiles(times, n=10)[0]
        print(f"| {name} | {median * 1e6:.1f} | {tenth * 1e6:.1f} | {median / reference:.2f} |", flush=True)


def clips(steps):
    """Each kind of clip on the same step."""
    import truestep as ts

    task = contenders.perceptron(clip=False)
    kinds = {
        "no clip": None,
        "ClipNorm(1.0), not reached": ts.ClipNorm(1e6),
        "ClipNorm, reached": ts.ClipNorm(1e-6),
        "ClipNorm, infinity": ts.ClipNorm(1e-6, norm_type=float("inf")),
        "ClipValue": ts.ClipValue(0.01),
        "ClipAdaptive": ts.ClipAdaptive(),
        "a function": lambda gradients: None,
    }
    makers = {name: (lambda kind=kind: contenders.Truestep(task, clip=kind)) for name, kind in kinds.items()}
    table("Kinds of clipping", measure(makers, steps), "no clip")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10_000)
    steps = parser.parse_args().steps
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for task in (contenders.one_parameter(), contenders.perceptron(clip=False), contenders.perceptron()):
        makers = {name: (lambda kind=kind, task=task: kind(task)) for name, kind in contenders.ALL.items()}
        makers["as notes write it"] = lambda task=task: contenders.Notes(task)
        table(task.name, measure(makers, steps), "hand-written, best")
    clips(steps)


if __name__ == "__main__":
    main()
