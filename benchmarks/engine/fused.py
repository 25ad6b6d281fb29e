# SPDX-License-Identifier: Apache-2.0
"""One optimizer step with and without torch's fused kernel: `python benchmarks/engine/fused.py`.

The figures behind the engine's choice of `fused=True`. The kinds take turns; a figure is a median.
"""

import argparse
import statistics
import time

import torch
from torch import nn

MODELS = {
    "one parameter": [(1, 1)],
    "perceptron, 26 thousand": [(64, 128), (128, 128), (128, 10)],
    "ten layers, 2.6 million": [(512, 512)] * 10,
    "four layers, 67 million": [(4096, 4096)] * 4,
}
OPTIMIZERS = {
    "SGD": lambda p, **kind: torch.optim.SGD(p, lr=1e-3, **kind),
    "SGD with momentum": lambda p, **kind: torch.optim.SGD(p, lr=1e-3, momentum=0.9, **kind),
    "Adam": lambda p, **kind: torch.optim.Adam(p, lr=1e-3, **kind),
    "AdamW": lambda p, **kind: torch.optim.AdamW(p, lr=1e-3, **kind),
    "Adagrad": lambda p, **kind: torch.optim.Adagrad(p, lr=1e-3, **kind),
}
KINDS = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def measure(make, sizes, rounds):
    steppers, times = {}, {name: [] for name in KINDS}
    for name, kind in KINDS.items():
        parameters = [p for size in sizes for p in nn.Linear(*size).parameters()]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        steppers[name] = make(parameters, **kind)
    for number in range(rounds + 3):
        for name, stepper in steppers.items():
            began = time.perf_counter()
            stepper.step()
            if number >= 3:
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    torch.set_num_threads(parser.parse_args().threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    print("| model | optimizer | default, µs | foreach, µs | fused, µs | fused / faster of the others |")
    print("|---|---|---|---|---|---|")
    for model, sizes in MODELS.items():
        rounds = 15 if "million" in model else 400
        for name, make in OPTIMIZERS.items():
            found = measure(make, sizes, rounds)
            ratio = found["fused"] / min(found["default"], found["foreach"])
            cells = " | ".join(f"{found[kind] * 1e6:,.0f}" for kind in KINDS)
            print(f"| {model} | {name} | {cells} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
