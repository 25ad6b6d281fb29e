# SPDX-License-Identifier: Apache-2.0
"""Killed and resumed: the same batches, the same weights? `python benchmarks/peers/resume_order.py`

24 samples in shuffled batches of 4 for three epochs: 18 batches. A training with dropout saves after some batch, is killed by
SIGKILL in the next, and is resumed in another process from that checkpoint, each library's documented way. What is trained on
and the weights at the end are compared with those of a training that nobody disturbed (itself done twice, as a control).
With torchdata installed, `StatefulDataLoader` is tried too.
"""

import importlib
import importlib.util
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from processes import in_a_process, kill_this_process
from table import ACCELERATE, LIGHTNING, LIGHTNING_PLAIN, TRUESTEP, Row, quiet, show
from torch import nn
from torch.utils.data import DataLoader, Dataset

import truestep as ts

SAMPLES, BATCH, EPOCHS = 24, 4, 3
PER_EPOCH = SAMPLES // BATCH
HAS_STATEFUL = importlib.util.find_spec("torchdata") is not None


@dataclass(frozen=True)
class Case:
    """When a training saves, and after which batch it is killed."""

    name: str
    steps: int
    every_steps: bool  # else at each epoch's end


CASES = [
    Case("at an epoch's end", PER_EPOCH, every_steps=False),
    Case("every 6 steps: on an epoch's last batch", PER_EPOCH, every_steps=True),
    Case("every 9 steps: in the middle of an epoch", PER_EPOCH + 3, every_steps=True),
]


@dataclass(frozen=True)
class Attempt:
    """One process's part of a training: where it keeps things, whether it goes on, where it dies."""

    folder: Path
    case: Case
    resumed: bool = False
    dies: bool = False

    def train_on(self, steps_done: int, indices) -> None:
        """Note a batch that is about to be trained on, or die."""
        if self.dies and steps_done == self.case.steps:
            kill_this_process()
        with (self.folder / f"batches-{int(self.resumed)}").open("a") as file:
            file.write(json.dumps([int(index) for index in indices]) + "\n")

    def end(self, net) -> None:
        torch.save(net.state_dict(), self.folder / "weights.pt")

    def batches(self) -> list[list[int]]:
        lines = (self.folder / f"batches-{int(self.resumed)}").read_text().splitlines()
        return [json.loads(line) for line in lines]


class Samples(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return torch.tensor([index / SAMPLES, 1.0, (index % 5) / 5]), index


def network():
    return nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.5), nn.Linear(16, 1))


def losses(net, inputs):
    return (net(inputs).squeeze(1) - inputs.sum(1)).square()


def loader(stateful=False):
    if stateful:
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader(Samples(), batch_size=BATCH, shuffle=True)
    return DataLoader(Samples(), batch_size=BATCH, shuffle=True)


# ---------------------------------------------------------------------- the libraries


def lightning(attempt: Attempt, stateful: bool = False) -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch, batch_idx):
            attempt.train_on(self.global_step, batch[1])
            return losses(self.net, batch[0]).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    pl.seed_everything(0, workers=True)
    module = Module()
    when = {"every_n_train_steps": attempt.case.steps} if attempt.case.every_steps else {}
    checkpoints = ModelCheckpoint(attempt.folder / "checkpoints", save_last=True, **when)
    options = {**LIGHTNING_PLAIN, "enable_checkpointing": True, "callbacks": [checkpoints]}
    newest = attempt.folder / "checkpoints" / "last.ckpt" if attempt.resumed else None
    pl.Trainer(**options, max_epochs=EPOCHS).fit(module, loader(stateful), ckpt_path=newest)
    attempt.end(module.net)


def accelerate(attempt: Attempt, **data_options: bool) -> None:
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration, set_seed

    set_seed(0)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**data_options))
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    net, optimizer, batches = accelerator.prepare(net, optimizer, loader())
    checkpoint, step = attempt.folder / "checkpoint", 0
    if attempt.resumed:
        accelerator.load_state(checkpoint)
        step = attempt.case.steps
    for epoch in range(step // PER_EPOCH, EPOCHS):
        batches.set_epoch(epoch)
        rest, skipped = batches, step - epoch * PER_EPOCH
        if skipped and not data_options.get("use_stateful_dataloader"):
            rest = accelerator.skip_first_batches(batches, skipped)
        for inputs, indices in rest:
            attempt.train_on(step, indices)
            accelerator.backward(losses(net, inputs).mean())
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if attempt.case.every_steps and step == attempt.case.steps:
                accelerator.save_state(checkpoint)
        if not attempt.case.every_steps and step == attempt.case.steps:
            accelerator.save_state(checkpoint)
    attempt.end(net)


def truestep(attempt: Attempt) -> None:
    case = attempt.case
    saving = ts.Saving(
        every_steps=case.steps if case.every_steps else None,
        at_epoch_end=not case.every_steps,
        epoch_seconds=0,
        background=False,  # so that the kill comes after the save
    )
    with ts.Run(attempt.folder / "run", seed=0, saving=saving, progress=False) as run:
        net = run.learner(network(), lambda p: torch.optim.SGD(p, lr=0.05))
        train = run.data(Samples(), batch_size=BATCH, shuffle=True, num_workers=0)
        for _ in run.epochs(EPOCHS):
            for batch in run.batches(train):
                attempt.train_on(run.step - 1, batch[1])
                net.update(lambda batch: losses(net, batch[0]), batch)
    attempt.end(net)


def contenders() -> dict[str, Callable[[Attempt], None]]:
    found = {
        f"{LIGHTNING}, DataLoader": lightning,
        f"{LIGHTNING}, StatefulDataLoader": lambda attempt: lightning(attempt, stateful=True),
        f"{ACCELERATE}, default sampler": accelerate,
        f"{ACCELERATE}, seedable sampler": lambda attempt: accelerate(attempt, use_seedable_sampler=True),
        f"{ACCELERATE}, StatefulDataLoader": lambda attempt: accelerate(
            attempt, use_stateful_dataloader=True
        ),
        f"{ACCELERATE}, seedable sampler, StatefulDataLoader": lambda attempt: accelerate(
            attempt, use_seedable_sampler=True, use_stateful_dataloader=True
        ),
        TRUESTEP: truestep,
    }
    return {name: train for name, train in found.items() if HAS_STATEFUL or "Stateful" not in name}


# ---------------------------------------------------------------------- what is compared


def undisturbed(train, folder: Path, case: Case):
    folder.mkdir()
    attempt = Attempt(folder, case)
    in_a_process(lambda: train(attempt))
    return attempt.batches(), torch.load(folder / "weights.pt")


def disturbed(train, folder: Path, case: Case):
    folder.mkdir()
    first, second = Attempt(folder, case, dies=True), Attempt(folder, case, resumed=True)
    in_a_process(lambda: train(first))
    in_a_process(lambda: train(second))
    return first.batches(), second.batches(), torch.load(folder / "weights.pt")


def same(some: dict, others: dict) -> bool:
    return all(torch.equal(some[name], others[name]) for name in some)


def order_found(whole, before, after) -> str:
    """Say in what the resumed batches differ from those that were due."""
    due, done = whole[len(before) :], len(before) % PER_EPOCH
    if after == due:
        return "the same batches"
    found = []
    if len(after) != len(due):
        found.append(f"{len(after)} batches where {len(due)} were due")
    if after[: PER_EPOCH - done] == whole[: PER_EPOCH - done]:
        found.append("epoch 0's order again from its start")
    elif after[: PER_EPOCH - done] == due[: PER_EPOCH - done]:
        found.append("the same batches in the epoch in hand, others after it")
    else:
        found.append("other batches")
    if done:
        seen = {index for batch in before[-done:] + after[: PER_EPOCH - done] for index in batch}
        found.append(f"{SAMPLES - len(seen)} of {SAMPLES} samples missed in the epoch in hand")
    return ", ".join(found)


def rows():
    with tempfile.TemporaryDirectory() as name:
        for number, case in enumerate(CASES):
            for which, (library, train) in enumerate(contenders().items()):
                folder = Path(name) / f"{number}-{which}"
                folder.mkdir()
                whole, weights = undisturbed(train, folder / "undisturbed", case)
                again, weights_again = undisturbed(train, folder / "control", case)
                if again != whole or not same(weights, weights_again):
                    yield Row(library, case.name, "a control that repeats", "it does not", False)
                    continue
                before, after, resumed = disturbed(train, folder / "disturbed", case)
                order, equal = order_found(whole, before, after), same(weights, resumed)
                found = f"{order}; {'the same weights' if equal else 'other weights'}"
                right = after == whole[len(before) :] and equal
                yield Row(library, case.name, "the same batches; the same weights", found, right)


if __name__ == "__main__":
    quiet()
    for name in ("accelerate", "lightning.pytorch"):
        importlib.import_module(name)  # once, before the forks
    show("Killed by SIGKILL one batch after a save, and resumed in another process", rows())
    if not HAS_STATEFUL:
        print("\ntorchdata is not installed here: StatefulDataLoader was left out.")
