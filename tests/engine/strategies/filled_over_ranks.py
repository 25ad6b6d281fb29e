# SPDX-License-Identifier: Apache-2.0
"""Modules whose forward fills buffers from its examples; run as a program, each rank goes through all of them.

`python filled_over_ranks.py FOLDER` writes FOLDER/filled-RANK.json: what each training ends with. With a name it makes that alone.
"""

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

import truestep as ts

ROWS = torch.randn(10, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Codebook(nn.Module):
    """Codes that follow the vectors nearest to them, as in a VQ-VAE: moving averages of means, divided where they are used."""

    def __init__(self, decay=0.8):
        super().__init__()
        self.encode, self.decode = nn.Linear(4, 2), nn.Linear(2, 4)
        self.decay = decay
        draw = torch.Generator().manual_seed(1)
        codes = torch.randn(5, 2, generator=draw)
        self.register_buffer("used", torch.full((5,), 0.2))
        self.register_buffer("sums", 0.2 * codes)

    def forward(self, inputs):
        hidden = self.encode(inputs.mean(1))
        codes = self.sums / self.used[:, None].clamp(min=1e-6)
        nearest = torch.cdist(hidden.detach(), codes).argmin(1)
        if self.training:
            self.follow(nn.functional.one_hot(nearest, 5).to(hidden.dtype), hidden.detach())
        taken = hidden + (codes[nearest] - hidden).detach()
        return self.decode(taken) + (hidden - codes[nearest].detach()).square().sum(1, keepdim=True)

    def follow(self, chosen, hidden):
        self.used.lerp_(chosen.mean(0), 1 - self.decay)
        self.sums.lerp_(chosen.T @ hidden / len(hidden), 1 - self.decay)


class ThroughData(Codebook):
    """Writes in the way that no version counts."""

    def follow(self, chosen, hidden):
        self.used.data.mul_(self.decay).add_(chosen.sum(0), alpha=1 - self.decay)
        self.sums.data.mul_(self.decay).add_(chosen.T @ hidden, alpha=1 - self.decay)


class Gathered(Codebook):
    """Fills its buffers from the examples of all ranks."""

    def follow(self, chosen, hidden):
        super().follow(ts.gather(chosen), ts.gather(hidden))


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.last = nn.InstanceNorm1d(3, track_running_stats=True, affine=True), nn.Linear(12, 4)

    def forward(self, inputs):
        return self.last(self.norm(inputs).flatten(1))


class Counting(nn.Module):
    """Counts examples, and keeps what its own were."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(12, 4)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("newest", torch.zeros(3, 4))
        self.register_buffer("table", torch.arange(7))

    def forward(self, inputs):
        if self.training:
            self.seen += len(inputs)
            self.newest.copy_(inputs[-1].detach())
        return self.last(inputs.flatten(1))


MEANS = {"buffers": {"used": "mean", "sums": "mean"}}
KINDS = {
    "codebook": (Codebook, {}),
    "codebook through data": (ThroughData, {}),
    "codebook of means": (Codebook, {"buffers": {"*": "mean"}}),
    "codebook of means, all names": (Codebook, MEANS),
    "codebook, gathered": (Gathered, {}),
    "instance norm": (Normed, {}),
    "counts, unsaid": (Counting, {}),
    "counts": (Counting, {"buffers": {"seen": "sum", "newest": "own"}}),
}

REFUSED = {
    "codebook": ["used", "sums"],
    "codebook through data": ["used", "sums"],
    "counts, unsaid": ["newest"],
    "moved outside": ["running_mean"],
}
"""Those that can't be on several ranks, and the buffers that are named."""


def trained(name, folder, epochs=2):
    module, options = KINDS[name]
    torch.manual_seed(0)
    more = {"progress": False, "quiet": True, "doctor": False, "timeout_seconds": 60.0}
    strategy = os.environ.get("STRATEGY", "auto")
    with ts.Run(folder / name, seed=1, precision="float64", strategy=strategy, **more) as run:
        net = run.learner(module(), lambda p: torch.optim.SGD(p, lr=0.1), **options)
        size = 5 if "gathered" in name else 4  # the last batch leaves a rank without rows but there
        data = run.data(ROWS, batch_size=size, shuffle=True)
        measured = []
        for _ in run.epochs(epochs):
            for batch in run.batches(data):
                net.update(lambda rows: net(rows).square().mean(1), batch)
            measured.append(net.evaluate(lambda rows: net(rows).square().mean(1), data))
        buffers = {key: value.tolist() for key, value in net.module.named_buffers()}
        weights = [parameter.detach() for parameter in net.module.parameters()]
        whole = [getattr(each, "full_tensor", lambda each=each: each)().tolist() for each in weights]
        return {"weights": whole, "buffers": buffers, "measured": measured}


class Late(nn.Module):
    """Makes a buffer in its first forward: of the rows, of nothing, or below a part of it."""

    def __init__(self, kind):
        super().__init__()
        self.part, self.last, self.kind = nn.Identity(), nn.Linear(4, 4), kind

    def forward(self, inputs):
        owner = self.part if "below" in self.kind else self
        if not hasattr(owner, "centre"):
            mean = inputs.detach().mean((0, 1))
            owner.register_buffer("centre", torch.zeros_like(mean) if "constant" in self.kind else mean)
        return self.last(inputs - owner.centre)


LATE = ["late", "late constant", "late below"]


def made_late(kind, folder):
    """Batches of one example: the first update leaves all other ranks without, and they make no buffer."""
    with ts.Run(folder / "late", progress=False, quiet=True, doctor=False, timeout_seconds=30.0) as run:
        net = run.learner(Late(kind), lambda p: torch.optim.SGD(p, lr=0.1))
        data = run.data(ROWS.float(), batch_size=1)
        for _ in run.epochs(1):
            for batch in run.batches(data):
                net.update(lambda rows: net(rows).square().mean((1, 2)), batch)


def penalty(net):
    return sum(each.square().sum() for each in net.parameters())


DIVIDED = {
    "penalty of each row": lambda net, rows: net(rows).square().mean((1, 2)) + penalty(net),
    "penalty with weights": lambda net, rows: ts.weighted(
        net(rows).square().mean((1, 2)) + penalty(net), rows[:, 0, 0] * 0 + 2
    ),
    "weight of another": lambda net, rows: net(rows).square().mean((1, 2)) + net.module[1].weight.sum(),
}


def weights_elsewhere(kind, folder):
    """A loss that reads divided weights, of which even a sum is a message, with a rank without examples that sends none."""
    options = {"strategy": "fsdp", "progress": False, "quiet": True, "doctor": False, "timeout_seconds": 20.0}
    with ts.Run(folder / "divided", **options) as run:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        net = run.learner(model, lambda p: torch.optim.SGD(p, lr=0.1))
        data = run.data(ROWS.float(), batch_size=1)
        for _ in run.epochs(1):
            for batch in run.batches(data):
                net.update(lambda rows: DIVIDED[kind](net, rows), batch)


def main(folder, refused=None):
    """Train all kinds that are not refused, one again in two runs; or the one that is."""
    if refused in LATE:
        made_late(refused, folder)
    elif refused in DIVIDED:
        weights_elsewhere(refused, folder)
    elif refused:
        moved_outside(folder) if refused == "moved outside" else trained(refused, folder)
    found = {name: trained(name, folder) for name in KINDS if name not in REFUSED}
    (folder / "again").mkdir(exist_ok=True)
    trained("counts", folder / "again", epochs=1)
    found["counts, resumed"] = trained("counts", folder / "again")
    (folder / f"filled-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(found))


def moved_outside(folder):
    """A forward in training mode that is no update, before an evaluation: batch normalisation sees this rank's rows alone."""
    with ts.Run(folder / "outside", progress=False, quiet=True, doctor=False) as run:
        net = run.learner(nn.BatchNorm1d(3), lambda p: torch.optim.SGD(p, lr=0.1))
        net.module(ROWS[run.rank :].float())
        return net.evaluate(lambda rows: net(rows).sum((1, 2)), run.data(ROWS.float(), batch_size=5))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), *sys.argv[2:])
