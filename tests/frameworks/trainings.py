# SPDX-License-Identifier: Apache-2.0
"""Small trainings by other frameworks as their users write them: augmentation, dropout, accumulation, validation, a schedule.

Each is a function of a directory and a number of workers, calls `batch_done` in every step, and returns a digest of its end.
"""

import hashlib
import logging
import random
import warnings

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import truestep as ts


class Pairs(Dataset):
    """Draws from all three global streams and from a generator of its own."""

    def __init__(self, count=34):
        self.count, self.own = count, np.random.default_rng(5)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        noise = torch.randn(4) * 0.1 + random.random() + np.random.rand() + self.own.random()
        return {"x": torch.full((4,), index / 34) + noise, "labels": torch.tensor(index % 2)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 2))

    def forward(self, x, labels=None):
        logits = self.body(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def digest(tensors, *values):
    content = b"".join(tensor.detach().contiguous().numpy().tobytes() for tensor in tensors)
    return hashlib.sha256(content + repr(values).encode()).hexdigest()


def all_of(net, optimizer):
    states = [value for state in optimizer.state.values() for value in state.values()]
    streams = (random.random(), np.random.rand(), torch.rand(()).item())
    return [*net.state_dict().values(), *states], streams, optimizer.param_groups[0]["lr"]


def quiet():
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning.fabric", "transformers", "accelerate"):
        logging.getLogger(name).setLevel(logging.ERROR)


def by_lightning(directory, workers, batch_done):
    import lightning

    quiet()

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, _):
            batch_done()
            loss = self.net(**batch)["loss"]
            self.log("train_loss", loss, on_step=False, on_epoch=True)
            self.log("largest", loss, on_step=False, on_epoch=True, reduce_fx="max")
            return loss

        def validation_step(self, batch, _):
            self.log("val_loss", self.net(**batch)["loss"])

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.1)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "train_loss"}}

    lightning.seed_everything(1, verbose=False)
    module = Module()
    loader = DataLoader(
        Pairs(), batch_size=4, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    exact = ts.lightning.ExactResume(directory, every_n_batches=2)
    trainer = lightning.Trainer(
        max_epochs=3, callbacks=[exact], accumulate_grad_batches=2, val_check_interval=3, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
    )  # fmt: skip
    trainer.fit(module, loader, DataLoader(Pairs(), batch_size=17), ckpt_path=exact.checkpoint)
    values = {name: value.item() for name, value in trainer.callback_metrics.items()}
    return digest(*all_of(module.net, trainer.optimizers[0]), values, trainer.global_step)


def by_trainer(directory, workers, batch_done):
    import transformers

    quiet()
    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(1)
    net = Net()
    net.body[0].register_forward_pre_hook(lambda *_: batch_done() and None if net.training else None)
    exact = ts.transformers.ExactResume(directory / "exact")
    arguments = transformers.TrainingArguments(
        str(directory / "theirs"), num_train_epochs=3, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        save_strategy="steps", save_steps=1, save_total_limit=1, eval_strategy="steps", eval_steps=2, learning_rate=1e-2,
        dataloader_num_workers=workers, dataloader_persistent_workers=workers > 0, report_to=[], disable_tqdm=True,
        use_cpu=True, remove_unused_columns=False, logging_steps=1,
    )  # fmt: skip
    trainer = transformers.Trainer(
        net, arguments, train_dataset=Pairs(), eval_dataset=Pairs(), callbacks=[exact]
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=exact.checkpoint)
    timed = ("runtime", "per_second")
    values = [
        {key: line[key] for key in sorted(line) if not key.endswith(timed)}
        for line in trainer.state.log_history[:-1]
    ]
    return digest(*all_of(net, trainer.optimizer), values)


def by_accelerate(directory, workers, batch_done):
    import accelerate

    quiet()
    accelerate.utils.set_seed(1)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    loader = DataLoader(
        Pairs(), batch_size=4, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    test = DataLoader(Pairs(), batch_size=17)
    net, optimizer, schedule, loader, test = accelerator.prepare(net, optimizer, schedule, loader, test)
    exact = ts.accelerate.ExactResume(accelerator, loader, directory, every_n_batches=2)
    measured = 0.0
    for _ in range(exact.epoch, 3):
        for batch in exact:
            batch_done()
            with accelerator.accumulate(net):
                accelerator.backward(net(**batch)["loss"])
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        measured = sum(net(**batch)["loss"].item() for batch in test)
    exact.close()
    return digest(*all_of(net, optimizer.optimizer), measured)


FRAMEWORKS = {"lightning": by_lightning, "transformers": by_trainer, "accelerate": by_accelerate}
