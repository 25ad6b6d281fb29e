# SPDX-License-Identifier: Apache-2.0
"""A small training with everything in it that a resume can get wrong, and a digest of where it ended."""

import hashlib
import json
import random
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

import truestep as ts

EPOCHS = 3
BATCHES = 5
TIMES = ("samples_per_second", "memory_bytes", "save_stall_seconds")


@dataclass(frozen=True, kw_only=True)
class Training:
    """Which training; every field makes resuming harder."""

    precision: str = "float32"
    dropout: bool = True
    augmentation: str | None = None  # "numpy", "python" or "torch"
    workers: int = 0
    micro_batch: Any = None
    ema: bool = False
    two_learners: bool = False
    saving: ts.Saving = field(default_factory=lambda: ts.Saving(every_steps=1, background=False))


class Samples(Dataset):
    """Points with labels, moved about by one of the three random streams."""

    def __init__(self, augmentation: str | None) -> None:
        generator = torch.Generator().manual_seed(7)
        self.points = torch.randn(37, 6, generator=generator)
        self.labels = torch.randint(0, 3, (37,), generator=generator)
        self.augmentation = augmentation

    def __len__(self) -> int:
        return 37

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        point = self.points[index]
        if self.augmentation == "numpy":
            point = point + float(np.random.normal()) * 0.1
        elif self.augmentation == "python":
            point = point + random.gauss(0, 1) * 0.1
        elif self.augmentation == "torch":
            point = point + torch.randn(6) * 0.1
        return point, self.labels[index]


def network(training: Training, outputs: int) -> nn.Module:
    drop = nn.Dropout(0.3) if training.dropout else nn.Identity()
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), drop, nn.Linear(16, outputs))


def train(directory: Path, training: Training, *, interrupt=None, as_block: bool = True) -> str:
    """Train to the end (or until `interrupt(run)` raises, called after each update) and return the digest.

    Without `as_block` nothing closes the run but its own end, or whatever notices that of the process.
    """
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    run = ts.Run(
        directory, seed=11, precision=training.precision, saving=training.saving, log_every=2, progress=False
    )
    with run if as_block else nullcontext():
        first = run.learner(
            network(training, 3),
            lambda p: torch.optim.AdamW(p.decayed(0.1), lr=1e-2),
            name="first",
            clip=ts.ClipNorm(1.0),
            schedule=lambda o: ts.warmup_cosine(o, warmup_steps=3, total_steps=15),
            ema=ts.EMA(decay=0.9) if training.ema else None,
            micro_batch=training.micro_batch,
        )
        learners = [first]
        if training.two_learners:
            second = run.learner(
                network(training, 1),
                lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
                name="second",
                starts_at=4,
            )
            learners.append(second)
        samples = Samples(training.augmentation)
        data = samples if training.augmentation else (samples.points, samples.labels)
        options = {"num_workers": training.workers} if training.augmentation else {}
        batches = run.data(data, batch_size=8, shuffle=True, **options)
        test = run.data((samples.points, samples.labels), batch_size=10)

        def loss(batch):
            scores = first(batch[0])
            losses = F.cross_entropy(scores.float(), batch[1], reduction="none")
            return ts.weighted(losses, correct=(scores.argmax(1) == batch[1]).float())

        def second_loss(batch):
            return (second(batch[0]).squeeze(1).float() - first(batch[0])[:, 0].float()).square()

        for _ in run.epochs(EPOCHS):
            noise = 0.0
            for batch in run.batches(batches):
                noise += (
                    float(torch.rand(())) + random.random() + float(np.random.rand())
                )  # the loop's own streams
                first.update(loss, batch)
                if training.two_learners:
                    second.update(second_loss, batch)
                run.state["seen"] = run.state.get("seen", 0) + 1
                if interrupt is not None:
                    interrupt(run)
            run.log(
                accuracy=first.evaluate(lambda b: (first(b[0]).argmax(1) == b[1]).float(), test),
                noise=run.state["seen"],
            )
        run.close()
        return digest(run, learners)


def digest(run: ts.Run, learners: list[ts.Learner]) -> str:
    found = hashlib.sha256()
    for learner in learners:
        add(found, learner.training_state())
    add(found, dict(run.state))
    log = run.directory / "metrics.jsonl"
    for line in log.read_text().splitlines() if run.is_main else ():
        entry = json.loads(line)
        del entry["elapsed_seconds"]
        entry["values"] = {name: value for name, value in entry["values"].items() if name not in TIMES}
        found.update(json.dumps(entry, sort_keys=True).encode())
    return found.hexdigest()


def add(found: Any, tree: Any) -> None:
    if isinstance(tree, Tensor):
        found.update(tree.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    elif isinstance(tree, dict):
        for key in sorted(tree):
            found.update(str(key).encode())
            add(found, tree[key])
    elif isinstance(tree, list | tuple):
        for member in tree:
            add(found, member)
    else:
        found.update(repr(tree).encode())
