# SPDX-License-Identifier: Apache-2.0
"""What is kept of the rows of a batch, and of a whole pass of batches."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.finding import Place

MOST_ROWS = 1 << 16  # of training, and of one evaluation; of more a part is kept


@dataclass(eq=False)
class RowBatch:
    """What is kept of one batch that went into a model."""

    model: int  # a number of its own for each
    era: int  # of its training: a new one begins with a new optimizer, or where weights are put back
    place: Place
    at: int  # a number that grows from one batch to the next
    step: int
    inputs: Tensor  # a print for each row, and so for the targets
    width: int  # numbers in a row
    fractions: Tensor | None  # the share of numbers that are not whole
    recorded: bool
    alone: bool  # whether the model was given nothing else
    exact: bool  # whether no layer acts as in training
    data: int | None  # the rows of the loader that gave it
    followed: bool = False  # whether the way of its output is known
    is_measured: bool = False  # whether something was compared with its output
    is_taken_out: bool = False  # whether its output left torch, where nobody follows it
    is_passed_on: bool = False  # whether its output went into another model
    is_used: bool = False  # whether anything was computed of its output
    outputs: list[weakref.ref[Tensor]] = field(default_factory=list)
    targets: Tensor | None = None
    target_width: int = 0
    of_classes: bool = False  # whether a target is a whole number
    of_several: bool = (
        False  # whether the targets were compared with what several inputs gave: they are of a pair
    )
    _prints: tuple[Tensor, frozenset[int]] | None = None  # of the inputs beside it

    @property
    def is_thrown_away(self) -> bool:
        """Whether nothing came of it but what the model keeps itself, as statistics of its norms."""
        return self.followed and not self.is_used and not any(each() is not None for each in self.outputs)

    @property
    def prints(self) -> frozenset[int]:
        """The prints of the rows that are kept now, made once: each batch may be held against each other one."""
        if self._prints is None or self._prints[0] is not self.inputs:
            self._prints = self.inputs, frozenset(self.inputs.tolist())
        return self._prints[1]


@dataclass(eq=False)
class RowPass:
    """One pass of rows through a model: a whole evaluation, or all training so far."""

    batches: list[RowBatch] = field(default_factory=list)
    kept: int = 1  # one row in so many, by its print
    num_rows: int = 0

    def add(self, batch: RowBatch) -> None:
        """Keep a batch, and of all rows fewer when they are too many."""
        self.batches.append(batch)
        self._thin_rows(batch)
        self.num_rows += len(batch.inputs)
        while self.num_rows > MOST_ROWS:
            self.kept *= 2
            for each in self.batches:
                self._thin_rows(each)
            self.batches = [each for each in self.batches if len(each.inputs)]
            self.num_rows = sum(len(each.inputs) for each in self.batches)

    def _thin_rows(self, batch: RowBatch) -> None:
        if self.kept > 1:
            held = (batch.inputs & (self.kept - 1)) == 0
            batch.inputs = batch.inputs[held]
            batch.targets = batch.targets[held] if batch.targets is not None else None
