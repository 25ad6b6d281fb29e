# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network on scikit-learn's 1,797 handwritten digits."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Config:
    """What can be chosen."""

    epochs: int = 20  # passes over the training images
    lr: float = 3e-3  # highest learning rate


def train(run: Any, config: Config) -> None:
    """Train the network."""
