# SPDX-License-Identifier: Apache-2.0
"""What the five programs share, and what measures them: handwritten digits, a network with dropout, a kill, a record.

`KILL_AT=n` kills the process with SIGKILL in its n-th training pass, and `PAUSE=s` lets each epoch take s seconds more, as
real ones take longer than these. `RECORD=file` gets a line for each training pass, the
sum of its inputs; `WEIGHTS=file` gets the network's weights when the process ends.
"""

import atexit
import math
import os
import signal
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

EPOCHS, BATCH = 10, 64
_images, _labels = map(torch.tensor, load_digits(return_X_y=True))
_images, _held_out = _images.float() / 16, torch.arange(len(_labels)) % 5 == 0
train_set = TensorDataset(_images[~_held_out], _labels[~_held_out])
test_set = TensorDataset(_images[_held_out], _labels[_held_out])

PER_EPOCH = math.ceil(len(train_set) / BATCH)


class Network(nn.Sequential):
    """A network that keeps count of its training passes, so that each library is killed in the same one."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
        self.passes = 0
        if file := os.environ.get("WEIGHTS"):
            atexit.register(
                lambda: torch.save({name: each.cpu() for name, each in self.state_dict().items()}, file)
            )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.passes += 1
            if self.passes % PER_EPOCH == 1:
                time.sleep(float(os.environ.get("PAUSE", "0")))
            if str(self.passes) == os.environ.get("KILL_AT"):
                os.kill(os.getpid(), signal.SIGKILL)
            if file := os.environ.get("RECORD"):
                with Path(file).open("a") as record:
                    record.write(f"{float(inputs.detach().double().sum())!r}\n")
        return super().forward(inputs)


def network() -> nn.Module:
    return Network()
