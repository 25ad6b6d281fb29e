# SPDX-License-Identifier: Apache-2.0
"""What a model is asked to predict, and whether what it sees gives the answer away."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from truestep.doctor.runtime.history import ForwardCall, LossCall
from truestep.doctor.runtime.probed_model import ProbedModel
from truestep.doctor.runtime.tensor_queries import (
    is_plain_watched_tensor,
    is_readable_without_sync,
    watched_tensors,
)
from truestep.doctor.runtime.traced_forward import (
    ProbedValue,
    ProbePassage,
    align_passages,
    probed_values_differ,
)

LEAST = 4  # steps
MOST = 128  # numbers of a sequence that are tried out: past them the scores of attention grow large
EXAMPLES = 2
MOST_COMPARED = 1 << 22  # numbers of a batch with targets
SYMBOL_LOSSES = ("cross_entropy", "nll_loss")
_TARGETS = re.compile(r"label|target|^y$", re.I)


@dataclass(frozen=True)
class SequenceProbeTask:
    """Symbols go in, and symbols are the targets: the same ones, or each the next one."""

    key: int | str  # of the input, by position or name
    given: Tensor  # (batch, time) or (time, batch)
    axis: int  # of time
    ahead: int  # by so many places is each target's symbol further on than its own place
    classes: int  # that the loss chooses from


def sequence_probe_task(forward: ForwardCall, loss: LossCall) -> SequenceProbeTask | None:
    """Return what is asked of a model that takes a batch of symbols, if that can be told from the numbers."""
    if loss.name not in SYMBOL_LOSSES or loss.target.is_floating_point() or loss.input.dim() < 2:
        return None
    for key, symbols in symbols_given_to(forward):
        for axis in (1, 0) if is_readable_without_sync(symbols) else ():
            ahead = target_shift(symbols, axis, loss.target, loss.options.get("ignore_index", -100))
            if ahead is not None:
                return SequenceProbeTask(key, symbols, axis, ahead, loss.input.shape[1])
    return None


def symbols_given_to(forward: ForwardCall) -> list[tuple[int | str, Tensor]]:
    """Return the batches of symbols that a model was given, but for what is named as a target."""
    return [(key, each) for key, each in integer_batches(forward) if not _TARGETS.search(str(key))]


def integer_batches(forward: ForwardCall) -> list[tuple[int | str, Tensor]]:
    """Return all tensors of whole numbers with two axes that a model was given, targets among them."""
    given: list[tuple[int | str, object]] = [*enumerate(forward.args), *forward.kwargs.items()]
    return [(key, each.detach()) for key, each in given if isinstance(each, Tensor) and is_symbol_batch(each)]


def is_symbol_batch(value: Tensor) -> bool:
    """Tell a batch of whole numbers along sequences."""
    return is_plain_watched_tensor(value) and value.dim() == 2 and value.dtype in (torch.int64, torch.int32)


def target_shift(given: Tensor, axis: int, targets: Tensor, ignored: int) -> int | None:
    """Return by how many places each target's symbol is further on in what is given; None where the numbers do not tell.

    The targets may be as many as the symbols, or fewer by those that are cut off at the end.
    """
    size = given.shape[axis]
    if size < LEAST:
        return None
    for ahead, shorter in ((1, 0), (1, 1), (0, 0), (2, 0), (2, 1), (2, 2)):
        asked = given.narrow(axis, ahead, size - ahead)
        if _are_same_symbols(asked, _targets_like_input(given, axis, shorter, targets), axis, ignored):
            return ahead
    return None


def _targets_like_input(given: Tensor, axis: int, shorter: int, target: Tensor) -> Tensor | None:
    """Return the targets in the shape of the input, or of all its steps but one."""
    shape = list(given.shape)
    shape[axis] -= shorter
    return target.detach().reshape(shape) if target.numel() == shape[0] * shape[1] else None


def _are_same_symbols(asked: Tensor, targets: Tensor | None, axis: int, ignored: int) -> bool:
    if targets is None:
        return False
    targets = targets.narrow(axis, 0, asked.shape[axis])
    counted = targets != ignored
    values = asked[counted]
    varied = len(values) >= LEAST and bool((values != values[0]).any())
    return (
        varied
        and bool(counted.float().mean() > 0.5)
        and torch.equal(values, targets[counted].to(values.dtype))
    )


def targets_found_in_input(forward: ForwardCall, loss: LossCall) -> str | None:
    """Return the places of an input in which the targets stand, if the output, of which the loss is, changes with them.

    They are less than half of that input: an autoencoder is to give back all of it.
    """
    if not (is_plain_watched_tensor(loss.input) and is_plain_watched_tensor(loss.target)):
        return None
    plain = [each for each in watched_tensors(forward.output) if is_plain_watched_tensor(each)]
    outputs = [each for each in plain if each.numel() == loss.input.numel()]
    targets = loss.target.detach().reshape(len(loss.target) if loss.target.dim() else 1, -1)
    if not any(torch.equal(each.reshape(-1), loss.input.reshape(-1)) for each in outputs):
        return None
    inputs: list[tuple[int | str, object]] = [*enumerate(forward.args), *forward.kwargs.items()]
    for key, given in inputs:
        if not isinstance(given, Tensor) or not is_plain_watched_tensor(given) or given.dim() < 2:
            continue
        places = _target_columns_in_input(targets, given)
        if places is not None:
            changed = given.clone(memory_format=torch.contiguous_format)  # so that flatten() is a view
            changed.flatten(1)[:, places] = given.flatten(1)[:, places].roll(1, 0)
            with ProbedModel(forward) as trial:
                base, again, other = (
                    _probe_changed_input(trial, {key: each}) for each in (given, given, changed)
                )
            if _have_same_outputs(base, again) and not _have_same_outputs(base, other):
                first, last = int(places.min()), int(places.max())
                return f"{first} to {last}" if last > first else str(first)
    return None


def _target_columns_in_input(targets: Tensor, given: Tensor) -> Tensor | None:
    """Return in which column of an input each column of the targets stands; None where one stands nowhere, or varies little."""
    numbers = given.detach().reshape(len(given), -1)
    rows, size = targets.shape
    if rows < LEAST or len(numbers) != rows or 2 * size >= numbers.shape[1]:
        return None
    if numbers.numel() * size > MOST_COMPARED or not numbers.is_floating_point():
        return None
    same = (numbers[:, :, None] == targets[:, None]).all(0)
    varied = all(2 * len(each.unique()) > rows for each in targets.T)
    return same.int().argmax(0) if varied and bool(same.any(0).all()) else None


@dataclass(frozen=True)
class SequenceProbeSight:
    """What an output for one step changes with."""

    of_later: bool
    of_itself: bool
    where: str  # the operation from which on later steps are seen; empty where that is not known


def probe_sequence_sight(forward: ForwardCall, task: SequenceProbeTask) -> SequenceProbeSight | None:
    """Change the last step of the input, and see which outputs change; None where they have no axis of time."""
    axis, given = task.axis, task.given
    if len(forward.args) + len(forward.kwargs) == 1:  # else other inputs may have to fit
        size = min(given.shape[axis], MOST)
        given = given.narrow(axis, 0, size - (size == task.classes))  # else time looks like the classes
        given = given.narrow(1 - axis, 0, min(given.shape[1 - axis], EXAMPLES))
    size = given.shape[axis]
    changed = given.clone()
    changed.select(axis, size - 1).copy_(_other_symbol(given, axis))
    with ProbedModel(forward) as trial:
        base, again, last = (
            _probe_changed_input(trial, {task.key: each}) for each in (given, given, changed)
        )
    if len(base.outputs) != len(last.outputs) or not _have_same_outputs(base, again):
        return None  # or it draws numbers that no seed repeats
    for index, (before, after) in enumerate(zip(base.outputs, last.outputs, strict=True)):
        alike = is_plain_watched_tensor(before) and before.shape == after.shape
        moved = _output_by_step(probed_values_differ(before, after), given) if alike else None
        if moved is not None:
            earlier = bool(moved.narrow(axis, 0, size - 1).any())
            where = (
                _first_leaking_operation(align_passages([base, last], index), 1 / size, forward.variable)
                if earlier
                else ""
            )
            return SequenceProbeSight(earlier, bool(moved.select(axis, size - 1).any()), where)
    return None


def _probe_changed_input(trial: ProbedModel, changed: dict[int | str, Tensor]) -> ProbePassage:
    trial.put_back()
    return ProbePassage(trial, changed)


def _have_same_outputs(first: ProbePassage, second: ProbePassage) -> bool:
    pairs = zip(first.outputs, second.outputs, strict=False)
    return all(a.shape == b.shape and not probed_values_differ(a, b).any() for a, b in pairs)


def _output_by_step(output: Tensor, given: Tensor) -> Tensor | None:
    """Return an output with the two axes of the input first, whether its classes lie last, second or it is flat."""
    if output.dim() == 2 and len(output) == given.numel():
        return output.reshape(*given.shape, -1)
    if output.dim() != 3 or output.shape[1] == output.shape[2]:
        return None
    turned = output.transpose(1, 2)
    return next((each for each in (output, turned) if each.shape[:2] == given.shape), None)


def _other_symbol(given: Tensor, axis: int) -> Tensor:
    """Return a symbol for the last step that is another one than it holds, from the same sequence where there is one."""
    last = given.select(axis, given.shape[axis] - 1)
    found = last.clone()
    for step in range(given.shape[axis] - 1):
        found = torch.where(found == last, given.select(axis, step), found)
    return found


def _first_leaking_operation(steps: list[tuple[ProbedValue, list[Tensor]]], share: float, model: str) -> str:
    """Return the operation from which on more than one step's share of the numbers changes, up to the output."""
    found = ""
    for computed, (before, after) in steps:
        moved = float(probed_values_differ(before, after).float().mean()) if before.numel() else 0.0
        if moved <= share * 1.01:
            found = ""
        elif not found:
            found = computed.told(model)
    return found
