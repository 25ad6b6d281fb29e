# SPDX-License-Identifier: Apache-2.0
"""What an update costs beside the best loop by hand: `python benchmarks/engine/update.py [--pairs 200] [row ...]`.

Both take turns of 25 steps, each in a process of its own (`turns.py`) and on one thread, and the processor time of each turn is
compared with that of its neighbour, so that other work on the machine disturbs both alike. A row shows the median of the pairs'
ratios, their 10th and 90th percentile, and half the distance of the quartiles (the spread).

By hand: `zero_grad(set_to_none=True)`, a fused optimizer, nothing read from the loss, and batches in a new order in each pass, in
the cheapest way (the rows of a pass are put in order at once, and batches are views). Ours: a run with its finite checks, keyed
randomness, shuffled batches and log, a line every ten steps where a row says no other.
"""

import argparse
import itertools
import statistics
import tempfile
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from turns import Contender

import truestep as ts

TURN = 25
STEPS_A_PASS = 400


@dataclass(frozen=True)
class Row:
    """One comparison."""

    name: str
    make: object
    inputs: torch.Tensor
    labels: torch.Tensor
    clip: bool = False
    classes: bool = False
    parts: int = 1
    metrics: int = 0
    log_every: int = 10
    compile: bool = False
    precision: str = "float32"
    ours: dict = field(default_factory=dict)
    """Other options of our learner."""

    def loss(self, net, inputs, labels, reduction="mean"):
        scores = net(inputs)
        if self.classes:
            return F.cross_entropy(scores, labels, reduction=reduction)
        return F.mse_loss(scores.squeeze(1), labels, reduction=reduction)

    @property
    def is_plain(self):
        """Whether it asks for nothing that direct kernels leave out."""
        plain = (self.parts, self.metrics, self.log_every, self.compile, self.precision, self.ours)
        return plain == (1, 0, 10, False, "float32", {})

    def model(self):
        torch.manual_seed(0)
        return self.make()

    @property
    def data(self):
        """Inputs and labels of a pass, in memory."""
        return [
            tensor.repeat(STEPS_A_PASS, *[1] * (tensor.ndim - 1)) for tensor in (self.inputs, self.labels)
        ]

    def batches_by_hand(self):
        """Yield batches, or their parts, in a new order in each pass: gathered once a pass, and views from there on."""
        inputs, labels = self.data
        size = -(-len(self.inputs) // self.parts)
        while True:
            order = torch.randperm(len(inputs))
            yield from zip(inputs[order].split(size), labels[order].split(size), strict=True)


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


class ByHand:
    """The loop that a careful person writes."""

    def __init__(self, row):
        self.row, self.net = row, row.model()
        self.parameters = list(self.net.parameters())
        self.optimizer = optimizer(self.parameters)
        self.loss = torch.compile(row.loss) if row.compile else row.loss
        self.batches = row.batches_by_hand()

    def run(self, steps):
        row, net, best, loss, autocast = self.row, self.net, self.optimizer, self.loss, self.autocast
        for _ in range(steps):
            best.zero_grad(set_to_none=True)
            for _ in range(row.parts):
                inputs, labels = next(self.batches)
                with autocast():
                    value = loss(net, inputs, labels)
                (value if row.parts == 1 else value / row.parts).backward()
            if row.clip:
                nn.utils.clip_grad_norm_(self.parameters, 1.0)
            best.step()

    def autocast(self):
        return torch.autocast("cpu", torch.bfloat16, enabled=self.row.precision == "bf16-mixed")


class DirectKernels:
    """What is left if nothing but torch's kernels is called: the limit."""

    def __init__(self, row):
        self.row, self.net = row, row.model()
        self.parameters = list(self.net.parameters())
        self.first, self.second = ([torch.zeros_like(p) for p in self.parameters] for _ in range(2))
        self.steps = [torch.zeros(()) for _ in self.parameters]
        self.seed = torch.ones(())
        self.batches = row.batches_by_hand()

    @torch.no_grad()
    def step(self, gradients):
        if self.row.clip:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            if norm.item() > 1.0:
                torch._foreach_mul_(gradients, 1.0 / norm)
        torch._foreach_add_(self.steps, 1)
        torch._fused_adamw_(
            *(self.parameters, gradients, self.first, self.second, [], self.steps),
            amsgrad=False,
            lr=1e-4,
            beta1=0.9,
            beta2=0.999,
            weight_decay=1e-2,
            eps=1e-8,
            maximize=False,
        )

    def close(self):
        pass

    def run(self, steps):
        from torch.autograd import Variable

        row, net, parameters, backward = self.row, self.net, self.parameters, Variable._execution_engine
        for _ in range(steps):
            for parameter in parameters:
                parameter.grad = None
            value = row.loss(net, *next(self.batches))
            backward.run_backward(
                (value,), (self.seed,), False, False, (), allow_unreachable=True, accumulate_grad=True
            )
            self.step([parameter.grad for parameter in parameters])


class Ours:
    """A learner in a run."""

    def __init__(self, row):
        self.row = row
        self.folder = tempfile.TemporaryDirectory()  # until it is closed
        saving = ts.Saving(every_seconds=None, at_epoch_end=False)
        run = self.training = ts.Run(
            *(self.folder.name,),
            progress=False,
            device="cpu",
            log_every=row.log_every,
            doctor=False,
            saving=saving,
            precision=row.precision,
        )
        size = -(-len(row.inputs) // row.parts)
        self.net = run.learner(
            *(row.model(), optimizer),
            clip=ts.ClipNorm(1.0) if row.clip else None,
            micro_batch=size if row.parts > 1 else None,
            compile=row.compile,
            **row.ours,
        )
        names = [f"metric_{number}" for number in range(row.metrics)]

        def loss(batch):
            inputs, labels = batch
            values = row.loss(self.net, inputs, labels, "none")
            return ts.weighted(values, **dict.fromkeys(names, values.detach())) if names else values

        self.loss = loss
        source = run.data(tuple(row.data), batch_size=len(row.inputs))
        self.batches = (batch for _ in itertools.count() for batch in run.batches(source))

    def close(self):
        self.batches.close()
        self.training.close()

    def run(self, steps):
        net, loss, batches = self.net, self.loss, self.batches
        for _ in range(steps):
            net.update(loss, next(batches))


def compare(first, second, pairs):
    """Return the ratios of the second's processor time to the first's, pair by pair, and both medians in µs a step."""
    contenders, times = (first, second), ([], [])
    for number in range(pairs):
        for index in (0, 1) if number % 2 else (1, 0):
            times[index].append(contenders[index].turn(TURN)[0])
    ratios = [ours / by_hand for by_hand, ours in zip(*times, strict=True)]
    return ratios, *map(statistics.median, times)


def shown(name, ratios, first, second):
    tenths = statistics.quantiles(ratios, n=10)
    quarters = statistics.quantiles(ratios, n=4)
    print(
        f"| {name} | {first:.1f} | {second:.1f} | {statistics.median(ratios):.3f} | {tenths[0]:.3f} | {tenths[-1]:.3f} | "
        f"{(quarters[2] - quarters[0]) / 2:.3f} |",
        flush=True,
    )


def perceptron(norm=False):
    kinds = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    if norm:
        kinds[1:1], kinds[4:4] = [nn.BatchNorm1d(128)], [nn.BatchNorm1d(128)]
    return nn.Sequential(*kinds)


def many():
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(149)), nn.Linear(16, 10))


class Tensors(nn.Module):
    """Weights of 8 to 64 numbers each, and as little computing with them as there can be."""

    def __init__(self, count):
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(8 * (1 + number % 8)) for number in range(count))

    def forward(self, inputs):
        return inputs * torch.stack(torch._foreach_norm(list(self.weights))).mean()


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True) for _ in "12"
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def rows():
    small = torch.randn(8, 1)
    one = partial(Row, make=lambda: nn.Linear(1, 1, bias=False), inputs=small, labels=small.squeeze(1) * 2)
    wide = {"inputs": torch.randn(32, 64), "labels": torch.randint(0, 10, (32,)), "classes": True}
    thin = {"inputs": torch.randn(8, 16), "labels": torch.randint(0, 10, (8,)), "classes": True}
    tokens = {"inputs": torch.randn(8, 16, 64), "labels": torch.randint(0, 10, (8,)), "classes": True}
    mlp = partial(Row, make=perceptron, **wide)
    return [
        one("one parameter"),
        mlp("small MLP"),
        mlp("small MLP, clip", clip=True),
        Row("batch norm, clip", partial(perceptron, norm=True), clip=True, **wide),
        Row("300 tensors, clip", many, clip=True, **thin),
        mlp("small MLP, EMA", ours={"ema": ts.EMA()}),
        Row("transformer, clip", Transformer, clip=True, **tokens),
        mlp("bf16-mixed", precision="bf16-mixed"),
        *(one(f"one parameter, {parts} micro-batches", parts=parts) for parts in (2, 4, 8)),
        *(one(f"one parameter, {number} metrics", metrics=number) for number in (1, 2, 5)),
        one("one parameter, a line every step", log_every=1),
        one("one parameter, no line", log_every=10**9),
        mlp("compiled loss", compile=True),
        *(one(f"{count:,} small tensors", make=partial(Tensors, count)) for count in (10, 30_000)),
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--limit", action="store_true", help="direct kernels in our place")
    parser.add_argument(
        "names", nargs="*", help="rows whose names contain one of these; all but compiled ones by default"
    )
    asked = parser.parse_args()
    print("| | by hand, µs | ours, µs | ratio | 10th | 90th | spread |\n|---|---|---|---|---|---|---|")
    for row in rows():
        chosen = any(name in row.name for name in asked.names) if asked.names else not row.compile
        if chosen and (row.is_plain or not asked.limit):
            kinds = ("ByHand", "DirectKernels" if asked.limit else "Ours")
            contenders = [Contender(kind, row.name) for kind in kinds]
            shown(row.name, *compare(*contenders, asked.pairs))
            for contender in contenders:
                contender.close()


if __name__ == "__main__":
    main()
