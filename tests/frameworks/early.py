# SPDX-License-Identifier: Apache-2.0
"""`python early.py LIBRARY SEED COUNT FOLDER`: drawn trainings that ask for their loader early, killed in a drawn epoch.

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
from early_data import BATCHES, EPOCHS, loader_of
from early_hugging_face import ACCELERATE, TRAINER, by_accelerate, by_trainer
from torch import nn
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


class Data(lightning.LightningDataModule):
    def __init__(self, habits):
        super().__init__()
        self.habits = habits

    def setup(self, stage=None):
        if self.habits["asks_in"] == "data_setup":
            self.trainer.estimated_stepping_batches

    def train_dataloader(self):
        return loader_of(self.habits, self.trainer.current_epoch)


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
        return loader_of(self.habits, self.trainer.current_epoch)


def by_lightning(habits, directory, kill_at=-1):
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


def run(train, habits, directory, kill_at=-1):
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


LIBRARIES = {
    "lightning": (HABITS, by_lightning),
    "transformers": (TRAINER, by_trainer),
    "accelerate": (ACCELERATE, by_accelerate),
}


def drawn_habits(draws, habits):
    found = {name: draws.choice(choices) for name, choices in habits.items()}
    if found.get("asks_in") == "data_setup":
        found["data"] = "module"
    if found.get("data") == "handed":
        found["reload"] = 0
    return found


def main(library, seed, count, folder):
    warnings.simplefilter("ignore")
    draws = random.Random(seed)
    choices, train = LIBRARIES[library]
    told = []
    for number in range(count):
        habits = drawn_habits(draws, choices)
        kill_at = draws.randrange(3) * BATCHES + draws.randrange(1, BATCHES)
        plain = run(train, habits, folder / f"{number}-plain")
        killed = run(train, habits, folder / f"{number}-killed", kill_at)
        was_saved = any((folder / f"{number}-killed").glob("**/checkpoints/*-step-*"))
        again = run(train, habits, folder / f"{number}-killed") if killed == "killed" else killed
        third = run(train, habits, folder / f"{number}-killed")
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
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
