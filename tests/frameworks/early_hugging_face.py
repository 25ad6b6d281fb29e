# SPDX-License-Identifier: Apache-2.0
"""Drawn trainings by the Trainer and by Accelerate that look at their data early."""

import hashlib
import os
import signal

import torch
from early_data import BATCHES, EPOCHS, SizedStream, data_of, loader_of, look
from torch import nn
from torch.utils.data import DataLoader
from trainings import quiet

import truestep as ts

COMMON = {
    "workers": (0, 0, 2),
    "accumulate": (1, 3),
    "unsized": (False, False, False, True),
    "makes": ("alike", "alike", "alike", "at_random"),
    "how": ("first", "some", "whole"),
    "schedule": ("step", "none"),
}
TRAINER = {
    **COMMON,
    "looks_in": ("before", "on_train_begin", "on_epoch_begin", "on_step_begin", "on_step_end", "on_save", "nowhere"),
    "looks_at": ("given", "another", "own"),
    "stands": ("before", "behind"),
    "steps": (False, False, True),
}  # fmt: skip
ACCELERATE = {
    **COMMON,
    "looks_in": ("before", "behind", "epoch", "epoch_end", "body", "nowhere"),
    "looks_at": ("given", "own", "exact"),
}


def net_of():
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 2))


def end_of(net, steps):
    weights = b"".join(each.detach().numpy().tobytes() for each in net.parameters())
    return f"{hashlib.sha256(weights).hexdigest()[:16]} {steps}"


class Killing:
    """Counts batches, and kills the process at one."""

    def __init__(self, kill_at):
        self.kill_at, self.seen = kill_at, 0

    def batch(self):
        if self.seen == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen += 1


def by_trainer(habits, directory, kill_at=-1):
    import transformers

    quiet()
    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(1)
    killing = Killing(kill_at)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net_of()

        def forward(self, x, labels):
            killing.batch()
            return {"loss": nn.functional.cross_entropy(self.net(x), labels)}

    def collate(rows):
        return {"x": torch.stack([row[0] for row in rows]), "labels": torch.tensor([row[1] for row in rows])}

    class Looking(transformers.TrainerCallback):
        def looks(self, where, given):
            if habits["looks_in"] == where:
                # another pass over the loader that the Trainer goes through would move its count, in any run
                is_within = where in ("on_step_begin", "on_step_end", "on_save")
                at = "another" if is_within and habits["looks_at"] == "given" else habits["looks_at"]
                own = DataLoader(given.dataset, 3, collate_fn=collate)
                look(
                    {"given": given, "another": trainer.get_train_dataloader(), "own": own}[at], habits["how"]
                )

    for name in ("on_train_begin", "on_epoch_begin", "on_step_begin", "on_step_end", "on_save"):
        setattr(
            Looking, name, lambda self, *_, name=name, **given: self.looks(name, given["train_dataloader"])
        )
    exact = ts.transformers.ExactResume(directory / "exact")
    limit = (
        {"max_steps": EPOCHS * BATCHES // habits["accumulate"]}
        if habits["steps"]
        else {"num_train_epochs": EPOCHS}
    )
    arguments = transformers.TrainingArguments(
        str(directory / "theirs"), **limit, per_device_train_batch_size=4, save_strategy="steps", save_steps=1, report_to=[],
        lr_scheduler_type="linear" if habits["schedule"] == "step" else "constant", learning_rate=1e-2, use_cpu=True,
        gradient_accumulation_steps=habits["accumulate"], disable_tqdm=True, remove_unused_columns=False, save_total_limit=1,
        dataloader_num_workers=min(1, habits["workers"]) if habits["unsized"] else habits["workers"], logging_steps=100,
    )  # fmt: skip
    callbacks = [Looking(), exact] if habits["stands"] == "before" else [exact, Looking()]
    data = data_of(habits, stream=SizedStream)
    trainer = transformers.Trainer(
        Net(), arguments, train_dataset=data, data_collator=collate, callbacks=callbacks
    )
    trainer.remove_callback(transformers.PrinterCallback)
    if habits["looks_in"] == "before":
        look(trainer.get_train_dataloader(), habits["how"])
    trainer.train(resume_from_checkpoint=exact.checkpoint)
    return end_of(trainer.model, trainer.state.global_step)


def by_accelerate(habits, directory, kill_at=-1):
    import accelerate

    quiet()
    accelerate.utils.set_seed(1)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=habits["accumulate"])
    net, killing = net_of(), Killing(kill_at)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.1, 10)
    net, optimizer, schedule, loader = accelerator.prepare(net, optimizer, schedule, loader_of(habits))

    def looks(where, exact=None):
        if habits["looks_in"] == where:
            # another pass over a loader in the body of a loop over it would move Accelerate's own count, in any run
            allowed = {"before": "given", "epoch": "given", "body": "own"}.get(where, habits["looks_at"])
            at = habits["looks_at"] if habits["looks_at"] == "own" else allowed
            own = DataLoader(loader.dataset, 3)
            look(
                {"given": loader, "own": own, "exact": exact}[at], "first" if at == "exact" else habits["how"]
            )

    looks("before")
    exact = ts.accelerate.ExactResume(accelerator, loader, directory, every_n_batches=2)
    looks("behind", exact)
    for _ in range(exact.epoch, EPOCHS):
        looks("epoch", exact)
        for batch, labels in exact:
            killing.batch()
            looks("body", exact)
            with accelerator.accumulate(net):
                accelerator.backward(nn.functional.cross_entropy(net(batch), labels))
                optimizer.step()
                if habits["schedule"] == "step":
                    schedule.step()
                optimizer.zero_grad()
        looks("epoch_end", exact)
    exact.close()
    return end_of(net, schedule.scheduler.last_epoch)
