# SPDX-License-Identifier: Apache-2.0
"""Programs for several ranks.

`python ranks.py looks FOLDER` says what each rank sees. `python ranks.py trains FOLDER [HOW STEP RANK]` trains and, with the last
three, fails at this step on this rank (-1: on all), unless FOLDER holds a file that says that it has.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset

import truestep as ts
from truestep.engine.processes import world

OPTIONS = {"progress": False, "doctor": False, "timeout_seconds": float(os.environ.get("TIMEOUT", "60"))}


class Numbered(Dataset):
    """Samples that are their own number and something drawn for it."""

    def __len__(self):
        return 13

    def __getitem__(self, index):
        return index, float(np.random.normal())


class Largest:
    """A metric object that no mean can stand for: the largest value, and how many there were."""

    def reset(self):
        self.values = []

    def update(self, values):
        self.values += values.tolist()

    def compute(self):
        return {
            "largest": torch.tensor(max(self.values)),
            "count": torch.tensor(len(self.values)),
            "order": self.values,
        }


def seen_by(run):
    """Return the samples, draws and noise of two epochs, batch by batch."""
    data = run.data(Numbered(), batch_size=5, shuffle=True, num_workers=0)
    found = []
    for _ in run.epochs(2):
        for numbers, drawn in run.batches(data):
            found.append([numbers.tolist(), drawn.tolist(), torch.rand(1).item()])
    return found


def metrics_of(run, net, most=9):
    """Return averages over 1 to so many samples, in batches that leave ranks without any."""
    found = []
    for number in range(1, most + 1):
        rows = torch.arange(float(number), dtype=torch.float64)[:, None].sin()
        data = run.data(rows, batch_size=4)
        weighted = net.evaluate(lambda b: ts.weighted(b[:, 0], b[:, 0] > 0, square=b[:, 0] ** 2), data)
        found.append([net.evaluate(lambda b: b[:, 0], data), weighted])
    data = run.data(torch.arange(9.0)[:, None], batch_size=4)
    found.append(net.evaluate(lambda b: b[:, 0], data, metric=Largest()))
    return found


def refused(attempt):
    try:
        attempt()
    except ts.TruestepError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


class Uneven(nn.Module):
    """Rank 0 leaves out a layer, and everybody another."""

    def __init__(self, rank):
        super().__init__()
        self.rank, self.first, self.second, self.never = rank, *(nn.Linear(3, 1) for _ in range(3))

    def forward(self, rows):
        return self.first(rows) + (self.second(rows) if self.rank else 0)


def watched(folder):
    """Train with the doctor; what it says goes to standard error."""
    with ts.Run(folder / "watched", progress=False, strategy="ddp") as run:
        net = run.learner(Uneven(run.rank), lambda p: torch.optim.AdamW(p, lr=0.01), name="uneven")
        data = run.data(torch.randn(100, 3), batch_size=4)
        for _ in run.epochs(1):
            for batch in run.batches(data):
                net.update(lambda rows: net(rows)[:, 0].square(), batch)


def kept(folder, steps):
    """Return where each rank's own counter and the shared one stand after more steps."""
    with ts.Run(folder / "kept", **OPTIONS) as run:
        own, shared = torch.Generator().manual_seed(run.rank), torch.Generator().manual_seed(7)
        run.track(own=own, per_rank=True)
        run.track(shared=shared)
        for _ in run.steps(steps):
            drawn = [torch.rand(1, generator=each).item() for each in (own, shared)]
    return drawn


def single(folder):
    """Return what a run of this process alone sees."""
    with ts.Run(folder / f"single-{os.environ['RANK']}", strategy="single", **OPTIONS) as run:
        rows = next(iter(run.data(torch.ones(6, 1), batch_size=6).batches(0)))
        return [run.rank, run.world_size, len(rows)]


def gathered_in_pieces(most_bytes):
    """Have what rank 0 is given of a metric travel in such pieces; return where the bytes of each go."""
    gather, found = dist.gather, []

    def noted(mine, *given, **options):
        found.append(mine.nbytes)
        return gather(mine, *given, **options)

    dist.gather, world.PIECE_BYTES = noted, most_bytes
    return found


def looks(folder):
    pieces = gathered_in_pieces(200)  # of both ranks
    torch.manual_seed(os.getpid())  # the weights are drawn otherwise on each rank
    with ts.Run(folder / "seen", seed=1, **OPTIONS) as run:
        seen, several = seen_by(run), run.world_size > 1
    others = {}
    if several:
        watched(folder)
        others = {"kept": [kept(folder, 3), kept(folder, 5)], "single": single(folder)}
    run = ts.Run(folder / "looks", seed=1, **OPTIONS)
    net = run.learner(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    nn.init.normal_(net.weight, generator=torch.Generator().manual_seed(os.getpid()))
    data = run.data(torch.ones(4, 1), batch_size=4)
    found = {"seen": seen, "metrics": metrics_of(run, net), "weight": net.weight.item(), **others}
    found["pieces"] = [len(pieces), max(pieces, default=0)]
    found |= {"place": [run.rank, run.local_rank, run.world_size, run.is_main]}
    for _ in run.epochs(1):
        for batch in run.batches(data):
            update = net.update(lambda b: ts.weighted(net(b)[:, 0], twice=2 * net(b)[:, 0]), batch)
    found |= {
        "loss": float(update.loss),
        "twice": float(update.metrics["twice"]),
        "examples": update.num_examples,
    }
    if run.world_size > 1:
        found["differs"] = refused(lambda: run.log(accuracy=run.rank))
        found["apart"] = refused(
            lambda: net.update(lambda b: net(b)[:, 0], torch.ones(2, 1)) if run.is_main else run.log(other=1)
        )
        found["alone"] = refused(lambda: net.update(lambda b: net(b)[:, 0], torch.ones(2, 1)))
    (folder / f"found-{run.rank}.json").write_text(json.dumps(found))


def measures(folder):
    """Write down what each of 1 to 50 samples gives."""
    run = ts.Run(folder / "measures", seed=1, **OPTIONS)
    net = run.learner(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    (folder / f"measured-{run.rank}.json").write_text(json.dumps(metrics_of(run, net, 50)))


def goes_on(folder, epochs):
    """Train to so many epochs; write down which samples this rank has seen in each batch, and what was drawn for them."""
    run = ts.Run(folder / "goes_on", seed=1, **OPTIONS)
    net = run.learner(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(Numbered(), batch_size=5, shuffle=True, num_workers=0)
    found = []
    for _ in run.epochs(int(epochs)):
        for numbers, drawn in run.batches(data):
            net.update(lambda rows: net(rows)[:, 0].square(), drawn.float()[:, None])
            found.append([numbers.tolist(), drawn.tolist()])
    run.close()
    (folder / f"went-{epochs}-{run.rank}.json").write_text(json.dumps(found))


def fail(how):
    """Come to the end, or to a halt, in the way that was asked for."""
    if how in ("hang", "wait"):
        time.sleep(3600 if how == "hang" else 3)
    elif how == "raise":
        raise ValueError("a bad sample")
    elif how == "send":
        ts.gather(torch.zeros(2**21))
    else:
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "ask": signal.SIGTERM}[how])


def trains(folder, how="", step="0", rank="0"):
    once = folder / "failed"
    run = ts.Run(folder / "run", seed=2, saving=ts.Saving(every_steps=3), **OPTIONS)
    layers = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
    net = run.learner(layers, lambda p: torch.optim.AdamW(p, lr=0.01), ema=ts.EMA(decay=0.9))
    data = run.data(
        torch.randn(32, 3, generator=torch.Generator().manual_seed(3)), batch_size=4, shuffle=True
    )

    def fails_now():
        now = how and run.step == int(step) and int(rank) in (run.rank, -1) and not once.exists()
        if now:
            once.write_text(str(time.time()))
        return now

    def loss(batch):
        if how != "miss" and fails_now():
            fail(how)
        return net(batch + 0.1 * noise).square().squeeze(1)

    for _ in run.epochs(3):
        for batch in run.batches(data):
            noise = torch.randn(len(batch), 3)
            if not (how == "miss" and fails_now()):  # else the others wait in a collective
                net.update(loss, batch)
        run.log(mean=net.evaluate(lambda b: net(b)[:, 0], data))
    bits = b"".join(tensor.numpy().tobytes() for tensor in net.module.state_dict().values())
    print("ends with", hashlib.sha256(bits).hexdigest(), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"looks": looks, "trains": trains, "measures": measures, "goes_on": goes_on}[sys.argv[1]](
        Path(sys.argv[2]), *sys.argv[3:]
    )
