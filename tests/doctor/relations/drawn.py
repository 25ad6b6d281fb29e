# SPDX-License-Identifier: Apache-2.0
"""The loss, the batch and the model of a drawn program, without its training."""

import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from programs.compose import Program, program
from programs.habits import text_of


class Training(NamedTuple):
    """What `ts.relations` is given of a program."""

    loss: Any
    batch: Any
    model: Any


def training(*names: str, batch_size: str = "7") -> Training:
    """Return the loss of the program with these habits, its first batch and its model."""
    drawn = program(*names)
    parts = [text_of(drawn.habits, part) for part in ("imports", "definitions", "build")]
    spaces: dict[str, Any] = {"__name__": "drawn"}
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        with imported_files(drawn):
            exec("\n".join(parts), spaces)
        batch = next(iter(spaces["loader"]))
    for each in [*spaces.values()]:
        for held in getattr(each, "__dict__", {}).values():
            if isinstance(held, io.IOBase):  # a data set may read from a file that it keeps open
                held.close()
    return Training(spaces["compute_loss"], batch, spaces["model"])


@contextmanager
def imported_files(drawn: Program) -> Iterator[None]:
    """Have the program's other files at its root as modules."""
    files = {
        Path(name).stem: text
        for name, text in drawn.files().items()
        if name.endswith(".py") and name != "main.py" and "/" not in name
    }
    made = {name: ModuleType(name) for name in files}
    sys.modules |= made
    try:
        for name, module in made.items():
            exec(files[name], vars(module))
        yield
    finally:
        for name in made:
            del sys.modules[name]
