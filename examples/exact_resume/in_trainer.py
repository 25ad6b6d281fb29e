# SPDX-License-Identifier: Apache-2.0
"""A training of Hugging Face's Trainer, stopped at step 24 of 48: it goes on, and ends with the bits of one that was not stopped.

python examples/exact_resume/in_trainer.py
"""

import torch
import transformers
from torch import nn

import truestep as ts


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))

    def forward(self, x):
        return {"loss": self.net(x).square().mean()}


class Stop(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 24:
            raise RuntimeError("stands for a kill")


def train(directory, *callbacks):
    transformers.set_seed(0)
    rows = [{"x": row} for row in torch.randn(64, 4)]
    model = Net()
    arguments = transformers.TrainingArguments(
        f"{directory}/theirs",
        num_train_epochs=3,
        per_device_train_batch_size=4,
        save_strategy="steps",
        save_steps=5,  # exact saves as often
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    exact = ts.transformers.ExactResume(f"{directory}/exact")  # added
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=rows,
        callbacks=[exact, *callbacks],  # added
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=exact.checkpoint)  # added
    return model.net[0].weight.detach()


try:
    train("runs/stopped", Stop())
except RuntimeError as error:
    print(error)
print("equal bits:", torch.equal(train("runs/stopped"), train("runs/whole")))
