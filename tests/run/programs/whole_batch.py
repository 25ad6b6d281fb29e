# SPDX-License-Identifier: Apache-2.0
"""What needs the whole batch, as the pages write it: two masks, a codebook by moving average, a state that is carried on."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

ROWS, TIME = 20, 7


def made(*modules):
    """Return modules with weights that depend on nothing but their number."""
    generator = torch.Generator().manual_seed(len(modules))
    for parameter in (p for module in modules for p in module.parameters()):
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 3
    return nn.ModuleList(modules)


def drawn(*shape, most=None):
    generator = torch.Generator().manual_seed(sum(shape))
    if most is not None:
        return torch.randint(most, shape, generator=generator)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def ended(net):
    return [each.tolist() for each in (*net.module.parameters(), *net.module.buffers())]


def two_masks(run):
    net = run.learner(made(nn.Linear(6, 3), nn.Linear(6, 5)), lambda p: torch.optim.SGD(p, lr=0.1))
    often, seldom = drawn(ROWS, TIME) > -0.5, drawn(ROWS, TIME) > 0.8
    data = (drawn(ROWS, TIME, 6), drawn(ROWS, TIME, most=3), often, drawn(ROWS, TIME, most=5), seldom)

    def counted(mask):
        return ts.gather(mask.sum(1, keepdim=True)).sum().clamp(min=1)

    for batch in run.batches(run.data(data, batch_size=8, shuffle=True)):
        counts, num_rows = (counted(batch[2]), counted(batch[4])), len(ts.gather(batch[0][:, 0]))

        def loss(batch, counts=counts, num_rows=num_rows):
            rows = batch[0]
            losses = [
                (F.cross_entropy(head(rows).mT, labels, reduction="none") * mask).sum(1) / count
                for head, labels, mask, count in zip(
                    net.module, batch[1::2], batch[2::2], counts, strict=True
                )
            ]
            return (losses[0] + 0.3 * losses[1]) * num_rows

        net.update(loss, batch)
    return ended(net)


class Codebook(nn.Module):
    def __init__(self, number, size, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("used", torch.full((number,), 1 / number, dtype=torch.float64))
        self.register_buffer("sums", drawn(number, size) / number)

    def forward(self, vectors):
        codes = self.sums / self.used[:, None].clamp(min=1e-6)
        nearest = torch.cdist(vectors.detach(), codes).argmin(1)
        if self.training:
            chosen = F.one_hot(nearest, len(codes)).to(vectors.dtype)
            self.used.lerp_(chosen.mean(0), 1 - self.decay)
            self.sums.lerp_(chosen.T @ vectors.detach() / len(vectors), 1 - self.decay)
        return vectors + (codes[nearest] - vectors).detach(), codes[nearest]


def codebook(run):
    modules = made(nn.Linear(4, 2), nn.Linear(2, 4))
    modules.append(Codebook(5, 2))
    net = run.learner(modules, lambda p: torch.optim.SGD(p, lr=0.1), buffers={"2.*": "mean"})
    encode, decode, codes = modules

    def loss(rows):
        hidden = encode(rows)
        taken, nearest = codes(hidden)
        return (decode(taken) - rows).square().mean(1) + 0.25 * (hidden - nearest).square().mean(1)

    source = run.data(drawn(ROWS, 4), batch_size=8, shuffle=True)  # batches of 8, 8 and 4
    for _ in run.epochs(3):
        for batch in run.batches(source):
            net.update(loss, batch)
    return ended(net)


class Carried:
    """What goes from one batch to the next: each process has its own rows' part."""

    def __init__(self):
        self.hidden = None

    def state_dict(self):
        return {"hidden": self.hidden}

    def load_state_dict(self, state):
        self.hidden = state["hidden"]


def carried_state(run):
    texts, length = 6, 5
    recurrent, head = made(nn.GRU(4, 3), nn.Linear(3, 4))
    net = run.learner(nn.ModuleList([recurrent, head]), lambda p: torch.optim.SGD(p, lr=0.5))
    stream, carried = drawn(8 * length, texts, 4), Carried()
    run.track(per_rank=True, carried=carried)

    def loss(batch):
        piece, hidden = batch
        output, hidden = recurrent(piece, hidden)
        losses = (head(output) - piece).square().mean((0, 2))
        return ts.weighted(losses, outputs={"hidden": hidden})

    in_order = torch.cat([piece.transpose(0, 1) for piece in stream.split(length)])
    for rows in run.batches(run.data(in_order, batch_size=texts)):
        hidden = carried.hidden
        if hidden is None:
            hidden = torch.zeros(1, len(rows), 3, dtype=torch.float64)
        update = net.update(loss, (rows.transpose(0, 1), hidden), split=1)
        carried.hidden = update.outputs["hidden"]
    return ended(net)


PROGRAMS = {"two masks": two_masks, "codebook": codebook, "carried state": carried_state}


def main(folder):
    rank = os.environ.get("RANK", "0")
    found = {}
    for name, train in PROGRAMS.items():
        with ts.Run(folder / name.replace(" ", "-"), precision="float64", progress=False, quiet=True) as run:
            found[name] = train(run)
    (folder / f"weights-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
