# SPDX-License-Identifier: Apache-2.0
"""Two processes: what becomes of a metric, a schedule and a gradient? `python benchmarks/peers/several_ranks.py`

Each library trains and validates in two real processes, started by torchrun's own module, with the sampler and the wrapper that it
puts in place itself. What is right is what one process finds.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from table import ACCELERATE, LIGHTNING, LIGHTNING_PLAIN, TORCH, TRUESTEP, Row, quiet, show
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import truestep as ts

VALUES = (
    torch.arange(5.0)[:, None] ** 2
) * 10  # their mean is 60; a fifth sample makes two processes unequal
MEAN = float(VALUES.mean())
ROWS = torch.linspace(0.5, 4.0, 8)[:, None]
UPDATES = 10


def network():
    net = nn.Sequential(
        nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)
    ).double()  # a penalty never reaches the last bias
    for number, parameter in enumerate(net.parameters()):
        nn.init.constant_(parameter, 0.3)
        with torch.no_grad():
            parameter.add_(torch.arange(parameter.numel()).view_as(parameter) * 0.1 * (number + 1))
    return net


def whole(loss) -> list[float]:
    """Return the gradient of a loss over all rows, on one process."""
    net = network()
    loss(net, ROWS.double()).mean().backward()
    return gradient_of(net)


def gradient_of(net) -> list[float]:
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in net.parameters()]
    return torch.cat([each.flatten() for each in gradients]).tolist()


def squared(net, rows):
    return net(rows).squeeze(1).square()


def penalty(net, rows):
    rows = rows.clone().requires_grad_()
    (slope,) = torch.autograd.grad(net(rows).sum(), rows, create_graph=True)
    return (slope.squeeze(1) - 1).square()


# ------------------------------------------------------------------ each is one process of two


def lightning_mean():
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(1, 1)

        def validation_step(self, batch, batch_idx):
            self.log("value", batch.mean(), sync_dist=True)

    plain = LIGHTNING_PLAIN | {"devices": 2, "strategy": "ddp"}
    (found,) = pl.Trainer(**plain).validate(Module(), DataLoader(VALUES, batch_size=2), verbose=False)
    return found["value"]


def accelerate_mean():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    batches = accelerator.prepare(DataLoader(VALUES, batch_size=1))
    return float(torch.cat([accelerator.gather_for_metrics(batch) for batch in batches]).mean())


def accelerate_schedule():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=UPDATES)
    net, optimizer, schedule = accelerator.prepare(net, optimizer, schedule)
    for _ in range(UPDATES // 2):
        accelerator.backward(net(torch.ones(2, 1)).mean())
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return optimizer.param_groups[0]["lr"]


def torch_gradient(loss, shares):
    dist.init_process_group("gloo")
    wrapped = DistributedDataParallel(network())
    rows = ROWS.double().split(shares)[dist.get_rank()]
    loss(wrapped, rows).mean().backward()
    dist.destroy_process_group()
    return gradient_of(wrapped)


def torch_penalty():
    return torch_gradient(penalty, [4, 4])


def torch_uneven():
    return torch_gradient(squared, [6, 2])


def run(folder):
    return ts.Run(folder, progress=False, quiet=True, precision="float64", doctor=False)


def truestep_mean():
    with run(os.environ["FOLDER"] + "/mean") as made:
        net = made.learner(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=1.0))
        return net.evaluate(lambda rows: rows[:, 0], made.data(VALUES, batch_size=2))


def truestep_schedule():
    def linear(optimizer):
        return torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=UPDATES)

    with run(os.environ["FOLDER"] + "/schedule") as made:
        net = made.learner(
            nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=1.0), schedule=ts.per_update(linear)
        )
        for _ in range(UPDATES // 2):
            net.update(lambda rows: net(rows)[:, 0], torch.ones(2, 1, dtype=torch.float64))
        return net.learning_rate


def truestep_gradient(loss, shares):
    with run(os.environ["FOLDER"] + f"/{loss.__name__}") as made:
        net = made.learner(network(), lambda p: torch.optim.SGD(p, lr=0.0))
        net.update(lambda rows: loss(net, rows), ROWS.double().split(shares)[made.rank])
        return gradient_of(net)


def truestep_penalty():
    return truestep_gradient(penalty, [4, 4])


def truestep_uneven():
    return truestep_gradient(squared, [6, 2])


# ------------------------------------------------------------------ the comparison


def on_two(work) -> list:
    """Return what `work` gave in each of two processes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        environment = os.environ | {"FOLDER": folder, "OMP_NUM_THREADS": "1"}
        started = subprocess.Popen(
            [*command, __file__, work.__name__],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, said = started.communicate(timeout=150)
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
        if started.returncode:
            raise RuntimeError(said[-2000:])
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in (0, 1)]


def error(found: list[float], right: list[float]) -> float:
    difference = torch.tensor(found) - torch.tensor(right)
    return float(difference.norm() / torch.tensor(right).norm())


def rows():
    for name, work in ((LIGHTNING, lightning_mean), (ACCELERATE, accelerate_mean), (TRUESTEP, truestep_mean)):
        mean = on_two(work)[0]
        yield Row(name, "mean of 5 values", f"{MEAN:.2f}", f"{mean:.2f}", abs(mean - MEAN) < 1e-4)
    for name, work in ((ACCELERATE, accelerate_schedule), (TRUESTEP, truestep_schedule)):
        rate = on_two(work)[0]
        case = f"learning rate after {UPDATES // 2} of {UPDATES} updates, from 1 to 0"
        yield Row(name, case, "0.50", f"{rate:.2f}", abs(rate - 0.5) < 1e-6)
    cases = (
        ("6 examples and 2: error of the gradient", squared, torch_uneven, truestep_uneven),
        ("a gradient penalty: error of the gradient", penalty, torch_penalty, truestep_penalty),
    )
    for case, loss, *works in cases:
        for name, work in zip((f"{TORCH}, DDP", TRUESTEP), works, strict=True):
            found = error(on_two(work)[0], whole(loss))
            yield Row(name, case, "0.000", f"{found:.3f}", found < 1e-6)


if __name__ == "__main__":
    quiet()
    if len(sys.argv) > 1:
        given = globals()[sys.argv[1]]()
        (Path(os.environ["FOLDER"]) / f"{os.environ['RANK']}.json").write_text(json.dumps(given))
    else:
        show("Two processes beside one", rows())
