# SPDX-License-Identifier: Apache-2.0
"""Seconds until 98% of the test digits are named, beside other libraries: `python benchmarks/engine/digits.py`.

The digits recipe's network, schedule and augmentation for everyone, evaluated after each epoch. The others get their
usual `DataLoader` and optimizer (`AdamW`, clipped), and the augmentation in one of two places: sample by sample in the
data set, as transforms are commonly written, or batch by batch in the loop, as the recipe does it. Seeds take turns;
a figure is the mean over seeds, from before the loop until the first evaluation of at least 98%.
"""

import argparse
import logging
import math
import statistics
import tempfile
import time
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import truestep as ts
from truestep.recipes import digits

GOAL = 0.98
CONFIG = digits.Config()
TRAIN, TEST = digits.load_digit_images()
STEPS_PER_EPOCH = math.ceil(len(TRAIN[1]) / CONFIG.batch_size)


class Transformed(Dataset):
    """Digits that are moved one by one when they are asked for."""

    def __len__(self):
        return len(TRAIN[1])

    def __getitem__(self, index):
        return digits.augment_digits(TRAIN[0][index : index + 1])[0], TRAIN[1][index]


class Setting:
    """What the libraries without an engine of their own share."""

    def __init__(self, seed, by_sample):
        torch.manual_seed(seed)
        self.net = digits.DigitsNet(CONFIG.width, CONFIG.dropout)
        self.optimizer = torch.optim.AdamW(
            self.net.parameters(), lr=CONFIG.lr, weight_decay=CONFIG.weight_decay
        )
        self.schedule = ts.warmup_cosine(
            self.optimizer, warmup_steps=STEPS_PER_EPOCH, total_steps=CONFIG.epochs * STEPS_PER_EPOCH
        )
        data = Transformed() if by_sample else TensorDataset(*TRAIN)
        self.move = (lambda images: images) if by_sample else digits.augment_digits
        self.train = DataLoader(data, batch_size=CONFIG.batch_size, shuffle=True)
        self.test = DataLoader(TensorDataset(*TEST), batch_size=1024)

    def loss(self, net, images, labels):
        return F.cross_entropy(net(self.move(images)), labels, label_smoothing=CONFIG.label_smoothing)

    def accuracy(self, net):
        net.eval()
        with torch.inference_mode():
            right = sum((net(images).argmax(1) == labels).sum() for images, labels in self.test)
        net.train()
        return float(right) / len(TEST[1])


def by_hand(seed, by_sample):
    setting = Setting(seed, by_sample)
    for _ in range(CONFIG.epochs):
        for images, labels in setting.train:
            setting.optimizer.zero_grad()
            setting.loss(setting.net, images, labels).backward()
            nn.utils.clip_grad_norm_(setting.net.parameters(), 1.0)
            setting.optimizer.step()
            setting.schedule.step()
        if setting.accuracy(setting.net) >= GOAL:
            return


def fabric(seed, by_sample):
    from lightning.fabric import Fabric

    setting = Setting(seed, by_sample)
    device = Fabric(accelerator="cpu", devices=1)
    net, optimizer = device.setup(setting.net, setting.optimizer)
    train = device.setup_dataloaders(setting.train)
    for _ in range(CONFIG.epochs):
        for images, labels in train:
            optimizer.zero_grad()
            device.backward(setting.loss(net, images, labels))
            device.clip_gradients(net, optimizer, max_norm=1.0)
            optimizer.step()
            setting.schedule.step()
        if setting.accuracy(net) >= GOAL:
            return


def accelerate(seed, by_sample):
    from accelerate import Accelerator

    setting = Setting(seed, by_sample)
    accelerator = Accelerator(cpu=True)
    net, optimizer, train, schedule = accelerator.prepare(
        setting.net, setting.optimizer, setting.train, setting.schedule
    )
    for _ in range(CONFIG.epochs):
        for images, labels in train:
            optimizer.zero_grad()
            accelerator.backward(setting.loss(net, images, labels))
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        if setting.accuracy(net) >= GOAL:
            return


def ignite(seed, by_sample):
    from ignite.engine import Engine, Events

    setting = Setting(seed, by_sample)

    def step(_, batch):
        images, labels = batch
        setting.optimizer.zero_grad()
        loss = setting.loss(setting.net, images, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(setting.net.parameters(), 1.0)
        setting.optimizer.step()
        setting.schedule.step()
        return loss.detach()

    engine = Engine(step)

    @engine.on(Events.EPOCH_COMPLETED)
    def stop(engine):
        if setting.accuracy(setting.net) >= GOAL:
            engine.terminate()

    engine.run(setting.train, max_epochs=CONFIG.epochs)


def lightning(seed, by_sample):
    import lightning.pytorch as pl

    setting = Setting(seed, by_sample)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = setting.net

        def training_step(self, batch, batch_idx):
            return setting.loss(self.net, *batch)

        def configure_optimizers(self):
            return {
                "optimizer": setting.optimizer,
                "lr_scheduler": {"scheduler": setting.schedule, "interval": "step"},
            }

        def on_train_epoch_end(self):
            if setting.accuracy(self.net) >= GOAL:
                self.trainer.should_stop = True

    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=CONFIG.epochs,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), setting.train)


class Reached(Exception):
    """The goal is reached, after so many seconds."""


def truestep(seed, _):
    """The recipe itself, checkpoints and report included, left when it has reached the goal."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = ts.Run(folder, seed=seed, progress=False)
        log = run.log

        def watch(**values):
            log(**values)
            if values["accuracy"] >= GOAL:
                raise Reached(time.perf_counter() - began)

        run.log = watch
        try:
            digits.train(run, CONFIG)
        except Reached as reached:
            run.close()
            return reached.args[0]


CONTENDERS = {
    "Truestep": truestep,
    "by hand": by_hand,
    "Fabric": fabric,
    "Accelerate": accelerate,
    "Ignite": ignite,
    "Lightning": lightning,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    places = {"by batch": False, "by sample": True}
    times = {
        (name, place): []
        for name in CONTENDERS
        for place in places
        if (name, place) != ("Truestep", "by sample")
    }
    for seed in range(-1, arguments.seeds):  # the first round only warms up
        for (name, place), taken in times.items():
            began = time.perf_counter()
            seconds = CONTENDERS[name](max(seed, 0), places[place]) or time.perf_counter() - began
            if seed >= 0:
                taken.append(seconds)
    means = {key: statistics.mean(values) for key, values in times.items()}
    ours = means.pop(("Truestep", "by batch"))
    print(f"Seconds to {GOAL:.0%}, mean of {arguments.seeds} seeds, {arguments.threads} thread(s)\n")
    print("| | augmentation by sample | ratio | augmentation by batch | ratio |\n|---|---|---|---|---|")
    print(f"| Truestep | | | {ours:.2f} | 1.00 |")
    for name in list(CONTENDERS)[1:]:
        sample, batch = means[name, "by sample"], means[name, "by batch"]
        print(f"| {name} | {sample:.2f} | {ours / sample:.2f} | {batch:.2f} | {ours / batch:.2f} |")


if __name__ == "__main__":
    main()
