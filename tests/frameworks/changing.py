# SPDX-License-Identifier: Apache-2.0
"""`python changing.py LIBRARY`: trainings stopped within an epoch and gone on with, where the code was changed in between.

Prints, as JSON, for each change what was said, and whether the end is that of a run that was never stopped.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, SequentialLR, StepLR
from torch.utils.data import DataLoader
from trainings import quiet

import truestep as ts

ROWS = torch.linspace(0, 1, 64 * 4).reshape(64, 4)


class Stop(BaseException):
    """Ends a training in the place of a kill."""


def net_of():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))


class Stopping:
    """Counts batches, and stops at one."""

    def __init__(self, stop_at):
        self.stop_at, self.seen = stop_at, 0

    def batch(self):
        if self.seen == self.stop_at:
            raise Stop
        self.seen += 1


def warmup(steps):
    return lambda optimizer: LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / steps))


SCHEDULES = {
    None: None,
    "step": lambda optimizer: StepLR(optimizer, 4),
    "step 8": lambda optimizer: StepLR(optimizer, 8),
    "cosine": lambda optimizer: CosineAnnealingLR(optimizer, 24),
    "warm 4": warmup(4),
    "warm 9": warmup(9),
    "warm 30": warmup(30),
    "warm 4, then step": lambda optimizer: SequentialLR(
        optimizer, [warmup(4)(optimizer), StepLR(optimizer, 4)], [6]
    ),
    "warm 9, then step": lambda optimizer: SequentialLR(
        optimizer, [warmup(9)(optimizer), StepLR(optimizer, 4)], [6]
    ),
    "cycle 48": lambda optimizer: OneCycleLR(optimizer, 0.05, total_steps=48),
    "cycle 96": lambda optimizer: OneCycleLR(optimizer, 0.05, total_steps=96),
}


def by_lightning(folder, stop_at, schedule=None, rate=0.05, seed=1, drawn=False, **options):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.stopping = net_of(), Stopping(stop_at)

        def training_step(self, batch, _):
            self.stopping.batch()
            return self.net(batch).square().mean()

        def validation_step(self, batch, _):
            self.net(batch)

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=rate, momentum=0.9)
            made = SCHEDULES[schedule]
            return [optimizer], [{"scheduler": made(optimizer), "interval": "step"}] if made else []

    exact, module = ts.lightning.ExactResume(folder, every_n_batches=3), Module()
    lightning.seed_everything(seed, verbose=False)
    trainer = lightning.Trainer(
        callbacks=[exact], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", **{"max_epochs": 3, **options},
    )  # fmt: skip
    loader = DataLoader(torch.rand(64, 4) if drawn else ROWS, 8, shuffle=True)
    trainer.fit(module, loader, DataLoader(ROWS, 32), ckpt_path=exact.checkpoint)
    return [each.tolist() for each in module.net.parameters()]


def by_trainer(folder, stop_at, schedule=None, rate=0.05, own=False, plain=False, drawn=False, **options):
    import transformers

    transformers.utils.logging.disable_progress_bar()
    stopping = Stopping(stop_at)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net_of()

        def forward(self, x):
            stopping.batch()
            return {"loss": self.net(x).square().mean()}

    exact = ts.transformers.ExactResume(f"{folder}/exact")
    if plain:
        options["accelerator_config"] = {"use_seedable_sampler": False}
    arguments = transformers.TrainingArguments(
        f"{folder}/theirs", save_strategy="steps", save_steps=3, report_to=[], learning_rate=rate, use_cpu=True,
        disable_tqdm=True, logging_steps=100, **{"num_train_epochs": 3, **options},
    )  # fmt: skip
    net = Net()
    made = (None, None)
    if own or schedule:
        optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
        made = (optimizer, SCHEDULES[schedule](optimizer) if schedule else None)
    transformers.set_seed(arguments.seed)
    rows = [{"x": row} for row in (torch.rand(64, 4) if drawn else ROWS)]
    trainer = transformers.Trainer(
        net, arguments, train_dataset=rows, eval_dataset=rows, callbacks=[exact], optimizers=made
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=exact.checkpoint)
    return [each.tolist() for each in net.parameters()]


def by_accelerate(
    folder, stop_at, schedule=None, rate=0.05, registered=False, epochs=3, seed=1, drawn=False, **options
):
    import accelerate

    accelerate.state.AcceleratorState._reset_state()
    accelerate.utils.set_seed(seed)
    accelerator = accelerate.Accelerator(cpu=True, **options)
    net, stopping = net_of(), Stopping(stop_at)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    made = SCHEDULES[schedule](optimizer) if schedule else None
    net, optimizer, loader = accelerator.prepare(
        net, optimizer, DataLoader(torch.rand(64, 4) if drawn else ROWS, 8, shuffle=True)
    )
    if made:
        made = (
            accelerator.register_for_checkpointing(made) or made if registered else accelerator.prepare(made)
        )
    exact = ts.accelerate.ExactResume(accelerator, loader, folder, every_n_batches=3)
    try:
        for _ in range(exact.epoch, epochs):
            for batch in exact:
                stopping.batch()
                with accelerator.accumulate(net):
                    accelerator.backward(net(batch).square().mean())
                    optimizer.step()
                    if made:
                        made.step()
                    optimizer.zero_grad()
    finally:
        exact.close()
    return [each.tolist() for each in net.parameters()]


TRAIN = {"lightning": by_lightning, "transformers": by_trainer, "accelerate": by_accelerate}


def end_of(train, folder, stop_at, **options):
    """Return the end of a training, or what it was refused with; and what it said."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            end = train(folder, stop_at, **options)
        except (Stop, ts.OptionError) as error:
            end = f"{error}"
    return end, "".join(line for line in said.getvalue().splitlines(keepends=True) if "truestep: " in line)


def main(library, changes):
    quiet()
    torch.set_num_threads(1)
    told = {}
    for number, (name, (before, after)) in enumerate(changes.items()):
        whole, _ = end_of(TRAIN[library], f"{number}-whole", -1, **before)
        _, first = end_of(TRAIN[library], f"{number}-killed", 13, **before)
        again, said = end_of(TRAIN[library], f"{number}-killed", -1, **after)
        _, second = end_of(TRAIN[library], f"{number}-killed", -1, **after)
        refused = again if isinstance(again, str) else ""
        told[name] = {
            "first": first, "said": refused + said, "is_same": again == whole, "is_refused": bool(refused), "second": second,
        }  # fmt: skip
    print(json.dumps(told))


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main(sys.argv[1], json.loads(sys.argv[2]))
