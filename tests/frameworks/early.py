# SPDX-License-Identifier: Apache-2.0
"""`python early.py SEED COUNT FOLDER`: drawn trainings by Lightning that ask for their loader early, killed in a drawn epoch.

Prints, as JSON, for each its habits, how a run that never was killed ends, how the killed one ends, and what a third start does.
"""

import hashlib
import json
import os
import random
import signal
import sys
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset
from trainings import quiet

import truestep as ts

HABITS = {
    "asks_in": ("configure_optimizers", "setup", "on_fit_start", "data_setup", "callback_setup", "nowhere"),
    "schedule": ("step", "epoch", "none"),
    "workers": (0, 0, 2),
    "accumulate": (1, 3),
    "data": ("module", "handed", "own"),
    "reload": (0, 0, 1, 2),
    "steps": (False, False, True),
    "unsized": (False, False, False, True),
    "makes": ("alike", "alike", "alike", "by_epoch", "at_random"),
    "looks_at_data": (False, False, True),
}
EPOCHS, BATCHES = 4, 6


class Points(Dataset):
    def __len__(self):
        return 4 * BATCHES

    def __getitem__(self, index):
        return torch.full((3,), float(index)) / 24 + torch.randn(3) * 0.1, index % 2


class Stream(IterableDataset):
    def __iter__(self):
        order = torch.randperm(4 * BATCHES).tolist()
        return ((torch.full((3,), float(index)) / 24, index % 2) for index in order)


def loader_of(habits, trainer=None):
    """Make the loader as a habit says; one by epoch leaves out others, one at random draws what nobody has set a seed for."""
    if habits["unsized"]:
        return DataLoader(Stream(), 4, num_workers=min(1, habits["workers"]))
    data = Points()
    if habits["makes"] == "by_epoch" and trainer is not None:
        data = Subset(Points(), [(trainer.current_epoch + each) % 24 for each in range(24)])
    if habits["makes"] == "at_random":
        data = Subset(Points(), random.SystemRandom().sample(range(24), 24))
    return DataLoader(data, 4, shuffle=True, num_workers=habits["workers"])


class Data(lightning.LightningDataModule):
    def __init__(self, habits):
        super().__init__()
        self.habits = habits

    def setup(self, stage=None):
        if self.habits["asks_in"] == "data_setup":
            self.trainer.estimated_stepping_batches

    def train_dataloader(self):
        return loader_of(self.habits, self.trainer)


class Asks(lightning.Callback):
    def setup(self, trainer, pl_module, stage):
        trainer.estimated_stepping_batches


class Module(lightning.LightningModule):
    def __init__(self, habits, kill_at):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 2))
        self.habits, self.kill_at, self.seen = habits, kill_at, 0

    def ask(self, where):
        if self.habits["asks_in"] == where:
            self.total = self.trainer.estimated_stepping_batches

    def setup(self, stage):
        self.ask("setup")

    def on_fit_start(self):
        self.ask("on_fit_start")

    def on_train_start(self):
        if self.habits["looks_at_data"]:
            self.mean = sum(batch[0].mean() for batch in self.trainer.train_dataloader)

    def training_step(self, batch, _):
        if self.seen == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen += 1
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        self.ask("configure_optimizers")
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        if self.habits["schedule"] == "none":
            return optimizer
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.1, 10)
        return [optimizer], [{"scheduler": schedule, "interval": self.habits["schedule"]}]


class Own(Module):
    def train_dataloader(self):
        return loader_of(self.habits, self.trainer)


def train(habits, directory, kill_at=-1):
    quiet()
    lightning.seed_everything(1, verbose=False)
    module = (Own if habits["data"] == "own" else Module)(habits, kill_at)
    exact = ts.lightning.ExactResume(directory, every_n_batches=2)
    before = [Asks()] if habits["asks_in"] == "callback_setup" else []
    limit = (
        {"max_steps": EPOCHS * BATCHES // habits["accumulate"]} if habits["steps"] else {"max_epochs": EPOCHS}
    )
    trainer = lightning.Trainer(
        **limit, callbacks=[*before, exact], accumulate_grad_batches=habits["accumulate"], logger=False, accelerator="cpu",
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        reload_dataloaders_every_n_epochs=habits["reload"],
    )  # fmt: skip
    data = {"module": Data(habits), "handed": None, "own": None}[habits["data"]]
    loader = loader_of(habits) if habits["data"] == "handed" else None
    trainer.fit(module, loader, datamodule=data, ckpt_path=exact.checkpoint)
    weights = b"".join(each.detach().numpy().tobytes() for each in module.parameters())
    return f"{hashlib.sha256(weights).hexdigest()[:16]} {trainer.global_step}"


def run(habits, directory, kill_at=-1):
    """Train in a fork; return what it ends with, the message of its refusal, or that it was killed."""
    reading, writing = os.pipe()
    if number := os.fork():
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            end = pipe.read().decode()
        os.waitpid(number, 0)
        return end or "killed"
    os.setsid()
    os.close(reading)
    torch.set_num_threads(1)
    try:
        end = train(habits, directory, kill_at)
    except ts.OptionError as error:
        end = f"refused: {error}"
    except BaseException:
        end = traceback.format_exc()
    os.write(writing, end.encode())
    os._exit(0)


def main(seed, count, folder):
    warnings.simplefilter("ignore")
    draws = random.Random(seed)
    told = []
    for number in range(count):
        habits = {name: draws.choice(choices) for name, choices in HABITS.items()}
        if habits["asks_in"] == "data_setup":
            habits["data"] = "module"
        if habits["data"] == "handed":
            habits["reload"] = 0
        kill_at = draws.randrange(3) * BATCHES + draws.randrange(1, BATCHES)
        plain = run(habits, folder / f"{number}-plain")
        killed = run(habits, folder / f"{number}-killed", kill_at)
        was_saved = any((folder / f"{number}-killed" / "checkpoints").glob("*-step-*"))
        again = run(habits, folder / f"{number}-killed") if killed == "killed" else killed
        third = run(habits, folder / f"{number}-killed")
        told.append(
            {
                "plain": plain,
                "again": again,
                "third": third,
                "was_saved": was_saved,
                "kill_at": kill_at,
                "habits": habits,
            }
        )
    print(json.dumps(told))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
