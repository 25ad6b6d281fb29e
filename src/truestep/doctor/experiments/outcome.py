# SPDX-License-Identifier: Apache-2.0
"""What a child of an experiment brings back: the steps that it saw, what was printed, and what its batch was used for."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truestep.doctor.relations.gradients import merge_shared_gradients
from truestep.doctor.relations.meanings import RowSums

_save = torch.save  # a child has another one
MOST_NUMBERS = 1_000_000  # of all gradients: of larger ones every so-many-th is brought back


@dataclass
class ObservedStep:
    """One step of an optimizer in a child."""

    optimizer: int  # which one, in the order of the run's
    losses: list[float]  # that went backward since the step before, or before that one, where none did
    gradients: dict[str, Tensor | None] = field(default_factory=dict)
    first_call: int | None = None  # of torch, from the fork on, that its loss is computed by
    reads_model: bool = False  # whether numbers of the model are read on the way to its loss
    shares_losses: bool = False  # with the step before


@dataclass
class ChildOutcome:
    """What a child saw until it ended."""

    failure: str | None = None  # why nothing was learned from it
    error: str | None = None  # what the script raised
    steps: list[ObservedStep] = field(default_factory=list)
    printed: str = ""
    told_before_last: int = 0  # so much was printed before the last batch of an evaluation
    is_whole: bool = False  # whether an evaluation took all of its examples
    draws: bool = False  # whether it drew random numbers meanwhile
    # by each operation: sizes, and axes of examples
    drawn: list[list[list[int]]] = field(default_factory=list)
    stream: str = ""  # a digest of where random streams stood at its end
    factors: list[Any] = field(default_factory=list)  # numbers that what has a graph was multiplied by
    touched: list[str] = field(default_factory=list)  # leaves of the batch that an operation was given
    # those that only comparisons were given, as for an accuracy
    compared: list[str] = field(default_factory=list)
    operations: dict[str, list[str]] = field(default_factory=dict)  # that compute with a leaf
    roots: list[int] = field(default_factory=list)  # identities of tensors that the loss is computed from
    cuts_root: bool = False  # whether a batch is cut out of one of them
    turns: list[list[dict[str, Any]]] = field(default_factory=list)  # data that the optimizers' turns used
    use_names: dict[int, str] = field(default_factory=dict)  # of the first turn's, by number
    use_tensors: dict[int, Tensor] = field(default_factory=dict)
    uses: list[tuple[list[int], str]] = field(default_factory=list)  # shapes and digests, before a change
    varied: list[str] = field(default_factory=list)  # items, made in the step, whose rows differ
    foreign: str | None = None  # rows that were there before the batch, and that the step used
    other_loaders: int = 0  # batches of other loaders within the step
    num_batches: int = 1
    num_rows: int = 0  # of the batches behind the first one
    counts: list[float] = field(default_factory=list)  # numbers that may be counts, in order
    meets_count: bool = False  # whether one of them stands for the examples
    calls_closure: bool = False  # whether an optimizer was given a closure
    coarsest: float = 0.0  # rounding of the coarsest float type
    # parameters that something but an optimizer writes to
    overwritten: list[str] = field(default_factory=list)
    own_backward: str | None = None  # a function in the graph whose backward is the user's, or a library's
    cuts: list[str] = field(default_factory=list)  # operations that end a graph, each with its line
    scores_samples: bool = False  # whether log_prob was asked of values without a graph
    followed: dict[str, Any] = field(default_factory=dict)  # what followers of the step's operations found
    # that each batch of an epoch gave, by the line
    values: dict[str, list[float]] = field(default_factory=dict)
    values_within: dict[str, list[float]] = field(default_factory=dict)  # the same, NaN where there is none
    divided: dict[str, float] = field(default_factory=dict)  # what these were divided by, by the line
    printed_within: list[str] = field(default_factory=list)  # of an epoch, until each batch's end
    calls: list[RowSums] = field(default_factory=list)

    def gradients(self) -> Mapping[str, Tensor | None]:
        """Return the gradients of all steps; behind the first one the name begins with the step's number."""
        return {
            name if not number else f"step {number + 1}: {name}": value
            for number, step in enumerate(self.steps)
            for name, value in step.gradients.items()
        }

    def loss(self) -> float:
        """Return the sum of the losses that went backward."""
        return sum(value for step in self.steps for value in step.losses)

    def has_same_draws_as(self, twice: "ChildOutcome") -> bool:
        """Tell whether a child with every example twice draws as often, and twice the rows where examples were taken to lie."""
        return (twice.stream, len(twice.drawn)) == (self.stream, len(self.drawn)) and all(
            axes == again and sizes_again == [size * (1 + (axis in axes)) for axis, size in enumerate(sizes)]
            for (sizes, axes), (sizes_again, again) in zip(self.drawn, twice.drawn, strict=True)
        )

    def written(self) -> bytes:
        """Return this as bytes."""
        known = {name: value for name, value in vars(self).items() if name not in ("steps", "calls")}
        calls = json.dumps(
            [[*each[:-1], [[rows, sums.tolist()] for rows, sums in each.sums]] for each in self.calls]
        )
        file = io.BytesIO()
        _save({**known, "steps": [_step_as_dict(each) for each in self.steps], "calls": calls}, file)
        return file.getvalue()

    @classmethod
    def read(cls, written: bytes) -> "ChildOutcome":
        """Return what was written."""
        found: dict[str, Any] = torch.load(io.BytesIO(written), weights_only=True)
        steps = [ObservedStep(**each) for each in found.pop("steps")]
        calls = [_row_sums_from_json(each) for each in json.loads(found.pop("calls"))]
        return cls(**found, steps=steps, calls=calls)


def _step_as_dict(step: ObservedStep) -> dict[str, Any]:
    return dict(vars(step))


def _row_sums_from_json(written: list[Any]) -> RowSums:
    call = RowSums(*written)
    kept = tuple((rows, np.asarray(each)) for rows, each in call.sums)
    given, read = tuple(map(tuple, call.given)), tuple(call.read)
    return call._replace(shape=tuple(call.shape), given=given, read=read, sums=kept)


def sampled_gradients(named: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    """Return copies of the gradients of parameters, of large ones every so-many-th number."""
    found = {
        name: None if each.grad is None else sampled_numbers(each.grad, len(named)).clone()
        for name, each in named.items()
    }
    return dict(merge_shared_gradients(found, named))


def sampled_numbers(given: Tensor, num_tensors: int) -> Tensor:
    """Return those numbers of a tensor that are brought back where so many tensors are; a view where it can be one."""
    most = max(256, MOST_NUMBERS // max(1, num_tensors))
    dense = given.detach().to_dense() if given.layout is not torch.strided else given.detach()
    numbers = dense.reshape(-1)
    return numbers[:: -(-numbers.numel() // most) or 1]


def move_parameters(parameters: Mapping[str, Tensor], directions: Mapping[str, Tensor], by: float) -> None:
    """Move parameters where they are."""
    with torch.no_grad():
        for name, each in directions.items():
            values = parameters[name].detach().reshape(-1).clone()
            sampled_numbers(values, len(parameters)).add_((by * each).to(values))
            parameters[name].copy_(values.view_as(parameters[name]))
