# SPDX-License-Identifier: Apache-2.0
"""The loss, the batch and the model of a drawn program, without its training."""

import sys
import warnings
from types import ModuleType
from typing import Any, NamedTuple

from unittest.mock import patch

import torch
from programs.compose import program
from programs.habits import text_of


class Training(NamedTuple):
    """What `ts.relations` is given of a program."""

    loss: Any
    batch: Any
    model: Any


def training(*names: str, batch_size: str = "7") -> Training:
    """Return the loss of the program with these habits, its first batch and its model."""
    drawn = program(*names)
    habits = drawn.habits
    parts = [text_of(habits, part) for part in ("imports", "definitions", "build")]
    spaces: dict[str, Any] = {"__name__": "drawn"}
    with warnings.catch_warnings(), torch.random.fork_rng(), patch.dict(sys.modules):
        warnings.simplefilter("ignore")
        for name, text in drawn.files().items():
            if name.removesuffix(".py").isidentifier() and name != "main.py":
                sys.modules[name.removesuffix(".py")] = beside = ModuleType(name.removesuffix(".py"))
                exec(text, vars(beside))
        exec("\n".join(parts), spaces)
        batch = next(iter(spaces["loader"]))
    return Training(spaces["compute_loss"], batch, spaces["model"])
