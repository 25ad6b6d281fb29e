# SPDX-License-Identifier: Apache-2.0
"""SFTTrainer with a small language model on made-up prompts and their responses."""

import sys
import typing

import torch
from absent import bare_packages, stand_ins
from accelerate import Accelerator
from torch import nn
from torch.utils.data import TensorDataset

bare_packages("self_rewarding_lm_pytorch")
stand_ins(
    *("beartype", "torchtyping", "ema_pytorch", "einx", "jinja2"),
    *("x_transformers", "x_transformers.x_transformers", "self_rewarding_lm_pytorch.spin"),
)  # not needed here; types are not checked
sys.modules["beartype"].beartype = lambda thing: thing
sys.modules["beartype.typing"] = typing
from self_rewarding_lm_pytorch.self_rewarding_lm_pytorch import SFTTrainer

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(33, 32)
        self.layers = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, 32)

    def forward(self, x):
        return self.out(self.layers(self.tokens(x.remainder(33)))[0])  # -1 is a token of its own


sequences = (torch.randint(0, 32, (320, 1)) + torch.arange(16)) % 32
lengths = torch.randint(4, 9, (320,))
trainer = SFTTrainer(
    Net(),
    accelerator=Accelerator(cpu=True),
    train_dataset=TensorDataset(sequences, lengths),
    valid_dataset=TensorDataset(sequences[:32], lengths[:32]),
    batch_size=8,
    grad_accum_steps=2,
    num_epochs=3,
    start_learning_rate=1e-3,
    end_learning_rate=5e-4,
    valid_every=20,
)
trainer()
print("steps", trainer.steps)
